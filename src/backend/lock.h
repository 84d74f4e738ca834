/*
 * lock.h
 *		Unlocking paths, and the fencing tokens of their locks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "backend/hold.h"
#include "backend/lock_acquire.h"

/* If one lock of a set is not held, are the others released? */
typedef enum ReleaseRule
{
	RELEASE_ALL_OR_NONE,
	RELEASE_WHAT_IS_HELD
} ReleaseRule;

extern bool	 lock_release(const LockSet *set, ReleaseRule rule);
extern void	 lock_release_all(HandoverList *awaited);
extern bool	 lock_is_held(const char *path);
extern int64 lock_fencing_token(const char *path);
extern int64 lock_proved_token(const char *path);

#endif /* ZKLOCK_LOCK_H */
