/*
 * test_connect_string.c
 *		Unit tests of connect_string.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include <string.h>

/* The file itself: some of what is tested is its own. */
#include "unit.h"
#include "zk/connect_string.c"

static void
accepts(const char *string, int nhosts, const char *name, int port, const char *chroot)
{
	const char *rest = string;
	ConnectHost host;
	int			n = 0;

	while (rest != NULL && connect_string_next(&rest, &host) == NULL)
		n++;
	ok(connect_string_fault(string) == NULL && n == nhosts && strcmp(host.name, name) == 0 &&
		   host.port == port && strcmp(connect_string_chroot(string), chroot) == 0,
	   "\"%s\" is taken apart", string);
}

static void
refuses(const char *string, const char *why)
{
	const char *fault = connect_string_fault(string);

	ok(fault != NULL && strstr(fault, why) != NULL, "\"%s\" is refused: %s", string,
	   fault ? fault : "(accepted)");
}

static void
library_gets(const char *resolved, const char *expected)
{
	char hosts[ZKLOCK_ADDRESSES_SIZE + 32];

	connect_string_for_library(resolved, hosts, sizeof(hosts));
	ok(strcmp(hosts, expected) == 0, "of \"%s\", the library gets \"%s\"", resolved, hosts);
}

static void
is_machine(const char *resolved, const char *address, int expected)
{
	int found = connect_string_machine(resolved, address, strlen(address));

	ok(found == expected, "in \"%s\", \"%s\" is machine %d", resolved, address, found);
}

static void
is_new(const char *known, const char *resolved, bool expected)
{
	ok(connect_string_has_new(resolved, known) == expected,
	   "for who knows \"%s\", \"%s\" is %s", known, resolved, expected ? "news" : "no news");
}

static void
resolves(const char *string, const char *expected)
{
	char resolved[ZKLOCK_ADDRESSES_SIZE];

	if (!connect_string_resolve(string, resolved, sizeof(resolved)))
		strcpy(resolved, "nothing");
	ok(strcmp(resolved, expected) == 0, "\"%s\" becomes \"%s\"", string, resolved);
}

int
main(void)
{
	char many[1024] = "h";
	char small[12];
	char longest[MAX_HOST + 1];
	char too_long[MAX_HOST + 2];

	accepts("localhost", 1, "localhost", 2181, "");
	accepts("zk1:2182", 1, "zk1", 2182, "");
	accepts("zk1:2181,zk2:2182,zk3:2183", 3, "zk3", 2183, "");
	accepts(" zk1:2181 , zk2 ", 2, "zk2", 2181, "");
	accepts("zk1/app", 1, "zk1", 2181, "/app");
	accepts("zk1,zk2:2182/app/locks", 2, "zk2", 2182, "/app/locks");
	accepts("zk1/", 1, "zk1", 2181, "");
	accepts("zk1,zk2/", 2, "zk2", 2181, "");
	accepts("zk1:65535", 1, "zk1", 65535, "");
	accepts("[::1]:2182,[fe80::1]", 2, "fe80::1", 2181, "");

	refuses("", "empty");
	refuses("zk1,,zk2", "empty");
	refuses("zk1,", "empty");
	refuses(",", "empty");
	refuses(",zk1", "empty");
	refuses(" ", "empty");
	refuses("/app", "empty");
	refuses("[]:2181", "empty");
	refuses("::1", "empty");
	refuses(":2181", "empty");
	refuses("zk1:", "port");
	refuses("zk1:0", "port");
	refuses("zk1:65536", "port");
	refuses("zk1:21x", "port");
	refuses("zk1:-1", "port");
	refuses("zk1:+1", "port");
	refuses("zk1: 1", "port");
	refuses("zk1:21 81", "port");
	refuses("zk1,zk2:99999", "port");
	refuses("zk1:99999999999999999999", "port");
	refuses("[::1", "bracket");
	refuses("[::1]2181", "port");
	refuses("zk 1", "character");
	refuses("zk1//app", "\"//\"");
	refuses("zk1/app/", "end with");
	refuses("zk1/a/../b", "\"..\"");
	refuses("zk1/zookeeper", "reserved");
	refuses("h1:2181/a,h2:2181/a", "one chroot for all servers");
	refuses("h1/a,h2", "one chroot for all servers");
	for (int i = 0; i < MAX_HOSTS; i++)
		strcat(many, ",h");
	refuses(many, "too many");
	refuses("zk\x01", "character");
	refuses("zk\x7f", "character");
	refuses("zk\xc3\xa4", "character");
	memset(longest, 'h', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	accepts(longest, 1, longest, 2181, "");
	memset(too_long, 'h', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	refuses(too_long, "too long");

	resolves("127.0.0.1:2181", "127.0.0.1:2181");
	resolves("127.0.0.1:2181,127.0.0.2:2182", "127.0.0.1:2181,127.0.0.2:2182");
	resolves("127.0.0.9:1,127.0.0.2:1,127.0.0.9:1", "127.0.0.9:1,127.0.0.2:1");
	resolves("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app");
	resolves("[::1]:2181", "::1:2181");
	resolves("no-such-host.invalid", "nothing");
	resolves("127.0.0.1:2181,:2182", "nothing");
	resolves("no-such-host.invalid,127.0.0.1:2181", "127.0.0.1:2181");

	/* An odd number, so that none is skipped. */
	library_gets("a:1", "a:1");
	library_gets("a:1,b:1/app", "255.255.255.255:1,a:1,b:1/app");
	library_gets("a:1,b:1,c:1/a|b,c", "a:1,b:1,c:1/a|b,c");
	library_gets("a:1|a:2,b:1|b:2/a|b", "255.255.255.255:1,a:1,a:2,b:1,b:2/a|b");

	is_machine("a:1|a:2,b:1,c:1/app", "a:1", 0);
	is_machine("a:1|a:2,b:1,c:1/app", "a:2", 0);
	is_machine("a:1|a:2,b:1,c:1/app", "c:1", 2);
	is_machine("a:1|a:2,b:1,c:1/app", "c:2", -1);
	is_machine("a:1|a:2,b:1,c:1/app", "", 3);
	is_machine("a:1|a:2", "", 1);

	is_new("a:1|b:1/app", "b:1/app", false);
	is_new("a:1,b:1", "b:1,a:1", false);
	is_new("aa:1,b:11", "b:1", true);
	is_new("a:1,b:1", "a:1|c:1,b:1", true);
	is_new("", "a:1", true);
	ok(connect_string_has_port("a:1,b:21/app", ":21"), "a port is known");
	ok(!connect_string_has_port("a:1,b:21/app", ":2"), "another is not");

	ok(!connect_string_resolve("127.0.0.1:2181", small, sizeof(small)),
	   "a buffer that is too small is no overflow");
	ok(!connect_string_resolve("127.0.0.1:1/app", small, sizeof(small)), "nor is it for the chroot");

	return done_testing();
}
