/*
 * seek.h
 *		Who looks for an element of a queue, and in which order.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SEEK_H
#define ZKLOCK_SEEK_H

#include "port/atomics.h"
#include "recipes/node_name.h"
#include "storage/lwlock.h"

/* A process that seeks.  All is protected by seek_lock. */
typedef struct Seeker
{
	uint64 ticket;	/* in order of coming; 0: it does not seek */
	bool   changed; /* something has happened at the path since it looked */
	char   path[ZKLOCK_MAX_PATH + 1];
} Seeker;

typedef struct SeekTable
{
	int				 nseekers;	  /* constant: one for each process that there can be */
	uint64			 next_ticket; /* protected by seek_lock */
	pg_atomic_uint32 left;		  /* the last seeker of a path may have left */
	Seeker			 seekers[FLEXIBLE_ARRAY_MEMBER];
} SeekTable;

/* In shared memory */
extern SeekTable *seek_table;
extern LWLock	 *seek_lock;

extern Size seek_table_size(int processes);
extern void seek_table_init(SeekTable *table, int processes);

/* Backends */
extern void seek_join(const char *path);
extern bool seek_is_turn(bool anyhow);
extern void seek_leave(void);

/* The worker */
extern void seek_tell(const char *path);
extern void seek_tell_all(void);
extern bool seek_exists(const char *path);

#endif /* ZKLOCK_SEEK_H */
