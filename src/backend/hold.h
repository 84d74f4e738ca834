/*
 * hold.h
 *		What this session holds, or asks for: locks, turns, permits and elements; and
 *		what happens when the transaction ends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "lib/ilist.h"
#include "recipes/recipe.h"
#include "shared/entry.h"
#include "shared/settings.h"

/*
 * A lock, turn, permit or element that the session has or asks for.
 *
 * There are three records of each, 1:1:1, which have the number of the entry in common:
 *
 *	Hold			here, in the session: what it has, and how often
 *	ContenderEntry	shared/entry.h, in shared memory: what it asks for, and the answer
 *	Contender		engine/engine_internal.h, in the worker: its place in the queue of a path
 *
 * The entry is the first of them and the last.  The hold is added when the entry stands in
 * shared memory, and goes when that is given up.
 *
 * An exclusive lock includes the shared one, so it is counted in both modes.  It
 * becomes a shared one when the exclusive acquisitions go first.
 */
typedef struct Hold
{
	dlist_node	link;	/* in the list of all, the oldest first */
	dlist_node	bucket; /* of a lock: among those whose paths have the same hash */
	EntryKind	kind;
	LockMode	mode;
	int			entry;
	uint32		generation;		/* of the entry; it changes when that is free */
	int			acquired[2][2]; /* how often, by LockMode and LockScope; not at all while it
								 * is asked for, and for a turn */
	int64		since[2];		/* us; by LockMode, if it is acquired */
	CommitGuard taken_under;	/* strictest zklock.commit_guard of its acquisitions */
	uint32		check;			/* of its node by a quorum: number of the one asked for last */

	/* When it was given up or downgraded */
	dlist_node departure; /* in the list of those that the worker has to finish */
	bool	   departed;  /* it is there */

	char path[FLEXIBLE_ARRAY_MEMBER]; /* the lock's, semaphore's or element's, UTF-8 */
} Hold;

extern void	 hold_end_session(void);
extern Hold *hold_next(const Hold *hold);
extern int	 hold_number(EntryKind kind);
extern Hold *hold_of_lock(const char *path, LockMode mode);
extern int	 hold_entry(const Hold *hold, EntryStatus *status);
extern bool	 hold_is_lost(const Hold *hold);
extern void	 hold_report_lost(const Hold *hold);
extern void	 hold_check(const Hold *hold);

/* A call that acquires something: see request.c and transaction.c, too */
extern Hold *hold_make(EntryKind kind, const char *path, LockMode mode, int share);
extern void	 hold_add(Hold *hold, int entry);
extern void	 hold_count(Hold *hold, LockMode mode, LockScope scope);

/* A call that gives something up */
extern bool hold_release(Hold *hold, LockMode mode, LockScope scope, int n, EntryNotice notice);
extern void hold_abandon(EntryNotice notice);
extern bool hold_is_settled(const Hold *hold);

static inline bool
hold_is_acquired_in(const Hold *hold, LockMode mode)
{
	return hold->acquired[mode][LOCK_SCOPE_SESSION] > 0 ||
		   hold->acquired[mode][LOCK_SCOPE_TRANSACTION] > 0;
}

/* Does it count, for the session or its transaction? */
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

/* ------------------------------------------------------------------------
 * What a transaction relies on, and what happens when it ends
 * ------------------------------------------------------------------------
 */

/* When the locks are looked at */
typedef enum GuardMoment
{
	GUARD_EARLY, /* at the command COMMIT, before callbacks that may commit elsewhere */
	GUARD_FINAL	 /* before the commit here */
} GuardMoment;

/* guard.c: no commit on the strength of a lock that was lost */
extern void guard_check(GuardMoment moment);
extern void guard_release(Hold *hold, LockMode mode, int n);
extern void guard_forget(void);

/* interrupt.c: whether the loss of a lock interrupts the session, and what it is told */
extern void interrupt_set_policy(int policy, void *extra);
extern void interrupt_defer(void);
extern void interrupt_resume(void);
extern void interrupt_check(void (*describe)(void *), void *arg);

/* transaction.c: what ends when */
extern int	transaction_begin_call(void);
extern void transaction_acquired(Hold *hold, LockMode mode, LockScope scope);
extern void transaction_end_call(int mark, bool complete);
extern bool transaction_leads(int election, int64 *term);
extern void backend_install_hooks(void);

/* ------------------------------------------------------------------------
 * Locking and unlocking paths, the fencing tokens of their locks, and the permits of
 * semaphores
 * ------------------------------------------------------------------------
 */

/* A path in UTF-8, checked, and the mode in which it is locked */
typedef struct LockTarget
{
	const char *path;
	LockMode	mode;
	Hold	   *hold; /* while it is asked for, or to be released */
} LockTarget;

/* Locks on paths of their own, in the order of their bytes, in which they are taken */
typedef struct LockSet
{
	LockTarget *targets;
	int			n;
	bool		whole; /* if one is not held, none is released */
} LockSet;

extern int	 lock_compare_targets(const void *a, const void *b);
extern bool	 lock_acquire(const LockSet *set, LockScope scope, int64 timeout_ms);
extern bool	 lock_release(const LockSet *set);
extern void	 lock_release_all(void);
extern int64 lock_fencing_token(const char *path);
extern int64 lock_proved_token(const char *path);

/* Longest path of a semaphore, so that those of its nodes can be locked. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms);
extern bool permit_release(const char *path);

#endif /* ZKLOCK_HOLD_H */
