/*
 * arguments.c
 *		Checks of arguments, and rows of results, for the SQL functions.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/parallel.h"
#include "mb/pg_wchar.h"
#include "sql/arguments.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* Checks a path in the server's encoding and returns it in UTF-8. */
char *
argument_to_path(char *path, PathRule rule)
{
	char		  *utf8 = pg_server_to_any(path, strlen(path), PG_UTF8);
	const char	  *fault = path_check(utf8, strlen(utf8));
	PathListReader reader = {.syntax = PATH_LIST_PATHS, .rest = zklock_allowed_paths};
	PathListItem   item;
	bool		   allowed = rule != ALLOWED_PATHS_ONLY;

	if (fault)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid ZooKeeper path: \"%s\"", zklock_shown(path, strlen(path))),
						errdetail_internal("%s", fault),
						path[0] == '{' ? errhint("To pass several paths, write ARRAY['/a', '/b'], or cast the text to text[].")
									   : 0));

	/* The setting is in the server's encoding, too. */
	while (!allowed && path_list_next(&reader, &item))
		allowed = item.fault == NULL && path_list_covers(&item, path);
	if (!allowed)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for ZooKeeper path \"%s\"", path),
				 errdetail("The path is not in \"zklock.allowed_paths\"."),
				 errhint("Ask an administrator to add the path to the setting, and connect again.")));
	return utf8;
}

/* Raises an error for an argument that must not be null. */
void
argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what)));
}

/*
 * Raises an error in a security-restricted operation, such as ANALYZE.  In one, PostgreSQL
 * calls functions that, for example, the owner of a table has written.  What the session
 * holds, and the paths that it may lock, are those of the user who maintains the table.
 */
void
argument_refuse_restricted(const char *what)
{
	if (InSecurityRestrictedOperation())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot %s within security-restricted operation", what)));
}

/*
 * Raises an error where a session cannot have locks.  In a parallel operation the leader
 * holds them, and parallel workers cannot.
 */
void
argument_require_holder(void)
{
	zklock_require_preload();
	if (IsParallelWorker())
		ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_STATE),
						errmsg("cannot use ZooKeeper locks during a parallel operation")));
	argument_refuse_restricted("use ZooKeeper locks");
}

/*
 * Raises an error unless the user is a superuser or has the privileges of a role.  The
 * EXECUTE privilege is not enough: it is easily granted on all functions of a schema.
 */
void
argument_require_administrator(Oid role, const char *what)
{
	if (!superuser() && !has_privs_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to %s", what),
				 errdetail("Only superusers and roles with privileges of the \"%s\" role may %s.",
						   GetUserNameFromId(role, false), what)));
}

/* Checks the path argument of a function and returns it in UTF-8. */
char *
argument_path(FunctionCallInfo fcinfo, PathRule rule)
{
	argument_require_holder();
	argument_refuse_null(fcinfo, 0, "path");
	return argument_to_path(text_to_cstring(PG_GETARG_TEXT_PP(0)), rule);
}

/*
 * Does the same for the path of something whose nodes' paths are those of entries, and so are
 * longer.
 */
char *
argument_path_above(FunctionCallInfo fcinfo, PathRule rule, const char *what, int longest)
{
	char *path = argument_path(fcinfo, rule);

	if ((int) strlen(path) > longest)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid ZooKeeper path: \"%s\"", display_path(path)),
				 errdetail("The path of %s can have at most %d bytes in UTF-8.", what, longest)));
	return path;
}

/* Returns an interval in milliseconds. */
static double
interval_ms(const Interval *interval)
{
	return interval->time / 1000.0 +
		   (interval->day + (double) interval->month * DAYS_PER_MONTH) * (SECS_PER_DAY * 1000.0);
}

/*
 * Returns a timeout argument of a function, in milliseconds, rounded up.  Even the longest
 * interval, which is infinity, is in the range of an int64.
 */
int64
argument_timeout(FunctionCallInfo fcinfo, int n)
{
	double ms;

	if (PG_ARGISNULL(n))
		return LOCK_WAIT_FOREVER;
	ms = interval_ms(PG_GETARG_INTERVAL_P(n));
	if (ms < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("timeout must not be negative")));
	return (int64) ceil(ms);
}

/*
 * Returns an argument of a function that is the duration of a reservation, in milliseconds,
 * rounded up.
 */
int
argument_duration(FunctionCallInfo fcinfo, int n)
{
	double ms;

	argument_refuse_null(fcinfo, n, "duration");
	ms = interval_ms(PG_GETARG_INTERVAL_P(n));
	if (ms <= 0 || ms > SECS_PER_DAY * 1000.0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("duration must be positive and not longer than a day"),
						errhint("A reservation can be renewed.")));
	return (int) ceil(ms);
}

/* Adds a text, in the database's encoding; NULL if there is none. */
void
row_add_text(Row *row, const char *text)
{
	row_add_if(row, text != NULL, text ? CStringGetTextDatum(text) : (Datum) 0);
}

/* Adds four columns: server, pid, usename and application_name; NULL if they are not known. */
void
row_add_owner(Row *row, const ContenderOwner *owner)
{
	row_add_text(row, owner->server);
	row_add_if(row, owner->pid != 0, Int32GetDatum(owner->pid));
	row_add_text(row, owner->user);
	row_add_text(row, owner->application);
}

/* Adds a time of ZooKeeper, ms since 1970; NULL if it is out of the range of timestamps. */
void
row_add_zk_time(Row *row, int64 ms)
{
	const int64 epoch = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000);
	TimestampTz time = ms > 0 && ms < PG_INT64_MAX / 1000 ? (ms - epoch) * 1000 : DT_NOBEGIN;

	row_add_if(row, IS_VALID_TIMESTAMP(time), TimestampTzGetDatum(time));
}

/* Returns the result of a function that returns one row. */
Datum
row_return(FunctionCallInfo fcinfo, Row *row)
{
	TupleDesc tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(tupdesc->natts == row->n);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), row->values, row->nulls));
}

/* Stores one more row of a function that returns a set, in materialize mode. */
void
row_store(FunctionCallInfo fcinfo, Row *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(rsinfo->setDesc->natts == row->n);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
}
