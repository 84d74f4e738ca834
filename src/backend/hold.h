/*
 * hold.h
 *		What this session holds or asks for, whatever it is.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "backend/request.h"
#include "backend/wait.h"
#include "lib/ilist.h"
#include "shared/entry.h"
#include "shared/settings.h"
#include "shared/stats.h"

/*
 * What the session has, or asks for, by one entry in shared memory: a lock in
 * one mode, a turn, or a permit.  Part of what is known of it besides.
 */
typedef struct Hold
{
	dlist_node	link;			   /* in the list of all, while it has an entry */
	const char *path;			   /* the lock's or the semaphore's, for messages; UTF-8 */
	int			entry;			   /* or ENTRY_NONE */
	bool		borrowed;		   /* the entry is another hold's, which gives it up */
	CommitGuard taken_under;	   /* strictest zklock.commit_guard of its acquisitions */
	int			session_count;	   /* acquisitions at session level */
	int			transaction_count; /* and at transaction level */
	StatsKind	counted_as;		   /* in the statistics */
	int64		acquired_at;	   /* us; 0 if it is not */
} Hold;

/* Which holds are visited */
typedef enum HoldSet
{
	HOLDS_ALL,
	HOLDS_OF_TRANSACTION /* acquired at transaction level, perhaps among others */
} HoldSet;

typedef void (*HoldVisitor)(const Hold *hold, void *arg);

extern void handover_list_init(HandoverList *list, int max);
extern void handover_list_wait(HandoverList *list);

extern void hold_start_session(void);
extern void hold_init(Hold *hold, const char *path, StatsKind counted_as);
extern void hold_ask(Hold *hold, const ContenderRequest *request);
extern bool hold_wait(const Hold *hold, Wait *wait);
extern bool hold_wait_given_up(const Hold *hold, const HandoverList *given_up, Wait *wait);
extern bool hold_acquire(Hold *hold, const ContenderRequest *request, Wait *wait);
extern void hold_borrow(Hold *hold, const Hold *from);
extern void hold_release(Hold *hold, HandoverList *awaited);
extern void hold_downgrade(Hold *hold, Hold *borrower, HandoverList *awaited);
extern void hold_count(Hold *hold, LockScope scope);
extern void hold_publish(const Hold *hold);
extern void hold_visit(HoldSet set, HoldVisitor visit, void *arg);
extern int	hold_number(void);

static inline bool
hold_is_acquired(const Hold *hold)
{
	return hold->session_count > 0 || hold->transaction_count > 0;
}

/* Does it have to be released by hand? */
static inline LockScope
hold_scope(const Hold *hold)
{
	return hold->session_count > 0 ? LOCK_SCOPE_SESSION : LOCK_SCOPE_TRANSACTION;
}

#endif /* ZKLOCK_HOLD_H */
