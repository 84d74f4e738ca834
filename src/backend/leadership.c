/*
 * leadership.c
 *		Does this server lead an election?  To ask, to wait for it, to lay it down.
 *
 * The candidacy is the worker's; a session reads how it stands (shared/election.c)
 * and needs no entry of its own.  Who has been told that this server leads relies
 * on that until its transaction ends (reliance.c).
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/leadership.h"
#include "backend/reliance.h"
#include "backend/request.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "compat.h"
#include "shared/lease_state.h"
#include "storage/ipc.h"
#include "utils/timeout.h"

/*
 * The election at a path.  The last answer is remembered for as long as no
 * election comes or goes.  Raises an error if there is none.
 */
static int
require_election(const char *path)
{
	static char	  known_path[ZKLOCK_MAX_PATH + 1] = "";
	static uint64 known_version;
	static int	  known;

	uint64 version = election_version();

	if (version != known_version || strcmp(path, known_path) != 0)
	{
		known = election_find(path);
		known_version = version;
		strlcpy(known_path, path, sizeof(known_path));
	}
	if (known == ELECTION_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("this server stands at no election at ZooKeeper path \"%s\"", display_path(path)),
				 errhint("Add the path to \"zklock.elections\", and reload the configuration.")));
	return known;
}

/* The session has to do with elections: what it relies on ends with its transactions. */
static void
begin(void)
{
	transaction_start_session();
	reliance_begin();
}

/* Does this server lead, provably?  If so, the transaction relies on that from now on. */
static bool
look(int election, const char *path, int64 *term)
{
	if (election_leadership(election, term) != LEADERSHIP_PROVED)
		return false;
	if (reliance_has(election, *term))
		return true;
	begin();
	return reliance_add(election, *term, path);
}

/*
 * Does this server lead the election at a path, provably?  Reads shared memory
 * only.
 *
 * An election that goes away while we look had no candidate by then; one that came
 * in its place may have, so what was seen counts only if the table is the same.
 */
bool
leadership_is_leader(const char *path)
{
	for (;;)
	{
		int	   election = require_election(path);
		uint64 version = election_version();
		int64  term;
		bool   leads;

		if (require_election(path) != election)
			continue;
		leads = look(election, path, &term);
		if (!leads || election_version() == version)
			return leads;
	}
}

/* The term in which this server leads, for fencing.  Raises an error if it does not. */
int64
leadership_term(const char *path)
{
	int	  election = require_election(path);
	int64 term;

	if (!look(election, path, &term))
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
typedef bool (*Arrived)(int election, const char *path, const void *arg);

/*
 * Waits until "arrived" says so, like a call that waits for a lock.  Returns false
 * if the timeout has passed.
 */
static bool
wait_until(Wait *wait, int election, Arrived arrived, const void *arg)
{
	volatile bool done = false;

	begin();
	reliance_wait(election);
	PG_TRY();
	{
		if (LockTimeout > 0)
			enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
		for (;;)
		{
			ResetLatch(MyLatch);
			done = arrived(election, wait->path, arg);
			if (done || !wait_turn(wait, ENTRY_NONE, lease_state() == LEASE_HOLDS, WAIT_LOOK_SOON))
				break;
		}
	}
	PG_FINALLY();
	{
		/* Keep the indicator: an interrupt still to come may be the timeout's. */
		disable_timeout(LOCK_TIMEOUT, true);
	}
	PG_END_TRY();
	if (done)
		wait_end(wait);
	return done;
}

static bool
leads_now(int election, const char *path, const void *arg)
{
	int64 term;

	if (require_election(path) != election)
		return false;
	return look(election, path, &term);
}

/* Waits as leadership_await() says. */
static bool
await_leadership(int election, const char *path, int64 timeout_ms)
{
	Wait wait;

	wait_begin(&wait, path, "leadership", timeout_ms);
	if (timeout_ms != LOCK_NO_WAIT)
		return wait_until(&wait, election, leads_now, NULL);
	if (leads_now(election, path, NULL))
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
	CountedWait wait;
	bool		leads;

	wait_counted_begin(&wait, STATS_ELECTION);
	PG_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	{
		leads = await_leadership(election, path, timeout_ms);
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	if (leads)
		wait_counted_end(&wait, STATS_WAIT_GRANTED);
	else
		wait_counted_end(&wait, timeout_ms == LOCK_NO_WAIT ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	return leads;
}

static bool
has_resigned(int election, const char *path, const void *arg)
{
	return election_resign_is_done(election, *(const uint32 *) arg);
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
	int	   election = require_election(path);
	int64  term;
	uint32 number;
	Wait   wait;

	if (election_leadership(election, &term) == LEADERSHIP_NONE)
		return false;
	wait_begin(&wait, path, "a successor", LOCK_WAIT_FOREVER);
	number = election_want_resign(election);
	return wait_until(&wait, election, has_resigned, &number);
}
