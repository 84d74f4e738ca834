/*
 * watch.c
 *		Watches that report the end of a node: ours, or that for which a run waits.
 *
 * Someone else might delete a node of ours, and its holder must hear of it.  While the child
 * watch stands, it reports any change below the path; when that has fired, the node gets a
 * watch of its own.  So an uncontended lock needs no request for one.  A run that waits for
 * another client's contender watches that contender's node.  A holder about to commit may
 * also have a quorum asked for its node.
 *
 * Names that recur
 * ----------------
 *
 * Hive's names, those of elections with names "zookeeper", and the one name of an element's
 * claim are given again when a path, or node, has been deleted and created again.  What goes
 * by such a name proves nothing: a listing, a child watch, whose event is used up by anything
 * else, or an event of an earlier connection, which reports a change where one node has taken
 * the place of another.  The node is the run's if it has been read on this connection, is our
 * session's, and has the run's czxid (run_owns()): no two nodes of a name have the same.  The
 * read sets a watch on the node, so from its reply on we hear of the node's end before
 * anything that follows.  A new connection makes that void.  Until then
 *
 *	- nobody is granted under the node (watch_covers());
 *	- those behind it wait, as it may be another client's, even if nobody is in its run's
 *	  queue any more (peers.c);
 *	- it is not deleted or replaced (run_touch(), run_plan()).
 *
 * It does not matter whose it was when the path was listed: if it is ours now it was ours
 * then, as our nodes are listed after their creation.
 *
 * ZooKeeper's check goes by the name, too, and a new node has the version 0 like the one
 * before.  So when a check was committed, the node is looked at once more.  The reply is of
 * a state that includes the check: a session's requests are executed in their order, and a
 * server with an older state does not accept our connection.  If it shows our node, with the
 * czxid with which it was created, then the node was there when the check was committed, too,
 * as an old czxid never comes back.
 *
 * engine_internal.h draws a watch's life, accounts.c counts its bytes.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

typedef struct CheckCall
{
	Run	  *run;
	int	   index;	   /* of the contender's entry */
	uint32 generation; /* of that: if it has changed, the contender is gone */
	uint32 number;
} CheckCall;

/*
 * Returns true if we would hear, or have heard, of a deletion of the run's node by someone
 * else.  A watch that ZooKeeper refuses is no reason to wait for it (path.c).
 */
bool
watch_covers(const Run *run)
{
	return run->own_watch == WATCH_SET || run->own_watch == WATCH_REFUSED ||
		   (run->path->child_watch == WATCH_SET && !run_name_recurs(run));
}

/* Returns true if the node that has the run's name is known to be the run's. */
bool
run_is_identified(const Run *run)
{
	return !run_name_recurs(run) || watch_covers(run);
}

/* Counts a reply about our own node.  Returns false if the run, or that node, is gone. */
static bool
own_call_end(Run *run, const ZkReply *reply)
{
	/* An heir, the shared node that replaces an exclusive one, may have taken its place. */
	return run_call_end(run) && strcmp(path_node(run->path, run->name), reply->asked->path) == 0;
}

/* Handles the reply about our own node, which is looked at because it cannot be watched. */
static void
on_own_looked(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!own_call_end(run, reply))
		return;
	watch_own_set(run, reply->outcome == CALL_OK ? WATCH_REFUSED : WATCH_NONE);
	(void) run_confirmed(run, reply);
}

/*
 * Takes note that for the time being no watch can report the node's end.  ZooKeeper before
 * 3.9.3 shows all the same whose the node is; a name that recurs is of no use without that.
 */
static void
watch_own_refused(Run *run)
{
	run->own_watch_at = zklock_now_ms() + RETRY_MS;
	watch_own_set(run, run_name_recurs(run) ? WATCH_ASKED : WATCH_REFUSED);
	if (run_name_recurs(run))
		run_call(run, (ZkCall){.kind = ZK_LOOK, .path = path_node(run->path, run->name)}, on_own_looked);
}

/*
 * The run whose node was to be watched is gone, and the name may be another client's by now.
 * The watch that was set goes, unless a run of ours has that node, or waits for it.
 */
static void
unwatch_stray(const Path *path, const char *node)
{
	for (Run *run = run_first(path); run; run = run_after(run))
	{
		if ((run->own_watch == WATCH_SET && strcmp(path_node(path, run->name), node) == 0) ||
			(run->blocker_watch == WATCH_SET && strcmp(path_node(path, run->blocker), node) == 0))
			return;
	}
	zk_call((ZkCall){.kind = ZK_UNWATCH_DATA, .path = node}, NULL, NULL);
}

/* Handles the reply about our own node, which is read to set a watch on it. */
static void
on_own_watched(void *arg, const ZkReply *reply)
{
	Run		   *run = arg;
	const Path *path = run->path;

	if (!own_call_end(run, reply))
	{
		if (reply->outcome == CALL_OK)
			unwatch_stray(path, reply->asked->path);
		return;
	}
	if (reply->outcome == CALL_REFUSED)
	{
		watch_own_refused(run);
		return;
	}
	watch_own_set(run, reply->outcome == CALL_OK ? WATCH_SET : WATCH_NONE);
	if (run_confirmed(run, reply) && node_contender_tells_broken(reply->data, reply->data_length))
		entries_expect_deletion(run->id, LOSS_BROKEN);
}

/*
 * Makes sure that we hear of it if someone deletes the run's node.  The child watch does while
 * it stands, unless the name recurs.  But it fires when the contender goes for which the run
 * waits, and nothing is to be asked then, so a run that waits for another client has a watch
 * of its own.  A session that may not delete its node does not see from the reply whether the
 * node still exists, and needs the watch in any case.
 */
void
watch_own(Run *run)
{
	Path *path = run->path;
	bool  refused = run->state == RUN_DELETING && run->refused_in == RUN_DELETING;
	bool  covered = watch_exists(path->child_watch) && !refused && run->blocker == NULL &&
				   !run_name_recurs(run);

	if (watch_exists(run->own_watch) || covered || !engine_retry_is_due(run->own_watch_at))
		return;
	if (!watch_has_room(path, run->name, NULL))
	{
		watch_own_refused(run);
		return;
	}
	watch_own_set(run, WATCH_ASKED);
	run_call(run, (ZkCall){.kind = ZK_READ, .path = path_node(path, run->name), .watch = true},
			 on_own_watched);
}

/*
 * Deletes a predecessor that is our session's, unless a run has it, or may yet find that it
 * has.  It was left behind by mistake and would block us for ever.
 */
static void
delete_orphan(Path *path, const char *name)
{
	char *node;

	for (Run *run = run_first(path); run; run = run_after(run))
	{
		if (run->state == RUN_CREATING || strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return;
	}
	node = path_node(path, name);
	ereport(LOG, (errmsg("deleting ZooKeeper node \"%s\", which this server left behind", node)));
	zk_call((ZkCall){.kind = ZK_DELETE, .path = node}, NULL, NULL);
}

/* Handles the reply about the predecessor, which is read to set a watch on it. */
static void
on_blocker_watched(void *arg, const ZkReply *reply)
{
	Run	 *run = arg;
	Path *path = run->path;

	if (run->state != RUN_GONE && reply->outcome == CALL_OK)
	{
		watch_blocker_set(run, WATCH_SET);
		run->blocker_announces = node_contender_tells_version(reply->data, reply->data_length);
		if (reply->stat.ephemeral_owner == engine.session_id && !ZKLOCK_FAULT("orphan"))
			delete_orphan(path, run->blocker);
		else if (session_info_has_ended(reply->stat.ephemeral_owner))
			report_stale(path, run->blocker, reply);
	}
	else
	{
		if (reply->outcome == CALL_NO_NODE)
			path_foreign_remove(path, run->blocker, HEIR_POSSIBLE);
		if (reply->watching)
			watch_blocker_set(run, WATCH_SET);
		watch_blocker_give_up(run, reply->outcome == CALL_REFUSED ? WATCH_REFUSED : WATCH_NONE);
	}
	(void) run_call_end(run);
}

/* Watches another client's contender. */
void
watch_blocker(Run *run, const char *name)
{
	if (run->blocker)
	{
		/* If it is another one, the reply or event will bring us back. */
		if (strcmp(run->blocker, name) == 0 || run->blocker_watch == WATCH_ASKED)
			return;
		watch_blocker_set(run, WATCH_NONE);
	}
	if (!watch_has_room(run->path, name, entry_of(run_head(run))))
	{
		run_fail(run, FAILURE_SESSION_FULL, 0);
		return;
	}
	run->blocker = pstrdup(name);
	watch_blocker_set(run, WATCH_ASKED);
	run_call(run, (ZkCall){.kind = ZK_READ, .path = path_node(run->path, name), .watch = true},
			 on_blocker_watched);
}

/* ------------------------------------------------------------------------
 * Proof for a commit
 * ------------------------------------------------------------------------
 */

/* Asks about the node of the run, which goes by its name as it is now. */
static void
check_call(CheckCall *call, ZkCallKind kind, ZkReplyHandler handler)
{
	Run *run = call->run;

	run_call_begin(run);
	zk_call((ZkCall){.kind = kind,
					 .owner = entry_owner(entry_at(call->index)),
					 .path = path_node(run->path, run->name)},
			handler, call);
}

/* Passes the result of the check to the session that asked for it, if it still exists. */
static void
check_passed(const CheckCall *call)
{
	ContenderEntry *entry = entry_at(call->index);

	if (entry_generation(call->index) != call->generation)
		return;
	SpinLockAcquire(&entry->mutex);
	entry->status.check_done = call->number;
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
}

/*
 * Handles the reply about a node whose name passed a check, and which is looked at after it.
 */
static void
on_check_looked(void *arg, const ZkReply *reply)
{
	CheckCall *call = arg;

	if (own_call_end(call->run, reply) && run_confirmed(call->run, reply))
		check_passed(call);
	pfree(call);
}

/*
 * Handles the reply to contender_check().  If an heir has taken the node's place, the session
 * asks again.
 */
static void
on_checked(void *arg, const ZkReply *reply)
{
	CheckCall *call = arg;
	Run		  *run = call->run;
	bool	   recurs = run_name_recurs(run);
	bool	   current = own_call_end(run, reply);

	if (reply->outcome == CALL_OK && current && recurs)
	{
		check_call(call, ZK_LOOK, on_check_looked);
		return;
	}
	if (reply->outcome == CALL_OK && !recurs)
		check_passed(call);
	else if (reply->outcome == CALL_NO_NODE && current)
		run_vanished(run);
	pfree(call);
}

/*
 * Asks a quorum whether the node of a holder about to commit exists, if its session wants to
 * know.  If the reply is lost, this is called again for the new connection.
 */
void
contender_check(Contender *c)
{
	CheckCall  *call;
	EntryStatus status;

	if (c->place != PLACE_GRANTED || !zk_client_connected())
		return;
	status = entry_status(entry_index(c));
	if (status.check_wanted == status.check_done)
		return;

	call = palloc(sizeof(CheckCall));
	*call = (CheckCall){.run = c->run,
						.index = entry_index(c),
						.generation = entry_generation(entry_index(c)),
						.number = status.check_wanted};
	check_call(call, ZK_CHECK, on_checked);
}
