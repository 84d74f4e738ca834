/*
 * zk_turn.h
 *		Whose turn it is: calls that wait to be sent.
 *
 * Private to zk_call.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TURN_H
#define ZKLOCK_ZK_TURN_H

#include "zk/zk_call.h"

typedef enum TurnLimit
{
	TURN_ANY,	/* there is room in the window */
	TURN_URGENT /* there is none: what is urgent goes all the same */
} TurnLimit;

extern void	 turn_wait(Call *call);
extern Call *turn_take(TurnLimit limit);
extern bool	 turn_is_empty(void);
extern bool	 turn_sets_watch(const Call *unwatch);

#endif /* ZKLOCK_ZK_TURN_H */
