/*
 * element_funcs.c
 *		SQL functions about queues.
 *
 * They check their arguments and call the backend's take*.c.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/detoast.h"
#include "backend/display.h"
#include "backend/guard.h"
#include "backend/request.h"
#include "backend/take.h"
#include "backend/wait.h"
#include "compat.h"
#include "funcapi.h"
#include "sql/arguments.h"
#include "storage/ipc.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_queue_offer);
PG_FUNCTION_INFO_V1(zk_queue_peek);
PG_FUNCTION_INFO_V1(zk_queue_remove);
PG_FUNCTION_INFO_V1(zk_queue_take);
PG_FUNCTION_INFO_V1(zk_xact_queue_take);

static bytea *
data_of(const Element *element)
{
	bytea *result = palloc(VARHDRSZ + element->length);

	SET_VARSIZE(result, VARHDRSZ + element->length);
	memcpy(VARDATA(result), element->data, element->length);
	return result;
}

/* Gets an element, which may be waited for, and counts that. */
static bool
get_counted(bool (*get)(const char *, int64, Element *), const char *path, int64 timeout_ms,
			Element *element)
{
	CountedWait wait;
	bool		found;

	wait_counted_begin(&wait, STATS_QUEUE);
	PG_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	{
		found = get(path, timeout_ms, element);
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	if (found)
		wait_counted_end(&wait, STATS_WAIT_GRANTED);
	else
		wait_counted_end(&wait, timeout_ms == LOCK_NO_WAIT ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	return found;
}

/*
 * zk_queue_offer(path text, data bytea) returns text
 *
 * Adds an element of at most TAKE_MAX_DATA bytes at the end of a queue, which
 * is created if it does not exist.  Returns its name.  Not undone by a rollback.
 */
Datum
zk_queue_offer(PG_FUNCTION_ARGS)
{
	char  *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	bytea *data;
	char  *name;

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("data must not be null")));
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

/* zk_queue_peek(path text) returns bytea: the first element, which stays. */
Datum
zk_queue_peek(PG_FUNCTION_ARGS)
{
	Element element;

	if (!take_peek(argument_path(fcinfo, ALLOWED_PATHS_ONLY), &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(data_of(&element));
}

/* zk_queue_remove(path text) returns bytea: the first element, which goes. */
Datum
zk_queue_remove(PG_FUNCTION_ARGS)
{
	Element element;

	if (!take_remove(argument_path(fcinfo, ALLOWED_PATHS_ONLY), LOCK_NO_WAIT, &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(data_of(&element));
}

/*
 * zk_queue_take(path text, timeout interval) returns bytea
 *
 * The first element, which goes.  If there is none, waits for one: NULL for ever,
 * '0' not at all.  NULL if the timeout has passed.
 */
Datum
zk_queue_take(PG_FUNCTION_ARGS)
{
	char   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Element element;

	argument_require_holder();
	if (!get_counted(take_remove, path, argument_timeout(fcinfo, 1), &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(data_of(&element));
}

/*
 * zk_xact_queue_take(path text, timeout interval) returns record
 *
 * The first element, which goes when the transaction commits, and otherwise stays.
 * Waits as zk_queue_take() does; all columns are NULL if the timeout has passed.
 */
Datum
zk_xact_queue_take(PG_FUNCTION_ARGS)
{
	char	 *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int64	  timeout_ms = argument_timeout(fcinfo, 1);
	Element	  element;
	TupleDesc desc;
	Datum	  values[3] = {0};
	bool	  nulls[3] = {true, true, true};

	if (strlen(path) > TAKE_MAX_PATH)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid ZooKeeper path: \"%s\"", display_path(path)),
						errdetail("The path of a queue of which transactions take elements can have at most %d bytes in UTF-8.",
								  TAKE_MAX_PATH)));
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	transaction_start_session();
	if (get_counted(take_first, path, timeout_ms, &element))
	{
		values[0] = CStringGetTextDatum(element.name);
		values[1] = PointerGetDatum(data_of(&element));
		values[2] = Int64GetDatum(element.token);
		memset(nulls, false, sizeof(nulls));
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
