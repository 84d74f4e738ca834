/*
 * clock.h
 *		The clock by which everything in zklock is timed.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CLOCK_H
#define ZKLOCK_CLOCK_H

extern int64 zklock_now_us(void);
extern int64 zklock_now_ms(void);
extern int64 zklock_ms_since(int64 start_us);

#endif /* ZKLOCK_CLOCK_H */
