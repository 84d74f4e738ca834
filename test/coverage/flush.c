/*
 * flush.c
 *		Writes down what was executed, however a process ends.
 *
 * gcov counts in memory, and writes at exit().  PostgreSQL's processes often end by
 * _exit(): at SIGQUIT, which is how most servers of the tests are stopped.  So
 * this is built twice.
 *
 *	-DLIBRARY	a part of zklock.so: where gcov can be called from
 *	otherwise	a library that is loaded into the server first, whose _exit()
 *				replaces the C library's
 *
 * What was executed before SIGKILL is not known.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*Flush)(void);

#ifdef LIBRARY

extern void __gcov_dump(void);

static __attribute__((constructor)) void
offer_flush(void)
{
	Flush *flush = dlsym(RTLD_DEFAULT, "coverage_flush");

	if (flush)
		*flush = __gcov_dump;
}

static __attribute__((destructor)) void
withdraw_flush(void)
{
	Flush *flush = dlsym(RTLD_DEFAULT, "coverage_flush");

	if (flush)
		*flush = NULL;
}

#else

Flush coverage_flush;

void
_exit(int status)
{
	Flush flush = coverage_flush;

	/* A signal handler may have come upon another one that does this. */
	coverage_flush = NULL;
	if (flush)
		flush();
	for (;;)
		syscall(SYS_exit_group, status);
}

#endif
