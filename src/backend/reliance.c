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

#include "backend/leadership.h"
#include "compat.h"
#include "shared/session_info.h"

static ReliedTerm relied[ELECTION_SLOTS];
static int		  nrelied = 0;

static bool committing = false; /* the commit guard has passed, or is about to */

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

/* Tells the worker what the transaction has at stake; a look at the election is to follow. */
static void
set_stake(int election, uint8 stake)
{
	*election_stake(election, compat_my_proc_number()) = stake;
	pg_memory_barrier();
}

static uint8
stake_of(LossPolicy policy)
{
	uint8 stake = committing ? STAKE_COMMIT : 0;

	if (policy == LOSS_CANCEL)
		stake |= STAKE_CANCEL;
	else if (policy == LOSS_TERMINATE)
		stake |= STAKE_TERMINATE;
	return stake;
}

/*
 * The transaction relies on a term, in which this server has just been seen to
 * lead.  Returns false if the term was over before the worker could know of it.
 */
bool
reliance_add(int election, int64 term)
{
	ReliedTerm *found = find(election);
	int64		now;

	if (found)
	{
		if (found->term == term)
			found->taken_under = Max(found->taken_under, (CommitGuard) zklock_commit_guard);
		return true;
	}
	set_stake(election, stake_of((LossPolicy) zklock_on_lock_loss));
	if (election_leadership(election, &now) != LEADERSHIP_PROVED || now != term)
	{
		set_stake(election, 0);
		return false;
	}
	relied[nrelied++] = (ReliedTerm){.election = election,
									 .term = term,
									 .taken_under = (CommitGuard) zklock_commit_guard};
	return true;
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

/* The effect of a loss on the session from now on */
void
reliance_set_policy(LossPolicy policy)
{
	for (int i = 0; i < nrelied; i++)
		set_stake(relied[i].election, stake_of(policy));
}

/*
 * The transaction is about to commit on the strength of its terms: until it has
 * ended, the worker gives none of them up.  To be called before they are looked at.
 */
void
reliance_commit(void)
{
	committing = true;
	for (int i = 0; i < nrelied; i++)
	{
		int election = relied[i].election;

		set_stake(election, *election_stake(election, compat_my_proc_number()) | STAKE_COMMIT);
	}
}

/* The path of an election, in UTF-8, whose term is over, or NULL */
const char *
reliance_lost(void)
{
	for (int i = 0; i < nrelied; i++)
	{
		EntryStatus status;

		if (election_term_entry(relied[i].election, relied[i].term, &status) == ENTRY_NONE)
			return election_at(relied[i].election)->path;
	}
	return NULL;
}

/* The transaction has ended.  Cannot fail, does not wait. */
void
reliance_end(void)
{
	for (int i = 0; i < nrelied; i++)
		set_stake(relied[i].election, 0);
	if (committing)
		zklock_wake_worker();
	nrelied = 0;
	committing = false;
}
