/*
 * shmem.c
 *		Shared memory: its parts, and how they are set up.
 *
 * Each part has its own file, which says who may read and write what.
 *
 * Runs in: the postmaster, while it starts, and, where processes do not inherit its memory,
 * all others at their start.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/call.h"
#include "shared/deadlock_search.h"
#include "shared/election.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define TRANCHE "zklock"
#define NLOCKS 1

DeadlockSearch *deadlock_search = NULL;
LWLock		   *search_lock = NULL;

typedef struct ZklockShared
{
	SharedSession  session;
	DeadlockSearch search;
	StatsShared	   stats;
	EntryPool	   entries; /* last, as its size depends on the settings */
} ZklockShared;

typedef enum SharedPart
{
	PART_FIXED, /* ZklockShared */
	PART_ELECTIONS,
	PART_CALLS,
	PART_CALL_AREA, /* for texts of calls that do not fit into a slot */
	SHARED_PARTS
} SharedPart;

static const char *const part_names[SHARED_PARTS] = {"zklock", "zklock elections",
													 "zklock calls", "zklock room for calls"};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* Finds how large the parts are.  Returns how many entries the pool is to have. */
static int
find_part_sizes(Size *sizes)
{
	int locks =
		zklock_max_locks > 0 ? zklock_max_locks : Min(64 * MaxConnections, ZKLOCK_LOCKS_LIMIT);

	sizes[PART_FIXED] = add_size(offsetof(ZklockShared, entries) + offsetof(EntryPool, entries),
								 mul_size(locks + zklock_max_kept_locks, sizeof(Entry)));
	sizes[PART_ELECTIONS] = add_size(offsetof(ElectionTable, stakes),
									 mul_size(zklock_max_processes(), ELECTION_SLOTS));
	sizes[PART_CALLS] =
		add_size(offsetof(CallPool, slots), mul_size(zklock_max_processes(), sizeof(CallSlot)));
	sizes[PART_CALL_AREA] = CALL_AREA_SIZE;
	return locks + zklock_max_kept_locks;
}

/* Reserves the memory.  Called in the postmaster by shmem_request_hook. */
static void
reserve_parts(void)
{
	Size sizes[SHARED_PARTS];

	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	(void) find_part_sizes(sizes);
	for (int i = 0; i < SHARED_PARTS; i++)
		RequestAddinShmemSpace(CACHELINEALIGN(sizes[i]));
	RequestNamedLWLockTranche(TRANCHE, NLOCKS);
}

/*
 * Attaches to the memory, initialising it if it is new: then it is all zero at first.  Called by
 * shmem_startup_hook.
 */
void
zklock_shmem_startup(void)
{
	LWLockPadded *locks;
	Size		  sizes[SHARED_PARTS];
	void		 *parts[SHARED_PARTS];
	bool		  is_new = false;
	ZklockShared *shared;
	int			  max_entries = find_part_sizes(sizes);

	/* Other libraries attach to theirs first. */
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	locks = GetNamedLWLockTranche(TRANCHE);
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARED_PARTS; i++)
	{
		bool found;

		parts[i] = ShmemInitStruct(part_names[i], sizes[i], &found);
		if (!found && i != PART_CALL_AREA)
			memset(parts[i], 0, sizes[i]);
		is_new |= !found;
	}
	shared = parts[PART_FIXED];
	election_table = parts[PART_ELECTIONS];
	call_pool = parts[PART_CALLS];
	deadlock_search = &shared->search;
	search_lock = &locks->lock;
	stats_shared = &shared->stats;
	entry_pool = &shared->entries;
	session_info_attach(&shared->session, is_new);
	if (is_new)
	{
		pg_atomic_uint64 *count = (pg_atomic_uint64 *) stats_shared->of_kind;
		PathListReader	  listed = {.syntax = PATH_LIST_ELECTIONS, .rest = zklock_elections};
		ElectionItem	  item;
		MemoryContext	  old;

		deadlock_search->searcher = ENTRY_NONE;
		pg_atomic_init_u32(&deadlock_search->reloaded, 0);

		for (; count < (pg_atomic_uint64 *) &stats_shared->of_kind[STATS_KINDS]; count++)
			pg_atomic_init_u64(count, 0);
		pg_atomic_init_u64(&stats_shared->reset_at, GetCurrentTimestamp());
		pg_atomic_init_u64(&stats_shared->requests, 0);
		pg_atomic_init_u64(&stats_shared->request_us, 0);
		pg_atomic_init_u64(&stats_shared->request_errors, 0);

		entry_pool->max_entries = max_entries;
		entry_pool->limit = max_entries - zklock_max_kept_locks;
		entry_pool->nspare = zklock_max_kept_locks;
		pg_atomic_init_u32(&entry_pool->reliances, 0);
		pg_atomic_init_u32(&entry_pool->release_kept, 0);
		pg_atomic_init_u64(&entry_pool->next_ticket, 1);
		for (int i = 0; i < (int) lengthof(entry_pool->dirty); i++)
			pg_atomic_init_u64(&entry_pool->dirty[i], 0); /* no mark is set */
		entry_pool->next_cohort_id = 1;
		SpinLockInit(&entry_pool->mutex);
		entry_pool->first_free = 0;
		entry_pool->nfree = max_entries;
		for (int i = 0; i < max_entries; i++)
		{
			SpinLockInit(&entry_at(i)->mutex);
			entry_at(i)->next_free = i + 1 < max_entries ? i + 1 : -1;
		}

		/*
		 * The elections of the setting are there from the start: sessions know them before the
		 * first worker does.
		 */
		pg_atomic_init_u32(&election_table->n, 0);
		while (election_list_next(&listed, &item))
		{
			CandidacyStatus *status = &election_at(election_slot(item.path))->status;

			status->state = CANDIDACY_STOP;
			status->priority = item.priority;
		}
		for (int i = 0; i < (int) lengthof(call_pool->marks); i++)
			pg_atomic_init_u64(&call_pool->marks[i], 0); /* no mark is set */
		pg_atomic_init_u64(&call_pool->last_ticket, 0);
		pg_atomic_init_u32(&call_pool->queue_waits_left, 0);
		for (int i = 0; i < zklock_max_processes(); i++)
		{
			SpinLockInit(&call_pool->slots[i].mutex);
			pg_atomic_init_u64(&call_pool->slots[i].queue_wait_ticket, 0);
			pg_atomic_init_u32(&call_pool->slots[i].queue_wait_changed, 0);
		}

		/*
		 * The area never grows, as it must not depend on other shared memory.  Nobody attaches to
		 * it later: that would take a lock for which the worker waits when it allocates.
		 */
		old = MemoryContextSwitchTo(TopMemoryContext);
		call_area =
			dsa_create_in_place(parts[PART_CALL_AREA], CALL_AREA_SIZE, locks->lock.tranche, NULL);
		dsa_pin(call_area);
		dsa_set_size_limit(call_area, CALL_AREA_SIZE);
		MemoryContextSwitchTo(old);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Installs the hooks, in the postmaster while it loads libraries. */
void
zklock_shmem_install_hooks(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = reserve_parts;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = zklock_shmem_startup;
}

/* Raises an error unless the library was loaded with the server. */
void
zklock_require_preload(void)
{
	if (entry_pool == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"zklock\" to \"shared_preload_libraries\" and restart the server.")));
}
