/*
 * monitor_funcs.c
 *		SQL functions behind the views zk_locks, zk_session and zk_stats.
 *
 * They read shared memory only; view.c and stats.c say how consistent the result is.
 *
 * Everyone may see what waits and what is held, as in pg_locks, because their own calls
 * wait for it.  Paths, databases and nodes may reveal secrets.  A user sees those of roles
 * whose privileges it has, as in pg_stat_activity, and those of its own session; members
 * of pg_monitor see all.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "funcapi.h"
#include "shared/session_info.h"
#include "shared/stats.h"
#include "sql/arguments.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/timestamp.h"

COMPAT_FUNCTION_INFO_V1(zk_locks);
COMPAT_FUNCTION_INFO_V1(zk_session);
COMPAT_FUNCTION_INFO_V1(zk_stats);
COMPAT_FUNCTION_INFO_V1(zk_stats_reset);

static const char *
entry_state_name(EntryState state, LeaseState lease)
{
	static const char *const of_grant[] = {
		[LEASE_HOLDS] = "held",
		[LEASE_SUSPENDED] = "suspended",
		[LEASE_OVER] = "lost",
	};
	static const char *const names[] = {
		[ENTRY_FREE] = "free",		[ENTRY_REQUESTED] = "requested",
		[ENTRY_QUEUED] = "waiting", [ENTRY_LOST] = "lost",
		[ENTRY_FAILED] = "failed",	[ENTRY_RELEASING] = "releasing",
	};

	return state == ENTRY_GRANTED ? of_grant[lease] : names[state];
}

/* Returns UTF-8 in a form that can be shown, or NULL if it is empty. */
static const char *
shown_or_null(const char *utf8)
{
	return utf8 == NULL || utf8[0] == '\0' ? NULL : display_utf8(utf8);
}

/*
 * Returns true if a granted or lost turn is not shown, because the same session has an
 * entry of a permit there: one permit is one row.
 */
static bool
is_spoken_for(const EntryCopy *turn, const LockView *view)
{
	if (turn->request.kind != REQUEST_TURN || turn->status.state == ENTRY_REQUESTED ||
		turn->status.state == ENTRY_QUEUED)
		return false;
	for (int i = 0; i < view->n; i++)
	{
		const EntryCopy *entry = view->entries[i];

		if (entry->request.kind == REQUEST_PERMIT && entry->request.pid == turn->request.pid &&
			strcmp(lock_view_path(entry), lock_view_path(turn)) == 0)
			return true;
	}
	return false;
}

/* Returns true if the current user may see all columns of an entry. */
static bool
may_see(const EntryCopy *entry)
{
	return entry->request.pid == MyProcPid || has_privs_of_role(GetUserId(), entry->request.role) ||
		   has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
}

static const char *const scope_names[] = {
	[LOCK_SCOPE_SESSION] = "session",
	[LOCK_SCOPE_TRANSACTION] = "transaction",
	[LOCK_SCOPE_RESERVATION] = "reservation",
};

static void
put_lock_row(FunctionCallInfo fcinfo, const EntryCopy *entry, const LockView *view,
			 LeaseState lease, LockMode mode, LockScope scope, int count)
{
	Row	 row = {0};
	bool all = may_see(entry);
	bool lock = entry->request.kind == REQUEST_LOCK;
	bool turn = entry->request.kind == REQUEST_TURN &&
				(entry->status.state == ENTRY_GRANTED || entry->status.state == ENTRY_LOST);
	bool		waiting = entry->status.state == ENTRY_QUEUED || turn;
	bool		granted = entry->status.state == ENTRY_GRANTED && lease != LEASE_OVER && !turn;
	LockBlocker blocker = {0};
	const char *path = lock_view_path(entry);

	if (waiting && !turn)
		blocker = lock_view_blocker(view, entry);

	row_add_if(&row, !entry->status.reserved, Int32GetDatum(entry->request.pid));
	row_add_text(&row, all ? get_database_name(entry->request.database) : NULL);
	/* A path that was locked from this database can be shown in its encoding. */
	row_add_text(&row, !all										 ? NULL
					   : entry->request.database == MyDatabaseId ? display_path(path)
																 : display_utf8(path));
	row_add_text(&row, lock ? "lock" : "semaphore");
	row_add_text(&row, !lock ? NULL : mode == LOCK_MODE_EXCLUSIVE ? "exclusive" : "shared");
	row_add_text(&row, all ? scope_names[scope] : NULL);
	row_add_text(&row, turn ? "waiting" : entry_state_name(entry->status.state, lease));
	row_add_if(&row, all, BoolGetDatum(granted));
	row_add_if(&row, all, Int32GetDatum(count));
	row_add_text(&row, all ? shown_or_null(entry->node.name) : NULL);
	row_add_if(&row, all && granted && lock, Int64GetDatum(entry->status.token));
	row_add_if(&row, all && (waiting || entry->status.state == ENTRY_REQUESTED),
			   TimestampTzGetDatum(entry->request.requested_at));
	row_add_if(&row, all && entry->status.granted_at != 0 && entry->request.kind != REQUEST_TURN,
			   TimestampTzGetDatum(entry->status.granted_at));
	row_add_if(&row, all && entry->status.expires_at != 0 && entry->request.kind != REQUEST_TURN,
			   TimestampTzGetDatum(entry->status.expires_at));
	row_add_if(&row, all && blocker.pid != 0, Int32GetDatum(blocker.pid));
	row_add_text(&row, all ? shown_or_null(blocker.node) : NULL);
	row_store(fcinfo, &row);
}

/* Stores a row for each mode and scope in which an entry is acquired, or one if it is not. */
static void
put_lock_rows(FunctionCallInfo fcinfo, const EntryCopy *entry, const LockView *view, LeaseState lease)
{
	const EntryStatus *status = &entry->status;
	bool			   acquired = false;

	for (int mode = 0; mode < (int) lengthof(status->acquired); mode++)
	{
		for (int scope = 0; scope < (int) lengthof(status->acquired[mode]); scope++)
		{
			if (status->acquired[mode][scope] == 0)
				continue;
			put_lock_row(fcinfo, entry, view, lease, mode, scope, status->acquired[mode][scope]);
			acquired = true;
		}
	}
	if (!acquired)
		put_lock_row(fcinfo, entry, view, lease, status->mode, entry->request.scope, status->reserved);
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
	view = lock_view_take(NULL);
	lease = lease_state();
	for (int i = 0; i < view.n; i++)
	{
		const EntryCopy *entry = view.entries[i];

		if (is_spoken_for(entry, &view) || entry->request.kind == REQUEST_CANDIDACY ||
			entry->request.kind == REQUEST_ELEMENT || entry->status.kept)
			continue;
		put_lock_rows(fcinfo, entry, &view, lease);
	}
	return (Datum) 0;
}

static const char *const session_state_names[] = {
	[SESSION_DOWN] = "down",
	[SESSION_CONNECTING] = "connecting",
	[SESSION_CONNECTED] = "connected",
	[SESSION_AUTH_FAILED] = "authentication failed",
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
	Row			row = {0};

	zklock_require_preload();
	session_info_read(&session);
	worker_pid = zklock_worker_pid();
	connected = worker_pid != 0 && session.state == SESSION_CONNECTED;

	row_add_text(&row, worker_pid == 0 ? "no worker" : session_state_names[session.state]);
	row_add_text(&row, connected ? shown_or_null(session.server) : NULL);
	row_add_text(&row, display_session(session.id));
	row_add_if(&row, session.negotiated_timeout != 0,
			   us_interval(INT64CONST(1000) * session.negotiated_timeout));
	/* The lease ends by itself, whatever the worker does. */
	row_add_if(&row, session.id != 0, us_interval(lease_remaining_us()));
	row_add_if(&row, connected, TimestampTzGetDatum(session.connected_since));
	row_add_if(&row, worker_pid != 0, Int32GetDatum(worker_pid));
	row_add(&row, Int64GetDatum(session.reconnects));
	row_add(&row, Int64GetDatum(session.expirations));
	row_add(&row, Int32GetDatum(entries_limit()));
	row_add(&row, Int32GetDatum(entries_in_use()));
	row_add_text(&row, shown_or_null(session.obstacle));
	row_add_text(&row, shown_or_null(session.last_error));
	row_add_if(&row, session.last_error_at != 0, TimestampTzGetDatum(session.last_error_at));
	row_add(&row, Int64GetDatum(pg_atomic_read_u64(&stats_shared->requests)));
	row_add(&row, us_interval(pg_atomic_read_u64(&stats_shared->request_us)));
	row_add(&row, Int64GetDatum(pg_atomic_read_u64(&stats_shared->request_errors)));
	return row_return(fcinfo, &row);
}

/* Returns the numbers of waits, by their length. */
static Datum
histogram(const StatsWaits *waits)
{
	Datum elements[STATS_BUCKETS];

	for (int i = 0; i < STATS_BUCKETS; i++)
		elements[i] = Int64GetDatum(waits->histogram[i]);
	return PointerGetDatum(construct_array(elements, STATS_BUCKETS, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Returns the upper bounds of the buckets of waits, in seconds. */
static Datum
histogram_bounds(void)
{
	Datum elements[STATS_BUCKETS];

	for (int i = 0; i < STATS_BUCKETS - 1; i++)
		elements[i] = Float8GetDatum(stats_wait_bounds_us[i] / 1e6);
	elements[STATS_BUCKETS - 1] = Float8GetDatum(get_float8_infinity());
	return PointerGetDatum(construct_array(elements, STATS_BUCKETS, FLOAT8OID, sizeof(float8),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * zk_stats() returns setof record
 *
 * Shows the locks and waits of this server: one row for each kind and mode.
 */
Datum
zk_stats(PG_FUNCTION_ARGS)
{
	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int kind = 0; kind < STATS_KINDS; kind++)
	{
		StatsWaits waits = stats_waits(kind);
		uint64	   reentrant = stats_counter(kind, STATS_REENTRANT);
		Row		   row = {0};

		row_add_text(&row, stats_names[kind].kind);
		row_add_text(&row, stats_names[kind].mode);
		row_add(&row, Int64GetDatum(reentrant + waits.ends[STATS_WAIT_GRANTED] +
									waits.ends[STATS_WAIT_HANDED_OVER]));
		row_add(&row, Int64GetDatum(reentrant));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_HANDED_OVER]));
		row_add(&row, Int64GetDatum(waits.n));
		row_add(&row, us_interval(stats_counter(kind, STATS_WAIT_US)));
		row_add(&row, us_interval(stats_counter(kind, STATS_HOLD_US)));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_TIMEOUT]));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_BUSY]));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_CANCELLED]));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_DEADLOCK]));
		row_add(&row, Int64GetDatum(waits.ends[STATS_WAIT_FAILED]));
		row_add(&row, Int64GetDatum(stats_counter(kind, STATS_LOSSES)));
		row_add(&row, histogram(&waits));
		row_add(&row, histogram_bounds());
		row_add(&row, TimestampTzGetDatum(pg_atomic_read_u64(&stats_shared->reset_at)));
		row_store(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * zk_stats_reset() returns void
 *
 * Resets all counts of zk_stats to 0.
 */
Datum
zk_stats_reset(PG_FUNCTION_ARGS)
{
	zklock_require_preload();
	argument_require_administrator(ROLE_PG_MONITOR, "reset statistics");
	stats_reset();
	PG_RETURN_VOID();
}
