/*
 * element_queue.c
 *		Queues of elements: listing them, adding elements, and finding out whether a
 *		write was made.
 *
 * A queue is ZooKeeper's recipe: its elements are children "qn-N" of a path, and the lowest
 * comes first.
 *
 *	offer	look at the path; create the element, and with it a marker node
 *	wait	list; get the first element that nobody has claimed (element_take.c):
 *			show it: read it
 *			remove it: look at it; create a pin and read it; delete both, and create a
 *			marker node
 *			take it: an entry, whose node is the claim below the element; read it
 *
 * If the answer to an offer or removal is lost, the marker node shows whether the write was
 * made.  That can be found out as long as the ZooKeeper session lives, even if the connection
 * or the worker is lost.  Only if the session has ended, or the call is cancelled, it stays
 * unknown; the error says so, and names the element that was being removed.  The call looks
 * for an interrupt that comes with the answer before it returns, so that this error names the
 * element, too.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/display.h"
#include "backend/element.h"
#include "backend/wait.h"
#include "common/hashfn.h"
#include "fault.h"
#include "zk/zk_client.h"

/* A queue with so many children takes no more: Java's clients list up to 61,679. */
#define MAX_CHILDREN 50000

/*
 * Sequence numbers end at 2147483647, and order ends with them: offers are refused long
 * before.
 */
#define LAST_SEQUENCE (PG_INT32_MAX - 1000000)

#define MAX_ATTEMPTS 16 /* attempts to offer, while others delete the path */
#define SEARCH 128		/* newest elements, among which find_created() looks */
#define KNOWN_QUEUES 16 /* queues that this session remembers to have listed */

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

/* Returns the name of the element that a step is about. */
static const char *
element_of(const CallStep *step)
{
	return strrchr(step->asked.path, '/') + 1;
}

/*
 * Adds to an error that ends a call, such as a cancellation, what was written or may have
 * been.
 */
void
take_context(void *arg)
{
	const TakeQueue *queue = arg;
	const CallStep	*written = queue->written;
	const char		*path = display_utf8(queue->path);
	bool			 added = written && written->asked.kind == ZK_APPEND;

	if (written == NULL)
		errcontext("while using ZooKeeper queue \"%s\"%s", path, display_outage_suffix());
	else if (queue->in_doubt && added)
		errcontext("while adding an element to ZooKeeper queue \"%s\", where it may be by now", path);
	else if (queue->in_doubt)
		errcontext("while removing element \"%s\" of ZooKeeper queue \"%s\", which may be gone by now",
				   display_utf8(element_of(written)), path);
	else if (added && written->read)
		errcontext("after adding element \"%s\" to ZooKeeper queue \"%s\"",
				   display_utf8(written->read), path);
	else if (added)
		errcontext("after adding an element to ZooKeeper queue \"%s\"", path);
	else
		errcontext("after removing element \"%s\" of ZooKeeper queue \"%s\"",
				   display_utf8(element_of(written)), path);
}

/* Raises the error for a write of which nobody knows whether it was made. */
static void
report_uncertain(const TakeQueue *queue)
{
	char *path = display_path(queue->path);
	bool  added = queue->written->asked.kind == ZK_APPEND;

	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 added ? errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"", path)
				   : errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
							display_utf8(element_of(queue->written)), path),
			 errdetail("The ZooKeeper session ended meanwhile."),
			 added ? 0 : errhint("If the element is still in the queue, it was not.")));
}

/* ------------------------------------------------------------------------
 * Listing a queue
 * ------------------------------------------------------------------------
 */

/*
 * Refuses the path if its children belong to something else.  A path with elements is a
 * queue: a lock that somebody asks for there is refused, and its node goes.
 */
static void
refuse_other_use(const TakeQueue *queue, const CallStep *list)
{
	const char *found = NULL;
	int64_t		number;

	for (int i = 0; i < list->result.nchildren; i++)
	{
		if (element_name_read(list->children[i], &number))
			return;
		if (found == NULL)
			found = element_name_other_use(list->children[i]);
	}
	if (found)
		request_report_other_use(queue->path, found);
}

/*
 * Lists the queue, after a sync, so that the list has all that was committed before.  Refuses
 * a path that is not a queue.
 */
const CallStep *
take_list(TakeQueue *queue, bool watch)
{
	CallStep *list = palloc(sizeof(CallStep));

	*list = (CallStep){.asked = {.kind = ZK_GET_CHILDREN, .path = queue->path, .watch = watch}};
	call_batch(&queue->call, list, 1, CALL_AFTER_SYNC);
	call_report_of(&queue->call, list);
	if (list->result.outcome == CALL_OK)
	{
		call_refuse_claims(&queue->call, queue->path, &list->result.stat);
		refuse_other_use(queue, list);
	}
	return list;
}

/* Returns the elements of a listing, in their order. */
const ElementName *
take_sort(const CallStep *list, int *n)
{
	ElementName *names =
		MemoryContextAllocHuge(CurrentMemoryContext,
							   Max(list->result.nchildren, 1) * sizeof(ElementName));

	*n = element_name_sort(list->children, list->result.nchildren, names);
	return names;
}

char *
take_element_path(const TakeQueue *queue, const char *name)
{
	return psprintf("%s/%s", queue->path, name);
}

/* Looks at some elements, one after the other. */
const CallStep *
take_look(TakeQueue *queue, const ElementName *names, int n)
{
	CallStep *looks = palloc(n * sizeof(CallStep));

	for (int i = 0; i < n; i++)
		looks[i] = (CallStep){
			.asked = {.kind = ZK_EXISTS, .path = take_element_path(queue, names[i].name)}};
	call_batch(&queue->call, looks, n, CALL_AS_KNOWN);
	return looks;
}

/* ------------------------------------------------------------------------
 * Marker nodes
 * ------------------------------------------------------------------------
 */

/*
 * Creates the parent of marker nodes, after a step with a marker node found no node: the
 * parent may have been the missing one.  Returns true if it was.
 */
static bool
create_marker_parent(TakeQueue *queue)
{
	const CallStep *made =
		call_create_path(&queue->call, ELEMENT_RECEIPTS,
						 (ZkCall){.kind = ZK_CREATE, .node_kind = ZK_PERSISTENT, .path = ELEMENT_RECEIPTS});

	call_report_of(&queue->call, made);
	return made->result.outcome != CALL_NODE_EXISTS;
}

/* Finds out whether a step was made whose answer was lost.  Waits until that is known. */
static void
settle_write(TakeQueue *queue, CallStep *step)
{
	Caller	 settling = {.patience = CALL_PATIENT,
						 .attend = queue->call.attend,
						 .attend_arg = queue->call.attend_arg};
	CallStep look = {.asked = {.kind = ZK_EXISTS, .path = step->asked.marker}};

	call_batch(&settling, &look, 1, CALL_AFTER_SYNC);
	call_slot_give_up();
	if (settling.session != queue->call.sent_session)
		report_uncertain(queue);
	call_report(&look);
	if (look.result.outcome == CALL_OK)
		step->result = look.result;
}

/*
 * Makes a step with a marker node, and waits until it is known whether the step was made.
 * If the answer is lost, the outcome is CALL_OK and czxid that of the marker node if the
 * step was made, else CALL_UNKNOWN.  After a step that was made, the context of errors names
 * it.
 */
void
take_make_certainly(TakeQueue *queue, CallStep *step)
{
	CallStep shown;

	do
	{
		step->asked.marker = psprintf(ELEMENT_RECEIPTS "/%s", node_data_unique(NULL));
		interrupt_check_client();
		queue->written = step;
		queue->in_doubt = true;
		call_batch(&queue->call, step, 1, CALL_AS_KNOWN);
		if (step->result.outcome == CALL_UNKNOWN &&
			!(step->asked.kind == ZK_REMOVE && ZKLOCK_FAULT("removal-again")))
			settle_write(queue, step);
		queue->in_doubt = false;
		if (step->result.outcome != CALL_OK)
			queue->written = NULL;
	} while (step->result.outcome == CALL_NO_NODE && create_marker_parent(queue));

	if (step->result.outcome == CALL_REFUSED && zk_error(step->result.code).lacks_permission)
		request_report_failure(ENTRY_NONE, queue->path, FAILURE_NO_MARKER, step->result.code);
	shown = *step;
	shown.asked.path = queue->path;
	if (step->result.outcome != CALL_NOT_EMPTY)
		call_report_of(&queue->call, &shown);
}

/* ------------------------------------------------------------------------
 * Pins
 * ------------------------------------------------------------------------
 */

/*
 * Creates a pin, and reads an element after that.  If ZooKeeper refuses the pin, as it does
 * when the queue has reached its quota, elements are removed without one.
 */
static void
pin_and_read(TakeQueue *queue, CallStep *read)
{
	char	*path = psprintf("%s/" ELEMENT_PIN, queue->path, node_data_unique(NULL));
	CallStep steps[] = {{.asked = {.kind = ZK_PIN, .path = path, .marker = path}}, *read};

	call_batch(&queue->call, steps, lengthof(steps), CALL_AS_KNOWN);
	*read = steps[1];
	if (steps[0].result.outcome == CALL_OK)
		queue->pin = path;
	else if (steps[0].result.outcome == CALL_REFUSED)
		queue->pin = "";
	else
		call_slot_give_up();
}

/*
 * Reads an element under a pin, which is created if there is none.
 *
 * A pin is an ephemeral child of the queue's path.  The path cannot be deleted while the pin
 * is there, and names are not used again in the life of a path: what is read and removed
 * under one pin is the same element.  Without a pin the path could be deleted in between, as
 * ZooKeeper does with containers, and created again; its first element would have the name of
 * the one that was read.  A claim below the element would do as well, but ZooKeeper's own
 * clients, which may consume from the same queue, fail to remove an element with a child.
 * They ignore other names.
 */
void
take_read_pinned(TakeQueue *queue, CallStep *read)
{
	do
	{
		if (queue->pin)
			call_batch(&queue->call, read, 1, CALL_AS_KNOWN);
		else
			pin_and_read(queue, read);
	} while (read->result.outcome == CALL_UNKNOWN ||
			 (read->result.outcome == CALL_OK && queue->pin == NULL));
}

/* Has the pin deleted, if there is one.  Cannot fail, does not wait. */
void
take_unpin(TakeQueue *queue)
{
	if (queue->pin && queue->pin[0] != '\0')
		call_slot_give_up();
	queue->pin = NULL;
}

/* ------------------------------------------------------------------------
 * Offering
 * ------------------------------------------------------------------------
 */

/*
 * Refuses an offer if a path with children is not a queue.  A path that the session remembers
 * to have listed is not listed again.
 */
static void
refuse_unknown(TakeQueue *queue, const CallResult *look)
{
	static struct
	{
		uint32 hash;
		int64  czxid;
	} known[KNOWN_QUEUES];

	uint32 hash = hash_bytes((const unsigned char *) queue->path, (int) strlen(queue->path));
	int	   place = hash % KNOWN_QUEUES;

	if (known[place].hash == hash && known[place].czxid == look->stat.czxid)
		return;
	(void) take_list(queue, false);
	known[place].hash = hash;
	known[place].czxid = look->stat.czxid;
}

/* Looks whether an element can be offered.  Creates the path if it is missing. */
static void
prepare(TakeQueue *queue)
{
	const CallStep *step =
		call_make(&queue->call, (ZkCall){.kind = ZK_EXISTS, .path = queue->path}, CALL_AS_KNOWN);
	const CallResult *look = &step->result;

	if (look->outcome == CALL_NO_NODE)
	{
		call_report(call_create_path(&queue->call, queue->path,
									 (ZkCall){.kind = ZK_CREATE,
											  .node_kind = ZK_PERSISTENT,
											  .path = queue->path}));
		return;
	}
	call_refuse_claims(&queue->call, queue->path, &look->stat);
	if (look->stat.child_count >= MAX_CHILDREN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("ZooKeeper queue \"%s\" is full", display_path(queue->path)),
				 errdetail("It has %d elements or more.", MAX_CHILDREN),
				 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
	if (look->stat.child_changes < 0 || look->stat.child_changes > LAST_SEQUENCE)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up",
							   display_path(queue->path)),
						errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
						errhint("When the queue is empty and nobody uses it, delete its node.")));
	if (look->stat.child_count > 0)
		refuse_unknown(queue, look);
}

/*
 * Returns the name of the element with a czxid, which is that of its marker node, too:
 * ZooKeeper gives both creates of an offer one transaction number.  NULL if the element is
 * there no more.
 */
static char *
find_created(TakeQueue *queue, int64 czxid)
{
	int				   n;
	const ElementName *names = take_sort(take_list(queue, false), &n);
	int				   first = Max(n - SEARCH, 0);
	const CallStep	  *looks = n > 0 ? take_look(queue, &names[first], n - first) : NULL;

	for (int i = first; i < n; i++)
	{
		if (looks[i - first].result.outcome == CALL_OK && looks[i - first].result.stat.czxid == czxid)
			return pstrdup(names[i].name);
	}
	return NULL;
}

/* Sends an offer.  Returns false if it was not made and can be sent again. */
static bool
append_element(TakeQueue *queue, const char *data, Size length, char **name)
{
	CallStep *step = palloc(sizeof(CallStep));

	*step = (CallStep){.asked = {.kind = ZK_APPEND,
								 .path = psprintf("%s/" ELEMENT_PREFIX, queue->path),
								 .data = length > 0 ? data : NULL,
								 .data_length = (int) length}};
	take_make_certainly(queue, step);
	*name = step->read;
	if (step->result.outcome == CALL_OK && step->read == NULL)
		*name = find_created(queue, step->result.stat.czxid);
	return step->result.outcome == CALL_OK;
}

/*
 * Adds an element to a queue, which is created if it does not exist.  Returns the element's
 * name, or NULL if the name is not known: the answer was lost, and somebody has taken the
 * element before it was looked for.
 */
char *
take_offer(const char *path, const char *data, Size length)
{
	TakeQueue queue = {.path = path};
	ErrorContextCallback context = {.callback = take_context, .arg = &queue, .previous = error_context_stack};
	char				*name = NULL;
	bool				 made = false;

	request_refuse_election(path);
	error_context_stack = &context;
	for (int attempt = 0; !made && attempt < MAX_ATTEMPTS; attempt++)
	{
		prepare(&queue);
		made = append_element(&queue, data, length, &name);
	}
	if (!made)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
						errmsg("cannot use ZooKeeper queue \"%s\"", display_path(path)),
						errdetail("Others delete it as soon as it is there.")));
	interrupt_check(NULL, NULL);
	error_context_stack = context.previous;
	return name;
}
