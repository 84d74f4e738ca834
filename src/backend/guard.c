/*
 * guard.c
 *		The commit guard: prevents a commit that relied on a lock that was lost.
 *
 * A transaction that relied on a lock must not commit if the lock was lost, or may have been.
 * It relied on what it holds at transaction level, on the reservations that it has named and,
 * if it has written, on all that the session holds.  guard_check() asks before the commit, as
 * strictly as zklock.commit_guard says: the stricter of its values now, and when the lock was
 * taken.
 *
 *	off		asks nobody
 *	lease	asks the entries in shared memory, none of which may be lost; the clock, by
 *			which none may have been held for longer than it was granted for; and the
 *			lease, which must hold.  While the lease is suspended, the commit waits; when
 *			it is over, a session timeout later, the locks count as lost.
 *	quorum	also has the worker ask ZooKeeper's leader for the locks' nodes, and a
 *			quorum commit what it saw, all after the guard began.
 *
 * The guard checks twice at the command COMMIT: before other extensions' callbacks, which may
 * commit elsewhere (GUARD_EARLY; without the quorum), and before the commit here.  A commit
 * without the command is checked once.
 *
 * A failed commit does not bring back what DROP DATABASE has deleted.  So the guard also
 * checks before a command that changes the database or its server outside a transaction block
 * (GUARD_COMMAND).  The command relies on all that the session holds, as it is about to write.
 *
 * A transaction that has written also relies on the terms in which this server led when it
 * asked.  The server does not give up leadership while it commits.
 *
 * A lock at session level may be released before the commit of what was written under it.  The
 * transaction fails as well if the session could not prove then that it held the lock: see
 * guard_release().
 *
 * The guard cannot close the moment between the check and the commit record; zk_fence() can,
 * in the database that is written to.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/display.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "compat.h"
#include "fault.h"
#include "shared/common.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "storage/proc.h"

/* How long to wait for a check before it is requested again, ms */
#define CHECK_AGAIN_MS 1000

/* ------------------------------------------------------------------------
 * What the transaction relies on
 * ------------------------------------------------------------------------
 */

/* Which checks by a quorum a look requests */
typedef enum CheckWish
{
	NO_CHECKS,
	NEW_CHECKS,
	SAME_CHECKS /* the worker is reminded of those requested; either answer will do */
} CheckWish;

/* A look at the holds, terms and reservations with a guard on which the transaction relies */
typedef struct GuardLook
{
	CheckWish wish;
	int		  n;		 /* number of these */
	int		  unchecked; /* of these: those with a check by a quorum that is not done */
} GuardLook;

/*
 * Returns the guard of a lock.  A function that sets a guard, and takes a lock for its caller,
 * has that guard, even if the setting is laxer at the commit.
 */
static CommitGuard
stricter(CommitGuard taken_under)
{
	if (ZKLOCK_FAULT("guard-off"))
		return COMMIT_GUARD_OFF;
	return Max(taken_under, (CommitGuard) zklock_commit_guard);
}

/*
 * Adds a hold, term or reservation that is not lost, and requests the check of its node by a
 * quorum.  The check of a reservation wakes the last process that has asked; others wait with
 * a timeout, and see it then.
 *
 *	check	number of the last check that was requested
 */
static void
rely_on(GuardLook *look, CommitGuard guard, int index, const EntryStatus *status, uint32 *check)
{
	Entry *entry = entry_at(index);

	look->n++;
	if (guard != COMMIT_GUARD_QUORUM)
		return;
	if (look->wish == NEW_CHECKS)
	{
		SpinLockAcquire(&entry->mutex);
		*check = ++entry->status.check_wanted;
		if (entry->status.reserved)
			entry->status.latch = compat_my_proc_number();
		SpinLockRelease(&entry->mutex);
	}
	if (look->wish != NO_CHECKS)
		entry_mark_dirty(index);
	look->unchecked += (int32) (status->check_done - *check) < 0;
}

/* ------------------------------------------------------------------------
 * What a wait says
 * ------------------------------------------------------------------------
 */

/* What waits, for messages */
static const char *const moments[] = {
	[GUARD_COMMAND] = "a command that cannot be rolled back",
	[GUARD_EARLY] = "commit",
	[GUARD_FINAL] = "commit",
};

/* Logs a commit that waits, with log_lock_waits, as PostgreSQL does for locks. */
static void
log_guard(GuardMoment moment, const char *what, int64 since)
{
	const char *outage = display_outage();

	ereport(LOG, (errmsg("process %d %s proof of its ZooKeeper locks before %s after %ld ms",
						 MyProcPid, what, moments[moment], (long) (zklock_now_ms() - since)),
				  outage ? errdetail_log("%s.", outage) : 0));
}

/* Adds the wait to the context of an error that ends it, such as a cancellation. */
static void
guard_context(void *arg)
{
	const GuardMoment *moment = arg;

	errcontext("while waiting for proof of ZooKeeper locks before %s%s", moments[*moment],
			   display_outage_suffix());
}

/* ------------------------------------------------------------------------
 * Before commit
 * ------------------------------------------------------------------------
 */

/*
 * Checks the locks before the transaction commits, or is prepared, or before a command.
 * Raises an error if the transaction relied on a lock that is lost, and must not go on.  Waits
 * while that is not known, but not for ever.
 *
 * No loss interrupts the session after the final check.  So interrupts are deferred before
 * each look, which sees what was lost before, and not while the session waits.
 */
void
guard_check(GuardMoment moment)
{
	bool  written = TransactionIdIsValid(GetTopTransactionIdIfAny());
	bool  writes = written || moment == GUARD_COMMAND; /* or is about to */
	int64 start = zklock_now_ms();
	int64 ask_at = start;
	bool  logged = false;

	if (transaction_reliance.released_unproved &&
		stricter(transaction_reliance.released_under) != COMMIT_GUARD_OFF)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not verify that a ZooKeeper lock was still held when it was released"),
						errhint("Others may have held the lock meanwhile. Retry the work.")));

	/*
	 * The worker gives up none of the terms that are checked until the transaction has
	 * ended.
	 */
	if (written)
		leadership_set_stakes(STAKE_COMMIT, STAKE_COMMIT);
	for (;;)
	{
		GuardLook	look = {.wish = NO_CHECKS};
		LeaseState	lease;
		EntryStatus status;

		ResetLatch(MyLatch);
		if (moment != GUARD_EARLY && zklock_now_ms() >= ask_at)
		{
			look.wish = ask_at == start ? NEW_CHECKS : SAME_CHECKS;
			ask_at = zklock_now_ms() + CHECK_AGAIN_MS;
		}
		if (moment == GUARD_FINAL)
			interrupt_defer();

		/* Read the lease first: read last, it may be a later ZooKeeper session's. */
		lease = lease_state();

		/* The holds: those of the transaction, or all if it has written */
		for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		{
			bool		relied = writes || hold_is_acquired_at(hold, LOCK_SCOPE_TRANSACTION);
			CommitGuard guard = relied ? stricter(hold->taken_under) : COMMIT_GUARD_OFF;

			if (guard == COMMIT_GUARD_OFF)
				continue;
			if (hold_entry(hold, &status) == ENTRY_NONE)
				hold_report_lost(hold);
			rely_on(&look, guard, hold->entry, &status, &hold->check);
		}

		/* The terms of leadership, if it has written */
		for (int i = 0; i < transaction_reliance.nterms; i++)
		{
			LeadershipTerm *term = &transaction_reliance.terms[i];
			CommitGuard		guard = writes ? stricter(term->taken_under) : COMMIT_GUARD_OFF;
			int				index;

			if (guard == COMMIT_GUARD_OFF)
				continue;
			index = election_granted_entry(term->election, &status);
			if (index == ENTRY_NONE || status.token != term->token)
				ereport(ERROR,
						(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						 errmsg("leadership at ZooKeeper path \"%s\" was lost",
								display_path(election_at(term->election)->path)),
						 errdetail("This server led when the transaction asked, but does not lead in that term any more."),
						 errhint("Another server may lead by now. Retry the work where the leader is.")));
			rely_on(&look, guard, index, &status, &term->check);
		}

		/* The reservations that it has named */
		for (ReliedReservation *relied = transaction_reliance.reservations; relied != NULL;
			 relied = relied->next)
		{
			CommitGuard guard = stricter(relied->taken_under);

			if (guard == COMMIT_GUARD_OFF)
				continue;
			if (!reservation_status(&relied->reservation, &status))
				reliance_report_over(relied->path);
			rely_on(&look, guard, relied->reservation.index, &status, &relied->check);
		}

		/* None of these is lost; but is that proved? */
		if (look.n == 0 || (lease == LEASE_HOLDS && (moment == GUARD_EARLY || look.unchecked == 0)))
			break;
		if (lease == LEASE_OVER)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not verify that ZooKeeper locks are still held"),
					 errdetail("The ZooKeeper session was not proved to be alive for a session timeout."),
					 errhint("Others may have held the locks meanwhile. Retry the work.")));

		/* Wait for the lease, or for the answer to a check. */
		interrupt_resume();
		interrupt_check(guard_context, &moment);
		if (log_lock_waits && !logged && zklock_now_ms() - start >= DeadlockTimeout)
		{
			log_guard(moment, "still waiting for", start);
			logged = true;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
						 zklock_wait_event(ZKLOCK_WAIT_COMMIT_GUARD));
	}
	if (logged)
		log_guard(moment, "acquired", start);

	/*
	 * An interrupt that has come by now is handled, so that it does not disturb the commit.  A
	 * transaction that has written nothing is not interrupted: it may have acquired a lock at
	 * session level, which the client is to know.
	 */
	if (moment == GUARD_FINAL && written)
		interrupt_check(NULL, NULL);
}

/* ------------------------------------------------------------------------
 * Locks that are released before the commit
 * ------------------------------------------------------------------------
 */

/*
 * Undoes acquisitions at session level.  If the hold that is given up may have been lost,
 * what was written under it must not be committed.  Cannot fail, does not wait.
 */
void
guard_release(Hold *hold, LockMode mode, int n)
{
	/* Read the lease first: a lease that was seen before the lock is its own. */
	bool lease_holds = lease_state() == LEASE_HOLDS;

	hold->released_lost = hold_is_lost(hold);
	if (!hold_release(hold, mode, LOCK_SCOPE_SESSION, n, ENTRY_NOTICE) ||
		(lease_holds && !hold->released_lost) || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	transaction_reliance.released_unproved = true;
	transaction_reliance.released_under = Max(transaction_reliance.released_under, hold->taken_under);
}
