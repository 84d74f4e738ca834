/*-------------------------------------------------------------------------
 *
 * node_contender.c
 *	  Who the data of a zklock node says it is.
 *
 * The data is what backend/request.c writes: a JSON object of strings and
 * numbers, or, for Hive's names, fields parted by colons.  Anybody can write
 * anything into a node, so nothing of it is relied upon: what is not exactly of
 * such a form is not ours, and what is may still be a lie.  This is why it is
 * read here, in a few lines that cannot fail, and not by PostgreSQL's JSON
 * functions, which raise errors and differ from release to release.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in
 * any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_contender.h"

#include <stdio.h>
#include <string.h>

#define HIVE_PREFIX "zklock-"
#define HIVE_FIELDS 5
#define HIVE_USER " user "
#define HIVE_APPLICATION " application "

/* The members of the JSON object that are of interest. */
typedef enum Member
{
	MEMBER_SERVER,
	MEMBER_HOST,
	MEMBER_PORT,
	MEMBER_PID,
	MEMBER_USER,
	MEMBER_APPLICATION
} Member;

#define MEMBERS (MEMBER_APPLICATION + 1)

static const char *const member_names[MEMBERS] =
	{[MEMBER_SERVER] = "server", [MEMBER_HOST] = "host",
	 [MEMBER_PORT] = "port",	 [MEMBER_PID] = "pid",
	 [MEMBER_USER] = "user",	 [MEMBER_APPLICATION] = "application_name"};

/* What is still to be read. */
typedef struct Reader
{
	const char *at;
	const char *end;
} Reader;

/* A text that is written, and clipped if it has no room. */
typedef struct Writer
{
	char  *text;
	size_t len;
} Writer;

static void
put(Writer *writer, char c)
{
	if (writer->len < NODE_CONTENDER_TEXT - 1)
		writer->text[writer->len++] = c;
}

/* A character by its code, in UTF-8; half a surrogate pair is none. */
static void
put_code(Writer *writer, unsigned code)
{
	if (code < 0x80)
		put(writer, (char) code);
	else if (code < 0x800)
	{
		put(writer, (char) (0xC0 | code >> 6));
		put(writer, (char) (0x80 | (code & 0x3F)));
	}
	else if (code < 0xD800 || code > 0xDFFF)
	{
		put(writer, (char) (0xE0 | code >> 12));
		put(writer, (char) (0x80 | (code >> 6 & 0x3F)));
		put(writer, (char) (0x80 | (code & 0x3F)));
	}
	else
		put(writer, '?');
}

/* Ends a text; a character that was clipped in its middle goes. */
static void
finish(Writer *writer)
{
	size_t start = writer->len;

	writer->text[writer->len] = '\0';
	if (writer->len < NODE_CONTENDER_TEXT - 1)
		return;
	while (start > 0 && ((unsigned char) writer->text[start - 1] & 0xC0) == 0x80)
		start--;
	if (start > 0 && ((unsigned char) writer->text[start - 1] & 0xC0) == 0xC0)
		writer->text[start - 1] = '\0';
}

static bool
is_at(const Reader *reader, char c)
{
	return reader->at < reader->end && *reader->at == c;
}

/* Goes over a character if it is the next, and white space around it. */
static bool
take(Reader *reader, char c)
{
	bool taken = false;

	while (reader->at < reader->end &&
		   (strchr(" \t\r\n", *reader->at) != NULL || (*reader->at == c && !taken)))
	{
		if (*reader->at == '\0')
			return false;
		taken |= *reader->at == c;
		reader->at++;
	}
	return taken;
}

/* Four hexadecimal digits */
static bool
read_code(Reader *reader, unsigned *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++)
	{
		static const char digits[] = "0123456789abcdef0123456789ABCDEF";
		const char		 *found;

		if (reader->at == reader->end || *reader->at == '\0' ||
			(found = strchr(digits, *reader->at++)) == NULL)
			return false;
		*code = *code * 16 + (unsigned) (found - digits) % 16;
	}
	return true;
}

static bool
read_escape(Reader *reader, Writer *writer)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char		 *found;
	unsigned		  code;

	if (reader->at == reader->end || *reader->at == '\0')
		return false;
	if (*reader->at == 'u')
	{
		reader->at++;
		if (!read_code(reader, &code))
			return false;
		put_code(writer, code == 0 ? '?' : code);
		return true;
	}
	found = strchr(escapes, *reader->at++);
	if (found)
		put(writer, meanings[found - escapes]);
	return found != NULL;
}

/* A string or a number, into a text of NODE_CONTENDER_TEXT bytes */
static bool
read_value(Reader *reader, char *text)
{
	Writer writer = {.text = text};

	if (!is_at(reader, '"'))
	{
		while (reader->at < reader->end && *reader->at != '\0' &&
			   strchr("-+.0123456789eE", *reader->at) != NULL)
			put(&writer, *reader->at++);
		finish(&writer);
		return writer.len > 0;
	}
	reader->at++;
	while (!is_at(reader, '"'))
	{
		if (reader->at == reader->end || *reader->at == '\0')
			return false;
		if (*reader->at != '\\')
			put(&writer, *reader->at++);
		else
		{
			reader->at++;
			if (!read_escape(reader, &writer))
				return false;
		}
	}
	reader->at++;
	finish(&writer);
	return true;
}

/* Reads the object; false if it is anything else. */
static bool
read_object(Reader *reader, char values[MEMBERS][NODE_CONTENDER_TEXT])
{
	if (!take(reader, '{'))
		return false;
	do
	{
		char  name[NODE_CONTENDER_TEXT];
		char  unused[NODE_CONTENDER_TEXT];
		char *value = unused;

		if (!is_at(reader, '"') || !read_value(reader, name) || !take(reader, ':'))
			return false;
		for (int i = 0; i < MEMBERS; i++)
		{
			if (strcmp(name, member_names[i]) == 0)
				value = values[i];
		}
		if (!read_value(reader, value))
			return false;
	} while (take(reader, ','));
	return take(reader, '}') && reader->at == reader->end;
}

/* Reads len digits as a positive number of 32 bits; 0 if they are none. */
static int32_t
read_number(const char *digits, size_t len)
{
	int64_t value = 0;

	if (len > 10)
		return 0;
	for (size_t i = 0; i < len; i++)
	{
		if (digits[i] < '0' || digits[i] > '9')
			return 0;
		value = value * 10 + (digits[i] - '0');
	}
	return value <= INT32_MAX ? (int32_t) value : 0;
}

static void
copy(char *dst, const char *from, const char *to)
{
	Writer writer = {.text = dst};

	while (from < to && *from != '\0')
		put(&writer, *from++);
	finish(&writer);
}

static bool
read_json(const char *data, size_t len, NodeContender *read)
{
	char   values[MEMBERS][NODE_CONTENDER_TEXT] = {""};
	Reader reader = {.at = data, .end = data + len};

	if (!read_object(&reader, values))
		return false;
	read->pid = read_number(values[MEMBER_PID], strlen(values[MEMBER_PID]));
	if (read->pid == 0 || read_number(values[MEMBER_PORT], strlen(values[MEMBER_PORT])) == 0)
		return false;
	if (values[MEMBER_SERVER][0] != '\0')
		memcpy(read->server, values[MEMBER_SERVER], NODE_CONTENDER_TEXT);
	else if (values[MEMBER_HOST][0] != '\0')
		snprintf(read->server, NODE_CONTENDER_TEXT, "%.240s:%.10s", values[MEMBER_HOST],
				 values[MEMBER_PORT]);
	memcpy(read->user, values[MEMBER_USER], NODE_CONTENDER_TEXT);
	memcpy(read->application, values[MEMBER_APPLICATION], NODE_CONTENDER_TEXT);
	return true;
}

/* Finds words in a piece of data; NULL if they are not there. */
static const char *
find(const char *from, const char *to, const char *words)
{
	size_t len = strlen(words);

	for (; (size_t) (to - from) >= len; from++)
	{
		if (memcmp(from, words, len) == 0)
			return from;
	}
	return NULL;
}

/* zklock-<pid>:<time>:<how>:database <name> user <name> application <name>:<server> */
static bool
read_hive(const char *data, size_t len, NodeContender *read)
{
	const char *fields[HIVE_FIELDS + 1] = {data}; /* each ends before the next one's colon */
	const char *end = data + len;
	int			n = 1;
	const char *user;
	const char *application;

	for (const char *c = data; c < end; c++)
	{
		if (*c != ':')
			continue;
		if (n == HIVE_FIELDS)
			return false;
		fields[n++] = c + 1;
	}
	if (n != HIVE_FIELDS || (size_t) (fields[1] - data) <= sizeof(HIVE_PREFIX))
		return false;
	fields[n] = end + 1;
	read->pid = read_number(data + strlen(HIVE_PREFIX),
							(size_t) (fields[1] - 1 - data) - strlen(HIVE_PREFIX));
	if (read->pid == 0)
		return false;
	copy(read->server, fields[4], fields[5] - 1);
	user = find(fields[3], fields[4] - 1, HIVE_USER);
	application = user ? find(user, fields[4] - 1, HIVE_APPLICATION) : NULL;
	if (application)
	{
		copy(read->user, user + strlen(HIVE_USER), application);
		copy(read->application, application + strlen(HIVE_APPLICATION), fields[4] - 1);
	}
	return true;
}

/*
 * Reads a node's data of len bytes, which may be any.  Returns false if it is
 * not of the form that zklock writes; then nothing is told.
 */
bool
node_contender_read(const char *data, size_t len, NodeContender *read)
{
	bool hive = len > strlen(HIVE_PREFIX) && memcmp(data, HIVE_PREFIX, strlen(HIVE_PREFIX)) == 0;
	bool ours;

	*read = (NodeContender){.pid = 0};
	ours = hive ? read_hive(data, len, read) : read_json(data, len, read);
	if (!ours)
		*read = (NodeContender){.pid = 0};
	return ours;
}

/*
 * Did zklock write a node's data of len bytes, which may be any, or
 * NULL?  No text of a user's can stand where the version does.
 */
bool
node_contender_tells_version(const char *data, size_t len)
{
	static const char beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"";

	size_t told = sizeof(beginning) - 1;

	return data && len > told && memcmp(data, beginning, told) == 0 && data[told] >= '1' &&
		   data[told] <= '9';
}

/* How the data begins that zklock writes, and of a node that is about to be deleted. */
static const char own_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION "\",";
static const char broken_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION
									   "\",\"" NODE_CONTENDER_BROKEN "\":";

/* Do a node's data of len bytes, which may be any, or NULL, say that zk_break_lock() deletes it? */
bool
node_contender_tells_broken(const char *data, size_t len)
{
	size_t told = sizeof(broken_beginning) - 1;

	return data && len > told && memcmp(data, broken_beginning, told) == 0;
}

/*
 * Writes data that say so into dst, which has room for both of the others and
 * NODE_CONTENDER_BROKEN_SIZE bytes, from those that do not.
 *
 *	by	who does it, as a JSON string
 *
 * Returns false if they are not the JSON that zklock writes, or say so already.
 */
bool
node_contender_write_broken(char *dst, const char *data, const char *by)
{
	size_t told = sizeof(own_beginning) - 1;

	if (strncmp(data, own_beginning, told) != 0 || node_contender_tells_broken(data, strlen(data)))
		return false;
	sprintf(dst, "%s%s,%s", broken_beginning, by, data + told);
	return true;
}

/* Can the data be shown as a line of text?  Whether it is UTF-8, its reader sees. */
static bool
is_line(const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) data[i];

		/* Control characters, those from U+0080 on included */
		if (c < 0x20 || c == 0x7F || (c == 0xC2 && i + 1 < len && (unsigned char) data[i + 1] < 0xA0))
			return false;
	}
	return len > 0;
}

/* How many of a text's bytes are shown, at most "max" and no half characters. */
static int
clip(const char *text, size_t len, size_t max)
{
	if (len <= max)
		return (int) len;
	while (max > 0 && ((unsigned char) text[max] & 0xC0) == 0x80)
		max--;
	return (int) max;
}

/*
 * Describes for a human whose node it is, in one line: the process of a database
 * server; or else what its data says, if that is text; or else its session.
 *
 *	session		ZooKeeper's, 0 if the node is not ephemeral
 */
void
node_contender_describe(char dst[NODE_OWNER_TEXT], const char *data, size_t len, int64_t session)
{
	NodeContender contender;

	if (node_contender_read(data, len, &contender) &&
		is_line(contender.server, strlen(contender.server)))
		snprintf(dst, NODE_OWNER_TEXT, "process %d of server %.*s", (int) contender.pid,
				 clip(contender.server, strlen(contender.server), NODE_OWNER_TEXT - 40),
				 contender.server);
	else if (is_line(data, len))
		snprintf(dst, NODE_OWNER_TEXT, "%.*s", clip(data, len, NODE_OWNER_TEXT - 1), data);
	else if (session != 0)
		snprintf(dst, NODE_OWNER_TEXT, "ZooKeeper session 0x%llx", (unsigned long long) session);
	else
		snprintf(dst, NODE_OWNER_TEXT, "a client that does not tell its name");
}
