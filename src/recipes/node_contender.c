/*-------------------------------------------------------------------------
 *
 * node_contender.c
 *	  Who the data of a zklock node says it is.
 *
 * The data is what backend/display.c writes: a JSON object whose first member is the
 * version, with strings and numbers and no space between them; or, for Hive's names,
 * fields separated by colons.  In such an object a quotation mark within a string has a
 * backslash before it, so no string looks like the beginning of a member.
 *
 * Any client can write anything into a node.  Nothing relies on it, so data that only begin
 * and end like ours are taken for ours.  They are read here, in a few lines that cannot
 * fail, and not by PostgreSQL's JSON functions, which raise errors: a session that waits
 * for a node must not end because of its data.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in
 * any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIVE_PREFIX "zklock-"
#define HIVE_USER " user "
#define HIVE_APPLICATION " application "

/* How a member's value of the JSON object begins */
#define STRING_MEMBER(name) ",\"" name "\":\""
#define NUMBER_MEMBER(name) ",\"" name "\":"

static void
copy(char dst[NODE_CONTENDER_TEXT], const char *from, const char *to)
{
	size_t len = (size_t) (to - from);

	if (len > NODE_CONTENDER_TEXT - 1)
	{
		/* No half characters */
		len = NODE_CONTENDER_TEXT - 1;
		while (len > 0 && ((unsigned char) from[len] & 0xC0) == 0x80)
			len--;
	}
	memcpy(dst, from, len);
	dst[len] = '\0';
}

/* Returns where the value of a member begins; NULL if there is no such member. */
static const char *
find_value(const char *data, const char *member)
{
	const char *found = strstr(data, member);

	return found ? found + strlen(member) : NULL;
}

/*
 * Reads a string, which is empty if there is no such member.  The only escapes are \" and \\
 * and those of control characters, which are all read as line feeds.
 */
static void
read_string(char dst[NODE_CONTENDER_TEXT], const char *data, const char *member)
{
	const char *c = find_value(data, member);
	char		text[NODE_CONTENDER_TEXT + 1];
	size_t		len = 0;

	while (c && *c != '\0' && *c != '"' && len < sizeof(text) - 1)
	{
		bool escaped = *c == '\\' && c[1] != '\0';

		c += escaped;
		text[len++] = escaped && *c != '"' && *c != '\\' ? '\n' : *c;
		c++;
	}
	text[len] = '\0';
	copy(dst, text, text + len);
}

/* Reads a positive number; 0 if there is no such member. */
static int32_t
read_positive(const char *data, const char *member)
{
	const char *digits = find_value(data, member);
	long long	value = digits ? strtoll(digits, NULL, 10) : 0;

	return value > 0 && value <= INT32_MAX ? (int32_t) value : 0;
}

static bool
read_json(const char *data, NodeContender *read)
{
	int32_t port = read_positive(data, NUMBER_MEMBER("port"));
	char	host[NODE_CONTENDER_TEXT];

	read->pid = read_positive(data, NUMBER_MEMBER("pid"));
	if (read->pid == 0 || port == 0 || data[strlen(data) - 1] != '}')
		return false;
	read_string(host, data, STRING_MEMBER("host"));
	read_string(read->server, data, STRING_MEMBER("server"));
	read_string(read->user, data, STRING_MEMBER("user"));
	read_string(read->application, data, STRING_MEMBER("application_name"));
	read->reservation = find_value(data, STRING_MEMBER("scope") "reservation\"") != NULL;
	if (read->server[0] == '\0' && host[0] != '\0')
		snprintf(read->server, NODE_CONTENDER_TEXT, "%.240s:%d", host, (int) port);
	return true;
}

/* zklock-<pid>:<time>:<how>:database <name> user <name> application <name>:<server> */
static bool
read_hive(const char *data, NodeContender *read)
{
	int			pid;
	int			query = 0;
	const char *end;
	const char *user;
	const char *application;

	if (sscanf(data, HIVE_PREFIX "%9d:%*[0-9]:%*[A-Z]:%n", &pid, &query) != 1 || query == 0 || pid <= 0)
		return false;
	end = strchr(data + query, ':');
	if (end == NULL || strchr(end + 1, ':') != NULL)
		return false;
	read->pid = pid;
	copy(read->server, end + 1, end + strlen(end));
	user = strstr(data + query, HIVE_USER);
	application = user ? strstr(user, HIVE_APPLICATION) : NULL;
	if (application && application + strlen(HIVE_APPLICATION) <= end)
	{
		copy(read->user, user + strlen(HIVE_USER), application);
		copy(read->application, application + strlen(HIVE_APPLICATION), end);
	}
	return true;
}

/*
 * Reads a node's data, which may be any, up to a NUL.  Returns false if it is not of the form
 * that zklock writes; then *read is all zero.
 */
bool
node_contender_read(const char *data, NodeContender *read)
{
	bool ours;

	*read = (NodeContender){.pid = 0};
	if (node_contender_has_version(data, strlen(data)))
		ours = read_json(data, read);
	else
		ours = read_hive(data, read);
	if (!ours)
		*read = (NodeContender){.pid = 0};
	return ours;
}

/*
 * Returns true if zklock wrote the data of a node, which has len bytes, which may be any, or
 * is NULL.  No text of a user can stand where the version does.
 */
bool
node_contender_has_version(const char *data, size_t len)
{
	static const char beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"";

	size_t beginning_len = sizeof(beginning) - 1;

	return data && len > beginning_len && memcmp(data, beginning, beginning_len) == 0 &&
		   data[beginning_len] >= '1' && data[beginning_len] <= '9';
}

/* How data written by zklock begins, and that of a node that is about to be deleted */
static const char own_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION "\",";
static const char broken_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION
									   "\",\"" NODE_CONTENDER_BROKEN "\":";

/*
 * Returns true if the data of a node says that zk_break_lock() deletes the node.  It has len
 * bytes, which may be any, or is NULL.
 */
bool
node_contender_is_broken(const char *data, size_t len)
{
	size_t beginning_len = sizeof(broken_beginning) - 1;

	return data && len > beginning_len && memcmp(data, broken_beginning, beginning_len) == 0;
}

/*
 * Copies "data" into dst, with a member that says that zk_break_lock() deletes the node.  dst
 * has room for "data", "by" and NODE_CONTENDER_BROKEN_SIZE bytes.
 *
 *	by	who deletes it, as a JSON string
 *
 * Returns false if the data is not the JSON that zklock writes, or says so already.
 */
bool
node_contender_write_broken(char *dst, const char *data, const char *by)
{
	size_t beginning_len = sizeof(own_beginning) - 1;

	if (strncmp(data, own_beginning, beginning_len) != 0 ||
		node_contender_is_broken(data, strlen(data)))
		return false;
	sprintf(dst, "%s%s,%s", broken_beginning, by, data + beginning_len);
	return true;
}
