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

/* Returns how many entries the pool is to have. */
static int
wanted_entries(void)
{
	if (zklock_max_locks > 0)
		return zklock_max_locks;
	return Min(64 * MaxConnections, ZKLOCK_LOCKS_LIMIT);
}

static Size
shared_size(void)
{
	return add_size(offsetof(ZklockShared, entries), entries_size(wanted_entries()));
}

/* Reserves the memory.  Called in the postmaster by shmem_request_hook. */
void
zklock_shmem_request(void)
{
	RequestAddinShmemSpace(CACHELINEALIGN(shared_size()));
	RequestAddinShmemSpace(CACHELINEALIGN(election_table_size()));
	RequestAddinShmemSpace(CACHELINEALIGN(call_pool_size()));
	RequestAddinShmemSpace(CACHELINEALIGN(CALL_AREA_SIZE));
	RequestNamedLWLockTranche(TRANCHE, NLOCKS);
}

/* Returns a part of the memory, all zero if it is new; "found" is false then. */
static void *
part(const char *name, Size size, bool *found)
{
	void *memory = ShmemInitStruct(name, size, found);

	return *found ? memory : memset(memory, 0, size);
}

/* Attaches to the memory, initialising it if it is new. */
void
zklock_shmem_startup(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(TRANCHE);
	ZklockShared *shared;
	void		 *area; /* for texts of calls that do not fit into a slot */
	bool		  found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = part("zklock", shared_size(), &found);
	if (!found)
	{
		session_info_init(&shared->session);
		shared->search.searcher = ENTRY_NONE;
		pg_atomic_init_u32(&shared->search.reloaded, 0);
		stats_init(&shared->stats);
		entries_init(&shared->entries, wanted_entries());
	}
	election_table = part("zklock elections", election_table_size(), &found);
	if (!found)
		election_table_init(election_table);
	call_pool = part("zklock calls", call_pool_size(), &found);
	if (!found)
		call_pool_init(call_pool);
	area = ShmemInitStruct("zklock room for calls", CALL_AREA_SIZE, &found);
	if (!found)
		call_area_init(area, locks->lock.tranche);
	zklock_session = &shared->session;
	session_info_keep_secret();
	deadlock_search = &shared->search;
	search_lock = &locks->lock;
	stats_shared = &shared->stats;
	entry_pool = &shared->entries;
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
