/*
 * lock_view.h
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_VIEW_H
#define ZKLOCK_LOCK_VIEW_H

#include "shared/entry.h"
#include "utils/hsearch.h"

/* A copy of an entry in use, of one moment; entry.h tells what these are */
typedef struct EntryView
{
	ContenderState state;
	LockMode	   mode;
	uint64		   ticket;
	int			   session_count;
	int			   transaction_count;
	int			   shared_session_count;
	int			   shared_transaction_count;
	uint64		   run_id;
	char		   node[ZKLOCK_NODE_SIZE];
	int64		   token;
	TimestampTz	   granted_at;
	TimestampTz	   expires_at; /* 0: never */
	uint64		   blocked_by_run;
	char		   blocked_by_node[ZKLOCK_NODE_SIZE];
	int			   pid;
	Oid			   database;
	Oid			   role;
	EntryKind	   kind;
	LockScope	   scope;
	TimestampTz	   requested_at;
	char		   path[ZKLOCK_MAX_PATH + 1];
} EntryView;

typedef struct LockView
{
	EntryView *entries;
	int		   n;
	HTAB	  *runs; /* private to lock_view.c */
} LockView;

/* For whom a process waits, as far as that is known.  The text belongs to the view. */
typedef struct LockBlocker
{
	int			pid;  /* of this server, or 0 */
	const char *node; /* of another client, or NULL */
} LockBlocker;

extern void		   lock_view_take(LockView *view);
extern void		   lock_view_drop(LockView *view);
extern LockBlocker lock_view_blocker(const LockView *view, uint64 run_id, int waiter);

#endif /* ZKLOCK_LOCK_VIEW_H */
