/*
 * test_stats_ranking.c
 *		Unit tests of stats_ranking.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/stats_ranking.h"
#include "unit.h"

#define PATHS 2000
#define WAITS 200000

static const StatsRank *
rank_of(const StatsRanking *ranking, const char *path)
{
	for (int i = 0; i < STATS_RANKED_PATHS; i++)
	{
		if (strcmp(ranking->ranks[i].path, path) == 0)
			return &ranking->ranks[i];
	}
	return NULL;
}

static const char *
numbered(int i)
{
	static char path[32];

	snprintf(path, sizeof(path), "/path/%d", i);
	return path;
}

/* As long as there is room, all is known. */
static void
few_paths(void)
{
	StatsRanking	*ranking = calloc(1, sizeof(StatsRanking));
	const StatsRank *rank;

	stats_ranking_add(ranking, "/a", 1, 5);
	stats_ranking_add(ranking, "/b", 0, 100);
	stats_ranking_add(ranking, "/a", 2, 7);
	stats_ranking_add(ranking, "/a", 2, 3);
	rank = rank_of(ranking, "/a");
	ok(rank != NULL, "a path is followed");
	is_int(rank->waits, 3, "with its waits");
	is_int(rank->wait_us, 15, "their sum");
	is_int(rank->longest_us, 7, "the longest");
	is_int(rank->before_us, 0, "and nothing was missed");
	is_int(rank->kind, 2, "the kind is that of the last wait");
	is_int(rank_of(ranking, "/b")->wait_us, 100, "another path has its own");
	free(ranking);
}

/* The lightest gives way, and is inherited. */
static void
full(void)
{
	StatsRanking	*ranking = calloc(1, sizeof(StatsRanking));
	const StatsRank *rank;

	for (int i = 0; i < STATS_RANKED_PATHS; i++)
		stats_ranking_add(ranking, numbered(i), 0, i == 7 ? 10 : 20);
	stats_ranking_add(ranking, "/new", 0, 3);
	ok(rank_of(ranking, "/path/7") == NULL, "the lightest gives way");
	rank = rank_of(ranking, "/new");
	ok(rank != NULL, "to a new path");
	is_int(rank->wait_us, 3, "which has its own wait");
	is_int(rank->before_us, 10, "and may have had that of the other before");
	stats_ranking_add(ranking, "/newer", 0, 1);
	ok(rank_of(ranking, "/new") == NULL, "it gives way in turn");
	is_int(rank_of(ranking, "/newer")->before_us, 13, "with both sums");
	free(ranking);
}

/* What the paper promises, for a skewed stream: compared with exact sums. */
static void
promises(void)
{
	StatsRanking *ranking = calloc(1, sizeof(StatsRanking));
	uint64_t	 *exact = calloc(PATHS, sizeof(uint64_t));
	uint64_t	  sum = 0;
	int			  underestimated = 0;
	int			  overestimated = 0;
	int			  missing = 0;

	srandom(1);
	for (int i = 0; i < WAITS; i++)
	{
		int		 path = (int) (PATHS / (1 + random() % PATHS)) % PATHS;
		uint64_t us = random() % 1000;

		exact[path] += us;
		sum += us;
		stats_ranking_add(ranking, numbered(path), 0, us);
	}
	for (int i = 0; i < PATHS; i++)
	{
		const StatsRank *rank = rank_of(ranking, numbered(i));

		if (rank == NULL)
		{
			missing += exact[i] > sum / STATS_RANKED_PATHS;
			continue;
		}
		underestimated += rank->wait_us + rank->before_us < exact[i];
		overestimated += rank->wait_us > exact[i] || rank->before_us > sum / STATS_RANKED_PATHS;
	}
	is_int(underestimated, 0, "no path is underestimated");
	is_int(overestimated, 0, "nor overestimated by more than the mean of all places");
	is_int(missing, 0, "none with more than that is missing");
	free(ranking);
	free(exact);
}

int
main(void)
{
	few_paths();
	full();
	promises();
	return done_testing();
}
