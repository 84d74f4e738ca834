/*
 * session_life.h
 *		The life of the ZooKeeper session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_LIFE_H
#define ZKLOCK_SESSION_LIFE_H

#include "zk/zk_client.h"

extern void	 session_life_start(void);
extern void	 session_life_event(ZkSessionEvent event);
extern void	 session_life_move(void);
extern void	 session_life_end(void);
extern void	 session_life_attend(void);
extern int64 session_life_next_wakeup(void);

#endif /* ZKLOCK_SESSION_LIFE_H */
