/*
 * path.c
 *		The engine's decisions: who is granted, and what comes next.
 *
 * A path has a queue of cohorts, oldest first, which is also the order of their nodes'
 * sequences.  A cohort has contenders in order of arrival; the recipe says whether it grants
 * them one after the other or all together.
 *
 * A contender is granted if it is its turn in a cohort whose node exists, is of our ZooKeeper
 * session, and has no older contender before it that keeps it out.  It is not granted without
 * the lease, which proves that the ZooKeeper session, and so the node, exists; nor under a
 * node whose end we would not hear of, or that may be another client's (watch.c).  A watch
 * that ZooKeeper refuses does not keep it from that: it is asked for again and again.  Nothing
 * is granted or sent while ZooKeeper is not connected, or before a sync on a new connection
 * was answered.
 *
 * So only one is granted of two contenders that exclude each other, on whatever servers: a
 * listing that is made after a node was created shows all that are older, and the younger one
 * waits until the older is gone.  A cohort of ours is when its queue is empty (peers.c).
 *
 * The engine knows other clients' contenders from the last listing, less those seen to go.
 * None of those older than a cohort is missing, since newcomers get higher sequences; so a
 * cohort can be granted without another listing.  There is one exception: an exclusive
 * contender that goes may leave a shared node in its place, its downgraded node.  A cohort
 * that would wait for that looks again, unless it is clear that there is none (downgrade.c).
 *
 * The child watch on the path reports newcomers.  It fires once, and is set again only when a
 * contender arrives, which then waits for a listing (arrivals.c), or when a lock is held for
 * longer, since the newcomer may be a client that does not wait for our node.  So a path that
 * is busy elsewhere costs nothing here.
 *
 * A shared holder that asks for the exclusive lock is a contender like any other, behind
 * those that came before; only what its own session holds is not in its way.  It does not pass
 * an older writer that waits for that session, though this is a deadlock: tokens would not
 * increase, and a client that does not know shared locks may even hold the lock.
 *
 * Reply handlers, watch events and requests record what they learn, and mark the path; they
 * may refuse a contender, or take its lock.  path_pump_marked() looks at the marked paths in
 * each round of the main loop, as they then are, until none is left.  It alone frees paths and
 * grants contenders.
 *
 * The worker may exit at any moment, so shared memory records what exists in ZooKeeper: the
 * name is in the entries of the cohort's contenders before a create is sent, and the last of
 * these entries is not freed (cohort->last_owner) before the node is known to be gone.  The
 * next worker resumes the ZooKeeper session, whose password is in shared memory, and session.c
 * builds cohorts and contenders again from the entries, each in the state that its entry
 * shows.  Holders hold until then; backends wait, and get an error if no worker starts.
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
#include "utils/memutils.h"
#include "zk/zk_client.h"

/* A path is listed again if a lock is still held one to two of these after a change */
#define LOOK_PAUSE_MS 5000

/* ------------------------------------------------------------------------
 * Cohorts
 * ------------------------------------------------------------------------
 */

/*
 * Sets a watch after which the cohort looks again: on its blocker, or on the children if we
 * may not read the blocker, or if anybody may give back what the cohort waits for.  The end of
 * a cohort of ours needs no watch.
 */
static void
cohort_watch(Cohort *cohort, const ForeignContender *foreign)
{
	Path *path = cohort->path;
	bool  alone = path->recipe->excludes != NULL;

	if (alone && foreign && cohort->blocker_watch != WATCH_REFUSED)
		watch_blocker(cohort, foreign->name);
	else if ((!alone || foreign) && path->child_watch == WATCH_NONE)
		path_list(path, cohort_owner(cohort), LIST_AND_WATCH);
	if (foreign && (!alone || path->orphans_at != 0))
		watch_for_orphans(cohort);
}

/* Decides whether a cohort that has its node and listing must wait, and for whom. */
static void
cohort_evaluate(Cohort *cohort)
{
	Blocker			   blocker = cohort_blocker(cohort);
	dlist_mutable_iter iter;

	if (blocker.cohort == NULL && (blocker.foreign == NULL || ZKLOCK_FAULT("grant-early")))
	{
		cohort_granted(cohort);
		return;
	}

	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (entry_of(c)->request.manner != ASK_AND_WAIT && !(blocker.foreign && kept_may_go(c)))
			contender_fail(c, FAILURE_BUSY, 0);
	}
	if (cohort_is_empty(cohort))
		return;
	contender_blocked_by(cohort_head(cohort), blocker);
	cohort_watch(cohort, blocker.foreign);
}

/* Grants those in a granted cohort whose turn it is. */
static void
cohort_grant(Cohort *cohort)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender	 *c = dlist_container(Contender, link, iter.cur);
		const Cohort *own = c->place == PLACE_WAITING ? contender_own_blocker(c) : NULL;

		if (own)
		{
			contender_blocked_by(c, (Blocker){.cohort = own});
			break;
		}
		if (c->place == PLACE_WAITING)
			contender_grant(c);
	}
}

/*
 * Does what comes next for the contenders of a cohort that has its node.  None is granted
 * before a listing on this connection has shown the node ("listed").
 */
static void
cohort_serve(Cohort *cohort)
{
	Path *path = cohort->path;

	if (cohort_wants_downgrade(cohort) && cohort_is_wanted(cohort, NULL))
	{
		cohort_downgrading(cohort);
		return;
	}
	if (!cohort->listed && cohort_head(cohort)->place != PLACE_GRANTED)
	{
		if (path->lists_sent == path->lists_done)
			path_list(path, cohort_owner(cohort), cohort->closed ? LIST_ONLY : LIST_AND_WATCH);
		return;
	}
	if (cohort->state == COHORT_CREATED && path->use != PATH_USE_ASKED)
		cohort_evaluate(cohort);
	watch_own(cohort);
	if (cohort->state == COHORT_GRANTED &&
		(watch_covers(cohort) || ZKLOCK_FAULT("watched-early")) && lease_state() == LEASE_HOLDS)
		cohort_grant(cohort);
}

/*
 * Returns true if those in a planned cohort must look first.  That includes those that were to
 * take the place of another cohort, if that is gone already.
 */
static bool
cohort_must_look(const Cohort *cohort)
{
	const Contender *c = cohort_head(cohort);

	return cohort->path->recipe->cannot_coexist && !cohort->replaces &&
		   (!contender_has_looked(c) || contender_cannot_coexist(c));
}

/* Does what comes next for a cohort that has no node yet.  The cohort may be freed. */
static void
cohort_plan(Cohort *cohort)
{
	Cohort *before = cohort_before(cohort);
	bool	fixed_name = cohort->path->recipe->fixed_name;
	bool goes = before && before->state == COHORT_DELETING && before->refused_in != COHORT_DELETING;

	/* A session waits for an element being given back, unless ZooKeeper refuses that. */
	if (before && fixed_name && before->retry_at > 0)
		cohort_fail(cohort, FAILURE_BUSY, 0);
	else if (before && before->node_calls == 0 && cohort_is_hidden(before))
		cohort_fail(cohort, FAILURE_REFUSED, before->list_error);
	else if (cohort_must_look(cohort))
		cohort_end(cohort, END_NOT_CREATED);
	else if (cohort->replaces && !cohort_is_identified(cohort->replaces))
		watch_own(cohort->replaces); /* reads the node, which may be another client's by now */
	else if (goes && kept_later(cohort))
		return; /* that deletion would use up the child watch: kept.c */
	else if (!cohort->path->parents_pending &&
			 (before == NULL || (cohort_has_node(before) && !fixed_name)))
		cohort_create(cohort);
}

/* Does what comes next for a cohort.  The cohort may be freed. */
static void
cohort_pump(Cohort *cohort)
{
	if (cohort->state == COHORT_PLANNED && cohort_is_empty(cohort))
	{
		cohort_gone(cohort);
		return;
	}
	if (!zk_client_connected() || !engine.synced)
		return;
	if (cohort->state == COHORT_PLANNED)
	{
		cohort_plan(cohort);
		return;
	}
	if (cohort->state == COHORT_CREATING)
	{
		if (cohort->node_calls == 0 && engine_retry_is_due(cohort->retry_at))
			cohort_find_node(cohort);
		return;
	}

	if (!cohort_is_empty(cohort) && cohort->state != COHORT_DOWNGRADING)
		cohort_serve(cohort);
	if (cohort->state == COHORT_DOWNGRADING)
		cohort_downgrade_pump(cohort);
	else if (cohort_is_empty(cohort) && cohort->state != COHORT_DELETING && !kept_stays(cohort))
		cohort_deleting(cohort);
	if (cohort->state == COHORT_DELETING)
	{
		if (cohort->replaced_by)
			return; /* its node is deleted when the other's is created */
		if (cohort->node_calls == 0 && engine_retry_is_due(cohort->retry_at))
			cohort_delete(cohort);

		/*
		 * ZooKeeper refuses the deletion whether the node exists or not, so a watch has to
		 * show when it is gone.
		 */
		if (cohort->refused_in == cohort->state)
			watch_own(cohort);
	}
}

/* ------------------------------------------------------------------------
 * Paths
 * ------------------------------------------------------------------------
 */

/* Forgets the path if nobody needs it any more, and nothing is outstanding. */
static void
path_forget_if_idle(Path *path)
{
	if (path->calls > 0 || path->marked || !dlist_is_empty(&path->cohorts) ||
		!dlist_is_empty(&path->arrivals) || parents_delete(path))
		return;
	watch_child_give_up(path);
	path_foreign_clear(path);
	hash_search(engine.paths, path->path, HASH_REMOVE, NULL);
}

/* Returns a cohort under which a lock is held on the path, or NULL. */
static const Cohort *
path_granted_cohort(const Path *path)
{
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->state == COHORT_GRANTED && !cohort_is_empty(cohort))
			return cohort;
	}
	return NULL;
}

/*
 * Looks who has come while a lock is held, as it may be a client that does not wait for our
 * node.  All paths are looked at in the same moments.  Most locks have been released by then,
 * and cost no listing.
 */
static void
path_look_behind(Path *path)
{
	const Cohort *cohort = path->unseen && path->recipe->heedless ? path_granted_cohort(path) : NULL;

	if (cohort == NULL)
		path->list_at = 0;
	else if (path->list_at == 0)
		path->list_at = (zklock_now_ms() / LOOK_PAUSE_MS + 2) * LOOK_PAUSE_MS;
	if (cohort && engine_retry_is_due(path->list_at) && zk_client_connected() &&
		engine.synced && path->lists_sent == path->lists_done)
	{
		path_list(path, cohort_owner(cohort), LIST_AND_WATCH);
		path->list_at = 0;
	}
}

/* Does what comes next for a path, as it is now. */
static void
path_pump(Path *path)
{
	dlist_mutable_iter iter;
	Cohort			  *last = cohort_last(path);
	Contender		  *arrival = NULL;

	if (last && cohort_is_empty(last))
		(void) kept_stays(last); /* nobody must join it if it has to go */
	path_place_arrivals(path);
	dlist_foreach_modify (iter, &path->cohorts)
		cohort_pump(dlist_container(Cohort, link, iter.cur));
	if (!dlist_is_empty(&path->arrivals))
		arrival = dlist_head_element(Contender, link, &path->arrivals);
	if (zk_client_connected() && engine.synced && path->lists_sent == path->lists_done &&
		path->use != PATH_USE_ASKED && arrival && contender_recipe(arrival) == path->recipe)
		path_list(path, entry_owner(entry_of(arrival)),
				  cohort_last(path) && !cohort_last(path)->closed ? LIST_AND_WATCH : LIST_ONLY);
	path_look_behind(path);
	path_forget_if_idle(path);
}

/* Does what comes next for the marked paths. */
void
path_pump_marked(void)
{
	while (!dlist_is_empty(&engine.marked))
	{
		Path *path = dlist_container(Path, marked_link, dlist_pop_head_node(&engine.marked));

		path->marked = false;
		engine.attended = path;
		path_pump(path);
		engine.attended = NULL;
	}
	MemoryContextReset(engine.scratch);
}
