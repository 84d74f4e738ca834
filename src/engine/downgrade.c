/*
 * downgrade.c
 *		From exclusive to shared without letting go.
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
 * If the holder leaves before it is known, the run stays DOWNGRADING until then;
 * the node that there is is deleted.  The same goes for a later worker, even if all that it
 * finds is the entry of a holder that has lost the lock and keeps the node's name.
 *
 * Fencing tokens go on as before: the run keeps the czxid of its exclusive
 * node and its number of grants.  That of the heir is not told, and need not be
 * known: it is later than that of the exclusive node (run_owns()).
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/* Is a shared holder alone in an exclusive run, or was it, and keeps its node? */
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
 * The reply to send_heir().  Unless it was done, or refused, a listing will
 * tell which of the two nodes there is.
 */
static void
on_heir_sent(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
	{
		/* Its name was another client's by then: nobody needs the heir. */
		if (reply->outcome == CALL_OK)
			zk_call((ZkCall){.kind = ZK_DELETE, .path = reply->asked->path, .version = ZK_ANY_VERSION},
					NULL, NULL);
		return;
	}
	if (reply->outcome == CALL_OK)
		run_downgraded(run);
	else if (reply->outcome == CALL_REFUSED && !zk_error_is_breakdown(reply->code))
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

/* Replaces the run's node by its heir, unless the last contender has left meanwhile. */
static void
send_heir(Run *run)
{
	if (run_is_empty(run))
		return;
	run_node_call(run,
				  (ZkCall){.kind = ZK_EXCHANGE,
						   .path = path_node(run->path, run->heir),
						   .other = path_node(run->path, run->name),
						   .data = entry_of(run_head(run))->data,
						   .node_kind = ZK_EPHEMERAL,
						   .version = ZK_ANY_VERSION,
						   .notice = true},
				  on_heir_sent);
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
		run_touch(run, send_heir);
	else
		watch_own(run);
}
