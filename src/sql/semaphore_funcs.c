/*
 * semaphore_funcs.c
 *		SQL functions for semaphores.
 *
 * They check their arguments and call the functions of backend/permit.c.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/lock.h"
#include "sql/arguments.h"

COMPAT_FUNCTION_INFO_V1(zk_semaphore_acquire);
COMPAT_FUNCTION_INFO_V1(zk_xact_semaphore_acquire);
COMPAT_FUNCTION_INFO_V1(zk_semaphore_release);

/* Checks the path argument of a function and returns it in UTF-8. */
static char *
semaphore_argument(FunctionCallInfo fcinfo, PathRule rule)
{
	return argument_path_above(fcinfo, rule, "a semaphore", ZKLOCK_MAX_SEMAPHORE_PATH);
}

static Datum
acquire_permit(FunctionCallInfo fcinfo, LockScope scope)
{
	char *path = semaphore_argument(fcinfo, ALLOWED_PATHS_ONLY);
	int64 timeout_ms;

	argument_refuse_null(fcinfo, 1, "number of permits");
	if (PG_GETARG_INT32(1) < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("number of permits must be at least 1")));
	argument_check_scope(fcinfo, scope);
	timeout_ms = argument_timeout(fcinfo, 2);
	PG_RETURN_BOOL(permit_acquire(path, PG_GETARG_INT32(1), scope, timeout_ms));
}

/*
 * zk_semaphore_acquire(path text, permits int, timeout interval) returns boolean
 *
 * Acquires one more permit of a semaphore that has "permits" of them.  With a timeout of
 * NULL it waits for ever, with '0' not at all.  Returns true if it holds one, and false if
 * the timeout has passed.
 */
Datum
zk_semaphore_acquire(PG_FUNCTION_ARGS)
{
	return acquire_permit(fcinfo, LOCK_SCOPE_SESSION);
}

/*
 * zk_xact_semaphore_acquire(path text, permits int, timeout interval) returns boolean
 *
 * Acquires a permit that is released with the transaction.
 */
Datum
zk_xact_semaphore_acquire(PG_FUNCTION_ARGS)
{
	return acquire_permit(fcinfo, LOCK_SCOPE_TRANSACTION);
}

/*
 * zk_semaphore_release(path text) returns boolean
 *
 * Releases one permit that is held at session level.  Returns false, with a warning, if the
 * session held none or the permit was lost.
 */
Datum
zk_semaphore_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(permit_release(semaphore_argument(fcinfo, ANY_PATH)));
}
