/*
 * heavy_wait.h
 *		Waits of processes for PostgreSQL's own locks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HEAVY_WAIT_H
#define ZKLOCK_HEAVY_WAIT_H

#include "storage/lock.h"

/* A wait of a process, or of one of those that run its query in parallel */
typedef struct HeavyWait
{
	bool	 waits;
	LOCKTAG	 tag;
	LOCKMODE mode;
	uint64	 identity; /* two looks that find the same found the same wait */
	int *blockers; /* pids of the processes in the way; parallel workers by their leader's */
	int	 nblockers;
} HeavyWait;

extern void heavy_wait_look(int pid, HeavyWait *wait);

#endif /* ZKLOCK_HEAVY_WAIT_H */
