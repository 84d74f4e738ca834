/*
 * element_funcs.c
 *		SQL functions of queues.
 *
 * They check their arguments and call the functions of backend/element.h; those that only show a
 * queue read its nodes.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/detoast.h"
#include "backend/element.h"
#include "sql/arguments.h"

COMPAT_FUNCTION_INFO_V1(zk_queue_offer);
COMPAT_FUNCTION_INFO_V1(zk_xact_queue_take);
COMPAT_FUNCTION_INFO_V1(zk_queue_length);
COMPAT_FUNCTION_INFO_V1(zk_queue_elements);

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

/*
 * zk_queue_peek(path text) returns bytea
 * zk_queue_take(path text, timeout interval) returns bytea
 * zk_queue_remove(path text) returns bytea
 *
 * Return the first element, which stays or is removed.  If there is none, wait for one: with a
 * timeout of NULL for ever, with '0', or without one, not at all.  Return NULL if the timeout
 * has passed.
 */
static Datum
get_element(FunctionCallInfo fcinfo, TakeHow how)
{
	bool	may_wait = PG_NARGS() == 2; /* that call alone is counted */
	int64	timeout_ms = may_wait ? argument_timeout(fcinfo, 1) : LOCK_NO_WAIT;
	char   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Element element;

	if (!take_first(path, how, timeout_ms, may_wait ? STATS_QUEUE : WAIT_UNCOUNTED, &element))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(element.data);
}

SQL_FUNCTION(zk_queue_peek, get_element, TAKE_SHOW);
SQL_FUNCTION(zk_queue_take, get_element, TAKE_REMOVE);

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

/*
 * zk_queue_length(path text) returns integer
 *
 * Returns how many elements a queue has, those included that transactions have taken.  It only
 * reads, as zk_contenders() does, so any path may be asked for.
 */
Datum
zk_queue_length(PG_FUNCTION_ARGS)
{
	int n;

	(void) take_list(argument_path(fcinfo, ANY_PATH), &n);
	PG_RETURN_INT32(n);
}

/* How many elements are looked at, and how many at a time; of the others only the names are shown */
#define ELEMENTS_READ 200
#define ELEMENTS_AT_ONCE 50

/*
 * zk_queue_elements(path text) returns setof record
 *
 * Shows the elements of a queue, in their order, without their data, and who has taken them.
 */
Datum
zk_queue_elements(PG_FUNCTION_ARGS)
{
	char			  *path = argument_path(fcinfo, ANY_PATH);
	Caller			   caller = {0};
	CallStep		   steps[ELEMENTS_AT_ONCE][2]; /* an element, and its claim */
	int				   n;
	const ElementName *names = take_list(path, &n);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
	{
		const CallStep *step = steps[i % ELEMENTS_AT_ONCE];
		const NodeStat *stat = &step[0].result.stat;
		ContenderOwner	owner = {0};
		bool			known;
		Row				row = {0};

		CHECK_FOR_INTERRUPTS();
		if (i < ELEMENTS_READ && i % ELEMENTS_AT_ONCE == 0)
		{
			int at_once = Min(n - i, ELEMENTS_AT_ONCE);

			for (int k = 0; k < at_once; k++)
			{
				char *element = psprintf("%s/%s", path, names[i + k].name);

				steps[k][0] = (CallStep){.asked = {.kind = ZK_EXISTS, .path = element}};
				steps[k][1] = (CallStep){.asked = {.kind = ZK_GET_DATA,
												   .path = psprintf("%s/" ELEMENT_CLAIM, element),
												   .most = CONTENDERS_MAX_DATA}};
			}
			call_batch(&caller, steps[0], 2 * at_once, CALL_AS_KNOWN);
			if (steps[0][0].result.outcome == CALL_UNREACHABLE)
				call_report(&caller, &steps[0][0]);
		}

		/* Somebody may have removed it by now. */
		if (i < ELEMENTS_READ && step[0].result.outcome == CALL_NO_NODE)
			continue;
		known = i < ELEMENTS_READ && stat->czxid != 0;
		if (known && step[1].read)
			owner = contenders_owner(&(ContenderNode){.data = step[1].read}, NULL);
		row_add(&row, Int32GetDatum(i + 1));
		row_add_text(&row, display_utf8(names[i].name));
		row_add_if(&row, known, Int32GetDatum(stat->data_length));
		row_add_zk_time(&row, known ? stat->ctime : 0);
		row_add_if(&row, known, BoolGetDatum(stat->child_count > 0));
		row_add_owner(&row, &owner);
		row_store(fcinfo, &row);
	}
	if (n > ELEMENTS_READ)
		ereport(NOTICE, (errmsg("only the first %d of %d elements of \"%s\" are shown in full",
								ELEMENTS_READ, n, display_path(path))));
	return (Datum) 0;
}
