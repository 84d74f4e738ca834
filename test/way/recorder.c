/*
 * recorder.c
 *		Marks the functions of zklock that a session and the worker call.
 *
 * "make way" builds this into zklock.so, all functions of which are compiled with
 * -finstrument-functions.  The environment variable ZKLOCK_WAY names a file that
 * all processes of the server map: a byte for each byte of the library.  Its
 * beginning, where a library has a header and no function, says whom to record.
 * way.pl writes that, and reads the marks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "miscadmin.h"

#define NOT_RECORDED __attribute__((no_instrument_function))
#define N_ROLES 2

typedef struct Whom
{
	uint32 pid[N_ROLES];  /* the session's and the worker's process */
	uint8  mark[N_ROLES]; /* the bit that their functions get; 0 if nothing is recorded */
} Whom;

static union
{
	Whom  *whom;
	uint8 *marks;
} map; /* NULL if nothing is recorded */
static size_t map_size;
static char	 *library; /* where it is loaded */

extern void __cyg_profile_func_enter(void *function, void *call_site);
extern void __cyg_profile_func_exit(void *function, void *call_site);

/* The postmaster maps the file, and its children inherit that. */
NOT_RECORDED __attribute__((constructor)) static void
map_file(void)
{
	const char *name = getenv("ZKLOCK_WAY");
	struct stat status;
	Dl_info		info;
	int			fd;
	void	   *mapped;

	if (name == NULL)
		return;
	fd = open(name, O_RDWR);
	if (fd < 0 || fstat(fd, &status) != 0 || dladdr(&map, &info) == 0)
		abort();
	mapped = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		abort();
	close(fd);
	library = info.dli_fbase;
	map_size = status.st_size;
	map.marks = mapped;
}

NOT_RECORDED void
__cyg_profile_func_enter(void *function, void *call_site)
{
	size_t offset = (char *) function - library;

	if (map.marks == NULL)
		return;
	if (offset >= map_size)
		abort();
	for (int i = 0; i < N_ROLES; i++)
	{
		if (map.whom->pid[i] == (uint32) MyProcPid)
			__atomic_fetch_or(&map.marks[offset], map.whom->mark[i], __ATOMIC_RELAXED);
	}
}

NOT_RECORDED void
__cyg_profile_func_exit(void *function, void *call_site)
{
}
