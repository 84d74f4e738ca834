/*
 * common.c
 *		The clock by which everything in zklock is timed, and names of wait events.
 *
 * Runs in: any process, and the clock in any thread.  The static variables are private to
 * the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <time.h>

#include "compat.h"
#include "shared/common.h"
#include "storage/lock.h"

/*
 * Returns microseconds on a clock that is never set and that runs on while the machine
 * sleeps; only differences mean anything.
 */
int64
zklock_now_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return INT64CONST(1000000) * now.tv_sec + now.tv_nsec / 1000;
}

/* Returns the same in milliseconds. */
int64
zklock_now_ms(void)
{
	return zklock_now_us() / 1000;
}

/* Returns the milliseconds since a time by zklock_now_us(), rounded down. */
int64
zklock_ms_since(int64 start_us)
{
	return (zklock_now_us() - start_us) / 1000;
}

/*
 * Returns the milliseconds until a time by zklock_now_ms(), or 0 if it has passed.
 *
 * Max() would read the clock twice.  If the time passed in between, the result would be
 * negative, which is a timeout that never ends.
 */
int64
zklock_ms_until(int64 at)
{
	int64 left = at - zklock_now_ms();

	return Max(left, 0);
}

/*
 * Returns the info for WaitLatch() and the like.  May fail on its first call.
 *
 * Since release 17 an extension's wait events have names.  Each process makes them on first
 * use, as that takes a lock, and keeps them.  Before, PostgreSQL's own are used: a session
 * that waits for a lock appears as waiting for a user lock, and all others as
 * PG_WAIT_EXTENSION.
 */
uint32
zklock_wait_event(ZklockWaitEvent event)
{
	static const char *const names[] =
		{[ZKLOCK_WAIT_LOCK] = "ZkLock",		  [ZKLOCK_WAIT_COMMIT_GUARD] = "ZkCommitGuard",
		 [ZKLOCK_WAIT_UNLOCK] = "ZkUnlock",	  [ZKLOCK_WAIT_CALL] = "ZkCall",
		 [ZKLOCK_WAIT_ELEMENT] = "ZkElement", [ZKLOCK_WAIT_WORKER] = "ZkWorkerMain"};
	static uint32 infos[lengthof(names)]; /* 0: not made yet */

	if (infos[event] == 0)
		infos[event] = compat_wait_event(names[event], event == ZKLOCK_WAIT_LOCK
														   ? PG_WAIT_LOCK | LOCKTAG_USERLOCK
														   : PG_WAIT_EXTENSION);
	return infos[event];
}
