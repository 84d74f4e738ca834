/*
 * element_take.c
 *		Showing, removing and taking an element of a queue.
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

#include "backend/element.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "fault.h"
#include "nodes/pg_list.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

/* Number of elements that a session may hold */
#define MAX_ELEMENTS 64

#define SURVEY 64		   /* elements that are looked at together, to see which are free */
#define CLAIM_WATCHES 16   /* claims that are watched; the session looks at others ... */
#define CLAIM_LOOK_MS 1000 /* ... after so long, ms */

static void
set_element(Element *element, const char *name, const CallStep *read)
{
	element->name = pstrdup(name);
	element->token = read->result.stat.czxid;
	element->version = read->result.stat.version;
	element->data = palloc(VARHDRSZ + read->result.text_length);
	SET_VARSIZE(element->data, VARHDRSZ + read->result.text_length);
	memcpy(VARDATA(element->data), read->read ? read->read : "", read->result.text_length);
}

/*
 * Reads an element, under a pin if it is to be removed.  Returns false if it is gone, or if
 * the timeout has passed.
 */
static bool
read_element(TakeQueue *queue, const char *name, CallStep *read)
{
	*read = (CallStep){.asked = {.kind = ZK_GET_DATA,
								 .path = take_element_path(queue, name),
								 .most = CALL_ANY_LENGTH}};
	if (queue->how == TAKE_REMOVE)
		take_read_pinned(queue, read);
	else
		call_batch(&queue->call, read, 1, CALL_AS_KNOWN);
	call_report_of(&queue->call, read);
	return read->result.outcome == CALL_OK;
}

/* Reads an element.  Returns false if it is gone or somebody has claimed it. */
static bool
show_element(TakeQueue *queue, const char *name, Element *got)
{
	CallStep read;

	if (!read_element(queue, name, &read) || read.result.stat.child_count > 0)
		return false;
	set_element(got, name, &read);
	return true;
}

/*
 * Returns true if an element is there and nobody has claimed it.  Looks without a pin, which
 * would have the sessions that wait for an element look again.
 */
static bool
is_free(TakeQueue *queue, const char *name)
{
	CallStep look = {.asked = {.kind = ZK_EXISTS, .path = take_element_path(queue, name)}};

	call_batch(&queue->call, &look, 1, CALL_AS_KNOWN);
	call_report_of(&queue->call, &look);
	return look.result.outcome == CALL_OK && look.result.stat.child_count == 0;
}

/* Removes an element, in the version that was read.  The pin goes with it. */
static bool
remove_element(TakeQueue *queue, const char *name, Element *got)
{
	if (!is_free(queue, name))
		return false;
	while (show_element(queue, name, got))
	{
		CallStep *step = palloc(sizeof(CallStep));

		*step = (CallStep){.asked = {.kind = ZK_REMOVE,
									 .path = take_element_path(queue, name),
									 .pin = queue->pin[0] != '\0' ? queue->pin : NULL,
									 .version = got->version}};
		take_make_certainly(queue, step);
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
			if (!show_element(queue, name, got))
				return false;
			take_unpin(queue);
		}
		else if (step->result.outcome != CALL_BAD_VERSION && step->result.outcome != CALL_UNKNOWN)
			return false;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Taking
 * ------------------------------------------------------------------------
 */

static void
check_number(void)
{
	int n = hold_number(REQUEST_ELEMENT);

	if (n >= MAX_ELEMENTS)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("too many elements of ZooKeeper queues in this session"),
						errdetail("It holds %d, as many as it may.", n),
						errhint("Take fewer elements in one transaction.")));
}

/*
 * Reads an element once its claim is granted, so that the data are those of the claimed
 * element.
 */
static bool
read_claimed(TakeQueue *queue, Hold *taken, const char *name, Element *got)
{
	CallStep read;

	if (!wait_until(&queue->wait, wait_look_at_hold, taken) || !read_element(queue, name, &read))
		return false;
	hold_check(taken);
	set_element(got, name, &read);
	return true;
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
	int			 mark = transaction_begin_call();
	Hold		*taken;
	bool		 made;

	check_number();
	taken = hold_ask(&request, take_element_path(queue, name));
	made = read_claimed(queue, taken, name, got);
	if (made)
	{
		/* The end of a single statement would commit, and remove the element, for nobody. */
		interrupt_check_client();
		transaction_acquired(taken, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
	}
	transaction_end_call(mark, made);
	return made;
}

/*
 * Gets an element, by its name.  Returns false if somebody else has it, if it is gone, or if
 * the timeout has passed.
 */
static bool
get(TakeQueue *queue, const char *name, Element *got)
{
	if (queue->how == TAKE_SHOW)
		return show_element(queue, name, got);
	if (queue->how == TAKE_REMOVE || ZKLOCK_FAULT("take-early"))
		return remove_element(queue, name, got);
	return claim_element(queue, name, got);
}

/* ------------------------------------------------------------------------
 * Looking for an element
 * ------------------------------------------------------------------------
 */

/* The contents of a queue, as seen by a look that found no element */
typedef struct Look
{
	const CallStep *list;
	List		   *taken; /* names of the elements that others have */
} Look;

static bool
is_out_of_time_to_take(const TakeQueue *queue)
{
	return queue->call.until > 0 && zklock_now_ms() >= queue->call.until;
}

/*
 * Looks once for an element, in the order of the queue.  If the first one is somebody else's,
 * the session asks which others are free, and tries each that is not known to be gone or
 * claimed.
 */
static bool
look_once(TakeQueue *queue, bool watch, Element *got, Look *look)
{
	const ElementName *names;
	const CallStep	  *looks = NULL;
	int				   n;

	*look = (Look){.list = take_list(queue, watch)};
	names = take_sort(look->list, &n);
	for (int i = 0; i < n && !is_out_of_time_to_take(queue); i++)
	{
		const CallResult *seen = NULL;

		if (i % SURVEY == 1)
			looks = take_look(queue, &names[i], Min(SURVEY, n - i));
		if (looks)
			seen = &looks[(i - 1) % SURVEY].result;
		if (seen && seen->outcome == CALL_NO_NODE)
			continue;
		if ((seen == NULL || seen->outcome != CALL_OK || seen->stat.child_count == 0) &&
			get(queue, names[i].name, got))
			return true;
		look->taken = lappend(look->taken, unconstify(char *, names[i].name));
	}
	take_unpin(queue);
	return false;
}

/*
 * Has the claims of elements that others have watched.  Returns when to look again, by
 * zklock_now_ms(): 0, which is never, if all are watched; now if one is gone.
 */
static int64
watch_claims(TakeQueue *queue, List *taken)
{
	CallStep watches[CLAIM_WATCHES];
	int		 n = Min(list_length(taken), CLAIM_WATCHES);
	bool	 all = n == list_length(taken);

	for (int i = 0; i < n; i++)
		watches[i] = (CallStep){.asked = {.kind = ZK_WATCH_DATA,
										  .path = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path,
														   (char *) list_nth(taken, i))}};
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

/*
 * Has the changes watched that may bring an element, and creates the queue's path if it is
 * missing.  Returns when to look again without a change, by zklock_now_ms(); 0: never.
 */
static int64
prepare_wait(TakeQueue *queue, bool watch, const Look *look)
{
	int64 look_at;

	if (look->list->result.outcome == CALL_NO_NODE)
		call_report_of(&queue->call, call_create_path(&queue->call, queue->path,
													  (ZkCall){.kind = ZK_CREATE,
															   .node_kind = ZK_PERSISTENT,
															   .path = queue->path}));

	/* A look without a watch is repeated at once, with one: elements may have come or gone. */
	if (!watch || look->list->result.outcome == CALL_NO_NODE)
		return zklock_now_ms();
	look_at = watch_claims(queue, look->taken);
	return look->list->result.watching || look_at > 0 ? look_at : zklock_now_ms() + CLAIM_LOOK_MS;
}

/* A session that waits for its turn to look */
typedef struct Turn
{
	int64 look_at; /* time of a look without a turn, by zklock_now_ms(); 0: never */
	bool  waited;  /* it was not its turn at once, or it has looked before */
} Turn;

static WaitAnswer
look_at_turn(const Wait *wait, void *arg)
{
	Turn *turn = arg;

	if (queue_wait_is_turn(turn->look_at > 0 && zklock_now_ms() >= turn->look_at))
		return WAIT_OVER;
	turn->waited = true;
	return WAIT_POLLED;
}

/* Gets the first free element, and waits if there is none. */
static bool
wait_for_element(TakeQueue *queue, Element *got)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "zklock look at a queue",
											   ALLOCSET_DEFAULT_SIZES);
	bool		  over = false;
	bool		  found = false;
	Turn		  turn = {0};

	while (!over && wait_until(&queue->wait, look_at_turn, &turn))
	{
		MemoryContext old;
		Look		  look;

		/* A session may wait for days: it keeps no memory of a look. */
		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		found = look_once(queue, turn.waited, got, &look);
		over = found || is_out_of_time_to_take(queue);
		if (!over)
			turn.look_at = prepare_wait(queue, turn.waited, &look);
		MemoryContextSwitchTo(old);
		turn.waited = true;
	}
	return found;
}

/* Leaves the queue and counts the wait, as a callback at error and exit. */
static void
break_off_take(int code, Datum arg)
{
	TakeQueue *queue = (TakeQueue *) DatumGetPointer(arg);

	queue_wait_leave();
	call_slot_give_up(); /* deletes a pin, too */
	wait_counted_break(code, PointerGetDatum(&queue->wait.counted));
}

/*
 * Gets the first free element of a queue.
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
	bool				 found;
	Look				 look;

	wait_begin(&queue.wait, path, "an element", kind, timeout_ms);
	queue.wait.event = ZKLOCK_WAIT_ELEMENT;
	PG_ENSURE_ERROR_CLEANUP(break_off_take, PointerGetDatum(&queue));
	{
		request_refuse_election(path);
		error_context_stack = &context;
		if (timeout_ms == LOCK_NO_WAIT)
			found = look_once(&queue, false, got, &look);
		else
		{
			queue.call.patience = CALL_PATIENT;
			queue.call.attend = wait_attend;
			queue.call.attend_arg = &queue.wait;
			if (timeout_ms > 0)
				queue.call.until = zklock_now_ms() + timeout_ms;
			queue_wait_join(path);
			found = wait_for_element(&queue, got);
			queue_wait_leave();
			if (!found && !zklock_connected())
				request_report_unreachable(path);
		}
		interrupt_check(NULL, NULL);
	}
	PG_END_ENSURE_ERROR_CLEANUP(break_off_take, PointerGetDatum(&queue));
	error_context_stack = context.previous;
	wait_end(&queue.wait, found);

	/* A later cancellation would find no context that names what was removed. */
	interrupt_check(take_context, &queue);
	return found;
}
