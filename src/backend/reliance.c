/*
 * reliance.c
 *		The terms of leadership that the transaction relies on.
 *
 * A transaction relies on a term from the moment that it has been told that this
 * server leads until it ends, whatever becomes of the subtransaction that
 * asked.  If the term ends before, the transaction may be interrupted, and must
 * not commit what it has written (guard.c).
 *
 * Of an election the first term counts: after another one was seen, the commit is
 * refused in any case.
 *
 * Runs in: backends.  The list is private; what the worker is told is in
 * shared/election.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/reliance.h"
#include "shared/worker_process.h"
#include "utils/memutils.h"

static ReliedTerm relied[ELECTIONS_LIMIT];
static int		  nrelied = 0;

static bool begun = false;	   /* the session has to do with elections */
static bool announced = false; /* the worker may look for this session */

static ReliedTerm *
find(int election)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (relied[i].election == election)
			return &relied[i];
	}
	return NULL;
}

/* The session has to do with elections from now on. */
void
reliance_begin(void)
{
	if (!begun)
		election_client_begin();
	begun = true;
}

/* Does the transaction rely on that term already? */
bool
reliance_has(int election, int64 term)
{
	ReliedTerm *found = find(election);

	if (found == NULL || found->term != term)
		return false;
	found->taken_under = Max(found->taken_under, (CommitGuard) zklock_commit_guard);
	return true;
}

/*
 * The transaction is going to rely on a term, if that still goes on when the
 * worker can know of it.  Returns false if not.
 */
bool
reliance_add(int election, int64 term, const char *path)
{
	char *kept = MemoryContextStrdup(TopTransactionContext, path);
	int64 now;

	announced = true;
	election_client_rely(election, (LossPolicy) zklock_on_lock_loss);
	if (election_leadership(election, &now) != LEADERSHIP_PROVED || now != term)
		return false;
	if (find(election) == NULL)
		relied[nrelied++] = (ReliedTerm){.election = election,
										 .term = term,
										 .path = kept,
										 .taken_under = (CommitGuard) zklock_commit_guard};
	return true;
}

/* The session's latch is to be set by changes at an election, until the transaction ends. */
void
reliance_wait(int election)
{
	announced = true;
	election_client_wait(election);
}

/* Does the transaction rely on any term? */
bool
reliance_exists(void)
{
	return nrelied > 0;
}

/* Calls "visit" for each term. */
void
reliance_visit(RelianceVisitor visit, void *arg)
{
	for (int i = 0; i < nrelied; i++)
		visit(&relied[i], arg);
}

/*
 * The transaction is about to commit on the strength of its terms: until it has
 * ended, the worker lays none of them down.  To be called before they are looked at.
 */
void
reliance_commit(void)
{
	election_client_commit();
}

/* What a loss does to the session from now on */
void
reliance_set_policy(LossPolicy policy)
{
	if (announced)
		election_client_set_policy(policy);
}

/*
 * Takes note of a signal that was sent for the loss of leadership.  Returns false
 * if none was.
 *
 *	at		set to when that was
 *	path	set to the election's
 */
bool
reliance_take_interrupt(int signal, TimestampTz *at, const char **path)
{
	int			election = begun ? election_client_take_interrupt(signal, at) : ELECTION_NONE;
	ReliedTerm *found = find(election);

	if (election == ELECTION_NONE || found == NULL)
		return false;
	*path = found->path;
	return true;
}

/* The transaction has ended.  Cannot fail, does not wait. */
void
reliance_end(void)
{
	nrelied = 0;
	if (announced && election_client_end())
		zklock_wake_worker();
	announced = false;
}
