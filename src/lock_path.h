/*
 * lock_path.h
 *		The lock manager in the worker: paths, runs and contenders.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_PATH_H
#define ZKLOCK_LOCK_PATH_H

#include "zk_client.h"

extern void	 lock_path_start(void);
extern void	 lock_path_attend(void);
extern void	 lock_path_connected(const SessionInfo *session);
extern void	 lock_path_unreachable(void);
extern void	 lock_path_proved(void);
extern void	 lock_path_lose_all(void);
extern void	 lock_path_session_lost(const char *reason);
extern void	 lock_path_refuse_all(int code);
extern void	 lock_path_watch(ZkWatchEvent event, const char *path);
extern void	 lock_path_retry(void);
extern int64 lock_path_next_wakeup(void);

#endif /* ZKLOCK_LOCK_PATH_H */
