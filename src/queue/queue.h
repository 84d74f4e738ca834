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

#include "shared/session_info.h"
#include "zk/zk_client.h"

/* A round of the main loop */
extern void		   queue_start(void);
extern void		   queue_attend(void);
extern void		   queue_watch(ZkWatchEvent event, const char *path);
extern bool		   queue_needs_watch(const ZkCall *removal);
extern void		   queue_pump(void);
extern int64	   queue_next_wakeup(void);
extern const char *queue_attended_path(void);

/* The session's life */
extern void queue_session_connected(const SessionInfo *session);
extern bool queue_session_synchronized(void);
extern void queue_session_unreachable(void);
extern void queue_session_proved(void);
extern void queue_session_unproved(void);
extern void queue_session_ended(const char *reason);
extern void queue_session_refused(int code);

/* Who waits for whom */
extern void queue_look_abroad(void);

#endif /* ZKLOCK_QUEUE_H */
