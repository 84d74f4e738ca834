/*
 * election_funcs.c
 *		SQL functions of elections.
 *
 * Whether this server leads is read from shared memory; who leads, whatever
 * client it is, from ZooKeeper, through the worker.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "backend/ask.h"
#include "backend/display.h"
#include "backend/leadership.h"
#include "compat.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "recipes/node_contender.h"
#include "shared/election.h"
#include "shared/errand_list.h"
#include "shared/lease_state.h"
#include "shared/shmem.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_is_leader);
PG_FUNCTION_INFO_V1(zk_await_leadership);
PG_FUNCTION_INFO_V1(zk_resign);
PG_FUNCTION_INFO_V1(zk_leader);
PG_FUNCTION_INFO_V1(zk_elections);

#define ZK_LEADER_COLUMNS 5
#define ZK_ELECTIONS_COLUMNS 7

/* The first term under a node, as a token; candidates have no second one. */
#define TERM_OF_NODE(czxid) (((czxid) << 12) + 1)

/* What is shown of a node's data, bytes */
#define OWNER_MAX 256

/*
 * zk_is_leader(path text) returns boolean
 *
 * Does this server lead the election at the path, provably?  A transaction that
 * is told so, and writes, fails at commit if the term has ended before.
 */
Datum
zk_is_leader(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(leadership_is_leader(argument_path(fcinfo, ALLOWED_PATHS_ONLY)));
}

/*
 * zk_await_leadership(path text, timeout interval) returns boolean
 *
 * Waits until this server leads.  NULL waits for ever.  False if the timeout has
 * passed.
 */
Datum
zk_await_leadership(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);

	PG_RETURN_BOOL(leadership_await(path, argument_timeout(fcinfo, 1)));
}

/*
 * zk_resign(path text) returns boolean
 *
 * This server lays leadership down and goes to the end of the queue.  Returns when
 * another leads, or, if nobody else stands, this one in a new term; false if it
 * does not lead.
 */
Datum
zk_resign(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(leadership_resign(argument_path(fcinfo, ALLOWED_PATHS_ONLY)));
}

/* ------------------------------------------------------------------------
 * Who leads
 * ------------------------------------------------------------------------
 */

/* Text of a node's data, of which nothing is known; NULL if it cannot be shown. */
static char *
data_text(const char *data, int len)
{
	if (len > OWNER_MAX)
		len = pg_encoding_mbcliplen(PG_UTF8, data, len, OWNER_MAX);
	if (len == 0 || !pg_verify_mbstr(PG_UTF8, data, len, true))
		return NULL;
	for (int i = 0; i < len; i++)
	{
		if ((unsigned char) data[i] < ' ' || data[i] == 0x7F)
			return NULL;
	}
	return display_utf8(pnstrdup(data, len));
}

/* What a leader calls itself: the server, if a session of zklock has written the data */
static char *
leader_name(const ErrandNode *node)
{
	NodeContender data;

	if (node_contender_read(node->data, node->data_length, &data))
		return data_text(data.server, strlen(data.server));
	return data_text(node->data, node->data_length);
}

static Datum
text_or_null(const char *text, bool *isnull)
{
	*isnull = text == NULL || text[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(text);
}

/* A time that ZooKeeper tells, ms since 1970; it may be any number. */
static Datum
zookeeper_time(int64 ms, bool *isnull)
{
	const int64 epoch = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000);

	*isnull = ms <= 0 || ms >= PG_INT64_MAX / 1000 || !IS_VALID_TIMESTAMP((ms - epoch) * 1000);
	return *isnull ? (Datum) 0 : TimestampTzGetDatum((ms - epoch) * 1000);
}

/*
 * zk_leader(path text) returns record
 *
 * Tells who leads the election at the path, of all servers and clients; all columns are
 * NULL if nobody does.
 */
Datum
zk_leader(PG_FUNCTION_ARGS)
{
	char	  *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Question   question = {.kind = ERRAND_CONTENDERS,
						   .limit = ERRAND_LIST_READ,
						   .recipe = RECIPE_ELECTION,
						   .path = path,
						   .answer_size = ERRAND_MAX_ANSWER};
	Datum	   values[ZK_LEADER_COLUMNS] = {0};
	bool	   nulls[ZK_LEADER_COLUMNS] = {true, true, true, true, true};
	TupleDesc  tupdesc;
	ErrandNode node;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (backend_ask(&question) == ERRAND_OK)
	{
		const char *at = question.answer;

		if (errand_list_next(&at, question.answer + question.answer_length, &node) && node.was_read)
		{
			values[0] = text_or_null(leader_name(&node), &nulls[0]);
			values[1] = text_or_null(data_text(node.data, node.data_length), &nulls[1]);
			if (node.owner != 0)
				values[2] =
					text_or_null(psprintf("0x%llx", (unsigned long long) node.owner), &nulls[2]);
			values[3] = Int64GetDatum(TERM_OF_NODE(node.czxid));
			nulls[3] = false;
			values[4] = zookeeper_time(node.ctime, &nulls[4]);
		}
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

/* ------------------------------------------------------------------------
 * The elections of this server
 * ------------------------------------------------------------------------
 */

/* The state as it is at this moment: the lease ends by itself. */
static const char *
state_name(CandidacyState state, Leadership leadership)
{
	if (leadership == LEADERSHIP_PROVED)
		return "elected";
	if (leadership == LEADERSHIP_SUSPENDED)
		return "suspended";
	switch (state)
	{
		case CANDIDACY_STOP:
			return "stop";
		case CANDIDACY_READY:
			return "ready";
		case CANDIDACY_FAILED:
			return "failed";
		case CANDIDACY_OFFER:
		case CANDIDACY_ELECTED:
		case CANDIDACY_SUSPENDED:
			break; /* the worker has not told yet what comes next */
	}
	return "offer";
}

/*
 * zk_elections() returns setof record
 *
 * The elections at which this server stands.
 */
Datum
zk_elections(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < ELECTIONS_LIMIT; i++)
	{
		Datum			values[ZK_ELECTIONS_COLUMNS] = {0};
		bool			nulls[ZK_ELECTIONS_COLUMNS] = {0};
		char			path[ZKLOCK_MAX_PATH + 1];
		CandidacyStatus status;
		Leadership		leadership;
		int64			term = 0;

		election_read(i, path, &status);
		if (path[0] == '\0')
			continue;
		leadership = election_leadership(i, &term);
		values[0] = CStringGetTextDatum(display_utf8(path));
		values[1] = CStringGetTextDatum(state_name(status.state, leadership));
		values[2] = BoolGetDatum(leadership == LEADERSHIP_PROVED);
		values[3] = Int64GetDatum(term);
		nulls[3] = leadership == LEADERSHIP_NONE;
		values[4] = Int32GetDatum(status.position);
		nulls[4] = status.position == 0;
		values[5] = TimestampTzGetDatum(status.since);
		nulls[5] = status.since == 0;
		values[6] = text_or_null(status.leader[0] != '\0' ? display_utf8(status.leader) : NULL,
								 &nulls[6]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
