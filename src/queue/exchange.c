/*
 * exchange.c
 *		A node of ours takes the place of another of ours, in one step.
 *
 * One multi creates the one and deletes the other, both or none, so there is always
 * one of them.  There are two occasions.
 *
 * Replacement: a contender goes to the end of the queue
 * ------------------------------------------------------
 *
 * A contender that goes to the end of the queue should not be out of it for a moment, nor
 * seem to be there twice.  So the new node is created and the old one deleted
 * in one multi.  The old run waits in RUN_DELETING (run->replaced_by) until that
 * is done:
 *
 *		done			the old run is over; what number the new node got, the
 *						answer does not tell: the new run is UNKNOWN, and a listing
 *						finds its node (node.c)
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
 * Downgrade: from exclusive to shared without letting go
 * -------------------------------------------------------
 *
 * A session that holds a lock in both modes and gives up the exclusive one is
 * left as a shared holder: sessions that wait to share the lock come in, those
 * that want it for themselves stay out.  They queue behind the session's node, so a
 * new node at the end of the queue would be too late; the shared node inherits
 * the sequence of the exclusive one, as in Curator since 5.5.
 *
 * The backend records the downgrade in the entry: its mode becomes shared, in
 * the state GRANTED.  From then on it is the worker's to finish:
 *
 *	- While others of this server wait in the same run, nothing is done.  They
 *	  are next and must wait until the shared holder has gone, and contenders
 *	  that came after them must wait for them; the run's exclusive node stands for that.
 *	- When the holder is alone in its run, the run is DOWNGRADING and has an
 *	  heir: the name of the shared node, which follows from that of the
 *	  exclusive one.  One request creates the heir and deletes the other, both
 *	  or none, so there is always one of them.  Nobody joins the run any more.
 *	- When that is done the run is shared and goes by the name of the heir.
 *
 * In between, that request changes the exclusive node.  Nobody can read what it
 * says then, but a watch on the node tells of a change instead of a deletion.  So
 * other servers of this version, which know our nodes by their data, grant a
 * lock without another look when they hear of the deletion alone (path.c).  To
 * all other clients the one is as good as the other, and they look in any case.
 *
 * If the reply is lost, or the worker is restarted, a listing shows which of
 * the two nodes exists: if it is the heir, it was done; if it is neither,
 * someone else deleted the node and the lock is lost.  Since creation and
 * deletion are one, it can never be done after someone else's deletion.  For
 * a later worker the entries name the exclusive node until it is known to be
 * gone; it finds a node of one mode with a holder of the other.
 *
 * If the holder leaves before it is known, both names are deleted.
 *
 * Fencing tokens go on as before: the run keeps the czxid of its exclusive
 * node and its number of grants.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"

/* ------------------------------------------------------------------------
 * Replacement
 * ------------------------------------------------------------------------
 */

static void
on_replaced(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	switch (reply->outcome)
	{
		case ZK_OK:
			run_unsettled(run);
			if (run->replaces)
				run_deleted(run->replaces);
			break;
		case ZK_UNKNOWN:
			run_unsettled(run);
			break;
		case ZK_NO_NODE:
			run_replanned(run);
			if (run->replaces)
				run_deleted(run->replaces);
			break;
		default:
			/* A server that broke down may have done it all the same. */
			if (zk_error_is_breakdown(reply->code))
				run_unsettled(run);
			else
				run_replanned(run);
			run_fail(run, reply->outcome == ZK_NODE_EXISTS ? FAILURE_WORN_OUT : FAILURE_REFUSED,
					 reply->code);
			break;
	}
}

/* Creates the node of a run in place of that of the run which it replaces. */
void
run_replace(Run *run)
{
	char *old = path_node(run->path, run->replaces->name);
	char *node;

	run_choose_name(run);
	run_creating(run);
	run_node_call_begin(run);
	node = path_node(run->path, run->name);
	zk_exchange(run_owner(run), node, entry_of(run_head(run))->data, ZK_EPHEMERAL_SEQUENTIAL,
				old, ZK_UNNOTICED, on_replaced, run);
	pfree(node);
	pfree(old);
}

/* ------------------------------------------------------------------------
 * Downgrade
 * ------------------------------------------------------------------------
 */

/* Is a shared holder alone in an exclusive run? */
bool
run_wants_downgrade(const Run *run)
{
	dlist_head *queue = unconstify(dlist_head *, &run->queue);

	return run->path->recipe->heir && run->state == RUN_GRANTED &&
		   run->request.mode == LOCK_MODE_EXCLUSIVE && !dlist_is_empty(queue) &&
		   !dlist_has_next(queue, dlist_head_node(queue)) &&
		   contender_request(run_head(run)).mode == LOCK_MODE_SHARED;
}

/*
 * The reply to send_exchange().  Unless it was done, or refused, a listing will
 * tell which of the two nodes there is.
 */
static void
on_exchanged(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK)
		run_downgraded(run);
	else if (reply->outcome == ZK_REFUSED)
	{
		if (run_refused(run) && run->state == RUN_DOWNGRADING)
			ereport(LOG,
					(errmsg("could not replace ZooKeeper node \"%s/%s\" by a shared one: %s",
							run->path->path, run->name, zk_error_name(reply->code)),
					 errdetail("Nobody can share this lock until that is done; the attempt is repeated.")));
	}
	else
	{
		run->listed = false;
		if (reply->outcome != ZK_UNKNOWN && reply->outcome != ZK_NO_NODE)
			run->retry_at = zklock_now_ms() + RETRY_MS;
	}
}

static void
send_exchange(Run *run)
{
	char *node = path_node(run->path, run->name);
	char *heir = path_node(run->path, run->heir);

	run_node_call_begin(run);
	zk_exchange(run_owner(run), heir, entry_of(run_head(run))->data, ZK_EPHEMERAL, node,
				ZK_NOTICED, on_exchanged, run);
	pfree(node);
	pfree(heir);
}

/* The node to be replaced, read to make sure that it is still ours. */
static void
on_replaced_identified(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK && reply->ephemeral_owner != engine.session_id)
		run_usurped(run);
	else if (reply->outcome == ZK_REFUSED)
		run->retry_at = zklock_now_ms() + RETRY_MS;
	else if (reply->outcome != ZK_OK)
		run->listed = false;
	else if (run->state == RUN_DOWNGRADING)
		send_exchange(run);
}

/*
 * Replaces the run's node by its heir.  As with a deletion, a name that may be
 * somebody else's by now is looked at first.
 */
static void
run_exchange(Run *run)
{
	if (run_name_recurs(run))
		run_identify(run, run->name, on_replaced_identified);
	else
		send_exchange(run);
}

/* Does what comes next for a run that is being downgraded. */
void
run_downgrade_pump(Run *run)
{
	Path *path = run->path;

	if (run->node_call)
		return;
	if (!run->listed)
	{
		if (path->lists_sent == path->lists_done && engine_retry_is_due(run->retry_at))
			path_list(path, run_owner(run), LIST_ONLY);
	}
	else if (engine_retry_is_due(run->retry_at))
		run_exchange(run);
	else
		watch_own(run);
}
