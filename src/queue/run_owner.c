/*
 * run_owner.c
 *		Whose the foreign node is for which a run waits.
 *
 * A session that has waited for deadlock_timeout wants to be told who has what it
 * waits for.  If that is another client's node, its session and data are read then,
 * once for each such node, and zk_locks shows what they say.  Nobody relies on it.
 *
 * Two calls, made one after the other: the first tells how long the data is.  A
 * connection that is lost in between makes the pump ask again.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/run_owner.h"
#include "zk/zk_client.h"

/* Longer data is not read, bytes. */
#define MAX_DATA 8192

/* The node for which the first of the run's queue waits; "" if there is none. */
static const char *
blocker(const Run *run)
{
	return dlist_is_empty(unconstify(dlist_head *, &run->queue))
			   ? ""
			   : entry_of(run_head(run))->node.blocked_by_node;
}

/* What is known of the owner now is shown, if the run still waits for that node. */
static void
tell(Run *run, const char *data, int len)
{
	node_contender_describe(run->owner, data, len, run->owner_session);
	if (strcmp(blocker(run), run->owner_of) == 0)
		contender_blocked_by_owner(run_head(run));
}

/* The answer to either call came to nothing. */
static void
missed(Run *run, const ZkReply *reply)
{
	if (reply->outcome == ZK_UNKNOWN)
		run->owner_of[0] = '\0';
	else if (reply->outcome == ZK_REFUSED)
		tell(run, "", 0);
}

static void
on_data(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_call_end(run))
		return;
	if (reply->outcome == ZK_OK)
		tell(run, reply->data ? reply->data : "", reply->data_length);
	else
		missed(run, reply);
}

static void
on_seen(void *arg, const ZkReply *reply)
{
	Run	 *run = arg;
	char *path;

	if (!run_call_end(run))
		return;
	if (reply->outcome != ZK_OK)
	{
		missed(run, reply);
		return;
	}
	run->owner_session = reply->ephemeral_owner;
	if (reply->data_length <= 0 || reply->data_length > MAX_DATA)
	{
		tell(run, "", 0);
		return;
	}
	path = path_node(run->path, run->owner_of);
	run_call_begin(run);
	zk_read(run_owner(run), path, on_data, run);
	pfree(path);
}

/* Has it read, if somebody wants to know and that has not been asked yet. */
void
run_owner_read(Run *run)
{
	const char *node = blocker(run);
	char	   *path;

	if (!run->owner_wanted || node[0] == '\0' || strcmp(node, run->owner_of) == 0 ||
		!zk_client_connected())
		return;
	strlcpy(run->owner_of, node, sizeof(run->owner_of));
	run->owner[0] = '\0';
	path = path_node(run->path, node);
	run_call_begin(run);
	zk_look(run_owner(run), path, on_seen, run);
	pfree(path);
}
