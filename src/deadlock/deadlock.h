/*
 * deadlock.h
 *		The search for deadlocks, as a session that waits sees it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "shared/entry.h"

/* Looks for a deadlock on this server; raises an error if this session is to give up. */
extern void deadlock_check(int index);

/*
 * The same across servers.  One session that has waited for long searches for all of its
 * server.
 */
extern int64 deadlock_across_attend(int index, int64 until);
extern void	 deadlock_across_leave(int index);

/* The beginning of the description of a wait for a permit */
#define WAIT_FOR_PERMIT "SemaphorePermit"

extern char *waits_describe_contender(const EntryCopy *waiting);

#endif /* ZKLOCK_DEADLOCK_H */
