/*
 * lock_table.c
 *		The locks that this session holds: how often, and by whom acquired.
 *
 * A session has at most one contender per path and mode.  The table has for
 * each path and mode the entry in shared memory, and how often it was acquired,
 * at session level and by which subtransactions.  When the last count is gone
 * the entry is given up, which the worker finishes.
 *
 * An exclusive lock includes the shared one: a session that holds the former and
 * acquires the latter is granted it at once, and both modes have the same entry.
 * If then the exclusive acquisitions go first, the entry becomes a shared one.
 * A session that holds the shared lock and acquires the exclusive one, in
 * contrast, is a new contender with an entry of its own, for which the worker
 * disregards what the same session holds (see lock_recipe.c).
 *
 *	session level		survives everything but zk_unlock(), DISCARD ALL and
 *						the end of the session
 *	transaction level	goes when the transaction ends, or with the
 *						subtransaction that acquired it
 *
 * The functions that count and give up are called at commit and abort: no I/O,
 * no allocation, nothing that can fail or wait.  The table grows before a lock
 * is asked for, so nothing can fail once it is granted.
 *
 * A lost lock stays in the table until its counts are gone; the session never
 * asks for it again behind the user's back.
 *
 * Runs in: backends.  The table is private.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/lock_table.h"
#include "compat.h"
#include "utils/hsearch.h"

static HTAB			*locked_paths = NULL;
static MemoryContext lock_context = NULL;
static dlist_head	 transaction_paths = DLIST_STATIC_INIT(transaction_paths);

/* Makes the table.  If memory runs out, the next call begins again. */
void
lock_table_start_session(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(LockedPath)};

	if (locked_paths)
		return;
	if (lock_context == NULL)
		lock_context =
			AllocSetContextCreate(TopMemoryContext, "zklock locks", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = lock_context;
	locked_paths = hash_create("zklock locks", 16, &ctl, HASH_ELEM | HASH_CONTEXT | HASH_STRINGS);
}

/* The place of a lock in the table, which is made if it is missing. */
LockHold *
lock_table_enter(const char *path, LockMode mode)
{
	bool		found;
	LockedPath *entered = hash_search(locked_paths, path, HASH_FIND, NULL);

	if (entered)
		return &entered->locks[mode];
	entered = hash_search(locked_paths, path, HASH_ENTER, &found);
	for (int i = 0; i < (int) lengthof(entered->locks); i++)
	{
		entered->locks[i] = (LockHold){.path = entered, .mode = i};
		hold_init(&entered->locks[i].hold, entered->path, stats_kind_of_lock(i));
	}
	return &entered->locks[mode];
}

/* A lock that the session holds, or NULL.  Needs no preload. */
LockHold *
lock_table_find(const char *path, LockMode mode)
{
	LockedPath *found = locked_paths ? hash_search(locked_paths, path, HASH_FIND, NULL) : NULL;

	return found && found->locks[mode].hold.entry != ENTRY_NONE ? &found->locks[mode] : NULL;
}

/* Makes room for one more acquisition; may fail, so it is done beforehand. */
void
lock_table_reserve(LockHold *lock, LockScope scope)
{
	if (scope == LOCK_SCOPE_SESSION || lock->nowners < lock->maxowners)
		return;
	if (lock->owners == NULL)
		lock->owners = MemoryContextAlloc(lock_context, 4 * sizeof(LockOwner));
	else
		lock->owners = repalloc(lock->owners, 2 * lock->maxowners * sizeof(LockOwner));
	lock->maxowners = lock->maxowners == 0 ? 4 : 2 * lock->maxowners;
}

static bool
path_has_owners(const LockedPath *path)
{
	return path->locks[LOCK_MODE_EXCLUSIVE].nowners > 0 || path->locks[LOCK_MODE_SHARED].nowners > 0;
}

/* The place of a subtransaction among a lock's owners, or -1. */
static int
find_owner(const LockHold *lock, SubTransactionId subid)
{
	for (int i = 0; i < lock->nowners; i++)
	{
		if (lock->owners[i].subid == subid)
			return i;
	}
	return -1;
}

static void
remove_owner(LockHold *lock, int i)
{
	lock->owners[i] = lock->owners[--lock->nowners];
	if (!path_has_owners(lock->path))
		dlist_delete(&lock->path->transaction_link);
}

/* Counts an acquisition by the current subtransaction; room has been made. */
static void
count_owner(LockHold *lock)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	int				 i = find_owner(lock, subid);

	if (i < 0)
	{
		if (!path_has_owners(lock->path))
			dlist_push_tail(&transaction_paths, &lock->path->transaction_link);
		i = lock->nowners++;
		lock->owners[i] = (LockOwner){.subid = subid};
	}
	lock->owners[i].count++;
}

/* Counts one acquisition; room has been made.  Cannot fail. */
void
lock_table_count(LockHold *lock, LockScope scope)
{
	if (scope == LOCK_SCOPE_TRANSACTION)
		count_owner(lock);
	hold_count(&lock->hold, scope);
}

/*
 * Takes one acquisition back: at transaction level one of the current
 * subtransaction, if there is any.  Cannot fail.  lock_table_settle() is to
 * follow.
 */
void
lock_table_uncount(LockHold *lock, LockScope scope)
{
	int i;

	if (scope == LOCK_SCOPE_SESSION)
	{
		lock->hold.session_count--;
		return;
	}
	i = find_owner(lock, GetCurrentSubTransactionId());
	if (i < 0)
		return;
	lock->hold.transaction_count--;
	if (--lock->owners[i].count == 0)
		remove_owner(lock, i);
}

/* Removes what is not in use from the table.  Cannot fail. */
static void
drop_if_unused(LockedPath *path)
{
	for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
	{
		if (path->locks[mode].hold.entry != ENTRY_NONE)
			return;
	}
	for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
	{
		if (path->locks[mode].owners)
			pfree(path->locks[mode].owners);
	}
	hash_search(locked_paths, path->path, HASH_REMOVE, NULL);
}

/*
 * Gives up what is not acquired any more, and shows the counts of the rest.
 * Cannot fail, does not wait.  The path may be gone afterwards.
 *
 * "awaited" is as for hold_release(), with room for two.  Returns how many
 * entries were given up, or downgraded.
 */
int
lock_table_settle(LockedPath *path, HandoverList *awaited)
{
	Hold *exclusive = &path->locks[LOCK_MODE_EXCLUSIVE].hold;
	Hold *shared = &path->locks[LOCK_MODE_SHARED].hold;
	int	  n = 0;

	if (shared->entry != ENTRY_NONE && !hold_is_acquired(shared))
	{
		n += !shared->borrowed;
		hold_release(shared, awaited);
	}
	if (exclusive->entry != ENTRY_NONE && !hold_is_acquired(exclusive))
	{
		n++;
		if (shared->borrowed)
			hold_downgrade(exclusive, shared, awaited);
		else
			hold_release(exclusive, awaited);
	}
	if (exclusive->entry != ENTRY_NONE)
		hold_publish(exclusive);
	if (shared->entry != ENTRY_NONE)
		hold_publish(shared);
	drop_if_unused(path);
	return n;
}

/* Calls "visit", which may settle it, for each path with a lock. */
void
lock_table_visit(LockedPathVisitor visit, void *arg)
{
	HASH_SEQ_STATUS status;
	LockedPath	   *path;

	if (locked_paths == NULL)
		return;
	hash_seq_init(&status, locked_paths);
	while ((path = hash_seq_search(&status)) != NULL)
		visit(path, arg);
}

/* Does the transaction hold locks that end with it? */
bool
lock_table_has_transaction_locks(void)
{
	return !dlist_is_empty(&transaction_paths);
}

/* The transaction ends, and so do its locks.  Cannot fail, does not wait. */
void
lock_table_end_transaction(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &transaction_paths)
	{
		LockedPath *path = dlist_container(LockedPath, transaction_link, iter.cur);

		dlist_delete(&path->transaction_link);
		for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
		{
			path->locks[mode].nowners = 0;
			path->locks[mode].hold.transaction_count = 0;
		}
		(void) lock_table_settle(path, NULL);
	}
}

/* A subtransaction's acquisitions of a lock become its parent's. */
static void
pass_to_parent(LockHold *lock, SubTransactionId subid, SubTransactionId parent)
{
	int own = find_owner(lock, subid);
	int of_parent = find_owner(lock, parent);

	if (own < 0)
		return;
	if (of_parent < 0)
		lock->owners[own].subid = parent;
	else
	{
		lock->owners[of_parent].count += lock->owners[own].count;
		remove_owner(lock, own);
	}
}

/* A subtransaction's acquisitions of a lock go. */
static void
drop_acquisitions(LockHold *lock, SubTransactionId subid)
{
	int own = find_owner(lock, subid);

	if (own < 0)
		return;
	lock->hold.transaction_count -= lock->owners[own].count;
	remove_owner(lock, own);
}

/* A subtransaction ends.  Cannot fail, does not wait. */
void
lock_table_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	dlist_mutable_iter iter;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	dlist_foreach_modify (iter, &transaction_paths)
	{
		LockedPath *path = dlist_container(LockedPath, transaction_link, iter.cur);

		for (int mode = 0; mode < (int) lengthof(path->locks); mode++)
		{
			if (event == SUBXACT_EVENT_COMMIT_SUB)
				pass_to_parent(&path->locks[mode], subid, parent);
			else
				drop_acquisitions(&path->locks[mode], subid);
		}
		if (event == SUBXACT_EVENT_ABORT_SUB)
			(void) lock_table_settle(path, NULL);
	}
}
