/*
 * stats.h
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
 * A recipe that is to be counted adds a value of StatsKind, and its name to kind_names
 * (sql/monitor_funcs.c).  From then on its waits are counted in backend/wait.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_STATS_H
#define ZKLOCK_STATS_H

#include "port/atomics.h"
#include "shared/entry.h"

/* What is counted separately: a row of the view zk_stats */
typedef enum StatsKind
{
	STATS_LOCK_EXCLUSIVE,
	STATS_LOCK_SHARED,
	STATS_SEMAPHORE,
	STATS_QUEUE,	/* takes: each element taken is an acquisition */
	STATS_ELECTION, /* waits for leadership; this server leads, and loses leadership */
	STATS_CLAIM,
	STATS_KINDS
} StatsKind;

/* How a wait for the worker's answer ended; from STATS_WAIT_TIMEOUT on, columns of zk_stats */
typedef enum StatsWaitEnd
{
	STATS_WAIT_GRANTED,
	STATS_WAIT_HANDED_OVER, /* granted, by a session of this server */
	STATS_WAIT_TIMEOUT,		/* the call's own, or lock_timeout */
	STATS_WAIT_BUSY,		/* a call that does not wait found it taken */
	STATS_WAIT_CANCELLED,	/* or the session was terminated */
	STATS_WAIT_DEADLOCK,
	STATS_WAIT_FAILED, /* with any other error */
	STATS_WAIT_ENDS
} StatsWaitEnd;

#define STATS_BUCKETS 20 /* of the histogram of waits: see wait_bounds_us */

/* The counters of each kind; times are in microseconds */
typedef enum StatsCounter
{
	STATS_REENTRANT, /* acquired by a session that held it already */
	STATS_WAIT_US,
	STATS_HOLD_US, /* of locks that have been released */
	STATS_LOSSES,
	STATS_KEPT_JOINED, /* nodes that were kept, and served a session again; engine/kept.c ... */
	STATS_KEPT_VISITED,	  /* ... or were given up because another client came ... */
	STATS_KEPT_EXPIRED,	  /* ... or zklock.keep_idle was over ... */
	STATS_KEPT_CROWDED,	  /* ... or there was no room for more ... */
	STATS_KEPT_OTHERWISE, /* ... or for any other reason, which no view shows */
	STATS_COUNTERS
} StatsCounter;

typedef struct StatsOfKind
{
	pg_atomic_uint64 counts[STATS_COUNTERS];
	pg_atomic_uint64 waits[STATS_WAIT_ENDS][STATS_BUCKETS];
} StatsOfKind;

typedef struct StatsShared
{
	StatsOfKind		 of_kind[STATS_KINDS];
	pg_atomic_uint64 reset_at; /* a TimestampTz: of the last reset, or the server's start */

	/* The worker's requests to ZooKeeper, which it alone counts; never reset */
	pg_atomic_uint64 requests;		 /* requests sent, and answered or given up */
	pg_atomic_uint64 request_us;	 /* the time that they took, microseconds */
	pg_atomic_uint64 request_errors; /* those refused, or without an answer */
} StatsShared;

/* In shared memory */
extern StatsShared *stats_shared;

/* Adds to a counter. */
static inline void
stats_add(StatsKind kind, StatsCounter counter, int64 n)
{
	pg_atomic_fetch_add_u64(&stats_shared->of_kind[kind].counts[counter], n);
}

static inline StatsKind
stats_kind(RequestKind kind, LockMode mode)
{
	if (kind == REQUEST_LOCK)
		return mode == LOCK_MODE_EXCLUSIVE ? STATS_LOCK_EXCLUSIVE : STATS_LOCK_SHARED;
	return kind == REQUEST_ELEMENT ? STATS_QUEUE : STATS_SEMAPHORE;
}

#endif /* ZKLOCK_STATS_H */
