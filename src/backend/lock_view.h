/*
 * lock_view.h
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_VIEW_H
#define ZKLOCK_LOCK_VIEW_H

#include "shared/entry.h"

/* Those in use: by run, and in a run who holds, then who waits, in their order */
typedef struct LockView
{
	EntryCopy **entries; /* one that has overrun its time is CONTENDER_LOST */
	int			n;
} LockView;

/* For whom a process waits, as far as that is known.  The text belongs to the view. */
typedef struct LockBlocker
{
	int			pid;  /* of this server, or 0 */
	const char *node; /* of another client, or NULL */
} LockBlocker;

extern LockView	   lock_view_take(void);
extern LockView	   lock_view_of_path(const LockView *view, const char *path);
extern LockBlocker lock_view_blocker(const LockView *view, uint64 run_id, int waiter);

#endif /* ZKLOCK_LOCK_VIEW_H */
