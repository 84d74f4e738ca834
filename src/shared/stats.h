/*
 * stats.h
 *		Statistics: what has happened since the server started, or since a reset.
 *
 * stats.c says how they are counted.
 *
 * A recipe that is to be counted adds a value of StatsKind and its names in
 * stats.c.  What waits by an entry is counted from there on, in backend/wait.c;
 * what waits otherwise is enclosed in a CountedWait (backend/wait.h).
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_STATS_H
#define ZKLOCK_STATS_H

#include "datatype/timestamp.h"
#include "shared/stats_ranking.h"

/* What is counted apart: a row of the view zk_stats */
typedef enum StatsKind
{
	STATS_LOCK_EXCLUSIVE,
	STATS_LOCK_SHARED,
	STATS_SEMAPHORE,
	STATS_QUEUE,	/* takes: an element got is an acquisition */
	STATS_ELECTION, /* waits for leadership; it is this server that leads, and loses */
	STATS_CLAIM,
	STATS_KINDS
} StatsKind;

/* How a wait for the worker's answer ends.  In the order of their counters. */
typedef enum StatsWaitEnd
{
	STATS_WAIT_GRANTED,
	STATS_WAIT_HANDED_OVER, /* likewise, by a session of this server */
	STATS_WAIT_TIMEOUT,		/* the call's own, or lock_timeout */
	STATS_WAIT_BUSY,		/* a call that does not wait found it taken */
	STATS_WAIT_CANCELLED,	/* or the session was terminated */
	STATS_WAIT_DEADLOCK,
	STATS_WAIT_FAILED /* with any other error */
} StatsWaitEnd;

typedef enum StatsRequestEnd
{
	STATS_REQUEST_ANSWERED,
	STATS_REQUEST_FAILED /* refused, or without an answer */
} StatsRequestEnd;

/*
 * The histogram of waits: stats_wait_bounds_us[i] is what those of bucket i do
 * not reach; the last bucket has no bound.
 */
#define STATS_BUCKETS 20
extern const int64 stats_wait_bounds_us[STATS_BUCKETS - 1];

/* What is counted of each kind; times are in microseconds. */
typedef enum StatsCounter
{
	STATS_ACQUISITIONS, /* of these: */
	STATS_REENTRANT,	/* the session held it already */
	STATS_HANDED_OVER,	/* a session of this server passed it on */
	STATS_KEPT,			/* the session had kept the node since it held it last */
	STATS_WAITS,		/* ended waits, however they did */
	STATS_WAIT_US,
	STATS_HOLD_US, /* of what has been released */
	STATS_TIMEOUTS,
	STATS_BUSY,
	STATS_CANCELS,
	STATS_DEADLOCKS,
	STATS_FAILURES,
	STATS_LOSSES,
	STATS_HISTOGRAM, /* STATS_BUCKETS of them */
	STATS_COUNTERS = STATS_HISTOGRAM + STATS_BUCKETS
} StatsCounter;

/* What is counted of the ZooKeeper session. */
typedef enum StatsSessionCounter
{
	STATS_REQUESTS,	  /* that were sent, and are answered or given up */
	STATS_REQUEST_US, /* that these took, microseconds */
	STATS_ERRORS,	  /* of these: STATS_REQUEST_FAILED */
	STATS_RECONNECTS,
	STATS_EXPIRATIONS,
	STATS_SESSION_COUNTERS
} StatsSessionCounter;

typedef struct StatsCounts
{
	uint64 of_kind[STATS_KINDS][STATS_COUNTERS];
	uint64 of_session[STATS_SESSION_COUNTERS];
} StatsCounts;

typedef struct StatsShared StatsShared;

/* The postmaster, at its start */
extern Size stats_size(void);
extern void stats_request(void);
extern void stats_attach(StatsShared *shared, bool found);

/* Backends and the worker */
extern void stats_reacquired(StatsKind kind);
extern void stats_kept(StatsKind kind);
extern void stats_waited(StatsKind kind, const char *path, StatsWaitEnd end, int64 us);
extern void stats_held(StatsKind kind, int64 us);
extern void stats_lost(StatsKind kind);
extern void stats_requested(StatsRequestEnd end, int64 us);
extern void stats_session(StatsSessionCounter counter);

/* Backends */
extern void		   stats_read(StatsCounts *counts, TimestampTz *reset_at);
extern void		   stats_read_ranking(StatsRanking *ranking, TimestampTz *reset_at);
extern void		   stats_reset(void);
extern const char *stats_kind_name(StatsKind kind);
extern const char *stats_mode_name(StatsKind kind);

static inline StatsKind
stats_kind_of_lock(LockMode mode)
{
	return mode == LOCK_MODE_EXCLUSIVE ? STATS_LOCK_EXCLUSIVE : STATS_LOCK_SHARED;
}

#endif /* ZKLOCK_STATS_H */
