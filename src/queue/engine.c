/*
 * engine.c
 *		The books of the engine: paths, other clients' contenders, calls.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"

Engine engine = {.retry_at = -1};

/* Is it time?  If not, see to it that the main loop comes back. */
bool
engine_retry_is_due(int64 at)
{
	if (at <= zklock_now_ms())
		return true;
	if (engine.retry_at < 0 || at < engine.retry_at)
		engine.retry_at = at;
	return false;
}

/* ------------------------------------------------------------------------
 * The book of paths
 * ------------------------------------------------------------------------
 */

/*
 * What a watch on the path, or on a node below it, costs in the packet that
 * registers all of them again; a node in the list of ephemeral nodes likewise.
 */
size_t
path_bytes(const Path *path, const char *name)
{
	return engine.chroot_len + strlen(path->path) + (name ? 1 + strlen(name) : 0) + PATH_OVERHEAD;
}

/* The full path of a node, to be freed by the caller. */
char *
path_node(const Path *path, const char *name)
{
	return psprintf("%s/%s", path->path, name);
}

/*
 * Finds a path by name, making it if we do not know it.  All its contenders
 * have the same recipe: returns NULL if it is in use with another one.
 */
Path *
path_get(const char *name, const Recipe *recipe)
{
	bool  found;
	Path *path = hash_search(engine.paths, name, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) path + sizeof(path->path), 0, sizeof(Path) - sizeof(path->path));
		path->recipe = recipe;
		dlist_init(&path->runs);
		dlist_init(&path->arrivals);
	}
	return path->recipe == recipe ? path : NULL;
}

/* The path of that name, or NULL. */
Path *
path_find(const char *name)
{
	/* Other clients may have nodes with longer paths than ours can be. */
	return strlen(name) <= ZKLOCK_MAX_PATH ? hash_search(engine.paths, name, HASH_FIND, NULL) : NULL;
}

/* Has something happened to the path?  Then it is looked at in this round. */
void
path_mark(Path *path)
{
	if (!path->marked)
		dlist_push_tail(&engine.marked, &path->marked_link);
	path->marked = true;
}

void
path_mark_all(void)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
		path_mark(path);
}

/* Forgets what is known of other clients' contenders. */
void
path_foreign_clear(Path *path)
{
	for (int i = 0; i < path->nforeign; i++)
	{
		if (path->foreign[i].name)
			pfree(path->foreign[i].name);
	}
	if (path->foreign)
		pfree(path->foreign);
	path->foreign = NULL;
	path->nforeign = 0;
}

/*
 * Another client's contender is gone.  While the child watch stands, nothing
 * but this deletion has happened; see also path.c.
 */
void
path_foreign_remove(Path *path, const char *name, Departure departure)
{
	for (int i = 0; i < path->nforeign; i++)
	{
		Foreigner *gone = &path->foreign[i];
		RecipePeer left;

		if (gone->name == NULL || strcmp(gone->name, name) != 0)
			continue;
		pfree(gone->name);
		if (departure == DEPARTURE_UNSEEN && path->child_watch != WATCH_SET &&
			path->recipe->successor && path->recipe->successor(&gone->peer, &left))
			*gone = (Foreigner){.peer = left};
		else
			*gone = path->foreign[--path->nforeign];
		return;
	}
}

/* ------------------------------------------------------------------------
 * Outstanding calls
 * ------------------------------------------------------------------------
 */

void
run_call_begin(Run *run)
{
	run->calls++;
	run->path->calls++;
}

/* The reply has come.  Returns false if the run is gone: it may have been freed. */
bool
run_call_end(Run *run)
{
	path_mark(run->path);
	run->calls--;
	run->path->calls--;
	if (run->state != RUN_GONE)
		return true;
	if (run->calls == 0)
		pfree(run);
	return false;
}

/* The same for calls about the run's node, of which there is one at a time. */
void
run_node_call_begin(Run *run, NodeCall call)
{
	Assert(run->node_call == NODE_CALL_NONE);
	run->node_call = call;
	run_call_begin(run);
}

bool
run_node_call_end(Run *run)
{
	run->node_call = NODE_CALL_NONE;
	return run_call_end(run);
}

/* What must be done was refused: it is repeated.  True if that is news. */
bool
run_refused(Run *run)
{
	bool news = run->refused_in != run->state;

	run->refused_in = run->state;
	run->retry_at = zklock_now_ms() + RETRY_MS;
	return news;
}
