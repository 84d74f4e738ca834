/*
 * candidacy.c
 *		The elections at which this server stands.
 *
 * A candidacy is a contender of the server itself: the worker asks for it and gives it up,
 * as a backend does for a lock, and the engine (src/engine) does the rest.  So it outlives a
 * worker, like everything in shared memory, and the engine handles a lost reply, a deleted
 * node and the end of the session.  Once per round of the main loop each candidacy is looked
 * at, in attend_candidacy(), which draws its states.
 *
 * To resign is to leave and to stand anew in the same step: the new contender names the old
 * one as the one that it replaces, and the engine puts its node in the place of the old one
 * at the end of the queue.  The session that asked is woken when the new place is known.
 *
 * Priorities
 * ----------
 *
 * The order of nodes alone decides who leads, as other clients know nothing else.  A server
 * with a priority tells it in the data of its node, behind its name; one without, an older
 * version, and another client tell none, which is 0.  A leader lists its candidates when some
 * have come or gone, and reads the data of each once (engine/watch.c).  If one of a higher
 * priority stands, the leader resigns, in the end:
 *
 *		alone at the top --(a higher one is seen)--> knows of it, and leads on
 *			 ^											|		|
 *			 '--(that is gone, or no higher any more)---'		| has stood for PREFER_AFTER_MS
 *																v
 *		last in the queue <--(no transaction relies)-- waits for a gap, and leads on
 *
 *	both lead		never: who gives way does what zk_resign() does, and nobody leads
 *					before the node of the one in front is gone
 *	a higher one that flaps, or is dead		its node is another one each time, or goes with its
 *					session sooner than the pause is over; if it dies while leadership is handed
 *					over, its session must end before the next one leads
 *	equal ones		stay as they are
 *	others between	lead first, whoever they are; those of ours give way in their turn, at once if
 *					they have seen the higher one for so long while they waited
 *	long transactions	leadership stays while any relies on it: election_give_way().  Only
 *					zk_resign() takes it from them
 *	reload			who waits stands anew, with new data; who leads goes by the new priority
 *					at once, and keeps its node
 *	another worker	begins to count the pause anew
 *
 * A server stands where zklock.elections says, unless it is a standby or shuts down.  A
 * promotion is not reported to the worker, so on a standby it looks for one now and then.
 *
 * The state is published for zk_elections, and each change is logged.  Whether this server
 * leads does not depend on it: see shared/election.c.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xlog.h"
#include "compat.h"
#include "engine/engine.h"
#include "fault.h"
#include "mb/pg_wchar.h"
#include "shared/common.h"
#include "shared/election.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* Pause before a candidacy that was refused is tried again. */
#define STAND_AGAIN_MS 2000

/* How often the worker looks whether a standby has been promoted, or a commit has ended */
#define LOOK_FOR_PROMOTION_MS 1000
#define LOOK_FOR_COMMITS_MS 20

/* How often a leader that is to give way looks whether no transaction relies on it */
#define LOOK_FOR_GAP_MS 100

/*
 * How long a candidate of higher priority has to be known to stand before a leader gives way:
 * longer than the session of a server that is gone lives on.
 */
#define PREFER_AFTER_MS (2 * (int64) zklock_session_timeout)

/* ------------------------------------------------------------------------
 * What is published
 * ------------------------------------------------------------------------
 */

/*
 * Publishes the state, and the place in the queue of a candidate that waits.  Logs the state
 * if it has changed.
 *
 *	detail	for the log; NULL if there is nothing to say
 */
static void
publish_candidacy(int i, CandidacyState state, const char *detail)
{
	Election   *election = election_at(i);
	TimestampTz now = GetCurrentTimestamp();
	int			position = 0;
	bool		news = election->status.since == 0 || election->status.state != state;
	EngineRival rival;
	const char *preferred = "";

	if (state == CANDIDACY_ELECTED &&
		engine_rival(election->candidacy.entry, election->candidacy.priority, &rival))
		preferred = rival.data;
	if (state == CANDIDACY_READY)
		position = entry_at(election->candidacy.entry)->node.position;
	if (!news && election->status.position == position &&
		election->status.priority == election->candidacy.priority &&
		strcmp(election->status.preferred, preferred) == 0)
		return;
	SpinLockAcquire(&election->mutex);
	election->status.state = state;
	election->status.position = position;
	election->status.priority = election->candidacy.priority;
	strlcpy(election->status.preferred, preferred, sizeof(election->status.preferred));
	if (news)
		election->status.since = now;
	SpinLockRelease(&election->mutex);
	if (news)
		ereport(LOG, (errmsg("election \"%s\": candidacy is in state \"%s\"", election->path,
							 election_state_names[state]),
					  detail ? errdetail_internal("%s", detail) : 0));
	ConditionVariableBroadcast(&election->changed);
}

/* ------------------------------------------------------------------------
 * The contender
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
stand_for_election(int i, int replaces)
{
	Election	*election = election_at(i);
	Candidacy	*candidacy = &election->candidacy;
	EntryRequest request = {.proc_number = ENTRY_NO_LATCH,
							.pid = ENTRY_SERVER_PID,
							.kind = REQUEST_CANDIDACY,
							.terms = {.mode = LOCK_MODE_EXCLUSIVE,
									  .family = candidacy->family,
									  .dialect = dialect_of_path(election->path)},
							.parent_nodes = zklock_parent_nodes,
							.share = entry_pool->limit,
							.reserve = RESERVE_OPEN,
							.replaces = replaces,
							.requested_at = GetCurrentTimestamp(),
							.requested_us = zklock_now_us()};
	char		*name = zklock_own_name();
	char		 data[ZKLOCK_NODE_DATA_SIZE];
	int			 index;

	/*
	 * LeaderElectionSupport needs its path, but ZooKeeper removes a container that is empty.
	 */
	if (candidacy->family == ELECTION_SUPPORT && zklock_parent_nodes == PARENTS_CONTAINER)
		request.parent_nodes = PARENTS_PERSISTENT;
	strlcpy(request.path, election->path, sizeof(request.path));

	recipe_data_write(data, sizeof(data), name, candidacy->priority);
	pfree(name);
	if (!pg_verify_mbstr(PG_UTF8, data, strlen(data), true))
	{
		for (char *ch = data; *ch != '\0'; ch++)
		{
			if (IS_HIGHBIT_SET(*ch))
				*ch = '?';
		}
	}
	index = entry_ask(&request, data, LOSS_ABORT, 0);
	if (index == ENTRY_NONE)
		return false;
	candidacy->phase = CANDIDACY_STANDING;
	candidacy->entry = index;
	candidacy->stands_with = candidacy->priority;
	election_set_candidate(i, index);
	return true;
}

/* ------------------------------------------------------------------------
 * Terms
 * ------------------------------------------------------------------------
 */

/*
 * Ends the server's term, if it leads: from here on no session sees it as the leader, and
 * transactions that rely on its leadership are interrupted if they want that.  A term that has
 * been given up before is over, and does not count again.
 */
static void
end_term(int i, const EntryStatus *status)
{
	if (election_at(i)->candidacy.phase != CANDIDACY_STANDING)
		return;
	if (status->state == ENTRY_LOST)
		stats_add(STATS_ELECTION, STATS_LOSSES, 1);
	if (status->state == ENTRY_LOST || status->state == ENTRY_GRANTED)
	{
		int64 held = GetCurrentTimestamp() - status->granted_at;

		stats_add(STATS_ELECTION, STATS_HOLD_US, Max(held, 0));
	}
	election_set_candidate(i, ENTRY_NONE);
	for (int process = 0; process < zklock_max_processes(); process++)
	{
		volatile uint8 *stake = election_stake(i, process);

		if ((*stake & STAKE_ON_LOSS) == LOSS_ABORT)
			continue;
		ZKLOCK_SLOW("slow-losses", 400, 25);
		LWLockAcquire(ProcArrayLock, LW_SHARED);
		failure_interrupt(process, *stake & STAKE_ON_LOSS);
		LWLockRelease(ProcArrayLock);
	}
}

/*
 * Wakes the sessions that want a term to end, if it has ended.
 *
 *	led		the term in which the server leads, which has not ended; or 0
 */
static void
announce_resignation(Election *election, int64 led)
{
	uint64 term = pg_atomic_read_u64(&election->resign_term);

	if (term != 0 && term != (uint64) led &&
		pg_atomic_compare_exchange_u64(&election->resign_term, &term, 0))
		ConditionVariableBroadcast(&election->changed);
}

/*
 * Wakes the transactions that rely on leadership and have begun to commit: they wait for
 * checks of the node.  Returns true if there are any.
 */
static bool
wake_commits(int i)
{
	bool any = false;

	for (int process = 0; process < zklock_max_processes(); process++)
	{
		if ((*election_stake(i, process) & STAKE_COMMIT) == 0)
			continue;
		SetLatch(&GetPGProcByNumber(process)->procLatch);
		any = true;
	}
	return any;
}

/* ------------------------------------------------------------------------
 * One candidacy
 * ------------------------------------------------------------------------
 */

/*
 * Looks at a candidacy.
 *
 *				 stand
 *		  IDLE ----------> STANDING ---------> LEAVING
 *		   ^ ^				 | ^	leave		 | |
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
 * Returns when to look at it again, ms.
 *
 *	stopping	the server shuts down, so leadership goes to others at once
 */
static int64
attend_candidacy(int i, bool stopping)
{
	static uint32 checks[ELECTION_SLOTS];
	Election	 *election = election_at(i);
	Candidacy	 *candidacy = &election->candidacy;
	bool		  may_stand = candidacy->listed && !stopping && !RecoveryInProgress();
	bool		  may_stay = may_stand;
	EntryStatus	  status = {0};
	EngineRival	  rival;
	const char	 *leave_because =
		"This server has given up leadership, and goes to the end of the queue.";

	if (candidacy->phase != CANDIDACY_IDLE)
	{
		status = entry_status(candidacy->entry);

		/* It goes on standing only with the names that its node has. */
		may_stay = may_stand && entry_at(candidacy->entry)->request.terms.family == candidacy->family;
	}

	/* The entry has come to an end without our doing. */
	if (status.state == ENTRY_LOST || status.state == ENTRY_FAILED)
	{
		int64 retry_at = 0;

		end_term(i, &status);
		if (status.state == ENTRY_LOST)
			publish_candidacy(i, CANDIDACY_OFFER,
							  psprintf("Leadership was lost. %s", failure_loss_texts[status.loss]));
		else
		{
			/* Only the first of several failed attempts in a row is logged. */
			bool first = election->status.state != CANDIDACY_FAILED;

			publish_candidacy(i, CANDIDACY_FAILED, NULL);
			if (first)
				ereport(LOG,
						(errmsg(failure_texts[status.failure].message, election->path),
						 failure_describe(status.failure, status.error_code != 0
															  ? zk_error(status.error_code).name
															  : NULL)));
			retry_at = zklock_now_ms() + STAND_AGAIN_MS;
		}
		entry_give_up(candidacy->entry, ENTRY_NO_NOTICE);
		candidacy->phase = CANDIDACY_IDLE;
		candidacy->retry_at = retry_at;
		announce_resignation(election, 0);
	}

	switch (candidacy->phase)
	{
		case CANDIDACY_STANDING:
			if (may_stay && status.state == ENTRY_GRANTED)
			{
				/* It is the first: the server leads, as far as that is proved. */
				if (lease_state() != LEASE_HOLDS)
					publish_candidacy(i, CANDIDACY_SUSPENDED,
									  "The ZooKeeper session is not proved to be alive.");
				else if (election->status.state != CANDIDACY_ELECTED)
					publish_candidacy(i, CANDIDACY_ELECTED,
									  psprintf("This server leads, in term " INT64_FORMAT ".",
											   status.token));
				else
					publish_candidacy(i, CANDIDACY_ELECTED, NULL);
				if (status.check_done != checks[i])
					(void) wake_commits(i);
				checks[i] = status.check_done;
				if (pg_atomic_read_u64(&election->resign_term) != (uint64) status.token)
				{
					announce_resignation(election, status.token);

					/* Is there one whom it lets go first, and no transaction in the way? */
					if (election->status.state != CANDIDACY_ELECTED ||
						!engine_rival(candidacy->entry, candidacy->priority, &rival))
						return NEVER;
					if (zklock_now_ms() < rival.since + PREFER_AFTER_MS &&
						!ZKLOCK_FAULT("prefer-at-once"))
						return rival.since + PREFER_AFTER_MS;
					if (!election_give_way(i))
						return zklock_now_ms() + LOOK_FOR_GAP_MS;
					ereport(LOG, (errmsg("election \"%s\": this server, of priority %d, gives way to candidate \"%s\", of priority %d",
										 election->path, candidacy->priority, rival.node,
										 rival.priority)));
				}
			}
			else if (may_stay && candidacy->stands_with != candidacy->priority &&
					 entry_at(candidacy->entry)->node.position > 0)
				leave_because = "Its priority has changed: this server goes to the end of the queue.";
			else if (may_stay)
			{
				if (entry_at(candidacy->entry)->node.position > 0)
				{
					publish_candidacy(i, CANDIDACY_READY, NULL);
					announce_resignation(election, 0); /* There is no leadership to give up. */
				}
				else if (election->status.state != CANDIDACY_FAILED)
					publish_candidacy(i, CANDIDACY_OFFER, NULL);
				return NEVER;
			}

			/* Give up leadership, or the place in the queue. */
			end_term(i, &status);
			candidacy->phase = CANDIDACY_LEAVING;
			pg_fallthrough;

		case CANDIDACY_LEAVING:
			if (wake_commits(i))
				return zklock_now_ms() + LOOK_FOR_COMMITS_MS;
			if (may_stay)
			{
				int old = candidacy->entry;

				/* Stand anew at the end of the queue, in the same step in which the old node goes. */
				publish_candidacy(i, CANDIDACY_OFFER, leave_because);
				if (stand_for_election(i, old))
				{
					entry_give_up(old, ENTRY_NO_NOTICE);
					return NEVER;
				}
			}
			entry_give_up(candidacy->entry, ENTRY_NO_NOTICE); /* the engine deletes its node */
			candidacy->phase = CANDIDACY_IDLE;
			candidacy->retry_at = 0;
			pg_fallthrough;

		case CANDIDACY_IDLE:
			if (!may_stand)
			{
				if (!candidacy->listed)
					publish_candidacy(i, CANDIDACY_GONE, "It is not in \"zklock.elections\" any more.");
				else
					publish_candidacy(i, CANDIDACY_STOP,
									  stopping ? "The server shuts down." : "The server is a standby.");
				announce_resignation(election, 0);
				return candidacy->listed ? zklock_now_ms() + LOOK_FOR_PROMOTION_MS : NEVER;
			}
			if (zklock_now_ms() < candidacy->retry_at)
				return candidacy->retry_at;
			if (stand_for_election(i, ENTRY_NONE))
			{
				publish_candidacy(i,
								  election->status.state == CANDIDACY_FAILED ? CANDIDACY_FAILED
																			 : CANDIDACY_OFFER,
								  NULL);
				return NEVER;
			}
			publish_candidacy(i, CANDIDACY_FAILED, "All of \"zklock.max_locks\" are in use.");
			candidacy->retry_at = zklock_now_ms() + STAND_AGAIN_MS;
			return candidacy->retry_at;
	}
	return NEVER;
}

/* ------------------------------------------------------------------------
 * All candidacies
 * ------------------------------------------------------------------------
 */

/*
 * Takes up zklock.elections: the elections that are new there, and those that are no longer
 * there.
 */
void
candidacy_reload(void)
{
	PathListReader reader = {.syntax = PATH_LIST_ELECTIONS, .rest = zklock_elections};
	ElectionItem   item;

	for (int i = 0; i < election_count(); i++)
		election_at(i)->candidacy.listed = false;
	while (election_list_next(&reader, &item))
	{
		int i = election_slot(item.path);

		if (i == ELECTION_NONE)
			ereport(LOG, (errmsg("election \"%s\": cannot stand there before the server is started again",
								 item.path),
						  errdetail("\"zklock.elections\" has had %d other paths since the server was started.",
									ELECTION_SLOTS)));
		else
		{
			election_at(i)->candidacy.listed = true;
			election_at(i)->candidacy.family = item.family;
			election_at(i)->candidacy.priority = item.priority;
		}
	}
}

/*
 * Looks at all of them, once per round of the main loop.  Returns when to look at one of them
 * again, ms.
 */
int64
candidacy_attend(bool stopping)
{
	int64 next = NEVER;

	for (int i = 0; i < election_count(); i++)
	{
		int64 at = attend_candidacy(i, stopping);

		next = Min(next, at);
	}
	return next;
}
