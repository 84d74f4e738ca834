/*
 * connect_string.c
 *		Parses ZooKeeper connect strings and resolves the names in them.
 *
 * The client library is given numeric addresses only: when it resolves names
 * itself it does so on every turn of its I/O loop, and blocks there.  It is
 * given an odd number of them, because after a lost connection it advances by
 * two, and with an even number would never try half of the servers again
 * (ZOOKEEPER-2466).
 *
 * Pure C: runs in any process and in any thread, holds no lock, allocates
 * nothing itself.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "zk/connect_string.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Enough for every address of every host; further ones are left out. */
#define MAX_ADDRESSES 63
#define ADDRESS_SIZE (NI_MAXHOST + 8)

/* Parses a port number; returns 0 if it is none. */
static int
parse_port(const char *text, size_t len)
{
	int port = 0;

	if (len > 5)
		return 0;
	for (size_t i = 0; i < len; i++)
	{
		if (text[i] < '0' || text[i] > '9')
			return 0;
		port = port * 10 + (text[i] - '0');
	}
	return port <= 65535 ? port : 0;
}

/* Parses "name", "name:port" or "[v6 address]:port" of the given length. */
static const char *
parse_host(const char *text, size_t len, ConnectHost *host)
{
	const char *name = text;
	const char *rest;
	size_t		name_len;

	if (len > 0 && text[0] == '[')
	{
		const char *bracket = memchr(text, ']', len);

		if (bracket == NULL)
			return "An IPv6 address lacks its closing bracket.";
		name = text + 1;
		rest = bracket + 1;
		name_len = bracket - name;
	}
	else
	{
		const char *colon = memchr(text, ':', len);

		rest = colon ? colon : text + len;
		name_len = rest - text;
	}

	if (name_len == 0)
		return "A host name is empty.";
	if (name_len > CONNECT_STRING_MAX_HOST)
		return "A host name is too long.";
	for (size_t i = 0; i < name_len; i++)
	{
		if ((unsigned char) name[i] <= ' ' || (unsigned char) name[i] >= 0x7f)
			return "A host name contains a character that is not allowed.";
	}
	memcpy(host->name, name, name_len);
	host->name[name_len] = '\0';

	if (rest == text + len)
		host->port = CONNECT_STRING_DEFAULT_PORT;
	else
	{
		host->port = *rest == ':' ? parse_port(rest + 1, text + len - rest - 1) : 0;
		if (host->port == 0)
			return "A port must be a number from 1 to 65535.";
	}
	return NULL;
}

/*
 * Parses a connect string into "parsed".
 *
 * Returns NULL, or a sentence that says what is wrong with the string.
 */
const char *
connect_string_parse(const char *string, ConnectString *parsed)
{
	const char *slash = strchr(string, '/');
	const char *end = slash ? slash : string + strlen(string);
	const char *start = string;

	parsed->nhosts = 0;
	parsed->chroot[0] = '\0';

	if (slash && slash[1] != '\0')
	{
		PathFault fault = path_check(slash, strlen(slash));

		if (strchr(slash, ',') != NULL)
			return "There is one chroot for all servers; it follows the last of them.";
		if (fault != PATH_OK)
			return path_fault_detail(fault);
		strcpy(parsed->chroot, slash);
	}

	for (;;)
	{
		const char *comma = memchr(start, ',', end - start);
		const char *stop = comma ? comma : end;
		const char *first = start;
		const char *last = stop;
		const char *fault;

		while (first < last && *first == ' ')
			first++;
		while (last > first && last[-1] == ' ')
			last--;
		if (parsed->nhosts == CONNECT_STRING_MAX_HOSTS)
			return "There are too many servers.";
		fault = parse_host(first, last - first, &parsed->hosts[parsed->nhosts]);
		if (fault)
			return fault;
		parsed->nhosts++;
		if (comma == NULL)
			return NULL;
		start = comma + 1;
	}
}

static int
compare_addresses(const void *a, const void *b)
{
	return strcmp(a, b);
}

/*
 * Resolves the servers to an odd number of numeric "address:port", separated
 * by commas and followed by the chroot: what zookeeper_init() is given.
 *
 *	CONNECT_RESOLVE_NUMERIC	asks no name service, and returns false if one would
 *							have to be asked
 *	CONNECT_RESOLVE_NAMES	blocks for as long as name services do; names that do
 *							not resolve are left out
 *
 * Returns false if there is no address, or no room for all.
 */
bool
connect_string_resolve(const ConnectString *servers, ConnectResolver resolver, char *resolved,
					   size_t size)
{
	char   addresses[MAX_ADDRESSES][ADDRESS_SIZE];
	int	   naddresses = 0;
	size_t used = 0;

	for (int i = 0; i < servers->nhosts; i++)
	{
		struct addrinfo	 hints = {.ai_socktype = SOCK_STREAM};
		struct addrinfo *found;

		hints.ai_flags = resolver == CONNECT_RESOLVE_NUMERIC ? AI_NUMERICHOST : AI_ADDRCONFIG;
		if (getaddrinfo(servers->hosts[i].name, NULL, &hints, &found) != 0)
		{
			if (resolver == CONNECT_RESOLVE_NUMERIC)
				return false;
			continue;
		}
		for (struct addrinfo *a = found; a != NULL && naddresses < MAX_ADDRESSES; a = a->ai_next)
		{
			char host[NI_MAXHOST];

			if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) == 0)
				snprintf(addresses[naddresses++], ADDRESS_SIZE, "%s:%d", host,
						 servers->hosts[i].port);
		}
		freeaddrinfo(found);
	}

	if (naddresses == 0)
		return false;

	/* In one order, so that a comparison shows whether they have changed. */
	qsort(addresses, naddresses, ADDRESS_SIZE, compare_addresses);
	if (naddresses % 2 == 0)
	{
		memcpy(addresses[naddresses], addresses[0], ADDRESS_SIZE);
		naddresses++;
	}

	for (int i = 0; i < naddresses; i++)
	{
		int len = snprintf(resolved + used, size - used, "%s%s", i > 0 ? "," : "", addresses[i]);

		if (len < 0 || (size_t) len >= size - used)
			return false;
		used += len;
	}
	return (size_t) snprintf(resolved + used, size - used, "%s", servers->chroot) < size - used;
}
