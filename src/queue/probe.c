/*
 * probe.c
 *		What became of a node whose create was not answered.
 *
 * A reply may be lost with the connection after ZooKeeper has created the
 * node.  A listing shows whether there is one that may be it, and its owner
 * whether it is.  A name with a UUID fits one node at most.  In a dialect whose
 * names have none, any node of that name is looked at that no other run has; as
 * our session creates one node of a path at a time, the one it owns is the one.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/parents.h"
#include "queue/probe.h"
#include "queue/run.h"
#include "queue/run_calls.h"

/* The search for a node whose create was not answered */
typedef struct Probe
{
	Run	  *run;
	char **names; /* nodes that may be it */
	int	   nnames;
	int	   next;		 /* the one being looked at, or to look at next */
	int	   refused_code; /* of one that could not be read, or 0 */
} Probe;

/*
 * ZooKeeper refuses to tell whether our node exists.  Contenders that wait
 * for it get an error, but it may exist: keep asking, so as not to leave it
 * behind.
 */
static void
probe_refused(Run *run, int code)
{
	run_fail(run, FAILURE_REFUSED, code);
	run->retry_at = zklock_now_ms() + RETRY_MS;
}

static void on_found(void *arg, const ZkReply *reply);

static void
probe_end(Probe *probe)
{
	for (int i = 0; i < probe->nnames; i++)
		pfree(probe->names[i]);
	pfree(probe->names);
	pfree(probe);
}

/* Looks at the next node that may be the one, or draws the conclusion. */
static void
probe_next(Probe *probe)
{
	Run *run = probe->run;

	if (probe->next < probe->nnames)
	{
		char *node = path_node(run->path, probe->names[probe->next]);

		run_node_call_begin(run, NODE_CALL_PROBE);
		zk_get(run_owner(run), node, ZK_UNWATCHED, on_found, probe);
		pfree(node);
		return;
	}
	if (probe->refused_code != 0)
		probe_refused(run, probe->refused_code);
	else
		run_not_created(run);
	probe_end(probe);
}

/* A node that may be ours: is it this session's? */
static void
on_found(void *arg, const ZkReply *reply)
{
	Probe *probe = arg;
	Run	  *run = probe->run;

	if (!run_node_call_end(run))
	{
		probe_end(probe);
		return;
	}
	if (reply->outcome == ZK_OK && reply->ephemeral_owner == engine.session_id)
	{
		run_created(run, probe->names[probe->next], reply->czxid);
		parents_exist(run->path);
		probe_end(probe);
	}
	else if (reply->outcome == ZK_UNKNOWN)
		probe_end(probe);
	else
	{
		if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
			probe->refused_code = reply->code;
		probe->next++;
		probe_next(probe);
	}
}

/* The listing that settles a lost create reply. */
static void
on_probed(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		Probe *probe = palloc0(sizeof(Probe));

		probe->run = run;
		probe->names = palloc(Max(reply->nchildren, 1) * sizeof(char *));
		for (int i = 0; i < reply->nchildren; i++)
		{
			const char *child = reply->children[i];
			RecipePeer	peer;

			if (strlen(child) < sizeof(run->name) && run->path->recipe->read(child, &peer) &&
				peer.numbered && strncmp(child, run->name, strlen(run->name)) == 0 &&
				run_by_name(run->path, child) == NULL)
				probe->names[probe->nnames++] = pstrdup(child);
		}
		probe_next(probe);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		probe_refused(run, reply->code);
}

/* Asks whether the node exists whose create was not answered. */
void
run_probe(Run *run)
{
	run_node_call_begin(run, NODE_CALL_PROBE);
	zk_list(run_owner(run), run->path->path, ZK_UNWATCHED, on_probed, run);
}
