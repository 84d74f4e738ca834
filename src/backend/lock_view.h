/*
 * lock_view.h
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_VIEW_H
#define ZKLOCK_LOCK_VIEW_H

#include "shared/entry.h"
#include "utils/hsearch.h"

typedef struct LockView
{
	EntryCopy *entries; /* in use; one that has overrun its time is CONTENDER_LOST */
	int		   n;
	HTAB	  *runs; /* private to lock_view.c */
} LockView;

/* For whom a process waits, as far as that is known.  The text belongs to the view. */
typedef struct LockBlocker
{
	int			pid;  /* of this server, or 0 */
	const char *node; /* of another client, or NULL */
} LockBlocker;

extern void		   lock_view_take(LockView *view);
extern void		   lock_view_drop(LockView *view);
extern EntryCopy **lock_view_of_path(const LockView *view, const char *path, int *n);
extern LockBlocker lock_view_blocker(const LockView *view, uint64 run_id, int waiter);

#endif /* ZKLOCK_LOCK_VIEW_H */
