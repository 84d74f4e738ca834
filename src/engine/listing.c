/*
 * listing.c
 *		Listings of a path's children, and what follows from them.
 *
 * A listing shows the contenders of other clients, and whether our own nodes are there.
 * Replies come in the order of the requests, so a cohort whose node is known when a listing
 * comes in was created before the listing was made; if the listing does not show the node,
 * someone else has deleted it.  A reusable name is taken for our node's until that has
 * been read (watch.c).
 *
 * A path belongs to one kind of thing.  A claim is in the data of the path's own node, where
 * contenders have nothing.  Each listing contains the length of the data, at no cost.  The
 * data are read only if there are any, and nothing is granted before the reply.  If they are
 * a claim's, all who wait on the path are refused, and their nodes go.  Other data do not
 * matter, and are not read again while somebody uses the path.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "zk/zk_client.h"

/* A path whose last listing showed so many children has long ones; the first counts as short. */
#define LONG_LISTING 1000

/*
 * Marks a node of ours among the names of a listing, which are in order.  Returns true if it
 * is there.
 */
static bool
tick_off(const char *node, char **names, bool *ours, int n)
{
	char **found = n > 0 ? bsearch(&node, names, n, sizeof(char *), pg_qsort_strcmp) : NULL;

	if (found)
		ours[found - names] = true;
	return found != NULL;
}

/* Takes in the children: marks our nodes as listed, and stores other clients' contenders. */
static void
apply_children(Path *path, const ZkReply *reply)
{
	int	   n = reply->nchildren;
	char **names = reply->children;
	bool  *ours = palloc0(Max(n, 1) * sizeof(bool));

	qsort(names, n, sizeof(char *), pg_qsort_strcmp);
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (!cohort_has_node(cohort))
			continue;
		cohort->listed = tick_off(cohort->name, names, ours, n);
		if (cohort->state == COHORT_DOWNGRADING &&
			tick_off(cohort->downgraded_name, names, ours, n) && !cohort->listed)
			cohort_downgraded(cohort);
	}

	path_foreign_clear(path);
	if (n > 0)
		path->foreign = palloc(n * sizeof(ForeignContender));
	for (int i = 0; i < n; i++)
	{
		ForeignContender *foreign = &path->foreign[path->nforeign];

		if (ours[i])
			continue;
		if (path->recipe->read(names[i], &foreign->peer))
		{
			foreign->name = pstrdup(names[i]);
			path->nforeign++;
		}
		else
			report_unrecognised(path, names[i]);
	}
	if (path->nforeign > 0)
		kept_visited(path);
	pfree(ours);
}

/*
 * Returns true if another client's contender is behind the cohort, and newcomers must wait for
 * it.
 */
static bool
cohort_is_followed(const Cohort *cohort)
{
	const Path *path = cohort->path;

	for (int i = 0; path->recipe->excludes && i < path->nforeign; i++)
	{
		if (path->foreign[i].peer.sequence > cohort->peer.sequence &&
			path->recipe->excludes(&path->foreign[i].peer, &cohort->request))
			return true;
	}
	return false;
}

static void
apply_listing(Path *path, const ZkReply *reply)
{
	dlist_mutable_iter iter;

	apply_children(path, reply);
	report_heedless(path);
	dlist_foreach_modify (iter, &path->cohorts)
	{
		Cohort *cohort = dlist_container(Cohort, link, iter.cur);

		if (!cohort_has_node(cohort) || cohort->state == COHORT_DELETING)
			continue;
		if (!cohort->listed)
			cohort_end(cohort, END_DELETED);
		else if (!cohort->closed)
			cohort->closed = cohort_is_followed(cohort);
	}
}

/* Refuses all who wait on the path. */
static void
path_fail(Path *path, Failure failure, int code)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &path->arrivals)
		contender_fail(dlist_container(Contender, link, iter.cur), failure, code);
	dlist_foreach_modify (iter, &path->cohorts)
		cohort_fail(dlist_container(Cohort, link, iter.cur), failure, code);
}

/* ------------------------------------------------------------------------
 * Other uses of the path
 * ------------------------------------------------------------------------
 */

static void
on_data_read(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path_mark(path);
	path->calls--;

	/* Data that we may not read are no reason to refuse. */
	path->use = reply->outcome == CALL_UNKNOWN || reply->outcome == CALL_NO_NODE ? PATH_USE_OPEN
																				 : PATH_USE_OTHER;
	if (reply->outcome == CALL_OK && claim_record_recognised(reply->data, reply->data_length))
	{
		path->use = PATH_USE_OPEN;
		path_fail(path, FAILURE_IS_CLAIMS, 0);
	}
}

/* Reads the data of a path, if a listing shows that there are any. */
static void
look_at_data(Path *path, const ZkReply *listing)
{
	if (path->use != PATH_USE_OPEN || listing->outcome != CALL_OK || listing->stat.data_length <= 0 ||
		listing->stat.data_length >= CLAIM_RECORD_SIZE || !zk_client_connected())
		return;
	path->use = PATH_USE_ASKED;
	path->calls++;
	zk_call((ZkCall){.kind = ZK_GET_DATA, .owner = listing->asked->owner, .path = path->path},
			on_data_read, path);
}

/* Returns true if there are elements of a queue at the path of a lock. */
static bool
is_queue(const Path *path, const ZkReply *reply)
{
	int64_t number;

	for (int i = 0; i < reply->nchildren; i++)
	{
		if (!path->recipe->read(reply->children[i], &(RecipePeer){0}) &&
			element_name_read(reply->children[i], &number))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Listing
 * ------------------------------------------------------------------------
 */

/* Handles the reply to path_list(). */
static void
on_listed(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path->calls--;
	path->lists_done++;
	path->unseen &= reply->outcome == CALL_UNKNOWN;
	path_mark(path);
	if (reply->asked->watch && path->child_watch != WATCH_SET)
	{
		watch_child_set(path, reply->watching ? WATCH_SET : WATCH_NONE);
		if (reply->outcome != CALL_OK)
			watch_child_give_up(path);
	}

	if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
	{
		path->lists_shown = path->lists_done;
		path->nchildren = reply->nchildren;
		if (!path->recipe->fixed_name)
			look_at_data(path, reply);
		apply_listing(path, reply);
		if (!path->recipe->fixed_name && is_queue(path, reply))
			path_fail(path, FAILURE_IS_QUEUE, 0);
	}
	else if (reply->outcome != CALL_UNKNOWN)
	{
		path_fail(path, FAILURE_REFUSED, reply->code);
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			if (cohort->state == COHORT_DOWNGRADING)
				cohort->retry_at = zklock_now_ms() + RETRY_MS;
		}
	}
}

/* Lists the path's children, on behalf of a session. */
void
path_list(Path *path, ZkOwner owner, ListWatch watch)
{
	path->calls++;
	path->lists_sent++;
	if (watch == LIST_AND_WATCH)
		path->lists_watching = path->lists_sent;
	if (watch == LIST_AND_WATCH && path->child_watch == WATCH_NONE)
		watch_child_set(path, WATCH_ASKED);
	zk_call((ZkCall){.kind = ZK_GET_CHILDREN,
					 .owner = owner,
					 .path = path->path,
					 .watch = watch == LIST_AND_WATCH,
					 .bulky = path->nchildren >= LONG_LISTING},
			on_listed, path);
}
