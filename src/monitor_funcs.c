/*
 * monitor_funcs.c
 *		SQL functions behind the views zk_locks and zk_session.
 *
 * They read shared memory only.  Entries are copied one at a time, each under
 * its spinlock, so a row is consistent in itself; rows of one call may be a
 * moment apart, as in pg_stat_activity.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "compat.h"
#include "lease.h"
#include "mb/pg_wchar.h"
#include "shmem.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "zklock.h"

PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);

#define ZK_LOCKS_COLUMNS 15
#define ZK_SESSION_COLUMNS 11

/* What the contenders of one run tell about it. */
typedef struct RunView
{
	uint64 id;		   /* hash key */
	int	   holder_pid; /* 0 if it is not granted */
	int	   head_pid;   /* of the first that waits */
	uint64 head_ticket;
	uint64 blocked_by_run;
	char   blocked_by_node[ZKLOCK_NODE_SIZE];
} RunView;

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

/*
 * UTF-8 as text in the database's encoding.  A path locked from a database of
 * another encoding, or a foreign node's name, may have no form in ours: its
 * bytes are escaped then, so that it does not make the view fail for everybody.
 */
static Datum
utf8_text(const char *utf8, bool convertible)
{
	StringInfoData escaped;

	if (convertible ||
		(GetDatabaseEncoding() == PG_UTF8 && pg_verify_mbstr(PG_UTF8, utf8, strlen(utf8), true)))
		return CStringGetTextDatum(pg_any_to_server(utf8, strlen(utf8), PG_UTF8));

	initStringInfo(&escaped);
	for (const char *c = utf8; *c != '\0'; c++)
	{
		if (IS_HIGHBIT_SET(*c))
			appendStringInfo(&escaped, "\\x%02x", (unsigned char) *c);
		else
			appendStringInfoChar(&escaped, *c);
	}
	return CStringGetTextDatum(escaped.data);
}

/* Copies the entries in use. */
static ContenderEntry *
copy_entries(int *n)
{
	int				max = zklock_shared->max_entries;
	int				allocated = 64;
	ContenderEntry *copies = palloc(allocated * sizeof(ContenderEntry));

	*n = 0;
	for (int i = 0; i < max; i++)
	{
		ContenderEntry *entry = entry_at(i);

		if (*n == allocated)
		{
			allocated *= 2;
			copies = repalloc_huge(copies, (Size) allocated * sizeof(ContenderEntry));
		}
		SpinLockAcquire(&entry->mutex);
		if (entry->state != CONTENDER_FREE)
			copies[(*n)++] = *entry;
		SpinLockRelease(&entry->mutex);
	}
	return copies;
}

/* Gathers what is known about runs from their contenders. */
static HTAB *
view_runs(const ContenderEntry *entries, int n)
{
	HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(RunView)};
	HTAB   *runs;

	ctl.hcxt = CurrentMemoryContext;
	runs = hash_create("zklock runs", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < n; i++)
	{
		const ContenderEntry *entry = &entries[i];
		RunView				 *run;
		bool				  found;

		if (entry->run_id == 0)
			continue;
		run = hash_search(runs, &entry->run_id, HASH_ENTER, &found);
		if (!found)
			memset((char *) run + sizeof(run->id), 0, sizeof(RunView) - sizeof(run->id));
		if (entry->state == CONTENDER_GRANTED)
			run->holder_pid = entry->pid;
		else if (entry->state == CONTENDER_QUEUED &&
				 (run->head_pid == 0 || entry->ticket < run->head_ticket))
		{
			run->head_pid = entry->pid;
			run->head_ticket = entry->ticket;
			run->blocked_by_run = entry->blocked_by_run;
			strlcpy(run->blocked_by_node, entry->blocked_by_node, ZKLOCK_NODE_SIZE);
		}
	}
	return runs;
}

/*
 * Whom a waiting contender waits for: the holder in its own run, else what the
 * run waits for, which is another run of this server or a foreign node.
 */
static void
find_blocker(HTAB *runs, const ContenderEntry *entry, int *pid, const char **node)
{
	RunView *run = hash_search(runs, &entry->run_id, HASH_FIND, NULL);
	RunView *before;

	*pid = 0;
	*node = NULL;
	if (run == NULL)
		return;
	if (run->holder_pid != 0)
	{
		*pid = run->holder_pid;
		return;
	}
	if (run->blocked_by_node[0] != '\0')
		*node = run->blocked_by_node;
	before = hash_search(runs, &run->blocked_by_run, HASH_FIND, NULL);
	if (before)
		*pid = before->holder_pid != 0 ? before->holder_pid : before->head_pid;
}

static Datum
text_or_null(const char *value, bool *isnull)
{
	*isnull = value == NULL || value[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(value);
}

static void
put_lock_row(ReturnSetInfo *rsinfo, const ContenderEntry *entry, HTAB *runs, LeaseState lease,
			 bool transaction_level, int count)
{
	Datum		values[ZK_LOCKS_COLUMNS];
	bool		nulls[ZK_LOCKS_COLUMNS] = {0};
	bool		waiting = entry->state == CONTENDER_QUEUED;
	bool		granted = entry->state == CONTENDER_GRANTED && lease != LEASE_OVER;
	int			blocker_pid = 0;
	const char *blocker_node = NULL;

	if (waiting)
		find_blocker(runs, entry, &blocker_pid, &blocker_node);

	values[0] = Int32GetDatum(entry->pid);
	values[1] = text_or_null(get_database_name(entry->database), &nulls[1]);
	values[2] = utf8_text(entry->path, entry->database == MyDatabaseId);
	values[3] = CStringGetTextDatum("lock");
	values[4] = CStringGetTextDatum(entry->mode == LOCK_MODE_EXCLUSIVE ? "exclusive" : "shared");
	values[5] = CStringGetTextDatum(transaction_level ? "transaction" : "session");
	values[6] = CStringGetTextDatum(state_name(entry->state, lease));
	values[7] = BoolGetDatum(granted);
	values[8] = Int32GetDatum(count);
	values[9] = text_or_null(entry->node, &nulls[9]);
	values[10] = Int64GetDatum(entry->token);
	nulls[10] = !granted;
	values[11] = TimestampTzGetDatum(entry->requested_at);
	nulls[11] = !waiting && entry->state != CONTENDER_REQUESTED;
	values[12] = TimestampTzGetDatum(entry->granted_at);
	nulls[12] = entry->granted_at == 0;
	values[13] = Int32GetDatum(blocker_pid);
	nulls[13] = blocker_pid == 0;
	nulls[14] = blocker_node == NULL;
	values[14] = blocker_node ? utf8_text(blocker_node, false) : (Datum) 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_locks() returns setof record
 *
 * One row for each contender of this server and scope of its acquisitions.
 */
Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo  *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ContenderEntry *entries;
	HTAB		   *runs;
	int				n;
	LeaseState		lease;

	zklock_require_preload();
	compat_init_materialized_srf(fcinfo);
	entries = copy_entries(&n);
	runs = view_runs(entries, n);
	lease = lease_state();
	for (int i = 0; i < n; i++)
	{
		const ContenderEntry *entry = &entries[i];

		if (entry->session_count > 0)
			put_lock_row(rsinfo, entry, runs, lease, false, entry->session_count);
		if (entry->transaction_count > 0)
			put_lock_row(rsinfo, entry, runs, lease, true, entry->transaction_count);
		if (entry->session_count == 0 && entry->transaction_count == 0)
			put_lock_row(rsinfo, entry, runs, lease, entry->transaction_level, 0);
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
	zklock_get_session(&session, &worker_pid);
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
	nulls[9] = session.last_error[0] == '\0';
	values[9] = nulls[9] ? (Datum) 0 : utf8_text(session.last_error, false);
	values[10] = TimestampTzGetDatum(session.last_error_at);
	nulls[10] = session.last_error_at == 0;
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}
