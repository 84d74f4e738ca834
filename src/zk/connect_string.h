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

#include "recipes/node_name.h"

#define CONNECT_STRING_MAX_HOSTS 32
#define CONNECT_STRING_MAX_HOST 255 /* bytes of one host name */
#define CONNECT_STRING_DEFAULT_PORT 2181

typedef struct ConnectHost
{
	char name[CONNECT_STRING_MAX_HOST + 1];
	int	 port;
} ConnectHost;

typedef struct ConnectString
{
	int			nhosts;
	ConnectHost hosts[CONNECT_STRING_MAX_HOSTS];
	char		chroot[ZKLOCK_MAX_PATH + 1]; /* "" if there is none */
} ConnectString;

extern const char *connect_string_parse(const char *string, ConnectString *parsed);
extern bool		   connect_string_resolve(const ConnectString *servers, bool numeric_only,
										  char *resolved, size_t size);

#endif /* ZKLOCK_CONNECT_STRING_H */
