/*-------------------------------------------------------------------------
 *
 * wait_record.c
 *	  What servers tell each other of waits that last.
 *
 * A record is a text of lines, each of which has six fields parted by tabs:
 *
 *		zklock waits 1	seen		0		0			-			server
 *		wait			identity	pid		permits		path/node	what is waited for
 *		for				0			pid		0			-			-
 *		held			0			0		0			path/node	-
 *
 * (a "-" stands for nothing).  There is a "wait" for each process that cannot go on before
 * another server or client does, and whose wait may matter to these.  The identity is the
 * same as long as the process waits, without a break, for the same.  If it waits in a
 * queue of ZooKeeper's, the node is that with which it does, or else empty; there is a number
 * of permits if that is for one of a semaphore, or else 0.  A "for" names a process of the
 * server, with a "wait" of its own, that must go on before this one can.  Then come the
 * nodes that it holds.  "seen" is the highest zxid of a record that the server had read
 * before it looked at its processes.
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
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "deadlock/wait_graph.h"
#include "recipes/node_name.h"

#define MAX_NODE 255 /* of another client's node, or ours */

/* All but tabs and line feeds: they belong into no record. */
#define CONTROL_CHARACTERS                                     \
	"\001\002\003\004\005\006\007\010\013\014\015\016\017\020" \
	"\021\022\023\024\025\026\027\030\031\032\033\034\035\036\037\177"

/* The first field of each kind of line */
static const char *const words[] = {WAIT_RECORD_TITLE, "wait", "for", "held"};

#define FIELDS 6

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

/* Parts a node's path from its name. */
static bool
read_node(char *text, WaitLine *line)
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

/* May a line of one kind stand behind one of the other?  WAIT_LINE_END: it is the first. */
static bool
may_follow(WaitLineKind kind, WaitLineKind last)
{
	if (last == WAIT_LINE_END || kind == WAIT_LINE_TITLE)
		return last == WAIT_LINE_END && kind == WAIT_LINE_TITLE;
	return kind == WAIT_LINE_WAIT || (last != WAIT_LINE_TITLE && kind >= last);
}

/* Reads a line that stands behind one of the kind "last".  Returns false if it may not. */
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
		!read_number(fields[1], 16, kind == WAIT_LINE_TITLE ? INT64_MAX : UINT64_MAX, &read.number) ||
		!read_number(fields[2], 10, INT32_MAX, &pid) ||
		!read_number(fields[3], 10, INT32_MAX, &permits))
		return false;

	/* Processes have pids: what has none is no session's wait. */
	if ((kind == WAIT_LINE_WAIT || kind == WAIT_LINE_FOR) != (pid != 0))
		return false;
	read.kind = kind;
	read.pid = (int32_t) pid;
	read.permits = (int32_t) permits;
	read.text = fields[5];

	/* A line "held" has a node, a wait may have one, and no other line does. */
	if (fields[4][0] == '\0'
			? kind == WAIT_LINE_HELD
			: kind == WAIT_LINE_TITLE || kind == WAIT_LINE_FOR || !read_node(fields[4], &read))
		return false;
	if (strlen(read.text) > WAIT_RECORD_MAX_TEXT)
		return false;
	*line = read;
	return true;
}

/*
 * Reads a record, behind which is a NUL, and which is changed on the way: lines point into
 * it.  There is room for a line for each of its '\n', and one more; the last one is
 * WAIT_LINE_END.  Returns false if it is none: then nothing of it counts.
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
