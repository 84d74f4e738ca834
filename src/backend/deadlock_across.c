/*
 * deadlock_across.c
 *		Deadlocks across servers: one waiting session searches for all of its server.
 *
 * While sessions of this server have waited for long, and for what another server
 * or client has, one of them (shared/search.c) looks again and again:
 *
 *	- which records are there, and what do the new ones tell? (wait_records.c)
 *	- what do we have to tell? (own_waits.c)
 *	- is a wait of ours stuck, by what all tell together? (wait_search.c)  What does
 *	  ZooKeeper know of such suspects? (wait_facts.c)
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
 * that a record can bring about, whether it is true, stale or forged: a session of ours
 * ends a wait.
 *
 * Runs in: backends.  shared/search.h says what is shared; all else is the session's.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/deadlock.h"
#include "backend/display.h"
#include "backend/waits.h"
#include "miscadmin.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/proc.h"
#include "utils/memutils.h"

/* Searches begin no oftener, ms. */
#define SHORTEST_PAUSE_MS 50

/* A suspicion makes so many searches so much more frequent. */
#define HASTE 4
#define HASTY_SEARCHES 40

/* An answer is not waited for any longer, ms; nobody tells that the worker is gone. */
#define PATIENCE_MS 10000

static int	 searcher = ENTRY_NONE; /* our entry, if this session searches */
static int64 next_at;				/* the next search, ms */

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

/* Raises the error: who waits for whom, from this session on, and what ours of them run */
static void
report(const Search *search, int victim)
{
	StringInfoData cycle;
	StringInfoData queries;
	int			   at = victim;

	initStringInfo(&cycle);
	initStringInfo(&queries);
	do
	{
		const SearchWait *wait = &search->waits[at];
		int				  next = search->graph.vertices[at].parent;
		bool			  behind = wait_search_is_behind(search, at, next);

		if (next >= search->nwaits)
			next = search->graph.vertices[next].parent; /* who holds the permit's node */
		appendStringInfo(&cycle, "%sProcess %d of server \"%s\" waits for %s%s; blocked by process %d of server \"%s\".",
						 cycle.len > 0 ? "\n" : "", wait->line->pid, wait->record->server,
						 wait->line->text, behind ? " behind another contender" : "",
						 search->waits[next].line->pid, search->waits[next].record->server);
		if (wait->record->owner == search->session)
			deadlock_append_query(&queries, wait->line->pid);
		at = next;
	} while (at != victim);
	deadlock_report(display_utf8(cycle.data), queries.data);
}

/*
 * Has the session of ours that is to give up do so: if it is another one, it searches
 * from now on, and comes to the same conclusion.
 */
static void
end_deadlock(SearchRound *round, Search *search)
{
	const Waits *waits = &round->own.waits;
	int			 victim = wait_search_victim(search);

	for (int i = 0; victim != WAIT_GRAPH_NONE && i < waits->graph.nvertices; i++)
	{
		const WaitsContender *waiting = waits_process(waits, i)->waiting;

		if (waiting && waits_identity(waits, i) == search->waits[victim].line->number)
			round->victim = waiting->index;
	}
	if (round->victim != round->index)
		return;
	round->suspicion.any = false;
	search_suspect(&round->suspicion);
	report(search, victim);
}

/*
 * Weighs what has been read twice by now: the waits of ours that are stuck, and all for
 * which they wait.
 *
 *	fingerprint	the same only for the same waits
 *	seen		what all of their writers had seen before they looked
 */
static void
judge(SearchRound *round, Search *search)
{
	SearchSuspicion *suspicion = &round->suspicion;
	uint64			 fingerprint = 0;
	int64			 seen = PG_INT64_MAX;
	const bool		*stuck;

	wait_search_verify(search);
	stuck = wait_search_stuck(search);
	round->newest = 0;
	for (int i = 0; stuck && i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];

		if (!stuck[i])
			continue;
		fingerprint += wait->line->number * 31 + (uint64) wait->record->owner;
		round->newest = Max(round->newest, wait->record->czxid);
		seen = Min(seen, wait->record->seen);
	}
	if (stuck == NULL)
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

/* Searches once.  Returns at once when the session has something else to do. */
static void
search_once(SearchRound *round)
{
	const ReadRecord **newest;
	Search			  *search;
	const bool		  *suspects;
	int				   n;
	int64			   seen = 0;

	if (!wait_search_await(round, search_ask_engine()))
		return;
	own_waits_take(&round->own, 0, &round->signs);
	if ((!round->own.any && !search_has_record(NULL)) || !wait_records_read(round))
		return;
	newest = wait_records_newest(&n);
	for (int i = 0; i < n; i++)
		seen = Max(seen, newest[i]->czxid);

	/* Our own waits are looked at behind those of others. */
	own_waits_take(&round->own, seen, &round->signs);
	if (!round->own.any)
	{
		round->suspicion.any = false;
		search_withdraw();
		return;
	}
	search = wait_search_begin(newest, n, round->session);
	suspects = wait_search_stuck(search);
	if (suspects == NULL)
		round->suspicion.any = false;
	else if (wait_facts_ask(round, search, suspects))
		judge(round, search);
	else
		return;
	if (!search_is_told(round->own.record.data + round->own.body,
						round->suspicion.any ? round->newest : 0))
		search_publish(round->session, round->own.record.data, round->own.body, seen);
}

/* When is the next search due?  Soon if there is a suspicion. */
static int64
next_search(const SearchRound *round)
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
	wait_records_forget();
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
	SearchRound	 *round;
	CallAway	  away = {.is_called = wait_search_is_called_away};

	if (!search_take_over(index))
	{
		forget();
		return;
	}
	if (searcher == ENTRY_NONE)
		next_at = 0;
	searcher = index;
	if (zklock_now_ms() < next_at)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "zklock search", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	round = palloc0(sizeof(SearchRound));
	round->index = index;
	round->until = Min(until, zklock_now_ms() + PATIENCE_MS);
	away.arg = round;
	round->call = (Call){.until = round->until, .away = &away};
	round->signs.deadlock_timeout = DeadlockTimeout;
	round->suspicion = search_suspicion();
	round->victim = ENTRY_NONE;
	if (zklock_connected() && lease_state() == LEASE_HOLDS)
		search_once(round);
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

	/* Records that came meanwhile are still to be looked at. */
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
