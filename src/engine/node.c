/*
 * node.c
 *		Creating, finding and deleting a run's node.
 *
 * Reply handlers finish the step that they belong to; path.c decides whom to grant.
 *
 * A reply may be lost with the connection after ZooKeeper has created the node.  A listing
 * then shows whether a node exists that may be it, and the node's owner whether it is.  A
 * name with a UUID fits one node at most.  In a dialect whose names have none, each node of
 * that name is looked at; as our session creates one node of a path at a time, the one that
 * it owns and that is no other run's is the one.
 *
 * A contender that goes to the end of the queue must not be out of it for a moment, nor seem
 * to be in it twice.  So one multi creates the new node and deletes the old one, both or
 * none.  The old run waits in RUN_DELETING (run->replaced_by) for the reply:
 *
 *		done			the old run is over; the reply does not contain the new node's
 *						sequence, so a listing finds the node
 *		not answered	the same, but the old run stays until the new node is found; if
 *						it is not, the multi is sent again
 *		no node			the old node is gone: the new run goes on without it
 *		refused			those in the new run get an error, and the old node is deleted
 *						like any other
 *
 * A worker that takes over finds both entries, one of which names the other, and both runs;
 * session.c ties them together again.  For names without a UUID it helps that the old node
 * is known: any other of our session is the new one.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "fault.h"
#include "zk/zk_client.h"

/* Pause before we find out what a server has done that broke down */
#define BREAKDOWN_MS 1000

/* When a create was refused because its path does not exist, so may others be for a while. */
#define MISSING_MS 1000

static int64 missing_until; /* ms */

/* ------------------------------------------------------------------------
 * Create
 * ------------------------------------------------------------------------
 */

/*
 * Handles a refused create.  Nothing was created, as far as is known, and those who wait for
 * the node get an error.
 */
static void
create_refused(Run *run, const ZkReply *reply)
{
	bool	single = run->path->recipe->single;
	Failure failure = FAILURE_REFUSED;

	/*
	 * A server that broke down may have created it all the same, which is found out before the
	 * claim of an element is refused.
	 */
	if (!zk_error_is_breakdown(reply->code))
		run_replanned(run);
	else if (single)
	{
		run->retry_at = zklock_now_ms() + BREAKDOWN_MS;
		return;
	}

	/* With a sequence: the counter has stopped at its end, where that node is. */
	if (reply->outcome == CALL_NODE_EXISTS)
		failure = single ? FAILURE_BUSY : FAILURE_WORN_OUT;
	else if (reply->outcome == CALL_NO_CHILDREN)
		failure = FAILURE_NO_CHILDREN;
	run_fail(run, failure, reply->code);
}

/* Handles the reply to run_create()'s create; that to its listing follows. */
static void
on_created(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	switch (reply->outcome)
	{
		case CALL_OK:
			if (reply->stat.ephemeral_owner != engine.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			run_created(run, strrchr(reply->path, '/') + 1, reply->stat.czxid);
			parents_exist(run->path);
			break;
		case CALL_UNKNOWN:
			if (ZKLOCK_FAULT("orphan"))
				run_start_over(run);
			break;
		case CALL_NO_NODE:
			missing_until = zklock_now_ms() + MISSING_MS;
			run_replanned(run);
			parents_missing(run, reply->code);
			break;
		default:
			create_refused(run, reply);
			break;
	}
}

/* Handles the reply to the multi that creates one node in place of another. */
static void
on_replaced(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == CALL_NO_NODE)
		run_replanned(run);
	else if (reply->outcome != CALL_OK && reply->outcome != CALL_UNKNOWN)
		create_refused(run, reply);
	if (run->replaces && (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE))
		run_deleted(run->replaces);
}

/* Returns a new random UUID, marked with a version.  To draw many at once is much cheaper. */
static const uint8 *
new_uuid(int version)
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
	uuid[6] = (uuid[6] & 0x0f) | version << 4;
	uuid[8] = (uuid[8] & 0x3f) | 0x80; /* variant 1 */
	return uuid;
}

/*
 * Creates the run's node, whose name has never been used if it has a UUID.  A listing follows
 * right behind; its watch reports all that comes later.
 *
 * The create may go out together with those of other paths, unless the name recurs, since a
 * lost reply is settled by the name.  If paths have been missing, those go that have just been
 * created.
 */
void
run_create(Run *run)
{
	Path  *path = run->path;
	ZkCall create = {.kind = ZK_CREATE,
					 .data = entry_of(run_head(run))->data,
					 .node_kind = path->recipe->single ? ZK_EPHEMERAL : ZK_EPHEMERAL_SEQUENTIAL};

	run->may_keep = kept_later(run);
	path->recipe->write(run->name, sizeof(run->name), &run->request,
						new_uuid(run->may_keep ? UUID_VERSION_KEPT : UUID_VERSION_RANDOM));
	run_creating(run);
	create.path = path_node(path, run->name);
	if (run->replaces)
	{
		create.kind = ZK_EXCHANGE;
		create.other = path_node(path, run->replaces->name);
		create.version = ZK_ANY_VERSION;
		run_node_call(run, create, on_replaced);
	}
	else
	{
		create.followed = true;
		create.patient = !run_name_recurs(run) &&
						 (path->parents_attempts > 0 || zklock_now_ms() >= missing_until);
		run_node_call(run, create, on_created);
		path_list(path, run_owner(run), LIST_AND_WATCH);
	}
}

/* ------------------------------------------------------------------------
 * Probe
 * ------------------------------------------------------------------------
 */

/*
 * Ends a search that has not found the node.  If ZooKeeper refuses to show it, contenders that
 * wait for it get an error; but it may exist, so the search is repeated, so as not to leave it
 * behind.
 */
static void
end_probe(Run *run)
{
	if (run->doubt == 0)
		run_start_over(run);
	else if (zk_error_outcome(run->doubt) != CALL_UNKNOWN)
	{
		run_fail(run, FAILURE_REFUSED, run->doubt);
		run->retry_at = zklock_now_ms() + RETRY_MS;
	}
}

/* Returns true if a node of our session is another run's. */
static bool
is_of_other(const Run *run, const char *child, const NodeStat *stat)
{
	const Run *other = run_by_name(run->path, child);

	return other && (strcmp(other->heir, child) == 0 || run_owns(other, stat));
}

/*
 * Handles the reply about a node that may be the run's, which it is if it is this session's
 * and no other run's.
 */
static void
on_found(void *arg, const ZkReply *reply)
{
	Run		   *run = arg;
	const char *child;

	if (!run_node_call_end(run) || run->state != RUN_CREATING)
		return;
	child = strrchr(reply->asked->path, '/') + 1;
	if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner == engine.session_id &&
		!is_of_other(run, child, &reply->stat))
	{
		run_created(run, child, reply->stat.czxid);
		parents_exist(run->path);
		return;
	}
	if (reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		run->doubt = reply->code;
	if (run->node_calls == 0)
		end_probe(run);
}

/* Returns true if a child of the path may be the node that was to be created for the run. */
static bool
may_be_node(const Run *run, const char *child)
{
	RecipePeer peer;

	return strlen(child) < sizeof(run->name) && run->path->recipe->read(child, &peer) &&
		   peer.numbered && strncmp(child, run->name, strlen(run->name)) == 0 &&
		   (run_name_recurs(run) || run_by_name(run->path, child) == NULL);
}

/* Handles the listing that shows whether a create was executed whose reply was lost. */
static void
on_probed(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	run->doubt = reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE ? 0 : reply->code;
	for (int i = 0; reply->outcome == CALL_OK && i < reply->nchildren; i++)
	{
		if (may_be_node(run, reply->children[i]))
			run_node_call(run,
						  (ZkCall){.kind = ZK_LOOK, .path = path_node(run->path, reply->children[i])},
						  on_found);
	}
	if (run->node_calls == 0)
		end_probe(run);
}

/* Asks whether the node exists whose create was not answered. */
void
run_probe(Run *run)
{
	run_node_call(run, (ZkCall){.kind = ZK_LIST, .path = run->path->path}, on_probed);
}

/* ------------------------------------------------------------------------
 * Touch and delete
 * ------------------------------------------------------------------------
 */

/* Handles the reply to look_for_element(). */
static void
on_element_seen(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == CALL_OK)
		report_unremoved(run->path, LOSS_DELETED);
	if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
		run_finish(run);
	else if (reply->outcome != CALL_UNKNOWN)
		run->retry_at = zklock_now_ms() + RETRY_MS;
}

/*
 * Looks whether an element still exists that was to be deleted with its claim, which is gone.
 */
static void
look_for_element(Run *run)
{
	run_node_call(run, (ZkCall){.kind = ZK_LOOK, .path = run->path->path}, on_element_seen);
}

/*
 * Returns true if the node that was read by the run's name exists and is the run's.  If it is
 * not, the run's is gone.
 */
bool
run_confirmed(Run *run, const ZkReply *reply)
{
	if (reply->outcome == CALL_OK && run_owns(run, &reply->stat))
		return true;
	if (reply->outcome == CALL_OK)
		run_usurped(run);
	else if (reply->outcome == CALL_NO_NODE)
		run_vanished(run);
	return false;
}

/* Handles the reply about a node that is read before something is done with it. */
static void
on_identified(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (run_consumes(run) && (reply->outcome == CALL_NO_NODE ||
							  (reply->outcome == CALL_OK && !run_owns(run, &reply->stat))))
		look_for_element(run);
	else if (run_confirmed(run, reply))
		run->step(run);
	else if (reply->outcome == CALL_REFUSED)
		run->retry_at = zklock_now_ms() + RETRY_MS;
}

/*
 * Has something done with the run's node.  After a lost reply or a restart of the worker, a
 * request may be one too many, so a node whose name may be somebody else's by now is read
 * first, unless a watch would have reported that.
 */
void
run_touch(Run *run, RunStep step)
{
	if (!run_name_recurs(run) || run->own_watch == WATCH_SET)
	{
		step(run);
		return;
	}
	run->step = step;
	run_node_call(run, (ZkCall){.kind = ZK_READ, .path = path_node(run->path, run->name)},
				  on_identified);
}

/* Handles the reply to send_delete(). */
static void
on_deleted(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	run->listed = false;
	if (reply->outcome == CALL_NO_NODE && run_consumes(run))
		look_for_element(run);
	else if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
		run_finish(run);
	else if (reply->outcome != CALL_UNKNOWN && run_refused(run))
		ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s", run->path->path,
							 run->name, zk_error_name(reply->code)),
					  errdetail("Nobody can get this %s until the node is gone; the deletion is repeated.",
								run->path->recipe->name)));
}

/*
 * Returns true if the deletion of the run's node may wait for others, and be sent with them.
 * It may not if another client may wait for it, as far as is known, if the name may become
 * another client's meanwhile, or if the deletion has been refused.
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
	ZkCall delete = {.kind = ZK_DELETE, .path = path_node(run->path, run->name)};

	if (run_consumes(run))
		delete.other = run->path->path;
	else
		delete.patient = deletion_may_wait(run);
	run_node_call(run, delete, on_deleted);
}

/* Deletes the run's node. */
void
run_delete(Run *run)
{
	run_touch(run, send_delete);
}
