/*
 * lock_table.h
 *		The locks that this session holds: how often, and by whom acquired.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_TABLE_H
#define ZKLOCK_LOCK_TABLE_H

#include "access/xact.h"
#include "backend/hold.h"

/* Transaction-level acquisitions by one subtransaction */
typedef struct LockOwner
{
	SubTransactionId subid;
	int				 count;
} LockOwner;

/* What this session has on one path in one mode. */
typedef struct LockHold
{
	Hold			   hold;
	struct LockedPath *path;
	LockMode		   mode;
	int				   nowners;
	int				   maxowners;
	LockOwner		  *owners; /* their counts add up to hold.transaction_count */
} LockHold;

/* What it has on one path. */
typedef struct LockedPath
{
	char	   path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	dlist_node transaction_link;		  /* in a list of its own while a lock has owners */
	LockHold   locks[2];				  /* by LockMode */
} LockedPath;

typedef void (*LockedPathVisitor)(LockedPath *path, void *arg);

extern void		 lock_table_start_session(void);
extern LockHold *lock_table_enter(const char *path, LockMode mode);
extern LockHold *lock_table_find(const char *path, LockMode mode);
extern void		 lock_table_reserve(LockHold *lock, LockScope scope);
extern void		 lock_table_count(LockHold *lock, LockScope scope);
extern void		 lock_table_uncount(LockHold *lock, LockScope scope);
extern int		 lock_table_settle(LockedPath *path, HandoverList *awaited);
extern void		 lock_table_visit(LockedPathVisitor visit, void *arg);
extern bool		 lock_table_has_transaction_locks(void);
extern void		 lock_table_end_transaction(void);
extern void		 lock_table_end_subtransaction(SubXactEvent event, SubTransactionId subid,
											   SubTransactionId parent);

#endif /* ZKLOCK_LOCK_TABLE_H */
