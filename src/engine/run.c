/*
 * run.c
 *		The runs of a path: their states, and those in their queues.
 *
 * engine_internal.h draws the states of a run; the steps between them are made here.
 *
 * If nothing but GONE is left to a run (its node was deleted by someone else,
 * its session expired, or it was never created), holders have lost the lock and
 * the contenders that waited queue again in a new run.  An earlier worker's run begins
 * where its entries say that it was: run_adopted().
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/*
 * Sequences end at 2^31 - 1.  Releases of ZooKeeper differ in what comes then, and
 * clients in the order that they see in it.  So the administrator is
 * told at half of that, and nothing is granted near its end.
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

/* Where the contenders of a run that is gone queue again. */
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
 * Makes a run.  Ids tell a later worker the order of a path's runs: 0 makes a
 * new one, behind all others.
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

/* Is the run's node known to exist, by its full name? */
bool
run_has_node(const Run *run)
{
	return run->state >= RUN_CREATED && run->state <= RUN_DELETING;
}

/* The run that has the node, or may have it as an heir, or NULL. */
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

/* Does anybody hold or want what the run stands for, other than one's own session? */
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

/* Is what it stands for to go with its node? */
bool
run_consumes(const Run *run)
{
	const Contender *c = run_head_or_keeper(run);

	return c && contender_consumes(c);
}

/* May the name of its node be another client's one day? */
bool
run_name_recurs(const Run *run)
{
	const Recipe *recipe = run->path->recipe;

	return recipe->single || (recipe->recurs && recipe->recurs(&run->request));
}

/*
 * Has an heir taken the place of the node that was created for the run?  Its holder alone tells,
 * so nobody joins that one.
 */
bool
run_has_heir(const Run *run)
{
	const Contender *c = run_head_or_keeper(run);

	return run->path->recipe->heir && run->peer.mode == LOCK_MODE_SHARED && c &&
		   entry_of(c)->request.terms.mode == LOCK_MODE_EXCLUSIVE;
}

/*
 * Is a node that has the run's name the run's?  The czxid of an heir is not known, but
 * our session creates no other node of its name later.
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

/* The run whose node that of a contender is to take the place of, as it is now, or NULL */
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
 * The node of a contender's planned run takes the place of another one, if there is one to
 * replace: one is created and the other deleted in the same step (node.c).
 */
void
run_replaces(Run *run, const Contender *c)
{
	Run *old = run_replaced_for(c);

	if (old && !run->replaces)
		tie_replacement(run, old);
}

/* The replacement is done, or will not be done any more. */
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

/* Records in all its contenders' entries what is known of a run's node. */
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

/* The name is chosen, and create is about to be sent. */
void
run_creating(Run *run)
{
	run_step(run, RUN_CREATING);
	run->listed = false;
	run_charge(run, entry_of(run_head(run))->request.pid);
	publish(run);
}

/* Nothing was created, and that is certain. */
void
run_replanned(Run *run)
{
	run_step(run, RUN_PLANNED);
}

/*
 * The node exists: adopts its full name.  One that is numbered too high is
 * deleted again; nobody is served under it.
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
 * An earlier worker has sent create for the run, under this name.  It is the
 * full one if the answer had come.  The node is charged to the given session.
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

/* It waits for nobody. */
void
run_granted(Run *run)
{
	Assert(run->state == RUN_CREATED);
	run_step(run, RUN_GRANTED);
	if (run->blocker_watch == WATCH_SET)
		watch_blocker_set(run, WATCH_NONE);
}

/* From now on the run's node may have been replaced by its heir. */
void
run_downgrading(Run *run)
{
	RecipeRequest request = contender_request(run_head_or_keeper(run));

	if (!run->path->recipe->heir(run->heir, sizeof(run->heir), run->name, &request))
		elog(ERROR, "unexpected node name \"%s\"", run->name);
	run_step(run, RUN_DOWNGRADING);
	run->closed = true;
}

/* The heir has taken the place of the run's node. */
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

/* Nobody needs it any more.  It has one node, by its name. */
void
run_abandoned(Run *run)
{
	Assert(run_is_empty(run));
	run_step(run, RUN_DELETING);
	run->heir[0] = '\0';
	run->retry_at = 0;
}

/*
 * The run's node does not exist, or not any more, and nobody is in its queue.
 * The run may be freed.
 */
void
run_finish(Run *run)
{
	Assert(run_is_empty(run));
	path_mark(run->path);
	if (run->keeper)
		contender_forget(run->keeper);
	run->keeper = NULL;
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
 * Holders have lost what the run stood for, and those who wait queue again in a new
 * one; where nobody has a node before he has looked, they arrive anew.
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

/* It has no node, and that is certain. */
void
run_start_over(Run *run)
{
	Assert(run->state == RUN_PLANNED || run->state == RUN_CREATING);
	requeue(run, REQUEUE_IN_PLACE, LOSS_DELETED);
}

/* The session is over, and the node with it. */
void
run_expired(Run *run)
{
	if (run_consumes(run))
		report_unremoved(run->path, LOSS_EXPIRED);
	requeue(run, REQUEUE_IN_PLACE, LOSS_EXPIRED);
}

/* The run's node is gone: those who are in its queue did not give it up. */
void
run_deleted(Run *run)
{
	if (!run_is_empty(run))
		report_deletion(run);
	requeue(run, REQUEUE_BEHIND_ALL, LOSS_DELETED);
}

/*
 * The run's node is not there: deleted by someone else, replaced by its heir, which a
 * listing will tell, or deleted with what it stood for, as its deletion will tell.
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
 * Another node has the run's name by now.  Ours is gone, and listings that show the name
 * do not count.
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
