/*
 * entry_pool.c
 *		All entries: the free list, and how the worker hears that it is wanted.
 *
 * A backend takes an entry from the free list and fills it; when the worker is done
 * with it, it goes back there.
 *
 * Whoever changed a state, a backend mostly, sets the entry's bit in "dirty" and then the
 * worker's latch.  The worker clears a whole word of bits before it looks at
 * the entries, so a change is never missed; looking at an entry twice does no
 * harm.  There are no lists through the entries that a process could leave
 * half-changed.
 *
 * Runs in: all processes, as entry.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/entry.h"
#include "shared/session_info.h"

EntryPool *entry_pool = NULL;

/* Bytes of so many entries, and what belongs to all of them. */
Size
entries_size(int max_entries)
{
	return add_size(offsetof(EntryPool, entries), mul_size(max_entries, sizeof(ContenderEntry)));
}

/* Initialises memory that is all zero. */
void
entries_init(EntryPool *pool, int max_entries)
{
	pool->max_entries = max_entries;
	pg_atomic_init_u64(&pool->next_ticket, 1);
	zklock_marks_init(pool->dirty, lengthof(pool->dirty));
	pool->next_run_id = 1;
	SpinLockInit(&pool->mutex);
	pool->first_free = 0;
	pool->nfree = max_entries;
	for (int i = 0; i < max_entries; i++)
	{
		SpinLockInit(&pool->entries[i].mutex);
		pool->entries[i].next_free = i + 1 < max_entries ? i + 1 : -1;
	}
}

/* ------------------------------------------------------------------------
 * The free list
 * ------------------------------------------------------------------------
 */

/* Takes an entry from the free list, unless no more than "leave" are there: ENTRY_NONE. */
int
entry_claim(int leave)
{
	int index = ENTRY_NONE;

	SpinLockAcquire(&entry_pool->mutex);
	if (entry_pool->nfree > leave)
	{
		index = entry_pool->first_free;
		entry_pool->first_free = entry_at(index)->next_free;
		entry_pool->nfree--;
	}
	SpinLockRelease(&entry_pool->mutex);
	return index;
}

/*
 * The worker: puts an entry that is FREE into the free list, with its new generation,
 * in one step.  From then on it may be anybody's.
 */
void
entry_give_back(int index)
{
	ContenderEntry *entry = entry_at(index);

	SpinLockAcquire(&entry_pool->mutex);
	entry->generation++;
	entry->next_free = entry_pool->first_free;
	entry_pool->first_free = index;
	entry_pool->nfree++;
	SpinLockRelease(&entry_pool->mutex);
}

/* How many entries are not free. */
int
entries_in_use(void)
{
	int nfree;

	SpinLockAcquire(&entry_pool->mutex);
	nfree = entry_pool->nfree;
	SpinLockRelease(&entry_pool->mutex);
	return entries_max() - nfree;
}

/* ------------------------------------------------------------------------
 * Entries that the worker is to look at
 * ------------------------------------------------------------------------
 */

/* Asks the worker to look at an entry.  Cannot fail, does not wait. */
void
entry_mark_dirty(int index)
{
	ZKLOCK_SLOW("slow-backends", 120, 25);
	zklock_mark(entry_pool->dirty, index);
	zklock_wake_worker();
}

/* ------------------------------------------------------------------------
 * Runs
 * ------------------------------------------------------------------------
 */

/* Notes what a deletion of a run's node would be, in the entries behind it. */
void
entries_expect_deletion(uint64 run_id, LossReason deletion)
{
	for (int i = 0; run_id != 0 && i < entries_max(); i++)
	{
		ContenderEntry *entry = entry_at(i);

		SpinLockAcquire(&entry->mutex);
		if (entry->node.run_id == run_id)
			entry->status.deletion = deletion;
		SpinLockRelease(&entry->mutex);
	}
}
