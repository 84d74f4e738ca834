/*
 * fence_funcs.c
 *		zk_fence(): refuses stale fencing tokens in this database.
 *
 * Table zk_fences has a row for each path, with the highest token seen.  Each transaction
 * that fences the path updates the row, unless its token is too old.  Thus:
 *
 * - These transactions run one after the other, because the row stays locked until the
 *   end.  One that has an older token, and had to wait for one with a newer token, is
 *   refused when that one has committed.
 * - Where one snapshot serves the whole transaction (REPEATABLE READ and above), it shows
 *   what all earlier ones have written, or else PostgreSQL refuses the update.  That is why
 *   a token is written even if the row has it already: if an earlier transaction had only
 *   locked the row, PostgreSQL would not refuse the update of a later one, with a newer
 *   token.
 *
 * zk_fence() is SECURITY DEFINER: its caller may not access the table by other means.  It
 * is defined with a search_path, on which it relies for the names of operators and
 * functions.  The table is in the function's own schema, wherever the extension has been
 * moved, and its name is always qualified with it.
 *
 * Tokens belong to the data of this database, and not to that of another which gets this
 * one's changes.  So a trigger, which fires only where changes are replayed, drops
 * replicated rows of zk_fences.  Rows that zk_fence() writes pass, also when triggers of
 * replicated tables call it.  The trigger cannot drop a replicated TRUNCATE.
 *
 * Runs in: backends, logical replication workers.  Needs neither the worker of
 * zklock nor shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/lock.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/spi.h"
#include "replication/logicalworker.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

COMPAT_FUNCTION_INFO_V1(zk_fence);
COMPAT_FUNCTION_INFO_V1(zk_fences_keep_local);

/*
 * The plans, which are kept for the life of the backend.  PostgreSQL looks up the names in
 * a kept plan again when something has changed.  If the extension has been moved, its old
 * schema may be anybody's by now; so "schema" stores which schema the plans name.
 */
static struct
{
	char	   schema[NAMEDATALEN]; /* empty if there are no plans */
	SPIPlanPtr write;
	SPIPlanPtr read;
} plans;

/* True while zk_fence() writes a row, which is this database's own. */
static bool writing_own = false;

static SPIPlanPtr
keep_plan(const char *sql)
{
	Oid		   types[] = {TEXTOID, INT8OID, INT8OID};
	SPIPlanPtr plan = SPI_prepare(sql, lengthof(types), types);

	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	return plan;
}

/* Makes the plans for the schema of a function, unless they exist. */
static void
prepare_plans(Oid function)
{
	char	   *schema = get_namespace_name(get_func_namespace(function));
	const char *table;

	if (schema == NULL)
		elog(ERROR, "cache lookup failed for the schema of function %u", function);
	if (strcmp(schema, plans.schema) == 0)
		return;

	SPI_freeplan(plans.write);
	SPI_freeplan(plans.read);
	memset(&plans, 0, sizeof(plans));
	table = quote_qualified_identifier(schema, "zk_fences");
	/* The row is locked even if the condition does not hold. */
	plans.write = keep_plan(psprintf("INSERT INTO %s AS f (path, token, fenced_at, fenced_by) "
									 "VALUES ($1, $2, clock_timestamp(), session_user) "
									 "ON CONFLICT (path) DO UPDATE SET token = excluded.token, "
									 "fenced_at = excluded.fenced_at, fenced_by = excluded.fenced_by "
									 "WHERE f.token <= $3",
									 table));
	plans.read = keep_plan(psprintf("SELECT token, xmin FROM %s WHERE path = $1", table));
	strlcpy(plans.schema, schema, sizeof(plans.schema));
}

/*
 * Writes a token if the row has none above "highest".  Locks the row in any case.
 * Returns true if it has written.
 */
static bool
write_token(Datum path, int64 token, int64 highest)
{
	Datum		 args[] = {path, Int64GetDatum(token), Int64GetDatum(highest)};
	volatile int result = 0;

	writing_own = true;
	PG_TRY();
	{
		result = SPI_execute_plan(plans.write, args, NULL, false, 0);
	}
	PG_FINALLY();
	{
		writing_own = false;
	}
	PG_END_TRY();
	if (result != SPI_OK_INSERT)
		elog(ERROR, "could not write a fencing token: %s", SPI_result_code_string(result));
	return SPI_processed == 1;
}

/* Returns the token of a row, and stores which transaction wrote the row. */
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
 * Ensures that the row of a path has at least this token, and that this transaction has
 * written it.  Returns the token of the row; if that is higher, the row is only locked.
 */
static int64
advance_token(Datum path, int64 token)
{
	int64		  seen;
	TransactionId writer;

	if (write_token(path, token, token - 1))
		return token;

	/*
	 * The row is locked, so it stays as we see it.  What this transaction has written is
	 * not written again: zk_fence() may be called for each row of a table.
	 */
	seen = read_token(path, &writer);
	if (seen == token && !TransactionIdIsCurrentTransactionId(writer))
		write_token(path, token, token);
	return seen;
}

/*
 * Raises the error for a token that is lower than one seen before.  If the session holds
 * the lock with this token, nobody can have got a higher one from ZooKeeper, and a retry
 * with the next token would fail too.
 */
static void
report_lower_token(const char *path, const char *shown_path, int64 token, int64 seen)
{
	const char *table = quote_qualified_identifier(plans.schema, "zk_fences");

	if (lock_proved_token(path) == token)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a fencing token has been seen for ZooKeeper path \"%s\" that ZooKeeper cannot have given yet",
						shown_path),
				 errdetail("This session holds the lock with token %lld, but table %s has token %lld.",
						   (long long) token, table, (long long) seen),
				 errhint("A wrong token was given to zk_fence(), or that of another ensemble, or ZooKeeper has been restored from an old copy. Make sure that nobody writes with such a token any more, then delete the path's row from the table.")));
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("fencing token for ZooKeeper path \"%s\" is stale", shown_path),
					errdetail("The token is %lld, but %lld has been seen.", (long long) token,
							  (long long) seen),
					errhint("Somebody else has got the lock since. Roll back, lock again and do the work again. If every new token is refused, a wrong one is in table %s.",
							table)));
}

/*
 * zk_fence(path text, token bigint) returns void
 *
 * Raises an error if this database has seen a higher token for the path.  Otherwise stores
 * the token, and keeps others out until the transaction ends.
 *
 * A token that is too high would keep all others out for good.  We can recognize one only
 * if this session holds the lock: its token is then the highest one that exists.
 */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	char *path;
	char *shown_path;
	int64 token;
	int64 proved;
	int64 seen;

	argument_refuse_restricted("use fencing tokens");
	argument_refuse_null(fcinfo, 0, "path");
	argument_refuse_null(fcinfo, 1, "fencing token");
	path = argument_to_path(PG_GETARG_TEXT_PP(0), ALLOWED_PATHS_ONLY);
	shown_path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	token = PG_GETARG_INT64(1);
	if (token <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("fencing token must be greater than zero")));
	PreventCommandIfReadOnly("zk_fence()");
	PreventCommandIfParallelMode("zk_fence()");
	proved = lock_proved_token(path);
	if (proved != 0 && token > proved)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("fencing token is not one of ZooKeeper path \"%s\"", shown_path),
						errdetail("The token is %lld, but this session holds the lock with token %lld, and there is no higher one.",
								  (long long) token, (long long) proved),
						errhint("Pass what zk_fencing_token() says for the same path.")));

	SPI_connect();
	prepare_plans(fcinfo->flinfo->fn_oid);
	seen = advance_token(PG_GETARG_DATUM(0), token);
	SPI_finish();

	if (seen > token)
		report_lower_token(path, shown_path, token, seen);
	PG_RETURN_VOID();
}

/*
 * zk_fences_keep_local() returns trigger
 *
 * Drops changes of table zk_fences that are replicated from another database.
 *
 * The trigger is enabled for replicas.  Not only the replay of changes uses that mode:
 * pg_restore may use it too, and its rows must be written.
 */
Datum
zk_fences_keep_local(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	bool		 replaying = IsLogicalWorker() || compat_replays_from_origin();

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("zk_fences_keep_local() must be called as a trigger")));
	if (replaying && !writing_own)
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}
