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
 *		wait		identity	permits		path	node
 *		step		pid			what the process waits for
 *		held		path		node
 *
 * There is a "wait" for each process that holds nodes and waits, itself or
 * through other processes of the server, for what another server or client has.
 * It names the node with which the last of these processes waits there, and the
 * number of permits if that is for one of a semaphore.  The steps follow, from the
 * process that holds to the one that has the waiting node, and then the nodes that
 * are held.  The identity is the same as long as all these processes wait, without
 * a break, for the same.  "seen" is the highest zxid of a record that the server
 * had read before it looked at its processes.
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

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "recipes/node_name.h"

#define TITLE "zklock waits 1"
#define MAX_FIELDS 5
#define MAX_TEXT 512 /* bytes of a name, or of what is waited for */
#define MAX_NODE 255 /* of another client's node, or ours */

/* How a kind of line begins, and how many fields follow. */
typedef struct LineForm
{
	const char *word;
	int			fields;
} LineForm;

static const LineForm forms[] = {[WAIT_LINE_SERVER] = {"server", 1},
								 [WAIT_LINE_SEEN] = {"seen", 1},
								 [WAIT_LINE_WAIT] = {"wait", 4},
								 [WAIT_LINE_STEP] = {"step", 2},
								 [WAIT_LINE_HELD] = {"held", 2}};

/* Which kinds may follow one. */
static bool
may_follow(WaitLineKind kind, WaitLineKind last)
{
	switch (kind)
	{
		case WAIT_LINE_SERVER:
			return false; /* it comes first */
		case WAIT_LINE_SEEN:
			return last == WAIT_LINE_SERVER;
		case WAIT_LINE_WAIT:
			return last == WAIT_LINE_SEEN || last == WAIT_LINE_HELD;
		case WAIT_LINE_STEP:
			return last == WAIT_LINE_WAIT || last == WAIT_LINE_STEP;
		case WAIT_LINE_HELD:
			return last == WAIT_LINE_STEP || last == WAIT_LINE_HELD;
		case WAIT_LINE_END:
			break;
	}
	return last == WAIT_LINE_SEEN || last == WAIT_LINE_HELD;
}

/* A number in hexadecimal or decimal digits, no greater than "max" */
static bool
read_number(const char *text, unsigned base, uint64_t max, uint64_t *number)
{
	static const char digits[] = "0123456789abcdef";

	*number = 0;
	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++)
	{
		const char *found = strchr(digits, *text);
		uint64_t	digit;

		if (found == NULL || (digit = (uint64_t) (found - digits)) >= base ||
			*number > (max - digit) / base)
			return false;
		*number = *number * base + digit;
	}
	return true;
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

static bool
is_text(const char *text)
{
	return strlen(text) <= MAX_TEXT;
}

/* Takes the next line, without its end; NULL if there is none that is whole. */
static char *
take_line(WaitReader *reader)
{
	char *line = reader->at;
	char *end = memchr(line, '\n', (size_t) (reader->end - line));

	if (end == NULL)
		return NULL;
	*end = '\0';
	reader->at = end + 1;
	return line;
}

/* Parts a line at its tabs; returns how many fields it has, or one too many. */
static int
split_line(char *line, char **fields)
{
	int n = 0;

	for (;;)
	{
		char *tab = strchr(line, '\t');

		fields[n++] = line;
		if (tab == NULL)
			return n;
		if (n == MAX_FIELDS)
			return n + 1;
		*tab = '\0';
		line = tab + 1;
	}
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

/*
 * Begins to read a record, which is changed on the way: lines point into it.
 * Returns false if it is none.
 */
bool
wait_record_begin(WaitReader *reader, char *record, size_t len)
{
	char *title;

	*reader = (WaitReader){.at = record, .end = record + len, .last = WAIT_LINE_END};
	if (len > WAIT_RECORD_MAX || has_control_character(record, len))
		return false;
	title = take_line(reader);
	return title && strcmp(title, TITLE) == 0;
}

/* What a line's fields tell.  Returns false if they are not what they should be. */
static bool
read_fields(WaitLine *line, char **fields)
{
	uint64_t permits;

	line->path = line->node = line->text = "";
	line->permits = 0;
	line->number = 0;
	switch (line->kind)
	{
		case WAIT_LINE_SERVER:
			line->text = fields[1];
			return is_text(line->text);
		case WAIT_LINE_SEEN:
			return read_number(fields[1], 16, INT64_MAX, &line->number);
		case WAIT_LINE_WAIT:
			if (!read_number(fields[1], 16, UINT64_MAX, &line->number) ||
				!read_number(fields[2], 10, INT32_MAX, &permits))
				return false;
			line->permits = (int32_t) permits;
			line->path = fields[3];
			line->node = fields[4];
			return is_path(line->path) && is_node(line->node);
		case WAIT_LINE_STEP:
			line->text = fields[2];
			return read_number(fields[1], 10, INT32_MAX, &line->number) && is_text(line->text);
		case WAIT_LINE_HELD:
			line->path = fields[1];
			line->node = fields[2];
			return is_path(line->path) && is_node(line->node);
		case WAIT_LINE_END:
			break;
	}
	return false;
}

/*
 * Reads the next line.  The last one is WAIT_LINE_END.  Returns false if the
 * record is none after all: then nothing of it counts.
 */
bool
wait_record_next(WaitReader *reader, WaitLine *line)
{
	char *fields[MAX_FIELDS];
	char *text;
	int	  n;
	int	  kind;

	*line = (WaitLine){.kind = WAIT_LINE_END, .path = "", .node = "", .text = ""};
	if (reader->at == reader->end)
		return may_follow(WAIT_LINE_END, reader->last);
	text = take_line(reader);
	if (text == NULL)
		return false;
	n = split_line(text, fields);
	for (kind = WAIT_LINE_SERVER; kind < WAIT_LINE_END; kind++)
	{
		if (strcmp(fields[0], forms[kind].word) == 0)
			break;
	}
	if (kind == WAIT_LINE_END || n != 1 + forms[kind].fields)
		return false;

	/* The beginning is marked by WAIT_LINE_END. */
	if (kind == WAIT_LINE_SERVER ? reader->last != WAIT_LINE_END
								 : !may_follow((WaitLineKind) kind, reader->last))
		return false;
	line->kind = (WaitLineKind) kind;
	reader->steps = line->kind == WAIT_LINE_STEP   ? reader->steps + 1
					: line->kind == WAIT_LINE_WAIT ? 0
												   : reader->steps;
	reader->last = line->kind;
	return reader->steps <= WAIT_RECORD_MAX_STEPS && read_fields(line, fields);
}

/* Begins to write a record into "text", which has room for "size" bytes and a NUL. */
void
wait_record_start(WaitWriter *writer, char *text, size_t size)
{
	*writer = (WaitWriter){.text = text, .size = size < WAIT_RECORD_MAX ? size : WAIT_RECORD_MAX};
	writer->len = (size_t) snprintf(text, size + 1, TITLE "\n");
}

/* Adds a field; what would part it is replaced, and what is too long is clipped. */
static void
put_text(WaitWriter *writer, const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len > max)
	{
		for (len = max; len > 0 && ((unsigned char) text[len] & 0xC0) == 0x80; len--)
			;
	}
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (writer->len == writer->size)
			writer->full = true;
		else
			writer->text[writer->len++] = c < ' ' || c == 0x7F ? ' ' : text[i];
	}
}

static void
put_char(WaitWriter *writer, char c)
{
	if (writer->len == writer->size)
		writer->full = true;
	else
		writer->text[writer->len++] = c;
}

/*
 * Writes a line.  Returns false if there is no room for it: then it is left out.
 * The order of lines is the caller's business.
 */
bool
wait_record_put(WaitWriter *writer, const WaitLine *line)
{
	size_t start = writer->len;
	char   number[64] = "";

	writer->full = false;
	if (line->kind == WAIT_LINE_SEEN)
		snprintf(number, sizeof(number), "\t%" PRIx64, line->number);
	else if (line->kind == WAIT_LINE_WAIT)
		snprintf(number, sizeof(number), "\t%" PRIx64 "%c%d", line->number, '\t', (int) line->permits);
	else if (line->kind == WAIT_LINE_STEP)
		snprintf(number, sizeof(number), "\t%" PRIu64, line->number);
	put_text(writer, forms[line->kind].word, MAX_TEXT);
	for (const char *c = number; *c != '\0'; c++)
		put_char(writer, *c);
	if (line->kind == WAIT_LINE_SERVER || line->kind == WAIT_LINE_STEP)
	{
		put_char(writer, '\t');
		put_text(writer, line->text, MAX_TEXT);
	}
	if (line->kind == WAIT_LINE_WAIT || line->kind == WAIT_LINE_HELD)
	{
		put_char(writer, '\t');
		put_text(writer, line->path, ZKLOCK_MAX_PATH);
		put_char(writer, '\t');
		put_text(writer, line->node, MAX_NODE);
	}
	put_char(writer, '\n');
	if (writer->full)
		writer->len = start;
	writer->text[writer->len] = '\0';
	return !writer->full;
}
