/*
 * transaction.c
 *		What happens to locks when transactions end, and after statements.
 *
 * PostgreSQL's callbacks for transactions and subtransactions, in a session
 * that has asked for a lock or permit, and hooks that see its statements.
 *
 *	before commit		the guard, in two steps, may raise an error
 *	before prepare		likewise; locks at transaction level cannot be prepared
 *	commit, abort		the outcome is visible: locks at transaction level go, and so
 *						do elements of queues, or they come back
 *	subtransactions		acquisitions become the parent's, or go
 *
 * Those at commit and abort only change counts and states and set the worker's
 * latch: no I/O, no allocation, nothing that can fail or wait.
 *
 * Runs in: backends.  Everything here is private to the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "compat.h"
#include "executor/executor.h"
#include "tcop/utility.h"

/* Have the callbacks been registered? */
static bool started = false;

static void
on_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* The next holder must not run before our effect is durable. */
			if (hold_has_transaction_locks() || hold_number(CONTENDER_CANDIDACY) > 0)
				ForceSyncCommit();
			guard_check(GUARD_FINAL);
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (hold_number(CONTENDER_ELEMENT) > 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has taken elements of ZooKeeper queues")));
			if (hold_has_transaction_locks())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds transaction-level zklock locks")));
			guard_check(GUARD_FINAL);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			hold_end_transaction(event);
			guard_forget();
			interrupt_resume();
			break;
		default:
			break;
	}
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		hold_end_subtransaction(subid);
}

/*
 * Others' callbacks may commit in other databases, as those of postgres_fdw do,
 * and should not when a lock is known to be lost.
 */
static void
on_commit_begin(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		guard_check(GUARD_EARLY);
}

/*
 * Makes on_commit_begin() the first of all callbacks, by registering it anew.
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
 * query.  Ours has been called by then, so the list can bear that.  Only a
 * callback that was registered by a query that failed may precede ours; if it
 * runs queries, PostgreSQL 16 and later may call it twice.
 */
static void
transaction_come_first(void)
{
	if (!started)
		return;
	UnregisterXactCallback(on_commit_begin, NULL);
	RegisterXactCallback(on_commit_begin, NULL);
}

/*
 * Prepares the session at its first lock or permit.  If memory runs out on the
 * way, nothing is held without callbacks, and the next call begins again; that a
 * callback may then be registered twice does no harm.
 */
void
transaction_start_session(void)
{
	if (started)
		return;
	hold_start_session();
	RegisterXactCallback(on_transaction, NULL);
	RegisterSubXactCallback(on_subtransaction, NULL);
	started = true;
	transaction_come_first();
}

/* ------------------------------------------------------------------------
 * Statements after which something is to be done
 * ------------------------------------------------------------------------
 */

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;
static ExecutorEnd_hook_type	prev_ExecutorEnd_hook = NULL;

static bool
ends_prepared_transaction(const Node *statement)
{
	const TransactionStmt *transaction = (const TransactionStmt *) statement;

	return IsA(statement, TransactionStmt) && (transaction->kind == TRANS_STMT_COMMIT_PREPARED ||
											   transaction->kind == TRANS_STMT_ROLLBACK_PREPARED);
}

static bool
discards_all(const Node *statement)
{
	return IsA(statement, DiscardStmt) && ((const DiscardStmt *) statement)->target == DISCARD_ALL;
}

/*
 * DISCARD ALL releases what is held at session level, as for advisory locks.
 * PostgreSQL has no callback for it.
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
			 DestReceiver *dest, QueryCompletion *qc)
{
	bool discard_all = discards_all(pstmt->utilityStmt);

	/*
	 * What a prepared transaction did is committed, or undone, within the command,
	 * before that one's own commit, and must not be disturbed by a loss either.  It
	 * needs no check: the transaction was checked when it was prepared.
	 */
	if (started && ends_prepared_transaction(pstmt->utilityStmt))
		interrupt_defer();
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard_all)
		lock_release_all();
	transaction_come_first();
}

static void
executor_end(QueryDesc *query)
{
	if (prev_ExecutorEnd_hook)
		prev_ExecutorEnd_hook(query);
	else
		standard_ExecutorEnd(query);
	transaction_come_first();
}

/* Called in the postmaster while it loads libraries. */
void
backend_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
	prev_ExecutorEnd_hook = ExecutorEnd_hook;
	ExecutorEnd_hook = executor_end;
}
