/*
 * leadership.c
 *		Does this server lead an election?  To ask, to wait for it, to give it up.
 *
 * The candidacy is the worker's; a session reads from shared memory how it stands
 * (shared/election.c), waits on a condition variable, and needs no entry of its
 * own.  A transaction that has been told that this server leads relies on that until
 * it ends (hold.c).
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/leadership.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "shared/election.h"
#include "shared/session_info.h"
#include "storage/proc.h"

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

/* The term at an election on which the transaction relies, or NULL */
static Hold *
relied_term(int election)
{
	for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		if (hold->kind == CONTENDER_CANDIDACY && hold->election == election)
			return hold;
	}
	return NULL;
}

/*
 * Does this server lead, provably?  If so, the transaction relies on that from now on.
 * Of an election the first term counts: after another one was seen, the commit is
 * refused in any case.
 */
static bool
leads(int election, int64 *term)
{
	Hold *relied;

	if (election_leadership(election, term) != LEADERSHIP_PROVED)
		return false;
	transaction_start_session();
	relied = relied_term(election);
	if (relied == NULL)
	{
		int64 now;

		relied = hold_add(CONTENDER_CANDIDACY, election_at(election)->path, LOCK_MODE_EXCLUSIVE);
		relied->election = election;
		relied->term = *term;
		hold_set_stake(relied, STAKE_ON_LOSS, zklock_on_lock_loss);

		/* Was it over before the worker could know of that? */
		if (election_leadership(election, &now) != LEADERSHIP_PROVED || now != *term)
		{
			relied->term = 0;
			(void) hold_settle(relied, ENTRY_NO_NOTICE);
			return false;
		}
	}
	if (relied->term == *term)
		relied->taken_under = Max(relied->taken_under, (CommitGuard) zklock_commit_guard);
	return true;
}

/*
 * Does this server lead the election at a path, provably?  Reads shared memory only.
 *
 *	term	is set to that in which it leads, for fencing
 */
bool
leadership_is_proved(const char *path, int64 *term)
{
	return leads(require_election(path), term);
}

/* ------------------------------------------------------------------------
 * Waiting
 * ------------------------------------------------------------------------
 */

/* Does it lead now?  Raises an error if the election goes away. */
static WaitAnswer
look_whether_it_leads(const Wait *wait, void *arg)
{
	int	  election = *(int *) arg;
	int64 term;

	ConditionVariablePrepareToSleep(&election_at(election)->changed);
	(void) require_election(election_at(election)->path);
	if (leads(election, &term))
		return WAIT_OVER;
	if (wait->timeout_ms == LOCK_NO_WAIT && lease_state() == LEASE_HOLDS)
		return WAIT_REFUSED;
	return WAIT_UNTOLD;
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
	int	 election = require_election(path);
	bool led;
	Wait wait;

	wait_begin(&wait, path, "leadership", STATS_ELECTION, timeout_ms);
	led = wait_until(&wait, look_whether_it_leads, &election);
	ConditionVariableCancelSleep();
	if (led)
		wait_granted(&wait);
	else
		wait_refused(&wait);
	return led;
}

/* A candidate that is to go to the end of the queue */
typedef struct Resignation
{
	int	  election;
	int64 term;
} Resignation;

static WaitAnswer
look_whether_it_has_resigned(const Wait *wait, void *arg)
{
	const Resignation *resignation = arg;

	ConditionVariablePrepareToSleep(&election_at(resignation->election)->changed);
	return election_resign_is_done(resignation->election, resignation->term) ? WAIT_OVER : WAIT_UNTOLD;
}

/*
 * Gives up leadership: the candidate goes to the end of the queue.  Returns when
 * another leads, or, if there is no other, this server in a new term; false at once
 * if it does not lead.
 *
 * The worker sees it through even if the call is cancelled.
 */
bool
leadership_resign(const char *path)
{
	Resignation resignation = {.election = require_election(path)};
	Wait		wait;

	if (election_leadership(resignation.election, &resignation.term) == LEADERSHIP_NONE)
		return false;
	election_want_resign(resignation.election, resignation.term);
	wait_begin(&wait, path, "a successor", WAIT_UNCOUNTED, LOCK_WAIT_FOREVER);
	(void) wait_until(&wait, look_whether_it_has_resigned, &resignation);
	ConditionVariableCancelSleep();
	wait_granted(&wait);
	return true;
}
