/*
 * lock_funcs.c
 *		SQL functions that lock and unlock: a path, several paths, or a path in a tree.
 *
 * They check their arguments and call lock_acquire() and lock_release().
 *
 * A session that works on a part of something, such as a partition of a table, must keep
 * others from locking the whole.  So zk_lock_tree() also takes shared locks on the paths
 * above its own, up to but not including the root of the tree: many sessions can work on
 * different parts, and nobody has the whole meanwhile.  Hive locks databases, tables and
 * partitions like this.  The locks are taken from the top down, which is also the order of
 * the paths' bytes, so that these calls and those with an array of paths cannot deadlock
 * with each other.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "catalog/pg_type.h"
#include "lib/qunique.h"
#include "shared/election.h"
#include "shared/settings.h"
#include "sql/arguments.h"
#include "utils/array.h"
#include "utils/builtins.h"

COMPAT_FUNCTION_INFO_V1(zk_unlock_all);
COMPAT_FUNCTION_INFO_V1(zk_fencing_token);

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/* Returns the path argument as a set. */
static LockSet
path_argument(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockTarget *target = palloc(sizeof(LockTarget));

	*target = (LockTarget){.path = argument_path(fcinfo, rule), .mode = mode};
	return (LockSet){.targets = target, .n = 1};
}

/*
 * Returns the paths in the array argument, each once, in the order in which all sessions
 * lock several paths.
 */
static LockSet
paths_argument(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockSet	   set = {0};
	ArrayType *array;
	Datum	  *elements;
	bool	  *nulls;
	int		   n;

	argument_require_holder();
	argument_refuse_null(fcinfo, 0, "path array");
	array = PG_GETARG_ARRAYTYPE_P(0);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("path array must be one-dimensional")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path array must not be empty")));

	set.targets = palloc(n * sizeof(LockTarget));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("path array must not contain nulls")));
		set.targets[i].path = argument_to_path(DatumGetTextPP(elements[i]), rule);
		set.targets[i].mode = mode;
	}
	qsort(set.targets, n, sizeof(LockTarget), lock_compare_targets);
	set.n = qunique(set.targets, n, sizeof(LockTarget), lock_compare_targets);
	return set;
}

/* Returns the paths below the root down to the path argument, which comes last. */
static LockSet
branch_arguments(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockSet branch = {.whole = true};
	char   *path;
	char   *root;
	size_t	root_len;

	(void) argument_path(fcinfo, rule);
	argument_refuse_null(fcinfo, 1, "root");
	path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	root = text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* The root of ZooKeeper ends in a slash; no other path does. */
	root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (root[0] != '/' || strncmp(path, root, root_len) != 0 || path[root_len] != '/')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path \"%s\" is not below root \"%s\"", path,
							   zklock_shown(root, strlen(root))),
						errhint("The root is not locked itself; it can be \"/\".")));

	branch.targets = palloc(strlen(path) * sizeof(LockTarget));
	for (char *end = path + root_len; end != NULL;)
	{
		LockTarget *target = &branch.targets[branch.n++];

		end = strchr(end + 1, '/');
		target->path = argument_to_path(end ? cstring_to_text_with_len(path, end - path)
											: cstring_to_text(path),
										rule);
		target->mode = end ? LOCK_MODE_SHARED : mode;
	}
	return branch;
}

/* ------------------------------------------------------------------------
 * Locking
 *
 * Each function returns true if all locks are held, and false if the timeout has passed.
 * A shared lock on a path that the session holds exclusively is granted at once.
 * ------------------------------------------------------------------------
 */

#define DOES_NOT_WAIT -1

/* Locks a set.  The SQL function's argument number "timeout" limits the wait. */
static Datum
acquire_locks(FunctionCallInfo fcinfo, LockSet set, LockScope scope, int timeout)
{
	argument_check_scope(fcinfo, scope);
	PG_RETURN_BOOL(lock_acquire(set, scope,
								timeout == DOES_NOT_WAIT ? LOCK_NO_WAIT
														 : argument_timeout(fcinfo, timeout)));
}

/*
 * The C function of one signature of an SQL function.
 *
 *	symbol		its name
 *	arguments	the function that reads the set from the arguments
 *	timeout		the number of the argument that is the timeout, or DOES_NOT_WAIT
 */
#define LOCK_FUNCTION(symbol, arguments, mode, scope, timeout)                                \
	COMPAT_FUNCTION_INFO_V1(symbol);                                                          \
	Datum symbol(PG_FUNCTION_ARGS)                                                            \
	{                                                                                         \
		return acquire_locks(fcinfo, arguments(fcinfo, ALLOWED_PATHS_ONLY, LOCK_MODE_##mode), \
							 LOCK_SCOPE_##scope, timeout);                                    \
	}                                                                                         \
	extern int no_such_variable

/* (path text, timeout interval) */
LOCK_FUNCTION(zk_lock_text, path_argument, EXCLUSIVE, SESSION, 1);
LOCK_FUNCTION(zk_xact_lock_text, path_argument, EXCLUSIVE, TRANSACTION, 1);
LOCK_FUNCTION(zk_lock_shared_text, path_argument, SHARED, SESSION, 1);
LOCK_FUNCTION(zk_xact_lock_shared_text, path_argument, SHARED, TRANSACTION, 1);

/* (paths text[], timeout interval) */
LOCK_FUNCTION(zk_lock_array, paths_argument, EXCLUSIVE, SESSION, 1);
LOCK_FUNCTION(zk_xact_lock_array, paths_argument, EXCLUSIVE, TRANSACTION, 1);
LOCK_FUNCTION(zk_lock_shared_array, paths_argument, SHARED, SESSION, 1);
LOCK_FUNCTION(zk_xact_lock_shared_array, paths_argument, SHARED, TRANSACTION, 1);

/* (path text) */
LOCK_FUNCTION(zk_try_lock, path_argument, EXCLUSIVE, SESSION, DOES_NOT_WAIT);
LOCK_FUNCTION(zk_try_xact_lock, path_argument, EXCLUSIVE, TRANSACTION, DOES_NOT_WAIT);
LOCK_FUNCTION(zk_try_lock_shared, path_argument, SHARED, SESSION, DOES_NOT_WAIT);
LOCK_FUNCTION(zk_try_xact_lock_shared, path_argument, SHARED, TRANSACTION, DOES_NOT_WAIT);

/* (path text, root text, timeout interval) */
LOCK_FUNCTION(zk_lock_tree, branch_arguments, EXCLUSIVE, SESSION, 2);
LOCK_FUNCTION(zk_xact_lock_tree, branch_arguments, EXCLUSIVE, TRANSACTION, 2);
LOCK_FUNCTION(zk_lock_tree_shared, branch_arguments, SHARED, SESSION, 2);
LOCK_FUNCTION(zk_xact_lock_tree_shared, branch_arguments, SHARED, TRANSACTION, 2);

/* ------------------------------------------------------------------------
 * Unlocking
 *
 * Each function undoes one session-level acquisition of each path, and returns false, with
 * a warning, if one was not held or was lost.  With an array, it releases the locks that
 * are held; with a tree, all that zk_lock_tree() took, or none.
 * ------------------------------------------------------------------------
 */

/* The same for unlocking; see LOCK_FUNCTION. */
#define UNLOCK_FUNCTION(symbol, arguments, mode)                                     \
	COMPAT_FUNCTION_INFO_V1(symbol);                                                 \
	Datum symbol(PG_FUNCTION_ARGS)                                                   \
	{                                                                                \
		PG_RETURN_BOOL(lock_release(arguments(fcinfo, ANY_PATH, LOCK_MODE_##mode))); \
	}                                                                                \
	extern int no_such_variable

/* (path text) */
UNLOCK_FUNCTION(zk_unlock_text, path_argument, EXCLUSIVE);
UNLOCK_FUNCTION(zk_unlock_shared_text, path_argument, SHARED);

/* (paths text[]) */
UNLOCK_FUNCTION(zk_unlock_array, paths_argument, EXCLUSIVE);
UNLOCK_FUNCTION(zk_unlock_shared_array, paths_argument, SHARED);

/* (path text, root text) */
UNLOCK_FUNCTION(zk_unlock_tree, branch_arguments, EXCLUSIVE);
UNLOCK_FUNCTION(zk_unlock_tree_shared, branch_arguments, SHARED);

/* zk_unlock_all() returns void: undoes all session-level acquisitions. */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	argument_require_holder();
	lock_release_those(NULL, NULL);
	PG_RETURN_VOID();
}

/*
 * zk_fencing_token(path text) returns bigint
 *
 * Returns a number that increases from one exclusive grant of the path to the next, for
 * ever and over all servers.  At an election's path it is the term in which this server
 * leads.
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ANY_PATH);
	int	  election = election_find(path);
	int64 term;

	if (hold_of_lock(path, LOCK_MODE_SHARED) != NULL || election == ELECTION_NONE)
		PG_RETURN_INT64(lock_fencing_token(path));
	if (!transaction_leads(election, &term))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this server does not lead the election at ZooKeeper path \"%s\"",
							   display_path(path)),
						errhint("Use zk_leader() to see who leads.")));
	PG_RETURN_INT64(term);
}
