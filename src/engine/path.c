/*
 * path.c
 *		The engine's decisions: paths, runs and contenders, and what comes next.
 *
 * A contender is one request of one session (an entry in shared memory).  A run is one
 * ephemeral sequential node of ours and the contenders of this server for which it stands,
 * in order of arrival; the recipe says whether it grants them one after the other or all
 * together.  A path has a queue of runs, oldest first, which is also the order of their
 * nodes' sequences.
 *
 * New contenders join the last run while it is open: no other client is known to stand
 * behind it.  The child watch on the path reports newcomers.  When it has fired, it is set
 * again only when a contender arrives, which then waits for a listing ("arrivals"), or when a
 * lock is held for longer, since the newcomer may be a client that does not wait for our
 * node.  So a path that is busy elsewhere costs nothing here while nobody asks for it.
 *
 * The engine knows other clients' contenders from the last listing, less those seen to go.
 * For the contenders older than a run that is a superset of the truth, since newcomers get
 * higher sequences; this is why a run can be granted without another listing.  There is one
 * exception: an exclusive contender that goes may leave a shared node in its place, its heir.
 * A run that would wait for the heir looks again, unless it is clear that there is none; see
 * downgrade.c.
 *
 * A session's other contenders do not stand in the way of its own, if the recipe says so.  A
 * shared holder that asks for the exclusive lock therefore waits for all others, even in the
 * same shared run: it is a contender like any other, behind those that came before.  If an
 * older writer waits for the shared holder in turn, that is a deadlock, and no reason to pass
 * the writer: tokens would not increase, and a client that does not know shared locks may
 * even hold the lock.
 *
 * One place decides the next step of a path.  Reply handlers, watch events and requests
 * record what they learn, which may refuse or lose what was asked for, and mark the path.  In
 * each round of the main loop path_pump_marked() looks at the marked paths as they then are,
 * until none is left, and does what comes next.  Nowhere else is a path freed or a contender
 * granted.  While ZooKeeper is not connected, or before a sync on a new connection was
 * answered, it sends nothing.  It grants nothing without the lease, nor under a node whose
 * end we would not hear of, or that may be another client's (watch.c).  But if ZooKeeper
 * refuses a watch on the node, it grants, and asks for the watch again and again.
 *
 * The worker may exit at any moment, so shared memory records what exists in ZooKeeper:
 * before a create is sent, the name is in the entries of the run's contenders, and the last
 * of them is kept (run->keeper) until the node is known to be gone.  session.c builds all
 * this again from there.
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
 * Arrivals
 * ------------------------------------------------------------------------
 */

/* Returns true if a contender may join the run, as far as is known now. */
static bool
run_is_open(const Run *run, const RecipeRequest *request)
{
	const Recipe *recipe = run->path->recipe;

	return !run->closed && recipe->may_join && recipe->may_join(&run->request, request) &&
		   run->joined < MAX_GRANTS && (!run_is_empty(run) || run_is_kept(run));
}

/* Returns true if what is known about newcomers behind the last run is up to date. */
static bool
run_is_fresh(const Run *run)
{
	return run->state == RUN_PLANNED || run->state == RUN_CREATING ||
		   (run->state == RUN_CREATED && !run->listed && run->path->child_watch == WATCH_ASKED) ||
		   run->path->child_watch == WATCH_SET;
}

/* Puts an arrival into the last run, or into a new one if that is not open. */
static void
contender_enter(Contender *c)
{
	Path		 *path = c->path;
	Run			 *last = run_last(path);
	RecipeRequest request = contender_request(c);
	bool		  open = last && run_is_open(last, &request);

	/* Nobody has paid for a node that is kept. */
	if (!open || run_is_kept(last))
	{
		Failure failure = path_has_room(path, entry_of(c));

		if (failure != FAILURE_NONE)
		{
			contender_fail(c, failure, 0);
			return;
		}
	}
	if (!open)
	{
		last = run_new(path, 0, &request);
		dlist_push_tail(&path->runs, &last->link);
		run_replaces(last, c);
	}
	dlist_delete(&c->link);
	run_join(last, c);
	if (run_is_kept(last))
		kept_resume(last);
}

/*
 * Refuses an arrival if its answer is known by now: that of one that is not to wait, of a
 * claim of an element, or of all if ZooKeeper refuses our credentials.  Returns true if it is
 * refused.
 */
static bool
arrival_is_refused(Contender *c)
{
	const ContenderEntry *entry = entry_of(c);

	if (engine.refused_code != 0)
		contender_fail(c, FAILURE_REFUSED, engine.refused_code);
	else if (entry->request.manner == ASK_AND_WAIT && !c->path->recipe->single)
		return false;
	else if (entry->request.manner != ASK_AND_WAIT &&
			 ((!zk_client_connected() && engine.resume_until == NEVER) || lease_state() != LEASE_HOLDS))
		contender_fail(c, FAILURE_UNREACHABLE, 0);
	else if (contender_is_outrun(c))
		contender_fail(c, FAILURE_BUSY, 0);
	else
		return false;
	return true;
}

/* Returns true if the path has been listed, on this connection, since the contender came. */
static bool
contender_has_looked(const Contender *c)
{
	return c->next_list <= c->path->lists_told;
}

/*
 * Returns true if an arrival must wait for a listing: if it is to look, if it might join a run
 * behind which others may stand, or if its node might harm others.  One that takes the place
 * of another node cannot harm others as long as that node exists.  Who joins a run that is kept
 * sees that nobody else is there.
 */
static bool
arrival_must_look(const Contender *c)
{
	const EntryRequest *asked = &entry_of(c)->request;
	RecipeRequest		request = contender_request(c);
	const Run		   *last = run_last(c->path);
	bool				open = last && run_is_open(last, &request);

	if (open && run_is_kept(last))
		return false;
	return asked->manner == ASK_AND_LOOK ||
		   (c->path->recipe->bars && run_replaced_for(c) == NULL) || (open && !run_is_fresh(last));
}

/* Places the arrivals, but for those that must wait for a listing, and those behind them. */
static void
path_place_arrivals(Path *path)
{
	dlist_mutable_iter iter;
	bool			   waits = path->use == PATH_USE_ASKED;

	dlist_foreach_modify (iter, &path->arrivals)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);
		bool	   looked = contender_has_looked(c);

		if (arrival_is_refused(c))
			continue;
		waits = waits || (!looked && arrival_must_look(c));
		if (waits)
			continue;
		if (looked && entry_of(c)->request.manner != ASK_AND_WAIT && contender_is_blocked(c) &&
			!kept_may_go(c))
			contender_fail(c, FAILURE_BUSY, 0);
		else if (looked && contender_is_barred(c))
			contender_fail(c, FAILURE_BARRED, 0);
		else
			contender_enter(c);
	}
}

/* ------------------------------------------------------------------------
 * Runs: for whom they wait, whom they grant, and what comes next for their nodes
 * ------------------------------------------------------------------------
 */

/*
 * Sets a watch after which the run looks again: on its blocker, or on the children if we may
 * not read the blocker, or if anybody may give back what the run waits for.  The end of a run
 * of ours needs no watch.
 */
static void
run_watch(Run *run, const Foreigner *foreigner)
{
	Path *path = run->path;
	bool  alone = path->recipe->excludes != NULL;

	if (alone && foreigner && run->blocker_watch != WATCH_REFUSED)
		watch_blocker(run, foreigner->name);
	else if ((!alone || foreigner) && path->child_watch == WATCH_NONE)
		path_list(path, run_owner(run), LIST_AND_WATCH);
}

/* Decides whether a run that has its node and listing must wait, and for whom. */
static void
run_evaluate(Run *run)
{
	Blocker			   blocker = run_blocker(run);
	dlist_mutable_iter iter;

	if (blocker.run == NULL && (blocker.foreigner == NULL || ZKLOCK_FAULT("grant-early")))
	{
		run_granted(run);
		return;
	}

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (entry_of(c)->request.manner != ASK_AND_WAIT && !(blocker.foreigner && kept_may_go(c)))
			contender_fail(c, FAILURE_BUSY, 0);
	}
	if (run_is_empty(run))
		return;
	contender_blocked_by(run_head(run), blocker);
	run_watch(run, blocker.foreigner);
}

/* Grants those in a granted run whose turn it is. */
static void
run_grant(Run *run)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);
		const Run *own = c->place == PLACE_WAITING ? contender_own_blocker(c) : NULL;

		if (own)
		{
			contender_blocked_by(c, (Blocker){.run = own});
			break;
		}
		if (c->place == PLACE_WAITING)
			contender_grant(c);
	}
}

/* Does what comes next for the contenders of a run that has its node. */
static void
run_serve(Run *run)
{
	Path *path = run->path;

	if (run_wants_downgrade(run) && run_is_wanted(run, NULL))
	{
		run_downgrading(run);
		return;
	}
	if (!run->listed && run_head(run)->place != PLACE_GRANTED)
	{
		if (path->lists_sent == path->lists_done)
			path_list(path, run_owner(run), run->closed ? LIST_ONLY : LIST_AND_WATCH);
		return;
	}
	if (run->state == RUN_CREATED && path->use != PATH_USE_ASKED)
		run_evaluate(run);
	watch_own(run);
	if (run->state == RUN_GRANTED && (watch_covers(run) || ZKLOCK_FAULT("watched-early")) &&
		lease_state() == LEASE_HOLDS)
		run_grant(run);
}

/*
 * Returns true if those in a planned run must look first.  That includes those that were to
 * take the place of another run, if that is gone already.
 */
static bool
run_must_look(const Run *run)
{
	const Contender *c = run_head(run);

	return run->path->recipe->bars && !run->replaces &&
		   (!contender_has_looked(c) || contender_is_barred(c));
}

/* Does what comes next for a run that has no node yet.  The run may be freed. */
static void
run_plan(Run *run)
{
	Run *before = run_before(run);
	bool single = run->path->recipe->single;
	bool goes = before && before->state == RUN_DELETING && before->refused_in != RUN_DELETING;

	/* A session waits for an element being given back, unless ZooKeeper refuses that. */
	if (before && single && before->retry_at > 0)
		run_fail(run, FAILURE_BUSY, 0);
	else if (run_must_look(run))
		run_start_over(run);
	else if (run->replaces && !run_is_identified(run->replaces))
		watch_own(run->replaces);
	else if (goes && kept_later(run))
		return; /* the deletion would use up the watch */
	else if (!run->path->parents_pending && (before == NULL || (run_has_node(before) && !single)))
		run_create(run);
}

/* Does what comes next for a run.  The run may be freed. */
static void
run_pump(Run *run)
{
	if (run->state == RUN_PLANNED && run_is_empty(run))
	{
		run_finish(run);
		return;
	}
	if (!zk_client_connected() || !engine.synced)
		return;
	if (run->state == RUN_PLANNED)
	{
		run_plan(run);
		return;
	}
	if (run->state == RUN_CREATING)
	{
		if (run->node_calls == 0 && engine_retry_is_due(run->retry_at))
			run_probe(run);
		return;
	}

	if (!run_is_empty(run) && run->state != RUN_DOWNGRADING)
		run_serve(run);
	if (run->state == RUN_DOWNGRADING)
		run_downgrade_pump(run);
	else if (run_is_empty(run) && run->state != RUN_DELETING && !kept_stays(run))
		run_abandoned(run);
	if (run->state == RUN_DELETING)
	{
		if (run->replaced_by)
			return; /* its node is deleted when the other's is created */
		if (run->node_calls == 0 && engine_retry_is_due(run->retry_at))
			run_delete(run);

		/*
		 * The reply to a session that may not delete a node does not show that the node is
		 * gone.
		 */
		if (run->refused_in == run->state)
			watch_own(run);
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
	if (path->calls > 0 || path->marked || !dlist_is_empty(&path->runs) ||
		!dlist_is_empty(&path->arrivals) || parents_delete(path))
		return;
	watch_child_give_up(path);
	path_foreign_clear(path);
	hash_search(engine.paths, path->path, HASH_REMOVE, NULL);
}

/* Returns a run under which a lock is held on the path, or NULL. */
static const Run *
path_granted_run(const Path *path)
{
	for (const Run *run = run_first(path); run; run = run_after(run))
	{
		if (run->state == RUN_GRANTED && !run_is_empty(run))
			return run;
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
	const Run *run = path->unseen && path->recipe->heedless ? path_granted_run(path) : NULL;

	if (run == NULL)
		path->look_at = 0;
	else if (path->look_at == 0)
		path->look_at = (zklock_now_ms() / LOOK_PAUSE_MS + 2) * LOOK_PAUSE_MS;
	if (run && engine_retry_is_due(path->look_at) && zk_client_connected() && engine.synced &&
		path->lists_sent == path->lists_done)
	{
		path_list(path, run_owner(run), LIST_AND_WATCH);
		path->look_at = 0;
	}
}

/* Does what comes next for a path, as it is now. */
static void
path_pump(Path *path)
{
	dlist_mutable_iter iter;
	Run				  *last = run_last(path);

	if (last && run_is_empty(last))
		(void) kept_stays(last); /* whom it is kept for may have come */
	path_place_arrivals(path);
	dlist_foreach_modify (iter, &path->runs)
		run_pump(dlist_container(Run, link, iter.cur));
	if (zk_client_connected() && engine.synced && path->lists_sent == path->lists_done &&
		path->use != PATH_USE_ASKED && !dlist_is_empty(&path->arrivals))
		path_list(path, entry_owner(entry_of(dlist_head_element(Contender, link, &path->arrivals))),
				  run_last(path) && !run_last(path)->closed ? LIST_AND_WATCH : LIST_ONLY);
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
