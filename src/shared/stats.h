/*
 * stats.h
 *		Statistics: what has happened since the server started, or since a reset.
 *
 * stats.c says how they are counted.
 *
 * A recipe that is to be counted adds a value of StatsKind and its names in stats.c.  From
 * then on its waits are counted in backend/wait.c.
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

/* The name of a kind */
typedef struct StatsName
{
	const char *kind;
	const char *mode; /* or NULL */
} StatsName;

extern const StatsName stats_names[STATS_KINDS];

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

/*
 * The histogram of waits: those in bucket i are shorter than stats_wait_bounds_us[i]; the
 * last bucket has no bound.
 */
#define STATS_BUCKETS 20
extern const int64 stats_wait_bounds_us[STATS_BUCKETS - 1];

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
	STATS_WAITS,		  /* by end and bucket */
	STATS_COUNTERS = STATS_WAITS + STATS_WAIT_ENDS * STATS_BUCKETS
} StatsCounter;

typedef struct StatsShared
{
	pg_atomic_uint64 of_kind[STATS_KINDS][STATS_COUNTERS];
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
	pg_atomic_fetch_add_u64(&stats_shared->of_kind[kind][counter], n);
}

/* Returns the counter of waits with that end and that bucket of the histogram. */
static inline int
stats_counter_of_waits(StatsWaitEnd end, int bucket)
{
	return STATS_WAITS + end * STATS_BUCKETS + bucket;
}

static inline StatsKind
stats_kind(RequestKind kind, LockMode mode)
{
	if (kind == REQUEST_LOCK)
		return mode == LOCK_MODE_EXCLUSIVE ? STATS_LOCK_EXCLUSIVE : STATS_LOCK_SHARED;
	return kind == REQUEST_ELEMENT ? STATS_QUEUE : STATS_SEMAPHORE;
}

#endif /* ZKLOCK_STATS_H */
