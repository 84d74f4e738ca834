/*
 * shutdown.h
 *		How the worker ends when it is asked to.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SHUTDOWN_H
#define ZKLOCK_SHUTDOWN_H

extern void	 worker_shutdown_attend(void);
extern int64 worker_shutdown_next_wakeup(void);

#endif /* ZKLOCK_SHUTDOWN_H */
