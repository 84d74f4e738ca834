/*
 * zk_greeting.h
 *		The read that a server must answer before its connection counts.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_GREETING_H
#define ZKLOCK_ZK_GREETING_H

#include "zk/zk_event.h"

extern void	 zk_greeting_begin(void);
extern bool	 zk_greeting_is_answer(const Event *reply);
extern int64 zk_greeting_next_wakeup(void);
extern bool	 zk_greeting_is_hopeless(void);
extern void	 zk_greeting_attend(void);

#endif /* ZKLOCK_ZK_GREETING_H */
