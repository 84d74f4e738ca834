/*
 * watch.c
 *		The engine's watches.
 *
 * There are three kinds: on a path's children, on a run's own node, and on the
 * contender that a run waits for.  table.h draws a watch's life.
 *
 * Someone else might delete a node of ours, and its holder must hear of it.
 * While the child watch stands, any change below the path is noticed; when
 * that has fired, the node gets a watch of its own.  So an uncontended lock
 * needs no request for it.
 *
 * All watches of a session must fit into one packet, which registers them anew
 * on each connection: the engine keeps account of their bytes.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/table.h"

static bool
watch_exists(WatchState state)
{
	return state == WATCH_ASKED || state == WATCH_SET;
}

/* Changes a watch's state and the account of watches. */
static void
watch_set(WatchState *watch, WatchState state, size_t bytes)
{
	if (!watch_exists(*watch) && watch_exists(state))
		engine.watch_bytes += bytes;
	else if (watch_exists(*watch) && !watch_exists(state))
		engine.watch_bytes -= bytes;
	*watch = state;
}

/* ------------------------------------------------------------------------
 * The watch on a path's children
 * ------------------------------------------------------------------------
 */

void
watch_child_set(Path *path, WatchState state)
{
	watch_set(&path->child_watch, state, path_bytes(path, NULL));
}

/* Does without the child watch, and has it removed if it may exist. */
void
watch_child_give_up(Path *path, bool may_exist)
{
	if (may_exist)
		zk_unwatch_children(path->path);
	watch_child_set(path, WATCH_NONE);
}

/* ------------------------------------------------------------------------
 * The watch on a run's own node
 * ------------------------------------------------------------------------
 */

void
watch_own_set(Run *run, WatchState state)
{
	watch_set(&run->own_watch, state, path_bytes(run->path, run->name));
}

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
 * Makes sure that we hear of it should someone delete the run's node.  A
 * session that may not delete its node is not even told that there is none, so
 * then the node needs a watch of its own in any case.
 */
void
watch_own(Run *run)
{
	Path *path = run->path;
	bool  refused = run->state == RUN_DELETING && run->refused_in == RUN_DELETING;
	char *node;

	if (watch_exists(run->own_watch) || (watch_exists(path->child_watch) && !refused) ||
		(run->own_watch == WATCH_REFUSED && !retry_is_due(run->own_watch_at)))
		return;
	if (engine.watch_bytes + path_bytes(path, run->name) > SESSION_BUDGET)
	{
		watch_own_refused(run);
		return;
	}
	watch_own_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = path_node(path, run->name);
	zk_get(node, true, on_own_watched, run);
	pfree(node);
}

/* Would we hear of it, or have heard, if someone deleted the run's node? */
bool
watch_guards(const Run *run)
{
	return run->path->child_watch == WATCH_SET || run->own_watch == WATCH_SET ||
		   run->own_watch == WATCH_REFUSED;
}

/* ------------------------------------------------------------------------
 * The watch on the contender that a run waits for
 * ------------------------------------------------------------------------
 */

/* The name is forgotten with the watch. */
void
watch_blocker_set(Run *run, WatchState state)
{
	watch_set(&run->blocker_watch, state, path_bytes(run->path, run->blocker));
	if (!watch_exists(state))
	{
		pfree(run->blocker);
		run->blocker = NULL;
	}
}

/*
 * Does without the watch, and has it removed if it may exist, unless other runs
 * need it.
 */
static void
give_up(Run *run, WatchState state, bool may_exist)
{
	char	  *watched = path_node(run->path, run->blocker);
	dlist_iter iter;

	dlist_foreach (iter, &run->path->runs)
	{
		Run *other = dlist_container(Run, node, iter.cur);

		if (other != run && other->blocker && strcmp(other->blocker, run->blocker) == 0)
			may_exist = false;
	}
	if (may_exist)
		zk_unwatch_data(watched);
	pfree(watched);
	watch_blocker_set(run, state);
}

void
watch_blocker_give_up(Run *run)
{
	give_up(run, WATCH_NONE, true);
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
		Run *run = dlist_container(Run, node, iter.cur);

		if (run->state == RUN_CREATING || run->state == RUN_UNKNOWN ||
			strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return;
	}
	node = path_node(path, name);
	ereport(LOG, (errmsg("deleting ZooKeeper node \"%s\", which this server left behind", node)));
	zk_delete(node, NULL, NULL);
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
		if (reply->ephemeral_owner == engine.session_id)
			delete_orphan(path, run->blocker);
		else if (zklock_session_has_ended(reply->ephemeral_owner))
			report_stale(path, run->blocker, reply);
	}
	else
	{
		if (reply->outcome == ZK_NO_NODE)
			path_foreign_remove(path, run->blocker);
		give_up(run, reply->outcome == ZK_REFUSED ? WATCH_REFUSED : WATCH_NONE, reply->watching);
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
			path_list(run->path, LIST_AND_WATCH);
		return;
	}
	if (run->blocker)
	{
		/* Should it be another one, the reply or event will bring us back. */
		if (strcmp(run->blocker, name) == 0 || run->blocker_watch == WATCH_ASKED)
			return;
		watch_blocker_set(run, WATCH_NONE);
	}
	if (engine.watch_bytes + path_bytes(run->path, name) > SESSION_BUDGET)
	{
		run_fail(run, FAILURE_SESSION_FULL, 0);
		return;
	}
	run->blocker = pstrdup(name);
	watch_blocker_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = path_node(run->path, name);
	zk_get(node, true, on_blocker_watched, run);
	pfree(node);
}
