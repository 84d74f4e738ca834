/*
 * monitor_funcs.c
 *		SQL functions behind the views zk_locks and zk_session.
 *
 * They read shared memory only; see lock_view.c for how consistent that is.
 *
 * Everyone may see what waits and what is held, as in pg_locks, since this is
 * what one's own calls wait for.  Paths, databases and nodes may tell secrets.
 * A user sees those of roles whose privileges it has, as in pg_stat_activity,
 * and those of its own session; members of pg_monitor see all.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "backend/display.h"
#include "backend/hold.h"
#include "backend/lock_view.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "funcapi.h"
#include "recipes/permit_recipe.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/shmem.h"
#include "shared/worker_process.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);

#define LOCK_COLUMNS 17
#define ZK_SESSION_COLUMNS 14

static const char *
state_name(ContenderState state, LeaseState lease)
{
	switch (state)
	{
		case CONTENDER_REQUESTED:
			return "requested";
		case CONTENDER_QUEUED:
			return "waiting";
		case CONTENDER_GRANTED:
			return lease == LEASE_HOLDS		  ? "held"
				   : lease == LEASE_SUSPENDED ? "suspended"
											  : "lost";
		case CONTENDER_KEPT:
			return "kept";
		case CONTENDER_LOST:
			return "lost";
		case CONTENDER_FAILED:
			return "failed";
		case CONTENDER_RELEASING:
			return "releasing";
		case CONTENDER_FREE:
			break;
	}
	return "free";
}

static Datum
text_or_null(const char *value, bool *isnull)
{
	*isnull = value == NULL || value[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(value);
}

/* The path as the user knows it: a semaphore's without that of its nodes. */
static const char *
shown_path(const EntryView *entry)
{
	int suffix = 0;

	if (entry->kind == CONTENDER_TURN)
		suffix = strlen(PERMIT_TURNS);
	else if (entry->kind == CONTENDER_PERMIT)
		suffix = strlen(PERMIT_LEASES);
	return pnstrdup(entry->path, strlen(entry->path) - suffix);
}

/*
 * One permit, one row: does the entry of the permit speak for that of a turn?
 */
static bool
is_spoken_for(const EntryView *turn, const LockView *view)
{
	if (turn->kind != CONTENDER_TURN || turn->state == CONTENDER_REQUESTED || turn->state == CONTENDER_QUEUED)
		return false;
	for (int i = 0; i < view->n; i++)
	{
		const EntryView *entry = &view->entries[i];

		if (entry->kind == CONTENDER_PERMIT && entry->pid == turn->pid &&
			strcmp(shown_path(entry), shown_path(turn)) == 0)
			return true;
	}
	return false;
}

/* May the current user see all of an entry? */
static bool
may_see(const EntryView *entry)
{
	return entry->pid == MyProcPid || has_privs_of_role(GetUserId(), entry->role) ||
		   has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
}

/* The columns of a row that everyone may see: pid, kind, mode and state */
static bool
is_public_column(int column)
{
	return column == 0 || column == 3 || column == 4 || column == 6;
}

static void
put_lock_row(ReturnSetInfo *rsinfo, const EntryView *entry, const LockView *view,
			 LeaseState lease, LockMode mode, LockScope scope, int count)
{
	Datum values[LOCK_COLUMNS];
	bool  nulls[LOCK_COLUMNS] = {0};
	bool  lock = entry->kind == CONTENDER_LOCK;
	bool  turn = entry->kind == CONTENDER_TURN &&
				(entry->state == CONTENDER_GRANTED || entry->state == CONTENDER_LOST);
	bool		waiting = entry->state == CONTENDER_QUEUED || turn;
	bool		granted = entry->state == CONTENDER_GRANTED && lease != LEASE_OVER && !turn;
	LockBlocker blocker = {0};
	const char *path = shown_path(entry);

	if (waiting && !turn)
		blocker = lock_view_blocker(view, entry->run_id, entry->pid);

	values[0] = Int32GetDatum(entry->pid);
	values[1] = text_or_null(get_database_name(entry->database), &nulls[1]);
	/* A path that was locked from this database has a form in its encoding. */
	values[2] = CStringGetTextDatum(entry->database == MyDatabaseId ? display_path(path)
																	: display_utf8(path));
	values[3] = CStringGetTextDatum(lock ? "lock" : "semaphore");
	values[4] = CStringGetTextDatum(mode == LOCK_MODE_EXCLUSIVE ? "exclusive" : "shared");
	nulls[4] = !lock;
	values[5] = CStringGetTextDatum(scope == LOCK_SCOPE_TRANSACTION ? "transaction" : "session");
	values[6] = CStringGetTextDatum(turn ? "waiting" : state_name(entry->state, lease));
	values[7] = BoolGetDatum(granted);
	values[8] = Int32GetDatum(count);
	values[9] = text_or_null(entry->node, &nulls[9]);
	values[10] = Int64GetDatum(entry->token);
	nulls[10] = !granted || !lock;
	values[11] = TimestampTzGetDatum(entry->requested_at);
	nulls[11] = !waiting && entry->state != CONTENDER_REQUESTED;
	values[12] = TimestampTzGetDatum(entry->granted_at);
	nulls[12] = entry->granted_at == 0 || entry->kind == CONTENDER_TURN ||
				entry->state == CONTENDER_KEPT;
	values[13] = TimestampTzGetDatum(entry->expires_at);
	nulls[13] = entry->expires_at == 0 || entry->kind == CONTENDER_TURN;
	values[14] = Int32GetDatum(blocker.pid);
	nulls[14] = blocker.pid == 0;
	nulls[15] = blocker.node == NULL;
	values[15] = blocker.node ? CStringGetTextDatum(display_utf8(blocker.node)) : (Datum) 0;
	nulls[16] = blocker.owner == NULL;
	values[16] = blocker.owner ? CStringGetTextDatum(display_utf8(blocker.owner)) : (Datum) 0;
	if (!may_see(entry))
	{
		for (int i = 0; i < LOCK_COLUMNS; i++)
			nulls[i] |= !is_public_column(i);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_locks() returns setof record
 *
 * The locks of this server: one row for each contender and mode and scope of its
 * acquisitions.
 */
Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	LockView	   view;
	LeaseState	   lease;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	lock_view_take(&view);
	lease = lease_state();
	for (int i = 0; i < view.n; i++)
	{
		const EntryView *entry = &view.entries[i];

		if (is_spoken_for(entry, &view) || entry->kind == CONTENDER_CANDIDACY)
			continue;
		if (entry->session_count > 0)
			put_lock_row(rsinfo, entry, &view, lease, entry->mode, LOCK_SCOPE_SESSION,
						 entry->session_count);
		if (entry->transaction_count > 0)
			put_lock_row(rsinfo, entry, &view, lease, entry->mode, LOCK_SCOPE_TRANSACTION,
						 entry->transaction_count);
		if (entry->shared_session_count > 0)
			put_lock_row(rsinfo, entry, &view, lease, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION,
						 entry->shared_session_count);
		if (entry->shared_transaction_count > 0)
			put_lock_row(rsinfo, entry, &view, lease, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION,
						 entry->shared_transaction_count);
		if (entry->session_count == 0 && entry->transaction_count == 0)
			put_lock_row(rsinfo, entry, &view, lease, entry->mode, entry->scope, 0);
	}
	return (Datum) 0;
}

static const char *
session_state_name(const SessionInfo *session, int worker_pid)
{
	if (worker_pid == 0)
		return "no worker";
	switch (session->state)
	{
		case SESSION_CONNECTING:
			return "connecting";
		case SESSION_CONNECTED:
			return "connected";
		case SESSION_AUTH_FAILED:
			return "authentication failed";
		case SESSION_DOWN:
			break;
	}
	return "down";
}

/* Microseconds as an interval. */
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
 * The state of the ZooKeeper session, in one row.
 */
Datum
zk_session(PG_FUNCTION_ARGS)
{
	SessionInfo session;
	int			worker_pid;
	Datum		values[ZK_SESSION_COLUMNS] = {0};
	bool		nulls[ZK_SESSION_COLUMNS] = {0};
	bool		connected;
	TupleDesc	tupdesc;

	zklock_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	session_info_read(&session);
	worker_pid = zklock_worker_pid();
	connected = worker_pid != 0 && session.state == SESSION_CONNECTED;

	values[0] = CStringGetTextDatum(session_state_name(&session, worker_pid));
	values[1] = text_or_null(connected ? session.server : NULL, &nulls[1]);
	if (session.id != 0)
		values[2] = CStringGetTextDatum(psprintf("0x%llx", (unsigned long long) session.id));
	else
		nulls[2] = true;
	values[3] = us_interval(INT64CONST(1000) * session.negotiated_timeout);
	nulls[3] = session.negotiated_timeout == 0;
	values[4] = us_interval(lease_remaining_us());
	nulls[4] = session.id == 0;
	values[5] = TimestampTzGetDatum(session.connected_since);
	nulls[5] = !connected;
	values[6] = Int32GetDatum(worker_pid);
	nulls[6] = worker_pid == 0;
	values[7] = Int64GetDatum(session.reconnects);
	values[8] = Int64GetDatum(session.expirations);
	values[9] = Int32GetDatum(entries_max());
	values[10] = Int32GetDatum(entries_in_use());
	nulls[11] = session.obstacle[0] == '\0';
	values[11] = nulls[11] ? (Datum) 0 : CStringGetTextDatum(display_utf8(session.obstacle));
	nulls[12] = session.last_error[0] == '\0';
	values[12] = nulls[12] ? (Datum) 0 : CStringGetTextDatum(display_utf8(session.last_error));
	values[13] = TimestampTzGetDatum(session.last_error_at);
	nulls[13] = session.last_error_at == 0;
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}
