/*
 * deadlock.h
 *		The search for deadlocks, as a session that waits sees it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "backend/call.h"
#include "shared/entry.h"

/* Looks for a deadlock on this server; raises an error if this session is to give up. */
extern void deadlock_check(int index);

/*
 * The same across servers.  One session that has waited for long searches for all of its
 * server.
 */
extern int64 deadlock_across_attend(int index, int64 until);
extern void	 deadlock_across_leave(int index);

/* The beginning of the description of a wait for a permit */
#define WAIT_FOR_PERMIT "SemaphorePermit"

extern char *waits_describe_contender(const EntryCopy *waiting);

/* ------------------------------------------------------------------------
 * The records of waits that servers publish for each other (wait_search.c)
 * ------------------------------------------------------------------------
 */

/* The node below which servers publish their records, relative to the chroot */
#define WAIT_RECORD_ROOT "/zklock-waits"

#define WAIT_RECORD_MAX 32768 /* bytes of a record, without a NUL */

#define WAIT_RECORD_TITLE "zklock waits 1" /* its first line begins with this */
#define WAIT_RECORD_MAX_TEXT 512 /* bytes of a server's name, or of what is waited for */

/*
 * The lines of a record, which wait_search.c describes.  After each WAIT_LINE_WAIT those
 * that belong to it follow, in this order.
 */
typedef enum WaitLineKind
{
	WAIT_LINE_TITLE, /* number: a zxid; text: the server's name */
	WAIT_LINE_WAIT,	 /* number: its identity; pid; permits, path, node: the node with which
					  * the process waits; text: what it waits for */
	WAIT_LINE_FOR,	 /* pid: a process of the same server for which the process waits */
	WAIT_LINE_HELD,	 /* path, node: a node that the process holds */
	WAIT_LINE_END	 /* the end of the record */
} WaitLineKind;

/* Texts end with a NUL, and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64		 number;
	int32		 pid;
	int32		 permits; /* the semaphore's; 0: the process waits for something else */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

extern int64		   wait_record_session(const char *name);
extern const WaitLine *wait_record_lines(const CallStep *record);

#endif /* ZKLOCK_DEADLOCK_H */
