/*
 * downgrade.c
 *		Downgrades: from exclusive to shared without letting go.
 *
 * A session that holds a lock in both modes and gives up the exclusive one remains a shared
 * holder: sessions that wait to share the lock come in, those that want it for themselves
 * stay out.  All of them queue behind the session's node, so a new node at the end of the
 * queue would be too late.  The shared node that replaces the exclusive one, the downgraded
 * node, gets the sequence of the exclusive one, as in Curator since 5.5.
 *
 * The backend records the downgrade in the entry, whose mode becomes shared in the state
 * GRANTED.  The worker does the rest:
 *
 *	- While others of this server wait in the same cohort, it does nothing.  They are next and
 *	  must wait until the shared holder has gone, and contenders that came after them must
 *	  wait for them; the cohort's exclusive node stands for that.
 *	- When the holder is alone in its cohort, the cohort is DOWNGRADING and has a downgraded
 *	  node, whose name follows from that of the exclusive node.  One multi creates the
 *	  downgraded node and deletes the other, both or none, so one of them always exists.
 *	  Nobody joins the cohort any more.
 *	- When that is done, the cohort is shared and goes by the name of the downgraded node.
 *
 * If the reply is lost, or the worker is restarted, a listing shows which of the two nodes
 * exists.  If it is the downgraded node, the multi was executed; if it is neither, someone
 * else deleted the node and the lock is lost.  Since creation and deletion are one, the multi
 * can never be executed after someone else's deletion.  For a later worker, the entries name
 * the exclusive node until it is known to be gone; the worker finds a node of one mode with a
 * holder of the other.
 *
 * If the holder leaves before the outcome is known, the cohort stays DOWNGRADING until then,
 * and the node that exists is deleted.  A later worker does the same, even if all that it
 * finds is the entry of a holder that has lost the lock and keeps the node's name.
 *
 * The multi goes by the node's name.  Where names are reusable, another client's node may have
 * it by then, with data of version 0, like a new one of ours.  So our node's data are written
 * again before, by an answer which shows that the node is ours, and the multi demands the
 * version which that has given them.
 *
 * Fencing tokens go on as before: the cohort keeps the czxid of its exclusive node and its
 * number of grants.  The reply does not contain the downgraded node's czxid.  The cohort need
 * not know it:  it is later than that of the exclusive node (cohort_owns()).
 *
 * Downgrades by other clients
 * ---------------------------
 *
 * An exclusive contender of another client that goes may leave a downgraded node.  A cohort
 * that would wait for the downgraded node looks again, unless one of these shows that there is
 * none:
 *
 *	- The child watch stands.  It would have fired for the downgraded node's creation.
 *	- The watch on the contender reports its deletion, and the contender's client is a
 *	  zklock that announces downgrades, as the version in the node's data shows.  Its multi
 *	  changes the exclusive node before it deletes it.  Nobody can read that change, but a
 *	  watch fires once, for what comes first, so it would have reported a change instead of
 *	  a deletion.  To all other clients the one is as good as the other: they look in any
 *	  case.
 *
 * The second holds on the connection on which the watch was set.  On a later one, a server
 * reports what has been deleted meanwhile and not how; but it does so before its first
 * answer, and cohorts look again after that.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/*
 * Returns true if a shared holder is alone in an exclusive cohort, or was it, and keeps its
 * node.
 */
bool
cohort_wants_downgrade(const Cohort *cohort)
{
	const Contender *holder = cohort_head_or_last_owner(cohort);

	return cohort->path->recipe->downgraded_name && cohort->state == COHORT_GRANTED &&
		   cohort->request.mode == LOCK_MODE_EXCLUSIVE && holder &&
		   (cohort_is_empty(cohort) || contender_behind(holder) == NULL) &&
		   contender_request(holder).mode == LOCK_MODE_SHARED;
}

/*
 * Handles the reply to send_downgrade().  Unless the multi was executed, or refused, a listing
 * will show which of the two nodes exists.
 */
static void
on_downgrade_sent(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
	{
		/*
		 * Another client's node has got the cohort's name by then: nobody needs the downgraded
		 * node.
		 */
		if (reply->outcome == CALL_OK)
			zk_call((ZkCall){.kind = ZK_DELETE, .path = reply->asked->path, .version = ZK_ANY_VERSION},
					NULL, NULL);
		return;
	}
	if (reply->outcome == CALL_OK)
		cohort_downgraded(cohort);
	else if (reply->outcome == CALL_REFUSED && reply->code != ZK_BAD_VERSION &&
			 !zk_error_is_breakdown(reply->code))
	{
		if (cohort_refused(cohort))
			ereport(LOG,
					(errmsg("could not replace ZooKeeper node \"%s/%s\" by a shared one: %s",
							cohort->path->path, cohort->name, zk_error_name(reply->code)),
					 errdetail("Nobody can share this lock until that is done; the attempt is repeated.")));
	}
	else
	{
		cohort->listed = false;
		if (reply->outcome != CALL_UNKNOWN && reply->outcome != CALL_NO_NODE)
			cohort->retry_at = zklock_now_ms() + RETRY_MS;
	}
}

/* Replaces the node, if its data have that version, by the downgraded node. */
static void
send_downgrade(Cohort *cohort, int32 version)
{
	cohort_node_call(cohort,
					 (ZkCall){.kind = ZK_REPLACE,
							  .path = path_node(cohort->path, cohort->downgraded_name),
							  .replaced = path_node(cohort->path, cohort->name),
							  .data = entry_of(cohort_head(cohort))->data,
							  .node_kind = ZK_EPHEMERAL,
							  .version = version,
							  .notice = true},
					 on_downgrade_sent);
}

/* Handles the reply to mark_node(). */
static void
on_node_marked(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	if (reply->outcome == CALL_REFUSED)
		cohort->retry_at = zklock_now_ms() + RETRY_MS;
	else if (cohort_confirmed(cohort, reply) && !cohort_is_empty(cohort))
		send_downgrade(cohort, reply->stat.version);
}

/* Writes the node's data again, so that their version differs from that of a new node. */
static void
mark_node(Cohort *cohort)
{
	if (cohort_is_empty(cohort))
		return;
	cohort_node_call(cohort,
					 (ZkCall){.kind = ZK_SET_DATA,
							  .path = path_node(cohort->path, cohort->name),
							  .data = entry_of(cohort_head(cohort))->data,
							  .version = ZK_ANY_VERSION},
					 on_node_marked);
}

/* Does what comes next for a cohort that is being downgraded. */
void
cohort_downgrade_pump(Cohort *cohort)
{
	Path *path = cohort->path;

	if (cohort->node_calls > 0)
		return;
	if (!cohort->listed)
	{
		if (path->lists_sent == path->lists_done && engine_retry_is_due(cohort->retry_at))
			path_list(path, cohort_owner(cohort), LIST_ONLY);
	}
	else if (cohort_is_empty(cohort))
		cohort_deleting(cohort);
	else if (engine_retry_is_due(cohort->retry_at))
	{
		if (cohort_name_is_reusable(cohort))
			cohort_with_own_node(cohort, mark_node);
		else
			send_downgrade(cohort, ZK_ANY_VERSION);
	}
	else
		watch_own(cohort);
}
