/*
 * search.c
 *		The search for deadlocks across servers: which session makes it.
 *
 * Of the sessions of this server that have waited for deadlock_timeout, one searches
 * for all (backend/deadlock_across.c).  It is named by its entry.  Another one takes
 * over when that does not wait any more, or has not looked here for too long; the one
 * that ceases to wait names a successor and wakes it, and the one that finds another's
 * wait to be given up has that one search.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/common.h"
#include "shared/search.h"
#include "shared/settings.h"
#include "storage/proc.h"

/* Another session takes over from one that searches and is not heard of for so long, ms. */
#define SILENCE_MS 5000

DeadlockSearch *deadlock_search = NULL;
LWLock		   *search_lock = NULL;

/* The worker has read the server's settings. */
void
search_reload(void)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	deadlock_search->deadlock_timeout = DeadlockTimeout;
	deadlock_search->parent_nodes = zklock_parent_nodes;
	deadlock_search->findings.next_at = 0;
	LWLockRelease(search_lock);
}

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
 *
 *	findings	set to what the last search has left
 */
bool
search_take_over(int index, SearchFindings *findings)
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
	*findings = search->findings;
	LWLockRelease(search_lock);
	return is_ours;
}

/*
 * Has the session of another entry search from now on, or nobody for ENTRY_NONE, if the one
 * of this entry does.  It is woken; it may be the same.
 *
 *	findings	what the search has left, or NULL if there was none
 */
void
search_pass_on(int index, int next, const SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	bool			was_ours;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
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
