/*
 * guard.c
 *		What becomes of a session that has lost a lock.
 *
 * A transaction that relied on a lock must not commit if the lock was lost, or
 * may have been.  It relied on what it holds at transaction level and, if it
 * has written, on all the session holds.  Before it commits, guard_commit()
 * asks, as zklock.commit_guard wants it:
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
 * rewrites the message on its way to log and client.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "backend/backend.h"
#include "backend/guard.h"
#include "backend/lock_view.h"
#include "backend/request.h"
#include "compat.h"
#include "fault.h"
#include "shared/shmem.h"
#include "storage/lock.h"
#include "worker/lease.h"
#include "zklock.h"

/* How often a check that is not answered is asked for again, ms. */
#define CHECK_AGAIN_MS 1000

static emit_log_hook_type prev_emit_log_hook = NULL;

/* Has this transaction released a lock it relied on, and may have lost before? */
static bool released_unproved = false;

/* ------------------------------------------------------------------------
 * What the transaction relies on
 * ------------------------------------------------------------------------
 */

typedef struct Reliance
{
	int			n;		   /* locks */
	int			unchecked; /* of these: check of the node asked for, not done */
	int			lost;	   /* entry of one that is lost, or -1 */
	const char *lost_path;
} Reliance;

static void
examine_hold(int index, const char *path, void *arg)
{
	Reliance	   *reliance = arg;
	ContenderEntry *entry = entry_at(index);

	SpinLockAcquire(&entry->mutex);
	reliance->n++;
	if (entry->check_done != entry->check_wanted)
		reliance->unchecked++;
	if (entry->state == CONTENDER_LOST)
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
want_check(int index, const char *path, void *arg)
{
	ContenderEntry *entry = entry_at(index);
	bool			again = *(bool *) arg;

	(void) path;
	SpinLockAcquire(&entry->mutex);
	if (!again)
		entry->check_wanted++;
	SpinLockRelease(&entry->mutex);
	entry_mark_dirty(index);
}

/*
 * Before commit: raises an error if the transaction relied on a lock that is
 * lost.  As long as that cannot be said, waits, but not for ever.
 *
 * COMMIT has it called twice: before others' callbacks, which may commit
 * elsewhere, and finally before the commit here, when alone a quorum is asked.
 */
void
guard_commit(bool finally)
{
	bool  written = TransactionIdIsValid(GetTopTransactionIdIfAny());
	bool  check = finally && zklock_commit_guard == COMMIT_GUARD_QUORUM;
	int64 asked_at = 0;

	if (zklock_commit_guard == COMMIT_GUARD_OFF || ZKLOCK_FAULT("guard-off"))
		return;
	if (released_unproved)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not verify that a ZooKeeper lock was still held when it was released"),
						errhint("Others may have held the lock meanwhile. Retry the work.")));
	if (examine_holds(written).n == 0)
		return;
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
			report_lost(reliance.lost, reliance.lost_path);
		if (lease == LEASE_HOLDS && (!check || reliance.unchecked == 0))
			return;
		if (lease == LEASE_OVER)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not verify that ZooKeeper locks are still held"),
					 errdetail("The ZooKeeper session was not proved to be alive for a session timeout."),
					 errhint("Others may have held the locks meanwhile. Retry the work.")));
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
						 PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
}

/*
 * A lock at session level is released.  "proved": until then it was held.
 */
void
guard_released(bool proved)
{
	if (!proved && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		released_unproved = true;
}

/* ------------------------------------------------------------------------
 * Interrupts
 * ------------------------------------------------------------------------
 */

static void
set_policy(int index, const char *path, void *arg)
{
	ContenderEntry *entry = entry_at(index);

	(void) path;
	SpinLockAcquire(&entry->mutex);
	entry->on_loss = *(LossPolicy *) arg;
	SpinLockRelease(&entry->mutex);
}

/* zklock.on_lock_loss is set: it is to apply to locks held already. */
void
guard_set_loss_policy(int policy, void *extra)
{
	LossPolicy on_loss = policy;

	(void) extra;
	backend_visit_holds(true, set_policy, &on_loss);
}

typedef struct Interrupt
{
	int			signal;
	TimestampTz at;	   /* when the worker sent it last, 0 if it has not */
	int			index; /* entry whose loss made it do so */
	const char *path;
} Interrupt;

static void
take_interrupt(int index, const char *path, void *arg)
{
	Interrupt	   *interrupt = arg;
	ContenderEntry *entry = entry_at(index);

	SpinLockAcquire(&entry->mutex);
	if (entry->interrupt == interrupt->signal)
	{
		entry->interrupt = 0;
		if (entry->interrupted_at > interrupt->at)
		{
			interrupt->at = entry->interrupted_at;
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
		const char *path = utf8_for_display(interrupt.path, false);

		edata->message =
			cancel
				? psprintf(_("canceling statement because lock on ZooKeeper path \"%s\" was lost"), path)
				: psprintf(_("terminating connection because lock on ZooKeeper path \"%s\" was lost"),
						   path);
		edata->detail = pstrdup(loss_detail(interrupt.index));
		edata->hint =
			pstrdup(cancel ? _("Others may have held the lock meanwhile. Release it and retry the work.")
						   : _("Others may have held the lock meanwhile. Retry the work."));
		if (cancel)
			edata->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
	}
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

/* The transaction ends: what it released is history.  Cannot fail. */
void
guard_forget(void)
{
	released_unproved = false;
}

/* Called in the postmaster while it loads libraries. */
void
guard_install_hooks(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = explain_interrupt;
}
