/*
 * read_record.c
 *		Deadlocks across servers: a record that has been read.
 *
 * Its text comes from whoever may write below WAIT_RECORD_ROOT; recipes/wait_record.c
 * says what is accepted.
 *
 * Runs in: the worker.  All is in the current memory context.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/wait_record.h"
#include "worker/read_record.h"

/* Counts the lines of each kind, which have room then. */
static bool
count_lines(const char *text, size_t len, int *counts)
{
	char	  *copy = palloc(len + 1);
	WaitReader reader;
	WaitLine   line;
	bool	   good;

	memcpy(copy, text, len);
	good = wait_record_begin(&reader, copy, len);
	while (good && (good = wait_record_next(&reader, &line)) && line.kind != WAIT_LINE_END)
		counts[line.kind]++;
	pfree(copy);
	return good;
}

/*
 * Reads a record's text, which it keeps.  Returns false if it is none.
 */
bool
worker_record_parse(ReadRecord *record, char *text, size_t len)
{
	int		   counts[WAIT_LINE_END] = {0};
	WaitReader reader;
	WaitLine   line;
	ReadWait  *wait = NULL;
	ReadStep  *steps;
	ReadNode  *held;

	if (len > WAIT_RECORD_MAX || !count_lines(text, len, counts))
		return false;
	record->waits = palloc0((counts[WAIT_LINE_WAIT] + 1) * sizeof(ReadWait));
	steps = palloc0((counts[WAIT_LINE_STEP] + 1) * sizeof(ReadStep));
	held = palloc0((counts[WAIT_LINE_HELD] + 1) * sizeof(ReadNode));
	(void) wait_record_begin(&reader, text, len);
	while (wait_record_next(&reader, &line) && line.kind != WAIT_LINE_END)
	{
		switch (line.kind)
		{
			case WAIT_LINE_SERVER:
				record->server = line.text;
				break;
			case WAIT_LINE_SEEN:
				record->seen = (int64) line.number;
				break;
			case WAIT_LINE_WAIT:
				wait = &record->waits[record->nwaits++];
				wait->identity = line.number;
				wait->permits = line.permits;
				wait->node = (ReadNode){.path = line.path, .name = line.node};
				wait->steps = steps;
				wait->held = held;
				break;
			case WAIT_LINE_STEP:
				*steps++ = (ReadStep){.pid = (int) line.number, .text = line.text};
				wait->nsteps++;
				break;
			case WAIT_LINE_HELD:
				*held++ = (ReadNode){.path = line.path, .name = line.node};
				wait->nheld++;
				break;
			case WAIT_LINE_END:
				break;
		}
	}
	return true;
}
