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
 * functions.  What is attached to the table would run with the rights of the function's
 * owner, so zk_fence() refuses to write to a table that is not as the extension made it.  The
 * lock under which it looks is that of the write: until the transaction ends, nobody attaches
 * anything.
 *
 * A trigger lets nobody but zk_fence() and the table's owner change a row, whatever has been
 * granted; but TRIGGER is enough to replace it, after which zk_fence() refuses.  It also drops
 * replicated rows: tokens belong to the data of this database, and not to that of another which
 * gets this one's changes.  Rows that zk_fence() writes pass, also when triggers of replicated
 * tables call it.  The trigger cannot drop a replicated TRUNCATE.
 *
 * Runs in: backends, logical replication workers.  Needs neither the worker of
 * zklock nor shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "backend/hold.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "nodes/makefuncs.h"
#include "replication/logicalworker.h"
#include "sql/arguments.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

COMPAT_FUNCTION_INFO_V1(zk_fence);
COMPAT_FUNCTION_INFO_V1(zk_fences_protect);

#define FENCE_SCHEMA "zk_fencing"
#define FENCE_TABLE FENCE_SCHEMA ".zk_fences"

/* The plans, which are kept for the life of the backend */
static SPIPlanPtr write_plan = NULL;
static SPIPlanPtr read_plan = NULL;

/* True while zk_fence() writes a row, which is this database's own. */
static bool writing_own = false;

/* ------------------------------------------------------------------------
 * The table
 * ------------------------------------------------------------------------
 */

/*
 * Returns what a table has that is not the extension's and that a write would run, or null.
 * Everything but triggers is for its owner to attach.  Others may even replace triggers, but
 * only the owner has one fire ALWAYS, as those of the extension do.
 */
static const char *
foreign_part_of_table(Relation table)
{
	static const Oid types[] = {TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID};
	TupleDesc		 columns = RelationGetDescr(table);
	int				 n_triggers = table->trigdesc == NULL ? 0 : table->trigdesc->numtriggers;

	if (table->rd_rel->relowner != GetUserId())
		return "another owner than zk_fence()";
	for (int i = 0; i < n_triggers; i++)
	{
		const Trigger *trigger = &table->trigdesc->triggers[i];

		if (OidIsValid(trigger->tgconstrrelid))
			return psprintf("a foreign key of table \"%s\"", get_rel_name(trigger->tgconstrrelid));
		if (trigger->tgenabled != TRIGGER_FIRES_ALWAYS)
			return psprintf("a trigger \"%s\"", trigger->tgname);
	}
	if (table->rd_rules != NULL)
		return "a rule";
	if (table->rd_rel->relrowsecurity)
		return "row-level security";
	if (table->rd_rel->relispartition || columns->natts != lengthof(types) ||
		columns->constr == NULL || columns->constr->num_defval > 0 || columns->constr->num_check > 0)
		return "other columns or constraints";
	for (int i = 0; i < columns->natts; i++)
	{
		if (TupleDescAttr(columns, i)->atttypid != types[i])
			return "a column of another type";
	}
	if (list_length(RelationGetIndexList(table)) != 1 || !OidIsValid(table->rd_pkindex))
		return "another index than its primary key";
	return NULL;
}

/* ------------------------------------------------------------------------
 * Fencing
 * ------------------------------------------------------------------------
 */

static SPIPlanPtr
keep_fence_plan(const char *sql)
{
	Oid		   types[] = {TEXTOID, INT8OID, INT8OID};
	SPIPlanPtr plan = SPI_prepare(sql, lengthof(types), types);

	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	return plan;
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

	/* The row is locked even if the condition does not hold. */
	if (write_plan == NULL)
		write_plan = keep_fence_plan("INSERT INTO " FENCE_TABLE " AS f (path, token, fenced_at, fenced_by) "
									 "VALUES ($1, $2, clock_timestamp(), session_user) "
									 "ON CONFLICT (path) DO UPDATE SET token = excluded.token, "
									 "fenced_at = excluded.fenced_at, fenced_by = excluded.fenced_by "
									 "WHERE f.token <= $3");
	writing_own = true;
	PG_TRY();
	{
		result = SPI_execute_plan(write_plan, args, NULL, false, 0);
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

/*
 * Returns the fencing token of the exclusive lock that this session holds on a path for
 * certain; 0 if it holds none, or may have lost it.  Needs no preload.
 */
static int64
proved_token(const char *path)
{
	const Hold *hold = hold_of_lock(path, LOCK_MODE_EXCLUSIVE);
	EntryStatus status;

	/* Read the lease first: a lease that was seen before the lock is its own. */
	if (hold == NULL || lease_state() != LEASE_HOLDS || !hold_stands(hold, &status))
		return 0;
	return status.state == ENTRY_GRANTED ? status.token : 0;
}

/*
 * zk_fence(path text, token bigint) returns void
 *
 * Raises an error if this database has seen a higher token for the path.  Otherwise stores
 * the token, and keeps others out until the transaction ends.
 */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	char	   *path;
	char	   *shown_path;
	int64		token;
	int64		proved;
	int64		seen; /* the token of the row, which this transaction has locked */
	Relation	table;
	const char *part;

	argument_refuse_restricted("use fencing tokens");
	argument_refuse_null(fcinfo, 0, "path");
	argument_refuse_null(fcinfo, 1, "fencing token");
	shown_path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	path = argument_to_path(shown_path, ALLOWED_PATHS_ONLY);
	token = PG_GETARG_INT64(1);
	if (token <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("fencing token must be greater than zero")));
	PreventCommandIfReadOnly("zk_fence()");
	PreventCommandIfParallelMode("zk_fence()");

	/*
	 * A token that is too high would keep all others out for good.  We can recognize one only
	 * if this session holds the lock: its token is then the highest one that exists.
	 */
	proved = proved_token(path);
	if (proved != 0 && token > proved)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("fencing token is not one of ZooKeeper path \"%s\"", shown_path),
						errdetail("The token is %lld, but this session holds the lock with token %lld, and there is no higher one.",
								  (long long) token, (long long) proved),
						errhint("Pass what zk_fencing_token() says for the same path.")));

	/* Lock the table for writing, and against changes, until the transaction ends. */
	table = table_openrv(makeRangeVar(FENCE_SCHEMA, "zk_fences", -1), RowExclusiveLock);
	part = foreign_part_of_table(table);
	if (part != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table %s is not as the extension made it", FENCE_TABLE),
				 errdetail("It has %s.", part),
				 errhint("Code of others could run with the rights of the owner of zk_fence(), and rows may be missing. Undo that, and revoke all privileges on the table but SELECT from others.")));
	table_close(table, NoLock);

	/* Ensure that the row has at least this token, and that this transaction has written it. */
	seen = token;
	SPI_connect();
	if (!write_token(PG_GETARG_DATUM(0), token, token - 1))
	{
		Datum		  args[] = {PG_GETARG_DATUM(0), (Datum) 0, (Datum) 0};
		TransactionId writer;
		bool		  isnull;
		int			  result;

		/*
		 * The row is locked, so it stays as we see it.  What this transaction has written is not
		 * written again: zk_fence() may be called for each row of a table.
		 */
		if (read_plan == NULL)
			read_plan =
				keep_fence_plan("SELECT token, xmin FROM ONLY " FENCE_TABLE " WHERE path = $1");
		result = SPI_execute_plan(read_plan, args, " nn", false, 0);
		if (result != SPI_OK_SELECT || SPI_processed != 1)
			elog(ERROR, "could not read a fencing token: %s", SPI_result_code_string(result));
		seen = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		writer = DatumGetTransactionId(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
		if (seen == token && !TransactionIdIsCurrentTransactionId(writer))
			write_token(PG_GETARG_DATUM(0), token, token);
	}
	SPI_finish();
	if (seen <= token)
		PG_RETURN_VOID();

	/*
	 * If the session holds the lock with this token, nobody can have got a higher one from
	 * ZooKeeper, and a retry with the next token would fail too.
	 */
	if (proved_token(path) == token)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a fencing token has been seen for ZooKeeper path \"%s\" that ZooKeeper cannot have given yet",
						shown_path),
				 errdetail("This session holds the lock with token %lld, but table %s has token %lld.",
						   (long long) token, FENCE_TABLE, (long long) seen),
				 errhint("A wrong token was given to zk_fence(), or that of another ensemble, or ZooKeeper has been restored from an old copy. Make sure that nobody writes with such a token any more, then delete the path's row from the table, with \"session_replication_role\" set to \"replica\".")));
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("fencing token for ZooKeeper path \"%s\" is stale", shown_path),
					errdetail("The token is %lld, but %lld has been seen.", (long long) token,
							  (long long) seen),
					errhint("Somebody else has got the lock since. Roll back, lock again and do the work again. If every new token is refused, a wrong one is in table %s.",
							FENCE_TABLE)));
}

/*
 * zk_fencing.protect() returns trigger
 *
 * Keeps table zk_fences from all but zk_fence() and its owner, and drops changes that are
 * replicated from another database.
 *
 * A replay uses the mode for replicas.  Not only a replay does: pg_restore may, and its rows
 * must be written.
 */
Datum
zk_fences_protect(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	bool		 replaying = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA &&
					 (IsLogicalWorker() || compat_replays_from_origin());

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("zk_fencing.protect() must be called as a trigger")));
	if (replaying && !writing_own)
		return PointerGetDatum(NULL);
	if (!writing_own && !has_privs_of_role(GetUserId(), trigger->tg_relation->rd_rel->relowner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied for table %s", FENCE_TABLE),
						errdetail("Only zk_fence() and the owner of the table change it.")));
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}
