/*
 * deadlock.h
 *		Deadlocks across servers: what the worker does for the session that searches.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_DEADLOCK_H
#define ZKLOCK_WORKER_DEADLOCK_H

extern void	 worker_deadlock_attend(void);
extern int64 worker_deadlock_next_wakeup(void);

#endif /* ZKLOCK_WORKER_DEADLOCK_H */
