/*
 * search.c
 *		The search for deadlocks across servers: what waiting sessions and the worker share.
 *
 * Of the sessions of this server that have waited for deadlock_timeout, one searches
 * for all (backend/deadlock_across.c).  It is named by its entry.  Another one takes
 * over when that does not wait any more, or has not looked here for too long; the one
 * that ceases to wait names a successor and wakes it, and the one that finds another's
 * wait to be given up has that one search.  When there is none the worker deletes this
 * server's record.
 *
 * The session decides what is to be told to other servers.  The nodes are the
 * worker's (worker/deadlock.c), since they have to go when nobody waits any more,
 * whatever becomes of sessions: calls of sessions create nothing ephemeral, and an
 * entry stands for what one session has, whereas a record is handed on.  A node's
 * name is here before it is created, so that the next worker knows of it.
 *
 * The worker also tells for which entries others matter, in the entries, since the
 * engine alone knows the nodes of other clients.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/common.h"
#include "shared/search.h"
#include "shared/session_info.h"
#include "storage/proc.h"

/* Another session takes over from one that searches and is not heard of for so long, ms. */
#define SILENCE_MS 5000

DeadlockSearch *deadlock_search = NULL;
LWLock		   *search_lock = NULL;

/* Initialises new memory, which is all zeros. */
void
search_init(DeadlockSearch *search)
{
	search->searcher = ENTRY_NONE;
	search->deadlock_timeout = DeadlockTimeout;
}

/* ------------------------------------------------------------------------
 * Who searches
 * ------------------------------------------------------------------------
 */

/* Does an entry wait, in that generation? */
static bool
is_waiting(int index, uint32 generation)
{
	return index != ENTRY_NONE && entry_status(index).state == CONTENDER_QUEUED &&
		   entry_generation(index) == generation;
}

/*
 * Is the session that searches the one of this entry, which waits?  If another one
 * does, and waits no more or has been silent for too long, it is from now on.
 */
bool
search_take_over(int index)
{
	DeadlockSearch *search = deadlock_search;
	int64			now = zklock_now_ms();
	bool			is_ours;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	if (!is_waiting(search->searcher, search->generation) || now - search->alive_at > SILENCE_MS)
	{
		search->searcher = index;
		search->generation = entry_generation(index);
	}
	is_ours = search->searcher == index;
	if (is_ours)
		search->alive_at = now;
	LWLockRelease(search_lock);
	return is_ours;
}

/* The session of this entry searches no more.  The successor's does, or nobody for ENTRY_NONE. */
void
search_leave(int index, int successor)
{
	DeadlockSearch *search = deadlock_search;
	bool			was_ours;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	was_ours = search->searcher == index;
	if (was_ours)
	{
		search->searcher = successor;
		search->generation = successor == ENTRY_NONE ? 0 : entry_generation(successor);
		search->alive_at = zklock_now_ms();
	}
	LWLockRelease(search_lock);
	if (was_ours && successor != ENTRY_NONE)
		entry_set_owner_latch(entry_at(successor));
	else if (was_ours)
		zklock_wake_worker();
}

/* What earlier searches suspect, whichever session made them */
SearchSuspicion
search_suspicion(void)
{
	SearchSuspicion suspicion;

	LWLockAcquire(search_lock, LW_SHARED);
	suspicion = deadlock_search->suspicion;
	LWLockRelease(search_lock);
	return suspicion;
}

/* The session of this entry suspects that, if it is still the one that searches. */
void
search_suspect(int index, const SearchSuspicion *suspicion)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	if (deadlock_search->searcher == index)
		deadlock_search->suspicion = *suspicion;
	LWLockRelease(search_lock);
}

/* Does any session search? */
bool
search_is_under_way(void)
{
	bool is_under_way;

	LWLockAcquire(search_lock, LW_SHARED);
	is_under_way = is_waiting(deadlock_search->searcher, deadlock_search->generation);
	LWLockRelease(search_lock);
	return is_under_way;
}

/* ------------------------------------------------------------------------
 * What the engine knows
 * ------------------------------------------------------------------------
 */

/* Asks for whom others matter; the answer sets the latch of the session that searches. */
void
search_ask_engine(void)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	deadlock_search->asked = true;
	LWLockRelease(search_lock);
	zklock_wake_worker();
}

/* Is the answer still to come? */
bool
search_engine_is_asked(void)
{
	bool is_asked;

	LWLockAcquire(search_lock, LW_SHARED);
	is_asked = deadlock_search->asked;
	LWLockRelease(search_lock);
	return is_asked;
}

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

/* The session whose id is in the name of a record; 0 if it is no such name. */
int64
search_record_session(const char *name)
{
	const int digits = 16;

	if (strlen(name) != RECORD_NAME_LENGTH || name[digits] != '-' ||
		strspn(name, "0123456789abcdef") != digits ||
		strspn(name + digits + 1, "0123456789abcdef") != RECORD_NAME_LENGTH - digits - 1)
		return 0;
	return (int64) strtoull(name, NULL, 16);
}

/* A copy of this server's record */
SearchRecord
search_record(void)
{
	SearchRecord record;

	LWLockAcquire(search_lock, LW_SHARED);
	record = deadlock_search->record;
	LWLockRelease(search_lock);
	return record;
}

/* What does not change from look to look: all behind the title, the server's name and "seen" */
static const char *
body_of(const char *text)
{
	for (int line = 0; line < 3; line++)
		text = strchr(text, '\n') + 1;
	return text;
}

/*
 * Have we told this to others?
 *
 *	seen	they need to know that this had been read before
 */
bool
search_is_told(const char *text, int64 seen)
{
	const SearchRecord *record = &deadlock_search->record;
	bool				is_told;

	LWLockAcquire(search_lock, LW_SHARED);
	is_told = record->wanted && record->seen >= seen &&
			  strcmp(body_of(deadlock_search->text), body_of(text)) == 0;
	LWLockRelease(search_lock);
	return is_told;
}

/*
 * Has a record take the place of the one there is, if the session of this entry is still
 * the one that searches, unless the worker is busy with that: then the next search tries
 * again.
 *
 *	session	ours, in ZooKeeper
 *	seen	as in the text
 */
void
search_publish(int index, int64 session, const char *text, int64 seen)
{
	SearchRecord *record = &deadlock_search->record;
	uint32		  number;

	if (!pg_strong_random(&number, sizeof(number)))
		return;
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	if (deadlock_search->searcher == index &&
		(record->name[0] == '\0' || (record->wanted && record->exists)))
	{
		memcpy(record->replaces, record->name, sizeof(record->replaces));
		snprintf(record->name, sizeof(record->name), "%016llx-%08x",
				 (unsigned long long) session, number);
		record->wanted = true;
		record->exists = false;
		record->seen = seen;
		strlcpy(deadlock_search->text, text, sizeof(deadlock_search->text));
	}
	LWLockRelease(search_lock);
	zklock_wake_worker();
}

/* We have nothing to tell any more. */
void
search_withdraw(void)
{
	bool is_news;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	is_news = deadlock_search->record.wanted;
	deadlock_search->record.wanted = false;
	LWLockRelease(search_lock);
	if (is_news)
		zklock_wake_worker();
}
