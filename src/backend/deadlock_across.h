/*
 * deadlock_across.h
 *		Deadlocks across servers: one waiting session searches for all of its server.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_ACROSS_H
#define ZKLOCK_DEADLOCK_ACROSS_H

extern void	 deadlock_across_attend(int index, int64 until);
extern int64 deadlock_across_next_wakeup(void);
extern void	 deadlock_across_leave(void);

#endif /* ZKLOCK_DEADLOCK_ACROSS_H */
