/*
 * share.c
 *		The share that one session may have of what all sessions use.
 *
 * Two things are limited: entries in shared memory, of which zklock.max_locks exist, and
 * the bytes of paths that the ZooKeeper session may have in nodes, and in watches.  A
 * session gets a share of each, and superusers have a reserve.
 *
 * Pure C: keeps no state, runs in any process, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "shared/common.h"

/* On a small server a quarter would be too few for one array of paths. */
#define FEWEST_ENTRIES 16

/* Every share has room for some of the longest paths. */
#define FEWEST_BYTES (32 * 1024)

/*
 * Returns how many entries a session may have.
 *
 *	setting		zklock.max_locks_per_session: -1 for a quarter of all, but not
 *				so few that a small server is of no use
 *	max_entries	how many there are
 */
int
share_of_entries(int setting, int max_entries)
{
	int quarter = max_entries / 4;

	if (setting < 0)
		setting = quarter > FEWEST_ENTRIES ? quarter : FEWEST_ENTRIES;
	return setting < max_entries ? setting : max_entries;
}

/* Returns how many entries are left for superusers: a sixteenth, but not the only one. */
int
share_entries_reserved(int max_entries)
{
	return max_entries > 1 ? (max_entries + 15) / 16 : 0;
}

/* Returns how many of the bytes for nodes belong to a share of the entries. */
size_t
share_of_bytes(int entries, int max_entries)
{
	size_t bytes = (size_t) PACKET_BUDGET * entries / max_entries;

	return bytes > FEWEST_BYTES ? bytes : FEWEST_BYTES;
}
