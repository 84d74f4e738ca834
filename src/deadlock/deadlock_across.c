/*
 * deadlock_across.c
 *		Deadlocks across servers: one waiting session searches for all of its server.
 *
 * While sessions of this server have long been waiting, one of them asks the engine again
 * and again whether they wait for another server or client, which costs ZooKeeper one sync.
 * If they do, and others need to know, it goes on in this order:
 *
 *	- It reads which records exist, and the new ones (wait_records.c).
 *	- It takes the waits of this server (own_waits.c).
 *	- It looks whether a wait of ours is stuck, by all records together, and by what
 *	  ZooKeeper confirms of the suspects (wait_search.c).
 *	- It weighs the deadlocks that our waits are to end (judge_deadlocks()).
 *	- It publishes a new record if the waits of this server have changed, or if others need
 *	  one that was made after theirs had been read.
 *
 * As long as no session waits for long, nothing is asked.
 *
 * Two readings confirm a deadlock, that is the waits of a component and those for which it
 * waits.  Waits that are merely behind it do not count, as the crowd may differ from one
 * look to the next.  In the first reading, at some zxid, all these waits exist, as far as
 * the records say.  Each server whose wait is stuck looks again and writes a new record,
 * with the newest zxid that it had read before.  If in the second reading the records of
 * all these servers have the same waits, and were made by looks after that zxid, then each
 * wait has lasted from before it until after it, as a process that waits does nothing else:
 * at that zxid, all existed together.  A server that is gone, or stopped, does not look
 * again, and so its old record proves nothing.
 *
 * Then the session with the youngest wait gives up, on its server.  That is all that a
 * record can cause, whether it is true, stale or forged: a session of ours ends a wait.
 *
 * Runs in: backends.  shared/deadlock_search.h says what is shared; all else is the
 * session's.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "deadlock/deadlock.h"
#include "deadlock/deadlock_internal.h"
#include "fault.h"
#include "miscadmin.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/proc.h"

/* Shortest pause between two searches, ms */
#define SHORTEST_PAUSE_MS 50

/* After a new suspicion, HASTY_SEARCHES searches follow each other HASTE times as fast. */
#define HASTE 4
#define HASTY_SEARCHES 40

/*
 * An unknown contender in the cycle may be a wait that its server has not published yet:
 * this many searches are made before the error reports it as unknown.
 */
#define PATIENT_SEARCHES (2 * HASTE)

/* How often search_lock is tried, once in a millisecond */
#define LOCK_TRIES 100

/* Longest wait for an answer, ms; there may be no worker to answer */
#define PATIENCE_MS 10000

/* Another session takes over from one that searches and has been silent for this long, ms. */
#define SILENCE_MS 5000

static int64 next_at; /* when the next search is due, ms */

/* ------------------------------------------------------------------------
 * Which session searches
 *
 * It is named by its entry.  Another session takes over when that one no longer waits, or
 * has not looked here for too long.  A session that stops waiting names a successor and
 * wakes it, and a session that finds that another one's wait is to be given up has that one
 * search.
 * ------------------------------------------------------------------------
 */

/*
 * Takes search_lock.  Returns false if its holder seems to have been stopped: who waits for an
 * LWLock can be neither cancelled nor terminated.
 */
static bool
lock_search(void)
{
	for (int tries = 0; !LWLockConditionalAcquire(search_lock, LW_EXCLUSIVE); tries++)
	{
		if (tries == LOCK_TRIES)
			return false;
		pg_usleep(1000);
	}
	if (ZKLOCK_FAULT("stop-search"))
		(void) raise(SIGSTOP);
	return true;
}

/* Returns true if an entry waits, in that generation. */
static bool
is_waiting(int index, uint32 generation)
{
	return index != ENTRY_NONE && entry_status(index).state == ENTRY_QUEUED &&
		   entry_generation(index) == generation;
}

/*
 * Returns true if the session of this entry, which waits, is the one that searches.  If the
 * one that did waits no more, or has been silent for too long, this one takes over.
 *
 *	findings	set to what the last search has left, if that can be read
 */
static bool
take_over(int index, SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	int64			now = zklock_now_ms();
	bool			is_ours;

	if (!lock_search())
		return false;
	if (!is_waiting(search->searcher, search->generation) || now - search->alive_at > SILENCE_MS)
	{
		search->searcher = index;
		search->generation = entry_generation(index);
	}
	is_ours = search->searcher == index;
	if (is_ours)
		search->alive_at = now;
	if (is_ours && pg_atomic_exchange_u32(&search->reloaded, 0) != 0)
		search->findings.next_at = 0;
	*findings = search->findings;
	LWLockRelease(search_lock);
	return is_ours;
}

/*
 * Has the session of another entry search from now on, or none for ENTRY_NONE, if the
 * session of this entry does now.  The other one is woken; it may be the same.  If the lock
 * cannot be had, another session takes over later, and what was found is found again.
 *
 *	findings	what the search has left, or NULL if there was none
 */
static void
pass_on(int index, int next, const SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	bool			was_ours;

	if (!lock_search())
		return;
	was_ours = search->searcher == index;
	if (was_ours)
	{
		search->searcher = next;
		search->generation = next == ENTRY_NONE ? 0 : entry_generation(next);
		search->alive_at = zklock_now_ms();
		if (findings)
			search->findings = *findings;
	}
	LWLockRelease(search_lock);
	if (was_ours && next != ENTRY_NONE)
		entry_set_owner_latch(entry_at(next));
}

/*
 * Returns the entry, except ours, that has waited longest, or ENTRY_NONE if none has waited
 * for deadlock_timeout.  It will probably go on waiting, so searches follow each other even
 * where most waits soon end.
 */
static int
find_next_searcher(int ours)
{
	int64 since = zklock_now_us() - INT64CONST(1000) * DeadlockTimeout;
	int	  found = ENTRY_NONE;

	for (int i = 0; i < entries_max(); i++)
	{
		const EntryRequest *request = &entry_at(i)->request;

		if (i != ours && entry_status(i).state == ENTRY_QUEUED && request->proc_number != ENTRY_NO_LATCH &&
			request->manner == ASK_AND_WAIT && request->requested_us <= since)
		{
			found = i;
			since = request->requested_us;
		}
	}
	return found;
}

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

static WaitDescription
describe_recorded(const void *arg, int vertex)
{
	const Search	 *search = arg;
	const SearchWait *wait;

	if (vertex >= search->nwaits)
		return (WaitDescription){.pid = 0}; /* an unknown contender */
	wait = &search->waits[vertex];
	return (WaitDescription){.pid = wait->line->pid,
							 .where = psprintf(" of server \"%s\"", wait->record->lines->text),
							 .what = wait->line->text,
							 .is_ours = wait->record->owner == search->session};
}

/* Returns true if the cycle that a victim ends leads through an unknown contender. */
static bool
has_unknown_contender(const Search *search, int victim)
{
	int at = search->graph.vertices[victim].parent;

	while (at != victim && at < search->nwaits)
		at = search->graph.vertices[at].parent;
	return at != victim;
}

/* Returns the process of ours whose wait is in our record, if it still waits; else NULL. */
static const WaitsProcess *
find_waiting(Search *search, int wait)
{
	const WaitLine	   *line = search->waits[wait].line;
	const WaitsProcess *process = waits_explore(&search->own, line->pid);

	return process->waiting && waits_identity(process) == line->number ? process : NULL;
}

/*
 * Ends a wait of ours.  If that is another session's, it searches from now on, and comes to
 * the same conclusion.
 */
static void
end_deadlock(Search *search, int victim)
{
	search->next = (*find_waiting(search, victim)->waiting)->index;
	if (search->next == search->index && wait_search_is_victim(search, victim))
		deadlock_report(&search->graph, victim, describe_recorded, search);
}

/*
 * Weighs a deadlock that a wait of ours is to end, by the records of all waits for which
 * that one waits: those merely behind it do not matter.
 *
 *	before	what earlier searches have found
 *
 * Returns the suspicion if it is confirmed; else NULL.
 */
static Suspicion *
weigh(Search *search, int victim, const SearchFindings *before)
{
	SearchFindings *findings = &search->findings;
	Suspicion		now = {.fingerprint = 0};
	int64 seen = PG_INT64_MAX; /* the writers of all these records had read up to this zxid
								* before they looked */
	Suspicion *kept;

	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];

		if (!search->graph.vertices[i].reached)
			continue;
		now.fingerprint += wait->line->number * 31 + (uint64) wait->record->owner;
		now.newest = Max(now.newest, wait->record->czxid);
		seen = Min(seen, (int64) wait->record->lines->number);
	}
	for (int i = 0; i < before->nsuspicions; i++)
	{
		if (before->suspicions[i].fingerprint == now.fingerprint)
			now = before->suspicions[i];
	}
	if (findings->nsuspicions == MAX_SUSPICIONS)
		return NULL;
	kept = &findings->suspicions[findings->nsuspicions++];
	*kept = now;
	if (kept->searches++ == 0)
	{
		findings->searches = 0;
		return NULL;
	}
	if (seen < now.newest ||
		(now.searches < PATIENT_SEARCHES && has_unknown_contender(search, victim)))
		return NULL;
	return kept;
}

/*
 * Weighs each deadlock that our waits are to end.  If several are confirmed, they take
 * turns, so that a session that is stopped, and so does not give up, hides no other
 * deadlock.
 */
static void
judge_deadlocks(Search *search)
{
	SearchFindings *findings = &search->findings;
	SearchFindings	before = *findings;
	int				victim = WAIT_GRAPH_NONE;
	Suspicion	   *chosen = NULL;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (search->graph.vertices[i].reached)
			search->newest = Max(search->newest, search->waits[i].record->czxid);
	}
	findings->nsuspicions = 0;
	for (int i = 0; i < search->nwaits; i++)
	{
		Suspicion *confirmed = NULL;

		if (wait_search_is_victim(search, i) && find_waiting(search, i))
			confirmed = weigh(search, i, &before);
		if (confirmed && (chosen == NULL || confirmed->passes < chosen->passes))
		{
			victim = i;
			chosen = confirmed;
		}
	}
	findings->searches = search->newest != 0 ? findings->searches + 1 : 0;
	if (chosen)
	{
		chosen->passes++;
		end_deadlock(search, victim);
	}
}

/* ------------------------------------------------------------------------
 * A search
 * ------------------------------------------------------------------------
 */

/* Returns true if the session has something else to do than to wait for an answer. */
static bool
is_called_away_from_search(void *arg)
{
	const Search  *search = arg;
	SearchFindings findings;

	return entry_status(search->index).state != ENTRY_QUEUED || InterruptPending ||
		   !zklock_connected() || zklock_now_ms() >= search->call.until ||
		   !take_over(search->index, &findings);
}

/* Searches once.  Returns at once when the session has something else to do. */
static void
search_once(Search *search)
{
	CallStep	ask_engine = {.asked = {.kind = ZK_REMOTE_WAITS, .path = "/"}};
	const char *record = NULL;

	if (!wait_records_make_calls(search, &ask_engine, 1, CALL_AS_KNOWN) ||
		ask_engine.result.outcome != CALL_OK)
		return;

	/*
	 * Our waits are taken after the records of others were read; before, too, if these may
	 * not be needed.
	 */
	if (wait_records_has_own() || own_waits_write(&search->own, 0))
	{
		if (!wait_records_read(search))
			return;
		record = own_waits_write(&search->own, search->seen);
	}
	if (record == NULL)
	{
		search->findings.searches = search->findings.nsuspicions = 0;
		wait_records_withdraw();
		return;
	}
	if (!wait_search(search))
		return;
	judge_deadlocks(search);
	wait_records_publish(search, record, search->newest);
}

/* Returns when the next search is due, ms: soon if there is a suspicion. */
static int64
next_search(const Search *search)
{
	int pause = deadlock_search->deadlock_timeout;

	if (search->findings.searches > 0 && search->findings.searches <= HASTY_SEARCHES)
		pause /= HASTE;
	return zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);
}

/*
 * Searches for deadlocks across servers, in a session that waits with that entry, if a
 * search is due and no other session searches.  Does nothing before the session has waited
 * for deadlock_timeout, unless another one has passed the search on to it.  The caller
 * frees the memory.
 *
 *	waited	how long it has waited, ms
 *	until	when it has something else to do, ms
 */
void
deadlock_across_attend(int index, int64 waited, int64 until)
{
	Search search = {.index = index, .next = index};

	if (waited < DeadlockTimeout && !search_is_ours(index))
		return;
	if (!take_over(index, &search.findings))
	{
		/* Our record stands until the session that searches now may have published its own. */
		if (zklock_now_ms() >= next_at && search.findings.next_at > next_at)
			wait_records_forget();
		return;
	}

	/*
	 * Where waits soon end many sessions take over, but search no more often than one
	 * would.
	 */
	next_at = search.findings.next_at;
	if (zklock_now_ms() < next_at)
		return;
	search.call = (Caller){.until = Min(until, zklock_now_ms() + PATIENCE_MS),
						   .is_called_away = is_called_away_from_search,
						   .away_arg = &search};
	if (zklock_connected() && lease_state() == LEASE_HOLDS)
		search_once(&search);
	next_at = next_search(&search);

	/* The session that is to give up searches at once. */
	search.findings.next_at = search.next == index ? next_at : 0;
	pass_on(index, search.next, &search.findings);

	/* Makes the wait look at its entry again: the search has reset the latch. */
	SetLatch(MyLatch);
}

/* Returns when deadlock_across_attend() is to be called next, ms. */
int64
deadlock_across_next_wakeup(int index)
{
	return search_is_ours(index) ? next_at : NEVER;
}

/*
 * Ends the part of a session in the search when its wait has ended, with an entry or
 * without, for whatever reason.  Cannot fail.
 */
void
deadlock_across_leave(int index)
{
	if (search_is_ours(index))
		pass_on(index, find_next_searcher(index), NULL);
	wait_records_forget();
}
