/*
 * lock_funcs.c
 *		SQL functions that lock and unlock.
 *
 * They check their arguments and call lock.c.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/backend.h"
#include "backend/leadership.h"
#include "backend/lock.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "shared/election.h"
#include "sql/arguments.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_lock_array);
PG_FUNCTION_INFO_V1(zk_xact_lock);
PG_FUNCTION_INFO_V1(zk_xact_lock_array);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_try_xact_lock);
PG_FUNCTION_INFO_V1(zk_lock_shared);
PG_FUNCTION_INFO_V1(zk_lock_shared_array);
PG_FUNCTION_INFO_V1(zk_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_xact_lock_shared_array);
PG_FUNCTION_INFO_V1(zk_try_lock_shared);
PG_FUNCTION_INFO_V1(zk_try_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_array);
PG_FUNCTION_INFO_V1(zk_unlock_shared);
PG_FUNCTION_INFO_V1(zk_unlock_shared_array);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_fencing_token);

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/* The set that consists of the path argument of a function; *target is part of it. */
static LockSet
path_argument(FunctionCallInfo fcinfo, PathRule rule, LockMode mode, LockTarget *target)
{
	*target = (LockTarget){.path = argument_path(fcinfo, rule), .mode = mode};
	return (LockSet){.targets = target, .n = 1};
}

/*
 * The set of the paths in the array argument of a function: checked, each once,
 * in the one order in which everybody locks several paths.
 */
static LockSet
paths_argument(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockSet	   set = {NULL, 0};
	ArrayType *array;
	Datum	  *elements;
	bool	  *nulls;
	int		   n;

	argument_require_holder();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("path array must not be null")));
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
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || lock_compare_targets(&set.targets[i], &set.targets[set.n - 1]) != 0)
			set.targets[set.n++] = set.targets[i];
	}
	return set;
}

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

static Datum
lock_one(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	LockTarget target;
	LockSet	   set = path_argument(fcinfo, ALLOWED_PATHS_ONLY, mode, &target);

	PG_RETURN_BOOL(lock_acquire(&set, scope, argument_timeout(fcinfo, 1)));
}

static Datum
try_lock_one(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	LockTarget target;
	LockSet	   set = path_argument(fcinfo, ALLOWED_PATHS_ONLY, mode, &target);

	PG_RETURN_BOOL(lock_acquire(&set, scope, LOCK_NO_WAIT));
}

static Datum
lock_all(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	LockSet set = paths_argument(fcinfo, ALLOWED_PATHS_ONLY, mode);

	PG_RETURN_BOOL(lock_acquire(&set, scope, argument_timeout(fcinfo, 1)));
}

/*
 * zk_lock(path text, timeout interval) returns boolean
 *
 * Acquires an exclusive session-level lock.  NULL waits for ever, '0' not at
 * all.  True if held, false if the timeout has passed.
 */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	return lock_one(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION);
}

/* zk_lock(paths text[], timeout interval) returns boolean: all or nothing */
Datum
zk_lock_array(PG_FUNCTION_ARGS)
{
	return lock_all(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION);
}

/* zk_xact_lock(path text, timeout interval) returns boolean */
Datum
zk_xact_lock(PG_FUNCTION_ARGS)
{
	return lock_one(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
}

/* zk_xact_lock(paths text[], timeout interval) returns boolean */
Datum
zk_xact_lock_array(PG_FUNCTION_ARGS)
{
	return lock_all(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
}

/* zk_try_lock(path text) returns boolean: never waits for another holder */
Datum
zk_try_lock(PG_FUNCTION_ARGS)
{
	return try_lock_one(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION);
}

/* zk_try_xact_lock(path text) returns boolean */
Datum
zk_try_xact_lock(PG_FUNCTION_ARGS)
{
	return try_lock_one(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
}

/*
 * zk_lock_shared(path text, timeout interval) returns boolean
 *
 * Acquires a shared session-level lock.  A session that holds the path
 * exclusively is granted it at once.
 */
Datum
zk_lock_shared(PG_FUNCTION_ARGS)
{
	return lock_one(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION);
}

/* zk_lock_shared(paths text[], timeout interval) returns boolean: all or nothing */
Datum
zk_lock_shared_array(PG_FUNCTION_ARGS)
{
	return lock_all(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION);
}

/* zk_xact_lock_shared(path text, timeout interval) returns boolean */
Datum
zk_xact_lock_shared(PG_FUNCTION_ARGS)
{
	return lock_one(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION);
}

/* zk_xact_lock_shared(paths text[], timeout interval) returns boolean */
Datum
zk_xact_lock_shared_array(PG_FUNCTION_ARGS)
{
	return lock_all(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION);
}

/* zk_try_lock_shared(path text) returns boolean: never waits for another holder */
Datum
zk_try_lock_shared(PG_FUNCTION_ARGS)
{
	return try_lock_one(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION);
}

/* zk_try_xact_lock_shared(path text) returns boolean */
Datum
zk_try_xact_lock_shared(PG_FUNCTION_ARGS)
{
	return try_lock_one(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION);
}

/* ------------------------------------------------------------------------
 * Unlocking
 * ------------------------------------------------------------------------
 */

static Datum
unlock_one(FunctionCallInfo fcinfo, LockMode mode)
{
	LockTarget target;
	LockSet	   set = path_argument(fcinfo, ANY_PATH, mode, &target);

	PG_RETURN_BOOL(lock_release(&set, RELEASE_ALL_OR_NONE));
}

/* Those that are held are unlocked even if others are not.  True if all were. */
static Datum
unlock_all_of(FunctionCallInfo fcinfo, LockMode mode)
{
	LockSet set = paths_argument(fcinfo, ANY_PATH, mode);

	PG_RETURN_BOOL(lock_release(&set, RELEASE_WHAT_IS_HELD));
}

/*
 * zk_unlock(path text) returns boolean
 *
 * Undoes one session-level acquisition.  False, with a warning, if there was
 * none or the lock was lost.
 */
Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	return unlock_one(fcinfo, LOCK_MODE_EXCLUSIVE);
}

/* zk_unlock(paths text[]) returns boolean: true if all were held */
Datum
zk_unlock_array(PG_FUNCTION_ARGS)
{
	return unlock_all_of(fcinfo, LOCK_MODE_EXCLUSIVE);
}

/* zk_unlock_shared(path text) returns boolean */
Datum
zk_unlock_shared(PG_FUNCTION_ARGS)
{
	return unlock_one(fcinfo, LOCK_MODE_SHARED);
}

/* zk_unlock_shared(paths text[]) returns boolean: true if all were held */
Datum
zk_unlock_shared_array(PG_FUNCTION_ARGS)
{
	return unlock_all_of(fcinfo, LOCK_MODE_SHARED);
}

/* zk_unlock_all() returns void: undoes all session-level acquisitions */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	argument_require_holder();
	backend_release_all();
	PG_RETURN_VOID();
}

/*
 * zk_fencing_token(path text) returns bigint
 *
 * A number that increases from one exclusive grant of the path to the next,
 * for ever and over all servers.  At an election's path it is the term in which
 * this server leads.
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ANY_PATH);

	if (!lock_is_held(path) && election_find(path) != ELECTION_NONE)
		PG_RETURN_INT64(leadership_term(path));
	PG_RETURN_INT64(lock_fencing_token(path));
}
