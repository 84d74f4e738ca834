/*
 * stats_funcs.c
 *		SQL functions behind the views of statistics, and the reset.
 *
 * Everyone may see the totals, as in PostgreSQL's own statistics.  Paths may tell
 * secrets: the ranking is for members of pg_monitor.  Privileges are in the script
 * of the extension.
 *
 * Runs in: backends.  shared/stats.c counts, and says what can be relied on.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "backend/display.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "funcapi.h"
#include "shared/shmem.h"
#include "shared/stats.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_stats);
PG_FUNCTION_INFO_V1(zk_stats_session);
PG_FUNCTION_INFO_V1(zk_stats_paths);
PG_FUNCTION_INFO_V1(zk_stats_wait_bounds);
PG_FUNCTION_INFO_V1(zk_stats_reset);

#define ZK_STATS_COLUMNS 17
#define ZK_STATS_SESSION_COLUMNS 6
#define ZK_STATS_PATHS_COLUMNS 7

/* So many of the paths that are followed are shown. */
#define PATHS_SHOWN 100

static Datum
us_interval(uint64 us)
{
	Interval *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return IntervalPGetDatum(interval);
}

static Datum
text_or_null(const char *value, bool *isnull)
{
	*isnull = value == NULL;
	return *isnull ? (Datum) 0 : CStringGetTextDatum(value);
}

static Datum
histogram(const uint64 *counts)
{
	Datum elements[STATS_BUCKETS];

	for (int i = 0; i < STATS_BUCKETS; i++)
		elements[i] = Int64GetDatum(counts[i]);
	return PointerGetDatum(construct_array(elements, STATS_BUCKETS, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * zk_stats() returns setof record
 *
 * One row for each kind and mode.
 */
Datum
zk_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	StatsCounts	   counts;
	TimestampTz	   reset_at;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	stats_read(&counts, &reset_at);
	for (int kind = 0; kind < STATS_KINDS; kind++)
	{
		const uint64 *of_kind = counts.of_kind[kind];
		Datum		  values[ZK_STATS_COLUMNS];
		bool		  nulls[ZK_STATS_COLUMNS] = {0};

		values[0] = CStringGetTextDatum(stats_kind_name(kind));
		values[1] = text_or_null(stats_mode_name(kind), &nulls[1]);
		values[2] = Int64GetDatum(of_kind[STATS_ACQUISITIONS]);
		values[3] = Int64GetDatum(of_kind[STATS_REENTRANT]);
		values[4] = Int64GetDatum(of_kind[STATS_HANDED_OVER]);
		values[5] = Int64GetDatum(of_kind[STATS_KEPT]);
		values[6] = Int64GetDatum(of_kind[STATS_WAITS]);
		values[7] = us_interval(of_kind[STATS_WAIT_US]);
		values[8] = us_interval(of_kind[STATS_HOLD_US]);
		values[9] = Int64GetDatum(of_kind[STATS_TIMEOUTS]);
		values[10] = Int64GetDatum(of_kind[STATS_BUSY]);
		values[11] = Int64GetDatum(of_kind[STATS_CANCELS]);
		values[12] = Int64GetDatum(of_kind[STATS_DEADLOCKS]);
		values[13] = Int64GetDatum(of_kind[STATS_FAILURES]);
		values[14] = Int64GetDatum(of_kind[STATS_LOSSES]);
		values[15] = histogram(of_kind + STATS_HISTOGRAM);
		values[16] = TimestampTzGetDatum(reset_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * zk_stats_session() returns record
 *
 * What was asked of ZooKeeper, in one row.
 */
Datum
zk_stats_session(PG_FUNCTION_ARGS)
{
	StatsCounts counts;
	TimestampTz reset_at;
	Datum		values[ZK_STATS_SESSION_COLUMNS];
	bool		nulls[ZK_STATS_SESSION_COLUMNS] = {0};
	TupleDesc	tupdesc;

	zklock_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	stats_read(&counts, &reset_at);
	values[0] = Int64GetDatum(counts.of_session[STATS_REQUESTS]);
	values[1] = us_interval(counts.of_session[STATS_REQUEST_US]);
	values[2] = Int64GetDatum(counts.of_session[STATS_ERRORS]);
	values[3] = Int64GetDatum(counts.of_session[STATS_RECONNECTS]);
	values[4] = Int64GetDatum(counts.of_session[STATS_EXPIRATIONS]);
	values[5] = TimestampTzGetDatum(reset_at);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

/* Orders ranks by how long their paths may have been waited for, the longest first. */
static int
compare_ranks(const void *a, const void *b)
{
	const StatsRank *rank_a = a;
	const StatsRank *rank_b = b;
	uint64			 us_a = rank_a->wait_us + rank_a->before_us;
	uint64			 us_b = rank_b->wait_us + rank_b->before_us;

	return us_a > us_b ? -1 : us_a < us_b ? 1 : strcmp(rank_a->path, rank_b->path);
}

/*
 * zk_stats_paths() returns setof record
 *
 * The paths at which sessions have waited longest, these first.
 */
Datum
zk_stats_paths(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	StatsRanking  *ranking;
	int			   shown = 0;
	TimestampTz	   reset_at;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	ranking = palloc(sizeof(StatsRanking));
	stats_read_ranking(ranking, &reset_at);
	qsort(ranking->ranks, STATS_RANKED_PATHS, sizeof(StatsRank), compare_ranks);
	for (int i = 0; i < STATS_RANKED_PATHS && shown < PATHS_SHOWN; i++)
	{
		const StatsRank *rank = &ranking->ranks[i];
		Datum			 values[ZK_STATS_PATHS_COLUMNS];
		bool			 nulls[ZK_STATS_PATHS_COLUMNS] = {0};

		if (rank->path[0] == '\0')
			continue;
		values[0] = CStringGetTextDatum(display_utf8(rank->path));
		values[1] = CStringGetTextDatum(stats_kind_name(rank->kind));
		values[2] = Int64GetDatum(rank->waits);
		values[3] = us_interval(rank->wait_us);
		values[4] = us_interval(rank->longest_us);
		values[5] = us_interval(rank->before_us);
		values[6] = TimestampTzGetDatum(reset_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		shown++;
	}
	return (Datum) 0;
}

/*
 * zk_stats_wait_bounds() returns double precision[]
 *
 * What the waits of each bucket of the histograms do not reach, in seconds; the
 * last is Infinity.
 */
Datum
zk_stats_wait_bounds(PG_FUNCTION_ARGS)
{
	Datum elements[STATS_BUCKETS];

	for (int i = 0; i < STATS_BUCKETS - 1; i++)
		elements[i] = Float8GetDatum(stats_wait_bounds_us[i] / 1e6);
	elements[STATS_BUCKETS - 1] = Float8GetDatum(get_float8_infinity());
	PG_RETURN_ARRAYTYPE_P(construct_array(elements, STATS_BUCKETS, FLOAT8OID, sizeof(float8),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * zk_stats_reset() returns void
 *
 * All counts begin at 0 again.
 */
Datum
zk_stats_reset(PG_FUNCTION_ARGS)
{
	zklock_require_preload();
	stats_reset();
	PG_RETURN_VOID();
}
