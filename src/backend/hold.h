/*
 * hold.h
 *		What this session holds or asks for: locks, turns, permits and elements; and
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
 * Three records stand for each, 1:1:1.  They have the number of the entry in common:
 *
 *	Hold			here, in the session: what it has, and how often
 *	Entry			shared/entry.h, in shared memory: what it asks for, and the answer
 *	Contender		engine/engine_internal.h, in the worker: its place in the queue of a path
 *
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

extern void	 hold_end_session(void);
extern Hold *hold_next(const Hold *hold);
extern int	 hold_number(RequestKind kind);
extern Hold *hold_of_lock(const char *path, LockMode mode);
extern int	 hold_entry(const Hold *hold, EntryStatus *status);
extern bool	 hold_is_lost(const Hold *hold);
extern void	 hold_report_lost(const Hold *hold);
extern void	 hold_check(const Hold *hold);

/* A call that acquires something; see also request.c and transaction.c */
extern Hold *hold_make(RequestKind kind, const char *path, LockMode mode, int share);
extern void	 hold_add(Hold *hold, int entry);
extern void	 hold_count(Hold *hold, LockMode mode, LockScope scope);

/* A call that gives something up */
extern bool hold_release(Hold *hold, LockMode mode, LockScope scope, int n, EntryNotice notice);
extern void hold_drop_unacquired(EntryNotice notice);
extern bool hold_is_settled(const Hold *hold);

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

/* ------------------------------------------------------------------------
 * What a transaction relies on, and what happens when it ends
 * ------------------------------------------------------------------------
 */

/* When the commit guard checks the locks */
typedef enum GuardMoment
{
	GUARD_EARLY, /* at the command COMMIT, before callbacks that may commit elsewhere */
	GUARD_FINAL	 /* before the commit here */
} GuardMoment;

/* guard.c: prevents the commit of a transaction that relied on a lost lock */
extern void guard_check(GuardMoment moment);
extern void guard_release(Hold *hold, LockMode mode, int n);
extern void guard_forget(void);

/* interrupt.c: whether the loss of a lock interrupts the session, and what the error says */
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

/* A checked path in UTF-8, and the mode in which it is locked */
typedef struct LockTarget
{
	const char *path;
	LockMode	mode;
	Hold	   *hold; /* while the lock is asked for or released */
} LockTarget;

/*
 * Locks on different paths, sorted by the bytes of the paths, the order in which they are
 * taken
 */
typedef struct LockSet
{
	LockTarget *targets;
	int			n;
	bool		whole; /* if one lock is not held, none is released */
} LockSet;

/* Returns true if a hold is one of those that are meant. */
typedef bool (*HoldChoice)(const Hold *hold, const void *arg);

extern int	 lock_compare_targets(const void *a, const void *b);
extern bool	 lock_acquire(LockSet set, LockScope scope, int64 timeout_ms);
extern bool	 lock_release(LockSet set);
extern void	 lock_release_those(HoldChoice chosen, const void *arg);
extern void	 lock_release_all(void);
extern int64 lock_fencing_token(const char *path);
extern int64 lock_proved_token(const char *path);

/* Longest path of a semaphore: its nodes' paths are paths of entries, too. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms);
extern bool permit_release(const char *path);

#endif /* ZKLOCK_HOLD_H */
