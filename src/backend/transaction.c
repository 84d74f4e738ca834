/*
 * transaction.c
 *		Which locks end with a failed call, a subtransaction, a transaction, or a
 *		statement such as DISCARD ALL; and releasing those that are held at session level.
 *
 *	session level		survives everything but zk_unlock(), DISCARD ALL and
 *						the end of the session
 *	transaction level	goes when the transaction ends, or with the
 *						subtransaction that acquired it
 *
 * Acquisitions that are to go are on a stack.  Subtransactions nest, and their numbers grow:
 * what one of them has acquired, with the ones inside it, is on top when it ends, and has no
 * number below its own.  So a subtransaction that is rolled back takes these from the stack,
 * and one that commits has nothing to do.
 *
 * A call that acquires several locks, and fails, must undo those that it has acquired.  They
 * are on the stack as well, whatever their level, until the call is complete.  So however it
 * ends, by a timeout, an error or a cancellation at any moment, the session holds what it
 * held before, as often as before: an error always aborts the transaction or a
 * subtransaction, and that undoes the call.  It also gives up what the call has only asked
 * for, and nobody has acquired.
 *
 * PostgreSQL's callbacks for transactions and subtransactions, in a session that has asked
 * for a lock or permit, and a hook that sees its commands, act at these moments:
 *
 *	before a command	that a rollback may not undo: the guard may raise an error
 *	before commit		the guard, too; at the command COMMIT it looks a first time,
 *						before other extensions' callbacks
 *	before prepare		the guard, too; locks at transaction level cannot be prepared
 *	commit, abort		the outcome is visible: locks at transaction level go; elements
 *						of queues go at commit, and come back at abort
 *	subtransactions		acquisitions become the parent's, or go
 *
 * The callbacks at commit and abort only change counts and states and set the worker's latch:
 * no I/O, no allocation, nothing that can fail or wait.
 *
 * A transaction may rely on its server's leadership as well: transaction_leads() looks, and
 * the guard then watches it.  It may rely on reservations, too (guard.c).
 *
 * A call that releases locks or permits first gives up all that it is to release, by steps
 * that cannot fail and do not wait.  Only then it raises warnings, and waits until others can
 * have the locks.  Both look at interrupts, and a cancellation finds everything released.
 *
 * Runs in: backends.  Everything here is private to the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/display.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "backend/wait.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "tcop/utility.h"

#define FIRST_ACQUISITIONS 16 /* the stack's first size */

/* Acquisitions of one lock by one subtransaction, one after the other */
typedef struct Acquisition
{
	Hold			*hold;
	LockMode		 mode;
	LockScope		 scope;
	SubTransactionId subid;
	int				 n;
} Acquisition;

static Acquisition *acquisitions = NULL;
static int			nacquisitions = 0;
static int			max_acquisitions = FIRST_ACQUISITIONS;
static int			call_begins = 0; /* those of the call under way are above */

/* The callbacks have been registered. */
static bool started = false;

/* ------------------------------------------------------------------------
 * The end of calls and transactions
 * ------------------------------------------------------------------------
 */

/*
 * Undoes the acquisitions on the stack above a mark, the last first, and gives up what has
 * been asked for and nobody has acquired.  Cannot fail.
 */
static void
undo_acquisitions(int mark)
{
	while (nacquisitions > mark)
	{
		const Acquisition *last = &acquisitions[--nacquisitions];

		(void) hold_release(last->hold, last->mode, last->scope, last->n, ENTRY_NO_NOTICE);
	}
	hold_drop_unacquired(ENTRY_NO_NOTICE);
}

static void
on_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:

			/* The next holder must not run before this transaction's effect is durable. */
			if (nacquisitions > 0 || transaction_reliance.nterms > 0 ||
				transaction_reliance.reservations != NULL)
				ForceSyncCommit();
			guard_check(GUARD_FINAL);
			break;

		case XACT_EVENT_PRE_PREPARE:
			for (int i = 0; i < nacquisitions; i++)
			{
				if (acquisitions[i].hold->kind == REQUEST_ELEMENT)
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("cannot PREPARE a transaction that has taken elements of ZooKeeper queues"),
							 errhint("Take the elements in a transaction that is not prepared.")));
			}
			if (nacquisitions > 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds transaction-level zklock locks"),
						 errhint("Use session-level locks, and release them after COMMIT PREPARED.")));
			guard_check(GUARD_FINAL);
			break;

		case XACT_EVENT_COMMIT:

			/* The elements that the transaction has taken go; otherwise they come back. */
			for (int i = 0; i < nacquisitions; i++)
			{
				Entry *entry = entry_at(acquisitions[i].hold->entry);

				if (acquisitions[i].hold->kind != REQUEST_ELEMENT)
					continue;
				SpinLockAcquire(&entry->mutex);
				entry->status.consumed = true;
				SpinLockRelease(&entry->mutex);
			}
			pg_fallthrough;

		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			undo_acquisitions(0);
			guard_end_transaction();
			break;

		default: /* what parallel workers do, which hold nothing */
			break;
	}
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int mark = nacquisitions;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (mark > 0 && acquisitions[mark - 1].subid >= subid)
		mark--;
	undo_acquisitions(mark);
}

/* Gives everything up, as the session ends. */
static void
end_session(int code, Datum arg)
{
	Hold *next;

	for (Hold *hold = hold_next(NULL); hold != NULL; hold = next)
	{
		next = hold_next(hold);

		/* The exclusive lock goes last, so it need not be downgraded on the way. */
		for (int mode = lengthof(hold->acquired) - 1; mode >= 0; mode--)
		{
			for (int scope = 0; scope < (int) lengthof(hold->acquired[mode]); scope++)
			{
				if (hold->acquired[mode][scope] > 0)
					(void) hold_release(hold, mode, scope, hold->acquired[mode][scope], ENTRY_NO_NOTICE);
			}
		}
	}
	hold_drop_unacquired(ENTRY_NO_NOTICE);
	guard_end_transaction();
}

/* ------------------------------------------------------------------------
 * Commands
 * ------------------------------------------------------------------------
 */

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/*
 * Acts on three commands, and on those that cannot be undone.
 *
 * DISCARD ALL releases what is held at session level, as for advisory locks.  PostgreSQL has
 * no callback for it.
 *
 * The command COMMIT only marks the transaction, which is committed when the hook has
 * returned.  So the guard checks after the command and before any callback, of which some
 * commit in other databases, as those of postgres_fdw do.  An error in between ends the
 * transaction, as one in a callback does.  A procedure's COMMIT, and the one that ends a
 * single statement, are not commands.
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
			 DestReceiver *dest, QueryCompletion *qc)
{
	Node			   *statement = pstmt->utilityStmt;
	bool				discard_all = false;
	TransactionStmtKind kind = TRANS_STMT_BEGIN; /* on which nothing acts */

	if (IsA(statement, DiscardStmt))
		discard_all = ((const DiscardStmt *) statement)->target == DISCARD_ALL;
	else if (IsA(statement, TransactionStmt))
		kind = ((const TransactionStmt *) statement)->kind;

	/*
	 * Some commands a rollback may not undo, which PostgreSQL runs only outside a transaction
	 * block: CREATE DATABASE, DROP TABLESPACE, VACUUM and the like.  PostgreSQL has no list of
	 * these.  In their place stand all commands that it logs as DDL, and two that it does not
	 * log so, if there is no transaction block.  Those that a rollback does undo are checked
	 * earlier than need be; their commit would fail.  Commands that clean up after a loss, such
	 * as DISCARD, SET, ROLLBACK or FETCH, are not DDL.
	 */
	if (started && context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() &&
		(IsA(statement, VacuumStmt) || IsA(statement, ReindexStmt) ||
		 GetCommandLogLevel(statement) == LOGSTMT_DDL))
		guard_check(GUARD_COMMAND);

	/*
	 * COMMIT PREPARED and ROLLBACK PREPARED commit or undo the prepared transaction's work
	 * within the command, before the command's own commit.  That must not be interrupted by a
	 * loss either.  It needs no check: the transaction was checked when it was prepared.
	 */
	if (started && (kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED))
		interrupt_defer();
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard_all)
		lock_release_those(NULL, NULL);

	/* COMMIT rolls back a failed transaction, which relies on nothing. */
	if (started && kind == TRANS_STMT_COMMIT && IsTransactionState())
		guard_check(GUARD_EARLY);
}

/*
 * Installs the hook, in the postmaster while it loads libraries, so nothing that sets hooks for a
 * while and restores them takes it out.  Libraries that are loaded later may act ahead of it.
 */
void
backend_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}

/* ------------------------------------------------------------------------
 * A call that acquires something
 * ------------------------------------------------------------------------
 */

/*
 * Prepares the session when it asks for something first.  If memory runs out on the way,
 * nothing is held without callbacks, and the next call begins anew.  A callback that is then
 * registered twice does no harm.
 */
static void
start_session(void)
{
	if (started)
		return;
	if (acquisitions == NULL)
		acquisitions =
			MemoryContextAlloc(TopMemoryContext, FIRST_ACQUISITIONS * sizeof(Acquisition));
	RegisterXactCallback(on_transaction, NULL);
	RegisterSubXactCallback(on_subtransaction, NULL);
	on_shmem_exit(end_session, 0);
	started = true;
}

/*
 * Begins a call, which ends with transaction_end_call() or with an error.  A session makes one at a
 * time.
 */
void
transaction_begin_call(void)
{
	if (am_walsender)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot hold ZooKeeper locks in a replication connection"),
				 errdetail("When the server shuts down, its replication connections end after the zklock worker, which would wait for the locks."),
				 errhint("Lock in another connection, and keep it for as long as this one.")));
	start_session();
	call_begins = nacquisitions;
}

/* Acquires a hold, which has been granted, once more. */
void
transaction_acquired(Hold *hold, LockMode mode, LockScope scope)
{
	Entry *entry = entry_at(hold->entry);

	if (nacquisitions == max_acquisitions)
	{
		acquisitions = repalloc_huge(acquisitions, 2 * max_acquisitions * sizeof(Acquisition));
		max_acquisitions *= 2;
	}
	acquisitions[nacquisitions++] = (Acquisition){.hold = hold,
												  .mode = mode,
												  .scope = scope,
												  .subid = GetCurrentSubTransactionId(),
												  .n = 1};
	if (hold_is_acquired(hold))
		stats_add(stats_kind(hold->kind, mode), STATS_REENTRANT, 1);
	if (!hold_is_acquired_in(hold, mode))
		hold->since[mode] = zklock_now_us();
	hold->taken_under = Max(hold->taken_under, (CommitGuard) zklock_commit_guard);
	hold->acquired[mode][scope]++;

	/* The same in the entry, for zk_locks */
	SpinLockAcquire(&entry->mutex);
	entry->status.acquired[mode][scope] = hold->acquired[mode][scope];
	SpinLockRelease(&entry->mutex);
}

/*
 * Ends a call without an error.  If it is complete, what it acquired at session level is the
 * session's from now on, and the rest the subtransaction's.  If it is not, all is undone.
 */
void
transaction_end_call(bool complete)
{
	int kept = call_begins;

	/* An interrupt that has come ends the call while that can still be undone. */
	if (complete)
		interrupt_check(NULL, NULL);
	undo_acquisitions(complete ? nacquisitions : call_begins);
	for (int i = call_begins; i < nacquisitions; i++)
	{
		const Acquisition *one = &acquisitions[i];
		Acquisition		  *last = kept > 0 ? &acquisitions[kept - 1] : NULL;

		if (one->scope == LOCK_SCOPE_SESSION)
			continue;
		if (last && last->hold == one->hold && last->mode == one->mode &&
			last->scope == one->scope && last->subid == one->subid)
			last->n++;
		else
			acquisitions[kept++] = *one;
	}
	nacquisitions = kept;
}

/*
 * Returns the term in which this server leads, provably, as leadership_rely() does; 0 if it does
 * not lead.
 */
int64
transaction_leads(int election)
{
	start_session();
	return leadership_rely(election);
}

/* ------------------------------------------------------------------------
 * Releasing at session level
 * ------------------------------------------------------------------------
 */

/* Raises a WARNING for each hold that was lost.  Returns true if there were any. */
static bool
warn_lost(Hold *const *released, int n)
{
	bool any = false;

	for (int i = 0; i < n; i++)
	{
		const char *shown;

		if (!released[i]->released_lost)
			continue;
		any = true;
		shown = display_path(released[i]->path);
		ereport(WARNING,
				(released[i]->kind == REQUEST_LOCK
					 ? errmsg("lock on ZooKeeper path \"%s\" was lost before it was released", shown)
					 : errmsg("permit of semaphore \"%s\" was lost before it was released", shown)));
	}
	return any;
}

/* Waits until the worker is done with holds that have been given up or downgraded. */
static void
wait_for_releases(Hold *const *released, int n)
{
	for (int i = 0; i < n; i++)
		(void) wait_for_release(NULL, released[i]->path, released[i]->entry, released[i]->generation);
}

/*
 * Undoes one session-level acquisition of each lock of a set.  Then waits until the locks
 * that are not acquired any more are free for everyone, or free to share if downgraded.
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
lock_release(LockSet set)
{
	Hold **released = palloc(set.n * sizeof(Hold *));
	int	   n = 0;
	bool   held = true;
	bool   lost;

	for (int i = 0; i < set.n; i++)
	{
		LockTarget *target = &set.targets[i];

		target->hold = hold_of_lock(target->path, target->mode);
		if (target->hold && target->hold->acquired[target->mode][LOCK_SCOPE_SESSION] == 0)
			target->hold = NULL;
		held &= target->hold != NULL;
	}
	for (int i = set.n - 1; i >= 0 && (held || !set.whole); i--)
	{
		if (set.targets[i].hold == NULL)
			continue;
		released[n++] = set.targets[i].hold;
		guard_release(set.targets[i].hold, set.targets[i].mode, 1);
	}
	lost = warn_lost(released, n);
	for (int i = set.n - 1; i >= 0; i--)
	{
		const LockTarget *target = &set.targets[i];
		const char		 *shown;
		const Hold		 *hold;

		if (target->hold != NULL)
			continue;
		shown = display_path(target->path);
		hold = hold_of_lock(target->path, target->mode);
		ereport(WARNING,
				(target->mode == LOCK_MODE_EXCLUSIVE
					 ? errmsg("you don't own a session-level exclusive lock on ZooKeeper path \"%s\"", shown)
					 : errmsg("you don't own a session-level shared lock on ZooKeeper path \"%s\"", shown),
				 hold && hold->acquired[target->mode][LOCK_SCOPE_TRANSACTION] > 0
					 ? errhint("The transaction owns the lock, and releases it at its end.")
					 : 0));
	}
	wait_for_releases(released, n);
	return held && !lost;
}

/*
 * Undoes all acquisitions at session level of the holds, permits included, for which a function
 * returns true, or of all if it is NULL, and waits until the worker is done with them.
 */
void
lock_release_those(HoldChoice chosen, const void *arg)
{
	Hold **released;
	int	   n = 0;
	Hold  *next;

	for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		n++;
	released = palloc(n * sizeof(Hold *));
	n = 0;
	for (Hold *hold = hold_next(NULL); hold != NULL; hold = next)
	{
		next = hold_next(hold);
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION) || (chosen && !chosen(hold, arg)))
			continue;
		released[n++] = hold;

		/* The exclusive lock goes last, so it need not be downgraded on the way. */
		for (int mode = lengthof(hold->acquired) - 1; mode >= 0; mode--)
		{
			if (hold->acquired[mode][LOCK_SCOPE_SESSION] > 0)
				guard_release(hold, mode, hold->acquired[mode][LOCK_SCOPE_SESSION]);
		}
	}
	(void) warn_lost(released, n);
	wait_for_releases(released, n);
}

/*
 * Releases one permit of a semaphore that is held at session level, and waits until others
 * can have it.  It releases a lost permit first, so that the remaining ones are good, else
 * the youngest.
 *
 * Returns false, with a warning, if the session held none or if it was lost.
 */
bool
permit_release(const char *path)
{
	Hold *chosen = NULL;
	bool  lost = false;
	bool  in_transaction = false;

	for (Hold *hold = hold_next(NULL); hold != NULL && !lost; hold = hold_next(hold))
	{
		if (hold->kind != REQUEST_PERMIT || strcmp(hold->path, path) != 0)
			continue;
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION))
		{
			in_transaction = true;
			continue;
		}
		chosen = hold;
		lost = hold_is_lost(hold);
	}
	if (chosen == NULL)
	{
		ereport(WARNING,
				(errmsg("you don't own a session-level permit of semaphore \"%s\"", display_path(path)),
				 in_transaction ? errhint("The transaction owns its permits, and releases them at its end.")
								: 0));
		return false;
	}
	guard_release(chosen, LOCK_MODE_EXCLUSIVE, 1);
	lost = warn_lost(&chosen, 1);
	wait_for_releases(&chosen, 1);
	return !lost;
}
