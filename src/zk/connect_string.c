/*
 * connect_string.c
 *		Parses ZooKeeper connect strings and resolves the names in them.
 *
 * The client library gets numeric addresses only, because it would resolve names on
 * every turn of its I/O loop, and block there (trap 1).  It gets an odd number of them,
 * because after a lost connection it advances by two: with an even number it would never
 * try half of the servers again (ZOOKEEPER-2466, trap 2).
 *
 * Pure C: holds no lock, allocates nothing itself.
 *
 * Runs in: any process, any thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "zk/zk_client.h"

#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Enough for every address of every host; further ones are left out. */
#define MAX_ADDRESSES 63
#define ADDRESS_SIZE (NI_MAXHOST + 8)

/* Parses the text up to "end" as a port number.  Returns 0 if it is none. */
static int
parse_port(const char *text, const char *end)
{
	char *stop;
	long  port = strtol(text, &stop, 10);

	return isdigit((unsigned char) *text) && stop == end && port <= 65535 ? (int) port : 0;
}

/*
 * Takes the next server off a connect string: "name", "name:port" or
 * "[v6 address]:port".
 *
 *	rest	what is left of the string; NULL after the last server
 *
 * Returns NULL, or a sentence that says what is wrong with the server.
 */
const char *
connect_string_next(const char **rest, ConnectHost *host)
{
	const char *name = *rest + strspn(*rest, " ");
	const char *end = name + strcspn(name, ",/");
	const char *behind; /* the name */
	size_t		len;

	*rest = *end == ',' ? end + 1 : NULL;
	while (end > name && end[-1] == ' ')
		end--;
	if (*name == '[')
	{
		name++;
		behind = memchr(name, ']', end - name);
		if (behind == NULL)
			return "An IPv6 address lacks its closing bracket.";
		len = behind++ - name;
	}
	else
	{
		behind = memchr(name, ':', end - name);
		if (behind == NULL)
			behind = end;
		len = behind - name;
	}

	if (len == 0)
		return "A host name is empty.";
	if (len > CONNECT_STRING_MAX_HOST)
		return "A host name is too long.";
	for (size_t i = 0; i < len; i++)
	{
		if ((unsigned char) name[i] <= ' ' || (unsigned char) name[i] >= 0x7f)
			return "A host name contains a character that is not allowed.";
	}
	memcpy(host->name, name, len);
	host->name[len] = '\0';
	if (behind == end)
		host->port = CONNECT_STRING_DEFAULT_PORT;
	else
		host->port = *behind == ':' ? parse_port(behind + 1, end) : 0;
	return host->port != 0 ? NULL : "A port must be a number from 1 to 65535.";
}

/* Returns the chroot, or "" if there is none. */
const char *
connect_string_chroot(const char *string)
{
	const char *chroot = string + strcspn(string, "/");

	return strcmp(chroot, "/") == 0 ? "" : chroot;
}

/* Returns NULL, or a sentence that says what is wrong with the string. */
const char *
connect_string_fault(const char *string)
{
	const char *chroot = connect_string_chroot(string);
	const char *rest = string;
	const char *fault = NULL;
	ConnectHost host;

	if (chroot[0] != '\0')
	{
		if (strchr(chroot, ',') != NULL)
			return "There is one chroot for all servers; it follows the last of them.";
		fault = path_check(chroot, strlen(chroot));
	}
	for (int n = 1; rest != NULL && fault == NULL; n++)
		fault = n <= CONNECT_STRING_MAX_HOSTS ? connect_string_next(&rest, &host)
											  : "There are too many servers.";
	return fault;
}

static int
compare_addresses(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Finds the addresses of a host.  The name services, which might refuse it, get no number. */
static bool
look_up(const char *name, struct addrinfo **found)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};

	if (getaddrinfo(name, NULL, &hints, found) == 0)
		return true;
	hints.ai_flags = AI_ADDRCONFIG;
	return getaddrinfo(name, NULL, &hints, found) == 0;
}

/*
 * Resolves the servers of a valid string to an odd number of numeric "address:port",
 * separated by commas and followed by the chroot, as zookeeper_init() takes them.  Blocks
 * for as long as the name services do.  Names that do not resolve are left out.
 *
 * Returns false if there is no address, or no room for all.
 */
bool
connect_string_resolve(const char *string, char *resolved, size_t size)
{
	char		addresses[MAX_ADDRESSES][ADDRESS_SIZE];
	int			naddresses = 0;
	size_t		used = 0;
	const char *rest = string;

	while (rest != NULL)
	{
		struct addrinfo *found;
		ConnectHost		 host;

		if (connect_string_next(&rest, &host) != NULL)
			return false;
		if (!look_up(host.name, &found))
			continue;
		for (struct addrinfo *a = found; a != NULL && naddresses < MAX_ADDRESSES; a = a->ai_next)
		{
			char address[NI_MAXHOST];

			if (getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address), NULL, 0,
							NI_NUMERICHOST) == 0)
				snprintf(addresses[naddresses++], ADDRESS_SIZE, "%s:%d", address, host.port);
		}
		freeaddrinfo(found);
	}

	if (naddresses == 0)
		return false;

	/* They are sorted, so that a comparison shows whether they have changed. */
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
	return (size_t) snprintf(resolved + used, size - used, "%s", connect_string_chroot(string)) <
		   size - used;
}

/* Puts the first of the addresses behind the others, n times; see connect_string_resolve(). */
void
connect_string_rotate(char *addresses, int n)
{
	char *end = addresses + strcspn(addresses, "/");
	char  first[ADDRESS_SIZE];

	while (n-- > 0)
	{
		size_t len = strcspn(addresses, ",/");
		char  *others = addresses + len + 1;

		if (others > end)
			return;
		memcpy(first, addresses, len);
		memmove(addresses, others, end - others);
		end[-(ssize_t) len - 1] = ',';
		memcpy(end - len, first, len);
	}
}
