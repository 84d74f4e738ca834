/*
 * take_queue.c
 *		Queues of elements: offering, showing, removing and taking.
 *
 * A queue is ZooKeeper's recipe: its elements are children "qn-N" of a path, and
 * the lowest comes first.
 *
 *	offer	look at the path; create the element, and with it a scratch node
 *	show	list; read the first element that nobody has claimed
 *	remove	likewise; delete it, and create a scratch node
 *	take	list; claim the first, for the transaction (worker/elements.c); read it
 *
 * If the answer to an offer or removal was lost, the scratch node tells whether it was
 * made.  That is settled as long as the ZooKeeper session lives, whatever becomes
 * of connection and worker.  Only if it has ended, or the call is cancelled, nobody
 * knows; the error says so, and names the element that was being removed.
 * ZooKeeper gives both creates of an offer the same transaction number, by which
 * its element is found.
 *
 * A session that waits for an element takes its turn (shared/seek.c).  It has the
 * queue's children watched, and the claims of elements that others have: one that
 * is given back is no change of the queue's.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call_path.h"
#include "backend/display.h"
#include "backend/request.h"
#include "backend/take.h"
#include "backend/take_queue.h"
#include "common/hashfn.h"
#include "compat.h"
#include "fault.h"
#include "recipes/claim_record.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/seek.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "shared/worker_process.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "zk/zk_error.h"

/* A queue that has so many children takes no more: Java's clients list up to 61,679. */
#define MAX_CHILDREN 50000

/* Sequence numbers end at 2147483647, and order with them: long before, it is told. */
#define LAST_SEQUENCE (PG_INT32_MAX - 1000000)

#define MAX_ATTEMPTS 16 /* to offer, while others delete the path */
#define SEARCH 128 /* newest elements, among which one is looked for after a lost answer */
#define SURVEY 64  /* elements that are looked at together: which are free? */
#define CLAIM_WATCHES 16   /* claims that are watched; others are looked at ... */
#define CLAIM_LOOK_MS 1000 /* ... from time to time */
#define KNOWN_QUEUES 16	   /* that this session has listed */
#define LOOK_MS 1000	   /* how long to sleep when nobody tells what is waited for */
#define QUOTA_EXCEEDED (-125)

/* A call of a user's, for errors on the way */
typedef struct Queue
{
	const char *path;
	int64		timeout_ms;
	Call		call;
	bool		offering; /* an offer is being sent, or in doubt */
	const char *removing; /* the element that is being removed, or NULL */
} Queue;

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

/* What an error says that ends a call, such as a cancellation; bytes may be escaped. */
static void
queue_context(void *arg)
{
	const Queue *queue = arg;
	const char	*path = display_utf8(queue->path);
	const char	*outage = display_outage();

	if (queue->offering)
		errcontext("while adding an element to ZooKeeper queue \"%s\", where it may be by now", path);
	else if (queue->removing)
		errcontext("while removing element \"%s\" of ZooKeeper queue \"%s\", which may be gone by now",
				   display_utf8(queue->removing), path);
	else if (outage)
		errcontext("while using ZooKeeper queue \"%s\": %s", path, outage);
	else
		errcontext("while using ZooKeeper queue \"%s\"", path);
}

static void
report_unreachable(const Queue *queue)
{
	const char *outage = display_outage();

	if (zklock_worker_pid() == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errhint("See the server log; you might need to increase \"max_worker_processes\".")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not use ZooKeeper queue \"%s\": ZooKeeper cannot be reached",
						   display_path(queue->path)),
					outage ? errdetail_internal("%s.", outage) : 0));
}

static void
report_refused(const Queue *queue, int code)
{
	const char *path = display_path(queue->path);

	if (code == QUOTA_EXCEEDED)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("ZooKeeper queue \"%s\" has reached its quota", path),
				 errdetail("ZooKeeper refused: %s.", zk_error_name(code)),
				 errhint("Wait until elements have been taken, or ask an administrator of ZooKeeper to raise the quota of the path.")));
	ereport(ERROR,
			(errcode(zk_error_is_permission(code) ? ERRCODE_INSUFFICIENT_PRIVILEGE : ERRCODE_SYSTEM_ERROR),
			 errmsg("cannot use ZooKeeper queue \"%s\"", path),
			 errdetail("ZooKeeper refused: %s.", zk_error_name(code)),
			 zk_error_is_permission(code)
				 ? errhint("Check the ACLs of the queue and of node \"%s\", and the settings \"zklock.auth_file\" and \"zklock.acl\".",
						   ELEMENT_RECEIPTS)
				 : 0));
}

/* Raises the error for an outcome that cannot be borne. */
static void
check(const Queue *queue, const CallStep *step)
{
	switch (step->result.outcome)
	{
		case CALL_UNREACHABLE:
			report_unreachable(queue);
			break;
		case CALL_NO_CHILDREN:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" cannot be a ZooKeeper queue", display_path(queue->path)),
					 errdetail("The path, or one above it, is an ephemeral node, which cannot have children.")));
			break;
		case CALL_REFUSED:
			report_refused(queue, step->result.code);
			break;
		default:
			call_report(step);
	}
}

static void
report_other_use(const Queue *queue, ElementOtherUse use)
{
	const char *detail = NULL;

	switch (use)
	{
		case ELEMENT_USE_NONE:
			return;
		case ELEMENT_USE_ELECTION:
			detail = _("The elements of a queue and the candidates of an election cannot have the same path.");
			break;
		case ELEMENT_USE_CLAIMS:
			detail = _("The elements of a queue and claims cannot have the same path.");
			break;
		case ELEMENT_USE_LOCK:
			detail = _("The elements of a queue and the nodes of a lock or semaphore cannot have the same path.");
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("ZooKeeper path \"%s\" is in use for something else", display_path(queue->path)),
			 errdetail_internal("%s", detail)));
}

/* Nobody knows whether what was sent has been done. */
static void
report_uncertain(const Queue *queue)
{
	char *path = display_path(queue->path);

	if (queue->offering)
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"", path),
				 errdetail("The ZooKeeper session ended meanwhile.")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
						   display_utf8(queue->removing), path),
					errdetail("The ZooKeeper session ended meanwhile."),
					errhint("If the element is still in the queue, it was not.")));
}

/* ------------------------------------------------------------------------
 * Is it a queue?
 * ------------------------------------------------------------------------
 */

/* Refuses the path if its data, of which a look or listing tells, are a claim's. */
static void
refuse_claims(Queue *queue, const CallResult *result)
{
	CallStep	read = {.kind = OP_READ, .path = queue->path, .most = CLAIM_RECORD_SIZE - 1};
	ClaimRecord record;

	if (result->data_length == 0 || result->data_length >= CLAIM_RECORD_SIZE)
		return;
	call_batch(&queue->call, &read, 1, CALL_AS_KNOWN);

	/* Data that we may not read are no reason to refuse. */
	if (read.result.outcome == CALL_UNREACHABLE)
		check(queue, &read);
	if (read.read && claim_record_read(read.read, read.result.text_length, &record))
		report_other_use(queue, ELEMENT_USE_CLAIMS);
}

/*
 * Refuses the path if its children are something else.  Where there are elements it is
 * a queue: a lock that somebody asks for there is refused, and its node goes.
 */
static void
refuse_other_use(const Queue *queue, const CallStep *list)
{
	ElementOtherUse found = ELEMENT_USE_NONE;
	int64_t			number;

	for (int i = 0; i < list->result.nchildren; i++)
	{
		if (element_name_read(list->children[i], &number))
			return;
		if (found == ELEMENT_USE_NONE)
			found = element_name_other_use(list->children[i]);
	}
	report_other_use(queue, found);
}

/* Lists the queue, no older than what anybody knows by now; refuses what is none. */
static CallStep *
list_queue(Queue *queue, bool watch)
{
	CallStep *list = palloc(sizeof(CallStep));

	*list = (CallStep){.kind = OP_LIST, .path = queue->path, .watch = watch};
	call_batch(&queue->call, list, 1, CALL_AFTER_SYNC);
	if (list->result.outcome != CALL_UNREACHABLE || queue->call.until == 0)
		check(queue, list);
	if (list->result.outcome == CALL_OK)
	{
		refuse_claims(queue, &list->result);
		refuse_other_use(queue, list);
	}
	return list;
}

/* The elements of a listing, in their order */
static ElementName *
sort_elements(const CallStep *list, int *n)
{
	ElementName *names =
		MemoryContextAllocHuge(CurrentMemoryContext,
							   Max(list->result.nchildren, 1) * sizeof(ElementName));

	*n = element_name_sort(list->children, list->result.nchildren, names);
	return names;
}

static char *
element_path(const Queue *queue, const char *name)
{
	return psprintf("%s/%s", queue->path, name);
}

static void
set_element(Element *element, const char *name, const CallStep *read)
{
	element->name = pstrdup(name);
	element->token = read->result.czxid;
	element->version = read->result.version;
	element->data = read->read ? read->read : palloc(1);
	element->length = read->result.text_length;
}

/* ------------------------------------------------------------------------
 * What a scratch node tells
 * ------------------------------------------------------------------------
 */

/* The path of a scratch node of which nobody else knows */
static char *
scratch_path(void)
{
	uint8 uuid[ZKLOCK_UUID_BYTES];
	char  id[64];

	if (!pg_strong_random(uuid, sizeof(uuid)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	uuid_format(id, sizeof(id), uuid, UUID_DIGITS_ONLY);
	return psprintf(ELEMENT_RECEIPTS "/%s", id);
}

/*
 * Makes a step that a scratch node goes with, and waits until it is known whether it
 * was made.  If the answer was lost, and it was, the outcome is CALL_OK, and
 * czxid that of the scratch node; if it was not, CALL_UNKNOWN.
 */
static void
make_certainly(Queue *queue, CallStep *step)
{
	CallPatience patience = queue->call.patience;
	int64		 until = queue->call.until;
	int64		 sent_session;
	CallStep	 look;

	step->scratch = scratch_path();
	call_batch(&queue->call, step, 1, CALL_AS_KNOWN);
	if (step->result.outcome != CALL_UNKNOWN ||
		(step->kind == OP_REMOVE && ZKLOCK_FAULT("removal-again")))
		return;
	sent_session = queue->call.sent_session;
	look = (CallStep){.kind = OP_LOOK, .path = step->scratch};
	queue->call.patience = CALL_PATIENT;
	queue->call.until = 0;
	call_batch(&queue->call, &look, 1, CALL_AFTER_SYNC);
	if (queue->call.session != sent_session)
		report_uncertain(queue);
	check(queue, &look);
	if (look.result.outcome == CALL_OK)
		step->result = look.result;
	call_forget_scratch();
	queue->call.patience = patience;
	queue->call.until = until;
}

/* A step with a scratch node found no node: that may have been the parent of such.  Returns whether it was. */
static bool
create_receipts(Queue *queue)
{
	const CallStep *made = call_create_path(&queue->call, ELEMENT_RECEIPTS, NULL, OP_CREATE);

	check(queue, made);
	return made->result.outcome != CALL_NODE_EXISTS;
}

/* ------------------------------------------------------------------------
 * Offering
 * ------------------------------------------------------------------------
 */

/* Refuses an offer if a path with children is no queue; that is found out once. */
static void
refuse_unknown(Queue *queue, const CallResult *look)
{
	static struct
	{
		uint32 hash;
		int64  czxid;
	} known[KNOWN_QUEUES];
	static int next_known = 0;

	uint32 hash = hash_bytes((const unsigned char *) queue->path, (int) strlen(queue->path));

	for (int i = 0; i < KNOWN_QUEUES; i++)
	{
		if (known[i].hash == hash && known[i].czxid == look->czxid)
			return;
	}
	(void) list_queue(queue, false);
	known[next_known].hash = hash;
	known[next_known].czxid = look->czxid;
	next_known = (next_known + 1) % KNOWN_QUEUES;
}

/* Looks whether an element can be offered.  Creates the path if it is missing. */
static void
prepare_offer(Queue *queue)
{
	CallStep look = {.kind = OP_LOOK, .path = queue->path};

	call_batch(&queue->call, &look, 1, CALL_AS_KNOWN);
	check(queue, &look);
	if (look.result.outcome == CALL_NO_NODE)
	{
		check(queue, call_create_path(&queue->call, queue->path, NULL, OP_CREATE));
		return;
	}
	refuse_claims(queue, &look.result);
	if (look.result.child_count >= MAX_CHILDREN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("ZooKeeper queue \"%s\" is full", display_path(queue->path)),
				 errdetail("It has %d elements or more.", MAX_CHILDREN),
				 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
	if (look.result.child_changes < 0 || look.result.child_changes > LAST_SEQUENCE)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up",
							   display_path(queue->path)),
						errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
						errhint("When the queue is empty and nobody uses it, delete its node.")));
	if (look.result.child_count > 0)
		refuse_unknown(queue, &look.result);
}

/* The name of the element that was created then; NULL if it is there no more. */
static char *
find_created(Queue *queue, int64 czxid)
{
	const CallStep *list = list_queue(queue, false);
	int				n;
	ElementName	   *names = sort_elements(list, &n);
	int				first = Max(n - SEARCH, 0);
	CallStep	   *looks = palloc0(SEARCH * sizeof(CallStep));

	for (int i = first; i < n; i++)
		looks[i - first] = (CallStep){.kind = OP_LOOK, .path = element_path(queue, names[i].name)};
	if (n > 0)
		call_batch(&queue->call, looks, n - first, CALL_AS_KNOWN);
	for (int i = first; i < n; i++)
	{
		if (looks[i - first].result.outcome == CALL_OK && looks[i - first].result.czxid == czxid)
			return pstrdup(names[i].name);
	}
	return NULL;
}

/* Sends an offer.  Returns false if it was not made, and may be made now. */
static bool
append(Queue *queue, const char *data, Size length, char **name)
{
	CallStep step = {.kind = OP_APPEND,
					 .path = psprintf("%s/" ELEMENT_PREFIX, queue->path),
					 .data = length > 0 ? data : NULL,
					 .data_length = length};

	queue->offering = true;
	make_certainly(queue, &step);
	queue->offering = false;
	check(queue, &step);
	*name = step.read;
	if (step.result.outcome == CALL_OK && step.read == NULL)
		*name = find_created(queue, step.result.czxid);
	return step.result.outcome == CALL_OK;
}

/*
 * Adds an element to a queue, which is created if it does not exist.  Returns its
 * name, or NULL if that is not known: the answer was lost, and somebody has taken
 * the element before it could be asked for.
 */
char *
take_offer(const char *path, const char *data, Size length)
{
	Queue queue = {.path = path};
	ErrorContextCallback context = {.callback = queue_context, .arg = &queue, .previous = error_context_stack};
	char *name = NULL;
	bool  made = false;

	request_refuse_election(path);
	error_context_stack = &context;
	for (int attempt = 0; !made && attempt < MAX_ATTEMPTS; attempt++)
	{
		prepare_offer(&queue);
		made = append(&queue, data, length, &name);
		if (!made)
			(void) create_receipts(&queue);
	}
	if (!made)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
						errmsg("cannot use ZooKeeper queue \"%s\"", display_path(path)),
						errdetail("Others delete it as soon as it is there.")));
	error_context_stack = context.previous;
	return name;
}

/* ------------------------------------------------------------------------
 * One element
 * ------------------------------------------------------------------------
 */

/* What became of an attempt to get an element */
typedef enum Attempt
{
	ATTEMPT_MADE,
	ATTEMPT_IN_VAIN,
	ATTEMPT_OUT_OF_TIME
} Attempt;

/* Gets an element, by its name, if nobody else has it. */
typedef Attempt (*Getter)(Queue *queue, const char *name, Element *got);

static bool
is_out_of_time(const Queue *queue)
{
	return queue->call.until > 0 && zklock_now_ms() >= queue->call.until;
}

/* How long to sleep, ms, for something that somebody will tell */
static long
sleep_time(const Queue *queue)
{
	if (queue->call.until == 0)
		return LOOK_MS;
	return Max(Min(LOOK_MS, queue->call.until - zklock_now_ms()), 0);
}

static void
sleep_on_latch(const Queue *queue)
{
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 sleep_time(queue), zklock_wait_event(ZKLOCK_WAIT_ELEMENT));
}

/*
 * Waits while an element is being given back by a session of this server: who rolls
 * back and asks again gets the same one.
 */
static void
wait_given_back(const Queue *queue, const char *name)
{
	while (element_is_coming_back(queue->path, name) && zklock_connected() && !is_out_of_time(queue))
		(void) ConditionVariableTimedSleep(&element_pool->given_back, sleep_time(queue),
										   zklock_wait_event(ZKLOCK_WAIT_ELEMENT));
	ConditionVariableCancelSleep();
}

/* Reads an element: shows it, if nobody has claimed it. */
static Attempt
show(Queue *queue, const char *name, Element *got)
{
	CallStep read = {.kind = OP_READ, .path = element_path(queue, name), .most = CALL_ANY_LENGTH};

	wait_given_back(queue, name);
	call_batch(&queue->call, &read, 1, CALL_AS_KNOWN);
	if (read.result.outcome == CALL_UNREACHABLE && is_out_of_time(queue))
		return ATTEMPT_OUT_OF_TIME;
	check(queue, &read);
	if (read.result.outcome == CALL_NO_NODE || read.result.child_count > 0)
		return ATTEMPT_IN_VAIN;
	set_element(got, name, &read);
	return ATTEMPT_MADE;
}

/* Reads an element and removes what was read. */
static Attempt
remove_element(Queue *queue, const char *name, Element *got)
{
	for (;;)
	{
		CallStep step = {.kind = OP_REMOVE, .path = element_path(queue, name)};
		Attempt	 shown = show(queue, name, got);

		if (shown != ATTEMPT_MADE)
			return shown;
		step.version = got->version;
		queue->removing = name;
		make_certainly(queue, &step);
		queue->removing = NULL;
		if (step.result.outcome == CALL_OK)
			return ATTEMPT_MADE;
		if (step.result.outcome == CALL_NOT_EMPTY ||
			(step.result.outcome == CALL_NO_NODE && !create_receipts(queue)))
			return ATTEMPT_IN_VAIN;
		if (step.result.outcome == CALL_UNREACHABLE && is_out_of_time(queue))
			return ATTEMPT_OUT_OF_TIME;
		check(queue, &step);
	}
}

/* As a callback at error and exit */
static void
drop_element(int code, Datum arg)
{
	element_drop((TakenElement *) DatumGetPointer(arg));
}

/* Waits until the worker has claimed the element, or cannot. */
static ElementState
wait_for_claim(const Queue *queue, TakenElement *element)
{
	for (;;)
	{
		ElementState state;

		ResetLatch(MyLatch);
		state = element_state(element);
		if (state != ELEMENT_ASKED || is_out_of_time(queue))
			return state;
		if (queue->timeout_ms == LOCK_NO_WAIT && lease_state() != LEASE_HOLDS && !zklock_connected())
			report_unreachable(queue);
		sleep_on_latch(queue);
	}
}

/* Raises the error for a claim that was not made, unless it is only that it cannot be had. */
static void
report_claim(const Queue *queue, const TakenElement *element)
{
	switch (element->failure)
	{
		case ELEMENT_FAILURE_GONE:
		case ELEMENT_FAILURE_TAKEN:
			break;
		case ELEMENT_FAILURE_SESSION_FULL:
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
							errmsg("cannot use ZooKeeper queue \"%s\": too many elements are held",
								   display_path(queue->path)),
							errdetail("The paths of their nodes exceed what all sessions of this server, or this one, may have."),
							errhint("Take fewer elements at a time, or use shorter paths.")));
			break;
		case ELEMENT_FAILURE_REFUSED:
			report_refused(queue, element->code);
			break;
	}
}

/* An element is ours: reads it.  Its data are those of the incarnation that was claimed. */
static Attempt
read_claimed(Queue *queue, TakenElement *element, Element *got)
{
	CallStep read = {.kind = OP_READ, .path = element_path(queue, element->name), .most = CALL_ANY_LENGTH};

	call_batch(&queue->call, &read, 1, CALL_AS_KNOWN);
	if (element_state(element) == ELEMENT_LOST || read.result.outcome == CALL_NO_NODE)
		take_report_lost_element(element);
	if (read.result.outcome == CALL_UNREACHABLE && is_out_of_time(queue))
		return ATTEMPT_OUT_OF_TIME;
	check(queue, &read);
	set_element(got, element->name, &read);
	return ATTEMPT_MADE;
}

/* Takes an element until the transaction ends. */
static Attempt
take(Queue *queue, const char *name, Element *got)
{
	TakenElement	*element;
	volatile Attempt attempt = ATTEMPT_IN_VAIN;

	wait_given_back(queue, name);
	element = take_claim(queue->path, name);
	PG_ENSURE_ERROR_CLEANUP(drop_element, PointerGetDatum(element));
	{
		ElementState state = wait_for_claim(queue, element);

		if (state == ELEMENT_ASKED)
			attempt = ATTEMPT_OUT_OF_TIME;
		else if (state == ELEMENT_FAILED)
			report_claim(queue, element);
		else
			attempt = read_claimed(queue, element, got);
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_element, PointerGetDatum(element));
	if (attempt == ATTEMPT_MADE)
		take_keep(element);
	else
		element_drop(element);
	return attempt;
}

/* ------------------------------------------------------------------------
 * Seeking
 * ------------------------------------------------------------------------
 */

/*
 * Tries the elements of a listing in their order.  If the first is somebody else's,
 * it is looked which others are free.
 *
 *	taken	gets the names of those that others have
 */
static Attempt
try_elements(Queue *queue, const ElementName *names, int n, Getter get, Element *got, List **taken)
{
	CallStep *looks = palloc(SURVEY * sizeof(CallStep));
	int		  surveyed = 0;
	int		  survey_begin = 0;

	for (int i = 0; i < n; i++)
	{
		Attempt attempt;

		if (i > 0 && i >= surveyed)
		{
			survey_begin = i;
			surveyed = Min(i + SURVEY, n);
			for (int j = i; j < surveyed; j++)
				looks[j - i] =
					(CallStep){.kind = OP_LOOK, .path = element_path(queue, names[j].name)};
			call_batch(&queue->call, looks, surveyed - i, CALL_AS_KNOWN);
		}
		if (i > 0 && looks[i - survey_begin].result.outcome == CALL_NO_NODE)
			continue;
		if (i > 0 && looks[i - survey_begin].result.outcome == CALL_OK &&
			looks[i - survey_begin].result.child_count > 0)
		{
			*taken = lappend(*taken, pstrdup(names[i].name));
			continue;
		}
		attempt = get(queue, names[i].name, got);
		if (attempt != ATTEMPT_IN_VAIN)
			return attempt;
		*taken = lappend(*taken, pstrdup(names[i].name));
	}
	return ATTEMPT_IN_VAIN;
}

/*
 * Has the claims of elements that others have watched.  Returns when to look again,
 * by zklock_now_ms(): never (0), if all are watched; at once, if one is gone.
 */
static int64
watch_claims(Queue *queue, List *taken)
{
	CallStep  watches[CLAIM_WATCHES];
	int		  n = 0;
	bool	  all = list_length(taken) <= CLAIM_WATCHES;
	ListCell *cell;

	foreach(cell, taken)
	{
		if (n == CLAIM_WATCHES)
			break;
		watches[n++] = (CallStep){.kind = OP_WATCH,
								  .path = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path,
												   (char *) lfirst(cell))};
	}
	if (n == 0)
		return 0;
	call_batch(&queue->call, watches, n, CALL_AS_KNOWN);
	for (int i = 0; i < n; i++)
	{
		if (watches[i].result.outcome == CALL_NO_NODE)
			return zklock_now_ms();
		all &= watches[i].result.watching;
	}
	return all ? 0 : zklock_now_ms() + CLAIM_LOOK_MS;
}

/* Waits until it is this session's turn to look.  Returns false if the timeout passes first. */
static bool
wait_for_turn(Queue *queue, int64 look_at, bool *waited)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (seek_is_first() && (seek_has_changed() || (look_at > 0 && zklock_now_ms() >= look_at)))
			return true;
		if (is_out_of_time(queue))
			return false;
		*waited = true;
		sleep_on_latch(queue);
	}
}

/*
 * Looks once for an element, for a call that waits if there is none.
 *
 *	watch	is it to be told of changes?
 *	look_at	set to when to look again, untold, by zklock_now_ms(); 0: never
 */
static Attempt
look(Queue *queue, bool watch, Getter get, Element *got, int64 *look_at)
{
	const CallStep *list = list_queue(queue, watch);
	List		   *taken = NIL;
	ElementName	   *names;
	Attempt			attempt;
	int				n;

	if (list->result.outcome == CALL_UNREACHABLE)
		return ATTEMPT_OUT_OF_TIME;
	names = sort_elements(list, &n);
	attempt = try_elements(queue, names, n, get, got, &taken);
	if (attempt != ATTEMPT_IN_VAIN)
		return attempt;
	if (list->result.outcome == CALL_NO_NODE)
		check(queue, call_create_path(&queue->call, queue->path, NULL, OP_CREATE));

	/* What has come or gone before the watch was set is seen by the next look. */
	if (watch && list->result.outcome == CALL_OK)
		*look_at = watch_claims(queue, taken);
	else
		*look_at = zklock_now_ms();
	if (!list->result.watching && *look_at == 0)
		*look_at = zklock_now_ms() + CLAIM_LOOK_MS;
	return attempt;
}

/* Gets the first element there is, and waits if there is none. */
static bool
seek_waiting(Queue *queue, Getter get, Element *got)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "zklock look at a queue",
											   ALLOCSET_DEFAULT_SIZES);
	Attempt		  attempt = ATTEMPT_IN_VAIN;
	bool		  watch = false;
	int64		  look_at = 0;

	while (attempt == ATTEMPT_IN_VAIN && wait_for_turn(queue, look_at, &watch))
	{
		MemoryContext old;

		/* A session may wait for days: what it has looked at in vain is not kept. */
		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		attempt = look(queue, watch, get, got, &look_at);
		MemoryContextSwitchTo(old);
		watch = true;
	}
	return attempt == ATTEMPT_MADE;
}

/* Likewise, for a call that does not wait. */
static bool
seek_once(Queue *queue, Getter get, Element *got)
{
	const CallStep *list = list_queue(queue, false);
	List		   *taken = NIL;
	int				n;
	ElementName	   *names = sort_elements(list, &n);

	return try_elements(queue, names, n, get, got, &taken) == ATTEMPT_MADE;
}

/* As a callback at error and exit */
static void
leave(int code, Datum arg)
{
	seek_leave();
}

/* Gets the first element that can be had. */
static bool
get_first(const char *path, int64 timeout_ms, Getter get, Element *got)
{
	Queue queue = {.path = path, .timeout_ms = timeout_ms};
	ErrorContextCallback context = {.callback = queue_context, .arg = &queue, .previous = error_context_stack};
	volatile bool found = false;

	request_refuse_election(path);
	error_context_stack = &context;
	if (timeout_ms == LOCK_NO_WAIT)
		found = seek_once(&queue, get, got);
	else
	{
		queue.call.patience = CALL_PATIENT;
		if (timeout_ms > 0)
			queue.call.until = zklock_now_ms() + timeout_ms;
		PG_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
		{
			seek_join(path);
			found = seek_waiting(&queue, get, got);
		}
		PG_END_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
		seek_leave();
		if (!found && !zklock_connected())
			report_unreachable(&queue);
	}
	error_context_stack = context.previous;
	return found;
}

/* Shows the first element of a queue.  Returns false if there is none. */
bool
take_peek(const char *path, Element *element)
{
	return get_first(path, LOCK_NO_WAIT, show, element);
}

/*
 * Removes the first element of a queue.
 *
 *	timeout_ms	how long to wait for one: LOCK_WAIT_FOREVER, LOCK_NO_WAIT, or so long
 *
 * Returns false if there was none.
 */
bool
take_remove(const char *path, int64 timeout_ms, Element *element)
{
	return get_first(path, timeout_ms, remove_element, element);
}

/* Takes the first element of a queue until the transaction ends, likewise. */
bool
take_first(const char *path, int64 timeout_ms, Element *element)
{
	return get_first(path, timeout_ms, ZKLOCK_FAULT("take-early") ? remove_element : take, element);
}
