/*-------------------------------------------------------------------------
 *
 * wait_record.h
 *	  What servers tell each other of waits that last.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAIT_RECORD_H
#define ZKLOCK_WAIT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Below this node, relative to the chroot, each server has one of its own. */
#define WAIT_RECORD_ROOT "/zklock-waits"

#define WAIT_RECORD_MAX 32768 /* bytes of a record, without a NUL */

#define WAIT_RECORD_MAX_STEPS 16 /* of a wait */

/* A line of a record, in the order in which they can stand */
typedef enum WaitLineKind
{
	WAIT_LINE_SERVER, /* text: its name */
	WAIT_LINE_SEEN,	  /* number: see wait_record.c */
	WAIT_LINE_WAIT,	  /* number: its identity; permits, path, node */
	WAIT_LINE_STEP,	  /* number: a pid; text: what that process waits for */
	WAIT_LINE_HELD,	  /* path, node */
	WAIT_LINE_END	  /* there are no more */
} WaitLineKind;

/* Texts end with a NUL and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64_t	 number;
	int32_t		 permits; /* of the semaphore; 0: a lock is waited for */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

/* What is still to be read of a record. */
typedef struct WaitReader
{
	char		*at;
	char		*end;
	WaitLineKind last;
	int			 steps; /* of the wait that is being read */
} WaitReader;

/* A record that is written into a buffer. */
typedef struct WaitWriter
{
	char  *text;
	size_t len;
	size_t size;
	bool   full; /* something had no room, and is not there */
} WaitWriter;

extern bool wait_record_begin(WaitReader *reader, char *record, size_t len);
extern bool wait_record_next(WaitReader *reader, WaitLine *line);
extern void wait_record_start(WaitWriter *writer, char *text, size_t size);
extern bool wait_record_put(WaitWriter *writer, const WaitLine *line);

#endif /* ZKLOCK_WAIT_RECORD_H */
