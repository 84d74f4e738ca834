/*
 * hold.h
 *		What this session holds, or asks for: locks, turns, permits and elements.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "access/xact.h"
#include "lib/ilist.h"
#include "shared/entry.h"
#include "shared/settings.h"

/*
 * A lock, turn, permit or element that the session has or asks for by one entry.
 *
 * An exclusive lock includes the shared one, so it is counted in both modes.  It
 * becomes a shared one when the exclusive acquisitions go first.
 */
typedef struct Hold
{
	dlist_node	link; /* in the list of all, the oldest first */
	EntryKind	kind;
	LockMode	mode;
	int			entry;
	int			acquired[2][2]; /* how often, by LockMode and LockScope; not at all while it
									  * is asked for, and for a turn */
	int64		since[2];		/* us; by LockMode, if it is acquired */
	CommitGuard taken_under;	/* strictest zklock.commit_guard of its acquisitions */
	char		path[FLEXIBLE_ARRAY_MEMBER]; /* the lock's, semaphore's or element's, UTF-8 */
} Hold;

/* How the worker is asked */
typedef enum HoldManner
{
	ASK_AND_WAIT, /* for other holders, too */
	ASK_AND_LOOK, /* never wait for others, but look first whether it is taken */
	ASK_AND_GRAB  /* never wait for others, and do not look */
} HoldManner;

typedef struct HoldRequest
{
	EntryKind	kind;
	const char *path; /* the lock's, semaphore's or element's, UTF-8 */
	LockMode	mode;
	int			permits; /* of the semaphore */
	LockScope	scope;
	HoldManner	manner;
	TimestampTz since; /* when the user asked */
} HoldRequest;

extern void	 hold_start_session(void);
extern Hold *hold_next(const Hold *hold);
extern int	 hold_number(EntryKind kind);
extern Hold *hold_of_lock(const char *path, LockMode mode);

/* A call that acquires something */
extern int	 hold_begin(int most);
extern Hold *hold_ask(const HoldRequest *request);
extern void	 hold_count(Hold *hold, LockMode mode, LockScope scope);
extern void	 hold_end(int mark, bool complete);

/* A call that gives something up */
extern int	hold_departures(void);
extern void hold_uncount(Hold *hold, LockMode mode, LockScope scope, int n);
extern bool hold_settle(Hold *hold, EntryNotice notice);
extern bool hold_are_gone(int mark);

/* The transaction */
extern bool hold_has_transaction_locks(void);
extern void hold_end_transaction(XactEvent event);
extern void hold_end_subtransaction(SubTransactionId subid);

static inline bool
hold_is_acquired_in(const Hold *hold, LockMode mode)
{
	return hold->acquired[mode][LOCK_SCOPE_SESSION] > 0 ||
		   hold->acquired[mode][LOCK_SCOPE_TRANSACTION] > 0;
}

static inline bool
hold_is_acquired(const Hold *hold)
{
	return hold_is_acquired_in(hold, LOCK_MODE_EXCLUSIVE) ||
		   hold_is_acquired_in(hold, LOCK_MODE_SHARED);
}

/* Is it acquired at that level, perhaps among others? */
static inline bool
hold_is_acquired_at(const Hold *hold, LockScope scope)
{
	return hold->acquired[LOCK_MODE_EXCLUSIVE][scope] > 0 ||
		   hold->acquired[LOCK_MODE_SHARED][scope] > 0;
}

/* Does it have to be released by hand? */
static inline LockScope
hold_scope(const Hold *hold)
{
	return hold_is_acquired_at(hold, LOCK_SCOPE_SESSION) ? LOCK_SCOPE_SESSION : LOCK_SCOPE_TRANSACTION;
}

#endif /* ZKLOCK_HOLD_H */
