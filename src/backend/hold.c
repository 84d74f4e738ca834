/*
 * hold.c
 *		What this session holds or asks for: locks, turns, permits and elements.
 *
 * All holds are in one list, from the moment when their entry is in shared memory.  Locks are
 * found by path and mode, too: a session has at most one contender for each.  transaction.c
 * says what ends when.
 *
 * An exclusive lock includes the shared one: a session that holds the exclusive lock and
 * acquires the shared one is granted it at once, by the same entry.  A session that holds the
 * shared lock and acquires the exclusive one, in contrast, is a new contender with an entry
 * of its own, for which the worker disregards what the same session holds (see
 * recipe.c).
 *
 * An entry is given up by a step in shared memory that cannot fail and does not wait: the
 * worker then deletes the node or passes it on.  So callbacks at commit, abort and exit may
 * do it.  The session keeps such holds in a list, its pending releases, until the worker is
 * done with them.  They count among its share: else it could use up all entries by asking and
 * giving up faster than ZooKeeper answers.  A call that unlocks waits for what it has given
 * up, so that later calls find the lock free.
 *
 * A lost lock stays until its counts are gone; the session never asks for it again behind the
 * user's back.
 *
 * Runs in: backends.  All this is private; shared/entry.h says how entries are written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/hold.h"
#include "common/hashfn.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "shared/stats.h"
#include "utils/memutils.h"

static MemoryContext hold_context = NULL;

static dlist_head holds = DLIST_STATIC_INIT(holds);

/* The locks among the holds, by a hash of their paths */
#define LOCK_BUCKETS 1024
static dlist_head locks[LOCK_BUCKETS];

/* Holds that were given up or downgraded and that the worker has to finish, in that order */
static dlist_head pending_releases = DLIST_STATIC_INIT(pending_releases);

/* Number of entries of this session: those of holds and of pending releases */
static int nentries = 0;

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

/* Adds the time for which a hold was held in a mode to the statistics. */
static void
count_hold_time(const Hold *hold, LockMode mode)
{
	stats_add(stats_kind(hold->kind, mode), STATS_HOLD_US, zklock_now_us() - hold->since[mode]);
}

/* Returns the hold after another one, or the first one after NULL; NULL at the end. */
Hold *
hold_next(const Hold *hold)
{
	const dlist_node *before = hold ? &hold->link : &holds.head;

	if (before->next == &holds.head)
		return NULL;
	return dlist_container(Hold, link, before->next);
}

/* Returns the number of holds of a kind. */
int
hold_number(RequestKind kind)
{
	int n = 0;

	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		n += hold->kind == kind;
	return n;
}

/* Returns the list with the session's locks on a path, and others with the same hash. */
static dlist_head *
bucket(const char *path)
{
	return &locks[hash_bytes((const unsigned char *) path, (int) strlen(path)) % LOCK_BUCKETS];
}

/*
 * Returns the session's lock on a path in a mode, or else the exclusive one that includes it;
 * NULL if there is none.  Needs no preload.
 */
Hold *
hold_of_lock(const char *path, LockMode mode)
{
	Hold	  *found = NULL;
	dlist_iter iter;

	dlist_foreach (iter, bucket(path))
	{
		Hold *hold = dlist_container(Hold, bucket, iter.cur);

		if (strcmp(hold->path, path) != 0)
			continue;
		if (hold->mode == mode)
			return hold;
		if (hold->mode == LOCK_MODE_EXCLUSIVE)
			found = hold;
	}
	return found;
}

/*
 * Returns the entry of a hold, and its status; ENTRY_NONE if the lock is lost, or its time is
 * over.  A caller that relies on the lease reads it first: then it is the lease of the grant.
 */
int
hold_entry(const Hold *hold, EntryStatus *status)
{
	*status = entry_status(hold->entry);
	if (status->state == ENTRY_GRANTED && entry_is_overrun(status->expires_us))
		return ENTRY_NONE;
	return status->state == ENTRY_LOST ? ENTRY_NONE : hold->entry;
}

/*
 * Returns true if a hold is lost.  What was granted is lost with the lease, even before the
 * worker has said so.
 */
bool
hold_is_lost(const Hold *hold)
{
	bool		over = lease_state() == LEASE_OVER;
	EntryStatus status;

	return hold_entry(hold, &status) == ENTRY_NONE || (over && status.state == ENTRY_GRANTED);
}

/* Returns why a lock or an element was lost, for a DETAIL. */
static const char *
why_lost(const Hold *hold)
{
	const EntryRequest *request = &entry_at(hold->entry)->request;
	EntryStatus			status = entry_status(hold->entry);
	LossReason			reason = status.loss;

	/* The worker has not said it yet: the clock or the lease has ended the lock. */
	if (status.state != ENTRY_LOST)
		reason = entry_is_overrun(status.expires_us) ? LOSS_OVERRUN : LOSS_UNPROVED;
	if (reason == LOSS_OVERRUN && request->scope == LOCK_SCOPE_RESERVATION)
		return psprintf("The reservation of %d ms was over before the call returned.",
						request->max_hold_ms);
	return psprintf(failure_loss_texts[reason], request->max_hold_ms);
}

/*
 * Raises an error for a hold that is lost.  A lock at transaction level goes with the
 * transaction.
 */
void
hold_report_lost(const Hold *hold)
{
	const char *path = display_path(hold->path);
	const char *name = strrchr(hold->path, '/') + 1;

	if (hold->kind == REQUEST_ELEMENT)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("element \"%s\" of ZooKeeper queue \"%s\" was lost", display_utf8(name),
						display_path(pnstrdup(hold->path, name - 1 - hold->path))),
				 errdetail_internal("%s", why_lost(hold)),
				 errhint("Others may have taken the element meanwhile. Retry the transaction.")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock on ZooKeeper path \"%s\" was lost", path),
			 errdetail_internal("%s", why_lost(hold)),
			 hold_is_acquired_at(hold, LOCK_SCOPE_SESSION)
				 ? errhint("Others may have held the lock meanwhile. Release it and retry the work.")
				 : errhint("Others may have held the lock meanwhile. Retry the transaction.")));
}

/* Raises an error if a hold is lost. */
void
hold_check(const Hold *hold)
{
	if (hold_is_lost(hold))
		hold_report_lost(hold);
}

/* ------------------------------------------------------------------------
 * Pending releases
 * ------------------------------------------------------------------------
 */

/* Adds a hold to the pending releases: the worker has something to finish.  Cannot fail. */
static void
add_pending_release(Hold *hold)
{
	if (hold->release_pending)
		dlist_delete(&hold->pending_release);
	dlist_push_tail(&pending_releases, &hold->pending_release);
	hold->release_pending = true;
}

/* Forgets a pending release if the worker is done with it.  Returns true if it was. */
static bool
forget_pending_release(Hold *hold)
{
	if (!entry_is_settled(hold->entry, hold->generation))
		return false;
	dlist_delete(&hold->pending_release);
	hold->release_pending = false;

	/* The hold was given up, not downgraded. */
	if (!hold_is_acquired(hold))
	{
		nentries--;
		pfree(hold);
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Asking
 * ------------------------------------------------------------------------
 */

/*
 * Raises an error if the session has its share of entries.  No latch is set when one has
 * become free, so the session looks: at the oldest pending releases, which are mostly done
 * first, and at all of them when it seems to have its share.
 */
static void
refuse_excess(int share)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &pending_releases)
	{
		if (!forget_pending_release(dlist_container(Hold, pending_release, iter.cur)) && nentries < share)
			break;
	}
	if (nentries >= share && share < entries_limit())
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", nentries),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
}

/*
 * Makes a hold, which counts from hold_add() on.  Raises an error if the session has its
 * share of entries.
 */
Hold *
hold_make(RequestKind kind, const char *path, LockMode mode, int share)
{
	Size  len = strlen(path) + 1;
	Hold *hold;

	refuse_excess(share);
	if (hold_context == NULL)
		hold_context =
			AllocSetContextCreate(TopMemoryContext, "zklock locks", ALLOCSET_DEFAULT_SIZES);
	hold = MemoryContextAllocZero(hold_context, offsetof(Hold, path) + len);
	hold->kind = kind;
	hold->mode = mode;
	memcpy(hold->path, path, len);
	return hold;
}

/* Adds a hold, for which an entry has asked the worker.  Cannot fail. */
void
hold_add(Hold *hold, int entry)
{
	hold->entry = entry;
	hold->generation = entry_generation(entry);
	nentries++;
	dlist_push_tail(&holds, &hold->link);
	if (hold->kind == REQUEST_LOCK)
		dlist_push_tail(bucket(hold->path), &hold->bucket);
}

/* ------------------------------------------------------------------------
 * Counting
 * ------------------------------------------------------------------------
 */

/* Stores the counts in the entry, for zk_locks. */
static void
publish_counts(const Hold *hold)
{
	Entry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	memcpy(entry->status.acquired, hold->acquired, sizeof(entry->status.acquired));
	SpinLockRelease(&entry->mutex);
}

/* Counts one acquisition of a hold that has been granted. */
void
hold_count(Hold *hold, LockMode mode, LockScope scope)
{
	if (hold_is_acquired(hold))
		stats_add(stats_kind(hold->kind, mode), STATS_REENTRANT, 1);
	hold->taken_under = Max(hold->taken_under, (CommitGuard) zklock_commit_guard);
	if (!hold_is_acquired_in(hold, mode))
		hold->since[mode] = zklock_now_us();
	hold->acquired[mode][scope]++;
	publish_counts(hold);
}

/* ------------------------------------------------------------------------
 * Giving up.  From here on nothing can fail or wait.
 * ------------------------------------------------------------------------
 */

/* Gives up an entry and its hold, which can be read until the session asks again. */
static void
give_up_hold(Hold *hold, EntryNotice notice)
{
	dlist_delete(&hold->link);
	if (hold->kind == REQUEST_LOCK)
		dlist_delete(&hold->bucket);
	entry_give_up(hold->entry, notice);
	add_pending_release(hold);
}

/*
 * Undoes one or more acquisitions, and gives up what is not acquired any more.  The hold can
 * be read until the session asks again.
 *
 *	notice	whether the latch is set when the entry is free
 *
 * Returns true if anything was given up.
 */
bool
hold_release(Hold *hold, LockMode mode, LockScope scope, int n, EntryNotice notice)
{
	hold->acquired[mode][scope] -= n;
	if (!hold_is_acquired_in(hold, mode))
		count_hold_time(hold, mode);
	if (!hold_is_acquired(hold))
	{
		give_up_hold(hold, notice);
		return true;
	}
	publish_counts(hold);
	if (hold_is_acquired_in(hold, hold->mode))
		return false;

	/* The lock becomes the shared one, without a moment in which it is not held. */
	entry_keep_shared(hold->entry);
	add_pending_release(hold);
	hold->mode = LOCK_MODE_SHARED;
	return true;
}

/* Gives up each hold that is not acquired: what a call has asked for, and a turn. */
void
hold_drop_unacquired(EntryNotice notice)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &holds)
	{
		Hold *hold = dlist_container(Hold, link, iter.cur);

		if (!hold_is_acquired(hold))
			give_up_hold(hold, notice);
	}
}

/*
 * Hands a lock that was granted over to the server, as a reservation.  Returns false if the lock
 * is lost.
 */
bool
hold_hand_over(Hold *hold)
{
	if (!reservation_begin(hold->entry))
		return false;
	dlist_delete(&hold->link);
	dlist_delete(&hold->bucket);
	nentries--;
	pfree(hold);
	return true;
}

/* Gives everything up, as the session ends. */
void
hold_end_session(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &holds)
	{
		Hold *hold = dlist_container(Hold, link, iter.cur);

		for (int mode = 0; mode < (int) lengthof(hold->acquired); mode++)
		{
			if (hold_is_acquired_in(hold, mode))
				count_hold_time(hold, mode);
		}
		give_up_hold(hold, ENTRY_NO_NOTICE);
	}
}
