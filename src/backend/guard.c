/*
 * guard.c
 *		What becomes of a session that has lost a lock.
 *
 * A transaction that relied on a lock must not commit if the lock was lost, or
 * may have been.  It relied on what it holds at transaction level and, if it
 * has written, on all the session holds.  Before it commits, guard_commit()
 * asks, as zklock.commit_guard wants it, now or when the lock was taken,
 * whichever is stricter:
 *
 *	off		nobody
 *	lease	the entries in shared memory, none of which may be lost, and the
 *			lease, which must hold.  While that is suspended, commit waits.
 *	quorum	besides, the worker to have ZooKeeper's leader look at the locks'
 *			nodes and a quorum commit what it saw, all after the guard began.
 *
 * A lock at session level may be released before the commit of what was written
 * under it.  If it could not be told to be held then, the transaction fails as
 * well: see guard_released().
 *
 * Between this and the commit record lies a moment that nothing here can
 * close; zk_fence() can, in the database that is written to.
 *
 * A session may also want to be interrupted at once (zklock.on_lock_loss).  The
 * worker then sends it the signal that PostgreSQL uses to cancel a statement or
 * terminate a session.  As that says nothing of locks, explain_interrupt()
 * rewrites the message on its way to log and client.  Once the final check has
 * passed, no such signal is sent until the transaction has ended: it could no
 * longer prevent the commit, but make it return before a synchronous standby
 * has the data.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "backend/backend.h"
#include "backend/display.h"
#include "backend/guard.h"
#include "backend/request.h"
#include "compat.h"
#include "executor/executor.h"
#include "fault.h"
#include "shared/lease_state.h"
#include "shared/settings.h"
#include "storage/lock.h"
#include "storage/proc.h"

/* How often a check that is not answered is asked for again, ms. */
#define CHECK_AGAIN_MS 1000

/* When the locks are looked at */
typedef enum GuardMoment
{
	GUARD_EARLY, /* before others' callbacks, which may commit elsewhere */
	GUARD_FINAL	 /* before the commit here */
} GuardMoment;

static emit_log_hook_type	 prev_emit_log_hook = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd_hook = NULL;

/* May this session hold locks? */
static bool started = false;

/* Has this transaction released a lock it relied on, and may have lost before? */
static bool		   released_unproved = false;
static CommitGuard released_under = COMMIT_GUARD_OFF; /* the strictest of those */

/* Has its final check passed, so that a loss does not interrupt it any more? */
static bool interrupts_deferred = false;

/* ------------------------------------------------------------------------
 * What the transaction relies on
 * ------------------------------------------------------------------------
 */

typedef struct Reliance
{
	int			n;		   /* locks with a guard */
	int			to_check;  /* of these: those whose nodes a quorum is asked for */
	int			unchecked; /* of these: check asked for, not done */
	int			lost;	   /* entry of one that is lost, or -1 */
	const char *lost_path;
} Reliance;

/*
 * The guard of a lock: whoever takes a lock in a function for others relies on
 * what was set then, whatever those set afterwards.
 */
static CommitGuard
guard_of(CommitGuard taken_under)
{
	if (ZKLOCK_FAULT("guard-off"))
		return COMMIT_GUARD_OFF;
	return Max(taken_under, (CommitGuard) zklock_commit_guard);
}

static void
examine_hold(int index, const char *path, CommitGuard taken_under, void *arg)
{
	Reliance	   *reliance = arg;
	ContenderEntry *entry = entry_at(index);
	CommitGuard		guard = guard_of(taken_under);

	if (guard == COMMIT_GUARD_OFF)
		return;
	SpinLockAcquire(&entry->mutex);
	reliance->n++;
	if (guard == COMMIT_GUARD_QUORUM)
	{
		reliance->to_check++;
		if (entry->status.check_done != entry->status.check_wanted)
			reliance->unchecked++;
	}
	if (entry->status.state == CONTENDER_LOST)
	{
		reliance->lost = index;
		reliance->lost_path = path;
	}
	SpinLockRelease(&entry->mutex);
}

static Reliance
examine_holds(bool written)
{
	Reliance reliance = {.lost = -1};

	backend_visit_holds(written, examine_hold, &reliance);
	return reliance;
}

/*
 * Asks for a check of a lock's node, or for one that is not yet answered once
 * more; then the answer to either will do.
 */
static void
want_check(int index, const char *path, CommitGuard taken_under, void *arg)
{
	ContenderEntry *entry = entry_at(index);
	bool			again = *(bool *) arg;

	(void) path;
	if (guard_of(taken_under) != COMMIT_GUARD_QUORUM)
		return;
	SpinLockAcquire(&entry->mutex);
	if (!again)
		entry->status.check_wanted++;
	SpinLockRelease(&entry->mutex);
	entry_mark_dirty(index);
}

/* ------------------------------------------------------------------------
 * Whether a loss interrupts the session
 * ------------------------------------------------------------------------
 */

static void
set_policy(int index, const char *path, CommitGuard taken_under, void *arg)
{
	ContenderEntry *entry = entry_at(index);

	(void) path;
	(void) taken_under;
	SpinLockAcquire(&entry->mutex);
	entry->status.on_loss = *(LossPolicy *) arg;
	SpinLockRelease(&entry->mutex);
}

/* zklock.on_lock_loss is set: it is to apply to locks held already. */
void
guard_set_loss_policy(int policy, void *extra)
{
	LossPolicy on_loss = policy;

	(void) extra;
	if (!interrupts_deferred)
		backend_visit_holds(true, set_policy, &on_loss);
}

static void
defer_interrupt(int index, const char *path, CommitGuard taken_under, void *arg)
{
	ContenderEntry *entry = entry_at(index);

	(void) path;
	(void) taken_under;
	(void) arg;
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state != CONTENDER_LOST)
		entry->status.on_loss = LOSS_ABORT;
	SpinLockRelease(&entry->mutex);
}

/*
 * Keeps the loss of any lock of this session from interrupting it, until the
 * transaction has ended.
 */
void
guard_defer_interrupts(void)
{
	if (!interrupts_deferred && zklock_on_lock_loss != LOSS_ABORT)
		backend_visit_holds(true, defer_interrupt, NULL);
	interrupts_deferred = started;
}

/*
 * A lock that was lost meanwhile has LOSS_ABORT although the session wants to
 * be terminated: then that is made up for.  A statement that wanted to be
 * cancelled has ended well, and must not be told otherwise.
 */
static void
resume_interrupt(int index, const char *path, CommitGuard taken_under, void *arg)
{
	ContenderEntry *entry = entry_at(index);
	LossPolicy		policy = *(LossPolicy *) arg;
	TimestampTz		now = GetCurrentTimestamp();
	bool			terminate;

	(void) path;
	(void) taken_under;
	SpinLockAcquire(&entry->mutex);
	terminate = entry->status.state == CONTENDER_LOST && entry->status.on_loss == LOSS_ABORT &&
				policy == LOSS_TERMINATE;
	entry->status.on_loss = policy;
	if (terminate)
	{
		entry->status.interrupt = SIGTERM;
		entry->status.interrupted_at = now;
	}
	SpinLockRelease(&entry->mutex);
	if (terminate)
		(void) kill(MyProcPid, SIGTERM);
}

/* From now on the setting applies again.  Cannot fail, does not wait. */
static void
resume_interrupts(void)
{
	LossPolicy policy = zklock_on_lock_loss;

	if (interrupts_deferred && policy != LOSS_ABORT)
		backend_visit_holds(true, resume_interrupt, &policy);
	interrupts_deferred = false;
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
	const char *outage = display_outage();

	(void) arg;
	if (outage)
		errcontext("while waiting for proof of ZooKeeper locks before commit: %s", outage);
	else
		errcontext("while waiting for proof of ZooKeeper locks before commit");
}

static void
check_for_interrupts(void)
{
	ErrorContextCallback context = {.callback = guard_context, .previous = error_context_stack};

	error_context_stack = &context;
	CHECK_FOR_INTERRUPTS();
	error_context_stack = context.previous;
}

/*
 * Raises an error if the transaction relied on a lock that is lost.  As long as
 * that cannot be said, waits, but not for ever.
 *
 * When the final check has passed, the session is no longer interrupted by a
 * loss.  Whether a lock was lost before that took effect, the check tells once
 * more, which then passes or fails, but waits for nothing.
 */
static void
check_reliance(GuardMoment moment)
{
	bool  written = TransactionIdIsValid(GetTopTransactionIdIfAny());
	bool  check = moment == GUARD_FINAL && examine_holds(written).to_check > 0;
	int64 start = zklock_now_ms();
	int64 asked_at = 0;
	bool  logged = false;

	for (;;)
	{
		LeaseState lease;
		Reliance   reliance;

		ResetLatch(MyLatch);
		if (check && zklock_now_ms() - asked_at >= CHECK_AGAIN_MS)
		{
			bool again = asked_at != 0;

			backend_visit_holds(written, want_check, &again);
			asked_at = zklock_now_ms();
		}

		/* In this order: a lease that was seen before is the locks' own. */
		lease = lease_state();
		reliance = examine_holds(written);
		if (reliance.lost >= 0)
			request_report_lost(reliance.lost, reliance.lost_path);
		if (lease == LEASE_HOLDS && (!check || reliance.unchecked == 0))
		{
			if (moment == GUARD_EARLY || interrupts_deferred)
				break;
			guard_defer_interrupts();
			continue;
		}
		if (lease == LEASE_OVER)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not verify that ZooKeeper locks are still held"),
					 errdetail("The ZooKeeper session was not proved to be alive for a session timeout."),
					 errhint("Others may have held the locks meanwhile. Retry the work.")));
		resume_interrupts();
		check_for_interrupts();
		if (log_lock_waits && !logged && zklock_now_ms() - start >= DeadlockTimeout)
		{
			log_guard("still waiting for", start);
			logged = true;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
						 PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
	if (logged)
		log_guard("acquired", start);
}

static void
guard_look(GuardMoment moment)
{
	if (released_unproved && guard_of(released_under) != COMMIT_GUARD_OFF)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not verify that a ZooKeeper lock was still held when it was released"),
						errhint("Others may have held the lock meanwhile. Retry the work.")));
	if (examine_holds(TransactionIdIsValid(GetTopTransactionIdIfAny())).n > 0)
		check_reliance(moment);
}

/*
 * The final check, before the transaction commits, or is prepared.  After it a
 * loss interrupts nobody any more.
 *
 * An interrupt that is there already is for this transaction, and must not wait
 * to disturb its commit.
 */
void
guard_commit(void)
{
	guard_look(GUARD_FINAL);
	guard_defer_interrupts();
	CHECK_FOR_INTERRUPTS();
}

/*
 * Others' callbacks may commit in other databases, as those of postgres_fdw do,
 * and should not when a lock is known to be lost.
 */
static void
on_commit_begin(XactEvent event, void *arg)
{
	(void) arg;
	if (event == XACT_EVENT_PRE_COMMIT)
		guard_look(GUARD_EARLY);
}

/*
 * Makes on_commit_begin() the first of all callbacks.
 *
 * Callbacks are called in the reverse order of their registration, but nobody
 * tells which was registered last, and there is no hook where a commit begins:
 * neither a procedure's COMMIT nor the one that ends a single statement passes
 * by ProcessUtility_hook.  Yet what registers a callback, such as the first
 * connection of postgres_fdw, does so while a query or a utility command runs.
 * So this is called whenever one of them has ended, deferred triggers' included;
 * a commit ends those of all open cursors before it calls any callback.  A query
 * that failed may escape us, but then it has done nothing that could be
 * committed elsewhere, and the next query or command makes up for it.
 *
 * It takes some 20 ns, while the simplest query in a PL/pgSQL loop takes 800.  It
 * may also happen while callbacks are being called, when one of them runs a
 * query.  Ours has been called by then, so the list can bear that.  Only who was
 * registered by a query that failed may precede ours; if its callback runs
 * queries, PostgreSQL 16 and later may call it twice.
 */
void
guard_come_first(void)
{
	if (!started)
		return;
	UnregisterXactCallback(on_commit_begin, NULL);
	RegisterXactCallback(on_commit_begin, NULL);
}

static void
executor_end(QueryDesc *query)
{
	if (prev_ExecutorEnd_hook)
		prev_ExecutorEnd_hook(query);
	else
		standard_ExecutorEnd(query);
	guard_come_first();
}

/* The session is about to have its first lock. */
void
guard_start_session(void)
{
	started = true;
	guard_come_first();
}

/*
 * A lock at session level is released, which was acquired under that guard.
 * "proved": until then it was held.
 */
void
guard_released(CommitGuard taken_under, bool proved)
{
	if (proved || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	released_unproved = true;
	released_under = Max(released_under, taken_under);
}

/* ------------------------------------------------------------------------
 * What an interrupted session is told
 * ------------------------------------------------------------------------
 */

typedef struct Interrupt
{
	int			signal;
	TimestampTz at;	   /* when the worker sent it last, 0 if it has not */
	int			index; /* entry whose loss made it do so */
	const char *path;
} Interrupt;

static void
take_interrupt(int index, const char *path, CommitGuard taken_under, void *arg)
{
	Interrupt	   *interrupt = arg;
	ContenderEntry *entry = entry_at(index);

	(void) taken_under;
	SpinLockAcquire(&entry->mutex);
	if (entry->status.interrupt == interrupt->signal)
	{
		entry->status.interrupt = 0;
		if (entry->status.interrupted_at > interrupt->at)
		{
			interrupt->at = entry->status.interrupted_at;
			interrupt->index = index;
			interrupt->path = path;
		}
	}
	SpinLockRelease(&entry->mutex);
}

/*
 * If the message is that of a signal which the worker sent, makes it say why.
 * emit_log_hook: the message is on its way to log and client.
 *
 * A cancellation that is older than the statement found none to cancel then,
 * and does not explain this one.
 */
static void
explain_interrupt(ErrorData *edata)
{
	bool cancel = edata->sqlerrcode == ERRCODE_QUERY_CANCELED && edata->message_id &&
				  strcmp(edata->message_id, "canceling statement due to user request") == 0;
	bool terminate = edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN && edata->elevel == FATAL;
	Interrupt interrupt = {.signal = cancel ? SIGINT : SIGTERM};

	if (cancel || terminate)
		backend_visit_holds(true, take_interrupt, &interrupt);
	if (interrupt.at != 0 && (terminate || interrupt.at >= GetCurrentStatementStartTimestamp()))
	{
		/* There may be no transaction, in which alone strings are converted. */
		const char *path = display_utf8(interrupt.path);

		edata->message =
			cancel
				? psprintf(_("canceling statement because lock on ZooKeeper path \"%s\" was lost"), path)
				: psprintf(_("terminating connection because lock on ZooKeeper path \"%s\" was lost"),
						   path);
		edata->detail = pstrdup(display_loss(interrupt.index));
		edata->hint =
			pstrdup(cancel ? _("Others may have held the lock meanwhile. Release it and retry the work.")
						   : _("Others may have held the lock meanwhile. Retry the work."));
		if (cancel)
			edata->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
	}
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

/* The transaction has ended: what it released is history.  Cannot fail. */
void
guard_forget(void)
{
	released_unproved = false;
	released_under = COMMIT_GUARD_OFF;
	resume_interrupts();
}

/* Called in the postmaster while it loads libraries. */
void
guard_install_hooks(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = explain_interrupt;
	prev_ExecutorEnd_hook = ExecutorEnd_hook;
	ExecutorEnd_hook = executor_end;
}
