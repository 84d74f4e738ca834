/*
 * election_funcs.c
 *		SQL functions of elections.
 *
 * The worker makes the candidacy of this server.  A session reads from shared memory
 * whether this server leads (shared/election.c); it waits for that on a condition
 * variable, and needs no entry of its own.  It reads from ZooKeeper who leads, which can be
 * any client.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/guard.h"
#include "backend/lock.h"
#include "catalog/pg_authid.h"
#include "shared/election.h"
#include "sql/arguments.h"
#include "utils/timestamp.h"

COMPAT_FUNCTION_INFO_V1(zk_is_leader);
COMPAT_FUNCTION_INFO_V1(zk_await_leadership);
COMPAT_FUNCTION_INFO_V1(zk_resign);
COMPAT_FUNCTION_INFO_V1(zk_leader);
COMPAT_FUNCTION_INFO_V1(zk_elections);

/* How long zk_elections() waits for ZooKeeper to report the leaders of all elections. */
#define LEADERS_MS 1000

/* ------------------------------------------------------------------------
 * Whether this server leads
 * ------------------------------------------------------------------------
 */

/* Returns the election at a path.  Raises an error if this server stands at none. */
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
 * Returns true if this server provably leads the election at the path.  A transaction that
 * has got true, and writes, fails at commit if the term has ended before.
 */
Datum
zk_is_leader(PG_FUNCTION_ARGS)
{
	int election = require_election(argument_path(fcinfo, ALLOWED_PATHS_ONLY));

	PG_RETURN_BOOL(transaction_leads(election) != 0);
}

/* WaitLook: looks whether this server leads now.  Raises an error if the election is gone. */
static WaitAnswer
look_whether_it_leads(const Wait *wait, void *arg)
{
	int election = *(int *) arg;

	ConditionVariablePrepareToSleep(&election_at(election)->changed);
	(void) require_election(election_at(election)->path);
	if (transaction_leads(election) != 0)
		return WAIT_OVER;
	if (wait->timeout_ms == LOCK_NO_WAIT && lease_state() == LEASE_HOLDS)
		return WAIT_REFUSED;
	return WAIT_POLLED;
}

/*
 * zk_await_leadership(path text, timeout interval) returns boolean
 *
 * Waits until this server leads, with a timeout of NULL for ever.  Returns false if the
 * timeout has passed, but raises an error if ZooKeeper cannot be reached by then.
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
	wait_end(&wait, led);
	PG_RETURN_BOOL(led);
}

/* WaitLook: looks whether the worker has seen the resignation through. */
static WaitAnswer
look_whether_it_has_resigned(const Wait *wait, void *arg)
{
	const LeadershipTerm *term = arg;

	ConditionVariablePrepareToSleep(&election_at(term->election)->changed);

	/* It has also ended if another one is to end. */
	return pg_atomic_read_u64(&election_at(term->election)->resign_term) != (uint64) term->token
			   ? WAIT_OVER
			   : WAIT_POLLED;
}

/*
 * zk_resign(path text) returns boolean
 *
 * Has this server give up leadership and go to the end of the queue.  Returns true when
 * another candidate leads, or this server in a new term if nobody else stands.  Returns
 * false at once if this server does not lead.  The worker completes the resignation even if
 * the call is cancelled.
 */
Datum
zk_resign(PG_FUNCTION_ARGS)
{
	char			 *path;
	LeadershipTerm	  term = {0};
	pg_atomic_uint64 *wanted;
	uint64			  old;
	Wait			  wait;

	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "have this server resign");
	path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	term.election = require_election(path);
	if (election_leadership(term.election, &term.token) == LEADERSHIP_NONE)
		PG_RETURN_BOOL(false);

	/* Terms rise: the wish of a session that has seen a later one must not be lost. */
	wanted = &election_at(term.election)->resign_term;
	old = pg_atomic_read_u64(wanted);
	while (old < (uint64) term.token &&
		   !pg_atomic_compare_exchange_u64(wanted, &old, (uint64) term.token))
		;
	zklock_wake_worker();
	wait_begin(&wait, path, "a successor", WAIT_UNCOUNTED, LOCK_WAIT_FOREVER);
	(void) wait_until(&wait, look_whether_it_has_resigned, &term);
	ConditionVariableCancelSleep();
	wait_end(&wait, true);
	PG_RETURN_BOOL(true);
}

/* ------------------------------------------------------------------------
 * The leader, of all clients
 * ------------------------------------------------------------------------
 */

/* Reads the node of the oldest candidate on a path, if there is one. */
static CallStep
read_leader(ContenderNode *leader, const char *path, Caller *call)
{
	Contenders candidates = contenders_read(path, &election_recipe, call, 1, CALL_AS_KNOWN);

	*leader = candidates.n > 0 ? candidates.nodes[0] : (ContenderNode){.data = ""};
	if (candidates.n == 0)
		return candidates.answer;
	return (CallStep){.asked.path = psprintf("%s/%s", path, leader->name), .result = leader->answer};
}

/* Returns a leader's name: the server if zklock has written the node's data, else the data. */
static char *
leader_name(const ContenderNode *leader)
{
	NodeContender data;
	size_t		  name_len;

	if (node_contender_read(leader->data, &data))
		return display_foreign(data.server);
	(void) recipe_data_read(leader->data, &name_len);
	if (name_len < strlen(leader->data))
		return display_node_data(leader->data, name_len);
	return display_node_data(leader->data, leader->answer.text_length);
}

/*
 * zk_leader(path text) returns record
 *
 * Returns which server or other client leads the election at the path.  All columns are
 * NULL if none does.
 */
Datum
zk_leader(PG_FUNCTION_ARGS)
{
	Caller		  call = {0};
	ContenderNode leader;
	CallStep listed = read_leader(&leader, argument_path(fcinfo, ALLOWED_PATHS_ONLY), &call);
	Row		 row = {0};

	call_report(&call, &listed);
	row_add_text(&row, leader_name(&leader));
	row_add_text(&row, display_node_data(leader.data, leader.answer.text_length));
	row_add_session(&row, leader.answer.stat.ephemeral_owner);
	row_add_if(&row, leader.answer.stat.czxid != 0,
			   Int64GetDatum(token_of_grant(leader.answer.stat.czxid, 1)));
	row_add_zk_time(&row, leader.answer.stat.ctime);
	return row_return(fcinfo, &row);
}

/* ------------------------------------------------------------------------
 * The elections of this server
 * ------------------------------------------------------------------------
 */

/*
 * zk_elections() returns setof record
 *
 * Shows the elections at which this server stands.
 */
Datum
zk_elections(PG_FUNCTION_ARGS)
{
	int64 until = zklock_now_ms() + LEADERS_MS;

	zklock_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < election_count(); i++)
	{
		Election	   *election = election_at(i);
		const char	   *path = election->path;
		CandidacyStatus status;
		Leadership		leadership;
		int64			term = 0;
		char		   *leader = NULL;
		int				leader_priority = -1;
		size_t			name_len;
		Row				row = {0};

		SpinLockAcquire(&election->mutex);
		status = election->status;
		SpinLockRelease(&election->mutex);
		if (status.state == CANDIDACY_GONE)
			continue;
		leadership = election_leadership(i, &term);

		/*
		 * The state at this moment, as the lease can have ended without the worker's doing; and
		 * who leads, unless that cannot be known without waiting for long.
		 */
		if (leadership != LEADERSHIP_NONE)
		{
			status.state = leadership == LEADERSHIP_PROVED ? CANDIDACY_ELECTED : CANDIDACY_SUSPENDED;
			leader = display_foreign(zklock_own_name());
			leader_priority = status.priority;
			status.position = 1;
		}
		else if (status.state == CANDIDACY_ELECTED || status.state == CANDIDACY_SUSPENDED)
			status.state = CANDIDACY_OFFER; /* the worker has not stored the next state yet */
		else if (status.state == CANDIDACY_READY && lease_state() == LEASE_HOLDS)
		{
			ContenderNode first;

			(void) read_leader(&first, path, &(Caller){.until = until});
			leader = leader_name(&first);
			if (leader)
				leader_priority = recipe_data_read(first.data, &name_len);
		}

		row_add_text(&row, display_utf8(path));
		row_add_text(&row, election_state_names[status.state]);
		row_add(&row, BoolGetDatum(leadership == LEADERSHIP_PROVED));
		row_add_if(&row, leadership != LEADERSHIP_NONE, Int64GetDatum(term));
		row_add_if(&row, status.position != 0, Int32GetDatum(status.position));
		row_add_time(&row, status.since);
		row_add_text(&row, leader);
		row_add(&row, Int32GetDatum(status.priority));
		row_add_if(&row, leader_priority >= 0, Int32GetDatum(leader_priority));
		if (leadership == LEADERSHIP_NONE)
			status.preferred[0] = '\0';
		row_add_text(&row, display_node_data(status.preferred, strlen(status.preferred)));
		row_store(fcinfo, &row);
	}
	return (Datum) 0;
}
