/*
 * election.c
 *		Elections at which this server stands, as all processes see them.
 *
 * This server leads if three conditions hold, which are read in this order:
 *
 *		the lease			it holds
 *		the candidate		the election names the entry of its contender
 *		that entry			it is granted; its token is the term
 *
 * There is no copy that could get out of step: a loss is a step of the entry (entry.c), the
 * end of the lease is a time that passes by itself (session_info.c), and the worker gives
 * up leadership when it names no candidate any more.  So a reader needs an atomic word and
 * the entry's spinlock.  A lease that was seen before is the one under which the entry was
 * granted; see session_info.c.
 *
 * A path keeps its slot until the server is restarted, even if zklock.elections no longer
 * has it.  So a process that has found the slot need not look at the path again.
 *
 * A session that relies on leadership writes its stake before it looks a last time, and the
 * worker gives leadership up before it looks for stakes: either it sees the session's, or
 * the session sees that leadership is gone.  This holds for the interruption of a
 * transaction that has seen that the server leads, and for the end of one that commits.
 *
 * Runs in: all processes; election.h says who writes what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/election.h"

ElectionTable *election_table = NULL;

const char *const election_state_names[] =
	{[CANDIDACY_GONE] = "stop",		  [CANDIDACY_STOP] = "stop",
	 [CANDIDACY_OFFER] = "offer",	  [CANDIDACY_READY] = "ready",
	 [CANDIDACY_ELECTED] = "elected", [CANDIDACY_SUSPENDED] = "suspended",
	 [CANDIDACY_FAILED] = "failed"};

/* ------------------------------------------------------------------------
 * Any process
 * ------------------------------------------------------------------------
 */

/* Returns the election at a path, in UTF-8; ELECTION_NONE if there is none here. */
int
election_find(const char *path)
{
	for (int i = 0; i < election_count(); i++)
	{
		if (strcmp(election_at(i)->path, path) == 0)
			return election_at(i)->status.state == CANDIDACY_GONE ? ELECTION_NONE : i;
	}
	return ELECTION_NONE;
}

/*
 * Returns the entry of the election's candidate, if it is granted, and its status, whose
 * token is the term; otherwise ENTRY_NONE.  The caller looks at the lease before.
 */
int
election_granted_entry(int election, EntryStatus *status)
{
	uint64 candidate = pg_atomic_read_u64(&election_at(election)->candidate);
	int	   index = (int) (candidate & PG_UINT32_MAX) - 1;

	if (candidate == 0)
		return ENTRY_NONE;
	*status = entry_status(index);

	/* If the entry has been freed since, this was another contender's status. */
	if (status->state != ENTRY_GRANTED || entry_generation(index) != (uint32) (candidate >> 32))
		return ENTRY_NONE;
	return index;
}

/*
 * Returns whether this server leads the election.
 *
 *	term	set unless the result is LEADERSHIP_NONE
 */
Leadership
election_leadership(int election, int64 *term)
{
	LeaseState	lease = lease_state();
	EntryStatus status;

	if (election_granted_entry(election, &status) == ENTRY_NONE)
		return LEADERSHIP_NONE;
	*term = status.token;
	if (ZKLOCK_FAULT("lead-unproved"))
		return LEADERSHIP_PROVED;
	if (lease == LEASE_OVER)
		return LEADERSHIP_NONE;
	return lease == LEASE_HOLDS ? LEADERSHIP_PROVED : LEADERSHIP_SUSPENDED;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/*
 * Returns the slot of a path, which may be new; ELECTION_NONE if none is left.  The postmaster
 * calls it, too, for memory that is all zero.
 */
int
election_slot(const char *path)
{
	int		  n = election_count();
	Election *election = election_at(n);

	for (int i = 0; i < n; i++)
	{
		if (strcmp(election_at(i)->path, path) == 0)
			return i;
	}
	if (n == ELECTION_SLOTS)
		return ELECTION_NONE;
	strlcpy(election->path, path, sizeof(election->path));
	SpinLockInit(&election->mutex);
	pg_atomic_init_u64(&election->candidate, 0);
	pg_atomic_init_u64(&election->resign_term, 0);
	ConditionVariableInit(&election->changed);
	pg_write_barrier();
	pg_atomic_write_u32(&election_table->n, n + 1);
	return n;
}

/*
 * Names the entry whose grant is leadership; ENTRY_NONE for none.  The caller looks
 * afterwards at what is at stake.
 */
void
election_set_candidate(int election, int entry)
{
	uint64 candidate = 0;

	if (entry != ENTRY_NONE)
		candidate = (uint64) entry_generation(entry) << 32 | (uint32) (entry + 1);
	pg_atomic_write_u64(&election_at(election)->candidate, candidate);
	pg_memory_barrier();
}

/* Returns true if a transaction relies on leadership, or one commits under an earlier term. */
static bool
election_is_relied_on(int election)
{
	for (int process = 0; process < zklock_max_processes(); process++)
	{
		if ((*election_stake(election, process) & (STAKE_RELY | STAKE_COMMIT)) != 0)
			return true;
	}
	return false;
}

/*
 * Has this server lead no more, unless a transaction relies on it.  Returns whether it has.
 *
 * A session writes its stake before it looks whether leadership is being given away, and this
 * says so before it looks for stakes: either it sees the stake, or the session is told that the
 * server does not lead.  So no transaction loses the term.  Before all that, a look tells
 * nobody anything that will not come true.
 */
bool
election_give_way(int election)
{
	volatile bool *giving_way = &election_at(election)->giving_way;
	bool		   given;

	if (election_is_relied_on(election) && !ZKLOCK_FAULT("give-way-early"))
		return false;
	*giving_way = true;
	pg_memory_barrier();
	given = !election_is_relied_on(election) || ZKLOCK_FAULT("give-way-early");
	if (given)
		election_set_candidate(election, ENTRY_NONE);
	pg_write_barrier();
	*giving_way = false;
	return given;
}
