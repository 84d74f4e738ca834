/*
 * lock.c
 *		Locking and unlocking paths.
 *
 * The first acquisition of a lock asks the worker; further ones only count.
 * Several locks are taken together or not at all, and given back together.
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
#include "backend/transaction.h"
#include "shared/lease_state.h"
#include "shared/shmem.h"
#include "utils/timestamp.h"

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

/* Asks the worker for a lock, and waits for its answer. */
static bool
ask_for_lock(LockHold *lock, LockScope scope, int64 timeout_ms)
{
	const char		*path = lock->hold.path;
	ContenderRequest request = {.kind = CONTENDER_LOCK,
								.path = path,
								.mode = lock->mode,
								.scope = scope,
								.nowait = timeout_ms == LOCK_NO_WAIT,
								.since = GetCurrentTimestamp()};
	Wait			 wait;

	wait_begin(&wait, path, lock->mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock",
			   timeout_ms);

	/* Two sessions that hold the shared lock and want more wait for each other at once. */
	if (lock->mode == LOCK_MODE_EXCLUSIVE && lock->path->locks[LOCK_MODE_SHARED].hold.entry != NO_ENTRY)
		wait.look_at = 0;
	if (!hold_acquire(&lock->hold, &request, &wait))
		return false;
	wait_end(&wait);
	return true;
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

/* Acquires one lock.  Errors and timeouts leave nothing behind. */
static bool
acquire_one(const LockTarget *target, LockScope scope, int64 timeout_ms)
{
	LockHold	 *lock = lock_table_enter(target->path, target->mode);
	Hold		 *hold = &lock->hold;
	Hold		 *exclusive = &lock->path->locks[LOCK_MODE_EXCLUSIVE].hold;
	Hold		 *shared = &lock->path->locks[LOCK_MODE_SHARED].hold;
	Hold		 *other = hold == exclusive ? shared : exclusive;
	volatile bool granted = false;

	PG_TRY();
	{
		int held = hold->entry != NO_ENTRY ? hold->entry : other->entry;

		/* Nothing is to be built on a lost lock. */
		if (held != NO_ENTRY && entry_is_lost(held))
			request_report_lost(held, target->path);
		check_may_acquire(lock, scope);
		lock_table_reserve(lock, scope);
		if (shared->entry == NO_ENTRY && hold == shared && exclusive->entry != NO_ENTRY)
			hold_borrow(shared, exclusive);
		granted = hold->entry != NO_ENTRY || ask_for_lock(lock, scope, timeout_ms);
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
time_left(int64 timeout_ms, int64 start)
{
	return timeout_ms > 0 ? Max(timeout_ms - (zklock_now_ms() - start), 1) : timeout_ms;
}

/*
 * Undoes the first n locks of a set, which the current subtransaction has just
 * acquired, the last first.  Cannot fail, does not wait.
 */
static void
undo(const LockSet *set, int n, LockScope scope)
{
	while (n-- > 0)
	{
		LockHold *lock = lock_table_find(set->targets[n].path, set->targets[n].mode);

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
	for (int i = 0; i < set->n - 1; i++)
	{
		const LockHold *lock = lock_table_find(set->targets[i].path, set->targets[i].mode);

		if (lock && entry_is_lost(lock->hold.entry))
			request_report_lost(lock->hold.entry, set->targets[i].path);
	}
}

/*
 * Acquires all locks of a set, or none.
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
	int64		  start = zklock_now_ms();
	volatile int  acquired = 0;
	volatile bool complete = false;

	transaction_start_session();
	PG_TRY();
	{
		while (acquired < set->n &&
			   acquire_one(&set->targets[acquired], scope, time_left(timeout_ms, start)))
			acquired++;
		if (acquired == set->n)
			check_still_held(set);
		complete = acquired == set->n;
	}
	PG_FINALLY();
	{
		if (!complete)
			undo(set, acquired, scope);
	}
	PG_END_TRY();
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
 * Undoes one session-level acquisition of each lock of a set, the last first, or
 * of none if one is not held.  Then waits until those that are not acquired any
 * more are free for everyone, or free to share if downgraded.
 *
 * Nothing can fail between the first and the last, so a cancellation finds all
 * of them undone, and ends the wait only.
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
lock_release(const LockSet *set)
{
	LockHold   **locks = palloc(set->n * sizeof(LockHold *));
	bool		*lost = palloc(set->n * sizeof(bool));
	bool		 good = true;
	HandoverList awaited;

	handover_list_init(&awaited, 2 * set->n);
	for (int i = set->n - 1; i >= 0; i--)
	{
		locks[i] = find_held(&set->targets[i]);
		good &= locks[i] != NULL;
	}
	if (!good)
		return false;
	for (int i = set->n - 1; i >= 0; i--)
		lost[i] = release_one(locks[i], &awaited);
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
	LockHold	   *lock = lock_table_find(path, LOCK_MODE_EXCLUSIVE);
	ContenderEntry *entry;
	int64			token;

	if (lock == NULL)
		lock = lock_table_find(path, LOCK_MODE_SHARED);
	if (lock == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you don't own a lock on ZooKeeper path \"%s\"", display_path(path))));
	if (entry_is_lost(lock->hold.entry))
		request_report_lost(lock->hold.entry, path);
	entry = entry_at(lock->hold.entry);
	SpinLockAcquire(&entry->mutex);
	token = entry->status.token;
	SpinLockRelease(&entry->mutex);
	return token;
}

/*
 * The fencing token of the exclusive lock that this session holds on a path for
 * certain; 0 if it holds none, or may have lost it.  Needs no preload.
 */
int64
lock_proved_token(const char *path)
{
	LockHold	   *lock = lock_table_find(path, LOCK_MODE_EXCLUSIVE);
	ContenderEntry *entry;
	bool			lease_holds;
	int64			token = 0;
	int64			expires_us;

	if (lock == NULL)
		return 0;

	/* In this order: a lease that was seen before is the lock's own. */
	lease_holds = lease_state() == LEASE_HOLDS;
	entry = entry_at(lock->hold.entry);
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state == CONTENDER_GRANTED)
		token = entry->status.token;
	expires_us = entry->status.expires_us;
	SpinLockRelease(&entry->mutex);
	return lease_holds && !entry_is_overrun(expires_us) ? token : 0;
}
