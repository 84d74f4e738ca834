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

const int64 stats_wait_bounds_us[] = {500,		1000,	   2000,	  5000,		 10000,
									  20000,	50000,	   100000,	  200000,	 500000,
									  1000000,	2000000,   5000000,	  10000000,	 30000000,
									  60000000, 300000000, 600000000, 3600000000};

const StatsName stats_names[] =
	{[STATS_LOCK_EXCLUSIVE] = {"lock", "exclusive"}, [STATS_LOCK_SHARED] = {"lock", "shared"},
	 [STATS_SEMAPHORE] = {"semaphore", NULL},		 [STATS_QUEUE] = {"queue", NULL},
	 [STATS_ELECTION] = {"election", NULL},			 [STATS_CLAIM] = {"claim", NULL}};

StatsShared *stats_shared = NULL;
