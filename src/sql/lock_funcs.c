/*
 * lock_funcs.c
 *		SQL functions that lock and unlock.
 *
 * They check their arguments and call backend.c.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/backend.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "shared/clock.h"
#include "shared/settings.h"
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

static int
compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/*
 * The paths argument of a function: checked, in UTF-8, each once, in the one
 * order in which everybody locks several paths.
 */
static char **
paths_argument(FunctionCallInfo fcinfo, bool to_lock, int *npaths)
{
	ArrayType *array;
	Datum	  *elements;
	bool	  *nulls;
	int		   n;
	char	 **paths;
	int		   unique = 0;

	require_lock_holder();
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

	paths = palloc(n * sizeof(char *));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("path array must not contain nulls")));
		paths[i] = check_path(DatumGetTextPP(elements[i]), to_lock);
	}
	qsort(paths, n, sizeof(char *), compare_paths);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || strcmp(paths[i], paths[unique - 1]) != 0)
			paths[unique++] = paths[i];
	}
	*npaths = unique;
	return paths;
}

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

static Datum
lock_one(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	char *path = path_argument(fcinfo, true);
	int64 timeout_ms = interval_argument(fcinfo, 1);

	PG_RETURN_BOOL(backend_lock(path, mode, scope, timeout_ms));
}

static Datum
try_lock_one(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	PG_RETURN_BOOL(backend_lock(path_argument(fcinfo, true), mode, scope, LOCK_NO_WAIT));
}

/* Locks all paths, or none if the timeout passes or an error occurs. */
static Datum
lock_all(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	int			  npaths;
	char		**paths = paths_argument(fcinfo, true, &npaths);
	int64		  timeout_ms = interval_argument(fcinfo, 1);
	int64		  start = zklock_now_ms();
	volatile int  locked = 0;
	volatile bool all = true;

	PG_TRY();
	{
		while (all && locked < npaths)
		{
			int64 left = timeout_ms;

			/* The last wait may end a little late, but is not a try-lock. */
			if (timeout_ms > 0)
				left = Max(timeout_ms - (zklock_now_ms() - start), 1);
			all = backend_lock(paths[locked], mode, scope, left);
			if (all)
				locked++;
		}
	}
	PG_CATCH();
	{
		while (locked > 0)
			backend_undo_lock(paths[--locked], mode, scope);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!all)
	{
		while (locked > 0)
			backend_undo_lock(paths[--locked], mode, scope);
	}
	PG_RETURN_BOOL(all);
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
 * Acquires a shared session-level lock.  Who holds the path exclusively is
 * granted at once.
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

/* True if all were held. */
static Datum
unlock_all_of(FunctionCallInfo fcinfo, LockMode mode)
{
	int	   npaths;
	char **paths = paths_argument(fcinfo, false, &npaths);
	bool   all = true;

	for (int i = npaths - 1; i >= 0; i--)
		all &= backend_unlock(paths[i], mode);
	PG_RETURN_BOOL(all);
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
	PG_RETURN_BOOL(backend_unlock(path_argument(fcinfo, false), LOCK_MODE_EXCLUSIVE));
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
	PG_RETURN_BOOL(backend_unlock(path_argument(fcinfo, false), LOCK_MODE_SHARED));
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
	(void) fcinfo;
	require_lock_holder();
	backend_unlock_all();
	PG_RETURN_VOID();
}

/*
 * zk_fencing_token(path text) returns bigint
 *
 * A number that increases from one exclusive grant of the path to the next,
 * for ever and over all servers.
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(backend_fencing_token(path_argument(fcinfo, false)));
}
