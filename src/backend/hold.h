/*
 * hold.h
 *		What this session holds or asks for: locks, turns, permits and elements; and the errors for
 *		requests that fail.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "compat.h"
#include "lib/ilist.h"
#include "shared/entry.h"
#include "shared/settings.h"

/*
 * A lock, turn, permit or element that the session has or asks for.
 *
 * Three records stand for each, this one in the session: shared/entry.h has them side by side.
 * The entry is the first to exist and the last to go.  The hold is added when the entry
 * stands in shared memory, and goes when the entry is given up.
 *
 * An exclusive lock includes the shared one, so it is counted in both modes.  When its
 * exclusive acquisitions go first, it becomes a shared lock.
 */
typedef struct Hold
{
	dlist_node	link;	/* in the list of all holds, the oldest first */
	dlist_node	bucket; /* of a lock: in the list of locks whose paths have the same hash */
	RequestKind kind;
	LockMode	mode;
	int			entry;
	uint32		generation;		/* of the entry; changes when the entry is free */
	int			acquired[2][2]; /* how often, by LockMode and LockScope; not at all while it
								 * is asked for, and for a turn */
	int64		since[2];		/* us; by LockMode, if it is acquired */
	CommitGuard taken_under;	/* strictest zklock.commit_guard of its acquisitions */
	uint32		check;			/* of its node by a quorum: number of the last one asked for */
	bool		released_lost;	/* it was lost when a call released it last */

	/* For a hold that was given up or downgraded */
	dlist_node pending_release; /* in the list of those that the worker has to finish */
	bool	   release_pending; /* it is in that list */

	char path[FLEXIBLE_ARRAY_MEMBER]; /* of the lock, semaphore or element, UTF-8 */
} Hold;

extern Hold			   *hold_next(const Hold *hold);
extern Hold			   *hold_of_lock(const char *path, LockMode mode);
extern bool				hold_stands(const Hold *hold, EntryStatus *status);
extern bool				hold_is_lost(const Hold *hold);
pg_noreturn extern void hold_report_lost(const Hold *hold);

/* A call that acquires something; see also transaction.c */
extern Hold *hold_ask(EntryRequest *request, const char *path);

/* A call that gives something up */
extern bool hold_release(Hold *hold, LockMode mode, LockScope scope, int n, EntryNotice notice);
extern void hold_drop_unacquired(EntryNotice notice);
extern bool hold_hand_over(Hold *hold);

/* Errors of requests, and of calls */
extern void				request_refuse_election(const char *path);
extern bool				request_lacks_worker(int64 *since);
pg_noreturn extern void request_report_other_use(const char *path, const char *detail);
pg_noreturn extern void request_report_unreachable(const char *path);
pg_noreturn extern void request_report_failure(int index, const char *path, Failure failure, int code);

static inline bool
hold_is_acquired_in(const Hold *hold, LockMode mode)
{
	return hold->acquired[mode][LOCK_SCOPE_SESSION] > 0 ||
		   hold->acquired[mode][LOCK_SCOPE_TRANSACTION] > 0;
}

/* Returns true if the hold counts, for the session or its transaction. */
static inline bool
hold_is_acquired(const Hold *hold)
{
	return hold_is_acquired_in(hold, LOCK_MODE_EXCLUSIVE) ||
		   hold_is_acquired_in(hold, LOCK_MODE_SHARED);
}

/* Returns true if the hold is acquired at that level, perhaps at the other one as well. */
static inline bool
hold_is_acquired_at(const Hold *hold, LockScope scope)
{
	return hold->acquired[LOCK_MODE_EXCLUSIVE][scope] > 0 ||
		   hold->acquired[LOCK_MODE_SHARED][scope] > 0;
}

#endif /* ZKLOCK_HOLD_H */
