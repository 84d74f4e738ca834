/*
 * advisory_funcs.c
 *		SQL functions of the extension zklock_advisory: PostgreSQL's advisory lock functions,
 *		over all servers.
 *
 * They have the names, arguments and results of PostgreSQL's, in a schema of their own, so
 * that a program that finds this before pg_catalog in its search_path locks over all servers
 * without being changed.
 *
 * A key is the path of its number, or of its two numbers with a comma between them, below
 * zklock.advisory_path; so the two kinds never meet, as in PostgreSQL.  The lock is like any
 * other on the path.
 *
 * The setting is checked with each path.  A value that is not valid must be an error at each
 * lock: PostgreSQL would ignore it where a session begins, and the lock would be elsewhere.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/lock.h"
#include "mb/pg_wchar.h"
#include "parser/parse_func.h"
#include "shared/settings.h"
#include "sql/arguments.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

COMPAT_FUNCTION_INFO_V1(zk_advisory_unlock_all);

/*
 * Returns the beginning of the paths of this database's keys, which is a path and a slash, in
 * the server's encoding.
 */
static char *
keys_prefix(void)
{
	if (zklock_advisory_path[0] != '\0')
		return psprintf("%s/", zklock_advisory_path);
	return psprintf("/advisory/%s/", get_database_name(MyDatabaseId));
}

/* Checks the path of the key in the arguments, (bigint) or (integer, integer). */
static char *
key_argument(FunctionCallInfo fcinfo, PathRule rule)
{
	char *path;

	argument_require_holder();
	path = PG_NARGS() == 1
			   ? psprintf("%s" INT64_FORMAT, keys_prefix(), PG_GETARG_INT64(0))
			   : psprintf("%s%d,%d", keys_prefix(), PG_GETARG_INT32(0), PG_GETARG_INT32(1));
	return argument_to_path(cstring_to_text(path), rule);
}

/*
 * Returns true if a hold is a lock on a path that a key can have, below the prefix in UTF-8.
 */
static bool
is_of_key(const Hold *hold, const void *prefix)
{
	size_t len = strlen(prefix);

	return hold->kind == REQUEST_LOCK && strncmp(hold->path, prefix, len) == 0 &&
		   hold->path[len + strspn(hold->path + len, "-,0123456789")] == '\0';
}

/* ------------------------------------------------------------------------
 * RESET
 * ------------------------------------------------------------------------
 */

static bool						hooked = false;
static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/*
 * RESET ALL loses a search_path that the session has set itself, and other resets a role that
 * may use the schema.  A pool that then calls pg_advisory_unlock_all() gets PostgreSQL's, and
 * the next client would have the keys of the one before.  So the command fails, which undoes it.
 */
static void
utility_hook_of_keys(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
					 ProcessUtilityContext context, ParamListInfo params,
					 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	const VariableSetStmt *set = (const VariableSetStmt *) pstmt->utilityStmt;
	bool				   resets =
		IsA(set, VariableSetStmt) &&
		(set->kind == VAR_RESET_ALL || set->kind == VAR_RESET || set->kind == VAR_SET_DEFAULT);
	bool  holds_key = false;
	List *name = NIL;
	Oid	  found = InvalidOid;

	if (resets)
	{
		char *prefix = keys_prefix();

		prefix = pg_server_to_any(prefix, strlen(prefix), PG_UTF8);
		for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
			holds_key |= hold_is_acquired_at(hold, LOCK_SCOPE_SESSION) && is_of_key(hold, prefix);
	}
	if (holds_key)
	{
		/* What a program calls that names no schema */
		name = list_make1(makeString("pg_advisory_unlock_all"));
		found = LookupFuncName(name, 0, NULL, true);
	}
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (holds_key && LookupFuncName(name, 0, NULL, true) != found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot reset \"%s\" while the session holds advisory locks over all servers",
						set->kind == VAR_RESET_ALL ? "search_path" : set->name),
				 errdetail("Then pg_advisory_unlock_all() would be PostgreSQL's own, which does not release them."),
				 errhint("Call pg_advisory_unlock_all() first, or use DISCARD ALL, or set \"search_path\" with ALTER ROLE.")));
}

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

/*
 * Acquires the lock of a key.  The SQL functions that wait return void, so they must not return
 * without the lock.
 */
static Datum
acquire_key(FunctionCallInfo fcinfo, LockMode mode, LockScope scope, int64 timeout_ms)
{
	LockTarget target = {.path = key_argument(fcinfo, ALLOWED_PATHS_ONLY), .mode = mode};
	LockSet	   set = {.targets = &target, .n = 1};
	bool	   acquired;

	argument_check_scope(fcinfo, scope);

	/* A session that holds no key needs no hook. */
	if (!hooked)
	{
		prev_ProcessUtility_hook = ProcessUtility_hook;
		ProcessUtility_hook = utility_hook_of_keys;
		hooked = true;
	}
	acquired = lock_acquire(set, scope, timeout_ms);
	if (!acquired && timeout_ms == LOCK_WAIT_FOREVER)
		elog(ERROR, "advisory lock has been waited for and not been acquired");
	PG_RETURN_BOOL(acquired);
}

/*
 * The C function of both signatures of an SQL function.
 *
 *	symbol		its name
 *	timeout		LOCK_WAIT_FOREVER or LOCK_NO_WAIT
 */
#define ADVISORY_FUNCTION(symbol, mode, scope, timeout)                            \
	COMPAT_FUNCTION_INFO_V1(symbol);                                               \
	Datum symbol(PG_FUNCTION_ARGS)                                                 \
	{                                                                              \
		return acquire_key(fcinfo, LOCK_MODE_##mode, LOCK_SCOPE_##scope, timeout); \
	}                                                                              \
	extern int no_such_variable

ADVISORY_FUNCTION(zk_advisory_lock, EXCLUSIVE, SESSION, LOCK_WAIT_FOREVER);
ADVISORY_FUNCTION(zk_advisory_lock_shared, SHARED, SESSION, LOCK_WAIT_FOREVER);
ADVISORY_FUNCTION(zk_advisory_xact_lock, EXCLUSIVE, TRANSACTION, LOCK_WAIT_FOREVER);
ADVISORY_FUNCTION(zk_advisory_xact_lock_shared, SHARED, TRANSACTION, LOCK_WAIT_FOREVER);

ADVISORY_FUNCTION(zk_try_advisory_lock, EXCLUSIVE, SESSION, LOCK_NO_WAIT);
ADVISORY_FUNCTION(zk_try_advisory_lock_shared, SHARED, SESSION, LOCK_NO_WAIT);
ADVISORY_FUNCTION(zk_try_advisory_xact_lock, EXCLUSIVE, TRANSACTION, LOCK_NO_WAIT);
ADVISORY_FUNCTION(zk_try_advisory_xact_lock_shared, SHARED, TRANSACTION, LOCK_NO_WAIT);

/* ------------------------------------------------------------------------
 * Unlocking
 * ------------------------------------------------------------------------
 */

/* The warning is PostgreSQL's. */
static Datum
release_key(FunctionCallInfo fcinfo, LockMode mode)
{
	LockTarget	target = {.path = key_argument(fcinfo, ANY_PATH), .mode = mode};
	LockSet		set = {.targets = &target, .n = 1};
	const Hold *hold = hold_of_lock(target.path, mode);

	if (hold == NULL || hold->acquired[mode][LOCK_SCOPE_SESSION] == 0)
	{
		ereport(WARNING, (errmsg("you don't own a lock of type %s",
								 mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock")));
		PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(lock_release(set));
}

/* The same for unlocking; see ADVISORY_FUNCTION. */
#define ADVISORY_UNLOCK_FUNCTION(symbol, mode)        \
	COMPAT_FUNCTION_INFO_V1(symbol);                  \
	Datum symbol(PG_FUNCTION_ARGS)                    \
	{                                                 \
		return release_key(fcinfo, LOCK_MODE_##mode); \
	}                                                 \
	extern int no_such_variable

ADVISORY_UNLOCK_FUNCTION(zk_advisory_unlock, EXCLUSIVE);
ADVISORY_UNLOCK_FUNCTION(zk_advisory_unlock_shared, SHARED);

/* pg_advisory_unlock_all() returns void: undoes all session-level acquisitions of keys. */
Datum
zk_advisory_unlock_all(PG_FUNCTION_ARGS)
{
	char *prefix;

	argument_require_holder();
	prefix = keys_prefix();
	lock_release_those(is_of_key, pg_server_to_any(prefix, strlen(prefix), PG_UTF8));
	PG_RETURN_VOID();
}
