/*
 * elements.h
 *		How the worker claims elements of queues, and lets them go.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENTS_H
#define ZKLOCK_ELEMENTS_H

#include "zk/zk_client.h"

extern void	 worker_elements_start(void);
extern void	 worker_elements_attend(void);
extern int64 worker_elements_next_wakeup(void);
extern void	 worker_elements_watch(ZkWatchEvent event, const char *path);
extern void	 worker_elements_connected(void);
extern void	 worker_elements_session_ended(void);
extern void	 worker_elements_refused(int code);
extern bool	 worker_elements_released(void);
extern bool	 worker_elements_settled(void);

#endif /* ZKLOCK_ELEMENTS_H */
