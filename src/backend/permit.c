/*
 * permit.c
 *		Acquiring permits of semaphores.
 *
 * A session gets a permit in two steps, as with Curator's InterProcessSemaphoreV2.  First
 * comes the turn: the exclusive lock on <path>/locks, for which the sessions of this server
 * queue as for any other lock.  The session whose turn it is asks for a node in
 * <path>/leases, waits until the node is a permit, and then gives the turn up.  So sessions
 * get permits in the order in which they ask for them, and only one client in all watches the
 * permits' nodes.
 *
 * The turn brings order, not safety (see recipe.c).  Therefore a session that has lost
 * its turn goes on waiting for the permit, and a call that does not wait asks for no turn:
 * while somebody waits, the nodes show that no permit is free.
 *
 * Turn and permit are a hold each (hold.c).  A session may hold several permits of one
 * semaphore.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock.h"
#include "backend/transaction.h"
#include "backend/wait.h"

/* Raises a NOTICE if a holder has asked for another number of permits. */
static void
report_disagreement(const Hold *permit, int number)
{
	int others = entry_status(permit->entry).others_permits;

	if (others == 0 || others == number)
		return;
	ereport(NOTICE, (errmsg("semaphore \"%s\" is in use with another number of permits",
							display_path(permit->path)),
					 errdetail("This call asked for one of %d permits, a holder for one of %d; the smaller number counts.",
							   number, others)));
}

/*
 * Acquires one more permit of a semaphore that has "number" of them.
 *
 *	path		UTF-8, checked
 *	scope		transaction level: until the transaction ends, or is rolled back to
 *				an earlier savepoint
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *
 * Returns false if none was free in that time.
 */
bool
permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms)
{
	EntryRequest request = {.terms = {.mode = LOCK_MODE_EXCLUSIVE, .permits = number}, .scope = scope};
	bool		 is_try = timeout_ms == LOCK_NO_WAIT;
	bool		 granted;
	Hold *asked;
	Wait  wait;
	int	  mark;

	mark = transaction_begin_call();
	request.kind = is_try ? REQUEST_PERMIT : REQUEST_TURN;
	request.manner = is_try ? ASK_AND_LOOK : ASK_AND_WAIT;
	asked = hold_ask(&request, path);
	wait_begin(&wait, path, "SemaphorePermit", STATS_SEMAPHORE, timeout_ms);
	granted = wait_for_hold(&wait, asked);
	if (granted && asked->kind == REQUEST_TURN)
	{
		request.kind = REQUEST_PERMIT;
		asked = hold_ask(&request, path);
		granted = wait_for_hold(&wait, asked);
	}
	wait_end(&wait, granted);
	if (granted)
		transaction_acquired(asked, LOCK_MODE_EXCLUSIVE, scope);
	if (asked->kind == REQUEST_PERMIT)
		report_disagreement(asked, number);
	transaction_end_call(mark, granted);
	return granted;
}
