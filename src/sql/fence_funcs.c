/*
 * fence_funcs.c
 *		zk_fence(): refuses stale fencing tokens in this database.
 *
 * Table zk_fences has a row for each path, with the highest token seen.  Each
 * transaction that fences the path updates the row, unless its token is too
 * old.  Thus:
 *
 * - They run one after the other, since the row stays locked until the end.
 *   One with an older token that had to wait for a newer one is refused when
 *   that has committed.
 * - Where the snapshot is the transaction's (REPEATABLE READ and above), it
 *   shows what all those before have written, or else PostgreSQL refuses the
 *   update.  That is why the same token is written again: from a mere lock a
 *   later transaction, with a newer token, could not tell.
 *
 * zk_fence() is SECURITY DEFINER: its caller may not touch the table by other
 * means.  For names of operators and functions it relies on the search_path
 * it is defined with.  The table is in the function's own schema, wherever
 * the extension has been moved, and is always named with it.
 *
 * Runs in: backends.  Needs neither the worker nor shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/spi.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "zklock.h"

PG_FUNCTION_INFO_V1(zk_fence);

/*
 * The statements, kept for the life of the backend.  Names in a kept plan are
 * looked up again when something has changed.  Should the extension have been
 * moved, its old schema may by now be anybody's: hence schema, which says
 * where the plans look.
 */
static struct
{
	char	   schema[NAMEDATALEN]; /* empty if there are no plans */
	SPIPlanPtr write;
	SPIPlanPtr read;
} plans;

static void
free_plan(SPIPlanPtr *plan)
{
	if (*plan != NULL)
		SPI_freeplan(*plan);
	*plan = NULL;
}

static SPIPlanPtr
keep_plan(const char *sql)
{
	Oid		   types[] = {TEXTOID, INT8OID, BOOLOID};
	SPIPlanPtr plan = SPI_prepare(sql, lengthof(types), types);

	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	return plan;
}

/* Makes the plans for the schema of a function. */
static void
prepare_plans(Oid function)
{
	char	   *schema = get_namespace_name(get_func_namespace(function));
	const char *table;

	if (schema == NULL)
		elog(ERROR, "cache lookup failed for the schema of function %u", function);
	if (strcmp(schema, plans.schema) == 0)
		return;

	plans.schema[0] = '\0';
	free_plan(&plans.write);
	free_plan(&plans.read);
	table = quote_qualified_identifier(schema, "zk_fences");
	/* The row is locked even if the condition does not hold. */
	plans.write = keep_plan(psprintf("INSERT INTO %s AS f (path, token, fenced_at, fenced_by) "
									 "VALUES ($1, $2, clock_timestamp(), session_user) "
									 "ON CONFLICT (path) DO UPDATE SET token = excluded.token, "
									 "fenced_at = excluded.fenced_at, fenced_by = excluded.fenced_by "
									 "WHERE f.token < excluded.token "
									 "OR f.token = excluded.token AND $3",
									 table));
	plans.read = keep_plan(psprintf("SELECT token, xmin FROM %s WHERE path = $1", table));
	strlcpy(plans.schema, schema, sizeof(plans.schema));
}

/*
 * Writes a token if it is higher than that of the row, or if even_same and it
 * is the same.  Locks the row in any case.  Returns whether it has written.
 */
static bool
write_token(Datum path, int64 token, bool even_same)
{
	Datum args[] = {path, Int64GetDatum(token), BoolGetDatum(even_same)};
	int	  result = SPI_execute_plan(plans.write, args, NULL, false, 0);

	if (result != SPI_OK_INSERT)
		elog(ERROR, "could not write a fencing token: %s", SPI_result_code_string(result));
	return SPI_processed == 1;
}

/* Reads the token of a row, and which transaction wrote the row. */
static int64
read_token(Datum path, TransactionId *writer)
{
	Datum args[] = {path, (Datum) 0, (Datum) 0};
	bool  isnull;
	int	  result = SPI_execute_plan(plans.read, args, " nn", false, 0);

	if (result != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not read a fencing token: %s", SPI_result_code_string(result));
	*writer = DatumGetTransactionId(
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Sees to it that the row of a path has at least this token, and that this
 * transaction has written it.  Returns the token it has; if that is higher,
 * the row is only locked.
 */
static int64
advance_token(Datum path, int64 token)
{
	int64		  seen;
	TransactionId writer;

	if (write_token(path, token, false))
		return token;

	/*
	 * The row is locked: it stays as we see it.  What this transaction has
	 * written need not be written again, for each row of a table perhaps.
	 */
	seen = read_token(path, &writer);
	if (seen == token && !TransactionIdIsCurrentTransactionId(writer))
		write_token(path, token, true);
	return seen;
}

/*
 * zk_fence(path text, token bigint) returns void
 *
 * Raises an error if this database has seen a higher token for the path, else
 * remembers the token and keeps others out until the transaction ends.
 */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	int64 token;
	int64 seen;

	zklock_require_preload();
	refuse_restricted_operation("use fencing tokens");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("path must not be null")));
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("fencing token must not be null")));
	(void) check_path(PG_GETARG_TEXT_PP(0), true);
	token = PG_GETARG_INT64(1);
	if (token <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("fencing token must be greater than zero")));
	PreventCommandIfReadOnly("zk_fence()");
	PreventCommandIfParallelMode("zk_fence()");

	SPI_connect();
	prepare_plans(fcinfo->flinfo->fn_oid);
	seen = advance_token(PG_GETARG_DATUM(0), token);
	SPI_finish();

	if (seen > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("fencing token for ZooKeeper path \"%s\" is stale",
						text_to_cstring(PG_GETARG_TEXT_PP(0))),
				 errdetail("The token is %lld, but %lld has been seen.", (long long) token,
						   (long long) seen),
				 errhint("Somebody else has got the lock since. Roll back, lock again and do the work again.")));
	PG_RETURN_VOID();
}
