/*
 * element.c
 *		Queues of elements: offering, showing, removing and taking.
 *
 * A queue is ZooKeeper's recipe: its elements are children "qn-N" of a path, and the lowest
 * comes first.
 *
 *	offer	look at the path; create the element, and with it a marker node
 *	wait	list; get the first element that nobody has claimed:
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
 * An element that a transaction takes is a hold (hold.c), whose node is the element's child
 * "claim".  The worker creates and watches the claim as it does the nodes of locks, and
 * refuses it at once if somebody else has claimed the element.  If a session of this server
 * is just giving the element back, the worker waits for that.  As for locks, the commit guard
 * looks whether the claim was lost.
 *
 *	commit is visible	the worker deletes claim and element together
 *	anything else		the worker deletes the claim
 *
 * Sessions that wait for an element take turns (shared/call.c).  The session whose turn it is
 * has the queue's children watched, and the claims of elements that others have: an element
 * that is given back does not change the list of children.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/display.h"
#include "backend/element.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "backend/wait.h"
#include "common/hashfn.h"
#include "fault.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"

/* A queue with so many children takes no more: Java's clients list up to 61,679. */
#define MAX_CHILDREN 50000

/*
 * Sequence numbers end at 2147483647, and order ends with them: offers are refused long
 * before.
 */
#define LAST_SEQUENCE (PG_INT32_MAX - 1000000)

#define MAX_ATTEMPTS 16 /* attempts to offer, while others delete the path */
#define SEARCH 128		/* newest elements, among which take_offer() looks for its own */
#define KNOWN_QUEUES 16 /* queues that this session remembers to have listed */

/* Number of elements that a session may hold */
#define MAX_ELEMENTS 64

#define SURVEY 64		   /* elements that are looked at together, to see which are free */
#define CLAIM_WATCHES 16   /* claims that are watched; the session looks at others ... */
#define CLAIM_LOOK_MS 1000 /* ... after so long, ms */

/* A user's call on a queue */
typedef struct TakeQueue
{
	const char *path;
	TakeHow		how;
	Wait		wait;	 /* not of an offer */
	bool		waited;	 /* it was not its turn at once, or it has looked before */
	int64		look_at; /* time of a look without a turn, by zklock_now_ms(); 0: never */
	Caller		call;
	const char *pin; /* its path; "" if ZooKeeper refuses one; NULL if there is none */
	const char *doing; /* for the context of errors: what was written, or may have been; or NULL */
} TakeQueue;

/* The contents of a queue */
typedef struct Listing
{
	CallStep	 step;
	ElementName *names; /* of its elements, in their order */
	int			 n;
	List		*taken; /* names of those that others have, as far as a look has found any */
} Listing;

/*
 * Adds to an error that ends a call, such as a cancellation, what was written or may have
 * been.
 */
static void
take_context(void *arg)
{
	const TakeQueue *queue = arg;

	if (queue->doing)
		errcontext("%s", queue->doing);
	else
		errcontext("while using ZooKeeper queue \"%s\"%s", display_utf8(queue->path),
				   display_outage(": ", ""));
}

/* ------------------------------------------------------------------------
 * Reading and writing
 * ------------------------------------------------------------------------
 */

/*
 * Lists the queue, after a sync, so that the list has all that was committed before.  Refuses
 * a path that is not a queue.
 */
static Listing
list_queue(TakeQueue *queue, bool watch)
{
	Listing listing = {.step.asked = {.kind = ZK_GET_CHILDREN, .path = queue->path, .watch = watch}};
	const CallStep *list = &listing.step;

	call_batch(&queue->call, &listing.step, 1, CALL_AFTER_SYNC);
	call_report(&queue->call, list);
	listing.names = MemoryContextAllocHuge(CurrentMemoryContext,
										   Max(list->result.nchildren, 1) * sizeof(ElementName));
	listing.n = element_name_sort(list->children, list->result.nchildren, listing.names);
	if (list->result.outcome != CALL_OK)
		return listing;

	/*
	 * Do its children belong to something else?  A path with elements is a queue: a lock that
	 * somebody asks for there is refused, and its node goes.
	 */
	call_refuse_claims(&queue->call, queue->path, &list->result.stat);
	for (int i = 0; listing.n == 0 && i < list->result.nchildren; i++)
	{
		const char *found = element_name_other_use(list->children[i]);

		if (found)
			request_report_other_use(queue->path, found);
	}
	return listing;
}

/* Returns the names of a queue's elements, in their order. */
const ElementName *
take_list(const char *path, int *n)
{
	TakeQueue queue = {.path = path};
	Listing	  listing = list_queue(&queue, false);

	*n = listing.n;
	return listing.names;
}

/* Looks at some elements, one after the other. */
static const CallStep *
look_at_elements(TakeQueue *queue, const ElementName *names, int n)
{
	CallStep *looks = palloc(n * sizeof(CallStep));

	for (int i = 0; i < n; i++)
		looks[i] = (CallStep){.asked = {.kind = ZK_EXISTS,
										.path = psprintf("%s/%s", queue->path, names[i].name)}};
	call_batch(&queue->call, looks, n, CALL_AS_KNOWN);
	return looks;
}

/*
 * Reads an element, under a pin if it is to be removed.  Returns false if it is gone, if somebody
 * else has claimed it, or if the timeout has passed.
 *
 * A pin is an ephemeral child of the queue's path.  The path cannot be deleted while the pin
 * is there, and names are not used again in the life of a path: what is read and removed
 * under one pin is the same element.  Without a pin the path could be deleted in between, as
 * ZooKeeper does with containers, and created again; its first element would have the name of
 * the one that was read.  A claim below the element would do as well, but ZooKeeper's own
 * clients, which may consume from the same queue, fail to remove an element with a child.
 * They ignore other names.
 *
 * If ZooKeeper refuses the pin, as it does when the queue has reached its quota, elements are
 * removed without one.
 */
static bool
read_element(TakeQueue *queue, const char *name, Element *got)
{
	const CallStep	  asked = {.asked = {.kind = ZK_GET_DATA,
										 .path = psprintf("%s/%s", queue->path, name),
										 .most = CALL_ANY_LENGTH}};
	CallStep		  read;
	const CallResult *result = &read.result;

	for (;;)
	{
		bool pins = queue->how == TAKE_REMOVE && queue->pin == NULL;
		char *pin = pins ? psprintf("%s/" ELEMENT_PIN, queue->path, node_data_unique(NULL)) : NULL;
		CallStep steps[] = {{.asked = {.kind = ZK_PIN, .path = pin, .marker = pin}}, asked};
		int		 first = pins ? 0 : 1;

		call_batch(&queue->call, &steps[first], lengthof(steps) - first, CALL_AS_KNOWN);
		read = steps[1];
		if (pins && steps[0].result.outcome == CALL_OK)
			queue->pin = pin;
		else if (pins && steps[0].result.outcome == CALL_REFUSED)
			queue->pin = "";
		else if (pins)
			call_slot_give_up();
		if (queue->how != TAKE_REMOVE ||
			(result->outcome != CALL_UNKNOWN && (result->outcome != CALL_OK || queue->pin)))
			break;
	}
	call_report(&queue->call, &read);

	/* The claim of an element that is being taken is the session's own. */
	if (result->outcome != CALL_OK || (queue->how != TAKE_CLAIM && result->stat.child_count > 0))
		return false;
	*got = (Element){.name = pstrdup(name),
					 .token = result->stat.czxid,
					 .version = result->stat.version,
					 .data = palloc(VARHDRSZ + result->text_length)};
	SET_VARSIZE(got->data, VARHDRSZ + result->text_length);
	memcpy(VARDATA(got->data), read.read ? read.read : "", result->text_length);
	return true;
}

/*
 * Makes a step with a marker node, and waits until it is known whether the step was made.
 * If the answer is lost, the outcome is CALL_OK and czxid that of the marker node if the
 * step was made, else CALL_UNKNOWN.  After a step that was made, the context of errors names
 * it.
 */
static void
write_certainly(TakeQueue *queue, CallStep *step)
{
	bool		adds = step->asked.kind == ZK_APPEND;
	const char *path = display_utf8(queue->path);
	const char *element = display_utf8(strrchr(step->asked.path, '/') + 1);
	CallOutcome outcome;
	CallStep	shown;

	for (;;)
	{
		const CallStep *made;

		step->asked.marker = psprintf(ELEMENT_RECEIPTS "/%s", node_data_unique(NULL));
		interrupt_check_client();
		queue->doing =
			adds ? psprintf("while adding an element to ZooKeeper queue \"%s\", where it may be by now",
							path)
				 : psprintf("while removing element \"%s\" of ZooKeeper queue \"%s\", which may be gone by now",
							element, path);
		call_batch(&queue->call, step, 1, CALL_AS_KNOWN);

		/* If the answer was lost, look for the marker node, however long that takes. */
		if (step->result.outcome == CALL_UNKNOWN && (adds || !ZKLOCK_FAULT("removal-again")))
		{
			Caller	 settling = {.patience = CALL_PATIENT,
								 .attend = queue->call.attend,
								 .attend_arg = queue->call.attend_arg};
			CallStep look = {.asked = {.kind = ZK_EXISTS, .path = step->asked.marker}};

			call_batch(&settling, &look, 1, CALL_AFTER_SYNC);
			call_slot_give_up();
			if (settling.session != queue->call.sent_session)
				ereport(ERROR,
						(errcode(ERRCODE_IO_ERROR),
						 adds ? errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"",
									   display_path(queue->path))
							  : errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
									   element, display_path(queue->path)),
						 errdetail("The ZooKeeper session ended meanwhile."),
						 adds ? 0 : errhint("If the element is still in the queue, it was not.")));
			call_report(&settling, &look);
			if (look.result.outcome == CALL_OK)
				step->result = look.result;
		}
		outcome = step->result.outcome;
		queue->doing = NULL;
		if (outcome == CALL_OK && !adds)
			queue->doing =
				psprintf("after removing element \"%s\" of ZooKeeper queue \"%s\"", element, path);
		else if (outcome == CALL_OK && step->read)
			queue->doing = psprintf("after adding element \"%s\" to ZooKeeper queue \"%s\"",
									display_utf8(step->read), path);
		else if (outcome == CALL_OK)
			queue->doing = psprintf("after adding an element to ZooKeeper queue \"%s\"", path);
		if (outcome != CALL_NO_NODE)
			break;

		/* The missing node may have been the parent of marker nodes. */
		made = call_create_path(&queue->call, ELEMENT_RECEIPTS,
								(ZkCall){.kind = ZK_CREATE,
										 .node_kind = ZK_PERSISTENT,
										 .path = ELEMENT_RECEIPTS});
		call_report(&queue->call, made);
		if (made->result.outcome == CALL_NODE_EXISTS)
			break;
	}
	if (outcome == CALL_REFUSED && zk_error(step->result.code).lacks_permission)
		request_report_failure(ENTRY_NONE, queue->path, FAILURE_NO_MARKER, step->result.code);
	shown = *step;
	shown.asked.path = queue->path;
	if (outcome != CALL_NOT_EMPTY)
		call_report(&queue->call, &shown);
}

/* ------------------------------------------------------------------------
 * Offering
 * ------------------------------------------------------------------------
 */

/* Looks whether an element can be offered.  Creates the path if it is missing. */
static void
prepare_offer(TakeQueue *queue)
{
	/* Queues that the session remembers to have listed, by a hash of their paths */
	static struct
	{
		uint32 hash;
		int64  czxid;
	} known[KNOWN_QUEUES];

	const CallStep *step =
		call_make(&queue->call, (ZkCall){.kind = ZK_EXISTS, .path = queue->path}, CALL_AS_KNOWN);
	const NodeStat *stat = &step->result.stat;
	uint32 hash = hash_bytes((const unsigned char *) queue->path, (int) strlen(queue->path));
	int	   place = hash % KNOWN_QUEUES;

	if (step->result.outcome == CALL_NO_NODE)
	{
		call_report(&queue->call, call_create_path(&queue->call, queue->path,
												   (ZkCall){.kind = ZK_CREATE,
															.node_kind = ZK_PERSISTENT,
															.path = queue->path}));
		return;
	}
	call_refuse_claims(&queue->call, queue->path, stat);
	if (stat->child_count >= MAX_CHILDREN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("ZooKeeper queue \"%s\" is full", display_path(queue->path)),
				 errdetail("It has %d elements or more.", MAX_CHILDREN),
				 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
	if (stat->child_changes < 0 || stat->child_changes > LAST_SEQUENCE)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up",
							   display_path(queue->path)),
						errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
						errhint("When the queue is empty and nobody uses it, delete its node.")));

	/* A path with children that is not a queue is refused; one that is known is not listed again. */
	if (stat->child_count == 0 || (known[place].hash == hash && known[place].czxid == stat->czxid))
		return;
	(void) list_queue(queue, false);
	known[place].hash = hash;
	known[place].czxid = stat->czxid;
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
		CallStep *step = palloc(sizeof(CallStep));

		prepare_offer(&queue);
		*step = (CallStep){.asked = {.kind = ZK_APPEND,
									 .path = psprintf("%s/" ELEMENT_PREFIX, path),
									 .data = length > 0 ? data : NULL,
									 .data_length = (int) length}};
		write_certainly(&queue, step);
		made = step->result.outcome == CALL_OK;
		name = step->read;

		/*
		 * Find the element's name by its czxid, which is that of its marker node, too: ZooKeeper
		 * gives both creates of an offer one transaction number.
		 */
		if (made && name == NULL)
		{
			Listing			list = list_queue(&queue, false);
			int				first = Max(list.n - SEARCH, 0);
			const CallStep *looks = NULL;

			if (list.n > 0)
				looks = look_at_elements(&queue, &list.names[first], list.n - first);
			for (int i = first; i < list.n && name == NULL; i++)
			{
				const CallResult *seen = &looks[i - first].result;

				if (seen->outcome == CALL_OK && seen->stat.czxid == step->result.stat.czxid)
					name = pstrdup(list.names[i].name);
			}
		}
	}
	if (!made)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
						errmsg("cannot use ZooKeeper queue \"%s\"", display_path(path)),
						errdetail("Others delete it as soon as it is there.")));
	interrupt_check(NULL, NULL);
	error_context_stack = context.previous;
	return name;
}

/* ------------------------------------------------------------------------
 * Getting one element, by its name.  Both functions return false if somebody else has it, if it is
 * gone, or if the timeout has passed.
 * ------------------------------------------------------------------------
 */

/* Removes an element, in the version that was read.  The pin goes with it. */
static bool
remove_element(TakeQueue *queue, const char *name, Element *got)
{
	/*
	 * Is it there, and has nobody claimed it?  This look has no pin, which would have the sessions
	 * that wait for an element look again.
	 */
	const CallStep *look = look_at_elements(queue, &(ElementName){.name = name}, 1);

	call_report(&queue->call, look);
	if (look->result.outcome != CALL_OK || look->result.stat.child_count > 0)
		return false;
	while (read_element(queue, name, got))
	{
		CallStep *step = palloc(sizeof(CallStep));

		*step = (CallStep){.asked = {.kind = ZK_REMOVE,
									 .path = psprintf("%s/%s", queue->path, name),
									 .pin = queue->pin[0] != '\0' ? queue->pin : NULL,
									 .version = got->version}};
		write_certainly(queue, step);
		if (step->result.outcome == CALL_OK || step->result.outcome == CALL_UNKNOWN)
			queue->pin = NULL;
		if (step->result.outcome == CALL_OK)
			return true;

		/*
		 * If the element is still there, the pin is gone, as it goes with its ZooKeeper
		 * session.
		 */
		if (step->result.outcome == CALL_NO_NODE)
		{
			if (!read_element(queue, name, got))
				return false;
			if (queue->pin[0] != '\0')
				call_slot_give_up();
			queue->pin = NULL;
		}
		else if (step->result.outcome != CALL_BAD_VERSION && step->result.outcome != CALL_UNKNOWN)
			return false;
	}
	return false;
}

/* Takes an element until the transaction ends. */
static bool
claim_element(TakeQueue *queue, const char *name, Element *got)
{
	EntryRequest request = {.kind = REQUEST_ELEMENT,
							.terms = {.mode = LOCK_MODE_EXCLUSIVE},
							.scope = LOCK_SCOPE_TRANSACTION,
							.manner = queue->wait.timeout_ms == LOCK_NO_WAIT ? ASK_AND_GRAB
																			 : ASK_AND_WAIT};
	int			 held = 0;
	Hold		*taken;
	bool		 made;

	transaction_begin_call();
	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		held += hold->kind == REQUEST_ELEMENT;
	if (held >= MAX_ELEMENTS)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("too many elements of ZooKeeper queues in this session"),
						errdetail("It holds %d, as many as it may.", held),
						errhint("Take fewer elements in one transaction.")));
	taken = hold_ask(&request, psprintf("%s/%s", queue->path, name));

	/* It is read when its claim is granted, so that the data are those of the claimed element. */
	made = wait_for_hold(&queue->wait, taken) && read_element(queue, name, got);
	if (made && hold_is_lost(taken))
		hold_report_lost(taken);
	if (made)
	{
		/* The end of a single statement would commit, and remove the element, for nobody. */
		interrupt_check_client();
		transaction_acquired(taken, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
	}
	transaction_end_call(made);
	return made;
}

/* ------------------------------------------------------------------------
 * Looking for an element
 * ------------------------------------------------------------------------
 */

/*
 * Looks once for an element, in the order of the queue.  If the first one is somebody else's,
 * the session asks which others are free, and tries each that is not known to be gone or
 * claimed.
 */
static bool
look_for_element(TakeQueue *queue, Element *got, Listing *list)
{
	const CallStep *looks = NULL;

	*list = list_queue(queue, queue->waited);
	for (int i = 0;
		 i < list->n && (queue->call.until == 0 || zklock_now_ms() < queue->call.until); i++)
	{
		const char		 *name = list->names[i].name;
		const CallResult *seen = NULL;

		if (i % SURVEY == 1)
			looks = look_at_elements(queue, &list->names[i], Min(SURVEY, list->n - i));
		if (looks)
			seen = &looks[(i - 1) % SURVEY].result;
		if (seen && seen->outcome == CALL_NO_NODE)
			continue;
		if ((seen == NULL || seen->outcome != CALL_OK || seen->stat.child_count == 0) &&
			(queue->how == TAKE_SHOW	 ? read_element(queue, name, got)
			 : queue->how == TAKE_REMOVE ? remove_element(queue, name, got)
										 : claim_element(queue, name, got)))
			return true;
		list->taken = lappend(list->taken, unconstify(char *, name));
	}
	if (queue->pin && queue->pin[0] != '\0')
		call_slot_give_up(); /* deletes the pin */
	queue->pin = NULL;
	return false;
}

/*
 * Has the changes watched that may bring an element: those of the queue's children, and of the
 * claims of elements that others have.  Creates the queue's path if it is missing.
 *
 * Returns when to look again without a change, by zklock_now_ms(): 0, which is never, if all are
 * watched; now if one is gone.
 */
static int64
watch_queue(TakeQueue *queue, const Listing *list)
{
	CallStep watches[CLAIM_WATCHES];
	int		 n = Min(list_length(list->taken), CLAIM_WATCHES);
	bool	 all = n == list_length(list->taken) && list->step.result.watching;

	if (list->step.result.outcome == CALL_NO_NODE)
		call_report(&queue->call, call_create_path(&queue->call, queue->path,
												   (ZkCall){.kind = ZK_CREATE,
															.node_kind = ZK_PERSISTENT,
															.path = queue->path}));

	/* A look without a watch is repeated at once, with one: elements may have come or gone. */
	if (!queue->waited || list->step.result.outcome == CALL_NO_NODE)
		return zklock_now_ms();
	for (int i = 0; i < n; i++)
		watches[i] = (CallStep){.asked = {.kind = ZK_WATCH_DATA,
										  .path = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path,
														   (char *) list_nth(list->taken, i))}};
	if (n > 0)
		call_batch(&queue->call, watches, n, CALL_AS_KNOWN);
	for (int i = 0; i < n; i++)
	{
		if (watches[i].result.outcome == CALL_NO_NODE)
			return zklock_now_ms();
		all &= watches[i].result.watching;
	}
	return all ? 0 : zklock_now_ms() + CLAIM_LOOK_MS;
}

static WaitAnswer
look_at_turn(const Wait *wait, void *arg)
{
	TakeQueue *queue = arg;
	CallSlot  *slot = &call_pool->slots[compat_my_proc_number()];

	/*
	 * It is this session's turn if it is the first to wait at its path, and the path has changed
	 * since it looked, or the time has come.
	 */
	if ((pg_atomic_read_u32(&slot->queue_wait_changed) != 0 ||
		 (queue->look_at > 0 && zklock_now_ms() >= queue->look_at)) &&
		queue_wait_first(slot->queue_wait_path, strlen(slot->queue_wait_path)) == slot)
	{
		pg_atomic_exchange_u32(&slot->queue_wait_changed, 0);
		return WAIT_OVER;
	}
	queue->waited = true;
	return WAIT_POLLED;
}

/* Ends this session's wait, if it waits, and wakes the next one. */
static void
leave_queue(void)
{
	CallSlot *slot = &call_pool->slots[compat_my_proc_number()];

	if (pg_atomic_exchange_u64(&slot->queue_wait_ticket, 0) == 0 ||
		queue_wait_wake(slot->queue_wait_path, strlen(slot->queue_wait_path)))
		return;
	pg_atomic_write_u32(&call_pool->queue_waits_left, 1);
	zklock_wake_worker();
}

/* Leaves the queue and counts the wait, as a callback at error and exit. */
static void
break_off_take(int code, Datum arg)
{
	TakeQueue *queue = (TakeQueue *) DatumGetPointer(arg);

	leave_queue();
	call_slot_give_up(); /* deletes a pin, too */
	wait_break_off(code, PointerGetDatum(&queue->wait));
}

/*
 * Gets the first free element of a queue, and waits if there is none.
 *
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *	kind		what the call is counted as, or WAIT_UNCOUNTED
 *
 * Returns false if none was free in that time.
 */
bool
take_first(const char *path, TakeHow how, int64 timeout_ms, StatsKind kind, Element *got)
{
	TakeQueue queue = {.path = path, .how = how};
	ErrorContextCallback context = {.callback = take_context, .arg = &queue, .previous = error_context_stack};
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "zklock look at a queue",
											   ALLOCSET_DEFAULT_SIZES);
	CallSlot	 *slot = &call_pool->slots[compat_my_proc_number()];
	bool		  found = false;

	if (how == TAKE_CLAIM && ZKLOCK_FAULT("take-early"))
		queue.how = TAKE_REMOVE;
	wait_begin(&queue.wait, path, "an element", kind, timeout_ms);
	queue.wait.event = ZKLOCK_WAIT_ELEMENT;
	PG_ENSURE_ERROR_CLEANUP(break_off_take, PointerGetDatum(&queue));
	{
		request_refuse_election(path);
		error_context_stack = &context;
		if (timeout_ms != LOCK_NO_WAIT)
		{
			queue.call.patience = CALL_PATIENT;
			queue.call.attend = wait_attend;
			queue.call.attend_arg = &queue.wait;
			if (timeout_ms > 0)
				queue.call.until = zklock_now_ms() + timeout_ms;

			/* Wait at the path, behind those that already do. */
			Assert(pg_atomic_read_u64(&slot->queue_wait_ticket) == 0);
			strlcpy(slot->queue_wait_path, path, sizeof(slot->queue_wait_path));
			pg_atomic_write_u32(&slot->queue_wait_changed, 1);
			pg_atomic_exchange_u64(&slot->queue_wait_ticket,
								   pg_atomic_add_fetch_u64(&call_pool->last_ticket, 1));
		}

		/* A call that does not wait looks once, whosever turn it is. */
		while (timeout_ms == LOCK_NO_WAIT || wait_until(&queue.wait, look_at_turn, &queue))
		{
			MemoryContext old;
			Listing		  list;
			bool		  over;

			/* A session may wait for days: it keeps no memory of a look. */
			MemoryContextReset(each);
			old = MemoryContextSwitchTo(each);
			found = look_for_element(&queue, got, &list);
			over = found || timeout_ms == LOCK_NO_WAIT ||
				   (queue.call.until > 0 && zklock_now_ms() >= queue.call.until);
			if (!over)
				queue.look_at = watch_queue(&queue, &list);
			MemoryContextSwitchTo(old);
			if (over)
				break;
			queue.waited = true;
		}
		leave_queue();
		if (!found && timeout_ms != LOCK_NO_WAIT && !zklock_connected())
			request_report_unreachable(path);
		interrupt_check(NULL, NULL);
	}
	PG_END_ENSURE_ERROR_CLEANUP(break_off_take, PointerGetDatum(&queue));
	error_context_stack = context.previous;
	wait_end(&queue.wait, found);

	/* A later cancellation would find no context that names what was removed. */
	interrupt_check(take_context, &queue);
	return found;
}
