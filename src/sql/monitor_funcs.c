/*
 * monitor_funcs.c
 *		SQL functions that show who holds and who waits, on this server and among all clients,
 *		and the state of this server; and that take a lock from its holders.
 *
 * zk_locks(), zk_session() and zk_stats(), behind the views of these names, read shared memory
 * only; view.c and stats.h say how consistent the result is.  zk_contenders() and zk_waits()
 * read ZooKeeper, for all clients, and zk_break_lock() deletes nodes of any client.
 *
 * Anybody may have written what is read from ZooKeeper.  It is shown if it is text.
 *
 * Everyone may see what waits and what is held on this server, as in pg_locks, because their
 * own calls wait for it.  Paths, databases and nodes may reveal secrets.  A user sees those of
 * roles whose privileges it has, as in pg_stat_activity, and those of its own session; members
 * of pg_monitor see all.  zk_session(), zk_contenders() and zk_waits() are for them alone: they
 * show names and data of other services.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "deadlock/deadlock.h"
#include "deadlock/wait_search.h"
#include "fault.h"
#include "mb/pg_wchar.h"
#include "shared/deadlock_search.h"
#include "sql/arguments.h"
#include "storage/ipc.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/json.h"
#include "utils/timestamp.h"

COMPAT_FUNCTION_INFO_V1(zk_locks);
COMPAT_FUNCTION_INFO_V1(zk_session);
COMPAT_FUNCTION_INFO_V1(zk_stats);
COMPAT_FUNCTION_INFO_V1(zk_stats_reset);
COMPAT_FUNCTION_INFO_V1(zk_release_kept);
COMPAT_FUNCTION_INFO_V1(zk_contenders);
COMPAT_FUNCTION_INFO_V1(zk_waits);
COMPAT_FUNCTION_INFO_V1(zk_break_lock);
COMPAT_FUNCTION_INFO_V1(zk_break_lock_node);

/* Returns UTF-8 in a form that can be shown, or NULL if it is empty. */
static const char *
shown_or_null(const char *utf8)
{
	return utf8 == NULL || utf8[0] == '\0' ? NULL : display_utf8(utf8);
}

/* ------------------------------------------------------------------------
 * Locks of this server
 * ------------------------------------------------------------------------
 */

static const char *const mode_names[] = {
	[LOCK_MODE_EXCLUSIVE] = "exclusive",
	[LOCK_MODE_SHARED] = "shared",
};

static const char *const grant_names[] = {
	[LEASE_HOLDS] = "held",
	[LEASE_SUSPENDED] = "suspended",
	[LEASE_OVER] = "lost",
};

/* Of entries that are not granted */
static const char *const entry_state_names[] = {
	[ENTRY_FREE] = "free", [ENTRY_REQUESTED] = "requested", [ENTRY_QUEUED] = "waiting",
	[ENTRY_LOST] = "lost", [ENTRY_FAILED] = "failed",		[ENTRY_RELEASING] = "releasing",
};

static const char *const scope_names[] = {
	[LOCK_SCOPE_SESSION] = "session",
	[LOCK_SCOPE_TRANSACTION] = "transaction",
	[LOCK_SCOPE_RESERVATION] = "reservation",
};

static void
put_lock_row(FunctionCallInfo fcinfo, const EntryCopy *entry, const LockView *view,
			 LeaseState lease, LockMode mode, LockScope scope, int count)
{
	const EntryRequest *request = &entry->request;
	const EntryStatus  *status = &entry->status;
	Row					row = {0};
	bool				lock = request->kind == REQUEST_LOCK;
	bool				turn = request->kind == REQUEST_TURN &&
				(status->state == ENTRY_GRANTED || status->state == ENTRY_LOST);
	bool		waiting = status->state == ENTRY_QUEUED;
	bool		asks = waiting || turn || status->state == ENTRY_REQUESTED;
	bool		granted = status->state == ENTRY_GRANTED && lease != LEASE_OVER && !turn;
	LockBlocker blocker = waiting ? lock_view_blocker(view, entry) : (LockBlocker){0};
	const char *path = lock_view_path(entry);
	const char *state =
		status->state == ENTRY_GRANTED ? grant_names[lease] : entry_state_names[status->state];

	/* Whether the current user may see all columns */
	bool all = request->pid == MyProcPid || has_privs_of_role(GetUserId(), request->role) ||
			   has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);

	row_add_if(&row, !status->reserved, Int32GetDatum(request->pid));
	row_add_text(&row, all ? get_database_name(request->database) : NULL);
	/* A path that was locked from this database can be shown in its encoding. */
	if (all)
		path = request->database == MyDatabaseId ? display_path(path) : display_utf8(path);
	row_add_text(&row, all ? path : NULL);
	row_add_text(&row, lock ? "lock" : "semaphore");
	row_add_text(&row, lock ? mode_names[mode] : NULL);
	row_add_text(&row, all ? scope_names[scope] : NULL);
	row_add_text(&row, turn ? "waiting" : state);
	row_add_if(&row, all, BoolGetDatum(granted));
	row_add_if(&row, all, Int32GetDatum(count));
	row_add_text(&row, all ? shown_or_null(entry->node.name) : NULL);
	row_add_if(&row, all && granted && lock, Int64GetDatum(status->token));
	row_add_time(&row, all && asks ? request->requested_at : 0);
	row_add_time(&row, all && request->kind != REQUEST_TURN ? status->granted_at : 0);
	row_add_time(&row, all && request->kind != REQUEST_TURN ? status->expires_at : 0);
	row_add_if(&row, all && blocker.pid != 0, Int32GetDatum(blocker.pid));
	row_add_text(&row, all ? shown_or_null(blocker.node) : NULL);
	row_store(fcinfo, &row);
}

/*
 * zk_locks() returns setof record
 *
 * Shows the locks of this server: one row for each contender, and mode and scope of its
 * acquisitions.
 */
Datum
zk_locks(PG_FUNCTION_ARGS)
{
	LockView   view;
	LeaseState lease;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	view = lock_view_take(NULL, false);
	lease = lease_state();
	for (int i = 0; i < view.n; i++)
	{
		const EntryCopy	  *entry = view.entries[i];
		const EntryStatus *status = &entry->status;
		bool			   hidden =
			entry->request.kind == REQUEST_CANDIDACY || entry->request.kind == REQUEST_ELEMENT;
		bool turn_is_over = entry->request.kind == REQUEST_TURN &&
							status->state != ENTRY_REQUESTED && status->state != ENTRY_QUEUED;
		bool acquired = false;

		/*
		 * A granted or lost turn is not shown if the same session has an entry of a permit
		 * there: one permit is one row.
		 */
		for (int j = 0; j < view.n && turn_is_over && !hidden; j++)
		{
			const EntryCopy *other = view.entries[j];

			hidden = other->request.kind == REQUEST_PERMIT &&
					 other->request.pid == entry->request.pid &&
					 strcmp(lock_view_path(other), lock_view_path(entry)) == 0;
		}
		if (hidden)
			continue;

		/* A row for each mode and scope in which it is acquired, or one if it is not */
		for (int mode = 0; mode < (int) lengthof(status->acquired); mode++)
		{
			for (int scope = 0; scope < (int) lengthof(status->acquired[mode]); scope++)
			{
				if (status->acquired[mode][scope] == 0)
					continue;
				put_lock_row(fcinfo, entry, &view, lease, mode, scope, status->acquired[mode][scope]);
				acquired = true;
			}
		}
		if (!acquired)
			put_lock_row(fcinfo, entry, &view, lease, status->mode, entry->request.scope,
						 status->reserved);
	}
	return (Datum) 0;
}

/* ------------------------------------------------------------------------
 * The ZooKeeper session, and statistics
 * ------------------------------------------------------------------------
 */

static const char *const session_state_names[] = {
	[SESSION_DOWN] = "down",
	[SESSION_CONNECTING] = "connecting",
	[SESSION_CONNECTED] = "connected",
	[SESSION_AUTH_FAILED] = "authentication failed",
};

/* Of what zk_stats shows */
static const char *const kind_names[STATS_KINDS] = {
	[STATS_LOCK_EXCLUSIVE] = "lock", [STATS_LOCK_SHARED] = "lock",
	[STATS_SEMAPHORE] = "semaphore", [STATS_QUEUE] = "queue",
	[STATS_ELECTION] = "election",	 [STATS_CLAIM] = "claim",
};

static Datum
us_interval(int64 us)
{
	Interval *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return IntervalPGetDatum(interval);
}

/*
 * zk_session() returns record
 *
 * Shows the state of the ZooKeeper session, in one row.
 */
Datum
zk_session(PG_FUNCTION_ARGS)
{
	SessionInfo session;
	int			worker_pid;
	bool		connected;
	int64		left_us;
	Row			row = {0};

	zklock_require_preload();
	session_info_read(&session);
	left_us = lease_until() - zklock_now_us();
	worker_pid = zklock_worker_pid();
	connected = worker_pid != 0 && session.state == SESSION_CONNECTED;

	row_add_text(&row, worker_pid == 0 ? "no worker" : session_state_names[session.state]);
	row_add_text(&row, connected ? shown_or_null(session.server) : NULL);
	row_add_session(&row, session.id);
	row_add_if(&row, session.negotiated_timeout != 0,
			   us_interval(INT64CONST(1000) * session.negotiated_timeout));
	/* The lease ends by itself, whatever the worker does. */
	row_add_if(&row, session.id != 0, us_interval(Max(left_us, 0)));
	row_add_time(&row, connected ? session.connected_since : 0);
	row_add_if(&row, worker_pid != 0, Int32GetDatum(worker_pid));
	row_add(&row, Int64GetDatum(session.reconnects));
	row_add(&row, Int64GetDatum(session.expirations));
	row_add(&row, Int32GetDatum(entry_pool->limit));
	row_add(&row, Int32GetDatum(entries_in_use()));
	row_add_text(&row, shown_or_null(session.obstacle));
	row_add_text(&row, shown_or_null(session.last_error));
	row_add_time(&row, session.last_error_at);
	row_add(&row, Int64GetDatum(pg_atomic_read_u64(&stats_shared->requests)));
	row_add(&row, us_interval(pg_atomic_read_u64(&stats_shared->request_us)));
	row_add(&row, Int64GetDatum(pg_atomic_read_u64(&stats_shared->request_errors)));
	return row_return(fcinfo, &row);
}

/*
 * zk_stats() returns setof record
 *
 * Shows the locks and waits of this server: one row for each kind and mode.
 */
Datum
zk_stats(PG_FUNCTION_ARGS)
{
	Datum bounds[STATS_BUCKETS]; /* of the buckets of waits, in seconds */
	Datum buckets[STATS_BUCKETS];

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < STATS_BUCKETS - 1; i++)
		bounds[i] = Float8GetDatum(wait_bounds_us[i] / 1e6);
	bounds[STATS_BUCKETS - 1] = Float8GetDatum(get_float8_infinity());
	for (int kind = 0; kind < STATS_KINDS; kind++)
	{
		uint64		 waits = 0; /* that have ended since the last reset ... */
		uint64		 ends[STATS_WAIT_ENDS] = {0};	 /* ... by their end ... */
		uint64		 histogram[STATS_BUCKETS] = {0}; /* ... and by their length */
		uint64		 counts[STATS_COUNTERS];
		StatsOfKind *shared = &stats_shared->of_kind[kind];
		Row			 row = {0};

		for (int i = 0; i < STATS_COUNTERS; i++)
			counts[i] = pg_atomic_read_u64(&shared->counts[i]);
		for (int end = 0; end < STATS_WAIT_ENDS; end++)
		{
			for (int i = 0; i < STATS_BUCKETS; i++)
			{
				uint64 n = pg_atomic_read_u64(&shared->waits[end][i]);

				waits += n;
				ends[end] += n;
				histogram[i] += n;
			}
		}

		row_add_text(&row, kind_names[kind]);
		row_add_text(&row, kind == STATS_LOCK_EXCLUSIVE ? mode_names[LOCK_MODE_EXCLUSIVE]
						   : kind == STATS_LOCK_SHARED	? mode_names[LOCK_MODE_SHARED]
														: NULL);
		row_add(&row, Int64GetDatum(counts[STATS_REENTRANT] + ends[STATS_WAIT_GRANTED] +
									ends[STATS_WAIT_HANDED_OVER]));
		row_add(&row, Int64GetDatum(counts[STATS_REENTRANT]));
		row_add(&row, Int64GetDatum(ends[STATS_WAIT_HANDED_OVER]));
		row_add(&row, Int64GetDatum(waits));
		row_add(&row, us_interval(counts[STATS_WAIT_US]));
		row_add(&row, us_interval(counts[STATS_HOLD_US]));
		for (int end = STATS_WAIT_TIMEOUT; end <= STATS_WAIT_FAILED; end++)
			row_add(&row, Int64GetDatum(ends[end]));
		row_add(&row, Int64GetDatum(counts[STATS_LOSSES]));
		row_add_if(&row, kind == STATS_LOCK_EXCLUSIVE,
				   Int32GetDatum(((volatile EntryPool *) entry_pool)->nkept));
		for (int i = STATS_KEPT_JOINED; i <= STATS_KEPT_CROWDED; i++)
			row_add_if(&row, kind == STATS_LOCK_EXCLUSIVE, Int64GetDatum(counts[i]));
		for (int i = 0; i < STATS_BUCKETS; i++)
			buckets[i] = Int64GetDatum(histogram[i]);
		row_add(&row, PointerGetDatum(construct_array(buckets, STATS_BUCKETS, INT8OID, sizeof(int64),
													  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
		row_add(&row, PointerGetDatum(construct_array(bounds, STATS_BUCKETS, FLOAT8OID, sizeof(float8),
													  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
		row_add(&row, TimestampTzGetDatum(pg_atomic_read_u64(&stats_shared->reset_at)));
		row_store(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * zk_stats_reset() returns void
 *
 * Resets all counts of zk_stats to 0; those of requests, which zk_session shows, go on.
 */
Datum
zk_stats_reset(PG_FUNCTION_ARGS)
{
	pg_atomic_uint64 *count;

	zklock_require_preload();
	argument_require_administrator(ROLE_PG_MONITOR, "reset statistics");
	count = (pg_atomic_uint64 *) stats_shared->of_kind;
	for (; count < (pg_atomic_uint64 *) &stats_shared->of_kind[STATS_KINDS]; count++)
		pg_atomic_write_u64(count, 0);
	pg_atomic_write_u64(&stats_shared->reset_at, GetCurrentTimestamp());
	PG_RETURN_VOID();
}

/*
 * zk_release_kept() returns integer
 *
 * Has the worker give up all nodes that are kept for nobody.  Returns how many there are.
 */
Datum
zk_release_kept(PG_FUNCTION_ARGS)
{
	int n;

	zklock_require_preload();
	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "release what is kept");

	/* One number, which the worker alone changes, is read without the mutex. */
	n = ((volatile EntryPool *) entry_pool)->nkept;
	pg_atomic_write_u32(&entry_pool->release_kept, 1);
	zklock_wake_worker();
	PG_RETURN_INT32(n);
}

/* ------------------------------------------------------------------------
 * The holders and waiters at a path, of all clients
 *
 * A path can have several queues, which zk_contenders() shows one after the other:
 *
 * 		lock		the nodes of a lock at the path itself
 * 		candidate	those of an election there, if there is no lock, as an election may use
 * 					the names of one
 * 		semaphore	the leases of a semaphore at the path, below "leases"
 * 		turn		the holder of the turn to get a lease, and those that wait for it, below
 * 					"locks", if the path has leases
 *
 * Names show mode, dialect and place in the queue, and together they show who is granted.  All
 * else comes from the data of the nodes.  One conclusion is drawn from them: that a node is
 * zklock's, which only the data show, and whose contenders honor all others.
 *
 * A node of this server stands for all its contenders that share it.  Shared memory knows which
 * of them is granted, and its token; the data describe the first.
 *
 * The same for all paths below a prefix: the tree is searched level by level, many nodes at a
 * time.  A listing shows the contenders on its path, and the paths below it.  The worker sends
 * all this in turns with everything else, and behind heartbeats (zk/zk_client.c).  Anybody may have
 * made the tree, of any width and depth, and change it meanwhile.  So the search is bounded in
 * nodes and time, and a WARNING says that it has not seen all.  It does not go below elements of
 * queues, nor below nodes with the names of contenders that have no children: such nodes may be
 * many, and there is nothing.
 * ------------------------------------------------------------------------
 */

/* How many nodes are read.  Of the others, only what their names contain is shown. */
#define CONTENDERS_READ 200

/* Bounds of a search: nodes that are listed or read, and ms */
#define SEARCH_NODES 100000
#define SEARCH_MS 30000

/*
 * How many nodes are listed at a time.  At first few, since answers that are too long together
 * have been sent in vain.
 */
#define SEARCH_AT_FIRST 16
#define SEARCH_AT_ONCE 100

/* The queues that a path can have */
typedef enum QueueKind
{
	QUEUE_LOCK,
	QUEUE_CANDIDATE,
	QUEUE_SEMAPHORE,
	QUEUE_TURN
} QueueKind;

static const struct
{
	const char	 *name;
	const Recipe *recipe;
	const char	 *below; /* where it is, below the path that users know */
} queue_kinds[] = {
	[QUEUE_LOCK] = {"lock", &lock_recipe, ""},
	[QUEUE_CANDIDATE] = {"candidate", &election_recipe, ""},
	[QUEUE_SEMAPHORE] = {"semaphore", &permit_recipe, PERMIT_LEASES},
	[QUEUE_TURN] = {"turn", &lock_recipe, PERMIT_TURNS},
};

/* Shows a contender of a queue.  Returns false if only its name is known. */
static bool
put_contender(FunctionCallInfo fcinfo, QueueKind kind, const Contenders *queue,
			  const LockView *ours, int i)
{
	const Recipe		*recipe = queue->recipe;
	const ContenderNode *node = &queue->nodes[i];
	const NodeStat		*stat = &node->answer.stat;
	const EntryCopy		*entry = lock_view_of_node(ours, queue->path, node);
	ContenderOwner		 owner = contenders_owner(node, entry);
	char *path = pnstrdup(queue->path, strlen(queue->path) - strlen(queue_kinds[kind].below));
	bool  kept = entry && entry->status.kept;
	bool  granted = node->holds && !kept;
	bool  may_be_kept = entry == NULL && granted && node->peer.may_be_kept && queue->n == 1;
	TimestampTz granted_at = 0;
	int64		token = 0;
	const char *dialect = node_dialect_names[DIALECT_CURATOR];
	Heed		heed = HEED_YES;
	Row			row = {0};

	/* To unlock a persistent lock one needs its token. */
	if (owner.is_zklock && granted && stat->ephemeral_owner == 0)
		token = token_of_grant(stat->czxid, 1);

	/*
	 * Shared memory knows more: a session that holds a lock does not wait for itself.  A node
	 * that is kept is nobody's; of another server's, only that one knows, until somebody else
	 * has come, for whom it gives up what it keeps.
	 */
	if (entry && !kept && entry->status.state == ENTRY_GRANTED && lease_state() != LEASE_OVER)
	{
		granted = true;
		granted_at = entry->request.kind == REQUEST_TURN ? 0 : entry->status.granted_at;
		if (entry->request.kind == REQUEST_LOCK || entry->request.kind == REQUEST_CANDIDACY)
			token = entry->status.token;
	}

	/*
	 * Whether the client would wait for an older exclusive node of this session: zklock would,
	 * and those that queue for a permit.
	 */
	if (!owner.is_zklock && entry == NULL && recipe == &election_recipe)
		heed = HEED_UNKNOWN;
	else if (!owner.is_zklock && entry == NULL && recipe == &lock_recipe)
		heed = heed_expected(kind == QUEUE_LOCK ? dialect_of_path(path) : DIALECT_CURATOR,
							 LOCK_MODE_EXCLUSIVE, node->name);

	/* Whose names these are */
	if (recipe == &election_recipe)
		dialect = election_family_names[node->peer.family];
	else if (recipe == &lock_recipe)
		dialect = node_dialect_names[node->peer.dialect];

	row_add_text(&row, display_utf8(path));
	row_add(&row, Int32GetDatum(i + 1));
	row_add_text(&row, display_utf8(node->name));
	row_add_text(&row, queue_kinds[kind].name);
	row_add_text(&row, recipe == &lock_recipe ? mode_names[node->peer.mode] : NULL);
	row_add_text(&row, dialect);
	row_add_if(&row, !may_be_kept && (granted || !queue->permits_unknown), BoolGetDatum(granted));
	row_add_if(&row, token != 0, Int64GetDatum(token));
	row_add_owner(&row, &owner);
	row_add_text(&row, owner.other);
	row_add_session(&row, stat->ephemeral_owner);
	row_add_zk_time(&row, stat->ctime);
	row_add_time(&row, granted_at);
	row_add_if(&row, heed != HEED_UNKNOWN, BoolGetDatum(heed == HEED_YES));
	row_add_if(&row, stat->czxid != 0, BoolGetDatum(stat->ephemeral_owner == 0));
	row_add_if(&row, !may_be_kept, BoolGetDatum(kept));
	row_store(fcinfo, &row);
	return stat->czxid != 0;
}

/* Reads a queue of a path, and the nodes of the first "most" contenders. */
static Contenders
read_queue(QueueKind kind, const char *path, int most)
{
	Caller	   caller = {0};
	Contenders queue = contenders_read(psprintf("%s%s", path, queue_kinds[kind].below),
									   queue_kinds[kind].recipe, &caller, most, CALL_AFTER_SYNC);

	call_report(&caller, &queue.answer);
	return queue;
}

/*
 * Shows a queue, and reports with a NOTICE how many contenders are not shown in full.  Returns
 * its number of contenders, or -1 if its path does not exist.
 */
static int
show_queue(FunctionCallInfo fcinfo, QueueKind kind, const char *path)
{
	Contenders queue = read_queue(kind, path, CONTENDERS_READ);
	LockView   ours;
	int		   unread = 0;

	if (queue.answer.result.outcome == CALL_NO_NODE)
		return -1;
	ours = lock_view_take(queue.path, true);
	for (int i = 0; i < queue.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		unread += !put_contender(fcinfo, kind, &queue, &ours, i);
	}
	if (unread > 0)
		ereport(NOTICE, (errmsg("only the first %d of %d contenders on \"%s\" are shown in full",
								queue.n - unread, queue.n, display_path(queue.path)),
						 errdetail("Of the others, what their nodes' names tell is shown.")));
	return queue.n;
}

/* A search, and the nodes that it has found */
typedef struct Search
{
	struct
	{
		char	 *path; /* "" for the root; freed when it has been listed */
		QueueKind kind; /* QUEUE_LOCK stands for candidates, too */
	} nodes[SEARCH_NODES];
	int			  n;
	int			  most;	   /* may be in "nodes" */
	int			  nlisted; /* of these, the first ones */
	int			  nleft;   /* more were found, and not taken up */
	int			  nclosed; /* were not to be listed ... */
	const char	 *closed;  /* ... of which this is the first */
	MemoryContext context;
} Search;

/* Has a node be listed, whose name is appended to a path; "" is the path's own. */
static void
search_below(Search *search, const char *path, const char *name, QueueKind kind)
{
	const char	 *slash = name[0] != '\0' ? "/" : "";
	MemoryContext caller;

	/* Anybody may have made very many nodes: nothing is composed for those that are left. */
	if (search->n == search->most || strlen(path) + strlen(slash) + strlen(name) > ZKLOCK_MAX_PATH)
	{
		search->nleft++;
		return;
	}
	caller = MemoryContextSwitchTo(search->context);
	search->nodes[search->n].path = psprintf("%s%s%s", path, slash, name);
	search->nodes[search->n++].kind = kind;
	MemoryContextSwitchTo(caller);
}

/*
 * The rule of what a listing means, and what is searched below it: puts the contenders that it
 * shows in order, and has the other children be listed.  Returns what kind of queue it is, if
 * there are contenders.
 *
 *	is_top	the search is for what is below this node
 */
static QueueKind
search_take_up(Search *search, const CallStep *listed, bool is_top, QueueKind kind, Contenders *found)
{
	bool has_permits = false;
	bool numbered = false;

	contenders_sort(found, queue_kinds[kind].recipe, listed);

	/* Any child counts as a lease, but "leases" may be a word of somebody's paths as well. */
	for (int i = 0; i < found->n; i++)
		numbered |= found->nodes[i].peer.numbered;
	if (kind == QUEUE_SEMAPHORE && !numbered)
		found->n = 0;
	if (kind == QUEUE_LOCK && found->n == 0)
	{
		kind = QUEUE_CANDIDATE;
		contenders_sort(found, queue_kinds[kind].recipe, listed);
	}

	/* A semaphore on top is not below it. */
	for (int i = 0; i < listed->result.nchildren && !is_top; i++)
		has_permits |= strcmp(listed->children[i], &PERMIT_LEASES[1]) == 0;
	for (int i = 0; i < listed->result.nchildren; i++)
	{
		const char *child = listed->children[i];
		QueueKind	below = QUEUE_LOCK;
		RecipePeer	peer;
		int64_t		number;

		if ((found->n > 0 && found->recipe->read(child, &peer)) || element_name_read(child, &number))
			continue;
		if (has_permits && strcmp(child, &PERMIT_LEASES[1]) == 0)
			below = QUEUE_SEMAPHORE;
		else if (has_permits && strcmp(child, &PERMIT_TURNS[1]) == 0)
			below = QUEUE_TURN;
		search_below(search, found->path, child, below);
	}
	return kind;
}

/*
 * Shows the contenders on all paths below one, which is "" for the root.  A path that does not
 * exist has none below it.
 *
 * Nodes are taken from the front of a list, a batch at a time.  A batch is listed; its contenders
 * are read, and shown; and what may have contenders below is put at the end of the list.
 */
static void
show_queues_below(FunctionCallInfo fcinfo, const char *top)
{
	/* Tests have bounds that they reach. */
	const int	  most = ZKLOCK_FAULT("short-search") ? 40 : SEARCH_NODES;
	const int	  most_ms = ZKLOCK_FAULT("hasty-search") ? 500 : SEARCH_MS;
	Caller		  caller = {.until = zklock_now_ms() + most_ms};
	MemoryContext of_call = CurrentMemoryContext;
	MemoryContext of_batch = AllocSetContextCreate(of_call, "zklock search", ALLOCSET_DEFAULT_SIZES);
	MemoryContext of_view = AllocSetContextCreate(of_call, "zklock view", ALLOCSET_DEFAULT_SIZES);
	Search		 *search = palloc0(sizeof(Search));
	LockView	  ours = {0};
	int			  nseen = 0; /* nodes that were read since that view was taken */
	int			  at_once = SEARCH_AT_FIRST;
	int			  nread = 0;   /* contenders whose nodes were read ... */
	int			  nunread = 0; /* ... and of those shown, not */

	search->context = of_call;
	search->most = most;
	search_below(search, top, "", QUEUE_LOCK);
	while (search->nlisted < search->n && search->nlisted + nread < most &&
		   zklock_now_ms() < caller.until)
	{
		CallStep   steps[SEARCH_AT_ONCE];
		Contenders queues[SEARCH_AT_ONCE];
		QueueKind  kinds[SEARCH_AT_ONCE]; /* of these */
		CallStep   failed;
		int		   first = search->nlisted;
		int		   n = Min(Min(search->n - first, at_once), most - first - nread);
		int		   nqueues = 0;

		/* List some nodes. */
		MemoryContextReset(of_batch);
		MemoryContextSwitchTo(of_batch);
		for (int i = 0; i < n; i++)
		{
			const char *path = search->nodes[first + i].path;

			steps[i] =
				(CallStep){.asked = {.kind = ZK_GET_CHILDREN, .path = path[0] == '\0' ? "/" : path}};
		}
		call_batch(&caller, steps, n, first == 0 ? CALL_AFTER_SYNC : CALL_AS_KNOWN);
		if (steps[0].result.outcome == CALL_TOO_LONG && n > 1)
		{
			at_once = n / 2;
			continue;
		}
		at_once = Min(2 * at_once, SEARCH_AT_ONCE);
		if (steps[0].result.outcome == CALL_UNREACHABLE)
		{
			/* Either the time is over, and with it the search. */
			call_report(&caller, &steps[0]);
			break;
		}

		for (int i = 0; i < n; i++)
		{
			const CallStep *listed = &steps[i];
			Contenders	   *found = &queues[nqueues];
			bool			is_top = first + i == 0;

			search->nlisted++;
			if (listed->result.outcome == CALL_NO_NODE)
				continue;
			if (listed->result.outcome != CALL_OK)
			{
				if (is_top)
					call_report(&caller, listed);
				if (search->nclosed++ == 0)
					search->closed = MemoryContextStrdup(of_call, search->nodes[first + i].path);
				continue;
			}
			*found = (Contenders){.path = search->nodes[first + i].path};
			kinds[nqueues] =
				search_take_up(search, listed, is_top, search->nodes[first + i].kind, found);
			nqueues += found->n > 0;
		}

		/* Read the contenders. */
		failed = contenders_read_nodes(queues, nqueues, &caller, most - search->nlisted - nread);
		if (failed.result.outcome != CALL_OK && zklock_now_ms() < caller.until)
			call_report(&caller, &failed);

		/*
		 * A view has the entries of all paths, thousands if many nodes are kept.  So it is taken
		 * again when that many nodes have been read: then it costs less than they do.
		 */
		if (nqueues > 0 && nseen >= ours.n)
		{
			MemoryContextReset(of_view);
			MemoryContextSwitchTo(of_view);
			ours = lock_view_take(NULL, true);
			MemoryContextSwitchTo(of_batch);
			nseen = 0;
		}

		/* Show them. */
		for (int i = 0; i < nqueues; i++)
		{
			const Contenders *found = &queues[i];

			nread += found->nread;
			nseen += found->nread;
			if (found->n == 0)
				search_below(search, found->path, "", kinds[i]); /* others may be there by now */
			for (int k = 0; k < found->n; k++)
			{
				const NodeStat *stat = &found->nodes[k].answer.stat;

				CHECK_FOR_INTERRUPTS();
				if (found->path != search->nodes[0].path)
					nunread += !put_contender(fcinfo, kinds[i], found, &ours, k);
				if (stat->ephemeral_owner == 0 && stat->child_count > 0)
					search_below(search, found->path, found->nodes[k].name, QUEUE_LOCK);
			}
		}
		for (int i = Max(first, 1); i < search->nlisted; i++)
			pfree(search->nodes[i].path);
	}
	MemoryContextSwitchTo(of_call);
	MemoryContextDelete(of_batch);
	MemoryContextDelete(of_view);

	search->nleft += search->n - search->nlisted;
	top = top[0] == '\0' ? "/" : display_path(top);
	if (search->nleft > 0)
		ereport(WARNING, (errmsg("the search for contenders below \"%s\" has ended early", top),
						  errdetail("It has found %d nodes more, below which nobody has looked. It reads %d nodes at most, with paths of %d bytes at most, and takes %d s at most.",
									search->nleft, most, ZKLOCK_MAX_PATH, SEARCH_MS / 1000),
						  errhint("Search below a longer path.")));
	if (search->nclosed > 0)
		ereport(WARNING,
				(errmsg("could not search %d nodes below \"%s\", such as \"%s\"",
						search->nclosed, top, display_utf8(search->closed)),
				 errdetail("Their children are too many, or their ACLs do not let this server list them.")));
	if (nunread > 0)
		ereport(NOTICE, (errmsg("of %d contenders below \"%s\" only the names are known", nunread, top),
						 errdetail("What their nodes' names tell is shown.")));
}

/*
 * zk_contenders(path text) returns setof record
 *
 * Shows the holders and waiters at a path, in the order of the queue; or, if a slash and an
 * asterisk are at its end, those on all paths below.  A path that does not exist has no rows.
 */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ANY_PATH);
	char *end = path + strlen(path) - 2;
	int	  nlocks;

	InitMaterializedSRF(fcinfo, 0);
	if (strcmp(end, "/*") == 0)
	{
		*end = '\0';
		show_queues_below(fcinfo, path);
		return (Datum) 0;
	}
	nlocks = show_queue(fcinfo, QUEUE_LOCK, path);
	if (nlocks == 0)
		(void) show_queue(fcinfo, QUEUE_CANDIDATE, path);
	if (nlocks >= 0 && show_queue(fcinfo, QUEUE_SEMAPHORE, path) >= 0)
		(void) show_queue(fcinfo, QUEUE_TURN, path);
	return (Datum) 0;
}

/* ------------------------------------------------------------------------
 * The waits that last, of all servers
 *
 * Servers publish the waits that others need to know to find deadlocks (deadlock/wait_search.c).
 * zk_waits() reads these records from ZooKeeper, and takes the waits of this server from shared
 * memory.  The queue in which a process waits shows for whom, and since when.
 *
 * A session that holds nothing, and keeps no other server waiting, is in no record.  So a NOTICE
 * names the servers that publish none, as far as they are known: this one, and those with
 * contenders in the queues.  What is no record is counted in a WARNING.
 * ------------------------------------------------------------------------
 */

/* Most records, and most queues, that are read */
#define MAX_RECORDS 256
#define MAX_QUEUES 100 /* who blocks the waits in others is not shown */

/* How many records are read at a time, as they may be long */
#define RECORDS_AT_ONCE 16

/* How many nodes of a queue are read */
#define QUEUE_READ 100

/* How often the records are listed at most, if servers replace some meanwhile */
#define RECORD_ROUNDS 4

typedef struct Fleet
{
	FunctionCallInfo fcinfo;
	Caller			 caller;
	CallStep		 records[MAX_RECORDS];
	const WaitLine	*lines[MAX_RECORDS]; /* NULL: it is no record */
	int				 nrecords;
	int				 nignored;
	LockView		 ours;
	List			*queues; /* of Contenders */
	StringInfoData	 silent; /* names of servers that publish nothing */
} Fleet;

/* Returns the newest record of a ZooKeeper session, or -1 if there is none. */
static int
newest_record(const Fleet *fleet, int64 session)
{
	int newest = -1;

	for (int i = 0; i < fleet->nrecords; i++)
	{
		const NodeStat *stat = &fleet->records[i].result.stat;

		if (fleet->lines[i] && stat->ephemeral_owner == session &&
			(newest < 0 || stat->czxid > fleet->records[newest].result.stat.czxid))
			newest = i;
	}
	return newest;
}

/* Adds a server to those that publish nothing, unless its ZooKeeper session does. */
static void
note_silent(Fleet *fleet, int64 session, const char *name)
{
	const char *server = display_foreign(name);
	const char *quoted = server ? psprintf("\"%s\"", server) : NULL;

	if (quoted && newest_record(fleet, session) < 0 && strstr(fleet->silent.data, quoted) == NULL)
		appendStringInfo(&fleet->silent, "%s%s", fleet->silent.len > 0 ? ", " : "", quoted);
}

/*
 * Shows a wait: a line of a record, behind which the first process of the same server may
 * follow for which this one waits.
 *
 *	entry	a contender of this server that waits, or NULL
 */
static void
put_wait(Fleet *fleet, const char *server, const WaitLine *wait, const EntryCopy *entry)
{
	ContenderOwner		 self = {0};
	ContenderOwner		 other = {0}; /* who is in the way */
	const ContenderNode *node = NULL;
	const ContenderNode *named = NULL; /* by the line behind */
	const ContenderNode *blocker = NULL;
	RecipePeer			 peer;
	bool				 is_lock = lock_recipe.read(wait->node, &peer);
	const Recipe		*recipe = is_lock ? &lock_recipe : &permit_recipe;
	Contenders			*queue = NULL; /* in which the process waits, if it does in one */
	bool		permit = strncmp(wait->text, WAIT_FOR_PERMIT, strlen(WAIT_FOR_PERMIT)) == 0;
	const char *path_end = permit ? strrchr(wait->path, '/') : NULL;
	Row			row = {0};
	ListCell   *cell;

	CHECK_FOR_INTERRUPTS();
	foreach(cell, fleet->queues)
	{
		Contenders *known = lfirst(cell);

		if (strcmp(known->path, wait->path) == 0 && known->recipe == recipe)
			queue = known;
	}
	if (queue == NULL && wait->path[0] != '\0' && list_length(fleet->queues) < MAX_QUEUES)
	{
		queue = palloc(sizeof(Contenders));
		*queue = contenders_read(wait->path, recipe, &fleet->caller, QUEUE_READ, CALL_AS_KNOWN);
		if (queue->answer.result.outcome == CALL_UNREACHABLE)
			call_report(&fleet->caller, &queue->answer);
		for (int i = 0; i < queue->n; i++)
		{
			NodeContender data;

			if (node_contender_read(queue->nodes[i].data, &data))
				note_silent(fleet, queue->nodes[i].answer.stat.ephemeral_owner, data.server);
		}
		fleet->queues = lappend(fleet->queues, queue);
	}
	for (int i = 0; queue && i < queue->n; i++)
	{
		if (strcmp(queue->nodes[i].name, wait->node) == 0)
			node = &queue->nodes[i];
		if (wait[1].kind == WAIT_LINE_FOR && strcmp(queue->nodes[i].name, wait[1].node) == 0)
			named = &queue->nodes[i];
	}

	/* The oldest node that keeps it waiting */
	for (const ContenderNode *older = node ? queue->nodes : NULL;
		 older < node && blocker == NULL; older++)
	{
		if (!is_lock || lock_recipe.excludes(&older->peer, &(RecipeRequest){.mode = peer.mode}))
			blocker = older;
	}

	/* It may have no node yet, while a reservation of this server is in its way. */
	if (blocker == NULL)
		blocker = named;

	/* The node may have been created for another session. */
	if (node)
		self = contenders_owner(node, NULL);
	if (self.pid != wait->pid)
		self = (ContenderOwner){.pid = wait->pid};
	self.server = display_foreign(server);
	if (entry)
		self.user = GetUserNameFromId(entry->request.role, true);
	row_add_owner(&row, &self);

	/* Path and mode as the user knows them: a semaphore's path is above those of its queues. */
	row_add_text(&row, shown_or_null(path_end ? pnstrdup(wait->path, path_end - wait->path)
											  : wait->path));
	row_add_text(&row, !permit && is_lock ? mode_names[peer.mode] : NULL);
	row_add_text(&row, display_foreign(wait->text));
	if (entry)
		row_add_time(&row, entry->request.requested_at);
	else
		row_add_zk_time(&row, node ? node->answer.stat.ctime : 0);
	row_add_text(&row, shown_or_null(wait->node));

	/* Who is in the way: a contender, or else a process of the same server */
	if (blocker)
		other = contenders_owner(blocker, lock_view_of_node(&fleet->ours, queue->path, blocker));
	else if (wait[1].kind == WAIT_LINE_FOR && wait[1].pid != 0)
		other = (ContenderOwner){.server = self.server, .pid = wait[1].pid};
	row_add_text(&row, other.server);
	row_add_if(&row, other.pid != 0, Int32GetDatum(other.pid));
	row_add_text(&row, other.other);
	row_add_text(&row, blocker ? display_utf8(blocker->name) : NULL);
	row_add_session(&row, blocker ? blocker->answer.stat.ephemeral_owner : 0);
	row_store(fleet->fcinfo, &row);
}

/*
 * zk_waits() returns setof record
 *
 * Shows the waits that all servers publish, and those of this server that last.
 */
Datum
zk_waits(PG_FUNCTION_ARGS)
{
	Fleet *fleet = palloc0(sizeof(Fleet));
	bool   all = false;

	argument_require_holder();
	InitMaterializedSRF(fcinfo, 0);
	fleet->fcinfo = fcinfo;
	initStringInfo(&fleet->silent);

	/* Read the records; again if one was gone by then, as another one may have its place. */
	for (int round = 0; !all && round < RECORD_ROUNDS; round++)
	{
		const CallStep *list =
			call_make(&fleet->caller, (ZkCall){.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT},
					  CALL_AFTER_SYNC);

		fleet->nrecords = 0;
		for (int i = 0; i < list->result.nchildren && fleet->nrecords < MAX_RECORDS; i++)
		{
			if (wait_record_session(list->children[i]) != 0)
				fleet->records[fleet->nrecords++] = (CallStep){
					.asked = {.kind = ZK_GET_DATA,
							  .path = psprintf("%s/%s", WAIT_RECORD_ROOT, list->children[i]),
							  .most = WAIT_RECORD_MAX}};
		}
		fleet->nignored = list->result.nchildren - fleet->nrecords;
		all = true;
		for (int i = 0; i < fleet->nrecords; i++)
		{
			CallStep *record = &fleet->records[i];

			if (i % RECORDS_AT_ONCE == 0)
				call_batch(&fleet->caller, record, Min(fleet->nrecords - i, RECORDS_AT_ONCE),
						   CALL_AS_KNOWN);
			if (record->result.outcome == CALL_UNREACHABLE)
				call_report(&fleet->caller, record);
			fleet->lines[i] = wait_record_lines(record);
			all &= record->result.outcome != CALL_NO_NODE;
			fleet->nignored += record->result.outcome != CALL_NO_NODE && fleet->lines[i] == NULL;
		}
	}
	fleet->ours = lock_view_take(NULL, false);
	note_silent(fleet, fleet->caller.session, zklock_own_name());

	/* The waits of the records; of this server's, those that shared memory does not have */
	for (int i = 0; i < fleet->nrecords; i++)
	{
		int64			session = fleet->records[i].result.stat.ephemeral_owner;
		const WaitLine *title = fleet->lines[i];

		if (title == NULL || newest_record(fleet, session) != i)
			continue;
		for (const WaitLine *line = title; line->kind != WAIT_LINE_END; line++)
		{
			if (line->kind == WAIT_LINE_WAIT &&
				(session != fleet->caller.session || line->path[0] == '\0'))
				put_wait(fleet, title->text, line, NULL);
		}
	}

	/* The contenders of this server that wait, and have waited for long */
	for (int i = 0; i < fleet->ours.n; i++)
	{
		const EntryCopy *entry = fleet->ours.entries[i];
		WaitLine		 lines[] = {{.pid = entry->request.pid,
									 .path = entry->request.path,
									 .node = entry->node.name},
									{.kind = WAIT_LINE_FOR}};
		LockBlocker		 blocker;

		if (entry->status.state != ENTRY_QUEUED || entry->request.manner != ASK_AND_WAIT ||
			entry->request.pid == ENTRY_SERVER_PID || entry->request.kind == REQUEST_ELEMENT ||
			zklock_ms_since(entry->request.requested_us) < deadlock_search->deadlock_timeout)
			continue;
		lines[0].text = waits_describe_contender(entry);
		blocker = lock_view_blocker(&fleet->ours, entry);
		lines[1].pid = blocker.pid;
		lines[1].node = blocker.node ? blocker.node : "";
		put_wait(fleet, zklock_own_name(), lines, entry);
	}

	if (fleet->nignored > 0)
		ereport(WARNING,
				(errmsg("ignoring %d nodes below \"%s\"", fleet->nignored, WAIT_RECORD_ROOT),
				 errdetail("They are no records of waits that can be read, or more than %d.",
						   MAX_RECORDS)));
	if (fleet->silent.len > 0)
		ereport(NOTICE,
				(errmsg("servers without waits that others need to know: %s", fleet->silent.data),
				 errdetail("Sessions that hold nothing, and keep no other server waiting, are not published. zk_waits() shows them on their own server.")));
	return (Datum) 0;
}

/* ------------------------------------------------------------------------
 * Taking a lock from its holders, or a waiter out of its queue
 *
 * zk_break_lock() deletes the nodes of living contenders of any client, for emergencies: those
 * that hold now, or the node that the caller names, as zk_contenders() shows it.  It deletes a
 * node only if the recipe takes it for a contender's, and only if it still is the node that was
 * read, because names are used again when a path is created again.  ZooKeeper deletes by name, so
 * a moment remains between that check and the deletion (doc/guarantees.md).
 *
 * A session of zklock that holds the lock learns of the loss, as when anybody else deletes the
 * node; most other clients do not.  The node's data are marked first, and in shared memory the
 * entries of a node of this server, so that the session's error can say who did it.  The log says
 * who deleted whose node.
 *
 * If the answer to the deletion is lost, the node is read again to see what became of it.
 * ------------------------------------------------------------------------
 */

/* Takes the mark off the entries, because this process does not delete the node. */
static void
withdraw_mark(int code, Datum arg)
{
	entries_expect_deletion(DatumGetUInt64(arg), LOSS_DELETED);
}

/*
 * Deletes a contender's node, below a path.  Returns false if there is none, or another client
 * has deleted it.
 */
static bool
break_node(const char *path, const char *name)
{
	Caller		  caller = {0};
	ContenderNode node = {.name = name};
	char		 *node_path = psprintf("%s/%s", path, name);
	CallStep read = {.asked = {.kind = ZK_GET_DATA, .path = node_path, .most = CONTENDERS_MAX_DATA}};
	const NodeStat	*stat = &node.answer.stat;
	LockView		 ours;
	const EntryCopy *entry;
	uint64			 cohort; /* the node's, if it is of this server; else 0 */
	bool			 of_session;
	bool			 broken;

	/* For messages: composed beforehand, as an error's context must not compose them */
	const char *role = GetUserNameFromId(GetUserId(), false);
	const char *shown = display_path(node_path);
	const char *owner;

	call_batch(&caller, &read, 1, CALL_AFTER_SYNC);
	node.answer = read.result;
	node.data = read.read ? read.read : "";
	if (stat->czxid == 0)
	{
		call_report(&caller, &read);
		return false;
	}
	ours = lock_view_take(path, true);
	entry = lock_view_of_node(&ours, path, &node);
	cohort = entry ? entry->node.cohort_id : 0;
	owner = contenders_describe(&node);

	call_tell(&caller, "",
			  psprintf("while role \"%s\", process %d, was deleting node \"%s\" of %s by zk_break_lock(), which may have been done",
					   role, MyProcPid, shown, owner));
	PG_ENSURE_ERROR_CLEANUP(withdraw_mark, UInt64GetDatum(cohort));
	{
		CallStep set = {.asked = {.kind = ZK_SET_DATA, .path = node_path, .version = stat->version}};
		char *by = psprintf("role %s, process %d of server %s", role, MyProcPid, zklock_own_name());
		StringInfoData member;
		char		  *data;

		/* Mark the node, in the entries that it stands for and in its data. */
		entries_expect_deletion(cohort, LOSS_BROKEN);
		initStringInfo(&member);
		escape_json(&member, pg_server_to_any(by, strlen(by), PG_UTF8));
		data = palloc(node.answer.text_length + member.len + NODE_CONTENDER_BROKEN_SIZE);
		set.asked.data = data;

		/* The node is deleted even if this fails. */
		if (node_contender_write_broken(data, node.data, member.data))
			call_batch(&caller, &set, 1, CALL_AS_KNOWN);
		broken = call_delete_node(&caller, node_path, stat);
	}
	PG_END_ENSURE_ERROR_CLEANUP(withdraw_mark, UInt64GetDatum(cohort));
	error_context_stack = caller.context.previous;
	if (!broken)
	{
		withdraw_mark(0, UInt64GetDatum(cohort));
		return false;
	}

	/*
	 * Log who has deleted the node, and whose it was.  The caller gets a NOTICE if it was not
	 * ephemeral: such a node would have outlived its client.  Owners of containers and TTL nodes
	 * are no sessions.
	 */
	of_session = stat->ephemeral_owner != 0 && stat->ephemeral_owner != PG_INT64_MIN &&
				 ((uint64) stat->ephemeral_owner >> 56) != 0xff;
	ereport(LOG, (errmsg("role \"%s\", process %d, deleted node \"%s\" by zk_break_lock()",
						 role, MyProcPid, shown),
				  of_session ? errdetail_log("It was that of %s, in ZooKeeper session 0x%llx.",
											 owner, (unsigned long long) stat->ephemeral_owner)
							 : errdetail_log("It was that of %s, and not ephemeral.", owner)));
	if (!of_session)
		ereport(NOTICE,
				(errmsg("node \"%s\" was not ephemeral", shown),
				 errdetail("It belonged to no ZooKeeper session, so ZooKeeper would not have deleted it.")));
	return true;
}

/*
 * zk_break_lock(path text) returns boolean
 *
 * Deletes the nodes of those that hold a lock, an election or permits of a semaphore.
 * Returns false if there is no such node.
 */
Datum
zk_break_lock(PG_FUNCTION_ARGS)
{
	const char *path;
	bool		is_lock = false;
	bool		broken = false;

	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "break locks");
	path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	for (QueueKind kind = QUEUE_LOCK; kind <= QUEUE_SEMAPHORE; kind++)
	{
		Contenders contenders;

		/* The recipe of elections recognizes the names of locks too. */
		if (kind == QUEUE_CANDIDATE && is_lock)
			continue;
		contenders = read_queue(kind, path, 0);
		is_lock |= contenders.n > 0;
		if (contenders.permits_unknown && contenders.n > 0)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("it is not known who holds permits of \"%s\"",
								   display_path(contenders.path)),
							errdetail("No node tells how many permits there are."),
							errhint("Name a node, as zk_contenders() shows it.")));
		for (int j = 0; j < contenders.n; j++)
		{
			if (contenders.nodes[j].holds)
				broken |= break_node(contenders.path, contenders.nodes[j].name);
		}
	}
	PG_RETURN_BOOL(broken);
}

/*
 * zk_break_lock(path text, node text) returns boolean
 *
 * Deletes a contender's node.  Returns false if there is no such node.
 */
Datum
zk_break_lock_node(PG_FUNCTION_ARGS)
{
	bool  is_contender = false;
	char *path;
	char *shown;
	char *name;
	char *child;

	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "break locks");
	path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	argument_refuse_null(fcinfo, 1, "node");

	/* The name must be one that a contender's node can have.  Clients number all of these. */
	shown = text_to_cstring(PG_GETARG_TEXT_PP(1));
	name = pg_server_to_any(shown, strlen(shown), PG_UTF8);
	child = psprintf("/%s", name);

	/* The recipe of elections recognizes the names of locks too. */
	for (QueueKind kind = QUEUE_CANDIDATE; kind <= QUEUE_TURN; kind++)
	{
		RecipePeer peer;

		if (strchr(name, '/') != NULL || path_check_node(child, strlen(child)) != NULL ||
			!queue_kinds[kind].recipe->read(name, &peer) || !peer.numbered)
			continue;
		is_contender = true;
		if (break_node(psprintf("%s%s", path, queue_kinds[kind].below), name))
			PG_RETURN_BOOL(true);
	}
	if (!is_contender)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not the name of a contender's node",
						zklock_shown(shown, strlen(shown))),
				 errdetail("It must be the name, without its path, as zk_contenders() shows it.")));
	PG_RETURN_BOOL(false);
}
