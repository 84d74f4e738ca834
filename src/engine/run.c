/*
 * run.c
 *		The runs of a path: their states, and the contenders in their queues.
 *
 * engine_internal.h draws the states of a run; these functions make the steps between them.
 *
 * If a run can only become GONE (its node was deleted by someone else, its session expired,
 * or it was never created), holders have lost the lock, and the contenders that waited queue
 * again in a new run.  An earlier worker's run begins where its entries say that it was:
 * run_adopted().
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/*
 * Sequences end at 2^31 - 1.  Releases of ZooKeeper differ in what comes then, and clients in
 * the order that they see in it.  So the log warns the administrator at half of that, and
 * nothing is granted near its end.
 */
#define SEQUENCE_WARNING (1 << 30)
#define SEQUENCE_LIMIT (PG_INT32_MAX - 1000000)

static const bool run_steps[RUN_GONE + 1][RUN_GONE + 1] PG_USED_FOR_ASSERTS_ONLY = {
	[RUN_PLANNED] = {[RUN_CREATING] = true, [RUN_GONE] = true},
	[RUN_CREATING] = {[RUN_PLANNED] = true, [RUN_CREATED] = true, [RUN_GONE] = true},
	[RUN_CREATED] = {[RUN_GRANTED] = true, [RUN_DELETING] = true, [RUN_GONE] = true},
	[RUN_GRANTED] = {[RUN_DOWNGRADING] = true, [RUN_DELETING] = true, [RUN_GONE] = true},
	[RUN_DOWNGRADING] = {[RUN_GRANTED] = true, [RUN_DELETING] = true, [RUN_GONE] = true},
	[RUN_DELETING] = {[RUN_GONE] = true},
};

/* Where the contenders of a run that is gone queue again */
typedef enum Requeue
{
	REQUEUE_IN_PLACE,
	REQUEUE_BEHIND_ALL /* others have passed them meanwhile */
} Requeue;

/* ------------------------------------------------------------------------
 * Runs and their queues
 * ------------------------------------------------------------------------
 */

/*
 * Creates a run.  Ids give a later worker the order of a path's runs: 0 makes a new one,
 * behind all others.
 */
Run *
run_new(Path *path, uint64 id, const RecipeRequest *request)
{
	Run *run = palloc0(sizeof(Run));

	run->path = path;
	run->state = RUN_PLANNED;
	run->refused_in = RUN_PLANNED;
	run->told_in = RUN_PLANNED;
	run->request = *request;
	run->peer.mode = request->mode;
	dlist_init(&run->queue);
	run->id = id != 0 ? id : entry_pool->next_run_id++;
	return run;
}

static void
run_step(Run *run, RunState to)
{
	Assert(run_steps[run->state][to]);
	run->state = to;
}

/* Puts a contender, which is in no list, at the end of a run's queue. */
void
run_join(Run *run, Contender *c)
{
	c->place = PLACE_WAITING;
	c->run = run;
	run->joined++;
	dlist_push_tail(&run->queue, &c->link);
	contender_publish(c);
}

/* Returns true if the run's node is known to exist, by its full name. */
bool
run_has_node(const Run *run)
{
	return run->state >= RUN_CREATED && run->state <= RUN_DELETING;
}

/*
 * Returns the run that has the node, or may have it as its heir, the shared node that replaces
 * the run's exclusive one; or NULL.
 */
Run *
run_by_name(Path *path, const char *name)
{
	for (Run *run = run_first(path); run; run = run_after(run))
	{
		if (run_has_node(run) && (strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0))
			return run;
	}
	return NULL;
}

/*
 * Returns true if anybody holds or wants what the run stands for, other than that contender's
 * own session if one is given.
 */
bool
run_is_wanted(const Run *run, const Contender *by_others_than)
{
	for (Contender *c = run_head(run); c; c = contender_behind(c))
	{
		if (contender_state(c) != CONTENDER_RELEASING &&
			(by_others_than == NULL || !contender_same_session(c, by_others_than)))
			return true;
	}
	return false;
}

/* Returns true if what the run stands for is to be deleted with its node. */
bool
run_consumes(const Run *run)
{
	const Contender *c = run_head_or_keeper(run);

	return c && contender_consumes(c);
}

/* Returns true if the name of its node may be another client's one day. */
bool
run_name_recurs(const Run *run)
{
	const Recipe *recipe = run->path->recipe;

	return recipe->single || (recipe->recurs && recipe->recurs(&run->request));
}

/*
 * Returns true if an heir has taken the place of the node that was created for the run.  Only
 * the holder's entry shows that, so nobody joins such a run.
 */
bool
run_has_heir(const Run *run)
{
	const Contender *c = run_head_or_keeper(run);

	return run->path->recipe->heir && run->peer.mode == LOCK_MODE_SHARED && c &&
		   entry_of(c)->request.terms.mode == LOCK_MODE_EXCLUSIVE;
}

/*
 * Returns true if a node that has the run's name is the run's.  The czxid of an heir is not
 * known, but our session creates no other node of its name later.
 */
bool
run_owns(const Run *run, const NodeStat *stat)
{
	if (stat->ephemeral_owner != engine.session_id)
		return false;
	return run_has_heir(run) ? stat->czxid > run->czxid : stat->czxid == run->czxid;
}

static void
tie_replacement(Run *run, Run *old)
{
	run->replaces = old;
	old->replaced_by = run;
}

/* Returns the run whose node a contender's node is to replace, as things are now, or NULL. */
Run *
run_replaced_for(const Contender *c)
{
	int	 index = entry_of(c)->request.replaces;
	Run *old = index == ENTRY_NONE ? NULL : engine.contenders[index].run;

	return old && old != c->run && old->path == c->path && !old->replaced_by && run_has_node(old)
			   ? old
			   : NULL;
}

/*
 * Has the node of a contender's planned run replace another one, if there is one to replace:
 * one is created and the other deleted in the same step (node.c).
 */
void
run_replaces(Run *run, const Contender *c)
{
	Run *old = run_replaced_for(c);

	if (old && !run->replaces)
		tie_replacement(run, old);
}

/* Forgets a replacement that is done, or will not be done any more. */
static void
forget_replacement(Run *run)
{
	if (run->replaces)
	{
		run->replaces->replaced_by = NULL;
		path_mark(run->path);
	}
	if (run->replaced_by)
		run->replaced_by->replaces = NULL;
	run->replaces = NULL;
	run->replaced_by = NULL;
}

/* Records in the entries of all its contenders what is known of a run's node. */
static void
publish(Run *run)
{
	for (Contender *c = run_head(run); c; c = contender_behind(c))
		contender_publish(c);
	if (run->keeper)
		contender_publish(run->keeper);
}

/* Refuses all who wait in a run. */
void
run_fail(Run *run, Failure failure, int code)
{
	dlist_mutable_iter iter;

	run->closed = true;
	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_WAITING)
			contender_fail(c, failure, code);
	}
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

/* Makes a run CREATING: the name is chosen, and the create is about to be sent. */
void
run_creating(Run *run)
{
	run_step(run, RUN_CREATING);
	run->listed = false;
	run_charge(run, entry_of(run_head(run))->request.pid);
	publish(run);
}

/* Makes a run PLANNED again: nothing was created, and that is certain. */
void
run_replanned(Run *run)
{
	run_step(run, RUN_PLANNED);
}

/*
 * Makes a run CREATED, with the full name of its node.  A node whose sequence is near the last
 * one, or beyond it, is deleted again; nobody is served under it.
 */
void
run_created(Run *run, const char *name, int64 czxid)
{
	Run *former = run_by_name(run->path, name);

	run_step(run, RUN_CREATED);
	strlcpy(run->name, name, sizeof(run->name));
	if (!run->path->recipe->read(name, &run->peer) || !run->peer.numbered)
		elog(ERROR, "unexpected node name \"%s\"", name);
	run->czxid = czxid;
	if (run->peer.sequence >= SEQUENCE_WARNING)
		report_sequence(run->path, run->peer.sequence, SEQUENCE_LIMIT);
	if (run->peer.sequence < 0 || run->peer.sequence >= SEQUENCE_LIMIT)
		run_fail(run, FAILURE_WORN_OUT, 0);
	publish(run);
	if (former)
		run_deleted(former); /* a path that was created again numbers its nodes anew */
	if (run->replaces)
		run_deleted(run->replaces);
}

/*
 * Takes over a run for which an earlier worker has sent a create under this name.  It is the
 * full one if the reply had come.  The node is charged to the given session.
 */
void
run_adopted(Run *run, const char *name, int64 czxid, int payer)
{
	run_step(run, RUN_CREATING);
	strlcpy(run->name, name, sizeof(run->name));
	run->czxid = czxid;
	run_charge(run, payer);
	if (run->path->recipe->read(name, &run->peer) && run->peer.numbered && czxid != 0)
	{
		/* Its contender may have downgraded, the node has not. */
		run->request.mode = run->peer.mode;
		run_step(run, RUN_CREATED);
	}
}

/* Makes a run GRANTED: it waits for nobody. */
void
run_granted(Run *run)
{
	Assert(run->state == RUN_CREATED);
	run_step(run, RUN_GRANTED);
	if (run->blocker_watch == WATCH_SET)
		watch_blocker_set(run, WATCH_NONE);
}

/* Makes a run DOWNGRADING: from now on its node may have been replaced by its heir. */
void
run_downgrading(Run *run)
{
	RecipeRequest request = contender_request(run_head_or_keeper(run));

	if (!run->path->recipe->heir(run->heir, sizeof(run->heir), run->name, &request))
		elog(ERROR, "unexpected node name \"%s\"", run->name);
	run_step(run, RUN_DOWNGRADING);
	run->closed = true;
}

/* Makes a run GRANTED again: the heir has taken the place of its node. */
void
run_downgraded(Run *run)
{
	Assert(run->state == RUN_DOWNGRADING);
	run_step(run, RUN_GRANTED);
	watch_own_set(run, WATCH_NONE);
	strlcpy(run->name, run->heir, sizeof(run->name));
	run->heir[0] = '\0';
	(void) run->path->recipe->read(run->name, &run->peer);
	run->request.mode = run->peer.mode;
	run->listed = true;
	publish(run);
	for (Contender *c = run_head(run); c; c = contender_behind(c))
		contender_downgraded(c);
}

/* Makes a run DELETING that nobody needs any more.  Its one node has the run's name. */
void
run_abandoned(Run *run)
{
	Assert(run_is_empty(run));
	run_step(run, RUN_DELETING);
	run->heir[0] = '\0';
	run->retry_at = 0;
}

/*
 * Makes a run GONE whose node does not exist, or not any more, and whose queue is empty.  The
 * run may be freed.
 */
void
run_finish(Run *run)
{
	Assert(run_is_empty(run));
	path_mark(run->path);
	if (run->keeper)
		contender_forget(run->keeper);
	run->keeper = NULL;
	kept_end(run);
	forget_replacement(run);
	watch_own_set(run, WATCH_NONE);
	if (run->blocker_watch == WATCH_SET)
		watch_blocker_give_up(run, WATCH_NONE);
	run_refund(run);
	dlist_delete(&run->link);
	run_step(run, RUN_GONE);
	if (run->calls == 0)
		pfree(run);
}

/*
 * Ends a run: holders have lost what it stood for, and those who wait queue again in a new
 * one.  Where nobody has a node before he has looked, they arrive anew.
 */
static void
requeue(Run *run, Requeue where, LossReason reason)
{
	bool			   arrive = run->path->recipe->bars && !run->replaces;
	dlist_mutable_iter iter;
	Run				  *replacement = NULL;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_GRANTED)
		{
			contender_lose(c, reason);
			continue;
		}
		if (arrive)
		{
			dlist_delete(&c->link);
			contender_arrive(c, run->path);
			continue;
		}
		if (replacement == NULL)
		{
			replacement = run_new(run->path, where == REQUEUE_IN_PLACE ? run->id : 0, &run->request);
			if (run->replaces)
				tie_replacement(replacement, run->replaces);
			run->replaces = NULL;
			if (where == REQUEUE_IN_PLACE)
				dlist_insert_after(&run->link, &replacement->link);
			else
				dlist_push_tail(&run->path->runs, &replacement->link);
		}
		dlist_delete(&c->link);
		run_join(replacement, c);
		contender_blocked_by(c, (Blocker){0});
	}
	run_finish(run);
}

/* Ends a run that has no node, which is certain. */
void
run_start_over(Run *run)
{
	Assert(run->state == RUN_PLANNED || run->state == RUN_CREATING);
	requeue(run, REQUEUE_IN_PLACE, LOSS_DELETED);
}

/* Ends a run whose node is gone with the session. */
void
run_expired(Run *run)
{
	if (run_consumes(run))
		report_unremoved(run->path, LOSS_EXPIRED);
	requeue(run, REQUEUE_IN_PLACE, LOSS_EXPIRED);
}

/* Ends a run whose node is gone: those in its queue did not give it up. */
void
run_deleted(Run *run)
{
	if (!run_is_empty(run))
		report_deletion(run);
	requeue(run, REQUEUE_BEHIND_ALL, LOSS_DELETED);
}

/*
 * Takes note that the run's node is not there.  Someone else has deleted it, its heir has
 * replaced it, which a listing will show, or it was deleted with what it stood for, which the
 * reply to its deletion will show.
 */
void
run_vanished(Run *run)
{
	path_mark(run->path);
	if (run->state == RUN_DOWNGRADING || run_consumes(run))
	{
		run->listed = false;
		run->retry_at = 0;
	}
	else
		run_deleted(run);
}

/*
 * Takes note that another node has the run's name by now.  Ours is gone, and listings that
 * show the name do not count.
 */
void
run_usurped(Run *run)
{
	for (Run *other = run_first(run->path); other; other = run_after(other))
		other->listed = false;
	if (run->own_watch == WATCH_SET)
		zk_call((ZkCall){.kind = ZK_UNWATCH_DATA, .path = path_node(run->path, run->name)}, NULL, NULL);
	watch_own_set(run, WATCH_NONE);
	if (run_consumes(run))
		run_vanished(run);
	else
		run_deleted(run);
}
