/*
 * lock_path.h
 *		The lock manager in the worker: paths, runs and contenders.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_PATH_H
#define ZKLOCK_LOCK_PATH_H

#include "zk/zk_client.h"

/* Requests and watches (lock_path.c) */
extern void	 lock_path_start(void);
extern void	 lock_path_attend(void);
extern void	 lock_path_watch(ZkWatchEvent event, const char *path);
extern void	 lock_path_retry(void);
extern int64 lock_path_next_wakeup(void);

/* The session's life (lock_session.c) */
extern void lock_session_connected(const SessionInfo *session);
extern void lock_session_unreachable(void);
extern void lock_session_proved(void);
extern void lock_session_unproved(void);
extern void lock_session_ended(const char *reason);
extern void lock_session_refused(int code);

#endif /* ZKLOCK_LOCK_PATH_H */
