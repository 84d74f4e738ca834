/*
 * transaction.c
 *		Which locks end with a failed call, a subtransaction, a transaction, or a
 *		statement such as DISCARD ALL.
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
 * the guard then watches it.  It may rely on reservations, too (reliance.c).
 *
 * Runs in: backends.  Everything here is private to the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/lock.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "compat.h"
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

/* The callbacks have been registered. */
static bool started = false;

static void start_session(void);

/* Undoes the acquisitions on the stack above a mark, the last first. */
static void
undo(int mark)
{
	while (nacquisitions > mark)
	{
		const Acquisition *last = &acquisitions[--nacquisitions];

		(void) hold_release(last->hold, last->mode, last->scope, last->n, ENTRY_NO_NOTICE);
	}
}

/* ------------------------------------------------------------------------
 * A call that acquires something
 * ------------------------------------------------------------------------
 */

/*
 * Begins a call, which ends with transaction_end_call() or with an error.  Returns a mark on
 * the stack.
 */
int
transaction_begin_call(void)
{
	if (am_walsender)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot hold ZooKeeper locks in a replication connection"),
				 errdetail("When the server shuts down, its replication connections end after the zklock worker, which would wait for the locks."),
				 errhint("Lock in another connection, and keep it for as long as this one.")));
	start_session();
	return nacquisitions;
}

/* Acquires a hold, which has been granted, once more. */
void
transaction_acquired(Hold *hold, LockMode mode, LockScope scope)
{
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
	hold_count(hold, mode, scope);
}

static bool
may_be_one(const Acquisition *a, const Acquisition *b)
{
	return a->hold == b->hold && a->mode == b->mode && a->scope == b->scope && a->subid == b->subid;
}

/*
 * Ends a call without an error.  If it is complete, what it acquired at session level is the
 * session's from now on, and the rest the subtransaction's.  If it is not, all is undone.
 */
void
transaction_end_call(int mark, bool complete)
{
	int kept = mark;

	/* An interrupt that has come ends the call while that can still be undone. */
	if (complete)
		interrupt_check(NULL, NULL);
	else
		undo(mark);
	for (int i = mark; i < nacquisitions; i++)
	{
		if (acquisitions[i].scope == LOCK_SCOPE_SESSION)
			continue;
		if (kept > 0 && may_be_one(&acquisitions[kept - 1], &acquisitions[i]))
			acquisitions[kept - 1].n++;
		else
			acquisitions[kept++] = acquisitions[i];
	}
	nacquisitions = kept;
	hold_drop_unacquired(ENTRY_NO_NOTICE);
}

/* ------------------------------------------------------------------------
 * The end of transactions
 * ------------------------------------------------------------------------
 */

/*
 * Ends the transaction, also when it is prepared, which it cannot be with locks of its own.
 * If it is committed, the elements that it has taken go.
 */
static void
end_transaction(XactEvent event)
{
	for (int i = 0; i < nacquisitions && event == XACT_EVENT_COMMIT; i++)
	{
		if (acquisitions[i].hold->kind == REQUEST_ELEMENT)
		{
			Entry *entry = entry_at(acquisitions[i].hold->entry);

			SpinLockAcquire(&entry->mutex);
			entry->status.consumed = true;
			SpinLockRelease(&entry->mutex);
		}
	}
	undo(0);
	hold_drop_unacquired(ENTRY_NO_NOTICE);
	reliance_forget();
	guard_forget();
	interrupt_resume();
}

static void
on_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		/* The next holder must not run before this transaction's effect is durable. */
		if (nacquisitions > 0 || leadership_next(NULL) != NULL || reliance_next(NULL) != NULL)
			ForceSyncCommit();
		guard_check(GUARD_FINAL);
	}
	else if (event == XACT_EVENT_PRE_PREPARE)
	{
		if (nacquisitions > 0 && hold_number(REQUEST_ELEMENT) > 0)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot PREPARE a transaction that has taken elements of ZooKeeper queues"),
							errhint("Take the elements in a transaction that is not prepared.")));
		if (nacquisitions > 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that holds transaction-level zklock locks"),
					 errhint("Use session-level locks, and release them after COMMIT PREPARED.")));
		guard_check(GUARD_FINAL);
	}
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		end_transaction(event);
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int mark = nacquisitions;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (mark > 0 && acquisitions[mark - 1].subid >= subid)
		mark--;
	undo(mark);
	hold_drop_unacquired(ENTRY_NO_NOTICE);
}

/* Gives everything up, as the session ends. */
static void
end_session(int code, Datum arg)
{
	hold_end_session();
	reliance_forget();
}

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
 * Returns true if this server leads, provably.  Then the transaction relies on that from now
 * on.
 *
 *	term	is set to the term in which the server leads, for fencing
 */
bool
transaction_leads(int election, int64 *term)
{
	start_session();
	return leadership_rely(election, term);
}

/* ------------------------------------------------------------------------
 * Commands
 * ------------------------------------------------------------------------
 */

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/*
 * Returns true for a command that a rollback may not undo, which PostgreSQL runs only outside
 * a transaction block: CREATE DATABASE, DROP TABLESPACE, VACUUM and the like.  PostgreSQL has
 * no list of these.  In their place stand all commands that it logs as DDL, and two that it
 * does not log so, if there is no transaction block.  Those that a rollback does undo are
 * checked earlier than need be; their commit would fail.
 *
 * Commands that clean up after a loss, such as DISCARD, SET, ROLLBACK or FETCH, are not DDL.
 */
static bool
is_irrevocable(Node *statement, ProcessUtilityContext context)
{
	return context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() &&
		   (IsA(statement, VacuumStmt) || IsA(statement, ReindexStmt) ||
			GetCommandLogLevel(statement) == LOGSTMT_DDL);
}

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

	if (started && is_irrevocable(statement, context))
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
		lock_release_all();

	/* COMMIT rolls back a failed transaction, which relies on nothing. */
	if (started && kind == TRANS_STMT_COMMIT && IsTransactionState())
		guard_check(GUARD_EARLY);
}

/* Installs the hook, in the postmaster while it loads libraries. */
void
backend_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
