/*
 * deadlock_across.c
 *		Deadlocks across servers: one waiting session searches for all of its server.
 *
 * While sessions of this server have long been waiting, one of them asks the engine again
 * and again whether they wait for another server or client, which costs ZooKeeper one sync.
 * If they do, and others need to know, it goes on in this order:
 *
 *	- It reads which records exist, and the new ones.
 *	- It takes the waits of this server (deadlock.c).
 *	- It looks whether a wait of ours is stuck, by all records together, and by what
 *	  ZooKeeper confirms of the suspects (wait_search.c).
 *	- It weighs the deadlocks that our waits are to end (judge_deadlocks()).
 *	- It publishes a new record if the waits of this server have changed, or if others need
 *	  one that was made after theirs had been read.
 *
 * As long as no session waits for long, nothing is asked.  The session waits for ZooKeeper's
 * answers and for its own lock at the same time: when anything happens to the latter, the
 * search is given up in the middle.  Nothing here raises an error because of ZooKeeper.
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
#include "utils/memutils.h"
#include "zk/zk_client.h"

/* Most records that are read, one for each server */
#define MAX_RECORDS 256

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

/* ------------------------------------------------------------------------
 * The records of all servers
 *
 * The session that searches for its server keeps the records that it has read for later
 * searches: a record never changes, but is replaced by another one.  It belongs to the
 * ZooKeeper session whose id is in its name, and which owns the node.
 *
 * Our own is the marker node of this session's calls, so the worker, or the next one,
 * deletes it when the session no longer wants it, even if the session has exited.
 * ------------------------------------------------------------------------
 */

static ReadRecord *records[MAX_RECORDS + 1]; /* one more, as ours is always read */
static int		   nrecords;

static char own_name[RECORD_NAME_LENGTH + 1]; /* name of the record that this session has
											   * published, or "" */

/* Withdraws the record of this session, if it has one. */
static void
withdraw_record(void)
{
	if (own_name[0] != '\0')
		call_slot_give_up();
	own_name[0] = '\0';
}

/* Returns the record of that name, or NULL if it has not been read. */
static const ReadRecord *
find_record(const char *name)
{
	for (int i = 0; i < nrecords; i++)
	{
		if (strcmp(records[i]->name, name) == 0)
			return records[i];
	}
	return NULL;
}

/* Forgets the records that are not among n names; with none of these, all. */
static void
forget_other_records(char *const *names, int n)
{
	for (int i = nrecords - 1; i >= 0; i--)
	{
		int at = 0;

		while (at < n && strcmp(names[at], records[i]->name) != 0)
			at++;
		if (at < n)
			continue;
		pfree(records[i]);
		records[i] = records[--nrecords];
	}
}

/* Reads the records that exist.  Returns false if they cannot be had now. */
static bool
read_wait_records(Search *search)
{
	CallStep  list = {.asked = {.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT}};
	CallStep *steps = palloc0((MAX_RECORDS + 1) * sizeof(CallStep));
	int		  n = 0;

	if (!wait_search_make_calls(search, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	search->has_root = list.result.outcome == CALL_OK;
	forget_other_records(list.children, list.result.nchildren);

	/*
	 * The new ones are read, our own among them.  One with our ZooKeeper session's id is
	 * deleted if this session has published another one.  Until it has published one, the
	 * record of the session that searched before stands, if it is valid.
	 */
	for (int i = 0; i < list.result.nchildren && n <= MAX_RECORDS; i++)
	{
		const char		 *name = list.children[i];
		const ReadRecord *known = find_record(name);
		int64			  session = wait_record_session(name);
		bool			  stray = own_name[0] != '\0' ? strcmp(name, own_name) != 0
													  : known && known->text[0] == '\0';
		bool fits = nrecords + n < MAX_RECORDS + (strcmp(name, own_name) == 0 ? 1 : 0);

		stray = stray && session == search->session && search_is_ours(search->index);
		if (session == 0 || (!stray && (known || !fits)))
			continue;
		steps[n++] = (CallStep){.asked = {.kind = stray ? ZK_DELETE : ZK_GET_DATA,
										  .path = psprintf("%s/%s", WAIT_RECORD_ROOT, name),
										  .most = WAIT_RECORD_MAX}};
	}
	if (!wait_search_make_calls(search, steps, n, CALL_AS_KNOWN))
		return false;

	/* Each is kept in one piece.  If it is not valid, its text is empty. */
	for (int i = 0; i < n; i++)
	{
		const char *name = steps[i].asked.path + strlen(WAIT_RECORD_ROOT "/");
		Size		length;
		ReadRecord *record;

		if (steps[i].asked.kind != ZK_GET_DATA)
			continue;
		length = wait_record_lines(&steps[i]) ? steps[i].result.text_length : 0;
		record = MemoryContextAllocZero(TopMemoryContext, offsetof(ReadRecord, text) + length + 1);
		strlcpy(record->name, name, sizeof(record->name));
		record->owner = wait_record_session(name);
		record->czxid = steps[i].result.stat.czxid;
		if (length > 0)
			memcpy(record->text, steps[i].read, length);
		records[nrecords++] = record;
	}
	if (find_record(own_name) == NULL)
		withdraw_record();

	/* The search takes the newest valid one of each session. */
	for (int i = 0; i < nrecords; i++)
	{
		ReadRecord *record = records[i];
		bool		is_newest = record->text[0] != '\0';

		record->lines = NULL;
		for (int k = 0; k < nrecords; k++)
		{
			const ReadRecord *other = records[k];

			if (other->text[0] != '\0' && other->owner == record->owner &&
				other->czxid > record->czxid)
				is_newest = false;
		}
		if (!is_newest)
			continue;
		search->records = lappend(search->records, record);
		search->seen = Max(search->seen, record->czxid);
	}
	return true;
}

/* Logs that ZooKeeper refuses to create a node, once until it has created one. */
static void
report_refusal(Search *search, const char *what, int code)
{
	if (!search->findings.refusal_is_logged)
		ereport(LOG_SERVER_ONLY,
				(errmsg("could not %s ZooKeeper node \"%s\": %s", what, WAIT_RECORD_ROOT,
						zk_error(code).name),
				 errdetail("Deadlocks across servers are not found."),
				 errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
	search->findings.refusal_is_logged = true;
}

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

/*
 * Returns true if the session of this entry, which waits, is the one that searches.  If the
 * one that did waits no more, or has been silent for too long, this one takes over.
 *
 *	findings	set to what the last search has left, if that can be read
 */
static bool
take_search_over(int index, SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	int64			now = zklock_now_ms();
	bool			is_ours;

	if (!lock_search())
		return false;
	if (search->searcher == ENTRY_NONE || entry_status(search->searcher).state != ENTRY_QUEUED ||
		entry_generation(search->searcher) != search->generation || now - search->alive_at > SILENCE_MS)
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
pass_search_on(int index, int next, const SearchFindings *findings)
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

/*
 * Weighs each deadlock that a wait of ours is to end, by the records of all waits for which
 * that one waits: those merely behind it do not matter.  If several are confirmed, they take
 * turns, so that a session that is stopped, and so does not give up, hides no other deadlock.
 */
static void
judge_deadlocks(Search *search)
{
	const WaitVertex *vertices = search->graph.vertices;
	SearchFindings	 *findings = &search->findings;
	SearchFindings	  before = *findings; /* what earlier searches have found */
	int				  victim = WAIT_GRAPH_NONE;
	Suspicion		 *chosen = NULL;
	int				  chosen_entry = ENTRY_NONE;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (vertices[i].reached)
			search->newest = Max(search->newest, search->waits[i].record->czxid);
	}
	findings->nsuspicions = 0;
	for (int self = 0; self < search->nwaits; self++)
	{
		const WaitLine	*line = search->waits[self].line;
		const EntryCopy *waiting = NULL;
		Suspicion		 now = {.fingerprint = 0};
		int64 seen = PG_INT64_MAX; /* the writers of all these records had read up to this zxid
									* before they looked */
		Suspicion *kept;
		int		   at;

		/* The process must be in the wait that our record shows. */
		if (wait_search_is_victim(search, self))
			waiting = own_waits_find(&search->own, line->pid, line->number);
		if (waiting == NULL)
			continue;
		for (int i = 0; i < search->nwaits; i++)
		{
			const SearchWait *wait = &search->waits[i];

			if (!vertices[i].reached)
				continue;
			now.fingerprint += wait->line->number * 31 + (uint64) wait->record->owner;
			now.newest = Max(now.newest, wait->record->czxid);
			seen = Min(seen, (int64) wait->record->lines->number);
		}
		for (int i = 0; i < before.nsuspicions; i++)
		{
			if (before.suspicions[i].fingerprint == now.fingerprint)
				now = before.suspicions[i];
		}
		if (findings->nsuspicions == MAX_SUSPICIONS)
			continue;
		kept = &findings->suspicions[findings->nsuspicions++];
		*kept = now;
		if (kept->searches++ == 0)
			findings->searches = 0;
		else if (seen >= now.newest)
		{
			/* It is confirmed.  Does the cycle lead through an unknown contender? */
			for (at = vertices[self].parent; at != self && at < search->nwaits;)
				at = vertices[at].parent;
			if ((at == self || now.searches >= PATIENT_SEARCHES) &&
				(chosen == NULL || kept->passes < chosen->passes))
			{
				victim = self;
				chosen = kept;
				chosen_entry = waiting->index;
			}
		}
	}
	findings->searches = search->newest != 0 ? findings->searches + 1 : 0;
	if (chosen == NULL)
		return;
	chosen->passes++;

	/*
	 * If the wait is another session's, that one searches from now on, and comes to the same
	 * conclusion.
	 */
	search->next = chosen_entry;
	if (search->next == search->index && wait_search_is_victim(search, victim))
		deadlock_report(&search->graph, victim, describe_recorded, search);
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
		   !take_search_over(search->index, &findings);
}

/*
 * Searches once, and publishes a new record of this server's waits in place of the old one, if
 * others need it.  Returns at once when the session has something else to do.
 */
static void
search_once(Search *search)
{
	CallStep ask_engine = {.asked = {.kind = ZK_REMOTE_WAITS, .path = "/"}};
	CallStep step = {.asked = {.kind = ZK_PUBLISH}};
	CallStep root = {.asked = {.kind = ZK_CREATE, .node_kind = ZK_CONTAINER, .path = WAIT_RECORD_ROOT}};
	const ReadRecord *ours;
	const char		 *text = NULL;
	uint32			  number;
	bool			  is_answered;

	if (!wait_search_make_calls(search, &ask_engine, 1, CALL_AS_KNOWN) ||
		ask_engine.result.outcome != CALL_OK)
		return;

	/*
	 * Our waits are taken after the records of others were read; before, too, if these may
	 * not be needed.
	 */
	if (own_name[0] != '\0' || own_waits_write(&search->own, 0))
	{
		if (!read_wait_records(search))
			return;
		text = own_waits_write(&search->own, search->seen);
	}
	if (text == NULL)
	{
		search->findings.searches = search->findings.nsuspicions = 0;
		withdraw_record();
		return;
	}
	if (!wait_search(search))
		return;
	judge_deadlocks(search);

	/*
	 * The record that stands serves if it says the same, and that those of the stuck waits had
	 * been read.  The server's name, in the first line, is not compared.
	 */
	ours = find_record(own_name);
	if (ours && ours->lines && (int64) ours->lines[0].number >= search->newest &&
		strcmp(strchr(ours->text, '\n'), strchr(text, '\n')) == 0)
		return;
	if (!search_is_ours(search->index) || !pg_strong_random(&number, sizeof(number)))
		return;

	/* The node below which all records are is created, unless zklock.parent_nodes forbids it. */
	if (deadlock_search->parent_nodes == PARENTS_PERSISTENT)
		root.asked.node_kind = ZK_PERSISTENT;
	if (!search->has_root && deadlock_search->parent_nodes != PARENTS_EXISTING &&
		wait_search_make_calls(search, &root, 1, CALL_AS_KNOWN))
	{
		if (root.result.outcome == CALL_REFUSED)
			report_refusal(search, "create", root.result.code);
		search->has_root = root.result.outcome == CALL_OK || root.result.outcome == CALL_NODE_EXISTS;
	}
	snprintf(own_name, sizeof(own_name), "%016llx-%08x", (unsigned long long) search->session, number);
	step.asked.data = text;
	step.asked.path = step.asked.marker = psprintf("%s/%s", WAIT_RECORD_ROOT, own_name);
	is_answered = wait_search_make_calls(search, &step, 1, CALL_AS_KNOWN);
	if (is_answered && step.result.outcome == CALL_OK)
	{
		search->findings.refusal_is_logged = false;
		search->lost_record = false;
		return;
	}

	/* The old record, or the root, may be gone by now: the next search sees that. */
	if (is_answered && (step.result.outcome != CALL_NO_NODE || !search->has_root))
		report_refusal(search, "create nodes below", step.result.code);
	withdraw_record();
}

static int64 next_at; /* when the next search is due, ms */

/*
 * Searches for deadlocks across servers, in a session that waits with that entry, if a
 * search is due and no other session searches.  To be called when the session has waited for
 * deadlock_timeout, or another one has passed the search on to it.  The caller frees the memory.
 *
 *	until	when it has something else to do, ms
 *
 * Returns when it is to be called next, ms.
 */
int64
deadlock_across_attend(int index, int64 until)
{
	Search search = {.index = index, .next = index};
	int	   pause;

	if (!take_search_over(index, &search.findings))
	{
		/* Our record stands until the session that searches now may have published its own. */
		if (zklock_now_ms() >= next_at && search.findings.next_at > next_at)
		{
			withdraw_record();
			forget_other_records(NULL, 0);
		}
		return search_is_ours(index) ? next_at : NEVER;
	}

	/*
	 * Where waits soon end many sessions take over, but search no more often than one
	 * would.
	 */
	next_at = search.findings.next_at;
	if (zklock_now_ms() < next_at)
		return next_at;
	search.call = (Caller){.until = Min(until, zklock_now_ms() + PATIENCE_MS),
						   .is_called_away = is_called_away_from_search,
						   .away_arg = &search};
	if (zklock_connected() && lease_state() == LEASE_HOLDS)
		search_once(&search);
	if (search.lost_record)
		withdraw_record();

	/* Soon, if there is a suspicion. */
	pause = deadlock_search->deadlock_timeout;
	if (search.findings.searches > 0 && search.findings.searches <= HASTY_SEARCHES)
		pause /= HASTE;
	next_at = zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);

	/* The session that is to give up searches at once. */
	search.findings.next_at = search.next == index ? next_at : 0;
	pass_search_on(index, search.next, &search.findings);

	/* Makes the wait look at its entry again: the search has reset the latch. */
	SetLatch(MyLatch);
	return search_is_ours(index) ? next_at : NEVER;
}

/*
 * Ends the part of a session in the search when its wait has ended, for whatever reason.
 * Cannot fail.
 */
void
deadlock_across_leave(int index)
{
	/*
	 * The next is the one that has waited longest, if one has waited for deadlock_timeout.  It
	 * will probably go on waiting, so searches follow each other even where most waits soon
	 * end.
	 */
	if (search_is_ours(index))
	{
		int64 since = zklock_now_us() - INT64CONST(1000) * DeadlockTimeout;
		int	  next = ENTRY_NONE;

		for (int i = 0; i < entry_pool->max_entries; i++)
		{
			const EntryRequest *request = &entry_at(i)->request;

			if (i != index && entry_status(i).state == ENTRY_QUEUED &&
				request->proc_number != ENTRY_NO_LATCH && request->manner == ASK_AND_WAIT &&
				request->requested_us <= since)
			{
				next = i;
				since = request->requested_us;
			}
		}
		pass_search_on(index, next, NULL);
	}
	withdraw_record();
	forget_other_records(NULL, 0);
}
