/*
 * watch.c
 *		The engine's watches.
 *
 * There are four kinds: on a path's children, on a run's own node, on the
 * contender that a run waits for, and on the path's own node, which streak.c
 * needs.  engine.h draws a watch's life.
 *
 * Someone else might delete a node of ours, and its holder must hear of it.
 * While the child watch stands, any change below the path is noticed; when
 * that has fired, the node gets a watch of its own.  So an uncontended lock
 * needs no request for it.  Nor does one that was granted without a listing,
 * for OWN_WATCH_MS: most are released by then.  Until its node is watched the
 * commit guard asks ZooKeeper (backend/guard.c), and a deletion of ours that finds
 * the node gone tells of the loss.
 *
 * All watches of a session must fit into one packet, which registers them anew
 * on each connection: the engine keeps account of their bytes.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/watch.h"

/* How long a node that was granted without a listing may do without a watch. */
#define OWN_WATCH_MS 5

bool
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
 * The watch on a path's own node
 * ------------------------------------------------------------------------
 */

/* They are not in the account of the others. */
void
watch_path_set(Path *path, WatchState state)
{
	if (!watch_exists(path->path_watch) && watch_exists(state))
		engine.path_watch_bytes += path_bytes(path, NULL);
	else if (watch_exists(path->path_watch) && !watch_exists(state))
		engine.path_watch_bytes -= path_bytes(path, NULL);
	path->path_watch = state;
}

/* Does a run wait for the node of that name, which is another client's contender? */
static bool
is_blocker(const char *node)
{
	const char *child = strrchr(node, '/') + 1;
	char	   *parent = pnstrdup(node, Max(child - 1 - node, 1));
	Path	   *path = path_find(parent);
	dlist_iter	iter;

	pfree(parent);
	if (path == NULL)
		return false;
	dlist_foreach (iter, &path->runs)
	{
		const Run *run = dlist_container(Run, link, iter.cur);

		if (run->blocker && strcmp(run->blocker, child) == 0)
			return true;
	}
	return false;
}

/* Does without the watch, and has it removed if it may exist, unless a run needs it. */
void
watch_path_give_up(Path *path, WatchRemains remains)
{
	if (remains == WATCH_MAY_EXIST && !is_blocker(path->path))
		zk_unwatch_data(path->path);
	watch_path_set(path, WATCH_NONE);
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
watch_child_give_up(Path *path, WatchRemains remains)
{
	if (remains == WATCH_MAY_EXIST)
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
	if (run->own_watch == WATCH_LATER)
		dlist_delete(&run->later_link);
	watch_set(&run->own_watch, state, path_bytes(run->path, run->name));
}

/* The node was just created, and is to be watched if the run is still needed after a while. */
void
watch_own_later(Run *run)
{
	watch_own_set(run, WATCH_LATER);
	run->own_watch_at = zklock_now_ms() + (ZKLOCK_FAULT("late-watches") ? 60000 : OWN_WATCH_MS);
	dlist_push_tail(&engine.watch_later, &run->later_link);
}

/* Looks at the runs for which that is due. */
void
watch_later_attend(void)
{
	int64 now;

	if (dlist_is_empty(&engine.watch_later))
		return;
	now = zklock_now_ms();
	while (!dlist_is_empty(&engine.watch_later))
	{
		Run *run = dlist_head_element(Run, later_link, &engine.watch_later);

		if (run->own_watch_at > now)
			return;
		watch_own_set(run, WATCH_NONE);
		path_mark(run->path);
	}
}

/* When that wants to be called again, ms; or -1. */
int64
watch_later_next_wakeup(void)
{
	return dlist_is_empty(&engine.watch_later)
			   ? -1
			   : dlist_head_element(Run, later_link, &engine.watch_later)->own_watch_at;
}

/* Would we hear of it, or have heard, if someone deleted the run's node? */
bool
watch_covers(const Run *run)
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
 * need it, or the node is a path that has one.
 */
void
watch_blocker_end(Run *run, WatchState state, WatchRemains remains)
{
	char	  *watched = path_node(run->path, run->blocker);
	Path	  *path = path_find(watched);
	dlist_iter iter;

	dlist_foreach (iter, &run->path->runs)
	{
		Run *other = dlist_container(Run, link, iter.cur);

		if (other != run && other->blocker && strcmp(other->blocker, run->blocker) == 0)
			remains = WATCH_IS_GONE;
	}
	if (path && watch_exists(path->path_watch))
		remains = WATCH_IS_GONE;
	if (remains == WATCH_MAY_EXIST)
		zk_unwatch_data(watched);
	pfree(watched);
	watch_blocker_set(run, state);
}
