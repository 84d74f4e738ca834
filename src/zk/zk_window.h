/*
 * zk_window.h
 *		How many calls may be under way at once.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_WINDOW_H
#define ZKLOCK_ZK_WINDOW_H

/* Does anything wait for room in the window? */
typedef enum ZkDemand
{
	ZK_DEMAND_NONE,
	ZK_DEMAND_WAITING
} ZkDemand;

extern int	zk_window_size(void);
extern void zk_window_learn(int64 sent_at_us, int ahead, ZkDemand demand);

#endif /* ZKLOCK_ZK_WINDOW_H */
