/*
 * streak.h
 *		Nodes of ours on a path, one after the other, with nobody in between.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_STREAK_H
#define ZKLOCK_STREAK_H

#include "queue/engine.h"

/* What the number of a new node tells of those before it. */
typedef enum StreakStep
{
	STREAK_UNBROKEN, /* that they are all known */
	STREAK_BROKEN	 /* nothing */
} StreakStep;

extern void		  streak_prepare(Path *path, int owner);
extern bool		  streak_tells(const Path *path);
extern StreakStep streak_created(Path *path, int64 sequence);
extern void		  streak_listed(Path *path);
extern void		  streak_watch_fired(Path *path);
extern void		  streak_paused(Path *path);
extern void		  streak_end(Path *path);

#endif /* ZKLOCK_STREAK_H */
