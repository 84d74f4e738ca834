/*
 * asan_early.c
 *		Starts AddressSanitizer before any library's constructor runs.
 *
 * The sanitizer initialises itself at the first malloc().  If that comes from
 * bindtextdomain() in a constructor (libgpg-error has one), it looks up a
 * symbol that is missing, glibc wants to translate the message, and the
 * process waits for a lock it holds itself.  Preloaded with "initfirst", this
 * makes an earlier malloc().
 *
 * Copyright (c) 2026, zklock contributors
 */
#include <stdlib.h>

static __attribute__((constructor)) void
start_sanitizer(void)
{
	void *volatile memory = malloc(1);

	free(memory);
}
