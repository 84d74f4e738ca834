/*
 * backend.c
 *		What a session holds: counting, releasing, transactions.
 *
 * A session has at most one contender per path and mode.  What it holds is in
 * a local table: for each path and mode the entry in shared memory, and how
 * often it was acquired, at session level and by which subtransactions.  The
 * first acquisition asks the worker; further ones only count.  When the last
 * count is gone the entry is released, which the worker finishes.
 *
 * An exclusive lock includes the shared one: who holds the former and acquires
 * the latter is granted at once, and both modes have the same entry.  If then
 * the exclusive acquisitions go first, the entry is not released but becomes a
 * shared one: the lock is downgraded, without a moment in which it is not held.
 * Who holds the shared lock and acquires the exclusive one, in contrast, is a
 * new contender with an entry of its own, for which the worker disregards what
 * the same session holds (see lock_path.c).
 *
 *	session level		survives everything but zk_unlock(), DISCARD ALL and
 *						the end of the session
 *	transaction level	goes at XACT_EVENT_COMMIT or ABORT, when the outcome is
 *						visible, or with the subtransaction that acquired it
 *
 * Callbacks at commit, abort and exit only change counts and states and set
 * the worker's latch: no I/O, no allocation, nothing that can fail or wait.
 * The local table grows before a lock is asked for, so nothing can fail once
 * it is granted.  A request that ends in an error, a cancel or a terminated
 * session is released like a held lock: the entry is in the local table before
 * anything can fail or interrupt.
 *
 * A lost lock stays in the table until its counts are gone; it is never asked
 * for again behind the user's back.
 *
 * Runs in: backends.  The local table is private; entries are changed under
 * their spinlocks, along the arrows drawn in shared/entry.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/backend.h"
#include "backend/display.h"
#include "backend/guard.h"
#include "backend/permit.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "compat.h"
#include "lib/ilist.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "utils/timeout.h"

/* Transaction-level acquisitions by one subtransaction. */
typedef struct HoldOwner
{
	SubTransactionId subid;
	int				 count;
} HoldOwner;

/* What this session has on one path in one mode. */
typedef struct Hold
{
	struct LocalPath *path;
	LockMode		  mode;
	int				  entry;	   /* NO_ENTRY if nothing; may be that of both modes */
	CommitGuard		  taken_under; /* strictest zklock.commit_guard of its acquisitions */
	int				  session_count;
	int				  nowners;
	int				  maxowners;
	HoldOwner		 *owners;
} Hold;

typedef struct LocalPath
{
	char	   path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	dlist_node node;					  /* in transaction_holds while a hold has owners */
	Hold	   holds[2];				  /* by LockMode */
} LocalPath;

static HTAB					   *local_paths = NULL;
static MemoryContext			local_context = NULL;
static dlist_head				transaction_holds = DLIST_STATIC_INIT(transaction_holds);
static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/* ------------------------------------------------------------------------
 * Entries
 * ------------------------------------------------------------------------
 */

/* Gives an entry up, whatever its state.  Cannot fail, does not wait. */
Handover
entry_release(int index, bool notify)
{
	Handover handover = {.entry = index};

	handover.generation = entry_give_up(index, notify ? ENTRY_NOTICE : ENTRY_NO_NOTICE);
	return handover;
}

/* Keeps of an exclusive entry only the shared lock.  Cannot fail, does not wait. */
static Handover
entry_downgrade(int index)
{
	Handover handover = {.entry = index};

	handover.generation = entry_keep_shared(index);
	return handover;
}

/*
 * Waits until the worker is done with a released or downgraded entry, but not
 * for ZooKeeper to come back.
 */
void
wait_for_handover(Handover handover)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (entry_is_settled(handover.entry, handover.generation) || !zklock_connected())
			return;
		CHECK_FOR_INTERRUPTS();

		/* Of a lease that ends while the worker is stopped nobody tells us. */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
						 PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
}

/* ------------------------------------------------------------------------
 * The local table
 * ------------------------------------------------------------------------
 */

static int
hold_transaction_count(const Hold *hold)
{
	int count = 0;

	for (int i = 0; i < hold->nowners; i++)
		count += hold->owners[i].count;
	return count;
}

static bool
hold_is_acquired(const Hold *hold)
{
	return hold->session_count > 0 || hold->nowners > 0;
}

/* Does the exclusive hold's entry stand for this one too? */
static bool
hold_is_included(const Hold *hold)
{
	return hold->mode == LOCK_MODE_SHARED && hold->entry != NO_ENTRY &&
		   hold->entry == hold->path->holds[LOCK_MODE_EXCLUSIVE].entry;
}

/* Shows the counts in zk_locks. */
static void
hold_publish(const Hold *hold)
{
	ContenderEntry *entry = entry_at(hold->entry);
	int				transaction_count = hold_transaction_count(hold);
	bool			included = hold_is_included(hold);

	SpinLockAcquire(&entry->mutex);
	if (included)
	{
		entry->status.shared_session_count = hold->session_count;
		entry->status.shared_transaction_count = transaction_count;
	}
	else
	{
		entry->status.session_count = hold->session_count;
		entry->status.transaction_count = transaction_count;
	}
	SpinLockRelease(&entry->mutex);
}

static bool
local_path_has_owners(const LocalPath *path)
{
	return path->holds[LOCK_MODE_EXCLUSIVE].nowners > 0 || path->holds[LOCK_MODE_SHARED].nowners > 0;
}

/* Makes room for one more owner; may fail, so it is done beforehand. */
static void
hold_reserve(Hold *hold)
{
	if (hold->nowners < hold->maxowners)
		return;
	if (hold->owners == NULL)
		hold->owners = MemoryContextAlloc(local_context, 4 * sizeof(HoldOwner));
	else
		hold->owners = repalloc(hold->owners, 2 * hold->maxowners * sizeof(HoldOwner));
	hold->maxowners = hold->maxowners == 0 ? 4 : 2 * hold->maxowners;
}

/* Adds acquisitions by a subtransaction; room has been made. */
static void
hold_add_owner(Hold *hold, SubTransactionId subid, int count)
{
	for (int i = 0; i < hold->nowners; i++)
	{
		if (hold->owners[i].subid == subid)
		{
			hold->owners[i].count += count;
			return;
		}
	}
	if (!local_path_has_owners(hold->path))
		dlist_push_tail(&transaction_holds, &hold->path->node);
	hold->owners[hold->nowners].subid = subid;
	hold->owners[hold->nowners].count = count;
	hold->nowners++;
}

static void
hold_remove_owner(Hold *hold, int i)
{
	hold->owners[i] = hold->owners[--hold->nowners];
	if (!local_path_has_owners(hold->path))
		dlist_delete(&hold->path->node);
}

/* Counts one acquisition; room has been made. */
static void
hold_count(Hold *hold, LockScope scope)
{
	CommitGuard guard = zklock_commit_guard;

	hold->taken_under = hold_is_acquired(hold) ? Max(hold->taken_under, guard) : guard;
	if (scope == LOCK_SCOPE_SESSION)
		hold->session_count++;
	else
		hold_add_owner(hold, GetCurrentSubTransactionId(), 1);
	hold_publish(hold);
}

/* Removes what is not in use from the table.  Cannot fail. */
static void
local_path_drop_if_unused(LocalPath *path)
{
	for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
	{
		if (path->holds[mode].entry != NO_ENTRY)
			return;
	}
	for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
	{
		if (path->holds[mode].owners)
			pfree(path->holds[mode].owners);
	}
	hash_search(local_paths, path->path, HASH_REMOVE, NULL);
}

/*
 * Gives up what is not acquired any more, and shows the counts of the rest.
 * Cannot fail, does not wait.  The path may be gone afterwards.
 *
 * "handovers", if not NULL, has room for two and gets what is still to be
 * done.  Returns how many those are.
 */
static int
local_path_settle(LocalPath *path, Handover *handovers)
{
	Hold	*exclusive = &path->holds[LOCK_MODE_EXCLUSIVE];
	Hold	*shared = &path->holds[LOCK_MODE_SHARED];
	bool	 notify = handovers != NULL;
	Handover done[2];
	int		 n = 0;

	if (shared->entry != NO_ENTRY && !hold_is_acquired(shared))
	{
		if (hold_is_included(shared))
			hold_publish(shared);
		else
			done[n++] = entry_release(shared->entry, notify);
		shared->entry = NO_ENTRY;
	}
	if (exclusive->entry != NO_ENTRY && !hold_is_acquired(exclusive))
	{
		if (hold_is_included(shared))
			done[n++] = entry_downgrade(exclusive->entry);
		else
			done[n++] = entry_release(exclusive->entry, notify);
		exclusive->entry = NO_ENTRY;
	}
	if (exclusive->entry != NO_ENTRY)
		hold_publish(exclusive);
	if (shared->entry != NO_ENTRY)
		hold_publish(shared);
	local_path_drop_if_unused(path);
	if (handovers)
		memcpy(handovers, done, n * sizeof(Handover));
	return n;
}

static Hold *
hold_find(const char *path, LockMode mode)
{
	LocalPath *local = local_paths ? hash_search(local_paths, path, HASH_FIND, NULL) : NULL;

	return local && local->holds[mode].entry != NO_ENTRY ? &local->holds[mode] : NULL;
}

/* Gives back everything; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	HASH_SEQ_STATUS status;
	LocalPath	   *path;

	(void) code;
	(void) arg;
	hash_seq_init(&status, local_paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
		{
			Hold *hold = &path->holds[mode];

			if (hold->entry != NO_ENTRY && !hold_is_included(hold))
				(void) entry_release(hold->entry, false);
		}
	}
}

/* ------------------------------------------------------------------------
 * Transactions
 * ------------------------------------------------------------------------
 */

/*
 * Calls "visit" for what the transaction relies on: what it holds at
 * transaction level, or, if it has written, all the session holds.  Cannot
 * fail unless "visit" does.
 */
void
backend_visit_holds(bool all, HoldVisitor visit, void *arg)
{
	HASH_SEQ_STATUS status;
	LocalPath	   *path;

	if (local_paths == NULL)
		return;
	hash_seq_init(&status, local_paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
		{
			Hold *hold = &path->holds[mode];

			if (hold->entry != NO_ENTRY && (all || hold->nowners > 0))
				visit(hold->entry, path->path, hold->taken_under, arg);
		}
	}
	if (all)
		permit_visit(visit, arg);
}

static void
release_transaction_holds(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &transaction_holds)
	{
		LocalPath *path = dlist_container(LocalPath, node, iter.cur);

		dlist_delete(&path->node);
		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
			path->holds[mode].nowners = 0;
		(void) local_path_settle(path, NULL);
	}
}

static void
on_transaction(XactEvent event, void *arg)
{
	(void) arg;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* The next holder must not run before our effect is durable. */
			if (!dlist_is_empty(&transaction_holds))
				ForceSyncCommit();
			guard_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (!dlist_is_empty(&transaction_holds))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds transaction-level zklock locks")));
			guard_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			release_transaction_holds();
			guard_forget();
			break;
		case XACT_EVENT_PREPARE:
			guard_forget();
			break;
		default:
			break;
	}
}

/* A subtransaction ends: its acquisitions go, or become its parent's. */
static void
hold_end_subtransaction(Hold *hold, bool abort, SubTransactionId subid, SubTransactionId parent)
{
	int i;
	int of_parent = -1;

	for (i = 0; i < hold->nowners && hold->owners[i].subid != subid; i++)
		;
	if (i == hold->nowners)
		return;
	if (abort)
	{
		hold_remove_owner(hold, i);
		return;
	}
	for (int j = 0; j < hold->nowners; j++)
	{
		if (hold->owners[j].subid == parent)
			of_parent = j;
	}
	if (of_parent < 0)
		hold->owners[i].subid = parent;
	else
	{
		hold->owners[of_parent].count += hold->owners[i].count;
		hold_remove_owner(hold, i);
	}
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	bool			   abort = event == SUBXACT_EVENT_ABORT_SUB;
	dlist_mutable_iter iter;

	(void) arg;
	if (event != SUBXACT_EVENT_COMMIT_SUB && !abort)
		return;
	dlist_foreach_modify (iter, &transaction_holds)
	{
		LocalPath *path = dlist_container(LocalPath, node, iter.cur);

		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
			hold_end_subtransaction(&path->holds[mode], abort, subid, parent);
		if (abort)
			(void) local_path_settle(path, NULL);
	}
}

/*
 * DISCARD ALL releases session-level locks, as for advisory locks.
 *
 * The end of a prepared transaction is within the command, before that one's own
 * commit, and must not be disturbed either.  It needs no check: the transaction
 * was checked when it was prepared.
 */
static void
utility_hook(COMPAT_UTILITY_PARAMS)
{
	bool end_prepared =
		IsA(pstmt->utilityStmt, TransactionStmt) &&
		(((TransactionStmt *) pstmt->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) pstmt->utilityStmt)->kind == TRANS_STMT_ROLLBACK_PREPARED);
	bool discard_all = IsA(pstmt->utilityStmt, DiscardStmt) &&
					   ((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL;

	if (end_prepared)
		guard_defer_interrupts();
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(COMPAT_UTILITY_ARGS);
	else
		standard_ProcessUtility(COMPAT_UTILITY_ARGS);
	if (discard_all)
		backend_unlock_all();
	guard_come_first();
}

/* Called in the postmaster while it loads libraries. */
void
backend_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
	guard_install_hooks();
}

/*
 * Prepares the session at its first lock or permit.  The table comes last: if
 * memory runs out before, nothing is held without callbacks, and the next call
 * begins again.
 */
void
backend_start_session(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(LocalPath)};
	HTAB   *table;

	if (local_paths)
		return;
	if (local_context == NULL)
		local_context =
			AllocSetContextCreate(TopMemoryContext, "zklock locks", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = local_context;
	table = hash_create("zklock locks", 16, &ctl, HASH_ELEM | HASH_CONTEXT | COMPAT_HASH_STRINGS);
	RegisterXactCallback(on_transaction, NULL);
	RegisterSubXactCallback(on_subtransaction, NULL);
	on_shmem_exit(release_at_exit, 0);
	guard_start_session();
	local_paths = table;
}

/* ------------------------------------------------------------------------
 * Locking and unlocking
 * ------------------------------------------------------------------------
 */

/*
 * Locks a path.
 *
 *	path		UTF-8, checked
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *
 * Returns false if the lock could not be had in that time.  Errors leave
 * nothing behind.
 */
bool
backend_lock(const char *path, LockMode mode, LockScope scope, int64 timeout_ms)
{
	LocalPath *local;
	Hold	  *hold;
	Hold	  *other;
	bool	   found;
	bool	   granted = false;

	backend_start_session();

	local = hash_search(local_paths, path, HASH_ENTER, &found);
	if (!found)
	{
		memset(local->holds, 0, sizeof(local->holds));
		for (int i = 0; i < (int) lengthof(local->holds); i++)
		{
			local->holds[i].path = local;
			local->holds[i].mode = i;
			local->holds[i].entry = NO_ENTRY;
		}
	}
	hold = &local->holds[mode];
	other = &local->holds[mode == LOCK_MODE_EXCLUSIVE ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE];
	PG_TRY();
	{
		int held = hold->entry != NO_ENTRY ? hold->entry : other->entry;

		/* Nothing is to be built on a lost lock. */
		if (held != NO_ENTRY && entry_is_lost(held))
			request_report_lost(held, path);
		if ((scope == LOCK_SCOPE_SESSION ? hold->session_count : hold_transaction_count(hold)) == PG_INT32_MAX)
			ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
							errmsg("lock on ZooKeeper path \"%s\" has been acquired too often",
								   display_path(path))));
		if (scope == LOCK_SCOPE_TRANSACTION)
			hold_reserve(hold);
		if (hold->entry != NO_ENTRY || (held != NO_ENTRY && mode == LOCK_MODE_SHARED))
		{
			hold->entry = held;
			granted = true;
		}
		else
		{
			hold->entry = request_lock(path, mode, scope, timeout_ms);
			entry_mark_dirty(hold->entry);
			if (LockTimeout > 0)
				enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
			granted = wait_for_grant(hold->entry, path, mode, timeout_ms);
			if (LockTimeout > 0)
				disable_timeout(LOCK_TIMEOUT, true);
		}
	}
	PG_CATCH();
	{
		/* Keep the indicator: an interrupt still to come may be the timeout's. */
		disable_timeout(LOCK_TIMEOUT, true);
		(void) local_path_settle(local, NULL);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (granted)
		hold_count(hold, scope);
	else
		(void) local_path_settle(local, NULL);
	return granted;
}

/*
 * Undoes one backend_lock() of the current subtransaction, as part of a call
 * that takes several locks or none.  Cannot fail, does not wait.
 */
void
backend_undo_lock(const char *path, LockMode mode, LockScope scope)
{
	Hold *hold = hold_find(path, mode);

	if (hold == NULL)
		return;
	if (scope == LOCK_SCOPE_SESSION)
		hold->session_count--;
	else
	{
		for (int i = 0; i < hold->nowners; i++)
		{
			if (hold->owners[i].subid == GetCurrentSubTransactionId())
			{
				if (--hold->owners[i].count == 0)
					hold_remove_owner(hold, i);
				break;
			}
		}
	}
	(void) local_path_settle(hold->path, NULL);
}

static void
warn_lost(const char *path)
{
	ereport(WARNING, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					  errmsg("lock on ZooKeeper path \"%s\" was lost before it was released",
							 display_path(path))));
}

/* What the session holds at session level, or NULL, with a warning, if nothing. */
static Hold *
hold_of_session(const char *path, LockMode mode)
{
	Hold *hold = hold_find(path, mode);

	if (hold && hold->session_count > 0)
		return hold;
	if (mode == LOCK_MODE_EXCLUSIVE)
		ereport(WARNING, (errmsg("you don't own a session-level exclusive lock on ZooKeeper path \"%s\"",
								 display_path(path))));
	else
		ereport(WARNING, (errmsg("you don't own a session-level shared lock on ZooKeeper path \"%s\"",
								 display_path(path))));
	return NULL;
}

/*
 * Undoes one session-level acquisition of each of several locks, all on paths
 * of their own, or of none if one is not held.  Then waits until those that are
 * not acquired any more are free for everyone, or free to share if downgraded.
 *
 * Nothing can fail between the first and the last, so a cancellation finds all
 * of them undone, and ends the wait only.
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
backend_unlock_together(const LockTarget *targets, int n)
{
	Hold	**holds = palloc(n * sizeof(Hold *));
	bool	 *lost = palloc0(n * sizeof(bool));
	Handover *handovers = palloc(2 * n * sizeof(Handover));
	int		  nhandovers = 0;
	bool	  good = true;

	for (int i = 0; i < n; i++)
	{
		holds[i] = hold_of_session(targets[i].path, targets[i].mode);
		good &= holds[i] != NULL;
	}
	for (int i = 0; good && i < n; i++)
	{
		bool		proved = lease_state() == LEASE_HOLDS;
		CommitGuard taken_under = holds[i]->taken_under;
		int			released;

		lost[i] = entry_is_lost(holds[i]->entry);
		holds[i]->session_count--;
		released = local_path_settle(holds[i]->path, handovers + nhandovers);
		if (released > 0)
			guard_released(taken_under, proved && !lost[i]);
		if (!lost[i])
			nhandovers += released;
	}
	for (int i = 0; i < n; i++)
	{
		if (lost[i])
		{
			warn_lost(targets[i].path);
			good = false;
		}
	}
	for (int i = 0; i < nhandovers; i++)
		wait_for_handover(handovers[i]);
	pfree(handovers);
	pfree(lost);
	pfree(holds);
	return good;
}

/* The same for one lock. */
bool
backend_unlock(const char *path, LockMode mode)
{
	LockTarget target = {.path = path, .mode = mode};

	return backend_unlock_together(&target, 1);
}

/* Undoes all session-level acquisitions of this session, permits included. */
void
backend_unlock_all(void)
{
	HASH_SEQ_STATUS status;
	LocalPath	   *path;
	int				n;
	Handover	   *handovers;

	if (local_paths == NULL)
		return;
	n = permit_count() + 2 * hash_get_num_entries(local_paths);
	handovers = palloc(n * sizeof(Handover));
	n = permit_release_all(handovers);

	hash_seq_init(&status, local_paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		bool		proved = lease_state() == LEASE_HOLDS;
		bool		lost = false;
		int			released;
		CommitGuard taken_under = COMMIT_GUARD_OFF;

		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
		{
			const Hold *hold = &path->holds[mode];

			if (hold->session_count > 0 && entry_is_lost(hold->entry))
				lost = true;
			if (hold->session_count > 0)
				taken_under = Max(taken_under, hold->taken_under);
		}
		if (lost)
			warn_lost(path->path);
		for (int mode = 0; mode < (int) lengthof(path->holds); mode++)
			path->holds[mode].session_count = 0;
		released = local_path_settle(path, handovers + n);
		if (released > 0)
			guard_released(taken_under, proved && !lost);
		n += released;
	}

	/* All are on their way; wait for the last of them. */
	for (int i = 0; i < n; i++)
		wait_for_handover(handovers[i]);
	pfree(handovers);
}

/*
 * The fencing token of the exclusive lock this session holds on a path, else
 * of its shared lock.  Raises an error if it holds none, or has lost it.
 */
int64
backend_fencing_token(const char *path)
{
	Hold		   *hold;
	ContenderEntry *entry;
	int64			token;

	hold = hold_find(path, LOCK_MODE_EXCLUSIVE);
	if (hold == NULL)
		hold = hold_find(path, LOCK_MODE_SHARED);
	if (hold == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you don't own a lock on ZooKeeper path \"%s\"", display_path(path))));
	if (entry_is_lost(hold->entry))
		request_report_lost(hold->entry, path);
	entry = entry_at(hold->entry);
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
backend_proved_token(const char *path)
{
	Hold		   *hold = hold_find(path, LOCK_MODE_EXCLUSIVE);
	ContenderEntry *entry;
	bool			lease_holds;
	int64			token = 0;

	if (hold == NULL)
		return 0;

	/* In this order: a lease that was seen before is the lock's own. */
	lease_holds = lease_state() == LEASE_HOLDS;
	entry = entry_at(hold->entry);
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state == CONTENDER_GRANTED)
		token = entry->status.token;
	SpinLockRelease(&entry->mutex);
	return lease_holds ? token : 0;
}
