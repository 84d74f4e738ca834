/*-------------------------------------------------------------------------
 *
 * wait_record.c
 *	  The records of waits that servers publish for each other.
 *
 * A record is a text of lines, each of which has six fields separated by tabs:
 *
 *		zklock waits 1	seen		0		0			-			server
 *		wait			identity	pid		permits		path/node	what is waited for
 *		for				0			pid		0			-			-
 *		held			0			0		0			path/node	-
 *
 * (a "-" stands for an empty field).  There is a "wait" for each process that cannot go on
 * before another server or client does, and whose wait may matter to these.  Its identity
 * stays the same as long as the process waits, without a break, for the same.  If the
 * process waits in a queue of ZooKeeper, the line names the node with which it waits; if
 * it waits for a permit, "permits" is how many the semaphore has, else 0.  A "for" names a
 * process of the server, with a "wait" of its own, that must go on before this one can.  A
 * "held" names a node that the process holds.  "seen" is the highest zxid of a record that
 * the server had read before it looked at its processes.
 *
 * A client that may write into ZooKeeper can put anything there.  So a record is read
 * strictly: it is valid only if it has exactly this form and is not too long.  A path must
 * be one that can be locked, and a node's name one that a child can have.
 *
 * Pure C: depends on libc and node_name.h alone, allocates nothing, keeps no state, runs in
 * any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "deadlock/wait_graph.h"
#include "recipes/node_name.h"

#define MAX_NODE 255 /* of another client's node, or ours */

/* The control characters but tab and line feed: they make a record invalid. */
#define CONTROL_CHARACTERS                                     \
	"\001\002\003\004\005\006\007\010\013\014\015\016\017\020" \
	"\021\022\023\024\025\026\027\030\031\032\033\034\035\036\037\177"

/* The first field of each kind of line */
static const char *const words[] = {WAIT_RECORD_TITLE, "wait", "for", "held"};

#define FIELDS 6

/*
 * Reads a number in hexadecimal or decimal digits.  Returns false if it is none, or greater
 * than "max".
 */
static bool
read_number_field(const char *text, int base, uint64_t max, uint64_t *number)
{
	size_t len = strlen(text);

	errno = 0;
	*number = strtoull(text, NULL, base);
	return len > 0 && strspn(text, base == 16 ? "0123456789abcdef" : "0123456789") == len &&
		   errno == 0 && *number <= max;
}

/* Splits a node's path from its name.  Returns false if either is not valid. */
static bool
read_node_field(char *text, WaitLine *line)
{
	char *slash = strrchr(text, '/');

	if (slash == NULL)
		return false;
	*slash = '\0';
	line->path = text;
	line->node = slash + 1;
	return path_check_node(text, strlen(text)) == NULL && line->node[0] != '\0' &&
		   strlen(line->node) <= MAX_NODE && strcmp(line->node, ".") != 0 &&
		   strcmp(line->node, "..") != 0;
}

/* Returns true if a line may follow one of the kind "last"; WAIT_LINE_END: it is the first. */
static bool
may_follow(WaitLineKind kind, WaitLineKind last)
{
	if (last == WAIT_LINE_END || kind == WAIT_LINE_TITLE)
		return last == WAIT_LINE_END && kind == WAIT_LINE_TITLE;
	return kind == WAIT_LINE_WAIT || (last != WAIT_LINE_TITLE && kind >= last);
}

/* Reads a line that follows one of the kind "last".  Returns false if it is not valid. */
static bool
read_line(char *text, WaitLineKind last, WaitLine *line)
{
	char		*fields[FIELDS];
	int			 n = 0;
	WaitLineKind kind = WAIT_LINE_TITLE;
	WaitLine	 read = {.path = "", .node = ""};
	uint64_t	 pid;
	uint64_t	 permits;

	for (; n < FIELDS && text; n++)
		fields[n] = strsep(&text, "\t");
	if (n < FIELDS || text)
		return false;
	while (kind < WAIT_LINE_END && strcmp(fields[0], words[kind]) != 0)
		kind++;
	if (kind == WAIT_LINE_END || !may_follow(kind, last) ||
		!read_number_field(fields[1], 16, kind == WAIT_LINE_TITLE ? INT64_MAX : UINT64_MAX, &read.number) ||
		!read_number_field(fields[2], 10, INT32_MAX, &pid) ||
		!read_number_field(fields[3], 10, INT32_MAX, &permits))
		return false;

	/* A process has a pid, so these two kinds of lines need one, and the others have none. */
	if ((kind == WAIT_LINE_WAIT || kind == WAIT_LINE_FOR) != (pid != 0))
		return false;
	read.kind = kind;
	read.pid = (int32_t) pid;
	read.permits = (int32_t) permits;
	read.text = fields[5];

	/* A "held" has a node, a "wait" may have one, and no other line does. */
	if (fields[4][0] == '\0' ? kind == WAIT_LINE_HELD
							 : kind == WAIT_LINE_TITLE || kind == WAIT_LINE_FOR ||
								   !read_node_field(fields[4], &read))
		return false;
	if (strlen(read.text) > WAIT_RECORD_MAX_TEXT)
		return false;
	*line = read;
	return true;
}

/*
 * Reads a record, which is followed by a NUL, and is changed on the way: lines point into
 * it. "lines" has room for one for each '\n', and one more; the last is WAIT_LINE_END.
 * Returns false if the record is not valid: then nothing of it counts.
 */
bool
wait_record_read(char *record, size_t len, WaitLine *lines)
{
	WaitLineKind last = WAIT_LINE_END;

	if (len == 0 || len > WAIT_RECORD_MAX || record[len - 1] != '\n' ||
		strcspn(record, CONTROL_CHARACTERS) != len)
		return false;
	record[len - 1] = '\0';
	while (record)
	{
		if (!read_line(strsep(&record, "\n"), last, lines))
			return false;
		last = lines++->kind;
	}
	*lines = (WaitLine){.kind = WAIT_LINE_END};
	return true;
}
