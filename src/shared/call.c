/*
 * call.c
 *		Calls: what a session has the worker do in ZooKeeper for it; and whose turn it is to
 *		look for an element of a queue.
 *
 * Only the worker uses the ZooKeeper session.  A recipe that does not wait in a queue is
 * straight-line code in a backend, which has the worker make calls and waits for the
 * answers.  A batch is one operation, or several independent ones that are sent together.
 *
 * Each process has its own slot, so none waits for a slot, and a session has one batch
 * under way at a time.  Each step of a slot is made under its mutex, which orders what the
 * two sides write before it with what they read after it.
 *
 * A backend that goes leaves GIVEN_UP behind.  The next process with its number, or the
 * session itself after an error, waits until the worker has cleaned up: so what a session
 * gave up counts against it, however often it begins anew.  If the worker goes, the next
 * one sends what is ASKED.  It sends what is SENT again if that only reads; otherwise the
 * answer is CALL_UNKNOWN, as soon as that is final.  If either is killed, this memory is
 * initialised again.
 *
 * Texts that do not fit into a slot lie in an area of fixed size, so neither side finds
 * shared memory exhausted.  The worker alone allocates and frees there, and gives each role
 * its share.
 *
 * When sessions of a server wait for an element of a queue, one at a time looks for it: the
 * one that came first.  The worker wakes it alone when something has happened there; when
 * it has an element, or goes, it wakes the next.  So a thousand sessions that wait ask
 * ZooKeeper no more than one does, and each gets its turn.  All this is under no lock: a
 * session takes or gives back its ticket by a full barrier before it looks at those of others,
 * so of two that come and go at the same time one sees the other.  Two that come at once may
 * both look, which does no harm.
 *
 * Runs in: backends and the worker, as call.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "fault.h"
#include "shared/call.h"

CallPool *call_pool = NULL;

PG_USED_FOR_ASSERTS_ONLY static const StepBy call_steps[][CALL_GIVEN_UP + 1] = {
	[CALL_FREE] = {[CALL_ASKED] = BY_BACKEND, [CALL_ROOM_WANTED] = BY_BACKEND},
	[CALL_ROOM_WANTED] = {[CALL_ROOM_GIVEN] = BY_WORKER, [CALL_GIVEN_UP] = BY_BACKEND},
	[CALL_ROOM_GIVEN] = {[CALL_ASKED] = BY_BACKEND, [CALL_GIVEN_UP] = BY_BACKEND},
	[CALL_ASKED] = {[CALL_SENT] = BY_WORKER, /* before anything of it is sent */
					[CALL_ANSWERED] = BY_WORKER,
					[CALL_GIVEN_UP] = BY_BACKEND},
	[CALL_SENT] = {[CALL_ANSWERED] = BY_WORKER,
				   [CALL_ASKED] = BY_WORKER, /* it only reads, and no answer will come */
				   [CALL_GIVEN_UP] = BY_BACKEND},
	[CALL_ANSWERED] = {[CALL_FREE] = BY_BACKEND, [CALL_GIVEN_UP] = BY_BACKEND},
	[CALL_GIVEN_UP] = {[CALL_FREE] = BY_WORKER},
};

dsa_area *call_area = NULL;

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

/*
 * Makes a step, under the slot's mutex.  Only the worker makes steps in slots of other
 * processes.
 */
static void
call_slot_enter(CallSlot *slot, CallState to)
{
	bool own PG_USED_FOR_ASSERTS_ONLY = slot == &call_pool->slots[compat_my_proc_number()];

	Assert(call_steps[slot->state][to] == (own ? BY_BACKEND : BY_WORKER));
	Assert(own || MyProcPid == zklock_worker_pid());
	slot->state = to;
}

/* Makes a step if the slot is in state "from".  Returns false if it is not. */
bool
call_slot_step(CallSlot *slot, CallState from, CallState to)
{
	bool stepped;

	SpinLockAcquire(&slot->mutex);
	stepped = slot->state == from;
	if (stepped)
		call_slot_enter(slot, to);
	SpinLockRelease(&slot->mutex);
	return stepped;
}

/*
 * Gives up the batch under way, if any, and what it leaves behind.  Cannot fail, does
 * not wait.
 */
void
call_slot_give_up(void)
{
	CallSlot *slot = &call_pool->slots[compat_my_proc_number()];

	SpinLockAcquire(&slot->mutex);
	if (slot->state != CALL_FREE && slot->state != CALL_GIVEN_UP)
		call_slot_enter(slot, CALL_GIVEN_UP);
	slot->marker_wanted = false;
	slot->provisional_wanted = false;
	SpinLockRelease(&slot->mutex);
	call_slot_want_worker(slot);
}

/*
 * Has the provisional node stay, which has been wanted since it was created; or gives it up, when
 * nothing more is created below it.  Cannot fail.
 */
void
call_slot_settle_node(NodeFate fate)
{
	CallSlot *slot = &call_pool->slots[compat_my_proc_number()];

	SpinLockAcquire(&slot->mutex);
	if (fate == NODE_STAYS)
	{
		Assert(slot->state == CALL_FREE && (slot->provisional_wanted || slot->provisional[0] == '\0'));
		slot->provisional[0] = '\0';
	}
	else
		slot->provisional_wanted = false;
	SpinLockRelease(&slot->mutex);
	if (slot->provisional[0] != '\0')
		call_slot_want_worker(slot);
}

/* ------------------------------------------------------------------------
 * Waiting for an element of a queue
 * ------------------------------------------------------------------------
 */

/*
 * Returns the slot of the session that is the first to wait at a path of "length" bytes, or
 * NULL.
 */
CallSlot *
queue_wait_first(const char *path, size_t length)
{
	CallSlot *first = NULL;
	uint64	  lowest = PG_UINT64_MAX;

	if (ZKLOCK_FAULT("stop-queue"))
		(void) raise(SIGSTOP);
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = &call_pool->slots[i];
		uint64	  ticket = pg_atomic_read_u64(&slot->queue_wait_ticket);
		bool	  is_there;

		if (ticket == 0 || ticket > lowest)
			continue;

		/* What was read is the path if the ticket is still the same. */
		pg_read_barrier();
		is_there = strncmp(slot->queue_wait_path, path, length) == 0 &&
				   slot->queue_wait_path[length] == '\0';
		pg_read_barrier();
		if (!is_there || pg_atomic_read_u64(&slot->queue_wait_ticket) != ticket)
			continue;
		first = slot;
		lowest = ticket;
	}
	return first;
}

/*
 * Has the first to wait at a path of "length" bytes look for an element, since something has
 * happened there.  Returns false if nobody waits.
 */
bool
queue_wait_wake(const char *path, size_t length)
{
	CallSlot *first = queue_wait_first(path, length);

	if (first)
	{
		pg_atomic_write_u32(&first->queue_wait_changed, 1);
		call_slot_wake(first);
	}
	return first != NULL;
}
