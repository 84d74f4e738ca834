/*
 * interrupt.c
 *		Whether the loss of a lock interrupts this session, and what it is told.
 *
 * A session may want to be interrupted at once when it loses a lock
 * (zklock.on_lock_loss).  The worker then sends it the signal that PostgreSQL
 * uses to cancel a statement or to terminate a session, and logs which lock was
 * lost.  What the session wants is in each entry, where the worker reads it at
 * the moment of the loss.
 *
 * PostgreSQL raises the error, with its own SQLSTATE and text.  If a function of
 * ours runs then, an error context names what was lost.
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

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/hold.h"
#include "backend/reliance.h"
#include "compat.h"
#include "shared/shmem.h"

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
	bool			terminate;

	SpinLockAcquire(&entry->mutex);
	terminate = entry->status.state == CONTENDER_LOST && entry->status.on_loss == LOSS_ABORT &&
				policy == LOSS_TERMINATE;
	entry->status.on_loss = policy;
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

static void
name_lost_lock(const Hold *hold, void *arg)
{
	if (entry_is_lost(hold->entry))
		errcontext("lock on ZooKeeper path \"%s\" was lost", display_utf8(hold->path));
}

/* Paths' bytes may be escaped: converting them could fail, which is not allowed here. */
static void
name_lost(void *arg)
{
	int			sqlerrcode = geterrcode();
	const char *election = reliance_lost();

	if (zklock_on_lock_loss == LOSS_ABORT ||
		(sqlerrcode != ERRCODE_QUERY_CANCELED && sqlerrcode != ERRCODE_ADMIN_SHUTDOWN))
		return;
	hold_visit(HOLDS_ALL, name_lost_lock, NULL);
	if (election)
		errcontext("leadership at ZooKeeper path \"%s\" was lost", display_utf8(election));
}

/*
 * A function of ours begins in which the session may be interrupted: then the
 * error names what was lost, until interrupt_context_end().
 */
void
interrupt_context_begin(ErrorContextCallback *context)
{
	*context = (ErrorContextCallback){.callback = name_lost, .previous = error_context_stack};
	error_context_stack = context;
}

/* It ends, without an error. */
void
interrupt_context_end(const ErrorContextCallback *context)
{
	error_context_stack = context->previous;
}
