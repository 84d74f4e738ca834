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

#include "compat.h"
#include "miscadmin.h"
#include "shared/call.h"
#include "shared/deadlock_search.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

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

/* Returns how many entries the pool is to have. */
static int
wanted_entries(void)
{
	if (zklock_max_locks > 0)
		return zklock_max_locks;
	return Min(64 * MaxConnections, ZKLOCK_LOCKS_LIMIT);
}

static void
find_part_sizes(Size *sizes)
{
	sizes[PART_FIXED] = add_size(offsetof(ZklockShared, entries),
								 entries_size(wanted_entries(), zklock_max_kept_locks));
	sizes[PART_ELECTIONS] = add_size(offsetof(ElectionTable, stakes),
									 mul_size(zklock_max_processes(), ELECTION_SLOTS));
	sizes[PART_CALLS] = call_pool_size();
	sizes[PART_CALL_AREA] = CALL_AREA_SIZE;
}

/* Reserves the memory.  Called in the postmaster by shmem_request_hook. */
void
zklock_shmem_request(void)
{
	Size sizes[SHARED_PARTS];

	find_part_sizes(sizes);
	for (int i = 0; i < SHARED_PARTS; i++)
		RequestAddinShmemSpace(CACHELINEALIGN(sizes[i]));
	RequestNamedLWLockTranche(TRANCHE, NLOCKS);
}

/* Attaches to the memory, initialising it if it is new. */
void
zklock_shmem_startup(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(TRANCHE);
	Size		  sizes[SHARED_PARTS];
	void		 *parts[SHARED_PARTS];
	bool		  found[SHARED_PARTS];
	ZklockShared *shared;

	find_part_sizes(sizes);
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARED_PARTS; i++)
	{
		parts[i] = ShmemInitStruct(part_names[i], sizes[i], &found[i]);
		if (!found[i] && i != PART_CALL_AREA)
			memset(parts[i], 0, sizes[i]);
	}
	shared = parts[PART_FIXED];
	election_table = parts[PART_ELECTIONS];
	call_pool = parts[PART_CALLS];
	deadlock_search = &shared->search;
	search_lock = &locks->lock;
	stats_shared = &shared->stats;
	entry_pool = &shared->entries;
	session_info_attach(&shared->session, !found[PART_FIXED]);
	if (!found[PART_FIXED])
	{
		deadlock_search->searcher = ENTRY_NONE;
		pg_atomic_init_u32(&deadlock_search->reloaded, 0);
		stats_init(stats_shared);
		entries_init(entry_pool, wanted_entries(), zklock_max_kept_locks);
	}
	if (!found[PART_ELECTIONS])
		election_table_init(election_table);
	if (!found[PART_CALLS])
		call_pool_init(call_pool);
	if (!found[PART_CALL_AREA])
		call_area_init(parts[PART_CALL_AREA], locks->lock.tranche);
	LWLockRelease(AddinShmemInitLock);
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
