/*
 * errand.c
 *		Errands: what a backend has the worker find out or do in ZooKeeper.
 *
 * Only the worker talks to ZooKeeper in a session.  What a backend wants to
 * know or do there, other than to wait in a queue, is an errand: a question
 * that the worker answers after a few calls.  There is a pool of slots, each of
 * which has one errand:
 *
 *		FREE -> CLAIMED						a backend, whose the slot is from now on
 *		CLAIMED -> ASKED					that backend, when it has filled the slot
 *		ASKED -> TAKEN						the worker
 *		TAKEN -> ANSWERED					the worker
 *		CLAIMED, ASKED, ANSWERED -> FREE	the backend: done, or it gives up
 *		TAKEN -> GIVEN_UP					the backend gives up
 *		GIVEN_UP -> FREE					the worker, when its calls are answered
 *		TAKEN -> ASKED						a new worker: it begins again
 *
 * Each step is made under the slot's mutex, which also orders what the two sides
 * write before it with what they read after it.
 *
 * A backend runs one errand at a time; that is its share of the pool.  It gives
 * the slot back however it ends its wait: answer, error, cancel, or exit.  If
 * it is killed, shared memory is initialised again.  If the worker exits, the
 * errand stays, and the next worker begins it anew.  So an errand may be done
 * twice, or without anybody hearing of it, and must bear that.
 *
 * What is too long for a slot goes into a dynamic shared memory segment that the
 * backend makes for it: first the question's payload, constant from ASKED on, so
 * that the next worker finds it too, and behind it room for the answer.  The
 * segment goes away when both sides have detached from it, which PostgreSQL does
 * for a process that exits.  The worker is attached no longer than it takes to
 * copy either (worker/segment.c).
 *
 * Runs in: backends and the worker, as errand.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "shared/errand.h"
#include "shared/worker_process.h"

ErrandPool *errand_pool = NULL;

/* Initialises memory that is all zero. */
void
errand_init(ErrandPool *pool)
{
	pg_atomic_init_u64(&pool->next_number, 1);
	for (int i = 0; i < ERRAND_SLOTS; i++)
		SpinLockInit(&pool->slots[i].mutex);
}

static inline Errand *
slot(int i)
{
	return &errand_pool->slots[i];
}

/* Makes a step if the slot is in state "from". */
static bool
step(Errand *errand, ErrandState from, ErrandState to)
{
	bool stepped;

	SpinLockAcquire(&errand->mutex);
	stepped = errand->state == from;
	if (stepped)
		errand->state = to;
	SpinLockRelease(&errand->mutex);
	return stepped;
}

/* The state of a slot at this moment. */
ErrandState
errand_state(Errand *errand)
{
	ErrandState state;

	SpinLockAcquire(&errand->mutex);
	state = errand->state;
	SpinLockRelease(&errand->mutex);
	return state;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Claims a slot, to be filled; NULL if none is free. */
Errand *
errand_claim(void)
{
	for (int i = 0; i < ERRAND_SLOTS; i++)
	{
		if (step(slot(i), ERRAND_FREE, ERRAND_CLAIMED))
			return slot(i);
	}
	return NULL;
}

/* Hands a slot that has been filled to the worker. */
void
errand_ask(Errand *errand)
{
	bool asked PG_USED_FOR_ASSERTS_ONLY;

	errand->proc_number = compat_my_proc_number();
	errand->pid = MyProcPid;
	errand->number = pg_atomic_fetch_add_u64(&errand_pool->next_number, 1);
	asked = step(errand, ERRAND_CLAIMED, ERRAND_ASKED);
	Assert(asked);
	zklock_wake_worker();
}

/* Gives a slot back, whatever its state.  Cannot fail, does not wait. */
void
errand_drop(Errand *errand)
{
	SpinLockAcquire(&errand->mutex);
	Assert(errand->state != ERRAND_FREE && errand->state != ERRAND_GIVEN_UP);
	errand->state = errand->state == ERRAND_TAKEN ? ERRAND_GIVEN_UP : ERRAND_FREE;
	SpinLockRelease(&errand->mutex);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/*
 * Takes the errand that was asked first; NULL if there is none.
 *
 * A backend may give its errand up while we read its number, and another one may
 * take the slot.  Then the order is not kept for once.
 */
Errand *
errand_take(void)
{
	Errand *first = NULL;

	for (int i = 0; i < ERRAND_SLOTS; i++)
	{
		if (errand_state(slot(i)) == ERRAND_ASKED && (first == NULL || slot(i)->number < first->number))
			first = slot(i);
	}

	/* Its backend may have given up meanwhile. */
	return first && step(first, ERRAND_ASKED, ERRAND_TAKEN) ? first : NULL;
}

/* Answers an errand, or frees it if nobody waits any more. */
void
errand_answer(Errand *errand, ErrandOutcome outcome, int code)
{
	int proc_number = errand->proc_number;

	errand->outcome = outcome;
	errand->code = code;
	if (step(errand, ERRAND_TAKEN, ERRAND_ANSWERED))
		SetLatch(&GetPGProcByNumber(proc_number)->procLatch);
	else
		(void) step(errand, ERRAND_GIVEN_UP, ERRAND_FREE);
}

/* A new worker: what an earlier one had taken is begun again. */
void
errand_put_back_all(void)
{
	for (int i = 0; i < ERRAND_SLOTS; i++)
	{
		(void) step(slot(i), ERRAND_TAKEN, ERRAND_ASKED);
		(void) step(slot(i), ERRAND_GIVEN_UP, ERRAND_FREE);
	}
}
