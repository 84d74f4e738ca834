/*
 * downgrade.c
 *		Downgrades: from exclusive to shared without letting go.
 *
 * A session that holds a lock in both modes and gives up the exclusive one remains a shared
 * holder: sessions that wait to share the lock come in, those that want it for themselves
 * stay out.  All of them queue behind the session's node, so a new node at the end of the
 * queue would be too late.  The shared node that replaces the exclusive one, its heir, gets
 * the sequence of the exclusive one, as in Curator since 5.5.
 *
 * The backend records the downgrade in the entry, whose mode becomes shared in the state
 * GRANTED.  The worker does the rest:
 *
 *	- While others of this server wait in the same run, it does nothing.  They are next and
 *	  must wait until the shared holder has gone, and contenders that came after them must
 *	  wait for them; the run's exclusive node stands for that.
 *	- When the holder is alone in its run, the run is DOWNGRADING and has an heir, whose
 *	  name follows from that of the exclusive node.  One multi creates the heir and deletes
 *	  the other, both or none, so one of them always exists.  Nobody joins the run any more.
 *	- When that is done, the run is shared and goes by the name of the heir.
 *
 * If the reply is lost, or the worker is restarted, a listing shows which of the two nodes
 * exists.  If it is the heir, the multi was executed; if it is neither, someone else deleted
 * the node and the lock is lost.  Since creation and deletion are one, the multi can never
 * be executed after someone else's deletion.  For a later worker, the entries name the
 * exclusive node until it is known to be gone; the worker finds a node of one mode with a
 * holder of the other.
 *
 * If the holder leaves before the outcome is known, the run stays DOWNGRADING until then, and
 * the node that exists is deleted.  A later worker does the same, even if all that it finds
 * is the entry of a holder that has lost the lock and keeps the node's name.
 *
 * The multi goes by the node's name.  Where names recur, another client's node may have it by
 * then, with data of version 0, like a new one of ours.  So our node's data are written again
 * before, by an answer which shows that the node is ours, and the multi demands the version
 * which that has given them.
 *
 * Fencing tokens go on as before: the run keeps the czxid of its exclusive node and its
 * number of grants.  The reply does not contain the heir's czxid.  The run need not know it:
 * it is later than that of the exclusive node (run_owns()).
 *
 * Heirs of other clients
 * ----------------------
 *
 * An exclusive contender of another client that goes may leave an heir.  A run that would
 * wait for the heir looks again, unless one of these shows that there is none:
 *
 *	- The child watch stands.  It would have fired for the heir's creation.
 *	- The watch on the contender reports its deletion, and the contender's client is a
 *	  zklock that announces heirs, as the version in the node's data shows.  Its multi
 *	  changes the exclusive node before it deletes it.  Nobody can read that change, but a
 *	  watch fires once, for what comes first, so it would have reported a change instead of
 *	  a deletion.  To all other clients the one is as good as the other: they look in any
 *	  case.
 *
 * The second holds on the connection on which the watch was set.  On a later one, a server
 * reports what has been deleted meanwhile and not how; but it does so before its first
 * answer, and runs look again after that.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/*
 * Returns true if a shared holder is alone in an exclusive run, or was it, and keeps its node.
 */
bool
run_wants_downgrade(const Run *run)
{
	const Contender *holder = run_head_or_keeper(run);

	return run->path->recipe->heir && run->state == RUN_GRANTED &&
		   run->request.mode == LOCK_MODE_EXCLUSIVE && holder &&
		   (run_is_empty(run) || contender_behind(holder) == NULL) &&
		   contender_request(holder).mode == LOCK_MODE_SHARED;
}

/*
 * Handles the reply to send_heir().  Unless the multi was executed, or refused, a listing will
 * show which of the two nodes exists.
 */
static void
on_heir_sent(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
	{
		/* Another client's node has got the run's name by then: nobody needs the heir. */
		if (reply->outcome == CALL_OK)
			zk_call((ZkCall){.kind = ZK_DELETE, .path = reply->asked->path, .version = ZK_ANY_VERSION},
					NULL, NULL);
		return;
	}
	if (reply->outcome == CALL_OK)
		run_downgraded(run);
	else if (reply->outcome == CALL_REFUSED && reply->code != ZK_BAD_VERSION &&
			 !zk_error_is_breakdown(reply->code))
	{
		if (run_refused(run))
			ereport(LOG,
					(errmsg("could not replace ZooKeeper node \"%s/%s\" by a shared one: %s",
							run->path->path, run->name, zk_error_name(reply->code)),
					 errdetail("Nobody can share this lock until that is done; the attempt is repeated.")));
	}
	else
	{
		run->listed = false;
		if (reply->outcome != CALL_UNKNOWN && reply->outcome != CALL_NO_NODE)
			run->retry_at = zklock_now_ms() + RETRY_MS;
	}
}

/* Replaces the node, if its data have that version, by the heir. */
static void
send_heir(Run *run, int32 version)
{
	run_node_call(run,
				  (ZkCall){.kind = ZK_EXCHANGE,
						   .path = path_node(run->path, run->heir),
						   .other = path_node(run->path, run->name),
						   .data = entry_of(run_head(run))->data,
						   .node_kind = ZK_EPHEMERAL,
						   .version = version,
						   .notice = true},
				  on_heir_sent);
}

/* Handles the reply to mark_node(). */
static void
on_node_marked(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == CALL_REFUSED)
		run->retry_at = zklock_now_ms() + RETRY_MS;
	else if (run_confirmed(run, reply) && !run_is_empty(run))
		send_heir(run, reply->stat.version);
}

/* Writes the node's data again, so that their version differs from that of a new node. */
static void
mark_node(Run *run)
{
	if (run_is_empty(run))
		return;
	run_node_call(run,
				  (ZkCall){.kind = ZK_SET,
						   .path = path_node(run->path, run->name),
						   .data = entry_of(run_head(run))->data,
						   .version = ZK_ANY_VERSION},
				  on_node_marked);
}

/* Does what comes next for a run that is being downgraded. */
void
run_downgrade_pump(Run *run)
{
	Path *path = run->path;

	if (run->node_calls > 0)
		return;
	if (!run->listed)
	{
		if (path->lists_sent == path->lists_done && engine_retry_is_due(run->retry_at))
			path_list(path, run_owner(run), LIST_ONLY);
	}
	else if (run_is_empty(run))
		run_abandoned(run);
	else if (engine_retry_is_due(run->retry_at))
	{
		if (run_name_recurs(run))
			run_touch(run, mark_node);
		else
			send_heir(run, ZK_ANY_VERSION);
	}
	else
		watch_own(run);
}
