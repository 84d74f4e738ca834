/*
 * take_seek.c
 *		Seeking an element of a queue that can be had, and waiting for one.
 *
 * A session that waits for an element takes its turn (shared/call.c).  It has the
 * queue's children watched, and the claims of elements that others have: one that
 * is given back is no change of the queue's.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/request.h"
#include "backend/take_queue.h"
#include "fault.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#define SURVEY 64		   /* elements that are looked at together: which are free? */
#define CLAIM_WATCHES 16   /* claims that are watched; others are looked at ... */
#define CLAIM_LOOK_MS 1000 /* ... from time to time */

/* The state in which a session has found nothing for it in a queue */
typedef struct Look
{
	const CallStep *list;
	List		   *taken; /* names of the elements that others have */
} Look;

/* Which of these elements are free?  One that is not known to be gone or claimed may be. */
static CallStep *
survey(TakeQueue *queue, const ElementName *names, int n)
{
	CallStep *looks = palloc(SURVEY * sizeof(CallStep));

	n = Min(n, SURVEY);
	for (int i = 0; i < n; i++)
		looks[i] = (CallStep){.kind = OP_LOOK, .path = take_element_path(queue, names[i].name)};
	call_batch(&queue->call, looks, n, CALL_AS_KNOWN);
	return looks;
}

/*
 * Looks once for an element, in the order of the queue.  If the first is somebody
 * else's, it is looked which others are free.
 */
static bool
look_once(TakeQueue *queue, bool watch, TakeGetter get, Element *got, Look *look)
{
	const ElementName *names;
	const CallStep	  *looks = NULL;
	int				   n;

	*look = (Look){.list = take_list(queue, watch)};
	names = take_sort(look->list, &n);
	for (int i = 0; i < n && !take_is_out_of_time(queue); i++)
	{
		const CallResult *seen = NULL;

		if (i % SURVEY == 1)
			looks = survey(queue, &names[i], n - i);
		if (looks)
			seen = &looks[(i - 1) % SURVEY].result;
		if (seen && seen->outcome == CALL_NO_NODE)
			continue;
		if ((seen == NULL || seen->outcome != CALL_OK || seen->stat.child_count == 0) &&
			get(queue, names[i].name, got))
			return true;
		look->taken = lappend(look->taken, unconstify(char *, names[i].name));
	}
	return false;
}

/*
 * Has the claims of elements that others have watched.  Returns when to look again,
 * by zklock_now_ms(): never (0), if all are watched; at once, if one is gone.
 */
static int64
watch_claims(TakeQueue *queue, List *taken)
{
	CallStep watches[CLAIM_WATCHES];
	int		 n = Min(list_length(taken), CLAIM_WATCHES);
	bool	 all = n == list_length(taken);

	for (int i = 0; i < n; i++)
		watches[i] = (CallStep){.kind = OP_WATCH,
								.path = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path,
												 (char *) list_nth(taken, i))};
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
 * There is nothing to be had: sees to it that the session is told of changes.  Returns
 * when to look again, untold, by zklock_now_ms(); 0: never.
 */
static int64
prepare_wait(TakeQueue *queue, bool watch, const Look *look)
{
	int64 look_at;

	if (look->list->result.outcome == CALL_NO_NODE)
		call_report(call_create_path(&queue->call, queue->path, NULL, OP_CREATE));

	/* The next look sees elements that came or went before the watch was set. */
	if (!watch || look->list->result.outcome == CALL_NO_NODE)
		return zklock_now_ms();
	look_at = watch_claims(queue, look->taken);
	return look->list->result.watching || look_at > 0 ? look_at : zklock_now_ms() + CLAIM_LOOK_MS;
}

/* Waits until it is this session's turn to look.  Returns false if the timeout passes first. */
static bool
wait_for_turn(TakeQueue *queue, int64 look_at, bool *waited)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (seek_is_turn(look_at > 0 && zklock_now_ms() >= look_at))
			return true;
		if (take_is_out_of_time(queue))
			return false;
		*waited = true;
		take_sleep(queue);
	}
}

/* Gets the first element there is, and waits if there is none. */
static bool
seek(TakeQueue *queue, TakeGetter get, Element *got)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "zklock look at a queue",
											   ALLOCSET_DEFAULT_SIZES);
	bool		  over = false;
	bool		  found = false;
	bool		  watch = false;
	int64		  look_at = 0;

	while (!over && wait_for_turn(queue, look_at, &watch))
	{
		MemoryContext old;
		Look		  look;

		/* A session may wait for days: what it has looked at in vain is not kept. */
		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		found = look_once(queue, watch, get, got, &look);
		over = found || take_is_out_of_time(queue);
		if (!over)
			look_at = prepare_wait(queue, watch, &look);
		MemoryContextSwitchTo(old);
		watch = true;
	}
	return found;
}

/* As a callback at error and exit */
static void
leave(int code, Datum arg)
{
	seek_leave();
}

/* Gets the first element that can be had. */
static bool
get_first(const char *path, int64 timeout_ms, TakeGetter get, Element *got)
{
	TakeQueue queue = {.path = path, .timeout_ms = timeout_ms};
	ErrorContextCallback context = {.callback = take_context, .arg = &queue, .previous = error_context_stack};
	volatile bool found = false;
	Look		  look;

	request_refuse_election(path);
	error_context_stack = &context;
	if (timeout_ms == LOCK_NO_WAIT)
		found = look_once(&queue, false, get, got, &look);
	else
	{
		queue.call.patience = CALL_PATIENT;
		if (timeout_ms > 0)
			queue.call.until = zklock_now_ms() + timeout_ms;
		PG_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
		{
			seek_join(path);
			found = seek(&queue, get, got);
		}
		PG_END_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
		seek_leave();
		if (!found && !zklock_connected())
			request_report_unreachable(path);
	}
	error_context_stack = context.previous;
	return found;
}

/* Shows the first element of a queue.  Returns false if there is none. */
bool
take_peek(const char *path, Element *element)
{
	return get_first(path, LOCK_NO_WAIT, take_show_element, element);
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
	return get_first(path, timeout_ms, take_remove_element, element);
}

/* Takes the first element of a queue until the transaction ends, likewise. */
bool
take_first(const char *path, int64 timeout_ms, Element *element)
{
	return get_first(path, timeout_ms,
					 ZKLOCK_FAULT("take-early") ? take_remove_element : take_claim_element, element);
}
