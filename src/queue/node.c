/*
 * node.c
 *		The node of a run: created, looked for, deleted.
 *
 * Each reply handler records what it learns and leaves what follows to path.c.
 *
 * A reply may be lost with the connection after ZooKeeper has created the
 * node.  A listing shows whether there is one that may be it, and its owner
 * whether it is.  A name with a UUID fits one node at most.  In a dialect whose
 * names have none, any node of that name is looked at that no other run has; as
 * our session creates one node of a path at a time, the one it owns is the one.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/engine.h"
#include "zk/zk_client.h"

/* The search for a node whose create was not answered */
typedef struct Probe
{
	Run	  *run;
	char **names; /* nodes that may be it */
	int	   nnames;
	int	   next;		 /* the one being looked at, or to look at next */
	int	   refused_code; /* of one that could not be read, or 0 */
} Probe;

/* ------------------------------------------------------------------------
 * Create
 * ------------------------------------------------------------------------
 */

/* The reply to run_create()'s create; that to its listing follows. */
static void
on_created(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	switch (reply->outcome)
	{
		case ZK_OK:
			if (reply->ephemeral_owner != engine.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			run_created(run, strrchr(reply->path, '/') + 1, reply->czxid);
			parents_exist(run->path);
			break;
		case ZK_UNKNOWN:
			run_unsettled(run);
			if (ZKLOCK_FAULT("orphan"))
				run_not_created(run);
			break;
		case ZK_NO_NODE:
			run_replanned(run);
			parents_missing(run, reply->code);
			break;
		case ZK_NODE_EXISTS:
			/* The counter has stopped at its end, where that node is. */
			run_replanned(run);
			run_fail(run, FAILURE_WORN_OUT, 0);
			break;
		default:
			/* A server that broke down may have created it all the same. */
			if (zk_error_is_breakdown(reply->code))
				run_unsettled(run);
			else
				run_replanned(run);
			run_fail(run, reply->outcome == ZK_NO_CHILDREN ? FAILURE_NO_CHILDREN : FAILURE_REFUSED,
					 reply->code);
			break;
	}
}

/* A new random UUID.  To draw many at once is much cheaper. */
static const uint8 *
new_uuid(void)
{
	static uint8 drawn[64][ZKLOCK_UUID_BYTES];
	static int	 left = 0;
	uint8		*uuid;

	if (left == 0)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(drawn);
	}
	uuid = drawn[--left];
	uuid[6] = (uuid[6] & 0x0f) | 0x40; /* version 4: random */
	uuid[8] = (uuid[8] & 0x3f) | 0x80; /* variant 1 */
	return uuid;
}

/* Chooses the name of a new node, which has never been used if it has a UUID. */
void
run_choose_name(Run *run)
{
	run->path->recipe->write(run->name, sizeof(run->name), &run->request, new_uuid());
}

/* Sends create and, right behind it, a listing, whose watch tells of all that comes. */
void
run_create(Run *run)
{
	Path	   *path = run->path;
	const char *data = entry_of(run_head(run))->data;
	int			owner = run_owner(run);
	char	   *node;

	run_choose_name(run);
	run_creating(run);
	run_node_call_begin(run);
	node = path_node(path, run->name);
	zk_create_followed(owner, node, data, ZK_EPHEMERAL_SEQUENTIAL, on_created, run);
	path_list(path, owner, LIST_AND_WATCH);
	pfree(node);
}

/* ------------------------------------------------------------------------
 * Probe
 * ------------------------------------------------------------------------
 */

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

		run_node_call_begin(run);
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
	run_node_call_begin(run);
	zk_list(run_owner(run), run->path->path, ZK_UNWATCHED, on_probed, run);
}

/* ------------------------------------------------------------------------
 * Delete
 * ------------------------------------------------------------------------
 */

/* The node to be deleted next: the heir's, if there may be one, or the run's own */
static const char *
doomed_name(const Run *run)
{
	return run->state == RUN_DELETING_HEIR ? run->heir : run->name;
}

/* That is gone. */
static void
doomed_gone(Run *run)
{
	if (run->state == RUN_DELETING_HEIR)
		run_heir_deleted(run);
	else
		run_finish(run);
}

/* The reply to send_delete() */
static void
on_deleted(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		doomed_gone(run);
	else if (reply->outcome != ZK_UNKNOWN && run_refused(run))
		ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s", run->path->path,
							 run->name, zk_error_name(reply->code)),
					  errdetail("Nobody can get this lock until the node is gone; the deletion is repeated.")));
}

/*
 * May the deletion of the run's node wait for others, and go out with them?  Not if
 * another client may wait for it, as far as is known, if the name may become another's
 * meanwhile, or if the deletion has been refused.
 */
static bool
deletion_may_wait(const Run *run)
{
	return run->path->nforeign == 0 && run->path->child_watch == WATCH_SET &&
		   !run_name_recurs(run) && run->refused_in != run->state;
}

static void
send_delete(Run *run)
{
	char *node = path_node(run->path, doomed_name(run));

	run_node_call_begin(run);
	if (deletion_may_wait(run))
		zk_delete_patiently(run_owner(run), node, on_deleted, run);
	else
		zk_delete(run_owner(run), node, on_deleted, run);
	pfree(node);
}

/* The node to be deleted, read to make sure that it is still ours. */
static void
on_doomed_identified(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK && reply->ephemeral_owner == engine.session_id)
		send_delete(run);
	else if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		doomed_gone(run);
	else if (reply->outcome != ZK_UNKNOWN)
		run->retry_at = zklock_now_ms() + RETRY_MS;
}

/* Reads whose a node is, before it is touched. */
void
run_identify(Run *run, const char *name, ZkReplyHandler handler)
{
	char *node = path_node(run->path, name);

	run_node_call_begin(run);
	zk_get(run_owner(run), node, ZK_UNWATCHED, handler, run);
	pfree(node);
}

/*
 * Deletes the run's node, or what may have taken its place.  A delete may be
 * one too many, after a lost reply or a restart of the worker, so a name that
 * may be somebody else's by now is looked at first.
 */
void
run_delete(Run *run)
{
	if (run_name_recurs(run))
		run_identify(run, doomed_name(run), on_doomed_identified);
	else
		send_delete(run);
}
