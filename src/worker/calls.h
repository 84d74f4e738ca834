/*
 * calls.h
 *		How the worker makes sessions' calls to ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CALLS_H
#define ZKLOCK_CALLS_H

extern void worker_calls_start(void);
extern void worker_calls_attend(void);
extern void worker_calls_connected(void);
extern void worker_calls_at_exit(void);

#endif /* ZKLOCK_CALLS_H */
