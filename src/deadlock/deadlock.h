/*
 * deadlock.h
 *		The search for deadlocks, as a session that waits sees it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "backend/call.h"
#include "deadlock/wait_graph.h"
#include "shared/entry.h"

/* Looks for a deadlock on this server; raises an error if this session is to give up. */
extern void deadlock_check(int index);

/*
 * The same across servers.  One session that has waited for long searches for all of its
 * server.
 */
extern void	 deadlock_across_attend(int index, int64 waited, int64 until);
extern int64 deadlock_across_next_wakeup(int index);
extern void	 deadlock_across_leave(int index);

/* The beginning of the description of a wait for a permit */
#define WAIT_FOR_PERMIT "SemaphorePermit"

extern char *waits_describe_contender(const EntryCopy *waiting);

/* The records that servers publish, as anybody may read them (wait_records.c) */
extern int64		   wait_record_session(const char *name);
extern const WaitLine *wait_record_lines(const CallStep *record);

#endif /* ZKLOCK_DEADLOCK_H */
