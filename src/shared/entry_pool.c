/*
 * entry_pool.c
 *		The pool of entries: how many there are, and which are free.
 *
 * Free entries are in a list.  There are more entries than sessions may have, for those that
 * are kept with their node for nobody: however many these are, sessions have as many.
 *
 * Runs in: all processes, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/entry.h"
#include "shared/session_info.h"
#include "storage/shmem.h"

EntryPool *entry_pool = NULL;

/* Returns how many spare entries a pool has, of which sessions may have that many. */
static int
number_spare(int limit)
{
	return Min(limit / 4 + 1, ENTRIES_SPARE_LIMIT);
}

/* Returns the size of the pool with that many entries for sessions. */
Size
entries_size(int limit)
{
	return add_size(offsetof(EntryPool, entries),
					mul_size(limit + number_spare(limit), sizeof(Entry)));
}

/* Initialises memory that is all zero. */
void
entries_init(EntryPool *pool, int limit)
{
	int max_entries = limit + number_spare(limit);

	pool->max_entries = max_entries;
	pool->nspare = number_spare(limit);
	pg_atomic_init_u32(&pool->reliances, 0);
	pg_atomic_init_u64(&pool->next_ticket, 1);
	zklock_marks_init(pool->dirty, lengthof(pool->dirty));
	pool->next_cohort_id = 1;
	SpinLockInit(&pool->mutex);
	pool->first_free = 0;
	pool->nfree = max_entries;
	for (int i = 0; i < max_entries; i++)
	{
		SpinLockInit(&pool->entries[i].mutex);
		pool->entries[i].next_free = i + 1 < max_entries ? i + 1 : -1;
	}
}

/*
 * Takes an entry from the free list.  Returns ENTRY_NONE if no more than "leave" are there for
 * sessions, who have as many whether or not others are kept.
 */
int
entry_pool_take(int leave)
{
	int index = ENTRY_NONE;

	SpinLockAcquire(&entry_pool->mutex);
	if (entry_pool->nfree + entry_pool->nkept - entry_pool->nspare > leave)
	{
		index = entry_pool->first_free;
		entry_pool->first_free = entry_at(index)->next_free;
		entry_pool->nfree--;
	}
	SpinLockRelease(&entry_pool->mutex);
	return index;
}

/*
 * Puts an entry, which is FREE, into the free list.  In one step it gets its new generation and
 * is free: then any contender may take it.
 *
 *	kept	it was kept for nobody
 */
void
entry_pool_put(int index, bool kept)
{
	Entry *entry = entry_at(index);

	SpinLockAcquire(&entry_pool->mutex);
	entry->generation++;
	entry->next_free = entry_pool->first_free;
	entry_pool->first_free = index;
	entry_pool->nfree++;
	entry_pool->nkept -= kept;
	SpinLockRelease(&entry_pool->mutex);
}

/* Counts one more entry as kept.  Returns false if no more can be. */
bool
entry_pool_may_keep(void)
{
	bool room;

	SpinLockAcquire(&entry_pool->mutex);
	room = entry_pool->nkept < entry_pool->nspare;
	entry_pool->nkept += room;
	SpinLockRelease(&entry_pool->mutex);
	return room;
}

/* Returns how many entries sessions, or the server itself, have. */
int
entries_in_use(void)
{
	int unused;

	SpinLockAcquire(&entry_pool->mutex);
	unused = entry_pool->nfree + entry_pool->nkept;
	SpinLockRelease(&entry_pool->mutex);
	return entries_max() - unused;
}

/* Returns true if no element is still to be deleted with an entry that was given up. */
bool
entries_all_consumed(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		EntryStatus status = entry_status(i);

		if (status.state == ENTRY_RELEASING && status.consumed)
			return false;
	}
	return true;
}
