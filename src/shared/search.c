/*
 * search.c
 *		The search for deadlocks across servers: what waiting sessions and the worker share.
 *
 * Of the sessions of this server that have waited for deadlock_timeout, one searches
 * for all (backend/deadlock_across.c).  It is named by its entry.  Another one takes
 * over when that does not wait any more, or has not looked here for too long; the one
 * that ceases to wait names a successor and wakes it, and the one that finds another's
 * wait to be given up has that one search.  When there is none the worker deletes this
 * server's records.
 *
 * The session decides what is to be told to other servers.  The nodes are the
 * worker's (worker/deadlock.c), since they have to go when nobody waits any more,
 * whatever becomes of sessions: calls of sessions create nothing ephemeral, and an
 * entry stands for what one session has, whereas a record is handed on.  A node's
 * name is here before it is created, so that the next worker knows of it.
 *
 * The worker also tells for which entries others matter, since the engine alone knows
 * the nodes of other clients.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/common.h"
#include "shared/search.h"
#include "shared/session_info.h"

/* Another session takes over from one that searches and is not heard of for so long, ms. */
#define SILENCE_MS 5000

DeadlockSearch *deadlock_search = NULL;
LWLock		   *search_lock = NULL;

/* Initialises new memory, which is all zeros. */
void
search_init(DeadlockSearch *search)
{
	search->searcher = ENTRY_NONE;
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

void
search_suspect(const SearchSuspicion *suspicion)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
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
uint32
search_ask_engine(void)
{
	uint32 question;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	question = ++deadlock_search->question;
	LWLockRelease(search_lock);
	zklock_wake_worker();
	return question;
}

/* Copies the answer to that question, or a later one.  Returns false if there is none yet. */
bool
search_engine_answered(uint32 question, SearchSigns *signs)
{
	bool is_answered;

	LWLockAcquire(search_lock, LW_SHARED);
	is_answered = (int32) (deadlock_search->answer - question) >= 0;
	if (is_answered)
		*signs = deadlock_search->signs;
	LWLockRelease(search_lock);
	return is_answered;
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

/* Copies what is known of this server's records. */
void
search_copy_records(SearchRecord records[SEARCH_RECORDS])
{
	LWLockAcquire(search_lock, LW_SHARED);
	memcpy(records, deadlock_search->records, sizeof(deadlock_search->records));
	LWLockRelease(search_lock);
}

/* Is it a node of this server's that is to be there, or is going?  NULL: may there be any? */
bool
search_has_record(const char *name)
{
	SearchRecord records[SEARCH_RECORDS];
	bool		 has = false;

	search_copy_records(records);
	for (int i = 0; i < SEARCH_RECORDS; i++)
		has |= records[i].name[0] != '\0' && (name == NULL || strcmp(records[i].name, name) == 0);
	return has;
}

/*
 * Have we told this to others?
 *
 *	body	what does not change from look to look
 *	seen	and they need to know that this had been read before
 */
bool
search_is_told(const char *body, int64 seen)
{
	bool is_told = false;

	LWLockAcquire(search_lock, LW_SHARED);
	for (int i = 0; i < SEARCH_RECORDS; i++)
	{
		const SearchRecord *record = &deadlock_search->records[i];

		is_told |= record->wanted && record->seen >= seen &&
				   strcmp(deadlock_search->texts[i] + record->body, body) == 0;
	}
	LWLockRelease(search_lock);
	return is_told;
}

/*
 * Has a record take the place of the one there is, unless the one before that is
 * still going: then the next search tries again.
 *
 *	session	ours, in ZooKeeper
 *	text	of which "body" begins at that offset
 *	seen	as in the text
 */
void
search_publish(int64 session, const char *text, int body, int64 seen)
{
	SearchRecord *records = deadlock_search->records;
	int			  free = 0;
	uint32		  number;

	if (!pg_strong_random(&number, sizeof(number)))
		return;
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	while (free < SEARCH_RECORDS && records[free].name[0] != '\0')
		free++;
	if (free < SEARCH_RECORDS)
	{
		for (int i = 0; i < SEARCH_RECORDS; i++)
			records[i].wanted = false;
		records[free] = (SearchRecord){.wanted = true, .seen = seen, .body = body};
		snprintf(records[free].name, sizeof(records[free].name), "%016llx-%08x",
				 (unsigned long long) session, number);
		strlcpy(deadlock_search->texts[free], text, sizeof(deadlock_search->texts[free]));
	}
	LWLockRelease(search_lock);
	zklock_wake_worker();
}

/* We have nothing to tell any more. */
void
search_withdraw(void)
{
	bool is_news = false;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	for (int i = 0; i < SEARCH_RECORDS; i++)
	{
		is_news |= deadlock_search->records[i].wanted;
		deadlock_search->records[i].wanted = false;
	}
	LWLockRelease(search_lock);
	if (is_news)
		zklock_wake_worker();
}
