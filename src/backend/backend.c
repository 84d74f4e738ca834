/*
 * backend.c
 *		A session's life: statements after which something is to be done.
 *
 * Hooks that see the statements of a session.  What happens when a transaction
 * ends is in transaction.c.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/backend.h"
#include "backend/guard.h"
#include "backend/hold.h"
#include "backend/lock.h"
#include "backend/permit.h"
#include "backend/transaction.h"
#include "compat.h"
#include "executor/executor.h"
#include "tcop/utility.h"

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;
static ExecutorEnd_hook_type	prev_ExecutorEnd_hook = NULL;

/* Undoes all session-level acquisitions of this session, permits included. */
void
backend_release_all(void)
{
	HandoverList awaited;

	handover_list_init(&awaited, hold_number());
	permit_release_all(&awaited);
	lock_release_all(&awaited);
	handover_list_wait(&awaited);
}

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

	if (ends_prepared_transaction(pstmt->utilityStmt))
		transaction_end_prepared();
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard_all)
		backend_release_all();
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
