/*
 * fault.h
 *		Faults by name, which tests switch on.
 *
 * A build with -DZKLOCK_FAULTS has one more setting, zklock.faults: a list of names such as
 * "orphan,slow-writes", which a superuser may also set for one session.
 * ZKLOCK_FAULT("orphan") is true if the name is in the list.  In any other build it is the
 * constant false, and the compiler drops the code that depends on it.
 *
 * A fault is a line where it happens and a row in test/faults/README.md, which says what
 * must hold in spite of it and which test shows that.  "make lint" checks that the lines
 * and the rows agree.
 *
 * Pure C, for all storeys.  Runs in: any process; not in threads, since the main thread may
 * change the setting at any time.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_FAULT_H
#define ZKLOCK_FAULT_H

#include <stdbool.h>

#ifdef ZKLOCK_FAULTS

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char *zklock_faults; /* the setting; NULL while there are no settings */

static inline bool
zklock_fault_is_on(const char *name)
{
	size_t len = strlen(name);

	for (const char *at = zklock_faults; at && (at = strstr(at, name)) != NULL; at += len)
	{
		if ((at == zklock_faults || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	}
	return false;
}

/*
 * Sleeps "ms" milliseconds if the fault is on, but at most "times" times in each process
 * and source file, so that tests of many locks end.  With "slow-random", any of these
 * places sometimes sleeps up to 50 ms.
 */
static inline void
zklock_slow(const char *name, int ms, int times)
{
	static int done = 0;

	if (zklock_fault_is_on("slow-random") && random() % 10 == 0)
		usleep(random() % 50000);
	if (zklock_fault_is_on(name) && done++ < times)
		usleep(ms * 1000);
}

#define ZKLOCK_FAULT(name) zklock_fault_is_on(name)
#define ZKLOCK_SLOW(name, ms, times) zklock_slow(name, ms, times)

#else

#define ZKLOCK_FAULT(name) false
#define ZKLOCK_SLOW(name, ms, times) ((void) 0)

#endif /* ZKLOCK_FAULTS */

#endif /* ZKLOCK_FAULT_H */
