/*
 * lock.c
 *		Unlocking paths, and the fencing tokens of their locks.
 *
 * Several locks are given back together.
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
#include "shared/lease_state.h"
#include "shared/shmem.h"

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
