/*
 * xact.c
 *		PostgreSQL's transactions, as far as the extension is told of them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

static XactCallback	   callback;
static SubXactCallback sub_callback;
static SubTransactionId subtransactions[XACT_MAX_DEPTH]; /* of savepoints; the transaction itself first */
static SubTransactionId last_subtransaction;
int						xact_depth;
bool					xact_has_written;

/* ------------------------------------------------------------------------
 * For the extension
 * ------------------------------------------------------------------------
 */

/* clang-format off */
INSTEAD(RegisterXactCallback, (void) (callback = call), void, XactCallback call, void *arg)
INSTEAD(RegisterSubXactCallback, (void) (sub_callback = call), void, SubXactCallback call, void *arg)
INSTEAD(GetCurrentSubTransactionId, xact_depth > 0 ? subtransactions[xact_depth - 1] : InvalidSubTransactionId,
		SubTransactionId, void)
INSTEAD(GetTopTransactionIdIfAny, xact_has_written ? FirstNormalTransactionId : InvalidTransactionId, TransactionId, void)
/* clang-format on */

/* ------------------------------------------------------------------------
 * For the session
 * ------------------------------------------------------------------------
 */

static void
call_back(XactEvent event)
{
	if (callback)
		callback(event, NULL);
}

static void
call_back_sub(SubXactEvent event)
{
	if (sub_callback)
		sub_callback(event, subtransactions[xact_depth - 1], subtransactions[xact_depth - 2], NULL);
}

static void
end_transaction(XactEvent event)
{
	call_back(event);
	xact_depth = 0;
	xact_has_written = false;
	MemoryContextDelete(TopTransactionContext);
	TopTransactionContext = NULL;
}

/* It begins, or sets a savepoint. */
void
xact_begin(void)
{
	if (xact_depth == 0)
		TopTransactionContext =
			AllocSetContextCreate(TopMemoryContext, "transaction", ALLOCSET_SMALL_SIZES);
	last_subtransaction = xact_depth == 0 ? TopSubTransactionId : last_subtransaction + 1;
	subtransactions[xact_depth++] = last_subtransaction;
	if (xact_depth > 1)
		call_back_sub(SUBXACT_EVENT_START_SUB);
}

/* Rolls back until that depth is left. */
void
xact_roll_back(int to)
{
	sim_process->locks = 0;
	sim_process->commits = false;
	while (xact_depth > Max(to, 1))
	{
		call_back_sub(SUBXACT_EVENT_ABORT_SUB);
		xact_depth--;
	}
	if (to == 0 && xact_depth > 0)
		end_transaction(XACT_EVENT_ABORT);
}

/* Releases the last savepoint. */
void
xact_release(void)
{
	call_back_sub(SUBXACT_EVENT_PRE_COMMIT_SUB);
	call_back_sub(SUBXACT_EVENT_COMMIT_SUB);
	xact_depth--;
}

/*
 * Commits, unless a callback raises an error.  "committed" is called when nothing can prevent
 * it any more.  Then a session may wait, with interrupts held back, for a standby.
 */
void
xact_commit(void (*committed)(void), int wait_ms)
{
	while (xact_depth > 1)
		xact_release();

	/* Between the guard's last look and the commit lies a moment that nothing can close. */
	sim_process->commits = true;
	call_back(XACT_EVENT_PRE_COMMIT);
	committed();
	HOLD_INTERRUPTS();
	if (wait_ms > 0)
		(void) sim_sleep(wait_ms);
	end_transaction(XACT_EVENT_COMMIT);
	RESUME_INTERRUPTS();
	sim_process->commits = false;
}
