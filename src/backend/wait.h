/*
 * wait.h
 *		Waiting.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_H
#define ZKLOCK_WAIT_H

#include "backend/hold.h"
#include "shared/stats.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

/*
 * The histogram of waits: those in bucket i are shorter than wait_bounds_us[i]; the last bucket has
 * no bound.
 */
extern const int64 wait_bounds_us[STATS_BUCKETS - 1];

/* In place of a StatsKind */
#define WAIT_UNCOUNTED STATS_KINDS

/*
 * A call that waits, perhaps for several things one after the other.  What is here, and the look,
 * is all in which waits for locks, permits, elements, leadership and releases differ.
 */
typedef struct Wait
{
	const char	   *path;		  /* for messages */
	const char	   *what;		  /* what is waited for; for messages, too */
	int64			timeout_ms;	  /* LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds */
	int64			start_us;	  /* by zklock_now_us() */
	StatsKind		kind;		  /* as what its end is counted, once; or WAIT_UNCOUNTED */
	ZklockWaitEvent event;		  /* ..._LOCK: lock_timeout and log_lock_waits apply */
	bool			is_logged;	  /* log_lock_waits has logged that it lasts */
	int				entry;		  /* the entry that waits, or ENTRY_NONE */
	int64			absent_since; /* no worker since, ms; 0: there is one */
	int64			deadlock_check_at; /* when to look for a deadlock, ms after the start */
	bool			searched;		 /* the session has looked for deadlocks across servers */
	bool			outage_reported; /* the client has had the NOTICE of the outage */
} Wait;

/* The result of a look at the awaited thing */
typedef enum WaitAnswer
{
	WAIT_OVER,	   /* what is awaited is there */
	WAIT_REFUSED,  /* it will not come */
	WAIT_NOTIFIED, /* it may come, and its coming sets the latch */
	WAIT_POLLED	   /* it may come, but nothing sets the latch */
} WaitAnswer;

typedef WaitAnswer (*WaitLook)(const Wait *wait, void *arg);

extern void wait_begin(Wait *wait, const char *path, const char *what, StatsKind kind, int64 timeout_ms);
extern bool	 wait_until(Wait *wait, WaitLook look, void *arg);
extern int64 wait_attend(void *wait);
extern void	 wait_end(Wait *wait, bool granted);
extern void	 wait_break_off(int code, Datum wait);

/* Waits for what was asked */
extern bool wait_for_hold(Wait *wait, Hold *hold);
extern bool wait_for_release(Wait *whole, const char *path, int entry, uint32 generation);

#endif /* ZKLOCK_WAIT_H */
