/*
 * wait_event.c
 *		What pg_stat_activity shows of a process of zklock that waits.
 *
 * Since release 17 an extension's wait events have names.  They are made when they
 * are needed first, as that takes a lock, and kept by each process.  Before, there
 * are PostgreSQL's own: who waits for a lock looks like a session that waits for
 * a user lock, and all others are extensions.
 *
 * Runs in: backends and the worker.  What is kept is private to the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "shared/wait_event.h"
#include "storage/lock.h"

/* The info for WaitLatch() and the like.  May fail when it is called first. */
uint32
zklock_wait_event(ZklockWaitEvent event)
{
	static const struct
	{
		const char *name;
		uint32		before_17;
	} events[] = {[ZKLOCK_WAIT_LOCK] = {"ZkLock", PG_WAIT_LOCK | LOCKTAG_USERLOCK},
				  [ZKLOCK_WAIT_COMMIT_GUARD] = {"ZkCommitGuard", PG_WAIT_EXTENSION},
				  [ZKLOCK_WAIT_UNLOCK] = {"ZkUnlock", PG_WAIT_EXTENSION},
				  [ZKLOCK_WAIT_CALL] = {"ZkCall", PG_WAIT_EXTENSION},
				  [ZKLOCK_WAIT_ELEMENT] = {"ZkElement", PG_WAIT_EXTENSION},
				  [ZKLOCK_WAIT_WORKER] = {"ZkWorkerMain", PG_WAIT_EXTENSION}};
	static uint32 infos[lengthof(events)]; /* 0: not made yet */

	if (infos[event] == 0)
		infos[event] = compat_wait_event(events[event].name, events[event].before_17);
	return infos[event];
}
