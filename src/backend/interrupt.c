/*
 * interrupt.c
 *		Whether the loss of a lock interrupts this session, and what the error says.
 *
 * With zklock.on_lock_loss a session is interrupted as soon as it loses a lock.  The worker
 * logs which lock was lost, and sends the signal that PostgreSQL uses to cancel a statement
 * or to terminate a session.  Each entry has the session's choice, which the worker reads at
 * the moment of the loss.
 *
 * PostgreSQL raises the error, with its own SQLSTATE and text.  If a function of ours runs
 * then, an error context names what was lost.
 *
 * When the commit guard's final check has passed, interrupts are deferred until the
 * transaction has ended: they could no longer prevent the commit, but make it return before a
 * synchronous standby has the data.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "backend/display.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "compat.h"
#include "miscadmin.h"
#include "shared/election.h"

/* Of libpq/libpq.h, which does not compile without the header files of Kerberos */
extern bool pq_check_connection(void);

/* No loss interrupts the session until the transaction has ended. */
static bool deferred = false;

/* ------------------------------------------------------------------------
 * Whether a loss interrupts
 * ------------------------------------------------------------------------
 */

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
void
interrupt_resume(void)
{
	LossPolicy policy = zklock_on_lock_loss;

	if (deferred && policy != LOSS_ABORT && set_on_loss(policy) && policy == LOSS_TERMINATE)
		(void) kill(MyProcPid, SIGTERM);
	deferred = false;
}

/* ------------------------------------------------------------------------
 * Messages for a session that is interrupted
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
	for (const LeadershipTerm *term = leadership_next(NULL); term != NULL;
		 term = leadership_next(term))
	{
		int64 token;

		/* A term is over with the lease, even before the worker has said so. */
		if (election_leadership(term->election, &token) == LEADERSHIP_NONE || token != term->token)
			errcontext("leadership at ZooKeeper path \"%s\" was lost",
					   display_utf8(election_at(term->election)->path));
	}
}

/*
 * Has errors say what the session is doing, and name what was lost, until
 * interrupt_context_end().
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

void
interrupt_context_end(const InterruptContext *context)
{
	error_context_stack = context->lost.previous;
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
	interrupt_context_end(&context);
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
