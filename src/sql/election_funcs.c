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
#include "shared/server_name.h"
#include "shared/shmem.h"
#include "sql/arguments.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_is_leader);
PG_FUNCTION_INFO_V1(zk_await_leadership);
PG_FUNCTION_INFO_V1(zk_resign);
PG_FUNCTION_INFO_V1(zk_leader);
PG_FUNCTION_INFO_V1(zk_elections);

/* The first term under a node, as a token; candidates have no second one. */
#define TERM_OF_NODE(czxid) (((czxid) << TOKEN_GRANT_BITS) + 1)

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

/* Reads the node of the first candidate on a path; returns false if there is none. */
static bool
read_leader(const char *path, ErrandNode *node)
{
	Question	question = {.kind = ERRAND_CONTENDERS,
							.limit = 1,
							.recipe = RECIPE_ELECTION,
							.path = path,
							.answer_size = ERRAND_MAX_ANSWER};
	const char *at;

	if (backend_ask(&question) != ERRAND_OK)
		return false;
	at = question.answer;
	return errand_list_next(&at, question.answer + question.answer_length, node) && node->was_read;
}

/* Text of a node's data, of which nothing is known; NULL if it cannot be shown */
static char *
data_text(const char *data, int len)
{
	if (len > OWNER_MAX)
		len = pg_encoding_mbcliplen(PG_UTF8, data, len, OWNER_MAX);
	return display_foreign(data, len);
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

/*
 * zk_leader(path text) returns record
 *
 * Tells who leads the election at the path, of all servers and clients; all columns are
 * NULL if nobody does.
 */
Datum
zk_leader(PG_FUNCTION_ARGS)
{
	ErrandNode	node;
	bool		leads = read_leader(argument_path(fcinfo, ALLOWED_PATHS_ONLY), &node);
	TimestampTz since = 0;
	Row			row = {0};

	row_add_text(&row, leads ? leader_name(&node) : NULL);
	row_add_text(&row, leads ? data_text(node.data, node.data_length) : NULL);
	row_add_text(&row, leads && node.owner != 0 ? psprintf("0x%llx", (unsigned long long) node.owner)
												: NULL);
	row_add_if(&row, leads, Int64GetDatum(leads ? TERM_OF_NODE(node.czxid) : 0));
	row_add_if(&row, leads && display_time(node.ctime, &since), TimestampTzGetDatum(since));
	return row_return(fcinfo, &row);
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
		case CANDIDACY_GONE:
		case CANDIDACY_OFFER:
		case CANDIDACY_ELECTED:
		case CANDIDACY_SUSPENDED:
			break; /* the worker has not told yet what comes next */
	}
	return "offer";
}

/* Who leads, as far as that can be known without waiting for a connection */
static char *
known_leader(const char *path, const CandidacyStatus *status, Leadership leadership)
{
	ErrandNode node;

	if (leadership != LEADERSHIP_NONE)
	{
		StringInfoData name;

		initStringInfo(&name);
		zklock_append_server_name(&name);
		return data_text(name.data, name.len);
	}
	if (status->state == CANDIDACY_READY && lease_state() == LEASE_HOLDS && read_leader(path, &node))
		return leader_name(&node);
	return NULL;
}

/*
 * zk_elections() returns setof record
 *
 * The elections at which this server stands.
 */
Datum
zk_elections(PG_FUNCTION_ARGS)
{
	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < election_count(); i++)
	{
		const char	   *path = election_at(i)->path;
		CandidacyStatus status;
		Leadership		leadership;
		int64			term = 0;
		Row				row = {0};

		if (!election_status(i, &status))
			continue;
		leadership = election_leadership(i, &term);
		row_add_text(&row, display_utf8(path));
		row_add_text(&row, state_name(status.state, leadership));
		row_add(&row, BoolGetDatum(leadership == LEADERSHIP_PROVED));
		row_add_if(&row, leadership != LEADERSHIP_NONE, Int64GetDatum(term));
		row_add_if(&row, status.position != 0, Int32GetDatum(status.position));
		row_add_if(&row, status.since != 0, TimestampTzGetDatum(status.since));
		row_add_text(&row, known_leader(path, &status, leadership));
		row_store(fcinfo, &row);
	}
	return (Datum) 0;
}
