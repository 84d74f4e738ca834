/*
 * wait.h
 *		Waiting for the worker's answer, and what is told of that.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_H
#define ZKLOCK_WAIT_H

#include "backend/wait_log.h"
#include "recipes/recipe.h"
#include "shared/stats.h"

/* What the worker has still to do until a lock is free, or free to share. */
typedef struct Handover
{
	int	   entry;
	uint32 generation; /* when that has changed, it is done */
} Handover;

/* The handovers that a call waits for before it returns. */
typedef struct HandoverList
{
	Handover *handovers;
	int		  n;
} HandoverList;

/* A call that waits */
typedef struct Wait
{
	const char *path;		  /* for messages */
	const char *what;		  /* is waited for, likewise */
	WaitLog		log;		  /* what the log is told */
	int64		timeout_ms;	  /* LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds */
	StatsKind	counted_as;	  /* in the statistics */
	int64		start_us;	  /* by zklock_now_us() */
	int64		absent_since; /* no worker is seen, ms after the start; -1: there is one */
	int64		look_at;	  /* for a deadlock, ms after the start */
	bool		told_outage;  /* the client knows that nothing can be granted */
} Wait;

/* A wait that asks for no entry, for the statistics */
typedef struct CountedWait
{
	StatsKind kind;
	int64	  start_us;
} CountedWait;

/* May something become true of which nobody tells the session? */
typedef enum WaitLook
{
	WAIT_TOLD,
	WAIT_LOOK_SOON
} WaitLook;

extern void wait_begin(Wait *wait, const char *path, const char *what, int64 timeout_ms);
extern bool wait_for_entry(Wait *wait, int index);
extern bool wait_for_handovers(Wait *wait, const HandoverList *list);
extern bool wait_turn(Wait *wait, int index, bool lease_holds, WaitLook look);
extern void wait_end(Wait *wait);
extern void wait_end_at_exit(void);

extern void wait_counted_begin(CountedWait *wait, StatsKind kind);
extern void wait_counted_end(const CountedWait *wait, StatsWaitEnd end);
extern void wait_counted_break(int code, Datum arg);

#endif /* ZKLOCK_WAIT_H */
