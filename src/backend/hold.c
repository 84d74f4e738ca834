/*
 * hold.c
 *		What this session holds or asks for: locks, turns, permits and elements; and the errors for
 *		requests that fail.
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
 * Runs in: backends.  All this is private; entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/hold.h"
#include "common/hashfn.h"
#include "shared/election.h"
#include "shared/stats.h"
#include "storage/pmsignal.h"
#include "utils/timestamp.h"
#include "zk/zk_client.h"

/* How long a call waits for a worker to appear. */
#define WORKER_ABSENT_MS 10000
#define WORKER_LATE_MS 3000 /* by then the postmaster should have started one */

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
 * The holds of the session
 * ------------------------------------------------------------------------
 */

/* Returns the hold after another one, or the first one after NULL; NULL at the end. */
Hold *
hold_next(const Hold *hold)
{
	const dlist_node *before = hold ? &hold->link : &holds.head;

	if (before->next == &holds.head)
		return NULL;
	return dlist_container(Hold, link, before->next);
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
 * Copies the status of a hold's entry.  Returns false if the lock is lost, or its time is over.  A
 * caller that relies on the lease reads it first: then it is the lease of the grant.
 */
bool
hold_stands(const Hold *hold, EntryStatus *status)
{
	*status = entry_status(hold->entry);
	if (status->state == ENTRY_GRANTED)
		return zklock_now_us() < status->expires_us;
	return status->state != ENTRY_LOST;
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

	return !hold_stands(hold, &status) || (over && status.state == ENTRY_GRANTED);
}

/* Raises the error for a hold that is lost.  A lock at transaction level goes with the transaction. */
void
hold_report_lost(const Hold *hold)
{
	const EntryRequest *request = &entry_at(hold->entry)->request;
	EntryStatus			status;
	LossReason			reason;
	const char		   *name = strrchr(hold->path, '/') + 1;
	const char		   *why;

	/* If the worker has not said why yet, the clock or the lease has ended the lock. */
	status = entry_status(hold->entry);
	reason = status.loss;
	if (status.state != ENTRY_LOST)
		reason = zklock_now_us() >= status.expires_us ? LOSS_OVERRUN : LOSS_UNPROVED;
	if (reason == LOSS_OVERRUN && request->scope == LOCK_SCOPE_RESERVATION)
		why = psprintf("The reservation of %d ms was over before the call returned.",
					   request->max_hold_ms);
	else
		why = psprintf(failure_loss_texts[reason], request->max_hold_ms);
	if (hold->kind == REQUEST_ELEMENT)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("element \"%s\" of ZooKeeper queue \"%s\" was lost", display_utf8(name),
						display_path(pnstrdup(hold->path, name - 1 - hold->path))),
				 errdetail_internal("%s", why),
				 errhint("Others may have taken the element meanwhile. Retry the transaction.")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock on ZooKeeper path \"%s\" was lost", display_path(hold->path)),
			 errdetail_internal("%s", why),
			 hold_is_acquired_at(hold, LOCK_SCOPE_SESSION)
				 ? errhint("Others may have held the lock meanwhile. Release it and retry the work.")
				 : errhint("Others may have held the lock meanwhile. Retry the transaction.")));
}

/* ------------------------------------------------------------------------
 * Asking
 * ------------------------------------------------------------------------
 */

/*
 * Raises an error if this server stands at an election at the path or above it.  Other
 * candidates might fail on a node there that is none of theirs.
 */
void
request_refuse_election(const char *path)
{
	for (int i = 0; i < election_count(); i++)
	{
		const char *election = election_at(i)->path;
		size_t		len = strlen(election);

		if (strncmp(path, election, len) == 0 && (path[len] == '\0' || path[len] == '/') &&
			election_at(i)->status.state != CANDIDACY_GONE)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("cannot use ZooKeeper path \"%s\": this server stands at an election there",
								   display_path(path)),
							errdetail("\"zklock.elections\" has \"%s\".", display_utf8(election)),
							errhint("Use another path.")));
	}
}

/*
 * Asks the worker, which writes the answer into the entry and sets the latch.  Raises an
 * error if no entry is left, if this session may have no more, or if this server stands at an
 * election there.
 *
 *	request		says kind, terms without a dialect, scope, manner, and for how long a
 *				reservation is; the rest is filled in.  A permit is asked for with the request
 *				of its turn, and so since then.
 *	path		the lock's, semaphore's or element's, UTF-8
 */
Hold *
hold_ask(EntryRequest *request, const char *path)
{
	/* The node that is asked for, relative to the path that the user names */
	static const char *const places[] =
		{[REQUEST_LOCK] = "", [REQUEST_TURN] = PERMIT_TURNS, [REQUEST_PERMIT] = PERMIT_LEASES, [REQUEST_ELEMENT] = ""};

	bool is_element = request->kind == REQUEST_ELEMENT;
	bool reserves = request->scope == LOCK_SCOPE_RESERVATION;
	int	 reserved = superuser() ? 0 : share_entries_reserved(entry_pool->limit);
	LossPolicy on_loss = request->kind == REQUEST_TURN ? LOSS_ABORT : (LossPolicy) zklock_on_lock_loss;
	Size			   len = strlen(path) + 1;
	char			  *data;
	Hold			  *hold;
	dlist_mutable_iter iter;

	request->proc_number = compat_my_proc_number();
	request->pid = MyProcPid;
	request->database = MyDatabaseId;
	request->role = reserves ? GetUserId() : GetSessionUserId();
	if (request->kind == REQUEST_LOCK)
		request->terms.dialect = dialect_of_path(path);
	if (!is_element && !reserves)
		request->max_hold_ms = zklock_max_hold_time;
	request->parent_nodes = is_element ? PARENTS_EXISTING : (ParentNodes) zklock_parent_nodes;
	request->share = share_of_entries(zklock_max_locks_per_session, entry_pool->limit);
	request->reserve = superuser() ? RESERVE_OPEN : RESERVE_CLOSED;
	request->replaces = ENTRY_NONE;
	if (request->requested_us == 0)
	{
		request->requested_at = GetCurrentTimestamp();
		request->requested_us = zklock_now_us();
	}
	snprintf(request->path, sizeof(request->path), "%s%s", path, places[request->kind]);

	data = node_data_compose(request->terms.dialect, request->scope, NULL);
	request_refuse_election(request->path);

	/*
	 * The session's share.  No latch is set when an entry has become free, so the session looks:
	 * at the oldest pending releases, which are mostly done first, and at all of them when it
	 * seems to have its share.  Those that the worker is done with are forgotten; what was given
	 * up goes, and what was downgraded stays a hold.
	 */
	dlist_foreach_modify (iter, &pending_releases)
	{
		Hold *released = dlist_container(Hold, pending_release, iter.cur);

		if (entry_is_settled(released->entry, released->generation))
		{
			dlist_delete(&released->pending_release);
			released->release_pending = false;
			if (!hold_is_acquired(released))
			{
				nentries--;
				pfree(released);
			}
		}
		else if (nentries < request->share)
			break;
	}
	if (nentries >= request->share && request->share < entry_pool->limit)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", nentries),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));

	if (hold_context == NULL)
		hold_context =
			AllocSetContextCreate(TopMemoryContext, "zklock locks", ALLOCSET_DEFAULT_SIZES);
	hold = MemoryContextAllocZero(hold_context, offsetof(Hold, path) + len);
	hold->kind = request->kind;
	hold->mode = request->terms.mode;
	memcpy(hold->path, path, len);

	/* Nothing may fail from the moment when the entry asks until the hold is in the list. */
	hold->entry = entry_ask(request, data, on_loss, reserved);
	if (hold->entry == ENTRY_NONE)
	{
		pfree(hold);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
				 reserved == 0 ? errdetail("%d locks are held or waited for.", entry_pool->limit)
							   : errdetail("%d locks are held or waited for, and the remaining %d entries are reserved for superusers.",
										   entry_pool->limit - reserved, reserved),
				 errhint("You might need to increase \"zklock.max_locks\".")));
	}
	hold->generation = entry_generation(hold->entry);
	nentries++;
	dlist_push_tail(&holds, &hold->link);
	if (hold->kind == REQUEST_LOCK)
		dlist_push_tail(bucket(hold->path), &hold->bucket);
	pfree(data);
	return hold;
}

/* ------------------------------------------------------------------------
 * Giving up.  From here on nothing can fail or wait.
 * ------------------------------------------------------------------------
 */

/*
 * Undoes acquisitions, and gives up what is not acquired any more.  The hold can be read until
 * the session asks again.
 *
 *	n		how many; 0 for a hold that has none
 *	notice	whether the latch is set when the entry is free
 *
 * Returns true if anything was given up.
 */
bool
hold_release(Hold *hold, LockMode mode, LockScope scope, int n, EntryNotice notice)
{
	Entry *entry = entry_at(hold->entry);

	hold->acquired[mode][scope] -= n;
	if (n > 0 && !hold_is_acquired_in(hold, mode))
		stats_add(stats_kind(hold->kind, mode), STATS_HOLD_US, zklock_now_us() - hold->since[mode]);
	if (!hold_is_acquired(hold))
	{
		dlist_delete(&hold->link);
		if (hold->kind == REQUEST_LOCK)
			dlist_delete(&hold->bucket);
		entry_give_up(hold->entry, notice);
	}
	else
	{
		bool downgraded = !hold_is_acquired_in(hold, hold->mode);

		/*
		 * Store the count, for zk_locks.  If the exclusive acquisitions are gone, the lock becomes
		 * the shared one, without a moment in which it is not held.
		 */
		SpinLockAcquire(&entry->mutex);
		entry->status.acquired[mode][scope] = hold->acquired[mode][scope];
		if (downgraded)
		{
			Assert(entry->status.mode == LOCK_MODE_EXCLUSIVE);
			entry->status.mode = LOCK_MODE_SHARED;
			entry->status.downgrading = true;
			entry->status.refused = false;
		}
		SpinLockRelease(&entry->mutex);
		if (!downgraded)
			return false;
		entry_mark_dirty(hold->entry);
		hold->mode = LOCK_MODE_SHARED;
	}

	/* The worker has something to finish. */
	if (hold->release_pending)
		dlist_delete(&hold->pending_release);
	dlist_push_tail(&pending_releases, &hold->pending_release);
	hold->release_pending = true;
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
			(void) hold_release(hold, hold->mode, LOCK_SCOPE_SESSION, 0, notice);
	}
}

/*
 * Hands a lock that was granted over to the server, as a reservation (shared/entry.c).  Returns
 * false if the lock is lost.
 */
bool
hold_hand_over(Hold *hold)
{
	Entry *entry = entry_at(hold->entry);
	bool   granted;

	SpinLockAcquire(&entry->mutex);
	granted = entry->status.state == ENTRY_GRANTED;
	if (granted)
	{
		entry->status.reserved = true;
		entry->status.latch = ENTRY_NO_LATCH;
		entry->status.on_loss = LOSS_ABORT;
	}
	SpinLockRelease(&entry->mutex);
	if (!granted)
		return false;
	dlist_delete(&hold->link);
	dlist_delete(&hold->bucket);
	nentries--;
	pfree(hold);
	return true;
}

/* ------------------------------------------------------------------------
 * Errors that a session gets
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if there has been no worker for too long: nobody can answer.  PostgreSQL 15's
 * postmaster may overlook for a minute that a worker has ended, if it was just about to sleep;
 * it looks again when it is woken.
 *
 *	since	when the caller first found none, ms; 0: there was one
 */
bool
request_lacks_worker(int64 *since)
{
	int64 now = zklock_now_ms();

	if (zklock_worker_pid() != 0)
		*since = 0;
	else if (*since == 0)
		*since = now;
	else if (now - *since >= WORKER_LATE_MS)
		SendPostmasterSignal(PMSIGNAL_BACKGROUND_WORKER_CHANGE);
	return *since != 0 && now - *since >= WORKER_ABSENT_MS;
}

/*
 * Raises the error for a path that is used for something else; "detail" is a sentence that
 * says for what.
 */
void
request_report_other_use(const char *path, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
					errmsg("ZooKeeper path \"%s\" is in use for something else", display_path(path)),
					errdetail_internal("%s", detail), errhint("Use another path.")));
}

/* Raises the error for a call that cannot wait until ZooKeeper can be reached. */
void
request_report_unreachable(const char *path)
{
	SessionInfo session;
	bool		unproved;
	bool		no_lease;

	if (zklock_worker_pid() == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errhint("See the server log; you might need to increase \"max_worker_processes\".")));
	session_info_read(&session);
	unproved = session.state == SESSION_CONNECTED && lease_state() != LEASE_HOLDS;
	no_lease = unproved && session.shortest_timeout < 2 * zklock_tick_time;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 unproved ? errmsg("could not use ZooKeeper path \"%s\": the ZooKeeper session is not proved to be alive",
							   display_path(path))
					  : errmsg("could not use ZooKeeper path \"%s\": ZooKeeper cannot be reached",
							   display_path(path)),
			 session.obstacle[0] != '\0' ? errdetail_internal("%s", display_utf8(session.obstacle)) : 0,
			 no_lease	? errhint("Set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers; if it is that, raise \"zklock.session_timeout\" or their maxSessionTimeout.")
			 : unproved ? errhint("ZooKeeper may have no quorum or be slow, or the zklock worker may have been stopped.")
						: 0));
}

/*
 * Raises the error for a request or call that has failed.
 *
 *	index	the entry that was refused, or ENTRY_NONE
 *	path	for the message: the path of the entry, or of its semaphore; UTF-8
 *	code	ZooKeeper's error, if ZooKeeper refused; else 0
 */
void
request_report_failure(int index, const char *path, Failure failure, int code)
{
	const char		  *limit = NULL; /* the one that has been exceeded */
	const FailureText *text;

	if (failure == FAILURE_SESSION_FULL)
		limit = psprintf("The paths of the nodes, or of the watches, of this server's ZooKeeper session must not exceed %d bytes, of which %d are reserved for superusers.",
						 PACKET_BUDGET, PACKET_RESERVE);
	else if (failure == FAILURE_SHARE_FULL)
		limit = psprintf("The nodes for its locks must not exceed %zu bytes, its share of the %d that all sessions of this server have. Each takes the length of its path, that of the chroot, and %d bytes.",
						 share_of_bytes(entry_at(index)->request.share, entry_pool->limit),
						 PACKET_BUDGET, SHARE_NODE_BYTES);
	if (failure == FAILURE_REFUSED && zk_error(code).lacks_permission)
		failure = FAILURE_DENIED;
	if (failure == FAILURE_REFUSED && code == ZK_QUOTA_EXCEEDED)
		failure = FAILURE_QUOTA;
	if (failure == FAILURE_REFUSED && (code == ZK_LOCAL_SESSION || code == ZK_EXPIRED))
		failure = FAILURE_LOCAL_SESSION;
	text = &failure_texts[failure];
	if (failure == FAILURE_UNREACHABLE)
		request_report_unreachable(path);
	ereport(ERROR, (errcode(text->sqlerrcode), errmsg(text->message, display_path(path)),
					failure_describe(failure, code != 0 ? zk_error(code).name : NULL),
					limit ? errdetail_internal("%s", limit) : 0));
}
