/*
 * stats_ranking.c
 *		The paths at which sessions have waited longest, in bounded memory.
 *
 * The algorithm is Space-Saving: A. Metwally, D. Agrawal, A. El Abbadi,
 * "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT
 * 2005, with times for weights.  There are m counters.  A path that has none
 * takes the place of the path with the smallest weight, and inherits that
 * weight: so long, but no longer, it may have been waited for while nobody
 * looked.  Hence no path is underestimated, and the smallest weight is at most
 * the sum of all waits divided by m: a path for which sessions have waited longer
 * than that is always among those followed.
 *
 * Two searches of a few hundred words each take well under a microsecond, which
 * is little beside a wait, and need no lists that a process could leave
 * half-changed.
 *
 * Runs in: any process.  Pure C; the caller protects the ranking.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include <string.h>

#include "shared/stats_ranking.h"

/* FNV-1a, by G. Fowler, L. C. Noll and P. Vo */
static uint32_t
hash_path(const char *path)
{
	uint32_t hash = 2166136261u;

	for (; *path != '\0'; path++)
		hash = (hash ^ (unsigned char) *path) * 16777619u;
	return hash;
}

/* The place of a path, or -1. */
static int
find(const StatsRanking *ranking, const char *path, uint32_t hash)
{
	for (int i = 0; i < STATS_RANKED_PATHS; i++)
	{
		if (ranking->hashes[i] == hash && strcmp(ranking->ranks[i].path, path) == 0)
			return i;
	}
	return -1;
}

/* The place with the smallest weight: a free one, if there is any. */
static int
find_lightest(const StatsRanking *ranking)
{
	int lightest = 0;

	for (int i = 0; i < STATS_RANKED_PATHS; i++)
	{
		if (ranking->ranks[i].path[0] == '\0')
			return i;
		if (ranking->weights[i] < ranking->weights[lightest])
			lightest = i;
	}
	return lightest;
}

/*
 * A session has waited.
 *
 *	ranking		zeroed at first
 *	path		not empty
 *	kind		a StatsKind
 *	us			for so long, microseconds
 */
void
stats_ranking_add(StatsRanking *ranking, const char *path, int kind, uint64_t us)
{
	uint32_t   hash = hash_path(path);
	int		   i = find(ranking, path, hash);
	StatsRank *rank;

	if (i < 0)
	{
		i = find_lightest(ranking);
		rank = &ranking->ranks[i];
		strcpy(rank->path, path);
		ranking->hashes[i] = hash;
		rank->before_us = ranking->weights[i];
		rank->waits = 0;
		rank->wait_us = 0;
		rank->longest_us = 0;
	}
	rank = &ranking->ranks[i];
	rank->kind = kind;
	rank->waits++;
	rank->wait_us += us;
	if (us > rank->longest_us)
		rank->longest_us = us;
	ranking->weights[i] += us;
}
