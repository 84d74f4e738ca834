/*
 * watch.h
 *		The account of the engine's watches.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WATCH_H
#define ZKLOCK_WATCH_H

#include "queue/engine.h"

/* May the server have the watch that is given up? */
typedef enum WatchRemains
{
	WATCH_IS_GONE,
	WATCH_MAY_EXIST
} WatchRemains;

extern void watch_child_set(Path *path, WatchState state);
extern void watch_child_give_up(Path *path, WatchRemains remains);
extern void watch_own_set(Run *run, WatchState state);
extern bool watch_covers(const Run *run);
extern void watch_blocker_set(Run *run, WatchState state);
extern void watch_blocker_end(Run *run, WatchState state, WatchRemains remains);
extern bool watch_exists(WatchState state);

#endif /* ZKLOCK_WATCH_H */
