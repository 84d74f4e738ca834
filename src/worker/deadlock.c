/*
 * deadlock.c
 *		Deadlocks across servers: publishing and reading waits that last.
 *
 * While sessions of this server have waited for long, and for what another server
 * or client has, the worker goes round:
 *
 *	LIST	which records are there? (wait_records.c)
 *	LOOK	by which session is each, and when was it written?
 *	READ	those that are new
 *	ASK		what else is to be known of suspects (wait_search.c)
 *	WRITE	our own record, if what it tells has changed (own_record.c)
 *	DELETE	what of ours is there besides
 *
 * As long as nobody waits for long, and there is no record of ours, nothing is asked
 * and nothing is written.
 *
 * Two readings confirm a deadlock.  In the first, at some zxid, all its waits are
 * there, as far as the records tell.  Each server whose wait is stuck looks again
 * and writes a new record, which tells the newest zxid that it had read before.  If in
 * the second reading all servers tell the same waits, and have looked since that
 * zxid, then each wait has lasted from before it until after it, as a process that
 * waits does nothing else: at that zxid, all were there at once.  A server that is
 * gone, or stopped, does not look again, and so its old record proves nothing.
 *
 * Then the server that has the youngest wait tells its session to give up
 * (shared/verdict.c).  That is all that a record can bring about, be it true, stale
 * or forged: a session of ours ends a wait.
 *
 * What a round needs goes with its memory context.  Calls are made outside of it:
 * they outlive the handler of the last reply, with which a round ends.
 *
 * Runs in: the worker.  All of this is private to it, but for what verdict.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/queue.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/lease_state.h"
#include "shared/verdict.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "worker/deadlock.h"
#include "worker/own_record.h"
#include "worker/own_waits.h"
#include "worker/round_calls.h"
#include "worker/wait_records.h"
#include "worker/wait_search.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

/* Rounds begin no oftener, ms. */
#define SHORTEST_PAUSE_MS 50

/* A suspicion makes so many rounds so much more frequent. */
#define HASTE 4
#define HASTY_ROUNDS 40

typedef enum Step
{
	STEP_NONE, /* no round is under way */
	STEP_LIST,
	STEP_LOOK,
	STEP_READ,
	STEP_ASK,
	STEP_WRITE,
	STEP_DELETE
} Step;

/* What the first reading has found */
typedef struct Suspicion
{
	bool   any;
	uint64 fingerprint;
	int64  newest; /* zxid */
	int	   rounds; /* since */
} Suspicion;

typedef struct Round
{
	Step	 step;
	int64	 seen;	 /* newest zxid of a record that has been read */
	int64	 newest; /* of one that has to do with what we suspect */
	OwnWaits own;
	Search	*search; /* NULL if there are no suspects */
} Round;

static Round	 current;
static Suspicion suspicion;
static int64	 next_at = -1; /* the next round, ms; -1: when somebody waits for long */

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

static void
on_path_told(void *arg, const ZkReply *reply)
{
	PathFact *fact = arg;

	if (reply->outcome == ZK_OK)
	{
		fact->children = MemoryContextAllocHuge(worker_round_calls.context,
												Max(reply->nchildren, 1) * sizeof(char *));
		for (int i = 0; i < reply->nchildren; i++)
			fact->children[i] = MemoryContextStrdup(worker_round_calls.context, reply->children[i]);
		fact->nchildren = reply->nchildren;
	}
	worker_round_answered(reply->outcome == ZK_UNKNOWN ? ROUND_FAILED : ROUND_GOES_ON);
}

static void
on_node_told(void *arg, const ZkReply *reply)
{
	NodeFact *fact = arg;

	fact->is_so = reply->outcome == ZK_OK && reply->ephemeral_owner == fact->claimed;
	fact->czxid = reply->czxid;
	worker_round_answered(reply->outcome == ZK_UNKNOWN ? ROUND_FAILED : ROUND_GOES_ON);
}

/* Looks at our own waits, then at all that has been read. */
static void
search(void)
{
	MemoryContext	   old = MemoryContextSwitchTo(worker_round_calls.context);
	int				   n;
	const ReadRecord **records = worker_records_newest(&n);

	for (int i = 0; i < n; i++)
		current.seen = Max(current.seen, records[i]->czxid);
	worker_own_waits(&current.own, current.seen);
	if (current.own.n > 0)
		current.search = worker_search_suspects(records, n, our_session());
	MemoryContextSwitchTo(old);
}

static void
ask(void)
{
	Search *asked = current.search;

	for (int i = 0; i < asked->npaths; i++)
	{
		worker_round_calls.pending++;
		zk_list(ZK_WORKER, asked->paths[i].path, ZK_UNWATCHED, on_path_told, &asked->paths[i]);
	}
	for (int i = 0; i < asked->nnodes; i++)
	{
		char *path = psprintf("%s/%s", asked->nodes[i].node->path, asked->nodes[i].node->node);

		worker_round_calls.pending++;
		zk_look(ZK_WORKER, path, on_node_told, &asked->nodes[i]);
		pfree(path);
	}
}

/* Tells the session of ours that is to give up, if it still waits as it did. */
static void
pass_verdict(void)
{
	StringInfoData	  cycle;
	const SearchWait *victim;
	int				  pids[WAIT_RECORD_MAX_STEPS];

	initStringInfo(&cycle);
	victim = worker_search_victim(current.search, &cycle);
	for (int i = 0; victim && i < victim->nsteps; i++)
		pids[i] = victim->steps[i].number;
	for (int i = 0; victim && i < current.own.n; i++)
	{
		const OwnWait *own = &current.own.waits[i];

		if (own->identity != victim->line->number)
			continue;
		(void) entry_condemn(own->entry, own->generation,
							 verdict_pass(cycle.data, pids, victim->nsteps));
		suspicion.any = false;
		return;
	}
}

/* Weighs what has been read twice by now. */
static void
judge(void)
{
	MemoryContext old = MemoryContextSwitchTo(worker_round_calls.context);
	uint64		  fingerprint;
	int64		  seen;

	worker_search_verify(current.search);
	if (!worker_search_is_stuck(current.search, &fingerprint, &current.newest, &seen))
		suspicion.any = false;
	else if (!suspicion.any || suspicion.fingerprint != fingerprint)
		suspicion = (Suspicion){.any = true, .fingerprint = fingerprint, .newest = current.newest};
	else if (seen >= suspicion.newest)
		pass_verdict();
	suspicion.rounds++;
	MemoryContextSwitchTo(old);
}

/* ------------------------------------------------------------------------
 * A round
 * ------------------------------------------------------------------------
 */

/* Has what we tell changed, or do others need to know that it has not? */
static bool
has_news(void)
{
	return !worker_own_record_tells(current.own.body) ||
		   (suspicion.any && worker_own_record_seen() < current.newest);
}

/* Makes the calls of a step, if any are needed. */
static void
take_step(void)
{
	switch (current.step)
	{
		case STEP_NONE:
			break;
		case STEP_LIST:
			worker_records_list();
			break;
		case STEP_LOOK:
			worker_records_look();
			break;
		case STEP_READ:
			worker_records_read();
			break;
		case STEP_ASK:
			search();
			if (current.search)
				ask();
			break;
		case STEP_WRITE:
			if (current.search)
				judge();
			else
				suspicion.any = false;
			if (current.own.n > 0 && has_news())
				worker_own_record_write(&current.own, current.seen);
			break;
		case STEP_DELETE:
			if (current.own.n == 0)
				worker_own_record_withdraw();
			worker_own_record_delete_remains();
			break;
	}
}

/* Ends the round; the next one comes soon if there is a suspicion. */
static void
end_round(void)
{
	bool  done = !worker_round_calls.failed && current.own.n == 0;
	bool  hasty = suspicion.any && suspicion.rounds <= HASTY_ROUNDS;
	int64 pause = hasty ? DeadlockTimeout / HASTE : DeadlockTimeout;

	if (done)
		verdicts->record_may_exist = false;
	next_at = worker_round_calls.again ? 0 : zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);
	current.step = STEP_NONE;
	MemoryContextDelete(worker_round_calls.context);
	worker_round_calls.context = NULL;
}

/* Takes the next steps, as long as nothing is to be waited for. */
static void
go_on(void)
{
	while (worker_round_calls.pending == 0 && current.step != STEP_NONE)
	{
		if (worker_round_calls.failed || current.step == STEP_DELETE || !zk_client_connected())
			end_round();
		else
		{
			current.step++;
			take_step();
		}
	}
}

static void
begin_round(void)
{
	if (worker_own_record_begin())
		suspicion.any = false;
	next_at = -1;
	current.step = STEP_LIST;
	worker_round_calls.failed = false;
	worker_round_calls.again = false;
	worker_round_calls.go_on = go_on;
	current.seen = 0;
	current.newest = 0;
	current.own.n = 0;
	current.search = NULL;
	worker_round_calls.context =
		AllocSetContextCreate(TopMemoryContext, "zklock deadlock round", ALLOCSET_DEFAULT_SIZES);
	take_step();
}

/* Have we anything to tell others, or told them anything? */
static bool
is_concerned(void)
{
	MemoryContext context;
	MemoryContext old;
	OwnWaits	  own;

	if (verdicts->record_may_exist)
		return true;
	context = AllocSetContextCreate(TopMemoryContext, "zklock long waits", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	worker_own_waits(&own, 0);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return own.n > 0;
}

/* Begins a round if one is due. */
void
worker_deadlock_attend(void)
{
	if (current.step != STEP_NONE || (next_at >= 0 && zklock_now_ms() < next_at))
		return;
	if (!verdicts->record_may_exist && !queue_has_long_waits())
		next_at = -1;
	else if (zk_client_connected() && lease_state() == LEASE_HOLDS && our_session() != 0 &&
			 is_concerned())
		begin_round();
	else
		next_at = zklock_now_ms() + Max(DeadlockTimeout, SHORTEST_PAUSE_MS);
}

/* When worker_deadlock_attend() wants to run next at the latest, ms; or -1. */
int64
worker_deadlock_next_wakeup(void)
{
	return current.step == STEP_NONE ? next_at : -1;
}
