/*
 * request.c
 *		Asking the worker for a lock, and saying why it was refused.
 *
 * A backend claims an entry, fills it and hands it to the worker; wait.c waits for
 * the answer.  What becomes of the entry afterwards is the caller's.
 *
 * A session may have its share of the entries, no more.  What it has released
 * counts until the worker is done with it: else a session could use up all
 * entries by asking and giving up faster than ZooKeeper answers.  Nobody tells a
 * session that an entry has become free.  So it keeps a list of those it has
 * claimed, and looks through it when that seems full.  An entry whose generation
 * has changed has been freed since.
 *
 * Runs in: backends.  The list is private to each.  shared/entry.h says how
 * entries are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/node_data.h"
#include "backend/request.h"
#include "compat.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/lease_state.h"
#include "shared/path_settings.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/share.h"
#include "shared/worker_process.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "zk/zk_error.h"

/* ------------------------------------------------------------------------
 * Entries of this session
 * ------------------------------------------------------------------------
 */

#define FIRST_SIZE 16

typedef struct Claim
{
	int	   entry;
	uint32 generation;
} Claim;

static Claim *claims = NULL;
static int	  nclaims = 0;
static int	  maxclaims = 0;

/* Takes from the list what has become free. */
static void
forget_freed(void)
{
	int kept = 0;

	for (int i = 0; i < nclaims; i++)
	{
		if (entry_generation(claims[i].entry) == claims[i].generation)
			claims[kept++] = claims[i];
	}
	nclaims = kept;
}

/* Makes room for one more claim. */
static void
reserve_claim(void)
{
	if (nclaims < maxclaims)
		return;
	forget_freed();

	/* Half of the list has to be free, or it would be looked through for each claim. */
	if (nclaims <= maxclaims / 2 && maxclaims > 0)
		return;
	if (claims == NULL)
		claims = MemoryContextAlloc(TopMemoryContext, FIRST_SIZE * sizeof(Claim));
	else
		claims = repalloc(claims, 2 * maxclaims * sizeof(Claim));
	maxclaims = maxclaims == 0 ? FIRST_SIZE : 2 * maxclaims;
}

/* Has the session its share of entries? */
static bool
share_is_used(int share)
{
	if (share >= entries_max() || nclaims < share)
		return false;
	forget_freed();
	return nclaims >= share;
}

/*
 * Claims an entry; see entry_claim().
 *
 *	share	how many the session may have
 *	reserve	may it have those for superusers?
 *
 * Returns its index; raises an error if there is none.
 */
static int
claim_entry(int share, ShareReserve reserve)
{
	int	   max = entries_max();
	int	   reserved = reserve == RESERVE_OPEN ? 0 : share_entries_reserved(max);
	uint32 generation;
	int	   index;

	if (share_is_used(share))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", nclaims),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
	reserve_claim();
	index = entry_claim(reserved, &generation);
	if (index < 0)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
						reserved == 0 ? errdetail("%d locks are held or waited for.", max)
									  : errdetail("%d locks are held or waited for, and the remaining %d entries are reserved for superusers.",
												  max - reserved, reserved),
						errhint("You might need to increase \"zklock.max_locks\".")));
	claims[nclaims].entry = index;
	claims[nclaims].generation = generation;
	nclaims++;
	return index;
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

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

/* The numbers of which one has been exceeded, as a sentence; NULL if none has. */
static char *
limit_detail(int index, Failure failure)
{
	if (failure == FAILURE_SESSION_FULL)
		return psprintf(_("The paths of the nodes, or of the watches, of this server's ZooKeeper session must not exceed %d bytes, of which %d are reserved for superusers."),
						PACKET_BUDGET, PACKET_RESERVE);
	if (failure == FAILURE_SHARE_FULL)
		return psprintf(_("The nodes for its locks must not exceed %zu bytes, its share of the %d that all sessions of this server have. Each takes the length of its path, that of the chroot, and %d bytes."),
						share_of_bytes(entry_at(index)->request.share, entries_max()),
						PACKET_BUDGET, SHARE_NODE_BYTES);
	return NULL;
}

/*
 * Raises the error for what could not be had.
 *
 *	index	the entry that was refused, or ENTRY_NONE
 *	path	for the message: that of the entry, or of its semaphore; UTF-8
 *	code	ZooKeeper's, for FAILURE_REFUSED
 */
void
request_report_failure(int index, const char *path, Failure failure, int code)
{
	bool			   denied = failure == FAILURE_REFUSED && zk_error_is_permission(code);
	const FailureText *text = failure_text(denied ? FAILURE_DENIED : failure);
	const char		  *limit = limit_detail(index, failure);

	if (failure == FAILURE_UNREACHABLE)
		request_report_unreachable(path);
	ereport(ERROR, (errcode(text->sqlerrcode), errmsg(text->message, display_path(path)),
					limit ? errdetail_internal("%s", limit)
					: failure == FAILURE_REFUSED
						? errdetail("ZooKeeper refused: %s.", zk_error_name(code))
					: text->detail ? errdetail_internal("%s", _(text->detail))
								   : 0,
					text->hint ? errhint("%s", _(text->hint)) : 0));
}
