/*
 * hold.c
 *		What this session holds or asks for, whatever it is.
 *
 * Everything for which the session has an entry in shared memory is in one
 * list, from the moment it is asked for: locks, of which lock_table.c knows by
 * path and mode, and turns and permits of semaphores, of which permit.c knows.
 * Nothing can fail or interrupt between the claim of the entry and its place in
 * the list, so however a request ends the entry is given up; at the latest when
 * the process exits.  The guard and others that care for all holds alike visit
 * the list.
 *
 * An entry is given up by a step in shared memory that cannot fail and does not
 * wait: the rest is the worker's, which deletes the node or passes it on.  So this
 * may be done in callbacks at commit, abort and exit.  A call that unlocks waits
 * afterwards until the worker is done, so that what follows finds the lock free.
 *
 * A hold may borrow the entry of another one on the same path: a session that
 * holds a lock exclusively has the shared lock as well.
 *
 * Runs in: backends.  The list is private; entries are changed under their
 * spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/hold.h"
#include "compat.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/shmem.h"
#include "shared/wait_event.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/timeout.h"

static dlist_head holds = DLIST_STATIC_INIT(holds); /* in the order of their entries' claims */
static int		  nholds = 0;

/* ------------------------------------------------------------------------
 * Giving entries up, and waiting until others can have what they stood for
 * ------------------------------------------------------------------------
 */

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
static void
handover_release(int entry, HandoverList *awaited)
{
	uint32 generation = entry_give_up(entry, awaited ? ENTRY_NOTICE : ENTRY_NO_NOTICE);

	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

/* Likewise, keeps of an exclusive entry only the shared lock. */
static void
handover_downgrade(int entry, HandoverList *awaited)
{
	uint32 generation = entry_keep_shared(entry);

	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

static void
handover_wait(const Handover *handover)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (entry_is_settled(handover->entry, handover->generation) || !zklock_connected())
			return;
		CHECK_FOR_INTERRUPTS();

		/* No latch is set when a lease ends while the worker is stopped. */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
						 zklock_wait_event(ZKLOCK_WAIT_UNLOCK));
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

/* ------------------------------------------------------------------------
 * Holds
 * ------------------------------------------------------------------------
 */

/* For how long it was held, the statistics are told at its end. */
static void
count_hold_time(const Hold *hold)
{
	if (hold->acquired_at != 0)
		stats_held(hold->counted_as, zklock_now_us() - hold->acquired_at);
}

/* Gives back everything; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	dlist_iter iter;

	wait_end_at_exit();
	dlist_foreach (iter, &holds)
	{
		const Hold *hold = dlist_container(Hold, link, iter.cur);

		count_hold_time(hold);
		if (!hold->borrowed)
			handover_release(hold->entry, NULL);
	}
	dlist_init(&holds);
}

/* Sees to it that the end of the session gives everything back. */
void
hold_start_session(void)
{
	static bool started = false;

	if (!started)
		on_shmem_exit(release_at_exit, 0);
	started = true;
}

/* Makes a hold that has no entry yet.  The path must live as long as the hold. */
void
hold_init(Hold *hold, const char *path, StatsKind counted_as)
{
	*hold = (Hold){.path = path, .entry = ENTRY_NONE, .counted_as = counted_as};
}

/* A hold gets an entry.  Cannot fail. */
static void
hold_begin(Hold *hold, int entry)
{
	hold->entry = entry;
	dlist_push_tail(&holds, &hold->link);
	nholds++;
}

/* A hold has its entry no more.  Cannot fail. */
static void
hold_end(Hold *hold)
{
	count_hold_time(hold);
	dlist_delete(&hold->link);
	nholds--;
	hold->entry = ENTRY_NONE;
	hold->borrowed = false;
	hold->acquired_at = 0;
}

/* What is left of lock_timeout for a call that waits, ms. */
static int
lock_timeout_left(const Wait *wait)
{
	return (int) Max(LockTimeout - zklock_ms_since(wait->start_us), 1);
}

/*
 * Asks for what a hold is to have.  However that ends, the caller gives the
 * entry up if it is of no use.
 */
void
hold_ask(Hold *hold, const ContenderRequest *request)
{
	hold_begin(hold, request_contender(request));
	entry_mark_dirty(hold->entry);
}

/* Waits for an entry, or until the worker is done with others that were given up. */
static bool
wait_for(Wait *wait, int entry, const HandoverList *given_up)
{
	volatile bool done = false;

	if (LockTimeout > 0)
		enable_timeout_after(LOCK_TIMEOUT, lock_timeout_left(wait));
	PG_TRY();
	{
		done = entry != ENTRY_NONE ? wait_for_entry(wait, entry) : wait_for_handovers(wait, given_up);
	}
	PG_FINALLY();
	{
		/* Keep the indicator: an interrupt still to come may be the timeout's. */
		disable_timeout(LOCK_TIMEOUT, true);
	}
	PG_END_TRY();
	return done;
}

/*
 * Waits for the answer to what has been asked for, as part of a wait that may be
 * for several things one after the other: its timeout and PostgreSQL's
 * lock_timeout are for all of them.
 *
 * Returns false if it could not be had in that time.  Then, and after an error,
 * the caller gives the entry up.
 */
bool
hold_wait(const Hold *hold, Wait *wait)
{
	wait->counted_as = hold->counted_as;
	return wait_for(wait, hold->entry, NULL);
}

/*
 * Likewise, until the worker is done with what this session has given up, of
 * which it does not have its share again before.  The hold is to be asked for
 * next, as part of the same wait.
 */
bool
hold_wait_given_up(const Hold *hold, const HandoverList *given_up, Wait *wait)
{
	wait->counted_as = hold->counted_as;
	return given_up->n == 0 || wait_for(wait, ENTRY_NONE, given_up);
}

/* Asks and waits. */
bool
hold_acquire(Hold *hold, const ContenderRequest *request, Wait *wait)
{
	hold_ask(hold, request);
	return hold_wait(hold, wait);
}

/* Lets a hold have the entry of another one.  Cannot fail. */
void
hold_borrow(Hold *hold, const Hold *from)
{
	hold->borrowed = true;
	hold_begin(hold, from->entry);
}

/*
 * Gives the entry of a hold up, if it has one and has not borrowed it.  Cannot
 * fail, does not wait.  "awaited", if not NULL, gets what is still to be done, and
 * has room for it.
 */
void
hold_release(Hold *hold, HandoverList *awaited)
{
	if (hold->entry == ENTRY_NONE)
		return;
	if (hold->borrowed)
		hold_publish(hold);
	else
		handover_release(hold->entry, awaited);
	hold_end(hold);
}

/*
 * Leaves the entry of an exclusive hold to the shared one that has borrowed it.
 * The lock is downgraded, without a moment in which it is not held.
 */
void
hold_downgrade(Hold *hold, Hold *borrower, HandoverList *awaited)
{
	handover_downgrade(hold->entry, awaited);
	borrower->borrowed = false;
	hold_end(hold);
}

/* Counts one acquisition.  Cannot fail. */
void
hold_count(Hold *hold, LockScope scope)
{
	CommitGuard guard = zklock_commit_guard;

	hold->taken_under = hold_is_acquired(hold) ? Max(hold->taken_under, guard) : guard;
	if (hold_is_acquired(hold) || hold->borrowed)
		stats_reacquired(hold->counted_as);
	if (!hold_is_acquired(hold))
		hold->acquired_at = zklock_now_us();
	if (scope == LOCK_SCOPE_SESSION)
		hold->session_count++;
	else
		hold->transaction_count++;
	hold_publish(hold);
}

/* Shows the counts in zk_locks. */
void
hold_publish(const Hold *hold)
{
	ContenderEntry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	if (hold->borrowed)
	{
		entry->status.shared_session_count = hold->session_count;
		entry->status.shared_transaction_count = hold->transaction_count;
	}
	else
	{
		entry->status.session_count = hold->session_count;
		entry->status.transaction_count = hold->transaction_count;
	}
	SpinLockRelease(&entry->mutex);
}

/*
 * Calls "visit" for each hold of a set, the oldest first.  Cannot fail unless
 * "visit" does, which must not change what is held.  What is only asked for is
 * among all, too, but while a call waits nothing visits holds except messages.
 */
void
hold_visit(HoldSet set, HoldVisitor visit, void *arg)
{
	dlist_iter iter;

	dlist_foreach (iter, &holds)
	{
		const Hold *hold = dlist_container(Hold, link, iter.cur);

		if (set == HOLDS_ALL || hold->transaction_count > 0)
			visit(hold, arg);
	}
}

/* How many holds there are: not more can be given up at once. */
int
hold_number(void)
{
	return nholds;
}
