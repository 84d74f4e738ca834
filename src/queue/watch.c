/*
 * watch.c
 *		The engine's watches.
 *
 * There are three kinds: on a path's children, on a run's own node, and on the
 * contender that a run waits for.  engine.h draws a watch's life.
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

#include "queue/watch.h"

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
	watch_set(&run->own_watch, state, path_bytes(run->path, run->name));
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
	dlist_iter iter;

	dlist_foreach (iter, &run->path->runs)
	{
		Run *other = dlist_container(Run, link, iter.cur);

		if (other != run && other->blocker && strcmp(other->blocker, run->blocker) == 0)
			remains = WATCH_IS_GONE;
	}
	if (remains == WATCH_MAY_EXIST)
		zk_unwatch_data(watched);
	pfree(watched);
	watch_blocker_set(run, state);
}
