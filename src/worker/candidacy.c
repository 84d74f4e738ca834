/*
 * candidacy.c
 *		The elections at which this server stands.
 *
 * A candidacy is a contender of the server itself: the worker asks for it and gives
 * it up, as a backend does for a lock, and the engine (src/queue) does the rest.
 * So it outlives a worker, like everything in shared memory, and a lost reply, a
 * deleted node and the end of the session are the engine's.  Once per round of the
 * main loop each candidacy is looked at:
 *
 *				 stand
 *		  IDLE ----------> STANDING ---------> LEAVING
 *		   ^ ^				 | ^	lay_down	 | |
 *		   | |	refused,	 | | 	 renew		 | |
 *		   | '---- lost -----' '-----------------' |
 *		   '---------------------------------------'
 *						left, lost
 *
 *		IDLE		it has no contender: it is not to stand, or asks again
 *		STANDING	it waits, or leads
 *		LEAVING		it must not lead any more (election_set_candidate()), but its
 *					node stays until the transactions that commit under its
 *					leadership have ended: the next leader must not begin before
 *
 * To resign is to leave and to stand anew in the same step: the new contender
 * names the old one as the one that it replaces, and the engine puts its node in
 * the place of the old one at the end of the queue.  Who asked is told when the
 * new place is known.
 *
 * A server stands where zklock.elections says, unless it is a standby or shuts
 * down.  Nobody tells of a promotion, so a standby looks for it now and then.
 *
 * What zk_elections and the log are told of it is in candidacy_status.c.  Whether
 * this server leads does not depend on that: see shared/election.c.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "access/xlog.h"
#include "shared/clock.h"
#include "shared/election.h"
#include "shared/lease_state.h"
#include "shared/server_name.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "utils/timestamp.h"
#include "worker/candidacy.h"
#include "worker/candidacy_entry.h"
#include "worker/candidacy_status.h"

/* Pause before a candidacy that was refused is tried again. */
#define STAND_AGAIN_MS 2000

/* How often it is looked whether a standby has been promoted, or a commit has ended. */
#define LOOK_FOR_PROMOTION_MS 1000
#define LOOK_FOR_COMMITS_MS 20

static bool stopping = false; /* the server shuts down */
static bool reload_again = false;

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

/*
 * Asks for a place in the queue.
 *
 *	replaces	an entry of the same election that is given up at the same time, or
 *				ENTRY_NONE
 *
 * Returns false if there is no entry for it.
 */
static bool
stand(int i, int replaces)
{
	Candidacy *candidacy = &election_at(i)->candidacy;
	uint32	   generation;
	int		   index = candidacy_entry_claim(election_at(i), replaces, &generation);

	if (index < 0)
		return false;
	candidacy->phase = CANDIDACY_STANDING;
	candidacy->entry = index;
	candidacy->generation = generation;
	entry_ask(index);
	entry_mark_dirty(index);
	election_set_candidate(i, index, generation);
	return true;
}

static void
interrupt_client(int pid, int signal)
{
	if (kill(pid, signal) != 0)
		ereport(LOG, (errmsg("could not send signal %d to process %d: %m", signal, pid)));
}

/*
 * How long this server led the election, and whether it has lost that, the
 * statistics are told at the end of the term.  What has been laid down has been
 * counted, and is not lost.
 */
static void
count_term(int i)
{
	const Candidacy *candidacy = &election_at(i)->candidacy;
	ContenderEntry	*entry = entry_at(candidacy->entry);
	ContenderState	 state;
	TimestampTz		 granted_at;

	if (candidacy->phase != CANDIDACY_STANDING)
		return;
	SpinLockAcquire(&entry->mutex);
	state = entry->status.state;
	granted_at = entry->status.granted_at;
	SpinLockRelease(&entry->mutex);
	if (state == CONTENDER_LOST)
		stats_lost(STATS_ELECTION);
	if (state == CONTENDER_LOST || state == CONTENDER_GRANTED)
		stats_held(STATS_ELECTION, Max(GetCurrentTimestamp() - granted_at, 0));
}

/* This server does not lead any more, if it did: nobody is told otherwise from here on. */
static void
end_term(int i)
{
	count_term(i);
	election_set_candidate(i, ENTRY_NONE, 0);
	election_interrupt_clients(i, interrupt_client);
}

/* The contender is given up; its node is the engine's to delete. */
static void
give_up(int i)
{
	Candidacy *candidacy = &election_at(i)->candidacy;

	(void) entry_give_up(candidacy->entry, ENTRY_NO_NOTICE);
	candidacy->phase = CANDIDACY_IDLE;
}

/* The place is lost, or was refused. */
static void
lost(int i, int64 retry_at)
{
	end_term(i);
	give_up(i);
	election_at(i)->candidacy.retry_at = retry_at;
}

/* Leadership is laid down, or the place in the queue. */
static void
lay_down(int i)
{
	end_term(i);
	election_at(i)->candidacy.phase = CANDIDACY_LEAVING;
}

/* The node goes, and nothing takes its place. */
static void
left(int i)
{
	give_up(i);
	election_at(i)->candidacy.retry_at = 0;
}

/* A new node takes the place of the old one, at the end of the queue. */
static void
renew(int i)
{
	Candidacy *candidacy = &election_at(i)->candidacy;
	int		   old = candidacy->entry;

	if (stand(i, old))
		(void) entry_give_up(old, ENTRY_NO_NOTICE);
	else
		left(i);
}

/* ------------------------------------------------------------------------
 * One candidacy
 * ------------------------------------------------------------------------
 */

/* Is the server to stand at the election? */
static bool
is_wanted(const Election *election)
{
	return election->candidacy.listed && !stopping && !RecoveryInProgress();
}

/* Is a resignation asked for that has not been taken up? */
static bool
is_to_resign(Election *election)
{
	return pg_atomic_read_u32(&election->resigns_wanted) != election->candidacy.resigning;
}

/* Resignations asked for before the one under way was taken up are done. */
static void
resigned(int i)
{
	Election *election = election_at(i);

	if (pg_atomic_read_u32(&election->resigns_done) == election->candidacy.resigning)
		return;
	pg_atomic_write_u32(&election->resigns_done, election->candidacy.resigning);
	election_wake_clients(i);
}

/* The entry has come to an end without our doing. */
static void
attend_end(int i, const Standing *standing)
{
	if (standing->state == CONTENDER_LOST)
	{
		candidacy_tell(i, CANDIDACY_OFFER, 0,
					   psprintf("Leadership was lost. %s", candidacy_loss_text(standing->loss)));
		lost(i, 0);
	}
	else
	{
		candidacy_tell(i, CANDIDACY_FAILED, 0,
					   candidacy_failure_text(standing->failure, standing->code));
		lost(i, zklock_now_ms() + STAND_AGAIN_MS);
	}
	resigned(i);
}

/* It leads, as far as that is proved. */
static void
attend_elected(int i, const Standing *standing)
{
	static uint32 checks[ELECTIONS_LIMIT];

	if (lease_state() == LEASE_HOLDS)
	{
		if (election_at(i)->status.state != CANDIDACY_ELECTED)
		{
			StringInfoData name;

			candidacy_tell(i, CANDIDACY_ELECTED, 1,
						   psprintf("This server leads, in term " INT64_FORMAT ".", standing->token));
			initStringInfo(&name);
			zklock_append_server_name(&name);
			candidacy_tell_leader(i, name.data, name.len);
			pfree(name.data);
		}
	}
	else
		candidacy_tell(i, CANDIDACY_SUSPENDED, 1,
					   "That the ZooKeeper session is alive is not proved at the moment.");

	/* Transactions wait for checks of the node. */
	if (standing->check_done != checks[i])
		election_wake_clients(i);
	checks[i] = standing->check_done;
}

static void
attend_standing(int i)
{
	Election *election = election_at(i);
	Standing  standing = candidacy_entry_look(&election->candidacy);

	if (standing.state == CONTENDER_LOST || standing.state == CONTENDER_FAILED)
		attend_end(i, &standing);
	else if (!is_wanted(election))
		lay_down(i);
	else if (standing.state == CONTENDER_GRANTED)
	{
		attend_elected(i, &standing);
		resigned(i);
		if (is_to_resign(election))
		{
			election->candidacy.resigning = pg_atomic_read_u32(&election->resigns_wanted);
			lay_down(i);
		}
	}
	else
	{
		if (standing.position > 0)
		{
			candidacy_tell(i, CANDIDACY_READY, standing.position, NULL);
			candidacy_ask_leader(i, standing.blocker);
			resigned(i);
		}
		else if (election->status.state != CANDIDACY_FAILED)
			candidacy_tell(i, CANDIDACY_OFFER, 0, NULL);

		/* Who does not lead has nothing to lay down; but see to one under way first. */
		if (is_to_resign(election) &&
			pg_atomic_read_u32(&election->resigns_done) == election->candidacy.resigning)
		{
			election->candidacy.resigning = pg_atomic_read_u32(&election->resigns_wanted);
			resigned(i);
		}
	}
}

static void
attend_leaving(int i)
{
	Election *election = election_at(i);
	Standing  standing = candidacy_entry_look(&election->candidacy);

	if (standing.state == CONTENDER_LOST || standing.state == CONTENDER_FAILED)
		attend_end(i, &standing);
	else if (election_has_commits(i))
		return;
	else if (is_wanted(election))
	{
		candidacy_tell(i, CANDIDACY_OFFER, 0,
					   "This server has laid leadership down, and goes to the end of the queue.");
		renew(i);
	}
	else
		left(i);
}

/* Returns true if the election is gone. */
static bool
attend_idle(int i)
{
	Election *election = election_at(i);

	if (!election->candidacy.listed)
	{
		candidacy_tell(i, CANDIDACY_STOP, 0, "It is not in \"zklock.elections\" any more.");
		election->candidacy.resigning = pg_atomic_read_u32(&election->resigns_wanted);
		resigned(i);
		election_wake_clients(i);
		election_remove(i);
		return true;
	}
	if (!is_wanted(election))
	{
		candidacy_tell(i, CANDIDACY_STOP, 0,
					   stopping ? "The server shuts down." : "The server is a standby.");
		election->candidacy.resigning = pg_atomic_read_u32(&election->resigns_wanted);
		resigned(i);
	}
	else if (zklock_now_ms() >= election->candidacy.retry_at)
	{
		if (stand(i, ENTRY_NONE))
			candidacy_tell(i, election->status.state == CANDIDACY_FAILED ? CANDIDACY_FAILED : CANDIDACY_OFFER,
						   0, NULL);
		else
		{
			candidacy_tell(i, CANDIDACY_FAILED, 0, "All of \"zklock.max_locks\" are in use.");
			election->candidacy.retry_at = zklock_now_ms() + STAND_AGAIN_MS;
		}
	}
	return false;
}

/* ------------------------------------------------------------------------
 * All candidacies
 * ------------------------------------------------------------------------
 */

/*
 * Takes zklock.elections up: what is new there, and what is not there any more.
 * A path that gets other names leaves first, and comes again then.
 */
void
candidacy_reload(void)
{
	PathListReader reader;
	ElectionItem   item;

	for (int i = 0; i < ELECTIONS_LIMIT; i++)
		election_at(i)->candidacy.listed = false;
	reload_again = false;
	election_list_begin(&reader);
	while (election_list_next(&reader, &item))
	{
		int i = election_find(item.path);

		if (i == ELECTION_NONE)
			i = election_add(&item);
		if (i == ELECTION_NONE || election_at(i)->family != item.family)
			reload_again = true;
		else
			election_at(i)->candidacy.listed = true;
	}
}

/* Looks at all of them, once per round of the main loop. */
void
candidacy_attend(void)
{
	bool removed = false;

	for (int i = 0; i < ELECTIONS_LIMIT; i++)
	{
		if (election_at(i)->path[0] == '\0')
			continue;
		switch (election_at(i)->candidacy.phase)
		{
			case CANDIDACY_IDLE:
				removed |= attend_idle(i);
				break;
			case CANDIDACY_STANDING:
				attend_standing(i);
				if (election_at(i)->candidacy.phase == CANDIDACY_LEAVING)
					attend_leaving(i);
				break;
			case CANDIDACY_LEAVING:
				attend_leaving(i);
				break;
		}
	}
	if (removed && reload_again)
		candidacy_reload();
}

/* The server shuts down: leadership goes to others at once. */
void
candidacy_withdraw_all(void)
{
	stopping = true;
}

/* When candidacy_attend() wants to be called, ms; or -1. */
int64
candidacy_next_wakeup(void)
{
	int64 next = -1;

	for (int i = 0; i < ELECTIONS_LIMIT; i++)
	{
		Election *election = election_at(i);
		int64	  at = -1;

		if (election->path[0] == '\0')
			continue;
		if (election->candidacy.phase == CANDIDACY_LEAVING)
			at = zklock_now_ms() + LOOK_FOR_COMMITS_MS;
		else if (election->candidacy.phase == CANDIDACY_IDLE && !is_wanted(election))
			at = zklock_now_ms() + LOOK_FOR_PROMOTION_MS;
		else if (election->candidacy.phase == CANDIDACY_IDLE)
			at = election->candidacy.retry_at;
		if (at >= 0 && (next < 0 || at < next))
			next = at;
	}
	return next;
}
