/*
 * interrupt.c
 *		Whether the loss of a lock interrupts this session, and what it is told.
 *
 * A session may want to be interrupted at once when it loses a lock
 * (zklock.on_lock_loss).  The worker then sends it the signal that PostgreSQL
 * uses to cancel a statement or to terminate a session.  What the session wants
 * is in each entry, where the worker reads it at the moment of the loss.
 *
 * When the commit guard's final check has passed, interrupts are deferred until
 * the transaction has ended: they could no longer prevent the commit, but make
 * it return before a synchronous standby has the data.
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "backend/display.h"
#include "backend/hold.h"
#include "backend/interrupt.h"
#include "backend/lock_view.h"
#include "backend/reliance.h"
#include "compat.h"
#include "shared/shmem.h"

static emit_log_hook_type prev_emit_log_hook = NULL;

/* Does a loss interrupt nobody until the transaction has ended? */
static bool deferred = false;

/* ------------------------------------------------------------------------
 * Whether a loss interrupts
 * ------------------------------------------------------------------------
 */

static void
set_policy(const Hold *hold, void *arg)
{
	ContenderEntry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	entry->status.on_loss = *(LossPolicy *) arg;
	SpinLockRelease(&entry->mutex);
}

/* zklock.on_lock_loss is set: it is to apply to locks held already. */
void
interrupt_set_policy(int policy, void *extra)
{
	LossPolicy on_loss = policy;

	if (deferred)
		return;
	hold_visit(HOLDS_ALL, set_policy, &on_loss);
	reliance_set_policy(on_loss);
}

static void
defer(const Hold *hold, void *arg)
{
	ContenderEntry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	if (entry->status.state != CONTENDER_LOST)
		entry->status.on_loss = LOSS_ABORT;
	SpinLockRelease(&entry->mutex);
}

/*
 * Keeps the loss of any lock of this session from interrupting it, until
 * interrupt_resume().
 */
void
interrupt_defer(void)
{
	if (!deferred && zklock_on_lock_loss != LOSS_ABORT)
	{
		hold_visit(HOLDS_ALL, defer, NULL);
		reliance_set_policy(LOSS_ABORT);
	}
	deferred = true;
}

bool
interrupt_is_deferred(void)
{
	return deferred;
}

/*
 * A lock that was lost meanwhile has LOSS_ABORT although the session wants to
 * be terminated: then that is made up for.  A statement that wanted to be
 * cancelled has ended well, and must not be told otherwise.
 *
 * The session sends itself the signal that the worker would have sent.
 * PostgreSQL has no interrupts for extensions: those of procsignal.c are a fixed
 * list.  To set the flags that the signal's handler sets would be to know what
 * PostgreSQL does on a termination, in each release, and in each state in which
 * a session can be.  The handler knows, and it only sets flags, so this may be
 * done at commit and abort.
 */
static void
resume(const Hold *hold, void *arg)
{
	ContenderEntry *entry = entry_at(hold->entry);
	LossPolicy		policy = *(LossPolicy *) arg;
	TimestampTz		now = GetCurrentTimestamp();
	bool			terminate;

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
void
interrupt_resume(void)
{
	LossPolicy policy = zklock_on_lock_loss;

	if (deferred && policy != LOSS_ABORT)
	{
		hold_visit(HOLDS_ALL, resume, &policy);
		reliance_set_policy(policy);
	}
	deferred = false;
}

/* ------------------------------------------------------------------------
 * What an interrupted session is told
 * ------------------------------------------------------------------------
 */

typedef struct Interrupt
{
	int			signal;
	TimestampTz at;	   /* when it was sent last for a loss, 0 if it was not */
	int			entry; /* whose loss made it be sent */
	const char *path;
} Interrupt;

/* Takes note of the last interrupt of a kind, and leaves none of them behind. */
static void
take_interrupt(const Hold *hold, void *arg)
{
	Interrupt	   *interrupt = arg;
	ContenderEntry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	if (entry->status.interrupt == interrupt->signal)
	{
		entry->status.interrupt = 0;
		if (entry->status.interrupted_at > interrupt->at)
		{
			interrupt->at = entry->status.interrupted_at;
			interrupt->entry = hold->entry;
			interrupt->path = hold->path;
		}
	}
	SpinLockRelease(&entry->mutex);
}

/* What an interrupt ends */
typedef enum InterruptEnds
{
	ENDS_STATEMENT,
	ENDS_SESSION
} InterruptEnds;

/* Makes a message say that leadership was lost. */
static void
explain_leadership(ErrorData *edata, const char *path, InterruptEnds ends)
{
	const char *shown = display_utf8(path);

	edata->message =
		ends == ENDS_STATEMENT
			? psprintf(_("canceling statement because leadership at ZooKeeper path \"%s\" was lost"), shown)
			: psprintf(_("terminating connection because leadership at ZooKeeper path \"%s\" was lost"),
					   shown);
	edata->detail = pstrdup(_("This server led when the transaction asked."));
	edata->hint = pstrdup(_("Another server may lead by now. Retry the work where the leader is."));
	if (ends == ENDS_STATEMENT)
		edata->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/*
 * If the message is that of a signal sent for a loss, makes it say why.
 *
 * The signals mean what they mean to PostgreSQL, which raises the errors itself,
 * with texts that speak of a user's request and of an administrator's command.
 * There is no hook where it does so: only here, where a message is on its way
 * to log and client, can it be made true.  So a handler of errors in PL/pgSQL
 * sees the original, as it does not get here.  The alternative, an error of our
 * own, would have to be raised by the session itself, which while it runs a
 * statement calls nothing of ours.
 *
 * A cancellation that is older than the statement found none to cancel then,
 * and does not explain this one.
 */
static void
explain(ErrorData *edata)
{
	bool cancel = edata->sqlerrcode == ERRCODE_QUERY_CANCELED && edata->message_id &&
				  strcmp(edata->message_id, "canceling statement due to user request") == 0;
	bool terminate = edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN && edata->elevel == FATAL;
	Interrupt	interrupt = {.signal = cancel ? SIGINT : SIGTERM};
	LossPolicy	policy = cancel ? LOSS_CANCEL : LOSS_TERMINATE;
	const char *election = NULL;

	if (cancel || terminate)
		hold_visit(HOLDS_ALL, take_interrupt, &interrupt);
	if ((cancel || terminate) && policy == (LossPolicy) zklock_on_lock_loss)
		election = reliance_lost();
	if (election)
		explain_leadership(edata, election, cancel ? ENDS_STATEMENT : ENDS_SESSION);
	else if (interrupt.at != 0 && (terminate || interrupt.at >= GetCurrentStatementStartTimestamp()))
	{
		/* There may be no transaction, in which alone strings are converted. */
		const char *path = display_utf8(interrupt.path);

		edata->message =
			cancel
				? psprintf(_("canceling statement because lock on ZooKeeper path \"%s\" was lost"), path)
				: psprintf(_("terminating connection because lock on ZooKeeper path \"%s\" was lost"),
						   path);
		edata->detail = pstrdup(display_loss(interrupt.entry));
		edata->hint =
			pstrdup(cancel ? _("Others may have held the lock meanwhile. Release it and retry the work.")
						   : _("Others may have held the lock meanwhile. Retry the work."));
		if (cancel)
			edata->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
	}
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

/* Called in the postmaster while it loads libraries. */
void
interrupt_install_hook(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = explain;
}
