/*
 * path_use.c
 *		Is a path in use for claims?
 *
 * A claim is in the data of the path's own node, where contenders have nothing.
 * Each listing tells how long the data are, at no cost.  Only if there are any
 * are they read, and nothing is granted before that is answered.  If they are a
 * claim's, all who wait on the path are refused, and their nodes go.
 *
 * Other data are nobody's business, and not read again while somebody uses the
 * path.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/path_use.h"
#include "queue/run.h"
#include "recipes/claim_record.h"
#include "zk/zk_client.h"

/* The path belongs to claims: refuses all who wait. */
static void
refuse_all(Path *path)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &path->arrivals)
		contender_fail(dlist_container(Contender, link, iter.cur), FAILURE_OTHER_RECIPE, 0);
	dlist_foreach_modify (iter, &path->runs)
		run_fail(dlist_container(Run, link, iter.cur), FAILURE_OTHER_RECIPE, 0);
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Path	   *path = arg;
	ClaimRecord record;

	path_mark(path);
	path->calls--;

	/* What we may not read is no reason to refuse. */
	path->use = reply->outcome == ZK_UNKNOWN || reply->outcome == ZK_NO_NODE ? PATH_USE_OPEN
																			 : PATH_USE_OTHER;
	if (reply->outcome == ZK_OK &&
		claim_record_read(reply->data ? reply->data : "", reply->data_length, &record))
	{
		path->use = PATH_USE_OPEN;
		refuse_all(path);
	}
}

/* For whom the data are read: anybody who waits, or the worker if nobody does */
static int
reader(const Path *path)
{
	if (!dlist_is_empty(unconstify(dlist_head *, &path->runs)))
		return run_owner(dlist_head_element(Run, link, unconstify(dlist_head *, &path->runs)));
	if (!dlist_is_empty(unconstify(dlist_head *, &path->arrivals)))
		return entry_of(dlist_head_element(Contender, link, unconstify(dlist_head *, &path->arrivals)))
			->request.pid;
	return ZK_WORKER;
}

/* Looks at the data of a path, if a listing shows that there are any. */
void
path_use_look(Path *path, const ZkReply *listing)
{
	if (path->use != PATH_USE_OPEN || listing->outcome != ZK_OK || listing->data_length <= 0 ||
		listing->data_length >= CLAIM_RECORD_SIZE || !zk_client_connected())
		return;
	path->use = PATH_USE_ASKED;
	path->calls++;
	zk_read(reader(path), path->path, on_read, path);
}

/* May something be granted on the path, as far as its data are concerned? */
bool
path_use_is_known(const Path *path)
{
	return path->use != PATH_USE_ASKED;
}
