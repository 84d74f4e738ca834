/*
 * lock.h
 *		Locking and unlocking paths, the fencing tokens of their locks, and the
 *		permits of semaphores.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "backend/hold.h"
#include "recipes/recipe.h"

/* A path in UTF-8, checked, and the mode in which it is locked */
typedef struct LockTarget
{
	const char *path;
	LockMode	mode;
	Hold	   *hold; /* while it is asked for, or to be released */
} LockTarget;

/* Locks on paths of their own, in the order of their bytes, in which they are taken */
typedef struct LockSet
{
	LockTarget *targets;
	int			n;
	bool		whole; /* if one is not held, none is released */
} LockSet;

extern int	 lock_compare_targets(const void *a, const void *b);
extern bool	 lock_acquire(const LockSet *set, LockScope scope, int64 timeout_ms);
extern bool	 lock_release(const LockSet *set);
extern void	 lock_release_all(void);
extern int64 lock_fencing_token(const char *path);
extern int64 lock_proved_token(const char *path);

/* Longest path of a semaphore, so that those of its nodes can be locked. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms);
extern bool permit_release(const char *path);

#endif /* ZKLOCK_LOCK_H */
