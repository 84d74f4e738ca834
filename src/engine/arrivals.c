/*
 * arrivals.c
 *		New contenders: which cohort each one joins, and who is refused before that.
 *
 * A new contender joins the last cohort while no other client is known behind it.  The child
 * watch on the path reports newcomers.  If it has fired since the last listing, a contender that
 * might join waits in the path's arrivals for a listing, and those that came after it wait with
 * it.  If the listing shows somebody who stands behind the last cohort, the contender begins a
 * cohort of its own.
 *
 * Some are refused here, and never have a node: those that do not wait for other holders, if the
 * lock is taken or ZooKeeper is away; those that would use the path for something else than
 * others do, or harm others by a node; and those for whose node there is no room.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* Returns the failure that names the use of a path. */
static Failure
other_use(const Path *path)
{
	if (path->recipe == &permit_recipe)
		return FAILURE_IS_SEMAPHORE;
	if (path->recipe == &election_recipe)
		return FAILURE_IS_ELECTION;
	return path->recipe == &element_recipe ? FAILURE_IS_QUEUE : FAILURE_IS_LOCK;
}

/* Returns true if somebody uses the path, or ZooKeeper refuses to have a node of ours go. */
static bool
path_is_in_use(const Path *path)
{
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (!cohort_is_empty(cohort) || cohort->retry_at > 0)
			return true;
	}
	return false;
}

/*
 * Has the path be used for what an arrival asks for, if no node of ours is left, and forgets
 * what listings have shown, which was read by the other recipe.  Returns false if one is left;
 * that is kept no longer.
 */
static bool
path_change_use(Path *path, const Contender *c)
{
	if (cohort_first(path))
	{
		kept_end(cohort_last(path));
		return false;
	}
	path->recipe = contender_recipe(c);
	path_foreign_clear(path);
	path->lists_shown = 0;
	return true;
}

/*
 * Returns true if a contender may join the cohort, as far as is known now.  A reservation has a
 * node of its own, which its role pays for.
 */
static bool
cohort_is_open(const Cohort *cohort, const Contender *c)
{
	const Recipe *recipe = cohort->path->recipe;
	RecipeRequest request = contender_request(c);

	return entry_of(c)->request.scope != LOCK_SCOPE_RESERVATION && !cohort->closed &&
		   recipe->may_join && recipe->may_join(&cohort->request, &request) &&
		   cohort->joined < MAX_GRANTS && (!cohort_is_empty(cohort) || cohort_is_kept(cohort));
}

/* Returns true if what is known about newcomers behind the last cohort is up to date. */
static bool
cohort_is_fresh(const Cohort *cohort)
{
	return cohort->state == COHORT_PLANNED || cohort->state == COHORT_CREATING ||
		   (cohort->state == COHORT_CREATED && !cohort->listed &&
			cohort->path->child_watch == WATCH_ASKED) ||
		   cohort->path->child_watch == WATCH_SET;
}

/* Puts an arrival into the last cohort, or into a new one if that is not open. */
static void
contender_enter(Contender *c)
{
	Path		 *path = c->path;
	Cohort		 *last = cohort_last(path);
	RecipeRequest request = contender_request(c);
	bool		  open = last && cohort_is_open(last, c);

	/* Nobody has paid for a node that is kept. */
	if (!open || cohort_is_kept(last))
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
		last = cohort_new(path, 0, &request);
		dlist_push_tail(&path->cohorts, &last->link);
		cohort_replaces(last, c);
	}
	dlist_delete(&c->link);
	cohort_join(last, c);
	if (cohort_is_kept(last))
		kept_resume(last);
}

/*
 * Refuses an arrival if its answer is known by now: that of one that is not to wait, of a
 * claim of an element, of one that would use the path for something else than others do, or of
 * all if ZooKeeper refuses our credentials.  Returns true if it is refused.
 */
static bool
arrival_is_refused(Contender *c)
{
	const Entry *entry = entry_of(c);

	if (contender_recipe(c) != c->path->recipe && path_is_in_use(c->path))
		contender_fail(c, other_use(c->path), 0);
	else if (engine.refused_code != 0)
		contender_fail(c, FAILURE_REFUSED, engine.refused_code);
	else if (entry->request.manner == ASK_AND_WAIT && !c->path->recipe->fixed_name)
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
bool
contender_has_looked(const Contender *c)
{
	return c->next_list <= c->path->lists_shown;
}

/*
 * Returns true if an arrival must wait for a listing: if it is to look, if it might join a
 * cohort behind which others may stand, or if its node might harm others.  One that takes the
 * place of another node cannot harm others as long as that node exists.  A contender
 * that joins a kept cohort needs no listing, since nobody else is known there.
 */
static bool
arrival_must_look(const Contender *c)
{
	const EntryRequest *asked = &entry_of(c)->request;
	const Cohort	   *last = cohort_last(c->path);
	bool				open = last && cohort_is_open(last, c);

	if (open && cohort_is_kept(last))
		return false;
	return asked->manner == ASK_AND_LOOK ||
		   (c->path->recipe->cannot_coexist && cohort_replaced_for(c) == NULL) ||
		   (open && !cohort_is_fresh(last));
}

/* Places the arrivals, but for those that must wait for a listing, and those behind them. */
void
path_place_arrivals(Path *path)
{
	dlist_mutable_iter iter;
	bool			   waits = path->use == PATH_USE_ASKED;

	dlist_foreach_modify (iter, &path->arrivals)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);
		bool	   looked;

		if (arrival_is_refused(c))
			continue;
		if (contender_recipe(c) != path->recipe)
			waits = waits || !path_change_use(path, c);
		looked = contender_has_looked(c);
		waits = waits || (!looked && arrival_must_look(c));
		if (waits)
			continue;
		if (looked && entry_of(c)->request.manner != ASK_AND_WAIT && contender_is_blocked(c) &&
			!kept_may_go(c))
			contender_fail(c, FAILURE_BUSY, 0);
		else if (looked && contender_cannot_coexist(c))
			contender_fail(c, FAILURE_CANNOT_COEXIST, 0);
		else
			contender_enter(c);
	}
}
