/*
 * slow_names.c
 *		A library for PostgreSQL's processes in which names take long to be looked up.
 *
 * As long as the file SLOW_NAMES exists, getaddrinfo() returns for numeric addresses
 * only.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_AGAIN_US 20000

typedef int (*Lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int
getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	Lookup real = (Lookup) dlsym(RTLD_NEXT, "getaddrinfo");

	while (!(hints && hints->ai_flags & AI_NUMERICHOST) && access(getenv("SLOW_NAMES"), F_OK) == 0)
		usleep(LOOK_AGAIN_US);
	return real(name, service, hints, found);
}
