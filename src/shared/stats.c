/*
 * stats.c
 *		Statistics: what has happened since the server started, or since a reset.
 *
 * Each count is one atomic number in shared memory, to which every process adds.  That
 * takes some nanoseconds, waits for nobody, and cannot fail, so it may be done at commit,
 * abort and exit.
 *
 * A wait adds one to one number: that of its end and length.  All sums over waits are
 * computed from these numbers when they are read.  So they agree at any time, whatever is
 * counted meanwhile, and only a reset decreases them:
 *
 *		waits = acquisitions - reentrant + timeouts + busy + cancels + deadlocks + failures
 *			  = the sum of the histogram
 *
 * If the server crashes, all counts begin at zero.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "port/atomics.h"
#include "shared/stats.h"
#include "utils/timestamp.h"

const int64 stats_wait_bounds_us[] = {500,		1000,	   2000,	  5000,		 10000,
									  20000,	50000,	   100000,	  200000,	 500000,
									  1000000,	2000000,   5000000,	  10000000,	 30000000,
									  60000000, 300000000, 600000000, 3600000000};

const StatsName stats_names[] =
	{[STATS_LOCK_EXCLUSIVE] = {"lock", "exclusive"}, [STATS_LOCK_SHARED] = {"lock", "shared"},
	 [STATS_SEMAPHORE] = {"semaphore", NULL},		 [STATS_QUEUE] = {"queue", NULL},
	 [STATS_ELECTION] = {"election", NULL},			 [STATS_CLAIM] = {"claim", NULL}};

StatsShared *stats_shared = NULL;

/* ------------------------------------------------------------------------
 * Counting
 * ------------------------------------------------------------------------
 */

/* Returns the counter of waits with that end and that bucket of the histogram. */
static int
counter_of_waits(StatsWaitEnd end, int bucket)
{
	return STATS_WAITS + end * STATS_BUCKETS + bucket;
}

/* Counts a wait that has ended, after that many microseconds. */
void
stats_waited(StatsKind kind, StatsWaitEnd end, int64 us)
{
	int bucket = 0;

	while (bucket < STATS_BUCKETS - 1 && us >= stats_wait_bounds_us[bucket])
		bucket++;
	stats_add(kind, counter_of_waits(end, bucket), 1);
	stats_add(kind, STATS_WAIT_US, us);
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

/* Returns the numbers of waits of a kind. */
StatsWaits
stats_waits(StatsKind kind)
{
	StatsWaits waits = {0};

	for (int end = 0; end < STATS_WAIT_ENDS; end++)
	{
		for (int i = 0; i < STATS_BUCKETS; i++)
		{
			uint64 n = stats_counter(kind, counter_of_waits(end, i));

			waits.n += n;
			waits.ends[end] += n;
			waits.histogram[i] += n;
		}
	}
	return waits;
}

/* Resets all counts but those of requests. */
void
stats_reset(void)
{
	for (int kind = 0; kind < STATS_KINDS; kind++)
	{
		for (int i = 0; i < STATS_COUNTERS; i++)
			pg_atomic_write_u64(&stats_shared->of_kind[kind][i], 0);
	}
	pg_atomic_write_u64(&stats_shared->reset_at, GetCurrentTimestamp());
}
