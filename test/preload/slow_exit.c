/*
 * slow_exit.c
 *		A library for PostgreSQL's processes whose end takes long, and harms threads that run on.
 *
 * exit() runs the destructors and atexit functions of all libraries that a process
 * has loaded.  Ours stand for those that free what another thread may be using
 * just then: each unmaps a page that poll() looks at, and waits until a thread has
 * had the time to look.  Which processes got that far is told by the file
 * SLOW_EXIT_LOG, a line for each.
 *
 * poll() of a thread returns soon, so that threads come here all the time.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_SIZE 4096
#define SOON_MS 10
#define LONG_US 200000

static int (*real_poll)(struct pollfd *, nfds_t, int);
static volatile char *page;		  /* which threads use, and the end of the process frees */
static volatile int have_threads; /* in this process, not in the one that it was forked from */

int
poll(struct pollfd *fds, nfds_t n, int timeout)
{
	int result;

	if (syscall(SYS_gettid) == getpid())
		return real_poll(fds, n, timeout);
	have_threads = getpid();
	result = real_poll(fds, n, timeout < 0 || timeout > SOON_MS ? SOON_MS : timeout);
	page[0]++;
	return result;
}

static void
end_slowly(void)
{
	char line[64];
	int	 file;

	if (have_threads != getpid())
		return;
	file = open(getenv("SLOW_EXIT_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
	snprintf(line, sizeof(line), "process %d runs destructors while threads run\n", getpid());
	if (write(file, line, strlen(line)) < 0)
		_exit(3);
	close(file);
	munmap((void *) page, PAGE_SIZE);
	usleep(LONG_US);
}

__attribute__((destructor)) static void
destructor(void)
{
	end_slowly();
}

__attribute__((constructor)) static void
constructor(void)
{
	page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	real_poll = (int (*)(struct pollfd *, nfds_t, int)) dlsym(RTLD_NEXT, "poll");
	atexit(end_slowly);
}
