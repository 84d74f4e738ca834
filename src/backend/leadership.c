/*
 * leadership.c
 *		Does this server lead an election?  To ask, to wait for it, to lay it down.
 *
 * The candidacy is the worker's; a session reads from shared memory how it stands
 * (shared/election.c), waits on a condition variable, and needs no entry of its
 * own.  A transaction that has been told that this server leads relies on that until
 * it ends (reliance.c).
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/leadership.h"
#include "backend/reliance.h"
#include "backend/request.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "miscadmin.h"
#include "shared/lease_state.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timeout.h"

/* The election at a path.  Raises an error if there is none. */
static int
require_election(const char *path)
{
	int election = election_find(path);

	if (election == ELECTION_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("this server stands at no election at ZooKeeper path \"%s\"", display_path(path)),
				 errhint("Add the path to \"zklock.elections\", and reload the configuration.")));
	return election;
}

/* Does this server lead, provably?  If so, the transaction relies on that from now on. */
static bool
leads(int election, int64 *term)
{
	if (election_leadership(election, term) != LEADERSHIP_PROVED)
		return false;
	transaction_start_session();
	return reliance_add(election, *term);
}

/* Does this server lead the election at a path, provably?  Reads shared memory only. */
bool
leadership_is_leader(const char *path)
{
	int64 term;

	return leads(require_election(path), &term);
}

/* The term in which this server leads, for fencing.  Raises an error if it does not. */
int64
leadership_term(const char *path)
{
	int64 term;

	if (!leads(require_election(path), &term))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this server does not lead the election at ZooKeeper path \"%s\"",
							   display_path(path))));
	return term;
}

/* ------------------------------------------------------------------------
 * Waiting
 * ------------------------------------------------------------------------
 */

/* Is what a session waits for there? */
typedef bool (*Arrived)(int election, uint32 resignation);

static void
end_wait(void)
{
	ConditionVariableCancelSleep();

	/* Keep the indicator: an interrupt still to come may be the timeout's. */
	disable_timeout(LOCK_TIMEOUT, true);
}

/*
 * Waits until "arrived" says so, like a call that waits for a lock.  Returns false
 * if the timeout has passed.
 */
static bool
wait_until(Wait *wait, int election, Arrived arrived, uint32 resignation)
{
	volatile bool		 done = false;
	ErrorContextCallback context;

	interrupt_context_begin(&context);
	PG_TRY();
	{
		if (LockTimeout > 0)
			enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
		for (;;)
		{
			ResetLatch(MyLatch);
			ConditionVariablePrepareToSleep(&election_at(election)->changed);
			done = arrived(election, resignation);
			if (done || !wait_turn(wait, ENTRY_NONE, lease_state() == LEASE_HOLDS, WAIT_LOOK_SOON))
				break;
		}
	}
	PG_CATCH();
	{
		end_wait();
		PG_RE_THROW();
	}
	PG_END_TRY();
	interrupt_context_end(&context);
	end_wait();
	if (done)
		wait_end(wait);
	return done;
}

/* Raises an error if the election goes away. */
static bool
leads_now(int election, uint32 resignation)
{
	int64 term;

	(void) require_election(election_at(election)->path);
	return leads(election, &term);
}

static bool
has_resigned(int election, uint32 resignation)
{
	return election_resign_is_done(election, resignation);
}

/* Waits as leadership_await() says. */
static bool
await_leadership(int election, const char *path, int64 timeout_ms)
{
	Wait wait;

	wait_begin(&wait, path, "leadership", timeout_ms);
	if (timeout_ms != LOCK_NO_WAIT)
		return wait_until(&wait, election, leads_now, 0);
	if (leads_now(election, 0))
		return true;
	if (lease_state() != LEASE_HOLDS)
		request_report_unreachable(path);
	return false;
}

/*
 * Waits until this server leads the election at a path.
 *
 *	timeout_ms	as for a lock
 *
 * Returns false if the timeout has passed; that ZooKeeper cannot be reached then
 * is an error.
 */
bool
leadership_await(const char *path, int64 timeout_ms)
{
	int			election = require_election(path);
	CountedWait counted;
	bool		led;

	wait_counted_begin(&counted, STATS_ELECTION);
	PG_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&counted));
	{
		led = await_leadership(election, path, timeout_ms);
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&counted));
	if (led)
		wait_counted_end(&counted, STATS_WAIT_GRANTED);
	else
		wait_counted_end(&counted, timeout_ms == LOCK_NO_WAIT ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	return led;
}

/*
 * Lays leadership down: the candidate goes to the end of the queue.  Returns when
 * another leads, or, if there is no other, this server in a new term; false at once
 * if it does not lead.
 *
 * The worker sees it through even if the call is cancelled.
 */
bool
leadership_resign(const char *path)
{
	int	  election = require_election(path);
	int64 term;
	Wait  wait;

	if (election_leadership(election, &term) == LEADERSHIP_NONE)
		return false;
	wait_begin(&wait, path, "a successor", LOCK_WAIT_FOREVER);
	return wait_until(&wait, election, has_resigned, election_want_resign(election));
}
