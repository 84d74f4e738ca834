/*-------------------------------------------------------------------------
 *
 * wait_record.c
 *	  What servers tell each other of waits that last.
 *
 * A record is a text of lines, each of which has fields parted by tabs:
 *
 *		zklock waits 1
 *		server		name
 *		seen		zxid
 *		wait		identity	pid			what the process waits for
 *		node		permits		path		node
 *		for			pid
 *		held		path		node
 *
 * There is a "wait" for each process that cannot go on before another server or client
 * does, and whose wait may matter to these.  The identity is the same as long as the
 * process waits, without a break, for the same.  If it waits in a queue of ZooKeeper's,
 * "node" says with which node, and the number of permits if that is for one of a
 * semaphore.  A "for" names a process of the server, with a "wait" of its own, that must
 * go on before this one can.  Then come the nodes that it holds.  "seen" is the highest
 * zxid of a record that the server had read before it looked at its processes.
 *
 * A client that may write into ZooKeeper can put anything there.  So a record is read
 * strictly: what is not exactly of this form is none, and neither is one that is
 * too long.  A path is one that can be asked for, a node's name can be a child's.
 *
 * Pure C: depends on libc and node_name.h alone, allocates nothing, keeps no
 * state, runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/wait_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/node_name.h"

#define MAX_FIELDS 4
#define MAX_NODE 255 /* of another client's node, or ours */

#define AFTER(kind) (1 << (kind))

/* How a kind of line looks, and where it may stand */
typedef struct LineForm
{
	const char *word;	/* it begins with */
	const char *fields; /* a letter for each: see read_field() */
	int			after;	/* such lines; WAIT_LINE_END stands for the title */
} LineForm;

#define AFTER_WAITS                                                          \
	(AFTER(WAIT_LINE_SEEN) | AFTER(WAIT_LINE_WAIT) | AFTER(WAIT_LINE_NODE) | \
	 AFTER(WAIT_LINE_FOR) | AFTER(WAIT_LINE_HELD))

static const LineForm forms[] = {[WAIT_LINE_SERVER] = {"server", "t", AFTER(WAIT_LINE_END)},
								 [WAIT_LINE_SEEN] = {"seen", "z", AFTER(WAIT_LINE_SERVER)},
								 [WAIT_LINE_WAIT] = {"wait", "i#t", AFTER_WAITS},
								 [WAIT_LINE_NODE] = {"node", "cpn", AFTER(WAIT_LINE_WAIT)},
								 [WAIT_LINE_FOR] = {"for", "#",
													AFTER(WAIT_LINE_WAIT) | AFTER(WAIT_LINE_NODE) |
														AFTER(WAIT_LINE_FOR)},
								 [WAIT_LINE_HELD] = {"held", "pn", AFTER_WAITS & ~AFTER(WAIT_LINE_SEEN)},
								 [WAIT_LINE_END] = {"", "", AFTER_WAITS}};

/* A number in hexadecimal or decimal digits, no greater than "max" */
static bool
read_number(const char *text, int base, uint64_t max, uint64_t *number)
{
	size_t len = strlen(text);

	errno = 0;
	*number = strtoull(text, NULL, base);
	return len > 0 && strspn(text, base == 16 ? "0123456789abcdef" : "0123456789") == len &&
		   errno == 0 && *number <= max;
}

static bool
is_path(const char *path)
{
	PathFault fault = path_check(path, strlen(path));

	return fault == PATH_OK || fault == PATH_LOCK_NODE;
}

static bool
is_node(const char *node)
{
	return node[0] != '\0' && strlen(node) <= MAX_NODE && strchr(node, '/') == NULL &&
		   strcmp(node, ".") != 0 && strcmp(node, "..") != 0;
}

/* Ends the line that begins there with a NUL; returns the next, or NULL if it has no end. */
static char *
end_line(char *line, const char *end)
{
	char *newline = memchr(line, '\n', (size_t) (end - line));

	if (newline == NULL)
		return NULL;
	*newline = '\0';
	return newline + 1;
}

/* Parts a line at its tabs; returns how many fields it has, or one too many. */
static int
split_line(char *line, char **fields)
{
	int n = 0;

	while (line && n < MAX_FIELDS)
		fields[n++] = strsep(&line, "\t");
	return line ? n + 1 : n;
}

/* Does a record have a character that belongs into none? */
static bool
has_control_character(const char *record, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) record[i];

		if ((c < ' ' && c != '\t' && c != '\n') || c == 0x7F)
			return true;
	}
	return false;
}

/* What one field tells.  Returns false if it is not what it should be. */
static bool
read_field(WaitLine *line, char letter, const char *field)
{
	uint64_t number = 0;

	switch (letter)
	{
		case 'i': /* an identity */
			return read_number(field, 16, UINT64_MAX, &line->number);
		case 'z': /* a zxid */
			return read_number(field, 16, INT64_MAX, &line->number);
		case '#': /* a pid */
			if (!read_number(field, 10, INT32_MAX, &number))
				return false;
			line->pid = (int32_t) number;
			return true;
		case 'c': /* a count of permits */
			if (!read_number(field, 10, INT32_MAX, &number))
				return false;
			line->permits = (int32_t) number;
			return true;
		case 'p': /* a path */
			line->path = field;
			return is_path(field);
		case 'n': /* a node */
			line->node = field;
			return is_node(field);
		default: /* a text */
			line->text = field;
			return strlen(field) <= WAIT_RECORD_MAX_TEXT;
	}
}

/* Reads a line that stands behind one of the kind "last".  Returns false if it may not. */
static bool
read_line(char *text, WaitLineKind last, WaitLine *line)
{
	char	*fields[MAX_FIELDS];
	int		 n = split_line(text, fields);
	int		 kind = WAIT_LINE_SERVER;
	WaitLine read = {.path = "", .node = "", .text = ""};

	while (kind < WAIT_LINE_END && strcmp(fields[0], forms[kind].word) != 0)
		kind++;
	if (kind == WAIT_LINE_END || n != 1 + (int) strlen(forms[kind].fields) ||
		(forms[kind].after & AFTER(last)) == 0)
		return false;
	for (int i = 1; i < n; i++)
	{
		if (!read_field(&read, forms[kind].fields[i - 1], fields[i]))
			return false;
	}
	read.kind = (WaitLineKind) kind;
	*line = read;
	return true;
}

/*
 * Reads a record, which is changed on the way: lines point into it.  There is room for
 * a line for each of its '\n'; the last one is WAIT_LINE_END.  Returns false if it is
 * none: then nothing of it counts.
 */
bool
wait_record_read(char *record, size_t len, WaitLine *lines)
{
	const char	*end = record + len;
	WaitLineKind last = WAIT_LINE_END;
	char		*next;

	if (len > WAIT_RECORD_MAX || has_control_character(record, len))
		return false;
	next = end_line(record, end);
	if (next == NULL || strcmp(record, WAIT_RECORD_TITLE) != 0)
		return false;
	while (next < end)
	{
		char *line = next;

		next = end_line(line, end);
		if (next == NULL || !read_line(line, last, lines))
			return false;
		last = lines++->kind;
	}
	*lines = (WaitLine){.kind = WAIT_LINE_END};
	return (forms[WAIT_LINE_END].after & AFTER(last)) != 0;
}
