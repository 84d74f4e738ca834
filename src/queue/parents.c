/*
 * parents.c
 *		Missing nodes on the way to a path.
 *
 * A path's node and those above it are created when a contender's create finds
 * them missing, and only then.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/parents.h"
#include "queue/run.h"

/* A parent that is missing is created so often before we give up. */
#define MAX_ATTEMPTS 16

/* A refusal to create the path's parents concerns those who waited for that. */
void
parents_exist(Path *path)
{
	path->parents_attempts = 0;
	path->parents_refusal.failure = FAILURE_NONE;
}

static void
refuse(Path *path, ContenderFailure failure, int code)
{
	if (path->parents_refusal.failure == FAILURE_NONE)
		path->parents_refusal = (ParentsRefusal){.failure = failure, .code = code};
}

/* The reply to one of make_parents()'s calls */
static void
on_parent(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path_mark(path);
	path->calls--;
	path->parents_pending--;
	if (reply->outcome == ZK_REFUSED)
		refuse(path, FAILURE_REFUSED, reply->code);
	else if (reply->outcome == ZK_NO_CHILDREN)
		refuse(path, FAILURE_NO_CHILDREN, reply->code);
	else if (reply->outcome == ZK_NO_NODE && path->parents_attempts > 1)
		refuse(path, FAILURE_NO_CHROOT, reply->code);
}

/*
 * Creates the path's node and those above it.  An answer that a node exists
 * is as good as a new one; a refusal counts only if the path is still missing
 * afterwards, since above existing nodes we may have no rights.
 */
static void
make_parents(Path *path, ZkNodeKind kind)
{
	path->parents_attempts++;
	for (char *end = strchr(path->path + 1, '/');; end = strchr(end + 1, '/'))
	{
		char *parent = end ? pnstrdup(path->path, end - path->path) : pstrdup(path->path);

		path->calls++;
		path->parents_pending++;
		zk_create(parent, NULL, kind, on_parent, path);
		pfree(parent);
		if (end == NULL)
			break;
	}
}

/* The path does not exist: refuses those in a run for whom it is not to be created. */
static void
fail_without_path(Run *run)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (c->place == PLACE_WAITING && entry_of(c)->parent_nodes == PARENTS_EXISTING)
			contender_fail(c, FAILURE_NO_PATH, 0);
	}
}

/* The run's node could not be created, as its parent does not exist. */
void
parents_missing(Run *run, int code)
{
	Path *path = run->path;

	fail_without_path(run);
	if (path->parents_attempts >= MAX_ATTEMPTS)
		refuse(path, FAILURE_REFUSED, code);
	if (path->parents_refusal.failure != FAILURE_NONE)
	{
		run_fail(run, path->parents_refusal.failure, path->parents_refusal.code);
		parents_exist(path);
	}
	else if (!dlist_is_empty(&run->queue))
		make_parents(path, entry_of(run_head(run))->parent_nodes == PARENTS_PERSISTENT
							   ? ZK_PERSISTENT
							   : ZK_CONTAINER);
}
