/*
 * leadership.c
 *		The terms of leadership on which this session's transaction relies.
 *
 * A transaction relies on a term from the moment when a call has returned that this server
 * leads until the transaction ends, even if the subtransaction that asked is rolled back.  It
 * relies on one term of an election, the first: once it has seen another one, its commit is
 * refused in any case.
 *
 * The entry of a term is the server's, not the session's.  What the session has at stake is
 * in shared memory (shared/election.h), where the worker reads it before it gives leadership
 * up.
 *
 * Runs in: backends.  The list is private; each process writes its own stakes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/leadership.h"
#include "compat.h"
#include "shared/election.h"

/* One term for each election at most, so there is always room */
static LeadershipTerm terms[ELECTION_SLOTS];
static int			  nterms = 0;

/*
 * Stores what is at stake in an election.  The memory barrier orders this before the caller's
 * look at the candidate.
 *
 *	which	the stakes that are changed
 */
static void
set_stake(int election, uint8 which, uint8 stake)
{
	volatile uint8 *mine = election_stake(election, compat_my_proc_number());
	uint8			before = *mine;

	*mine = (before & ~which) | stake;
	pg_memory_barrier();

	/*
	 * The worker does not give leadership up while a commit relies on it: wake it when this
	 * one ends.
	 */
	if ((before & ~*mine & STAKE_COMMIT) != 0)
		zklock_wake_worker();
}

/* Stores the stakes in all elections on which the transaction relies. */
void
leadership_set_stakes(uint8 which, uint8 stake)
{
	for (int i = 0; i < nterms; i++)
		set_stake(terms[i].election, which, stake);
}

/* Ends the reliance, as the transaction has ended: nothing is at stake any more. */
void
leadership_forget(void)
{
	leadership_set_stakes(STAKE_COMMIT | STAKE_ON_LOSS, 0);
	nterms = 0;
}

/*
 * Returns true if this server leads, provably.  Then the transaction relies on that from now
 * on.  Reads no more than shared memory.
 *
 *	token	is set to the fencing token of the term in which it leads
 */
bool
leadership_rely(int election, int64 *token)
{
	LeadershipTerm *term = terms;
	int64			now;

	if (election_leadership(election, token) != LEADERSHIP_PROVED)
		return false;
	while (term < &terms[nterms] && term->election != election)
		term++;
	if (term == &terms[nterms])
	{
		set_stake(election, STAKE_ON_LOSS, zklock_on_lock_loss);

		/* The term may have ended before the worker could see the stake. */
		if (election_leadership(election, &now) != LEADERSHIP_PROVED || now != *token)
		{
			set_stake(election, STAKE_ON_LOSS, 0);
			return false;
		}
		terms[nterms++] = (LeadershipTerm){.election = election, .token = *token};
	}
	if (term->token == *token)
		term->taken_under = Max(term->taken_under, (CommitGuard) zklock_commit_guard);
	return true;
}

/* Returns the term after another one, or the first one after NULL; NULL at the end. */
LeadershipTerm *
leadership_next(const LeadershipTerm *term)
{
	int i = term ? (int) (term - terms) + 1 : 0;

	return i < nterms ? &terms[i] : NULL;
}

/*
 * Returns true if a term is over.  It is over with the lease, even before the worker has said
 * so.
 */
bool
leadership_is_lost(const LeadershipTerm *term)
{
	int64 token;

	return election_leadership(term->election, &token) == LEADERSHIP_NONE || token != term->token;
}

/* Raises the error for a term that is over. */
void
leadership_report_lost(const LeadershipTerm *term)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("leadership at ZooKeeper path \"%s\" was lost",
					display_path(election_at(term->election)->path)),
			 errdetail("This server led when the transaction asked, but does not lead in that term any more."),
			 errhint("Another server may lead by now. Retry the work where the leader is.")));
}
