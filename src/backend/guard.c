/*
 * guard.c
 *		What a loss does to a session and its transaction: what the transaction relies on,
 *		interrupts, and the commit guard, which prevents a commit that relied on a lock that was
 *		lost.
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
 * Runs in: backends.  Entries are read and written under their spinlocks; each process writes its
 * own stakes.  What the transaction relies on is private, reservations in its memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "backend/display.h"
#include "backend/guard.h"
#include "fault.h"

/* How long to wait for a check before it is requested again, ms */
#define CHECK_AGAIN_MS 1000

/* Of libpq/libpq.h, which does not compile without the header files of Kerberos */
extern bool pq_check_connection(void);

Reliance transaction_reliance;

/* ------------------------------------------------------------------------
 * What the transaction relies on: terms of leadership, and reservations
 *
 * It relies on a term from the moment when a call has returned that this server leads, and on
 * a reservation from the moment when it has named the token, until it ends, even if the
 * subtransaction that did so is rolled back.
 *
 *	term			The transaction relies on one term of an election, the first: once it has
 *					seen another one, its commit is refused in any case.  The entry of a term is
 *					the server's, not the session's.  What the session has at stake is in shared
 *					memory (shared/election.h), where the worker reads it before it gives
 *					leadership up.
 *	reservation		That it was renewed meanwhile makes no difference.  The first reliance of a
 *					transaction is counted in shared memory, and its end: a server that stops
 *					does not end reservations before.
 * ------------------------------------------------------------------------
 */

/*
 * Stores what is at stake in an election.  The memory barrier orders this before the caller's
 * look at the candidate.
 *
 *	which	the stakes that are changed
 */
static void
set_stake(int election, uint8 which, uint8 stake)
{
	volatile uint8 *mine = election_stake(election, compat_my_proc_number());
	uint8			before = *mine;

	*mine = (before & ~which) | stake;
	pg_memory_barrier();

	/*
	 * The worker does not give leadership up while a commit relies on it: wake it when this
	 * one ends.
	 */
	if ((before & ~*mine & STAKE_COMMIT) != 0)
		zklock_wake_worker();
}

/*
 * Stores the stakes in all elections on which the transaction relies, for the worker.  Cannot
 * fail, does not wait.
 */
static void
leadership_set_stakes(uint8 which, uint8 stake)
{
	for (int i = 0; i < transaction_reliance.nterms; i++)
		set_stake(transaction_reliance.terms[i].election, which, stake);
}

/*
 * Returns the fencing token of the term in which this server leads, provably, or 0.  If it leads, the
 * transaction relies on that from now on.  Reads no more than shared memory.
 */
int64
leadership_rely(int election)
{
	LeadershipTerm *term = transaction_reliance.terms;
	LeadershipTerm *end = &transaction_reliance.terms[transaction_reliance.nterms];
	int64			token;
	int64			now;
	bool			giving_way;

	if (election_leadership(election, &token) != LEADERSHIP_PROVED)
		return 0;
	while (term < end && term->election != election)
		term++;
	if (term == end)
	{
		set_stake(election, STAKE_ON_LOSS | STAKE_RELY, zklock_on_lock_loss | STAKE_RELY);

		/*
		 * The term may have ended before the worker could see the stake, or be given away in this
		 * moment (election_give_way()).
		 */
		giving_way = election_at(election)->giving_way;
		pg_read_barrier();
		if (giving_way || election_leadership(election, &now) != LEADERSHIP_PROVED || now != token)
		{
			set_stake(election, STAKE_ON_LOSS | STAKE_RELY, 0);
			return 0;
		}
		*term = (LeadershipTerm){.election = election, .token = token};
		transaction_reliance.nterms++;
	}
	if (term->token == token)
		term->taken_under = Max(term->taken_under, (CommitGuard) zklock_commit_guard);
	return token;
}

/* Raises the error for a reservation that is over. */
void
reliance_report_over(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("reservation of ZooKeeper path \"%s\" is over", display_path(path)),
			 errdetail("It has ended, or was lost, or there is none with that fencing token."),
			 errhint("Others may have held the lock meanwhile. Reserve the path again and retry the work.")));
}

/*
 * Has the transaction rely on a reservation from now on.  Raises an error if that is over.  The
 * caller has begun a call (transaction.c), so the end of the transaction is noticed.
 */
void
reliance_add(const char *path, const Reservation *reservation)
{
	ReliedReservation *relied = transaction_reliance.reservations;
	EntryStatus		   status;

	/* Count first: the server does not stop between that and the look. */
	if (!transaction_reliance.counted)
	{
		if ((pg_atomic_fetch_add_u32(&entry_pool->reliances, 1) & RELIANCES_CLOSED) != 0)
		{
			/* It is shutting down. */
			pg_atomic_fetch_sub_u32(&entry_pool->reliances, 1);
			reliance_report_over(path);
		}
		transaction_reliance.counted = true;
	}
	if (lease_state() == LEASE_OVER || !reservation_status(reservation, &status))
		reliance_report_over(path);
	while (relied && (relied->reservation.index != reservation->index ||
					  relied->reservation.generation != reservation->generation))
		relied = relied->next;
	if (relied == NULL)
	{
		Size len = strlen(path) + 1;

		relied =
			MemoryContextAllocZero(TopTransactionContext, offsetof(ReliedReservation, path) + len);
		relied->reservation = *reservation;
		memcpy(relied->path, path, len);
		relied->next = transaction_reliance.reservations;
		transaction_reliance.reservations = relied;
	}
	relied->taken_under = Max(relied->taken_under, (CommitGuard) zklock_commit_guard);
}

/* ------------------------------------------------------------------------
 * Whether a loss interrupts
 *
 * With zklock.on_lock_loss a session is interrupted as soon as it loses a lock.  The worker
 * logs which lock was lost, and sends the signal that PostgreSQL uses to cancel a statement
 * or to terminate a session.  Each entry has the session's choice, which the worker reads at
 * the moment of the loss.
 *
 * When the commit guard's final check has passed, interrupts are deferred until the
 * transaction has ended: they could no longer prevent the commit, but make it return before a
 * synchronous standby has the data.
 * ------------------------------------------------------------------------
 */

/* No loss interrupts the session until the transaction has ended. */
static bool deferred = false;

/*
 * Sets what the loss of a hold, or of leadership, does from now on.
 *
 * Returns true if one of the holds has already been lost, and the loss did not interrupt the
 * session.
 */
static bool
set_on_loss(LossPolicy policy)
{
	bool silent = false;

	leadership_set_stakes(STAKE_ON_LOSS, policy);
	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		Entry *entry = entry_at(hold->entry);

		SpinLockAcquire(&entry->mutex);
		silent |= entry->status.state == ENTRY_LOST && entry->status.on_loss == LOSS_ABORT;
		if (entry->status.state != ENTRY_LOST || policy != LOSS_ABORT)
			entry->status.on_loss = policy;
		SpinLockRelease(&entry->mutex);
	}
	return silent;
}

/* Applies a new value of zklock.on_lock_loss to what is held already. */
void
interrupt_set_policy(int policy, void *extra)
{
	if (!deferred)
		(void) set_on_loss(policy);
}

/*
 * Keeps the loss of any lock of this session from interrupting it, until interrupt_resume().
 */
void
interrupt_defer(void)
{
	if (!deferred && zklock_on_lock_loss != LOSS_ABORT)
		(void) set_on_loss(LOSS_ABORT);
	deferred = true;
}

/*
 * Lets the setting apply again.  Cannot fail, does not wait.
 *
 * If a lock was lost meanwhile and the setting is to terminate the session, the session is
 * terminated now.  A loss that would have cancelled a statement is not made up for: the
 * statement has succeeded, and must not fail any more.
 *
 * The session sends itself the signal that the worker would have sent.  PostgreSQL has no
 * interrupts for extensions: those of procsignal.c are a fixed list.  Code that sets the
 * signal handler's flags itself would have to know what PostgreSQL does on a termination, in
 * each release, and in each state in which a session can be.  The handler knows, and it only
 * sets flags, so this may be done at commit and abort.
 */
static void
interrupt_resume(void)
{
	LossPolicy policy = zklock_on_lock_loss;

	if (deferred && policy != LOSS_ABORT && set_on_loss(policy) && policy == LOSS_TERMINATE)
		(void) kill(MyProcPid, SIGTERM);
	deferred = false;
}

/* ------------------------------------------------------------------------
 * Interrupts
 *
 * PostgreSQL raises the error, with its own SQLSTATE and text.  If a function of ours runs
 * then, error contexts say what it was doing, and name what was lost.
 * ------------------------------------------------------------------------
 */

/*
 * Adds an error context for each loss.  Bytes of paths may be escaped: converting them could
 * fail, which is not allowed here.
 */
static void
name_lost(void *arg)
{
	int sqlerrcode = geterrcode();

	if (zklock_on_lock_loss == LOSS_ABORT ||
		(sqlerrcode != ERRCODE_QUERY_CANCELED && sqlerrcode != ERRCODE_ADMIN_SHUTDOWN))
		return;
	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		if (hold_is_lost(hold))
			errcontext("lock on ZooKeeper path \"%s\" was lost", display_utf8(hold->path));
	}
	for (int i = 0; i < transaction_reliance.nterms; i++)
	{
		const LeadershipTerm *term = &transaction_reliance.terms[i];
		int64				  token;

		/* A term is over with the lease, even before the worker has said so. */
		if (election_leadership(term->election, &token) == LEADERSHIP_NONE || token != term->token)
			errcontext("leadership at ZooKeeper path \"%s\" was lost",
					   display_utf8(election_at(term->election)->path));
	}
}

/*
 * Has errors say what the session is doing, and name what was lost, until the caller restores
 * lost.previous.
 *
 *	describe	adds what the session is doing to an error, or NULL
 */
void
interrupt_context_begin(InterruptContext *context, void (*describe)(void *), void *arg)
{
	context->lost = (ErrorContextCallback){.callback = name_lost, .previous = error_context_stack};
	context->doing =
		(ErrorContextCallback){.callback = describe, .arg = arg, .previous = &context->lost};
	error_context_stack = describe ? &context->doing : &context->lost;
}

/*
 * Lets interrupts end what the session is doing.  The error says what the session was doing
 * and names what was lost.
 *
 *	describe	adds what the session was doing to an error, or NULL
 */
void
interrupt_check(void (*describe)(void *), void *arg)
{
	InterruptContext context;

	interrupt_context_begin(&context, describe, arg);
	CHECK_FOR_INTERRUPTS();
	error_context_stack = context.lost.previous;
}

/*
 * Lets interrupts end what the session is doing, and ends the session if its client is gone.
 *
 * By default PostgreSQL does not look for the client during a statement.  A session that may
 * have waited looks before it does what nobody but its client could undo.  The error is
 * PostgreSQL's own, and goes to the server log alone.  Resets the latch.
 */
void
interrupt_check_client(void)
{
	if (MyProcPort && WaitEventSetCanReportClosed() && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
	interrupt_check(NULL, NULL);
}

/* ------------------------------------------------------------------------
 * A look at what the transaction relies on, and what the log and errors say of a wait
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
	const char *outage = display_outage("", ".");

	ereport(LOG, (errmsg("process %d %s proof of its ZooKeeper locks before %s after %ld ms",
						 MyProcPid, what, moments[moment], (long) (zklock_now_ms() - since)),
				  outage[0] != '\0' ? errdetail_log("%s", outage) : 0));
}

/* Adds the wait to the context of an error that ends it, such as a cancellation. */
static void
guard_context(void *arg)
{
	const GuardMoment *moment = arg;

	errcontext("while waiting for proof of ZooKeeper locks before %s%s", moments[*moment],
			   display_outage(": ", ""));
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
			if (!hold_stands(hold, &status))
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
 * Locks that are released before the commit, and the end of the transaction
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

/*
 * Ends what the transaction relies on, as it has ended: nothing is at stake any more, and losses
 * interrupt the session again.  Cannot fail.
 */
void
guard_end_transaction(void)
{
	leadership_set_stakes(STAKE_COMMIT | STAKE_ON_LOSS | STAKE_RELY, 0);
	if (transaction_reliance.counted)
		pg_atomic_fetch_sub_u32(&entry_pool->reliances, 1);
	transaction_reliance.nterms = 0;
	transaction_reliance.reservations = NULL;
	transaction_reliance.counted = false;
	transaction_reliance.released_unproved = false;
	transaction_reliance.released_under = COMMIT_GUARD_OFF;
	interrupt_resume();
}
