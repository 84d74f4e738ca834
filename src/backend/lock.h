/*
 * lock.h
 *		Locking and unlocking paths, permits of semaphores, and reservations; and what ends with
 *		a call, and with a transaction.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "backend/hold.h"

/* A checked path in UTF-8, and the mode in which it is locked */
typedef struct LockTarget
{
	const char *path; /* first: pg_qsort_strcmp() compares it */
	LockMode	mode;
	Hold	   *hold; /* while the lock is asked for or released */
} LockTarget;

StaticAssertDecl(offsetof(LockTarget, path) == 0, "targets are sorted as their paths");

/*
 * Locks on different paths, sorted by the bytes of the paths, the order in which they are
 * taken
 */
typedef struct LockSet
{
	LockTarget *targets;
	int			n;
	bool		whole; /* if one lock is not held, none is released */
} LockSet;

/* Returns true if a hold is one of those that are meant.  Must not fail. */
typedef bool (*HoldChoice)(const Hold *hold, const void *arg);

extern bool lock_acquire(LockSet set, LockScope scope, int64 timeout_ms);
extern bool lock_release(LockSet set);
extern void lock_release_those(HoldChoice chosen, const void *arg);

/* Longest path of a semaphore: its nodes' paths are paths of entries, too. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms);
extern bool permit_release(const char *path);

extern bool reserve_acquire(const char *path, int duration_ms, int64 timeout_ms, int64 *token);

/* A call that acquires something, whatever it is */
extern void transaction_begin_call(void);
extern void transaction_acquired(Hold *hold, LockMode mode, LockScope scope);
extern void transaction_end_call(bool complete);

extern int64 transaction_leads(int election);
extern void	 backend_install_hooks(void);

#endif /* ZKLOCK_LOCK_H */
