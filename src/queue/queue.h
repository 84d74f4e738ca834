/*
 * queue.h
 *		The engine of the worker: paths, our nodes in their queues, contenders.
 *
 * path.c explains these terms.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_QUEUE_H
#define ZKLOCK_QUEUE_H

#include "zk/zk_client.h"

extern void		   queue_start(void);
extern void		   queue_attend(void);
extern void		   queue_watch(ZkWatchEvent event, const char *path);
extern void		   queue_pump(void);
extern int64	   queue_next_wakeup(void);
extern const char *queue_attended_path(void);

#endif /* ZKLOCK_QUEUE_H */
