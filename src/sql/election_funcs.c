/*
 * election_funcs.c
 *		SQL functions of elections.
 *
 * The candidacy is the worker's.  Whether this server leads a session reads from
 * shared memory (shared/election.c); to wait for that it sleeps on a condition
 * variable, and needs no entry of its own.  Who leads, whatever client it is, it reads
 * from ZooKeeper.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/contenders.h"
#include "backend/display.h"
#include "backend/hold.h"
#include "backend/wait.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "funcapi.h"
#include "shared/common.h"
#include "shared/election.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "sql/arguments.h"
#include "utils/timestamp.h"

COMPAT_FUNCTION_INFO_V1(zk_is_leader);
COMPAT_FUNCTION_INFO_V1(zk_await_leadership);
COMPAT_FUNCTION_INFO_V1(zk_resign);
COMPAT_FUNCTION_INFO_V1(zk_leader);
COMPAT_FUNCTION_INFO_V1(zk_elections);

/* The first term under a node, as a token; candidates have no second one. */
#define TERM_OF_NODE(czxid) (((czxid) << TOKEN_GRANT_BITS) + 1)

/* So long zk_elections waits for ZooKeeper to tell who leads, of all elections together. */
#define LEADERS_MS 1000

/* ------------------------------------------------------------------------
 * Does this server lead?
 * ------------------------------------------------------------------------
 */

/* The election at a path.  Raises an error if there is none. */
static int
require_election(const char *path)
{
	int election = election_find(path);

	if (election == ELECTION_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("this server stands at no election at ZooKeeper path \"%s\"", display_path(path)),
				 errhint("Add the path to \"zklock.elections\", and reload the configuration.")));
	return election;
}

/*
 * zk_is_leader(path text) returns boolean
 *
 * Does this server lead the election at the path, provably?  A transaction that
 * is told so, and writes, fails at commit if the term has ended before.
 */
Datum
zk_is_leader(PG_FUNCTION_ARGS)
{
	int64 term;

	PG_RETURN_BOOL(
		transaction_leads(require_election(argument_path(fcinfo, ALLOWED_PATHS_ONLY)), &term));
}

/* Does it lead now?  Raises an error if the election goes away. */
static WaitAnswer
look_whether_it_leads(const Wait *wait, void *arg)
{
	int	  election = *(int *) arg;
	int64 term;

	ConditionVariablePrepareToSleep(&election_at(election)->changed);
	(void) require_election(election_at(election)->path);
	if (transaction_leads(election, &term))
		return WAIT_OVER;
	if (wait->timeout_ms == LOCK_NO_WAIT && lease_state() == LEASE_HOLDS)
		return WAIT_REFUSED;
	return WAIT_UNTOLD;
}

/*
 * zk_await_leadership(path text, timeout interval) returns boolean
 *
 * Waits until this server leads.  NULL waits for ever.  False if the timeout has
 * passed; that ZooKeeper cannot be reached then is an error.
 */
Datum
zk_await_leadership(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int64 timeout_ms = argument_timeout(fcinfo, 1);
	int	  election = require_election(path);
	bool  led;
	Wait  wait;

	wait_begin(&wait, path, "leadership", STATS_ELECTION, timeout_ms);
	led = wait_until(&wait, look_whether_it_leads, &election);
	ConditionVariableCancelSleep();
	if (led)
		wait_granted(&wait);
	else
		wait_refused(&wait);
	PG_RETURN_BOOL(led);
}

/* A candidate that is to go to the end of the queue */
typedef struct Resignation
{
	int	  election;
	int64 term;
} Resignation;

static WaitAnswer
look_whether_it_has_resigned(const Wait *wait, void *arg)
{
	const Resignation *resignation = arg;

	ConditionVariablePrepareToSleep(&election_at(resignation->election)->changed);
	return election_resign_is_done(resignation->election, resignation->term) ? WAIT_OVER : WAIT_UNTOLD;
}

/*
 * zk_resign(path text) returns boolean
 *
 * This server gives up leadership and goes to the end of the queue.  Returns when
 * another leads, or, if nobody else stands, this one in a new term; false at once if it
 * does not lead.  The worker sees it through even if the call is cancelled.
 */
Datum
zk_resign(PG_FUNCTION_ARGS)
{
	char	   *path;
	Resignation resignation;
	Wait		wait;

	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "have this server resign");
	path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	resignation.election = require_election(path);
	if (election_leadership(resignation.election, &resignation.term) == LEADERSHIP_NONE)
		PG_RETURN_BOOL(false);
	election_want_resign(resignation.election, resignation.term);
	wait_begin(&wait, path, "a successor", WAIT_UNCOUNTED, LOCK_WAIT_FOREVER);
	(void) wait_until(&wait, look_whether_it_has_resigned, &resignation);
	ConditionVariableCancelSleep();
	wait_granted(&wait);
	PG_RETURN_BOOL(true);
}

/* ------------------------------------------------------------------------
 * Who leads
 * ------------------------------------------------------------------------
 */

/*
 * Reads the node of the oldest candidate on a path, if anybody stands there.
 *
 *	until	by zklock_now_ms(), the outcome is CALL_UNREACHABLE; 0: as for any call
 */
static CallStep
read_leader(ContenderNode *leader, const char *path, int64 until)
{
	Call	   call = {.patience = CALL_IMPATIENT, .until = until};
	Contenders candidates = {.path = path, .recipe = &election_recipe};
	CallStep   told = contenders_read(&candidates, &call, 1, CALL_AS_KNOWN);

	*leader = (ContenderNode){.data = ""};
	if (candidates.n > 0)
	{
		*leader = candidates.nodes[0];
		told = (CallStep){.path = psprintf("%s/%s", path, leader->name), .result = leader->told};
	}
	return told;
}

/* What a leader calls itself: the server, if a session of zklock has written the data */
static char *
leader_name(const ContenderNode *leader)
{
	NodeContender data;

	if (node_contender_read(leader->data, &data))
		return display_foreign(data.server);
	return display_node_data(leader->data, leader->told.text_length);
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
	ContenderNode leader;
	CallStep	  told = read_leader(&leader, argument_path(fcinfo, ALLOWED_PATHS_ONLY), 0);
	Row			  row = {0};

	call_report(&told);
	row_add_text(&row, leader_name(&leader));
	row_add_text(&row, display_node_data(leader.data, leader.told.text_length));
	row_add_text(&row, display_session(leader.told.stat.ephemeral_owner));
	row_add_if(&row, leader.told.stat.czxid != 0,
			   Int64GetDatum(TERM_OF_NODE(leader.told.stat.czxid)));
	row_add_zk_time(&row, leader.told.stat.ctime);
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
		state = CANDIDACY_ELECTED;
	else if (leadership == LEADERSHIP_SUSPENDED)
		state = CANDIDACY_SUSPENDED;
	else if (state == CANDIDACY_ELECTED || state == CANDIDACY_SUSPENDED)
		state = CANDIDACY_OFFER; /* the worker has not told yet what comes next */
	return election_state_names[state];
}

/* Who leads, as far as that can be known without waiting for long */
static char *
known_leader(const char *path, const CandidacyStatus *status, Leadership leadership, int64 until)
{
	if (leadership != LEADERSHIP_NONE)
		return display_foreign(zklock_own_name());
	if (status->state == CANDIDACY_READY && lease_state() == LEASE_HOLDS)
	{
		ContenderNode leader;

		(void) read_leader(&leader, path, until);
		return leader_name(&leader);
	}
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
	int64 until = zklock_now_ms() + LEADERS_MS;

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
		if (leadership != LEADERSHIP_NONE)
			status.position = 1;
		row_add_if(&row, status.position != 0, Int32GetDatum(status.position));
		row_add_if(&row, status.since != 0, TimestampTzGetDatum(status.since));
		row_add_text(&row, known_leader(path, &status, leadership, until));
		row_store(fcinfo, &row);
	}
	return (Datum) 0;
}
