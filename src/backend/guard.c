/*
 * guard.c
 *		The commit guard: no commit on the strength of a lock that was lost.
 *
 * A transaction that relied on a lock must not commit if the lock was lost, or
 * may have been.  It relied on what it holds at transaction level and, if it
 * has written, on all the session holds.  Before it commits, guard_check()
 * asks, as zklock.commit_guard wants it, now or when the lock was taken,
 * whichever is stricter:
 *
 *	off		nobody
 *	lease	the entries in shared memory, none of which may be lost, the clock,
 *			by which none may have been held for longer than it was granted
 *			for, and the lease, which must hold.  While that is suspended,
 *			commit waits.
 *	quorum	besides, the worker to have ZooKeeper's leader look at the locks'
 *			nodes and a quorum commit what it saw, all after the guard began.
 *
 * The command COMMIT asks twice: before other extensions' callbacks, which may commit
 * elsewhere (GUARD_EARLY; without the quorum), and before the commit here.  A commit
 * without the command asks once.
 *
 * A transaction that has written also relies on the terms in which it was told
 * that this server leads.  While it commits, the server does not give up
 * leadership.
 *
 * A lock at session level may be released before the commit of what was written
 * under it.  If the session could not prove then that it held the lock, the
 * transaction fails as well: see guard_release().
 *
 * Between this and the commit record lies a moment that nothing here can
 * close; zk_fence() can, in the database that is written to.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/display.h"
#include "backend/hold.h"
#include "backend/leadership.h"
#include "compat.h"
#include "fault.h"
#include "shared/common.h"
#include "shared/election.h"
#include "shared/session_info.h"
#include "storage/proc.h"

/* How often a check that is not answered is asked for again, ms. */
#define CHECK_AGAIN_MS 1000

/* Has this transaction released a lock it relied on, and may have lost before? */
static bool		   released_unproved = false;
static CommitGuard released_under = COMMIT_GUARD_OFF; /* the strictest of those */

/* ------------------------------------------------------------------------
 * What the transaction relies on
 * ------------------------------------------------------------------------
 */

/* How many holds and terms with a guard the transaction relies on */
typedef struct Reliance
{
	int n;
	int unchecked; /* of these: those whose check by a quorum was asked for, and is not done */
} Reliance;

static bool
has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/*
 * The guard of a lock: a function that takes a lock for others relies on what
 * was set then, whatever those others set afterwards.
 */
static CommitGuard
stricter(CommitGuard taken_under)
{
	if (ZKLOCK_FAULT("guard-off"))
		return COMMIT_GUARD_OFF;
	return Max(taken_under, (CommitGuard) zklock_commit_guard);
}

/* That of a hold, if the transaction relies on it */
static CommitGuard
guard_of_hold(const Hold *hold)
{
	if (!has_written() && !hold_is_acquired_at(hold, LOCK_SCOPE_TRANSACTION))
		return COMMIT_GUARD_OFF;
	return stricter(hold->taken_under);
}

static CommitGuard
guard_of_term(const LeadershipTerm *term)
{
	return has_written() ? stricter(term->taken_under) : COMMIT_GUARD_OFF;
}

/*
 * Adds what is not lost.
 *
 *	check	number of the check that was asked for last
 */
static void
rely_on(Reliance *reliance, CommitGuard guard, const EntryStatus *status, uint32 check)
{
	reliance->n++;
	if (guard == COMMIT_GUARD_QUORUM && (int32) (status->check_done - check) < 0)
		reliance->unchecked++;
}

/* Raises an error if anything that the transaction relies on is lost. */
static Reliance
examine(void)
{
	Reliance	reliance = {0};
	EntryStatus status;

	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		if (guard_of_hold(hold) == COMMIT_GUARD_OFF)
			continue;
		if (hold_entry(hold, &status) == ENTRY_NONE)
			hold_report_lost(hold);
		rely_on(&reliance, guard_of_hold(hold), &status, hold->check);
	}
	for (const LeadershipTerm *term = leadership_next(NULL); term != NULL;
		 term = leadership_next(term))
	{
		if (guard_of_term(term) == COMMIT_GUARD_OFF)
			continue;
		if (election_term_entry(term->election, term->token, &status) == ENTRY_NONE)
			leadership_report_lost(term);
		rely_on(&reliance, guard_of_term(term), &status, term->check);
	}
	return reliance;
}

/*
 * Asks for a check of an entry's node.
 *
 *	asked_before	for the same commit
 *	check			is set to the number of the check
 */
static void
want_check(int index, bool asked_before, uint32 *check)
{
	ContenderEntry *entry = entry_at(index);

	if (!asked_before)
	{
		SpinLockAcquire(&entry->mutex);
		*check = ++entry->status.check_wanted;
		SpinLockRelease(&entry->mutex);
	}
	entry_mark_dirty(index);
}

/*
 * Asks for checks by a quorum; then again, if they are not answered, after which either
 * answer will do.  What is lost needs none.
 *
 *	asked_before	for the same commit
 */
static void
want_checks(bool asked_before)
{
	EntryStatus status;

	for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		int index = hold_entry(hold, &status);

		if (guard_of_hold(hold) == COMMIT_GUARD_QUORUM && index != ENTRY_NONE)
			want_check(index, asked_before, &hold->check);
	}
	for (LeadershipTerm *term = leadership_next(NULL); term != NULL; term = leadership_next(term))
	{
		int index = election_term_entry(term->election, term->token, &status);

		if (guard_of_term(term) == COMMIT_GUARD_QUORUM && index != ENTRY_NONE)
			want_check(index, asked_before, &term->check);
	}
}

/* ------------------------------------------------------------------------
 * Before commit
 * ------------------------------------------------------------------------
 */

/* With log_lock_waits, tells of a commit that waits, as for locks. */
static void
log_guard(const char *what, int64 since)
{
	const char *outage = display_outage();

	ereport(LOG, (errmsg("process %d %s proof of its ZooKeeper locks before commit after %ld ms",
						 MyProcPid, what, (long) (zklock_now_ms() - since)),
				  outage ? errdetail_log("%s.", outage) : 0));
}

/* What an error says that ends the wait, such as a cancellation */
static void
guard_context(void *arg)
{
	errcontext("while waiting for proof of ZooKeeper locks before commit%s", display_outage_suffix());
}

/*
 * Raises an error if the transaction relied on a lock that is lost.  As long as
 * that cannot be said, waits, but not for ever.
 *
 * When the final check has passed, a loss does not interrupt the session any more.  So
 * interrupts are deferred before each look, which sees what was lost before, and not
 * while the session waits.
 */
static void
check_reliance(GuardMoment moment)
{
	int64 start = zklock_now_ms();
	int64 ask_at = start;
	bool  logged = false;

	for (;;)
	{
		LeaseState lease;
		Reliance   reliance;

		ResetLatch(MyLatch);
		if (moment == GUARD_FINAL)
		{
			if (zklock_now_ms() >= ask_at)
			{
				want_checks(ask_at != start);
				ask_at = zklock_now_ms() + CHECK_AGAIN_MS;
			}
			interrupt_defer();
		}

		/* In this order: a lease that was seen before is the locks' own. */
		lease = lease_state();
		reliance = examine();
		if (reliance.n == 0 ||
			(lease == LEASE_HOLDS && (moment == GUARD_EARLY || reliance.unchecked == 0)))
			break;
		if (lease == LEASE_OVER)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not verify that ZooKeeper locks are still held"),
					 errdetail("The ZooKeeper session was not proved to be alive for a session timeout."),
					 errhint("Others may have held the locks meanwhile. Retry the work.")));
		interrupt_resume();
		interrupt_check(guard_context, NULL);
		if (log_lock_waits && !logged && zklock_now_ms() - start >= DeadlockTimeout)
		{
			log_guard("still waiting for", start);
			logged = true;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
						 zklock_wait_event(ZKLOCK_WAIT_COMMIT_GUARD));
	}
	if (logged)
		log_guard("acquired", start);
}

/*
 * Checks the locks before the transaction commits, or is prepared.  Raises an
 * error if it must not.
 *
 * After the final check a loss interrupts nobody any more.  An interrupt that is
 * there already is for this transaction, and must not wait to disturb its
 * commit.  What has written nothing is not disturbed, and may have acquired a lock at
 * session level, of which the client is to be told.
 */
void
guard_check(GuardMoment moment)
{
	if (released_unproved && stricter(released_under) != COMMIT_GUARD_OFF)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not verify that a ZooKeeper lock was still held when it was released"),
						errhint("Others may have held the lock meanwhile. Retry the work.")));

	/* Until the transaction has ended, the worker gives up none of the terms that are looked at. */
	if (has_written())
		leadership_set_stakes(STAKE_COMMIT, STAKE_COMMIT);
	check_reliance(moment);
	if (moment == GUARD_FINAL && has_written())
		interrupt_check(NULL, NULL);
}

/* ------------------------------------------------------------------------
 * Locks that are released before the commit
 * ------------------------------------------------------------------------
 */

/*
 * Undoes acquisitions at session level.  If what is given up may have been lost, what
 * was written under it must not be committed.  Cannot fail, does not wait.
 */
void
guard_release(Hold *hold, LockMode mode, int n)
{
	/* In this order: a lease that was seen before is the lock's own. */
	bool proved = lease_state() == LEASE_HOLDS && !hold_is_lost(hold);

	if (!hold_release(hold, mode, LOCK_SCOPE_SESSION, n, ENTRY_NOTICE) || proved || !has_written())
		return;
	released_unproved = true;
	released_under = Max(released_under, hold->taken_under);
}

/* The transaction has ended: what it released is history.  Cannot fail. */
void
guard_forget(void)
{
	released_unproved = false;
	released_under = COMMIT_GUARD_OFF;
}
