/*
 * xact.c
 *		PostgreSQL's transactions, as far as the extension is told of them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include "access/xact.h"
#include "miscadmin.h"

#define MAX_CALLBACKS 8

static struct
{
	XactCallback call;
	void		*arg;
} callbacks[MAX_CALLBACKS]; /* the one to be called first comes last */
static int ncallbacks;

static SubXactCallback sub_callback;
static SubTransactionId subtransactions[XACT_MAX_DEPTH]; /* of savepoints; the transaction itself first */
static SubTransactionId last_subtransaction;
static int				depth; /* 0: there is no transaction */
static TransactionId	xid;

/* ------------------------------------------------------------------------
 * For the extension
 * ------------------------------------------------------------------------
 */

void
__wrap_RegisterXactCallback(XactCallback call, void *arg)
{
	Assert(ncallbacks < MAX_CALLBACKS);
	callbacks[ncallbacks].call = call;
	callbacks[ncallbacks++].arg = arg;
}

void
__wrap_UnregisterXactCallback(XactCallback call, void *arg)
{
	int kept = 0;

	for (int i = 0; i < ncallbacks; i++)
	{
		if (callbacks[i].call != call)
			callbacks[kept++] = callbacks[i];
	}
	ncallbacks = kept;
}

void
__wrap_RegisterSubXactCallback(SubXactCallback call, void *arg)
{
	sub_callback = call;
}

SubTransactionId
__wrap_GetCurrentSubTransactionId(void)
{
	return depth > 0 ? subtransactions[depth - 1] : InvalidSubTransactionId;
}

TransactionId
__wrap_GetTopTransactionIdIfAny(void)
{
	return xid;
}

/* ------------------------------------------------------------------------
 * For the session
 * ------------------------------------------------------------------------
 */

static void
call_back(XactEvent event)
{
	for (int i = ncallbacks - 1; i >= 0; i--)
		callbacks[i].call(event, callbacks[i].arg);
}

static void
call_back_sub(SubXactEvent event)
{
	if (sub_callback)
		sub_callback(event, subtransactions[depth - 1], subtransactions[depth - 2], NULL);
}

/* How deep in savepoints; 0: outside a transaction */
int
xact_depth(void)
{
	return depth;
}

bool
xact_has_written(void)
{
	return xid != InvalidTransactionId;
}

/* It begins, or sets a savepoint. */
void
xact_begin(void)
{
	last_subtransaction = depth == 0 ? TopSubTransactionId : last_subtransaction + 1;
	subtransactions[depth++] = last_subtransaction;
	if (depth > 1)
		call_back_sub(SUBXACT_EVENT_START_SUB);
}

void
xact_write(void)
{
	xid = FirstNormalTransactionId;
}

/* Rolls back until that depth is left. */
void
xact_roll_back(int to)
{
	sim_process->locks = 0;
	sim_process->commits = false;
	while (depth > Max(to, 1))
	{
		call_back_sub(SUBXACT_EVENT_ABORT_SUB);
		depth--;
	}
	if (to > 0 || depth == 0)
		return;
	call_back(XACT_EVENT_ABORT);
	depth = 0;
	xid = InvalidTransactionId;
}

/* Releases the last savepoint. */
void
xact_release(void)
{
	call_back_sub(SUBXACT_EVENT_PRE_COMMIT_SUB);
	call_back_sub(SUBXACT_EVENT_COMMIT_SUB);
	depth--;
}

/*
 * Commits, unless a callback raises an error.  "committed" is called when nothing can prevent
 * it any more.  Then a session may wait, with interrupts held back, for a standby.
 */
void
xact_commit(void (*committed)(void), int wait_ms)
{
	while (depth > 1)
		xact_release();

	/* Between the guard's last look and the commit lies a moment that nothing can close. */
	sim_process->commits = true;
	call_back(XACT_EVENT_PRE_COMMIT);
	committed();
	HOLD_INTERRUPTS();
	if (wait_ms > 0)
		(void) sim_sleep(wait_ms);
	call_back(XACT_EVENT_COMMIT);
	RESUME_INTERRUPTS();
	sim_process->commits = false;
	depth = 0;
	xid = InvalidTransactionId;
}
