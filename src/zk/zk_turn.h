/*
 * zk_turn.h
 *		Whose turn it is: calls that wait to be sent.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TURN_H
#define ZKLOCK_ZK_TURN_H

#include "zk/zk_call_record.h"

/* Which calls may be taken? */
typedef enum ZkTurnLimit
{
	ZK_TURN_ANY,		 /* there is room in the window */
	ZK_TURN_NOT_PATIENT, /* there is, but deletions are to gather (zk_batch.c) */
	ZK_TURN_URGENT		 /* there is none: what is urgent goes all the same */
} ZkTurnLimit;

extern void	 zk_turn_wait(Call *call);
extern Call *zk_turn_take(ZkTurnLimit limit);
extern Call *zk_turn_take_patient(void);
extern int	 zk_turn_patient(void);
extern bool	 zk_turn_is_empty(void);
extern bool	 zk_turn_sets_watch(const Call *unwatch);

#endif /* ZKLOCK_ZK_TURN_H */
