/*
 * lock.c
 *		Locking and unlocking paths: one, or several together.
 *
 * The first acquisition of a lock asks the worker; further ones only count.
 * Several locks are acquired all or none.
 *
 * A set of locks has an order, which is everybody's: that of the bytes of the
 * paths.  Who waits for a lock while it holds only such as come before it cannot
 * be in a circle of others who do the same.  But to ask for one when the one
 * before is granted takes a round trip for each.  So those that are free are
 * taken together:
 *
 *	together	All are asked for at once, and none of these requests waits for
 *				another holder: the worker grants each, or refuses it, when
 *				ZooKeeper has answered.  So whatever has been granted, nobody is
 *				kept waiting for longer than that takes, in whatever order.
 *	alone		The first that was refused is waited for, like a single lock.
 *				Before it is asked for, all locks of the set behind it have been
 *				given back.  So while a lock of the set is waited for, only
 *				such as come before it are held, and none is asked for.
 *	together	Then those behind it, but not more of them than were granted last
 *				time (two at least), and twice as many each time that all are.
 *
 * The last rule bounds the work for a set of which much is taken: but for the
 * first time, no more is asked for than twice what was just had.
 *
 * A path that lies below another one of the set is not asked for together with
 * that, but when it is granted: only its holder is trusted to have nodes created
 * below it (parents.c).  So a tree is locked step by step.
 *
 * Before a lock is waited for, the worker must be done with those that were
 * given back, as they count among the session's share until then; and the
 * session's own node of the same path is out of its way.  That depends on
 * ZooKeeper, not on other holders.
 *
 * A call that must not wait for others asks for all together and is done.  Its
 * requests look at a path before they have a node created there; those of a
 * call that waits do not, as they are right in most cases.
 *
 * However a call ends, by a timeout, an error or a cancellation at any moment,
 * PG_FINALLY gives back what is asked for or granted, and then what has been
 * counted; and what was held before, as often as before, is held.
 *
 * Locks are given back together, too.
 *
 * Runs in: backends.  What is held is in lock_table.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "backend/lock_table.h"
#include "backend/request.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/shmem.h"
#include "utils/timestamp.h"

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

/* The order in which everybody locks several paths: for qsort() and bsearch() */
int
lock_compare_targets(const void *a, const void *b)
{
	return strcmp(((const LockTarget *) a)->path, ((const LockTarget *) b)->path);
}

/* How a call asks for a lock. */
typedef enum Asking
{
	ASK_AND_WAIT, /* for other holders, too */
	ASK_AND_LOOK, /* never wait for others, but look first whether it is taken */
	ASK_AND_GRAB  /* likewise, but do not look */
} Asking;

static ContenderRequest
request_for(const LockHold *lock, LockScope scope, Asking asking)
{
	return (ContenderRequest){.kind = CONTENDER_LOCK,
							  .path = lock->hold.path,
							  .mode = lock->mode,
							  .scope = scope,
							  .nowait = asking != ASK_AND_WAIT,
							  .eager = asking == ASK_AND_GRAB,
							  .since = GetCurrentTimestamp()};
}

static void
begin_wait(Wait *wait, const LockHold *lock, int64 timeout_ms)
{
	wait_begin(wait, lock->hold.path,
			   lock->mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock", timeout_ms);

	/* Two sessions that hold the shared lock and want more wait for each other at once. */
	if (lock->mode == LOCK_MODE_EXCLUSIVE && lock->path->locks[LOCK_MODE_SHARED].hold.entry != ENTRY_NONE)
		wait->look_at = 0;
}

/* Raises an error unless a lock may be acquired once more. */
static void
check_may_acquire(const LockHold *lock, LockScope scope)
{
	const Hold *hold = &lock->hold;
	int count = scope == LOCK_SCOPE_SESSION ? hold->session_count : hold->transaction_count;

	if (count == PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("lock on ZooKeeper path \"%s\" has been acquired too often",
							   display_path(hold->path))));
}

/*
 * Makes ready to acquire a lock: what follows cannot fail once it is granted.
 * Returns false if the session has no entry for it yet, and must ask.
 */
static bool
prepare(LockHold *lock, LockScope scope)
{
	Hold *hold = &lock->hold;
	Hold *exclusive = &lock->path->locks[LOCK_MODE_EXCLUSIVE].hold;
	Hold *shared = &lock->path->locks[LOCK_MODE_SHARED].hold;
	Hold *other = hold == exclusive ? shared : exclusive;
	Hold *held = hold->entry != ENTRY_NONE ? hold : other;

	/* Nothing is to be built on a lost lock. */
	if (held->entry != ENTRY_NONE && entry_is_lost(held->entry))
		request_report_lost(held->entry, hold->path, hold_scope(held));
	check_may_acquire(lock, scope);
	lock_table_reserve(lock, scope);
	if (shared->entry == ENTRY_NONE && hold == shared && exclusive->entry != ENTRY_NONE)
		hold_borrow(shared, exclusive);
	return hold->entry != ENTRY_NONE;
}

/*
 * Acquires one lock, when the worker is done with what was given up, and forgets
 * that.  Errors and timeouts leave nothing behind.
 */
static bool
acquire_one(const LockTarget *target, LockScope scope, int64 timeout_ms, HandoverList *given_up)
{
	LockHold	 *lock = lock_table_enter(target->path, target->mode);
	volatile bool granted = false;

	PG_TRY();
	{
		Wait wait;

		begin_wait(&wait, lock, timeout_ms);
		if (hold_wait_given_up(&lock->hold, given_up, &wait))
		{
			ContenderRequest request =
				request_for(lock, scope, timeout_ms == LOCK_NO_WAIT ? ASK_AND_LOOK : ASK_AND_WAIT);

			given_up->n = 0;
			granted = prepare(lock, scope) || hold_acquire(&lock->hold, &request, &wait);
			if (granted)
				wait_end(&wait);
		}
	}
	PG_FINALLY();
	{
		if (!granted)
			(void) lock_table_settle(lock->path, NULL);
	}
	PG_END_TRY();
	if (granted)
		lock_table_count(lock, scope);
	return granted;
}

/*
 * What is left of a timeout, ms.  The last wait may end a little late, but is
 * not a try-lock.
 */
static int64
time_left(int64 timeout_ms, int64 start_us)
{
	return timeout_ms > 0 ? Max(timeout_ms - zklock_ms_since(start_us), 1) : timeout_ms;
}

/*
 * Undoes the first n locks of an array, which the current subtransaction has just
 * acquired, the last first.  Cannot fail, does not wait.
 */
static void
undo(const LockTarget *targets, int n, LockScope scope)
{
	while (n-- > 0)
	{
		LockHold *lock = lock_table_find(targets[n].path, targets[n].mode);

		if (lock == NULL)
			continue;
		lock_table_uncount(lock, scope);
		(void) lock_table_settle(lock->path, NULL);
	}
}

/* Raises an error if one was lost while others were waited for. */
static void
check_still_held(const LockSet *set)
{
	for (int i = 0; i < set->n; i++)
	{
		const LockHold *lock = lock_table_find(set->targets[i].path, set->targets[i].mode);

		if (lock && entry_is_lost(lock->hold.entry))
			request_report_lost(lock->hold.entry, set->targets[i].path, hold_scope(&lock->hold));
	}
}

/* Asks for a lock, unless the session has it, together with others. */
static void
ask_together(LockHold *lock, LockScope scope, Asking asking)
{
	ContenderRequest request = request_for(lock, scope, asking);

	if (!prepare(lock, scope))
		hold_ask(&lock->hold, &request);
}

/* The answer to that. */
static bool
is_granted(const LockHold *lock, int64 timeout_ms)
{
	Wait wait;

	if (hold_is_acquired(&lock->hold) || lock->hold.borrowed)
		return true;
	begin_wait(&wait, lock, timeout_ms);
	return hold_wait(&lock->hold, &wait);
}

/*
 * Acquires the first n locks of an array together, as far as they are free.
 * "given_up" gets those that are given back, and has room for two for each.
 *
 * Returns how many were acquired: all before the first that was not free, or for
 * which there was no time.  Errors leave nothing behind.
 */
static int
acquire_together(const LockTarget *targets, int n, LockScope scope, int64 timeout_ms,
				 HandoverList *given_up)
{
	int64		 start_us = zklock_now_us();
	LockHold   **locks = palloc(n * sizeof(LockHold *));
	volatile int entered = 0;
	volatile int acquired = 0;

	PG_TRY();
	{
		for (int i = 0; i < n; i++)
		{
			locks[i] = lock_table_enter(targets[i].path, targets[i].mode);
			entered++;
			ask_together(locks[i], scope, timeout_ms == LOCK_NO_WAIT ? ASK_AND_LOOK : ASK_AND_GRAB);
		}
		while (acquired < n && is_granted(locks[acquired], time_left(timeout_ms, start_us)))
		{
			lock_table_count(locks[acquired], scope);
			acquired++;
		}
	}
	PG_CATCH();
	{
		for (int i = entered - 1; i >= acquired; i--)
			(void) lock_table_settle(locks[i]->path, NULL);
		undo(targets, acquired, scope);
		PG_RE_THROW();
	}
	PG_END_TRY();
	for (int i = n - 1; i >= acquired; i--)
		(void) lock_table_settle(locks[i]->path, given_up);
	pfree(locks);
	return acquired;
}

/* Does a path lie below one of n others, which are in the order of their bytes? */
static bool
lies_below(const char *path, const LockTarget *targets, int n)
{
	char  above[ZKLOCK_MAX_PATH + 1];
	char *slash;

	strlcpy(above, path, sizeof(above));
	while ((slash = strrchr(above, '/')) != NULL)
	{
		LockTarget key = {.path = above};

		*slash = '\0';
		if (bsearch(&key, targets, n, sizeof(LockTarget), lock_compare_targets) != NULL)
			return true;
	}
	return false;
}

/* How many of the first n locks of an array can be asked for together? */
static int
number_together(const LockTarget *targets, int n)
{
	for (int i = 1; i < n; i++)
	{
		if (lies_below(targets[i].path, targets, i))
			return i;
	}
	return n;
}

/*
 * Acquires all locks of a set, or none, after transaction_start_session().
 *
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds, for all of them;
 *				PostgreSQL's lock_timeout is for each
 *
 * Returns false if they could not be had in that time.  Errors leave nothing
 * behind.
 */
bool
lock_acquire(const LockSet *set, LockScope scope, int64 timeout_ms)
{
	int64				 start_us = zklock_now_us();
	int					 most = set->n; /* that are asked for together */
	HandoverList		 given_up;
	volatile int		 acquired = 0;
	volatile bool		 complete = false;
	ErrorContextCallback context;

	interrupt_context_begin(&context);
	handover_list_init(&given_up, 2 * set->n);
	PG_TRY();
	{
		while (acquired < set->n)
		{
			const LockTarget *next = &set->targets[acquired];
			int				  n = number_together(next, Min(most, set->n - acquired));
			int				  free = 0;

			if (n > 1)
				free = acquire_together(next, n, scope, time_left(timeout_ms, start_us), &given_up);
			acquired += free;
			if (free == n)
			{
				most *= 2;
				continue;
			}
			if (n > 1 && timeout_ms == LOCK_NO_WAIT)
				break;
			if (n > 1)
				most = Max(free, 2);
			if (!acquire_one(next + free, scope, time_left(timeout_ms, start_us), &given_up))
				break;
			acquired++;
		}
		if (acquired == set->n)
			check_still_held(set);
		complete = acquired == set->n;
	}
	PG_FINALLY();
	{
		if (!complete)
			undo(set->targets, acquired, scope);
	}
	PG_END_TRY();
	interrupt_context_end(&context);
	pfree(given_up.handovers);
	return complete;
}

/* ------------------------------------------------------------------------
 * Unlocking
 * ------------------------------------------------------------------------
 */

static void
warn_lost(const char *path)
{
	ereport(WARNING, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					  errmsg("lock on ZooKeeper path \"%s\" was lost before it was released",
							 display_path(path))));
}

/* A lock that is held at session level, or NULL, with a warning, if it is not. */
static LockHold *
find_held(const LockTarget *target)
{
	LockHold *lock = lock_table_find(target->path, target->mode);

	if (lock && lock->hold.session_count > 0)
		return lock;
	if (target->mode == LOCK_MODE_EXCLUSIVE)
		ereport(WARNING, (errmsg("you don't own a session-level exclusive lock on ZooKeeper path \"%s\"",
								 display_path(target->path))));
	else
		ereport(WARNING, (errmsg("you don't own a session-level shared lock on ZooKeeper path \"%s\"",
								 display_path(target->path))));
	return NULL;
}

/*
 * Undoes one acquisition at session level.  Cannot fail, does not wait.  Returns
 * whether the lock had been lost; then nothing is awaited.
 */
static bool
release_one(LockHold *lock, HandoverList *awaited)
{
	bool		lost = entry_is_lost(lock->hold.entry);
	GuardProof	proof = guard_proof(lock->hold.entry);
	CommitGuard taken_under = lock->hold.taken_under;

	lock_table_uncount(lock, LOCK_SCOPE_SESSION);
	if (lock_table_settle(lock->path, lost ? NULL : awaited) > 0)
		guard_released(taken_under, proof);
	return lost;
}

/*
 * Undoes one session-level acquisition of each lock of a set, the last first.
 * Then waits until those that are not acquired any more are free for everyone,
 * or free to share if downgraded.
 *
 * Nothing can fail between the first and the last, so a cancellation finds all
 * of them undone, and ends the wait only.
 *
 *	rule	what becomes of the others if one is not held
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
lock_release(const LockSet *set, ReleaseRule rule)
{
	LockHold   **locks = palloc(set->n * sizeof(LockHold *));
	bool		*lost = palloc0(set->n * sizeof(bool));
	bool		 good = true;
	HandoverList awaited;

	handover_list_init(&awaited, 2 * set->n);
	for (int i = set->n - 1; i >= 0; i--)
	{
		locks[i] = find_held(&set->targets[i]);
		good &= locks[i] != NULL;
	}
	if (!good && rule == RELEASE_ALL_OR_NONE)
		return false;
	for (int i = set->n - 1; i >= 0; i--)
	{
		if (locks[i])
			lost[i] = release_one(locks[i], &awaited);
	}
	for (int i = set->n - 1; i >= 0; i--)
	{
		if (lost[i])
		{
			warn_lost(set->targets[i].path);
			good = false;
		}
	}
	handover_list_wait(&awaited);
	return good;
}

/* Undoes all acquisitions of a path at session level. */
static void
release_path(LockedPath *path, void *arg)
{
	HandoverList *awaited = arg;
	GuardProof	  proof = GUARD_PROVED;
	bool		  lost = false;
	CommitGuard	  taken_under = COMMIT_GUARD_OFF;

	for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
	{
		const Hold *hold = &path->locks[mode].hold;

		if (hold->session_count == 0)
			continue;
		lost |= entry_is_lost(hold->entry);
		if (guard_proof(hold->entry) == GUARD_UNPROVED)
			proof = GUARD_UNPROVED;
		taken_under = Max(taken_under, hold->taken_under);
	}
	if (lost)
		warn_lost(path->path);
	for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
		path->locks[mode].hold.session_count = 0;
	if (lock_table_settle(path, awaited) > 0)
		guard_released(taken_under, proof);
}

/*
 * Undoes all session-level acquisitions of this session, without waiting.
 * "awaited" gets what is still to be done, and has room for hold_number() more.
 */
void
lock_release_all(HandoverList *awaited)
{
	lock_table_visit(release_path, awaited);
}

/* ------------------------------------------------------------------------
 * Fencing tokens
 * ------------------------------------------------------------------------
 */

/* Does this session hold a lock on a path, in either mode? */
bool
lock_is_held(const char *path)
{
	return lock_table_find(path, LOCK_MODE_EXCLUSIVE) || lock_table_find(path, LOCK_MODE_SHARED);
}

/*
 * The fencing token of the exclusive lock this session holds on a path, else
 * of its shared lock.  Raises an error if it holds none, or has lost it.
 */
int64
lock_fencing_token(const char *path)
{
	LockHold *lock = lock_table_find(path, LOCK_MODE_EXCLUSIVE);

	if (lock == NULL)
		lock = lock_table_find(path, LOCK_MODE_SHARED);
	if (lock == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you don't own a lock on ZooKeeper path \"%s\"", display_path(path))));
	if (entry_is_lost(lock->hold.entry))
		request_report_lost(lock->hold.entry, path, hold_scope(&lock->hold));
	return entry_status(lock->hold.entry).token;
}

/*
 * The fencing token of the exclusive lock that this session holds on a path for
 * certain; 0 if it holds none, or may have lost it.  Needs no preload.
 */
int64
lock_proved_token(const char *path)
{
	LockHold   *lock = lock_table_find(path, LOCK_MODE_EXCLUSIVE);
	EntryStatus status;
	bool		lease_holds;

	if (lock == NULL)
		return 0;

	/* In this order: a lease that was seen before is the lock's own. */
	lease_holds = lease_state() == LEASE_HOLDS;
	status = entry_status(lock->hold.entry);
	return lease_holds && status.state == CONTENDER_GRANTED && !entry_is_overrun(status.expires_us)
			   ? status.token
			   : 0;
}
