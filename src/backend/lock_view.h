/*
 * lock_view.h
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_VIEW_H
#define ZKLOCK_LOCK_VIEW_H

#include "shared/shmem.h"
#include "utils/hsearch.h"

typedef struct LockView
{
	ContenderEntry *entries; /* copies of those in use */
	int				n;
	HTAB		   *runs; /* private to lock_view.c */
} LockView;

extern void	 lock_view_take(LockView *view);
extern void	 lock_view_drop(LockView *view);
extern void	 lock_view_blocker(const LockView *view, uint64 run_id, int waiter, int *pid,
							   const char **node);
extern char *utf8_for_display(const char *utf8, bool convertible);

#endif /* ZKLOCK_LOCK_VIEW_H */
