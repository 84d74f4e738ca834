/*
 * overrun.h
 *		Holders that have held for longer than zklock.max_hold_time.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_OVERRUN_H
#define ZKLOCK_OVERRUN_H

extern void	 queue_overrun_attend(void);
extern int64 queue_overrun_next_wakeup(void);

#endif /* ZKLOCK_OVERRUN_H */
