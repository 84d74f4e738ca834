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
 * A contender that goes to the end of the queue should not be out of it for a moment,
 * nor seem to be there twice.  So one multi creates the new node and deletes the old
 * one, both or none.  The old run waits in RUN_DELETING (run->replaced_by) until that
 * is done:
 *
 *		done			the old run is over; what number the new node got, the
 *						answer does not tell: the new run is UNKNOWN, and a listing
 *						finds its node
 *		not answered	the same, but the old run stays until the new node is
 *						found; if it is not, the multi is sent again
 *		no node			the old node is gone: the new run goes on without it
 *		refused			those in the new run get an error, and the old node is
 *						deleted like any other
 *
 * A worker that takes over finds both entries, of which one names the other, and
 * both runs; session.c ties them together again.  For names without a UUID it helps
 * that the old node is known: any other of our session is the new one.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/engine.h"
#include "zk/zk_client.h"

/* Pause before it is found out what a server has done that broke down. */
#define BREAKDOWN_MS 1000

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

/* Nothing was created, as far as is known; those who wait for it are told. */
static void
create_refused(Run *run, const ZkReply *reply)
{
	bool	single = run->path->recipe->single;
	Failure failure = FAILURE_REFUSED;

	/* A server that broke down may have created it all the same. */
	if (zk_error_is_breakdown(reply->code))
		run_unsettled(run);
	else
		run_replanned(run);
	if (single && run->state == RUN_UNKNOWN)
	{
		run->retry_at = zklock_now_ms() + BREAKDOWN_MS;
		return;
	}

	/* With a sequence: the counter has stopped at its end, where that node is. */
	if (reply->outcome == ZK_NODE_EXISTS)
		failure = single ? FAILURE_BUSY : FAILURE_WORN_OUT;
	else if (reply->outcome == ZK_NO_CHILDREN)
		failure = FAILURE_NO_CHILDREN;
	run_fail(run, failure, reply->code);
}

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
			if (reply->stat.ephemeral_owner != engine.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			run_created(run, strrchr(reply->path, '/') + 1, reply->stat.czxid);
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
		default:
			create_refused(run, reply);
			break;
	}
}

/* The reply to the multi that creates one node in place of another */
static void
on_replaced(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_UNKNOWN)
		run_unsettled(run);
	else if (reply->outcome == ZK_NO_NODE)
		run_replanned(run);
	else
		create_refused(run, reply);
	if (run->replaces && (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE))
		run_deleted(run->replaces);
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

/*
 * Creates the run's node, whose name has never been used if it has a UUID.  Right
 * behind it goes a listing, whose watch tells of all that comes.
 */
void
run_create(Run *run)
{
	Path  *path = run->path;
	ZkCall create = {.kind = ZK_CREATE,
					 .owner = run_owner(run),
					 .data = entry_of(run_head(run))->data,
					 .node_kind = path->recipe->single ? ZK_EPHEMERAL : ZK_EPHEMERAL_SEQUENTIAL};

	path->recipe->write(run->name, sizeof(run->name), &run->request, new_uuid());
	run_creating(run);
	run_node_call_begin(run);
	create.path = path_node(path, run->name);
	if (run->replaces)
	{
		create.kind = ZK_EXCHANGE;
		create.other = path_node(path, run->replaces->name);
		create.version = ZK_ANY_VERSION;
		zk_call(create, on_replaced, run);
	}
	else
	{
		create.followed = true;
		zk_call(create, on_created, run);
		path_list(path, create.owner, LIST_AND_WATCH);
	}
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
		run_node_call_begin(run);
		zk_call((ZkCall){.kind = ZK_READ,
						 .owner = run_owner(run),
						 .path = path_node(run->path, probe->names[probe->next])},
				on_found, probe);
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
	if (reply->outcome == ZK_OK && reply->stat.ephemeral_owner == engine.session_id)
	{
		run_created(run, probe->names[probe->next], reply->stat.czxid);
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
	zk_call((ZkCall){.kind = ZK_LIST, .owner = run_owner(run), .path = run->path->path},
			on_probed, run);
}

/* ------------------------------------------------------------------------
 * Touch and delete
 * ------------------------------------------------------------------------
 */

/* A node is looked at before something is done with it. */
typedef struct TouchCall
{
	Run	   *run;
	RunStep step;
} TouchCall;

static void
on_identified(void *arg, const ZkReply *reply)
{
	TouchCall *call = arg;
	Run		  *run = call->run;
	RunStep	   step = call->step;

	pfree(call);
	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK && reply->stat.ephemeral_owner == engine.session_id)
		step(run);
	else if (reply->outcome == ZK_OK)
		run_usurped(run);
	else if (reply->outcome == ZK_NO_NODE)
		run_vanished(run);
	else if (reply->outcome != ZK_UNKNOWN)
		run->retry_at = zklock_now_ms() + RETRY_MS;
}

/*
 * Has something done with the run's node.  A request may be one too many, after a
 * lost reply or a restart of the worker, so a name that may be somebody else's by
 * now is looked at first.  A single node is known to be ours if it was seen on this
 * connection, as its end would have been.
 */
void
run_touch(Run *run, RunStep step)
{
	TouchCall *call;

	if (!run_name_recurs(run) || (run->path->recipe->single && run->listed))
	{
		step(run);
		return;
	}
	call = palloc(sizeof(TouchCall));
	*call = (TouchCall){.run = run, .step = step};
	run_node_call_begin(run);
	zk_call((ZkCall){.kind = ZK_READ, .owner = run_owner(run), .path = path_node(run->path, run->name)},
			on_identified, call);
}

/* The reply to send_delete() */
static void
on_deleted(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	run->listed = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		run_finish(run);
	else if (reply->outcome != ZK_UNKNOWN && run_refused(run))
		ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s", run->path->path,
							 run->name, zk_error_name(reply->code)),
					  errdetail("Nobody can get this %s until the node is gone; the deletion is repeated.",
								run->path->recipe->name)));
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
	ZkCall delete = {.kind = ZK_DELETE, .owner = run_owner(run), .path = path_node(run->path, run->name)};

	if (run->record && contender_consumes(run->record))
		delete.other = run->path->path;
	else
		delete.patient = deletion_may_wait(run);
	run_node_call_begin(run);
	zk_call(delete, on_deleted, run);
}

/* Deletes the run's node. */
void
run_delete(Run *run)
{
	run_touch(run, send_delete);
}
