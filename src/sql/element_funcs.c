/*
 * element_funcs.c
 *		SQL functions of queues.
 *
 * They check their arguments and call the functions of backend/element.h.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/detoast.h"
#include "backend/element.h"
#include "backend/wait.h"
#include "sql/arguments.h"
#include "utils/builtins.h"

COMPAT_FUNCTION_INFO_V1(zk_queue_offer);
COMPAT_FUNCTION_INFO_V1(zk_queue_peek);
COMPAT_FUNCTION_INFO_V1(zk_queue_take);
COMPAT_FUNCTION_INFO_V1(zk_xact_queue_take);

/*
 * zk_queue_offer(path text, data bytea) returns text
 *
 * Adds an element of at most TAKE_MAX_DATA bytes at the end of a queue, which is created if
 * it does not exist.  Returns the element's name, or NULL if that is not known.  A rollback
 * does not undo it.
 */
Datum
zk_queue_offer(PG_FUNCTION_ARGS)
{
	char  *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	bytea *data;
	char  *name;

	argument_refuse_null(fcinfo, 1, "data");
	if (toast_raw_datum_size(PG_GETARG_DATUM(1)) - VARHDRSZ > TAKE_MAX_DATA)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("element of a ZooKeeper queue is too long: %zu bytes",
							   toast_raw_datum_size(PG_GETARG_DATUM(1)) - VARHDRSZ),
						errdetail("It can have at most %d bytes.", TAKE_MAX_DATA),
						errhint("Keep the data elsewhere, and put into the queue where it is.")));
	data = PG_GETARG_BYTEA_PP(1);
	name = take_offer(path, VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data));
	if (name == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(name));
}

/* zk_queue_peek(path text) returns bytea: returns the first element, which stays; or NULL. */
Datum
zk_queue_peek(PG_FUNCTION_ARGS)
{
	char   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Element element;

	if (!take_first(path, TAKE_SHOW, LOCK_NO_WAIT, WAIT_UNCOUNTED, &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(element.data);
}

/*
 * zk_queue_take(path text, timeout interval) returns bytea
 * zk_queue_remove(path text) returns bytea
 *
 * Removes the first element and returns it.  If there is none, waits for one: with a
 * timeout of NULL for ever, with '0', or without one, not at all.  Returns NULL if the timeout
 * has passed.
 */
Datum
zk_queue_take(PG_FUNCTION_ARGS)
{
	bool	may_wait = PG_NARGS() == 2; /* that call alone is counted */
	int64	timeout_ms = may_wait ? argument_timeout(fcinfo, 1) : LOCK_NO_WAIT;
	char   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Element element;

	if (!take_first(path, TAKE_REMOVE, timeout_ms, may_wait ? STATS_QUEUE : WAIT_UNCOUNTED, &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(element.data);
}

/*
 * zk_xact_queue_take(path text, timeout interval) returns record
 *
 * Returns the first element, which is removed if the transaction commits, and otherwise
 * stays.  Waits like zk_queue_take().  All columns are NULL if the timeout has passed.
 */
Datum
zk_xact_queue_take(PG_FUNCTION_ARGS)
{
	char   *path = argument_path_above(fcinfo, ALLOWED_PATHS_ONLY,
									   "a queue of which transactions take elements", TAKE_MAX_PATH);
	int64	timeout_ms = argument_timeout(fcinfo, 1);
	Element element = {0};
	Row		row = {0};
	bool	taken;

	taken = take_first(path, TAKE_CLAIM, timeout_ms, STATS_QUEUE, &element);
	row_add_text(&row, taken ? element.name : NULL);
	row_add_if(&row, taken, PointerGetDatum(element.data));
	row_add_if(&row, taken, Int64GetDatum(element.token));
	return row_return(fcinfo, &row);
}
