/*
 * handover.c
 *		Giving entries up, and waiting until others can have what they stood for.
 *
 * A session gives an entry up by a step in shared memory that cannot fail and
 * does not wait: the rest is the worker's, which deletes the node or passes it
 * on.  So this may be done in callbacks at commit, abort and exit.  A call that
 * unlocks waits afterwards until the worker is done, so that what follows finds
 * the lock free.
 *
 * Runs in: backends.  Entries are changed under their spinlocks, along the
 * arrows drawn in shmem.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/handover.h"
#include "compat.h"
#include "shared/lease_state.h"
#include "shared/shmem.h"
#include "storage/lock.h"

/* Makes an empty list with room for "max" handovers. */
void
handover_list_init(HandoverList *list, int max)
{
	list->handovers = palloc(max * sizeof(Handover));
	list->n = 0;
}

/*
 * Gives an entry up, whatever its state.  Cannot fail, does not wait.
 *
 * "awaited", if not NULL, gets what is still to be done, and has room for it.
 */
void
handover_release(int entry, HandoverList *awaited)
{
	ContenderEntry *e = entry_at(entry);
	uint32			generation;

	SpinLockAcquire(&e->mutex);
	generation = e->generation;
	e->notify_release = awaited != NULL;
	e->state = CONTENDER_RELEASING;
	SpinLockRelease(&e->mutex);
	entry_mark_dirty(entry);
	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

/* Likewise, keeps of an exclusive entry only the shared lock. */
void
handover_downgrade(int entry, HandoverList *awaited)
{
	ContenderEntry *e = entry_at(entry);
	uint32			generation;

	SpinLockAcquire(&e->mutex);
	generation = e->generation;
	e->mode = LOCK_MODE_SHARED;
	e->downgrading = true;
	e->shared_session_count = 0;
	e->shared_transaction_count = 0;
	SpinLockRelease(&e->mutex);
	entry_mark_dirty(entry);
	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

/* Is the worker done with a released or downgraded entry? */
static bool
handover_is_done(const Handover *handover)
{
	ContenderEntry *e = entry_at(handover->entry);
	bool			done;

	SpinLockAcquire(&e->mutex);
	done = e->generation != handover->generation ||
		   (e->state != CONTENDER_RELEASING && (e->state != CONTENDER_GRANTED || !e->downgrading));
	SpinLockRelease(&e->mutex);
	return done;
}

static void
handover_wait(const Handover *handover)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (handover_is_done(handover) || !zklock_connected())
			return;
		CHECK_FOR_INTERRUPTS();

		/* No latch is set when a lease ends while the worker is stopped. */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
						 PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
}

/*
 * Waits until the worker is done with all that is in a list, but not for
 * ZooKeeper to come back, and frees the list.  A cancellation ends the wait
 * only: what is in the list has been given up already.
 */
void
handover_list_wait(HandoverList *list)
{
	for (int i = 0; i < list->n; i++)
		handover_wait(&list->handovers[i]);
	pfree(list->handovers);
}
