/*
 * connect_string.c
 *		Parses ZooKeeper connect strings and resolves the names in them.
 *
 * The client library gets numeric addresses only, because it would resolve names on
 * every turn of its I/O loop, and block there (trap 1).
 *
 * Each server of the string is a machine, whatever the number of its addresses.  Resolved,
 * the string lists machines, separated by commas, with their addresses, separated by bars.
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

#define MAX_HOSTS 32
#define MAX_HOST 255 /* bytes of one host name */
#define DEFAULT_PORT 2181
#define ADDRESS_SIZE 64 /* the longest of IPv6, with its interface and a port */

typedef struct ConnectHost
{
	char name[MAX_HOST + 1];
	int	 port;
} ConnectHost;

/*
 * Takes the next server off a connect string: "name", "name:port" or
 * "[v6 address]:port".
 *
 *	rest	what is left of the string; NULL after the last server
 *
 * Returns NULL, or a sentence that says what is wrong with the server.
 */
static const char *
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
	if (len > MAX_HOST)
		return "A host name is too long.";
	for (size_t i = 0; i < len; i++)
	{
		if ((unsigned char) name[i] <= ' ' || (unsigned char) name[i] >= 0x7f)
			return "A host name contains a character that is not allowed.";
	}
	memcpy(host->name, name, len);
	host->name[len] = '\0';
	if (behind == end)
		host->port = DEFAULT_PORT;
	else
	{
		char *stop;
		long  port = strtol(behind + 1, &stop, 10);

		if (*behind != ':' || !isdigit((unsigned char) behind[1]) || stop != end || port < 1 ||
			port > 65535)
			return "A port must be a number from 1 to 65535.";
		host->port = (int) port;
	}
	return NULL;
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
		fault = n <= MAX_HOSTS ? connect_string_next(&rest, &host) : "There are too many servers.";
	return fault;
}

/*
 * Finds an address in a resolved string.  Returns the number of its machine, or -1; of an empty
 * address, the number of all machines.
 */
int
connect_string_machine(const char *resolved, const char *address, size_t len)
{
	int machine = 0;

	for (const char *a = resolved;; a++)
	{
		size_t its_len = strcspn(a, "|,/");

		if (len > 0 && its_len == len && memcmp(a, address, len) == 0)
			return machine;
		a += its_len;
		if (*a != '|')
			machine++;
		if (*a != '|' && *a != ',')
			return len > 0 ? -1 : machine;
	}
}

/*
 * Resolves the servers of a valid string to numeric addresses, "address:port", and appends the
 * chroot.  Blocks for as long as the name services do.  Names that do not resolve are left out,
 * and so are addresses for which there is no room.
 *
 * Returns false if there is no address.
 */
bool
connect_string_resolve(const char *string, char *resolved, size_t size)
{
	const char *chroot = connect_string_chroot(string);
	size_t		room = size > strlen(chroot) ? size - strlen(chroot) : 0;
	size_t		used = 0;
	const char *rest = string;

	resolved[0] = '\0';
	while (rest != NULL)
	{
		struct addrinfo	 number = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
		struct addrinfo	 name = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
		struct addrinfo *found;
		ConnectHost		 host;
		const char		*separator = used > 0 ? "," : "";

		if (connect_string_next(&rest, &host) != NULL)
			return false;
		/* The name services, which might refuse it, get no number. */
		if (getaddrinfo(host.name, NULL, &number, &found) != 0 &&
			getaddrinfo(host.name, NULL, &name, &found) != 0)
			continue;
		for (struct addrinfo *a = found; a != NULL; a = a->ai_next)
		{
			char address[ADDRESS_SIZE];
			int	 len;

			if (getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address), NULL, 0,
							NI_NUMERICHOST) != 0)
				continue;
			len = strlen(address);
			len += snprintf(address + len, sizeof(address) - len, ":%d", host.port);
			if (used + 1 + len >= room || connect_string_machine(resolved, address, len) >= 0)
				continue;
			used += sprintf(resolved + used, "%s%s", separator, address);
			separator = "|";
		}
		freeaddrinfo(found);
	}
	if (used > 0)
		strcpy(resolved + used, chroot);
	return used > 0;
}

/* Returns true if a resolved string has addresses that a string of known ones has not. */
bool
connect_string_has_new(const char *resolved, const char *known)
{
	for (const char *a = resolved;; a++)
	{
		size_t len = strcspn(a, "|,/");

		if (connect_string_machine(known, a, len) < 0)
			return true;
		a += len;
		if (*a != '|' && *a != ',')
			return false;
	}
}

/* Returns true if one of the addresses has the port, which has a colon before it. */
bool
connect_string_has_port(const char *resolved, const char *port)
{
	for (const char *a = strchr(resolved, ':'); a != NULL; a = strchr(a + 1, ':'))
	{
		if (strcspn(a, "|,/") == strlen(port) && strncmp(a, port, strlen(port)) == 0)
			return true;
	}
	return false;
}

/*
 * Makes of a resolved string what zookeeper_init() takes.  When a connection is lost, or an
 * attempt fails, the library advances by two (ZOOKEEPER-2466, trap 2): of an even number of
 * addresses it would never try half of them again.  So it gets one more then, which fails at
 * once.
 */
void
connect_string_for_library(const char *resolved, char *hosts, size_t size)
{
	int n = 1;

	for (const char *c = resolved; *c != '\0' && *c != '/'; c++)
		n += *c == '|' || *c == ',';
	snprintf(hosts, size, "%s%s", n % 2 == 0 ? CONNECT_STRING_NOWHERE "," : "", resolved);
	for (char *c = hosts; *c != '\0' && *c != '/'; c++)
	{
		if (*c == '|')
			*c = ',';
	}
}
