/*
 * seeks.h
 *		Watches for sessions that look for elements of queues.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SEEKS_H
#define ZKLOCK_SEEKS_H

typedef enum WatchedKind
{
	WATCHED_QUEUE,
	WATCHED_CLAIM
} WatchedKind;

extern void worker_seeks_start(void);
extern void worker_seeks_attend(void);
extern bool worker_seeks_watch(const char *path, WatchedKind kind);
extern void worker_seeks_unwatched(const char *path);
extern void worker_seeks_event(const char *path);
extern void worker_seeks_connected(void);

#endif /* ZKLOCK_SEEKS_H */
