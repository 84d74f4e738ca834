/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  The least that a test program in C needs to speak TAP.
 *
 * Each assertion prints one line; done_testing() prints the plan and returns
 * the exit code of the program.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_UNIT_H
#define ZKLOCK_UNIT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int unit_run = 0;
static int unit_failed = 0;

/* Assert a condition; the rest is its name, as for printf(). */
static inline bool __attribute__((format(printf, 2, 3))) ok(bool condition, const char *format, ...)
{
	va_list args;

	unit_run++;
	if (!condition)
		unit_failed++;

	printf("%s %d - ", condition ? "ok" : "not ok", unit_run);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	return condition;
}

/* Assert that two integers are equal. */
static inline bool
is_int(long long got, long long expected, const char *name)
{
	bool equal = (got == expected);

	ok(equal, "%s", name);
	if (!equal)
		printf("#   got: %lld\n#   expected: %lld\n", got, expected);
	return equal;
}

/* Assert that two strings are equal. */
static inline bool
is_str(const char *got, const char *expected, const char *name)
{
	bool equal = (strcmp(got, expected) == 0);

	ok(equal, "%s", name);
	if (!equal)
		printf("#   got: \"%s\"\n#   expected: \"%s\"\n", got, expected);
	return equal;
}

/* Print the plan; returns what main() is to return. */
static inline int
done_testing(void)
{
	printf("1..%d\n", unit_run);
	if (unit_failed > 0)
		printf("# %d of %d failed\n", unit_failed, unit_run);
	return unit_failed > 0 ? 1 : 0;
}

#endif /* ZKLOCK_UNIT_H */
