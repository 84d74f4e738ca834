/*
 * request.c
 *		Asking the worker for a lock, and saying why it was refused.
 *
 * A backend fills an entry and hands it to the worker; wait.c waits for the
 * answer.  What becomes of the entry afterwards is the caller's.
 *
 * Runs in: backends.  shared/entry.h says how entries are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/claim.h"
#include "backend/display.h"
#include "backend/node_data.h"
#include "backend/request.h"
#include "compat.h"
#include "shared/election.h"
#include "shared/lease_state.h"
#include "shared/path_settings.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/share.h"
#include "shared/worker_process.h"
#include "utils/timestamp.h"
#include "zk/zk_error.h"

/*
 * Raises an error if this server stands at an election at the path, or above it,
 * where other candidates may not bear a node that is none of theirs.
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

/*
 * Claims an entry and fills it with a request, which the worker sees once the
 * entry is marked dirty.  Returns its index; raises an error if there is none
 * left, or none for this session.
 *
 * Nobody looks at the entry before entry_ask(), and nothing can fail between
 * the claim and that.
 */
int
request_contender(const ContenderRequest *request)
{
	NodeDialect dialect =
		request->kind == CONTENDER_LOCK ? dialect_of_path(request->path) : DIALECT_CURATOR;
	char		   *data = node_data_compose(dialect, request->scope);
	int				share = share_of_entries(zklock_max_locks_per_session, entries_max());
	ShareReserve	reserve = superuser() ? RESERVE_OPEN : RESERVE_CLOSED;
	int				index;
	ContenderEntry *entry;
	EntryRequest   *filled;

	request_refuse_election(request->path);
	index = claim_entry(share, reserve);
	entry = entry_at(index);
	filled = &entry->request;
	filled->proc_number = compat_my_proc_number();
	filled->pid = MyProcPid;
	filled->database = MyDatabaseId;
	filled->role = GetSessionUserId();
	filled->kind = request->kind;
	filled->recipe = request->kind == CONTENDER_PERMIT ? RECIPE_PERMIT : RECIPE_LOCK;
	filled->terms.mode = request->mode;
	filled->terms.dialect = dialect;
	filled->terms.permits = request->permits;
	filled->parent_nodes = zklock_parent_nodes;
	filled->share = share;
	filled->reserve = reserve;
	filled->nowait = request->nowait;
	filled->eager = request->eager;
	filled->replaces = ENTRY_NONE;
	filled->requested_at = request->since;
	strlcpy(filled->path, request->path, sizeof(filled->path));
	strlcpy(entry->data, data, sizeof(entry->data));

	memset(&entry->status, 0, sizeof(entry->status)); /* the state is FREE, and stays so */
	entry->status.mode = request->mode;
	entry->status.scope = request->scope;
	entry->status.max_hold_ms = zklock_max_hold_time;
	entry->status.on_loss =
		request->kind == CONTENDER_TURN ? LOSS_ABORT : (LossPolicy) zklock_on_lock_loss;
	entry_ask(index);
	pfree(data);
	return index;
}

/* Raises an error for a lost lock.  One at transaction level goes with the transaction. */
void
request_report_lost(int index, const char *path, LockScope held_at)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock on ZooKeeper path \"%s\" was lost", display_path(path)),
			 errdetail_internal("%s", display_loss(index)),
			 held_at == LOCK_SCOPE_SESSION
				 ? errhint("Others may have held the lock meanwhile. Release it and retry the work.")
				 : errhint("Others may have held the lock meanwhile. Retry the transaction.")));
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
			 errmsg("could not use ZooKeeper path \"%s\": ZooKeeper cannot be reached",
					display_path(path)),
			 session.obstacle[0] != '\0' ? errdetail_internal("%s", display_utf8(session.obstacle))
			 : unproved					 ? errdetail("The connection to ZooKeeper server %s stands, but the session is not proved to be alive.",
													 session.server)
										 : 0,
			 no_lease	? errhint("Set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers; if it is that, raise \"zklock.session_timeout\" or their maxSessionTimeout.")
			 : unproved ? errhint("ZooKeeper may have no quorum or be slow, or the zklock worker may have been stopped.")
						: 0));
}

/*
 * Raises the error for a request that was refused.
 *
 *	path	for the message: that of the entry, or of its semaphore
 *	code	ZooKeeper's, for FAILURE_REFUSED
 */
void
request_report_failure(int index, const char *path, ContenderFailure failure, int code)
{
	char *name = display_path(path);

	switch (failure)
	{
		case FAILURE_UNREACHABLE:
			request_report_unreachable(path);
			break;
		case FAILURE_NO_CHILDREN:
			ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s. The path, or one above it, is an ephemeral node, which cannot have children.",
									  "ZNOCHILDRENFOREPHEMERALS")));
			break;
		case FAILURE_NO_CHROOT:
			ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s. The chroot in \"zklock.servers\" does not exist.",
									  "ZNONODE"),
							errhint("Create the chroot node.")));
			break;
		case FAILURE_NO_PATH:
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							errmsg("cannot lock ZooKeeper path \"%s\": it does not exist", name),
							errdetail("ZooKeeper refused: %s. Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\".",
									  "ZNONODE"),
							errhint("Ask an administrator to create the path in ZooKeeper.")));
			break;
		case FAILURE_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many levels of it are missing", name),
					 errdetail("No more than 16 nodes are created for a path: its own and those above it."),
					 errhint("Use a shorter path, or create the upper levels first.")));
			break;
		case FAILURE_HARMFUL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot lock ZooKeeper path \"%s\": it lies below a lock or semaphore in use",
							name),
					 errdetail("Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists."),
					 errhint("Lock a path that is not below another one.")));
			break;
		case FAILURE_SESSION_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many paths are locked", name),
					 errdetail("The paths of the nodes, or of the watches, of this server's ZooKeeper session must not exceed %d bytes, of which %d are reserved for superusers.",
							   PACKET_BUDGET, PACKET_RESERVE),
					 errhint("Lock fewer paths at a time, or use shorter ones.")));
			break;
		case FAILURE_SHARE_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many paths are locked in this session",
							name),
					 errdetail("The nodes for its locks must not exceed %zu bytes, its share of the %d that all sessions of this server have. Each takes the length of its path, that of the chroot, and %d bytes.",
							   share_of_bytes(entry_at(index)->request.share, entries_max()),
							   PACKET_BUDGET, SHARE_NODE_BYTES),
					 errhint("Lock fewer paths at a time, use shorter ones, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
			break;
		case FAILURE_WORN_OUT:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot lock ZooKeeper path \"%s\": its sequence numbers are used up", name),
					 errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
					 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));
			break;
		case FAILURE_OTHER_RECIPE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("ZooKeeper path \"%s\" is in use for something else", name),
					 errdetail("The nodes of a semaphore, those of a lock, candidates of an election, claims, and elements of a queue cannot have the same path.")));
			break;
		default:
			ereport(ERROR, (errcode(zk_error_is_permission(code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
																 : ERRCODE_SYSTEM_ERROR),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s.", zk_error_name(code)),
							zk_error_is_permission(code)
								? errhint("Check the ACL of the path and the settings \"zklock.auth_file\" and \"zklock.acl\".")
								: 0));
	}
}
