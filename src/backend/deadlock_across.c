/*
 * deadlock_across.c
 *		Deadlocks across servers: one waiting session searches for all of its server.
 *
 * While sessions of this server have waited for long, and for what another server
 * or client has, one of them (shared/search.c) looks again and again:
 *
 *	- which records are there, and what do the new ones tell?
 *	- what do we have to tell? (own_waits.c)
 *	- is a wait of ours stuck, by what all tell together? (wait_search.c)  What does
 *	  ZooKeeper know of such suspects?
 *	- if what we tell has changed, a new record of ours is wanted
 *
 * in this order.  As long as nobody waits for long, and there is no record of ours,
 * nothing is asked and nothing is written.
 *
 * Two readings confirm a deadlock.  In the first, at some zxid, all its waits are
 * there, as far as the records tell.  Each server whose wait is stuck looks again
 * and writes a new record, which tells the newest zxid that it had read before.  If in
 * the second reading all servers tell the same waits, and have looked since that
 * zxid, then each wait has lasted from before it until after it, as a process that
 * waits does nothing else: at that zxid, all were there at once.  A server that is
 * gone, or stopped, does not look again, and so its old record proves nothing.
 *
 * Then the session that has the youngest wait gives up, on its server.  That is all
 * that a record can bring about, be it true, stale or forged: a session of ours ends a
 * wait.
 *
 * The session waits for ZooKeeper's answers and for its own lock at once: when the
 * latter has anything to say, the search is given up in the middle.  Nothing here
 * raises an error because of ZooKeeper.
 *
 * Runs in: backends.  shared/search.h says what is shared; all else is the session's.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/deadlock.h"
#include "backend/wait_search.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "shared/worker_process.h"
#include "storage/proc.h"
#include "utils/memutils.h"

/* Searches begin no oftener, ms. */
#define SHORTEST_PAUSE_MS 50

/* A suspicion makes so many searches so much more frequent. */
#define HASTE 4
#define HASTY_SEARCHES 40

/* Another session takes over from one that searches and is not heard of for so long, ms. */
#define SILENCE_MS 5000

/* An answer is not waited for any longer, ms; nobody tells that the worker is gone. */
#define PATIENCE_MS 10000
#define LOOK_MS 1000

/* No more records are read: one for each server. */
#define MAX_RECORDS 256

/* So much is asked at once; answers may be long. */
#define MAX_STEPS 16

/* A record below WAIT_RECORD_ROOT, in a memory context of its own */
typedef struct Found
{
	MemoryContext context;
	char		  name[RECORD_NAME_LENGTH + 1];
	bool		  is_read;
	bool		  good; /* it is its session's, and of this form */
	ReadRecord	  record;
} Found;

/* A search, in a memory context that is deleted at its end */
typedef struct Round
{
	int				index; /* the entry of this session */
	int64			until; /* it has something else to do, ms */
	Call			call;
	int64			session; /* ours, in ZooKeeper */
	SearchSigns		signs;
	int64			newest; /* zxid of a record that has to do with what we suspect */
	OwnWaits		own;
	SearchSuspicion suspicion;
	int victim; /* an entry: its session is to search, and will give up; or ENTRY_NONE */
} Round;

static int			 searcher = ENTRY_NONE; /* our entry, if this session searches */
static MemoryContext keeping;				/* what is kept from search to search */
static List			*records; /* of Found: what was read once is not read again */
static int64		 next_at; /* the next search, ms */

/* ------------------------------------------------------------------------
 * Waiting for answers
 * ------------------------------------------------------------------------
 */

/* Has the session something better to do than to wait for an answer? */
static bool
is_called_away(const Round *round)
{
	return entry_status(round->index).state != CONTENDER_QUEUED || InterruptPending ||
		   zklock_worker_pid() == 0 || zklock_now_ms() >= round->until ||
		   !search_take_over(round->index, SILENCE_MS);
}

/* Waits until the worker has answered: the engine's question of that number, or for 0 a call. */
static bool
await(Round *round, uint32 question)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (question != 0 ? search_engine_answered(question, &round->signs)
						  : call_is_answered(&round->call))
			return true;
		if (is_called_away(round))
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(Max(round->until - zklock_now_ms(), 0), LOOK_MS),
						 zklock_wait_event(ZKLOCK_WAIT_LOCK));
	}
}

/* How many of these calls fit into one question? */
static int
count_fitting(const CallStep *steps, int n)
{
	Size length = 0;
	int	 fitting = 0;

	for (; fitting < Min(n, MAX_STEPS); fitting++)
	{
		length += sizeof(CallOperation) + strlen(steps[fitting].path) + 2;
		if (length > CALL_BUFFER_SIZE)
			break;
	}
	return fitting;
}

/*
 * Makes calls.  Returns false if not all are answered as they should be, or in
 * another ZooKeeper session than those before: then the search is given up.
 */
static bool
make_calls(Round *round, CallStep *steps, int n, CallSight sight)
{
	for (int done = 0, some; done < n; done += some)
	{
		some = count_fitting(steps + done, n - done);
		if (!call_begin(&round->call, steps + done, some, sight))
			return false;
		if (!await(round, 0))
		{
			call_drop(&round->call);
			return false;
		}
		call_take(&round->call, steps + done, some);
		if (round->session != 0 && round->call.session != round->session)
			return false;
		for (int i = done; i < done + some; i++)
		{
			if (steps[i].result.outcome == CALL_UNKNOWN || steps[i].result.outcome == CALL_UNREACHABLE)
				return false;
		}
	}
	return true;
}

static char *
path_of(const char *parent, const char *name)
{
	return psprintf("%s/%s", parent, name);
}

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

static Found *
find_record(const char *name)
{
	ListCell *cell;

	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (strcmp(found->name, name) == 0)
			return found;
	}
	return NULL;
}

static Found *
new_record(const char *name)
{
	MemoryContext context =
		AllocSetContextCreate(keeping, "zklock wait record", ALLOCSET_SMALL_SIZES);
	Found *found = MemoryContextAllocZero(context, sizeof(Found));

	found->context = context;
	strlcpy(found->name, name, sizeof(found->name));
	return found;
}

/* Keeps the records that are there, known or new, and forgets those that are not. */
static void
take_listing(const CallStep *list)
{
	MemoryContext old = MemoryContextSwitchTo(keeping);
	List		 *listed = NIL;
	ListCell	 *cell;

	for (int i = 0; i < list->result.nchildren && list_length(listed) < MAX_RECORDS; i++)
	{
		const char *name = list->children[i];
		Found	   *found;

		if (search_record_session(name) == 0)
			continue;
		found = find_record(name);
		listed = lappend(listed, found ? found : new_record(name));
	}
	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (!list_member_ptr(listed, found))
			MemoryContextDelete(found->context);
	}
	list_free(records);
	records = listed;
	MemoryContextSwitchTo(old);
}

/* Takes in what a node's data tell.  What bears the name of another session is left alone. */
static void
take_record(Found *found, const CallStep *step)
{
	MemoryContext old;
	char		 *text;

	found->is_read = true;
	if (step->result.outcome != CALL_OK || step->read == NULL ||
		step->result.ephemeral_owner != search_record_session(found->name))
		return;
	old = MemoryContextSwitchTo(found->context);
	text = palloc(step->result.text_length + 1);
	memcpy(text, step->read, step->result.text_length);
	found->record.owner = step->result.ephemeral_owner;
	found->record.czxid = step->result.czxid;
	found->good = wait_search_parse(&found->record, text, step->result.text_length);
	MemoryContextSwitchTo(old);
}

/* Reads those that are new. */
static bool
read_records(Round *round)
{
	CallStep *steps = palloc0((list_length(records) + 1) * sizeof(CallStep));
	Found	**unread = palloc((list_length(records) + 1) * sizeof(Found *));
	int		  n = 0;
	ListCell *cell;

	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (found->is_read)
			continue;
		steps[n].kind = OP_READ;
		steps[n].path = path_of(WAIT_RECORD_ROOT, found->name);
		steps[n].most = WAIT_RECORD_MAX;
		unread[n++] = found;
	}
	if (!make_calls(round, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
		take_record(unread[i], &steps[i]);
	return true;
}

/* Deletes what bears the name of our session and is no record of ours, such as a forged one. */
static bool
delete_remains(Round *round)
{
	CallStep *steps = palloc0((list_length(records) + 1) * sizeof(CallStep));
	int		  n = 0;
	ListCell *cell;

	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (search_record_session(found->name) != round->session || search_has_record(found->name))
			continue;
		found->good = false;
		steps[n].kind = OP_DELETE;
		steps[n++].path = path_of(WAIT_RECORD_ROOT, found->name);
	}
	return make_calls(round, steps, n, CALL_AS_KNOWN);
}

/* Which records are there, and what do they tell? */
static bool
take_records(Round *round)
{
	CallStep list = {.kind = OP_LIST, .path = WAIT_RECORD_ROOT};

	if (!make_calls(round, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	round->session = round->call.session;
	take_listing(&list);
	return read_records(round) && delete_remains(round);
}

/* The newest record of each session, palloc'd; "n" gets their number. */
static const ReadRecord **
newest_records(int *n)
{
	const ReadRecord **newest = palloc((list_length(records) + 1) * sizeof(ReadRecord *));
	ListCell		  *cell;

	*n = 0;
	foreach(cell, records)
	{
		const Found *found = lfirst(cell);
		int			 k = 0;

		if (!found->good)
			continue;
		while (k < *n && newest[k]->owner != found->record.owner)
			k++;
		if (k == *n)
			newest[(*n)++] = &found->record;
		else if (newest[k]->czxid < found->record.czxid)
			newest[k] = &found->record;
	}
	return newest;
}

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

/* Asks ZooKeeper for the facts that the search needs. */
static bool
ask_for_facts(Round *round, Search *search)
{
	int		  n = search->npaths + search->nnodes;
	CallStep *steps = palloc0(n * sizeof(CallStep));

	for (int i = 0; i < n; i++)
	{
		bool			is_path = i < search->npaths;
		const WaitLine *node = is_path ? NULL : search->nodes[i - search->npaths].node;

		steps[i].kind = is_path ? OP_LIST : OP_LOOK;
		steps[i].path = is_path ? search->paths[i].path : path_of(node->path, node->node);
	}
	if (!make_calls(round, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
	{
		const CallResult *result = &steps[i].result;

		if (i < search->npaths)
		{
			search->paths[i].children = steps[i].children;
			search->paths[i].nchildren = result->nchildren;
		}
		else
		{
			NodeFact *fact = &search->nodes[i - search->npaths];

			fact->is_so = result->outcome == CALL_OK && result->ephemeral_owner == fact->claimed;
			fact->czxid = result->czxid;
		}
	}
	return true;
}

/*
 * Has the session of ours that is to give up do so: if it is another one, it searches
 * from now on, and comes to the same conclusion.
 */
static void
end_deadlock(Round *round, Search *search)
{
	StringInfoData	  cycle;
	const SearchWait *victim;
	int				  pids[WAIT_RECORD_MAX_STEPS];

	initStringInfo(&cycle);
	victim = wait_search_victim(search, &cycle);
	for (int i = 0; victim && i < round->own.n; i++)
	{
		if (round->own.waits[i].identity == victim->line->number)
			round->victim = round->own.waits[i].entry;
	}
	if (round->victim != round->index)
		return;
	for (int i = 0; i < victim->nsteps; i++)
		pids[i] = victim->steps[i].number;
	round->suspicion.any = false;
	search_suspect(&round->suspicion);
	deadlock_report(cycle.data, pids, victim->nsteps);
}

/* Weighs what has been read twice by now. */
static void
judge(Round *round, Search *search)
{
	SearchSuspicion *suspicion = &round->suspicion;
	uint64			 fingerprint;
	int64			 seen;

	wait_search_verify(search);
	if (!wait_search_is_stuck(search, &fingerprint, &round->newest, &seen))
		suspicion->any = false;
	else if (!suspicion->any || suspicion->fingerprint != fingerprint)
		*suspicion =
			(SearchSuspicion){.any = true, .fingerprint = fingerprint, .newest = round->newest};
	else if (seen >= suspicion->newest)
		end_deadlock(round, search);
	suspicion->searches++;
}

/* ------------------------------------------------------------------------
 * A search
 * ------------------------------------------------------------------------
 */

/* Has what we have to tell told to others. */
static void
publish(const Round *round, int64 seen)
{
	char   name[RECORD_NAME_LENGTH + 1];
	uint32 number;

	if (!pg_strong_random(&number, sizeof(number)))
		return;
	snprintf(name, sizeof(name), "%016llx-%08x", (unsigned long long) round->session, number);
	search_publish(name, round->own.record, round->own.body, seen);
}

/* Searches once.  Returns at once when the session has something else to do. */
static void
search(Round *round)
{
	const ReadRecord **newest;
	Search			  *suspects;
	int				   n;
	int64			   seen = 0;

	if (!await(round, search_ask_engine()))
		return;
	own_waits_take(&round->own, 0, &round->signs);
	if ((round->own.n == 0 && !search_has_record(NULL)) || !take_records(round))
		return;
	newest = newest_records(&n);
	for (int i = 0; i < n; i++)
		seen = Max(seen, newest[i]->czxid);

	/* What we have is looked at behind what others tell. */
	own_waits_take(&round->own, seen, &round->signs);
	if (round->own.n == 0)
	{
		round->suspicion.any = false;
		search_withdraw();
		return;
	}
	suspects = wait_search_suspects(newest, n, round->session);
	if (suspects == NULL)
		round->suspicion.any = false;
	else if (ask_for_facts(round, suspects))
		judge(round, suspects);
	else
		return;
	if (!search_is_told(round->own.record + round->own.body, round->suspicion.any ? round->newest : 0))
		publish(round, seen);
}

/* When is the next search due?  Soon if there is a suspicion. */
static int64
next_search(const Round *round)
{
	int pause = round->signs.deadlock_timeout;

	if (round->suspicion.any && round->suspicion.searches <= HASTY_SEARCHES)
		pause /= HASTE;
	return zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);
}

/* This session searches no more. */
static void
forget(void)
{
	searcher = ENTRY_NONE;
	records = NIL;
	if (keeping)
		MemoryContextDelete(keeping);
	keeping = NULL;
}

/*
 * The session has waited for deadlock_timeout, with that entry: it searches for
 * deadlocks across servers if no other session does, and if that is due.
 *
 *	until	it has something else to do then, ms
 */
void
deadlock_across_attend(int index, int64 until)
{
	MemoryContext context;
	MemoryContext old;
	Round		 *round;

	if (!search_take_over(index, SILENCE_MS))
	{
		forget();
		return;
	}
	if (searcher == ENTRY_NONE)
	{
		keeping = AllocSetContextCreate(TopMemoryContext, "zklock wait records", ALLOCSET_SMALL_SIZES);
		next_at = 0;
	}
	searcher = index;
	if (zklock_now_ms() < next_at)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "zklock search", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	round = palloc0(sizeof(Round));
	round->index = index;
	round->until = Min(until, zklock_now_ms() + PATIENCE_MS);
	round->signs.deadlock_timeout = DeadlockTimeout;
	round->suspicion = search_suspicion();
	round->victim = ENTRY_NONE;
	if (zklock_connected() && lease_state() == LEASE_HOLDS)
		search(round);
	next_at = next_search(round);
	if (search_is_ours(index))
		search_suspect(&round->suspicion);
	if (round->victim != ENTRY_NONE)
	{
		search_leave(index, round->victim);
		forget();
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);

	/* What came meanwhile is still to be looked at. */
	SetLatch(MyLatch);
}

/* Does this session search, or is it to, with that entry? */
bool
deadlock_across_concerns(int index)
{
	return searcher != ENTRY_NONE || search_is_ours(index);
}

/* When this session wants to attend next, ms; or -1. */
int64
deadlock_across_next_wakeup(void)
{
	return searcher != ENTRY_NONE ? next_at : -1;
}

/* Another entry that waits for long, or ENTRY_NONE */
static int
find_successor(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		const EntryRequest *request = &entry_at(i)->request;

		if (i != searcher && entry_status(i).state == CONTENDER_QUEUED &&
			request->proc_number != ENTRY_NO_LATCH && !request->nowait &&
			TimestampDifferenceExceeds(request->requested_at, GetCurrentTimestamp(), DeadlockTimeout))
			return i;
	}
	return ENTRY_NONE;
}

/* The session's wait has ended, however that came.  Cannot fail. */
void
deadlock_across_leave(void)
{
	if (searcher == ENTRY_NONE)
		return;
	search_leave(searcher, find_successor());
	forget();
}
