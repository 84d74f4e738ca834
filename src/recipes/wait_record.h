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

#define WAIT_RECORD_TITLE "zklock waits 1" /* its first line */
#define WAIT_RECORD_MAX_TEXT 512		   /* bytes of a name, or of what is waited for */

/* A line of a record, as wait_record.c describes them */
typedef enum WaitLineKind
{
	WAIT_LINE_SERVER, /* text: its name */
	WAIT_LINE_SEEN,	  /* number: a zxid */
	WAIT_LINE_WAIT,	  /* number: its identity; pid; text: what that process waits for */
	WAIT_LINE_NODE,	  /* permits, path, node: that with which it waits */
	WAIT_LINE_FOR,	  /* pid: a process of the same server for which it waits */
	WAIT_LINE_HELD,	  /* path, node: it holds that */
	WAIT_LINE_END	  /* there are no more */
} WaitLineKind;

/* Texts end with a NUL and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64_t	 number;
	int32_t		 pid;
	int32_t		 permits; /* of the semaphore; 0: a lock is waited for */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

extern bool wait_record_read(char *record, size_t len, WaitLine *lines);

#endif /* ZKLOCK_WAIT_RECORD_H */
