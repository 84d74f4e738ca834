/*
 * set_clock.c
 *		A library for PostgreSQL's processes in which the clock of the day can be set back.
 *
 * As long as the file CLOCK_SET_BACK exists, it is an hour slow.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SET_BACK_S 3600

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	int				caller_errno = errno;
	struct timespec now;

	(void) tz;
	(void) clock_gettime(CLOCK_REALTIME, &now);
	*tv = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	if (access(getenv("CLOCK_SET_BACK"), F_OK) == 0)
		tv->tv_sec -= SET_BACK_S;
	errno = caller_errno;
	return 0;
}
