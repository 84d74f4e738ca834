/*
 * lock_acquire.h
 *		Acquiring locks: one, or several together.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_ACQUIRE_H
#define ZKLOCK_LOCK_ACQUIRE_H

#include "backend/hold.h"

/* A path in UTF-8, checked, and the mode in which it is locked */
typedef struct LockTarget
{
	const char *path;
	LockMode	mode;
} LockTarget;

/* Locks on paths of their own, in the order of their bytes, in which they are taken */
typedef struct LockSet
{
	LockTarget *targets;
	int			n;
} LockSet;

extern int	lock_compare_targets(const void *a, const void *b);
extern bool lock_acquire(const LockSet *set, LockScope scope, int64 timeout_ms);

#endif /* ZKLOCK_LOCK_ACQUIRE_H */
