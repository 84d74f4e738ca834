/*
 * clock.c
 *		The clock by which everything in zklock is timed.
 *
 * Runs in: any process or thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <time.h>

#include "shared/clock.h"

/*
 * Microseconds on a clock that no one sets and that runs on while the machine
 * sleeps; only differences mean anything.
 */
int64
zklock_now_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return INT64CONST(1000000) * now.tv_sec + now.tv_nsec / 1000;
}

/* The same in milliseconds. */
int64
zklock_now_ms(void)
{
	return zklock_now_us() / 1000;
}

/* Whole milliseconds since a time by zklock_now_us(): never more than have passed. */
int64
zklock_ms_since(int64 start_us)
{
	return (zklock_now_us() - start_us) / 1000;
}
