/*
 * reservation_funcs.c
 *		SQL functions of reservations: locks that the server holds for whoever knows their
 *		tokens.
 *
 * shared/entry.c says what a reservation is.  A user of its token also needs
 * the privileges of the role that made it.  A reservation is known to its server alone; if this
 * one has none of the token, ZooKeeper shows whether another server has.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/contenders.h"
#include "backend/display.h"
#include "backend/hold.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "compat.h"
#include "miscadmin.h"
#include "sql/arguments.h"
#include "utils/acl.h"

COMPAT_FUNCTION_INFO_V1(zk_reserve);
COMPAT_FUNCTION_INFO_V1(zk_renew);
COMPAT_FUNCTION_INFO_V1(zk_rely);
COMPAT_FUNCTION_INFO_V1(zk_unreserve);

/* Raises an error if the node of a token belongs to another server. */
static void
refuse_elsewhere(const char *path, int64 token)
{
	Contenders contenders = {.path = path, .recipe = &lock_recipe};
	Caller	   call = {0};
	CallStep   list = contenders_read(&contenders, &call, PG_INT32_MAX, CALL_AFTER_SYNC);

	call_report(&list);
	for (int i = 0; i < contenders.n; i++)
	{
		const NodeStat *stat = &contenders.nodes[i].answer.stat;

		if (stat->czxid != 0 && token_of_grant(stat->czxid, 1) == token &&
			stat->ephemeral_owner != 0 && stat->ephemeral_owner != call.session)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the reservation of ZooKeeper path \"%s\" is not this server's",
							display_path(path)),
					 errhint("A reservation belongs to the server where it was made. Call the function there.")));
	}
}

/*
 * Finds the reservation of a path that has the token in the second argument.  Returns false if
 * it is over.
 */
static bool
find_reservation(FunctionCallInfo fcinfo, const char *path, Reservation *reservation)
{
	argument_refuse_null(fcinfo, 1, "token");
	if (!reservation_find(path, PG_GETARG_INT64(1), reservation))
	{
		refuse_elsewhere(path, PG_GETARG_INT64(1));
		return false;
	}
	if (!has_privs_of_role(GetUserId(), reservation->role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for the reservation of ZooKeeper path \"%s\"",
						display_path(path)),
				 errdetail("Only roles with privileges of the role that reserved the path may use the reservation.")));
	return true;
}

/*
 * zk_reserve(path text, duration interval, timeout interval) returns bigint
 *
 * Reserves the path, and returns the fencing token.  Returns NULL if the timeout has passed.
 */
Datum
zk_reserve(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int64 token;

	if (!reserve_acquire(path, argument_duration(fcinfo, 1), argument_timeout(fcinfo, 2), &token))
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

/*
 * zk_renew(path text, token bigint, duration interval) returns boolean
 *
 * Has a reservation end so long from now.  Returns false if it is over.
 */
Datum
zk_renew(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int			duration_ms = argument_duration(fcinfo, 2);
	Reservation reservation;

	PG_RETURN_BOOL(find_reservation(fcinfo, path, &reservation) &&
				   reservation_renew(&reservation, duration_ms));
}

/*
 * zk_rely(path text, token bigint) returns void
 *
 * Has the transaction rely on a reservation.  Raises an error if it is over.
 */
Datum
zk_rely(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Reservation reservation;

	if (!find_reservation(fcinfo, path, &reservation))
		reliance_report_over(path);
	(void) transaction_begin_call();
	reliance_add(path, &reservation);
	PG_RETURN_VOID();
}

/*
 * zk_unreserve(path text, token bigint) returns boolean
 *
 * Ends a reservation.  Returns false if it is over already.
 */
Datum
zk_unreserve(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ANY_PATH);
	Reservation reservation;

	PG_RETURN_BOOL(find_reservation(fcinfo, path, &reservation) && reserve_end(path, &reservation));
}
