/*
 * request.c
 *		Requests to the worker, and the errors for those that it refuses.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/request.h"
#include "compat.h"
#include "shared/election.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/pmsignal.h"
#include "utils/timestamp.h"
#include "zk/zk_client.h"

/* How long a call waits for a worker to appear. */
#define WORKER_ABSENT_MS 10000
#define WORKER_LATE_MS 3000 /* by then the postmaster should have started one */

/*
 * Raises an error if this server stands at an election at the path or above it.  Other
 * candidates might fail on a node there that is none of theirs.
 */
void
request_refuse_election(const char *path)
{
	const char *election;

	if (election_is_above(path, &election))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("cannot use ZooKeeper path \"%s\": this server stands at an election there",
							   display_path(path)),
						errdetail("\"zklock.elections\" has \"%s\".", display_utf8(election)),
						errhint("Use another path.")));
}

/* The node that is asked for, relative to the path that the user names */
static const char *const places[] =
	{[REQUEST_LOCK] = "", [REQUEST_TURN] = PERMIT_TURNS, [REQUEST_PERMIT] = PERMIT_LEASES, [REQUEST_ELEMENT] = ""};

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
request_hold(EntryRequest *request, const char *path)
{
	bool is_element = request->kind == REQUEST_ELEMENT;
	bool reserves = request->scope == LOCK_SCOPE_RESERVATION;
	int	 reserved = superuser() ? 0 : share_entries_reserved(entries_limit());
	LossPolicy on_loss = request->kind == REQUEST_TURN ? LOSS_ABORT : (LossPolicy) zklock_on_lock_loss;
	char *data;
	Hold *hold;
	int	  index;

	request->proc_number = compat_my_proc_number();
	request->pid = MyProcPid;
	request->database = MyDatabaseId;
	request->role = reserves ? GetUserId() : GetSessionUserId();
	if (request->kind == REQUEST_LOCK)
		request->terms.dialect = dialect_of_path(path);
	if (!is_element && !reserves)
		request->max_hold_ms = zklock_max_hold_time;
	request->parent_nodes = is_element ? PARENTS_EXISTING : (ParentNodes) zklock_parent_nodes;
	request->share = share_of_entries(zklock_max_locks_per_session, entries_limit());
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

	/* Nothing may fail between entry_ask() and hold_add(). */
	hold = hold_make(request->kind, path, request->terms.mode, request->share);
	index = entry_ask(request, data, on_loss, reserved);
	if (index == ENTRY_NONE)
	{
		pfree(hold);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
				 reserved == 0 ? errdetail("%d locks are held or waited for.", entries_limit())
							   : errdetail("%d locks are held or waited for, and the remaining %d entries are reserved for superusers.",
										   entries_limit() - reserved, reserved),
				 errhint("You might need to increase \"zklock.max_locks\".")));
	}
	hold_add(hold, index);
	pfree(data);
	return hold;
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

/* Returns a sentence about the limit that has been exceeded, or NULL if none has. */
static char *
limit_detail(int index, Failure failure)
{
	if (failure == FAILURE_SESSION_FULL)
		return psprintf("The paths of the nodes, or of the watches, of this server's ZooKeeper session must not exceed %d bytes, of which %d are reserved for superusers.",
						PACKET_BUDGET, PACKET_RESERVE);
	if (failure == FAILURE_SHARE_FULL)
		return psprintf("The nodes for its locks must not exceed %zu bytes, its share of the %d that all sessions of this server have. Each takes the length of its path, that of the chroot, and %d bytes.",
						share_of_bytes(entry_at(index)->request.share, entries_limit()),
						PACKET_BUDGET, SHARE_NODE_BYTES);
	return NULL;
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
	const char		  *limit = limit_detail(index, failure);
	const FailureText *text;

	if (failure == FAILURE_REFUSED && zk_error_is_permission(code))
		failure = FAILURE_DENIED;
	if (failure == FAILURE_REFUSED && code == ZK_QUOTA_EXCEEDED)
		failure = FAILURE_QUOTA;
	if (failure == FAILURE_REFUSED && (code == ZK_LOCAL_SESSION || code == ZK_EXPIRED))
		failure = FAILURE_LOCAL_SESSION;
	text = &failure_texts[failure];
	if (failure == FAILURE_UNREACHABLE)
		request_report_unreachable(path);
	ereport(ERROR, (errcode(text->sqlerrcode), errmsg(text->message, display_path(path)),
					failure_describe(failure, code != 0 ? zk_error_name(code) : NULL),
					limit ? errdetail_internal("%s", limit) : 0));
}
