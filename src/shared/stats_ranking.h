/*
 * stats_ranking.h
 *		The paths at which sessions have waited longest, in bounded memory.
 *
 * Pure C: depends on sizes alone, allocates nothing, keeps no state of its own,
 * runs in any process.  The caller protects the ranking.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_STATS_RANKING_H
#define ZKLOCK_STATS_RANKING_H

#include <stdint.h>

#include "recipes/node_name.h"

/* So many paths are followed; the best of them are ranked truly. */
#define STATS_RANKED_PATHS 256

/* A path that is followed.  Times are in microseconds. */
typedef struct StatsRank
{
	char	 path[ZKLOCK_MAX_PATH + 1]; /* UTF-8; "" if the place is free */
	int		 kind;						/* a StatsKind; of the last wait */
	uint64_t waits;						/* since the path is followed */
	uint64_t wait_us;					/* likewise, all together */
	uint64_t longest_us;				/* likewise */
	uint64_t before_us; /* they may have waited for it before, but not for longer than this */
} StatsRank;

typedef struct StatsRanking
{
	/* Apart from the ranks, since each search reads all of them. */
	uint32_t  hashes[STATS_RANKED_PATHS];
	uint64_t  weights[STATS_RANKED_PATHS]; /* wait_us + before_us */
	StatsRank ranks[STATS_RANKED_PATHS];
} StatsRanking;

extern void stats_ranking_add(StatsRanking *ranking, const char *path, int kind, uint64_t us);

#endif /* ZKLOCK_STATS_RANKING_H */
