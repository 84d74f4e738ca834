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

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/node_name.h"

#define TITLE "zklock waits 1"
#define MAX_FIELDS 5
#define MAX_TEXT 512 /* bytes of a name, or of what is waited for */
#define MAX_NODE 255 /* of another client's node, or ours */

#define AFTER(kind) (1 << (kind))

/* How a kind of line looks, and where it may stand */
typedef struct LineForm
{
	const char *word;	/* it begins with */
	const char *fields; /* a letter for each: see read_field() */
	int			after;	/* such lines; WAIT_LINE_END stands for the title */
} LineForm;

static const LineForm forms[] =
	{[WAIT_LINE_SERVER] = {"server", "t", AFTER(WAIT_LINE_END)},
	 [WAIT_LINE_SEEN] = {"seen", "z", AFTER(WAIT_LINE_SERVER)},
	 [WAIT_LINE_WAIT] = {"wait", "icpn", AFTER(WAIT_LINE_SEEN) | AFTER(WAIT_LINE_HELD)},
	 [WAIT_LINE_STEP] = {"step", "#t", AFTER(WAIT_LINE_WAIT) | AFTER(WAIT_LINE_STEP)},
	 [WAIT_LINE_HELD] = {"held", "pn", AFTER(WAIT_LINE_STEP) | AFTER(WAIT_LINE_HELD)},
	 [WAIT_LINE_END] = {"", "", AFTER(WAIT_LINE_SEEN) | AFTER(WAIT_LINE_HELD)}};

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

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

/* What one field tells.  Returns false if it is not what it should be. */
static bool
read_field(WaitLine *line, char letter, const char *field)
{
	uint64_t permits;

	switch (letter)
	{
		case 'i': /* an identity */
			return read_number(field, 16, UINT64_MAX, &line->number);
		case 'z': /* a zxid */
			return read_number(field, 16, INT64_MAX, &line->number);
		case '#': /* a pid */
			return read_number(field, 10, INT32_MAX, &line->number);
		case 'c': /* a count of permits */
			if (!read_number(field, 10, INT32_MAX, &permits))
				return false;
			line->permits = (int32_t) permits;
			return true;
		case 'p': /* a path */
			line->path = field;
			return is_path(field);
		case 'n': /* a node */
			line->node = field;
			return is_node(field);
		default: /* a text */
			line->text = field;
			return strlen(field) <= MAX_TEXT;
	}
}

/*
 * Reads the next line.  The last one is WAIT_LINE_END.  Returns false if the
 * record is none after all: then nothing of it counts.
 */
bool
wait_record_next(WaitReader *reader, WaitLine *line)
{
	char		   *fields[MAX_FIELDS];
	int				kind = WAIT_LINE_SERVER;
	const LineForm *form;

	*line = (WaitLine){.kind = WAIT_LINE_END, .path = "", .node = "", .text = ""};
	if (reader->at == reader->end)
		kind = WAIT_LINE_END;
	else
	{
		char *text = take_line(reader);
		int	  n = text ? split_line(text, fields) : 0;

		while (kind < WAIT_LINE_END && text && strcmp(fields[0], forms[kind].word) != 0)
			kind++;
		if (kind == WAIT_LINE_END || n != 1 + (int) strlen(forms[kind].fields))
			return false;
	}
	form = &forms[kind];
	if ((form->after & AFTER(reader->last)) == 0)
		return false;
	line->kind = reader->last = (WaitLineKind) kind;
	for (int i = 0; form->fields[i] != '\0'; i++)
	{
		if (!read_field(line, form->fields[i], fields[1 + i]))
			return false;
	}
	if (line->kind == WAIT_LINE_WAIT)
		reader->steps = 0;
	else if (line->kind == WAIT_LINE_STEP)
		reader->steps++;
	return reader->steps <= WAIT_RECORD_MAX_STEPS;
}

/* ------------------------------------------------------------------------
 * Writing
 * ------------------------------------------------------------------------
 */

/* Begins to write a record into "text", which has room for "size" bytes and a NUL. */
void
wait_record_start(WaitWriter *writer, char *text, size_t size)
{
	*writer = (WaitWriter){.text = text, .size = size < WAIT_RECORD_MAX ? size : WAIT_RECORD_MAX};
	writer->len = (size_t) snprintf(text, size + 1, TITLE "\n");
}

static void
put_raw(WaitWriter *writer, char c)
{
	if (writer->len == writer->size)
		writer->full = true;
	else
		writer->text[writer->len++] = c;
}

/* Adds a text; what would part it is replaced, and what is too long is clipped. */
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

		put_raw(writer, c < ' ' || c == 0x7F ? ' ' : text[i]);
	}
}

static void
put_field(WaitWriter *writer, char letter, const WaitLine *line)
{
	char number[24];

	put_raw(writer, '\t');
	switch (letter)
	{
		case 'i':
		case 'z':
			snprintf(number, sizeof(number), "%" PRIx64, line->number);
			put_text(writer, number, MAX_TEXT);
			break;
		case '#':
			snprintf(number, sizeof(number), "%" PRIu64, line->number);
			put_text(writer, number, MAX_TEXT);
			break;
		case 'c':
			snprintf(number, sizeof(number), "%d", (int) line->permits);
			put_text(writer, number, MAX_TEXT);
			break;
		case 'p':
			put_text(writer, line->path, ZKLOCK_MAX_PATH);
			break;
		case 'n':
			put_text(writer, line->node, MAX_NODE);
			break;
		default:
			put_text(writer, line->text, MAX_TEXT);
	}
}

/*
 * Writes a line.  Returns false if there is no room for it: then it is left out.
 * The order of lines is the caller's business.
 */
bool
wait_record_put(WaitWriter *writer, const WaitLine *line)
{
	size_t start = writer->len;

	writer->full = false;
	put_text(writer, forms[line->kind].word, MAX_TEXT);
	for (const char *letter = forms[line->kind].fields; *letter != '\0'; letter++)
		put_field(writer, *letter, line);
	put_raw(writer, '\n');
	if (writer->full)
		writer->len = start;
	writer->text[writer->len] = '\0';
	return !writer->full;
}
