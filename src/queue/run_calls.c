/*
 * run_calls.c
 *		What a run asks ZooKeeper about its node, and what it makes of the answers.
 *
 * Each call counts as outstanding with its path, and its run if it has one,
 * until it is answered; neither is freed before.  A run that is of no more use
 * meanwhile is RUN_GONE, and its replies are ignored.  Each reply handler
 * records what it learns and leaves what follows to the pump (path.c).
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/account.h"
#include "queue/contender.h"
#include "queue/listing.h"
#include "queue/parents.h"
#include "queue/report.h"
#include "queue/run.h"
#include "queue/run_calls.h"
#include "queue/watch.h"
#include "shared/session_info.h"
#include "shared/share.h"
#include "zk/zk_client.h"

typedef struct CheckCall
{
	Run	  *run;
	int	   index;	   /* of the contender's entry */
	uint32 generation; /* of that: if it has changed, the contender is gone */
	uint32 number;
	char   node[ZKLOCK_NODE_SIZE];
} CheckCall;

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
	uuid[6] = (uuid[6] & 0x0f) | UUID_VERSION_RANDOM << 4;
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
	run_node_call_begin(run, NODE_CALL_CREATE);
	node = path_node(path, run->name);
	zk_create_followed(owner, node, data, ZK_EPHEMERAL_SEQUENTIAL, on_created, run);
	path_list(path, owner, LIST_AND_WATCH);
	pfree(node);
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

	run_node_call_begin(run, NODE_CALL_DELETE);
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

	run_node_call_begin(run, NODE_CALL_IDENTIFY);
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

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

/* For the time being we cannot see to it that we hear of the node's end. */
static void
watch_own_refused(Run *run)
{
	watch_own_set(run, WATCH_REFUSED);
	run->own_watch_at = zklock_now_ms() + RETRY_MS;
}

/* Our own node, read to set a watch on it. */
static void
on_own_watched(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_call_end(run))
		return;
	watch_own_set(run, reply->outcome == ZK_OK ? WATCH_SET : WATCH_NONE);
	if (reply->outcome == ZK_OK && reply->ephemeral_owner != engine.session_id)
		run_usurped(run);
	else if (reply->outcome == ZK_NO_NODE)
		run_vanished(run);
	else if (reply->outcome != ZK_OK && reply->outcome != ZK_UNKNOWN)
		watch_own_refused(run);
}

/*
 * Makes sure that we hear of it should someone delete the run's node.  While the
 * child watch stands, that does.  But it fires when the contender goes for which
 * the run waits, and nothing is to be asked then: so a run that waits for one has
 * a watch of its own.  A session that may not delete its node is not even told
 * that there is none, and needs one in any case.
 */
void
watch_own(Run *run)
{
	Path *path = run->path;
	bool  refused = run->state == RUN_DELETING && run->refused_in == RUN_DELETING;
	bool  covered = watch_exists(path->child_watch) && !refused && run->blocker == NULL;
	char *node;

	if (watch_exists(run->own_watch) || covered ||
		(run->own_watch == WATCH_REFUSED && !engine_retry_is_due(run->own_watch_at)))
		return;
	if (engine.watch_bytes + path_bytes(path, run->name) > PACKET_BUDGET)
	{
		watch_own_refused(run);
		return;
	}
	watch_own_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = path_node(path, run->name);
	zk_get(run_owner(run), node, ZK_WATCHED, on_own_watched, run);
	pfree(node);
}

/*
 * A predecessor is our session's.  If no run has it, or may yet find that it
 * has, it was left behind by mistake and would block us for ever.
 */
static void
delete_orphan(Path *path, const char *name)
{
	dlist_iter iter;
	char	  *node;

	dlist_foreach (iter, &path->runs)
	{
		Run *run = dlist_container(Run, link, iter.cur);

		if (run->state == RUN_CREATING || run->state == RUN_UNKNOWN ||
			strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return;
	}
	node = path_node(path, name);
	ereport(LOG, (errmsg("deleting ZooKeeper node \"%s\", which this server left behind", node)));
	zk_delete(ZK_WORKER, node, NULL, NULL);
	pfree(node);
}

/* The predecessor, read to set a watch on it. */
static void
on_blocker_watched(void *arg, const ZkReply *reply)
{
	Run	 *run = arg;
	Path *path = run->path;

	if (run->state != RUN_GONE && reply->outcome == ZK_OK)
	{
		watch_blocker_set(run, WATCH_SET);
		run->blocker_announces =
			path->recipe->announces && path->recipe->announces(reply->data, reply->data_length);
		if (reply->ephemeral_owner == engine.session_id && !ZKLOCK_FAULT("orphan"))
			delete_orphan(path, run->blocker);
		else if (session_info_has_ended(reply->ephemeral_owner))
			report_stale(path, run->blocker, reply);
	}
	else
	{
		if (reply->outcome == ZK_NO_NODE)
			path_foreign_remove(path, run->blocker, DEPARTURE_UNSEEN);
		watch_blocker_end(run, reply->outcome == ZK_REFUSED ? WATCH_REFUSED : WATCH_NONE,
						  reply->watching ? WATCH_MAY_EXIST : WATCH_IS_GONE);
	}
	(void) run_call_end(run);
}

/* Watches another client's contender.  One that cannot be read shows among the children. */
void
watch_blocker(Run *run, const char *name)
{
	char *node;

	if (run->blocker_watch == WATCH_REFUSED)
	{
		if (run->path->child_watch == WATCH_NONE)
			path_list(run->path, run_owner(run), LIST_AND_WATCH);
		return;
	}
	if (run->blocker)
	{
		/* Should it be another one, the reply or event will bring us back. */
		if (strcmp(run->blocker, name) == 0 || run->blocker_watch == WATCH_ASKED)
			return;
		watch_blocker_set(run, WATCH_NONE);
	}
	if (engine.watch_bytes + path_bytes(run->path, name) > account_budget(entry_of(run_head(run))))
	{
		run_fail(run, FAILURE_SESSION_FULL, 0);
		return;
	}
	run->blocker = pstrdup(name);
	watch_blocker_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = path_node(run->path, name);
	zk_get(run_owner(run), node, ZK_WATCHED, on_blocker_watched, run);
	pfree(node);
}

/* ------------------------------------------------------------------------
 * Check
 * ------------------------------------------------------------------------
 */

/* The reply to contender_check() */
static void
on_checked(void *arg, const ZkReply *reply)
{
	CheckCall	   *call = arg;
	Run			   *run = call->run;
	ContenderEntry *entry = entry_at(call->index);

	if (reply->outcome == ZK_OK && entry_generation(call->index) == call->generation)
	{
		SpinLockAcquire(&entry->mutex);
		entry->status.check_done = call->number;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}
	if (run_call_end(run) && reply->outcome == ZK_NO_NODE)
	{
		if (strcmp(run->name, call->node) == 0)
			run_vanished(run);
		else
			contender_check(&engine.contenders[call->index]); /* its heir */
	}
	pfree(call);
}

/*
 * A holder about to commit wants to know that its node exists, from a quorum.
 * If the answer is lost, this is called again for the new connection.
 */
void
contender_check(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	CheckCall	   *call;
	uint32			number;
	bool			wanted;
	char		   *node;

	if (c->place != PLACE_GRANTED || !zk_client_connected())
		return;
	SpinLockAcquire(&entry->mutex);
	number = entry->status.check_wanted;
	wanted = number != entry->status.check_done;
	SpinLockRelease(&entry->mutex);
	if (!wanted)
		return;

	call = palloc(sizeof(CheckCall));
	call->run = c->run;
	call->index = entry_index(c);
	call->generation = entry_generation(call->index);
	call->number = number;
	strlcpy(call->node, c->run->name, sizeof(call->node));
	run_call_begin(c->run);
	node = path_node(c->path, call->node);
	zk_check(entry->request.pid, node, on_checked, call);
	pfree(node);
}
