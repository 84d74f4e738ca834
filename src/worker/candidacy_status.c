/*
 * candidacy_status.c
 *		What is told of a candidacy: its state and place, and who leads.
 *
 * The state is published for zk_elections, and the log has a line for each change;
 * sessions that wait for one are woken.
 *
 * Who leads is in the data of the first node, which is looked at and then read, once
 * for each leader.  A reply counts if that node is still the one in question and
 * elections have neither come nor gone.  A reading that fails is made again in the
 * next round.  The name is whatever a client has written: what is not one line of
 * text is not shown.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "shared/election.h"
#include "utils/timestamp.h"
#include "worker/candidacy_status.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

/* A leader's data that is longer is not read, bytes. */
#define MAX_LEADER_DATA 8192

/* What is known of a leader's node; private to this worker. */
typedef struct Leader
{
	char node[ZKLOCK_NODE_SIZE]; /* whose data was asked for; empty: none */
} Leader;

/* A reading of a leader's data */
typedef struct LeaderCall
{
	int	   election;
	uint64 version; /* of the table: the slot may be another election's by now */
	char   node[ZKLOCK_NODE_SIZE];
} LeaderCall;

static Leader leaders[ELECTIONS_LIMIT];

/* ------------------------------------------------------------------------
 * State and place
 * ------------------------------------------------------------------------
 */

static const char *
state_name(CandidacyState state)
{
	switch (state)
	{
		case CANDIDACY_STOP:
			return "stop";
		case CANDIDACY_OFFER:
			return "offer";
		case CANDIDACY_READY:
			return "ready";
		case CANDIDACY_ELECTED:
			return "elected";
		case CANDIDACY_SUSPENDED:
			return "suspended";
		case CANDIDACY_FAILED:
			break;
	}
	return "failed";
}

/*
 * Publishes the state, and the place in the queue, and logs the state if it is
 * another one.
 *
 *	detail	for the log; NULL if there is nothing to say
 */
void
candidacy_tell(int i, CandidacyState state, int position, const char *detail)
{
	Election	   *election = election_at(i);
	CandidacyStatus status = election->status;
	bool			news = status.since == 0 || status.state != state;

	if (!news && status.position == position)
		return;
	status.state = state;
	status.position = position;
	if (news)
		status.since = GetCurrentTimestamp();
	if (state == CANDIDACY_STOP || state == CANDIDACY_OFFER || state == CANDIDACY_FAILED)
	{
		status.leader[0] = '\0';
		leaders[i].node[0] = '\0';
	}
	election_set_status(i, &status);
	if (news)
		ereport(LOG, (errmsg("election \"%s\": candidacy is in state \"%s\"", election->path,
							 state_name(state)),
					  detail ? errdetail_internal("%s", detail) : 0));
	election_wake_clients(i);
}

/* Why a candidacy was refused, as a sentence */
char *
candidacy_failure_text(ContenderFailure failure, int code)
{
	switch (failure)
	{
		case FAILURE_REFUSED:
			return psprintf("ZooKeeper refused: %s.", zk_error_name(code));
		case FAILURE_NO_CHILDREN:
			return pstrdup("The path, or one above it, is an ephemeral node, which cannot have children.");
		case FAILURE_NO_CHROOT:
			return pstrdup("The chroot in \"zklock.servers\" does not exist.");
		case FAILURE_NO_PATH:
			return pstrdup("The path does not exist, and \"zklock.parent_nodes\" is \"existing\".");
		case FAILURE_TOO_DEEP:
			return pstrdup("Too many levels of the path are missing.");
		case FAILURE_HARMFUL:
			return pstrdup("The path lies below a lock or semaphore in use, whose clients would take it for one of theirs.");
		case FAILURE_SESSION_FULL:
		case FAILURE_SHARE_FULL:
			return pstrdup("Too many paths are locked on this server.");
		case FAILURE_WORN_OUT:
			return pstrdup("The sequence numbers of the path are used up.");
		case FAILURE_OTHER_RECIPE:
			return pstrdup("The path is in use for something else on this server, or has claims.");
		case FAILURE_BARRED:
			return pstrdup("The path has nodes of clients of another kind, which a candidate of this kind would disturb. Check the names that \"zklock.elections\" gives for it.");
		case FAILURE_NONE:
		case FAILURE_BUSY:
		case FAILURE_UNREACHABLE:
			break;
	}
	return pstrdup("ZooKeeper cannot be reached.");
}

/* Why leadership was lost, as a sentence */
const char *
candidacy_loss_text(LossReason loss)
{
	switch (loss)
	{
		case LOSS_EXPIRED:
			return "The ZooKeeper session ended.";
		case LOSS_DELETED:
			return "The candidate's node was deleted by someone else.";
		case LOSS_UNPROVED:
		case LOSS_OVERRUN:
			break; /* leadership is not limited */
	}
	return "The ZooKeeper session was not proved to be alive for a session timeout.";
}

/* ------------------------------------------------------------------------
 * Who leads
 * ------------------------------------------------------------------------
 */

/* Shows whose name a leader's node has, if that is text in one line. */
void
candidacy_tell_leader(int i, const char *name, int len)
{
	CandidacyStatus status = election_at(i)->status;

	if (len >= ELECTION_NAME_SIZE)
		len = pg_encoding_mbcliplen(PG_UTF8, name, len, ELECTION_NAME_SIZE - 1);
	for (int at = 0; at < len; at++)
	{
		if ((unsigned char) name[at] < ' ' || name[at] == 0x7F)
			len = 0;
	}
	memcpy(status.leader, name, len);
	status.leader[len] = '\0';
	election_set_status(i, &status);
}

/* Is a reading still about the node that we wait for? */
static bool
is_current(const LeaderCall *call)
{
	return call->version == election_version() &&
		   strcmp(leaders[call->election].node, call->node) == 0;
}

static void
on_leader_read(void *arg, const ZkReply *reply)
{
	LeaderCall *call = arg;

	if (is_current(call))
	{
		if (reply->outcome == ZK_OK)
			candidacy_tell_leader(call->election, reply->data, reply->data_length);
		else
			leaders[call->election].node[0] = '\0';
	}
	pfree(call);
}

static void
on_leader_seen(void *arg, const ZkReply *reply)
{
	LeaderCall *call = arg;

	if (is_current(call) && reply->outcome == ZK_OK && zk_client_connected() &&
		reply->data_length > 0 && reply->data_length <= MAX_LEADER_DATA)
	{
		char *node = psprintf("%s/%s", election_at(call->election)->path, call->node);

		zk_read(ZK_WORKER, node, on_leader_read, call);
		pfree(node);
		return;
	}
	if (is_current(call) && reply->outcome != ZK_OK)
		leaders[call->election].node[0] = '\0';
	pfree(call);
}

/* Others are before us: asks who the first of them is, if that is not known. */
void
candidacy_ask_leader(int i, const char *node)
{
	LeaderCall *call;
	char	   *path;

	if (node[0] == '\0' || strcmp(leaders[i].node, node) == 0 || !zk_client_connected())
		return;
	strlcpy(leaders[i].node, node, sizeof(leaders[i].node));
	candidacy_tell_leader(i, "", 0);
	call = palloc(sizeof(LeaderCall));
	call->election = i;
	call->version = election_version();
	strlcpy(call->node, node, sizeof(call->node));
	path = psprintf("%s/%s", election_at(i)->path, node);
	zk_look(ZK_WORKER, path, on_leader_seen, call);
	pfree(path);
}
