/*
 * connect_string.h
 *		ZooKeeper connect strings: "host:port,host:port/chroot".
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CONNECT_STRING_H
#define ZKLOCK_CONNECT_STRING_H

#include <stdbool.h>
#include <stddef.h>

#define CONNECT_STRING_MAX_HOSTS 32
#define CONNECT_STRING_MAX_HOST 255 /* bytes of one host name */
#define CONNECT_STRING_DEFAULT_PORT 2181
#define CONNECT_STRING_RESOLVED_SIZE 4096 /* of addresses with the chroot, and a NUL */

typedef struct ConnectHost
{
	char name[CONNECT_STRING_MAX_HOST + 1];
	int	 port;
} ConnectHost;

extern const char *connect_string_fault(const char *string);
extern const char *connect_string_chroot(const char *string);
extern const char *connect_string_next(const char **rest, ConnectHost *host);
extern bool		   connect_string_resolve(const char *string, char *resolved, size_t size);

#endif /* ZKLOCK_CONNECT_STRING_H */
