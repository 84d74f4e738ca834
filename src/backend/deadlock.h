/*
 * deadlock.h
 *		Ends deadlocks in which this session waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "lib/stringinfo.h"

extern void deadlock_check(int index);
extern void deadlock_report(const char *cycle, const char *queries);
extern void deadlock_append_query(StringInfo queries, int pid);

/* deadlock_across.c */
extern void	 deadlock_across_attend(int index, int64 waited, int64 until);
extern int64 deadlock_across_next_wakeup(void);
extern void	 deadlock_across_leave(void);

#endif /* ZKLOCK_DEADLOCK_H */
