/*
 * transaction.c
 *		What ends when: with a call that fails, a subtransaction, a transaction, or a
 *		statement such as DISCARD ALL.
 *
 *	session level		survives everything but zk_unlock(), DISCARD ALL and
 *						the end of the session
 *	transaction level	goes when the transaction ends, or with the
 *						subtransaction that acquired it
 *
 * A stack of acquisitions has those that are to go.  Subtransactions nest, and their
 * numbers grow: what one of them has acquired, with those inside it, is on top when it
 * ends, and has no lower number than its own.  So when one is rolled back it takes
 * that from the stack, and when one ends well nothing need be done.
 *
 * A call that acquires several locks, and fails, must undo those that it has.
 * They are on the stack as well, whatever their level, until the call is complete.
 * So however it ends, by a timeout, an error or a cancellation at any moment, what
 * was held before is held, as often as before: an error always aborts the
 * transaction or a subtransaction, and that undoes the call.  It also gives up what
 * was only asked for: what nobody has acquired.
 *
 * PostgreSQL's callbacks for transactions and subtransactions, in a session
 * that has asked for a lock or permit, and a hook that sees its commands, say when
 * that is:
 *
 *	before commit		the guard may raise an error; at the command COMMIT it looks a
 *						first time, before other extensions' callbacks
 *	before prepare		the guard, too; locks at transaction level cannot be prepared
 *	commit, abort		the outcome is visible: locks at transaction level go, and so
 *						do elements of queues, or they come back
 *	subtransactions		acquisitions become the parent's, or go
 *
 * A transaction may rely on its server's leadership as well: transaction_leads() asks,
 * and the guard then watches it.
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
#include "backend/hold.h"
#include "backend/leadership.h"
#include "compat.h"
#include "storage/ipc.h"
#include "tcop/utility.h"

#define FIRST_ACQUISITIONS 16 /* for which there is room at first */

/* Acquisitions of one lock, one after the other, by one subtransaction */
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

/* Have the callbacks been registered? */
static bool started = false;

static void start_session(void);

/* Undoes the acquisitions on the stack above so many, the last first. */
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

/* It begins, and ends with transaction_end_call(), or with an error. */
int
transaction_begin_call(void)
{
	start_session();
	return nacquisitions;
}

/* A hold that has been granted is acquired once more. */
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
 * A call ends without an error.  What it acquired at session level is the session's
 * from now on, the rest the subtransaction's; or it has failed, and has nothing.
 */
void
transaction_end_call(int mark, bool complete)
{
	int kept = mark;

	/* An interrupt that has come ends the call while it can still be undone. */
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
	hold_abandon(ENTRY_NO_NOTICE);
}

/* ------------------------------------------------------------------------
 * The end of transactions
 * ------------------------------------------------------------------------
 */

/*
 * The transaction ends, or is prepared, which it cannot be with locks of its own.  If
 * it is committed, the elements that it has taken go.
 */
static void
end_transaction(XactEvent event)
{
	for (int i = 0; i < nacquisitions && event == XACT_EVENT_COMMIT; i++)
	{
		if (acquisitions[i].hold->kind == CONTENDER_ELEMENT)
			entry_consume(acquisitions[i].hold->entry);
	}
	undo(0);
	hold_abandon(ENTRY_NO_NOTICE);
	leadership_forget();
	guard_forget();
	interrupt_resume();
}

static void
on_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		/* The next holder must not run before our effect is durable. */
		if (nacquisitions > 0 || leadership_next(NULL) != NULL)
			ForceSyncCommit();
		guard_check(GUARD_FINAL);
	}
	else if (event == XACT_EVENT_PRE_PREPARE)
	{
		if (nacquisitions > 0 && hold_number(CONTENDER_ELEMENT) > 0)
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
	hold_abandon(ENTRY_NO_NOTICE);
}

/* Gives everything back; the session ends. */
static void
end_session(int code, Datum arg)
{
	hold_end_session();
	leadership_forget();
}

/*
 * Prepares the session when it asks for something first.  If memory runs out on the
 * way, nothing is held without callbacks, and the next call begins again; that a
 * callback may then be registered twice does no harm.
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
 * Does this server lead, provably?  If so, the transaction relies on that from now on.
 *
 *	term	is set to that in which it leads, for fencing
 */
bool
transaction_leads(int election, int64 *term)
{
	start_session();
	return leadership_rely(election, term);
}

/* ------------------------------------------------------------------------
 * Commands after which something is to be done
 * ------------------------------------------------------------------------
 */

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

static bool
is_transaction_command(const Node *statement, TransactionStmtKind kind)
{
	return IsA(statement, TransactionStmt) && ((const TransactionStmt *) statement)->kind == kind;
}

static bool
ends_prepared_transaction(const Node *statement)
{
	return is_transaction_command(statement, TRANS_STMT_COMMIT_PREPARED) ||
		   is_transaction_command(statement, TRANS_STMT_ROLLBACK_PREPARED);
}

static bool
discards_all(const Node *statement)
{
	return IsA(statement, DiscardStmt) && ((const DiscardStmt *) statement)->target == DISCARD_ALL;
}

/*
 * DISCARD ALL releases what is held at session level, as for advisory locks.
 * PostgreSQL has no callback for it.
 *
 * The command COMMIT only marks the transaction, which is committed when the hook has
 * returned.  So the guard looks after the command and before any callback, of which some
 * commit in other databases, as those of postgres_fdw do.  An error in between ends the
 * transaction, as one in a callback does.  A procedure's COMMIT, and the one that ends a
 * single statement, are no commands.
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
			 DestReceiver *dest, QueryCompletion *qc)
{
	bool discard_all = discards_all(pstmt->utilityStmt);
	bool commit = is_transaction_command(pstmt->utilityStmt, TRANS_STMT_COMMIT);

	/*
	 * The work of a prepared transaction is committed, or undone, within the command,
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

	/* COMMIT rolls a transaction back that has failed: nothing is relied on. */
	if (started && commit && IsTransactionState())
		guard_check(GUARD_EARLY);
}

/* Called in the postmaster while it loads libraries. */
void
backend_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
