/*
 * cohort.c
 *		The cohorts of a path: their states, and the contenders in their queues.
 *
 * A cohort is one ephemeral sequential node of ours and the contenders of this server for which
 * it stands.  These functions make the steps between its states, which engine_internal.h draws:
 *
 *		PLANNED		no node yet
 *		CREATING	the create is sent, and not answered
 *		CREATED		the node exists; the cohort waits for older contenders
 *		GRANTED		it waits for nobody; those in its queue are granted
 *		DOWNGRADING	its node is being replaced by a shared one
 *		DELETING	nobody needs the node; the delete is repeated until it is gone
 *		GONE		there is no node, or none any more
 *
 * Holders lose the lock, and those that wait queue again in a new cohort, if the node was
 * deleted by someone else or never created, or if the ZooKeeper session has ended (session.c,
 * for all cohorts).  An earlier worker's cohort begins where its entries say that it was:
 * cohort_adopted().
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

PG_USED_FOR_ASSERTS_ONLY static const bool cohort_steps[COHORT_GONE + 1][COHORT_GONE + 1] = {
	[COHORT_PLANNED] = {[COHORT_CREATING] = true, [COHORT_GONE] = true},
	[COHORT_CREATING] = {[COHORT_PLANNED] = true, [COHORT_CREATED] = true, [COHORT_GONE] = true},
	[COHORT_CREATED] = {[COHORT_GRANTED] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_GRANTED] = {[COHORT_DOWNGRADING] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_DOWNGRADING] = {[COHORT_GRANTED] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_DELETING] = {[COHORT_GONE] = true},
};

/* ------------------------------------------------------------------------
 * Cohorts and their queues
 * ------------------------------------------------------------------------
 */

/*
 * Creates a cohort.  Ids give a later worker the order of a path's cohorts: 0 makes a new one,
 * behind all others.
 */
Cohort *
cohort_new(Path *path, uint64 id, const RecipeRequest *request)
{
	Cohort *cohort = palloc0(sizeof(Cohort));

	cohort->path = path;
	cohort->state = COHORT_PLANNED;
	cohort->refused_in = COHORT_PLANNED;
	cohort->refusal_logged_in = COHORT_PLANNED;
	cohort->request = *request;
	cohort->peer.mode = request->mode;
	dlist_init(&cohort->queue);
	cohort->id = id != 0 ? id : entry_pool->next_cohort_id++;
	return cohort;
}

static void
cohort_step(Cohort *cohort, CohortState to)
{
	Assert(cohort_steps[cohort->state][to]);
	cohort->state = to;
}

/* Puts a contender, which is in no list, at the end of a cohort's queue. */
void
cohort_join(Cohort *cohort, Contender *c)
{
	c->place = PLACE_WAITING;
	c->cohort = cohort;
	cohort->joined++;
	dlist_push_tail(&cohort->queue, &c->link);
	contender_publish(c);
}

/* Returns true if the cohort's node is known to exist, by its full name. */
bool
cohort_has_node(const Cohort *cohort)
{
	return cohort->state >= COHORT_CREATED && cohort->state <= COHORT_DELETING;
}

/*
 * Returns the cohort that has the node, or may have it as its downgraded node, the shared node
 * that replaces the cohort's exclusive one; or NULL.
 */
Cohort *
cohort_by_name(Path *path, const char *name)
{
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort_has_node(cohort) &&
			(strcmp(cohort->name, name) == 0 || strcmp(cohort->downgraded_name, name) == 0))
			return cohort;
	}
	return NULL;
}

/*
 * Returns true if anybody holds or wants what the cohort stands for, other than that
 * contender's own session if one is given.
 */
bool
cohort_is_wanted(const Cohort *cohort, const Contender *by_others_than)
{
	for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
	{
		if (contender_state(c) != ENTRY_RELEASING &&
			(by_others_than == NULL || !contender_same_session(c, by_others_than)))
			return true;
	}
	return false;
}

/* Returns true if what the cohort stands for is to be deleted with its node. */
bool
cohort_consumes(const Cohort *cohort)
{
	const Contender *c = cohort_head_or_last_owner(cohort);
	EntryStatus		 status;

	if (c == NULL)
		return false;
	status = entry_status(entry_index(c));
	return status.state == ENTRY_RELEASING && status.consumed;
}

/* Returns true if the name of its node may be another client's one day. */
bool
cohort_name_is_reusable(const Cohort *cohort)
{
	const Recipe *recipe = cohort->path->recipe;

	if (recipe->fixed_name)
		return true;
	return recipe->name_is_reusable && recipe->name_is_reusable(&cohort->request);
}

/*
 * Returns true if a downgraded node has taken the place of the node that was created for the
 * cohort.  Only the holder's entry shows that, so nobody joins such a cohort.
 */
bool
cohort_has_downgraded_node(const Cohort *cohort)
{
	const Contender *c = cohort_head_or_last_owner(cohort);

	return cohort->path->recipe->downgraded_name && cohort->peer.mode == LOCK_MODE_SHARED &&
		   c && entry_of(c)->request.terms.mode == LOCK_MODE_EXCLUSIVE;
}

/*
 * Returns true if a node that has the cohort's name is the cohort's.  The czxid of a
 * downgraded node is not known, but our session creates no other node of its name later.
 */
bool
cohort_owns(const Cohort *cohort, const NodeStat *stat)
{
	if (stat->ephemeral_owner != engine.session_id)
		return false;
	return cohort_has_downgraded_node(cohort) ? stat->czxid > cohort->czxid
											  : stat->czxid == cohort->czxid;
}

static void
tie_replacement(Cohort *cohort, Cohort *old)
{
	cohort->replaces = old;
	old->replaced_by = cohort;
}

/*
 * Returns the cohort whose node a contender's node is to replace, as things are now, or NULL.
 */
Cohort *
cohort_replaced_for(const Contender *c)
{
	int		index = entry_of(c)->request.replaces;
	Cohort *old = index == ENTRY_NONE ? NULL : engine.contenders[index].cohort;

	return old && old != c->cohort && old->path == c->path && !old->replaced_by &&
				   cohort_has_node(old)
			   ? old
			   : NULL;
}

/*
 * Has the node of a contender's planned cohort replace another one, if there is one to
 * replace:  one is created and the other deleted in the same step (node.c).
 */
void
cohort_replaces(Cohort *cohort, const Contender *c)
{
	Cohort *old = cohort_replaced_for(c);

	if (old && !cohort->replaces)
		tie_replacement(cohort, old);
}

/* Forgets a replacement that is done, or will not be done any more. */
static void
forget_replacement(Cohort *cohort)
{
	if (cohort->replaces)
	{
		cohort->replaces->replaced_by = NULL;
		path_mark(cohort->path);
	}
	if (cohort->replaced_by)
		cohort->replaced_by->replaces = NULL;
	cohort->replaces = NULL;
	cohort->replaced_by = NULL;
}

/* Records in the entries of all its contenders what is known of a cohort's node. */
static void
publish_node(Cohort *cohort)
{
	for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
		contender_publish(c);
	if (cohort->last_owner)
		contender_publish(cohort->last_owner);
}

/* Refuses all who wait in a cohort. */
void
cohort_fail(Cohort *cohort, Failure failure, int code)
{
	dlist_mutable_iter iter;

	cohort->closed = true;
	dlist_foreach_modify (iter, &cohort->queue)
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

/*
 * Makes a cohort CREATING: the name is chosen, and the create is about to be sent.  The node
 * counts against its session's share from now on.
 */
void
cohort_creating(Cohort *cohort)
{
	cohort_step(cohort, COHORT_CREATING);
	cohort->listed = false;
	cohort_charge(cohort, entry_payer(entry_of(cohort_head(cohort))));
	publish_node(cohort);
}

/* Makes a cohort PLANNED again: nothing was created, and that is certain. */
void
cohort_planned(Cohort *cohort)
{
	cohort_step(cohort, COHORT_PLANNED);
}

/*
 * Makes a cohort CREATED, with the full name of its node.  A node whose sequence is near the
 * last one, or beyond it, is deleted again; nobody is served under it.
 */
void
cohort_created(Cohort *cohort, const char *name, int64 czxid)
{
	Cohort *former = cohort_by_name(cohort->path, name);

	cohort_step(cohort, COHORT_CREATED);
	strlcpy(cohort->name, name, sizeof(cohort->name));
	if (!cohort->path->recipe->read(name, &cohort->peer) || !cohort->peer.numbered)
		elog(ERROR, "unexpected node name \"%s\"", name);
	cohort->czxid = czxid;
	if (cohort->peer.sequence >= SEQUENCE_WARNING)
		report_sequence(cohort->path, cohort->peer.sequence, SEQUENCE_LIMIT);
	if (cohort->peer.sequence < 0 || cohort->peer.sequence >= SEQUENCE_LIMIT)
		cohort_fail(cohort, FAILURE_WORN_OUT, 0);
	publish_node(cohort);
	if (former)
		cohort_end(former, END_DELETED); /* a path that is created again numbers anew */
	if (cohort->replaces)
		cohort_end(cohort->replaces, END_DELETED);
}

/*
 * Takes over a cohort of an earlier worker, which has sent a create under this name.  The name
 * has its sequence if the reply has come.  The node counts against the payer's share.
 */
void
cohort_adopted(Cohort *cohort, const char *name, int64 czxid, int64 payer)
{
	cohort_step(cohort, COHORT_CREATING);
	strlcpy(cohort->name, name, sizeof(cohort->name));
	cohort->czxid = czxid;
	cohort_charge(cohort, payer);
	if (cohort->path->recipe->read(name, &cohort->peer) && cohort->peer.numbered && czxid != 0)
	{
		/* Its contender may have downgraded, the node has not. */
		cohort->request.mode = cohort->peer.mode;
		cohort_step(cohort, COHORT_CREATED);
	}
}

/* Makes a cohort GRANTED: it waits for nobody. */
void
cohort_granted(Cohort *cohort)
{
	Assert(cohort->state == COHORT_CREATED);
	cohort_step(cohort, COHORT_GRANTED);
	if (cohort->blocker_watch == WATCH_SET)
		watch_blocker_set(cohort, WATCH_NONE);
}

/*
 * Makes a cohort DOWNGRADING: from now on its node may have been replaced by its downgraded
 * node.
 */
void
cohort_downgrading(Cohort *cohort)
{
	RecipeRequest request = contender_request(cohort_head_or_last_owner(cohort));

	if (!cohort->path->recipe->downgraded_name(cohort->downgraded_name,
											   sizeof(cohort->downgraded_name), cohort->name, &request))
		elog(ERROR, "unexpected node name \"%s\"", cohort->name);
	cohort_step(cohort, COHORT_DOWNGRADING);
	cohort->closed = true;
}

/* Makes a cohort GRANTED again: the downgraded node has taken the place of its node. */
void
cohort_downgraded(Cohort *cohort)
{
	Assert(cohort->state == COHORT_DOWNGRADING);
	cohort_step(cohort, COHORT_GRANTED);
	watch_own_set(cohort, WATCH_NONE);
	strlcpy(cohort->name, cohort->downgraded_name, sizeof(cohort->name));
	cohort->downgraded_name[0] = '\0';
	(void) cohort->path->recipe->read(cohort->name, &cohort->peer);
	cohort->request.mode = cohort->peer.mode;
	cohort->listed = true;
	publish_node(cohort);
	for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
		contender_downgraded(c);
}

/* Makes a cohort DELETING that nobody needs any more.  Its one node has the cohort's name. */
void
cohort_deleting(Cohort *cohort)
{
	Assert(cohort_is_empty(cohort));
	cohort_step(cohort, COHORT_DELETING);
	cohort->downgraded_name[0] = '\0';
	cohort->retry_at = 0;
}

/*
 * Makes a cohort GONE whose node does not exist, or not any more, and whose queue is empty.
 * The cohort may be freed.
 */
void
cohort_gone(Cohort *cohort)
{
	Assert(cohort_is_empty(cohort));
	path_mark(cohort->path);
	if (cohort->last_owner)
		contender_forget(cohort->last_owner);
	cohort->last_owner = NULL;
	kept_end(cohort);
	forget_replacement(cohort);
	watch_own_set(cohort, WATCH_NONE);
	if (cohort->blocker_watch == WATCH_SET)
		watch_blocker_give_up(cohort, WATCH_NONE);
	cohort_refund(cohort);
	dlist_delete(&cohort->link);
	cohort_step(cohort, COHORT_GONE);
	if (cohort->calls == 0)
		pfree(cohort);
}

/* Returns true if later cohorts may have passed those who wait in one that ends. */
static bool
is_passed(CohortEnd how)
{
	return how != END_NOT_CREATED && how != END_EXPIRED;
}

/*
 * Ends a cohort: holders have lost what it stood for, and those who wait queue again in a new
 * one, in its place, or behind all others if these may have passed them.  They arrive anew if
 * they must look before they have a node.
 */
static void
requeue(Cohort *cohort, CohortEnd how)
{
	bool			   arrive = cohort->path->recipe->cannot_coexist && !cohort->replaces;
	dlist_mutable_iter iter;
	Cohort			  *replacement = NULL;

	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_GRANTED)
		{
			contender_lose(c, how == END_EXPIRED ? LOSS_EXPIRED : LOSS_DELETED);
			continue;
		}
		if (arrive)
		{
			dlist_delete(&c->link);
			contender_arrive(c, cohort->path);
			continue;
		}
		if (replacement == NULL)
		{
			replacement = cohort_new(cohort->path, is_passed(how) ? 0 : cohort->id, &cohort->request);
			if (cohort->replaces)
				tie_replacement(replacement, cohort->replaces);
			cohort->replaces = NULL;
			if (is_passed(how))
				dlist_push_tail(&cohort->path->cohorts, &replacement->link);
			else
				dlist_insert_after(&cohort->link, &replacement->link);
		}
		dlist_delete(&c->link);
		cohort_join(replacement, c);
		contender_blocked_by(c, (Blocker){0});
	}
	cohort_gone(cohort);
}

/* Forgets a node's name: another node has it by now, and listings that show it do not count. */
static void
forget_node_name(Cohort *cohort)
{
	bool was_set = cohort->own_watch == WATCH_SET;

	for (Cohort *other = cohort_first(cohort->path); other; other = cohort_after(other))
		other->listed = false;
	watch_own_set(cohort, WATCH_NONE);
	if (was_set)
		watch_remove(cohort->path, cohort->name);
}

/*
 * Ends a cohort that has no node, or none any more.  But if we may have deleted the node
 * ourselves, the cohort goes on: a listing will show whether the downgraded node has replaced
 * it, or the reply to the deletion whether what it stood for was deleted with it.
 */
void
cohort_end(Cohort *cohort, CohortEnd how)
{
	bool consumes = cohort_consumes(cohort);

	Assert(how != END_NOT_CREATED || cohort->state <= COHORT_CREATING);
	if (how == END_NAME_REUSED)
		forget_node_name(cohort);
	if ((how == END_MISSING && (cohort->state == COHORT_DOWNGRADING || consumes)) ||
		(how == END_NAME_REUSED && consumes))
	{
		cohort->listed = false;
		cohort->retry_at = 0;
		path_mark(cohort->path);
		return;
	}
	if (how == END_EXPIRED && consumes)
		report_unremoved(cohort->path, LOSS_EXPIRED);
	if (is_passed(how) && !cohort_is_empty(cohort))
		report_deletion(cohort);
	requeue(cohort, how);
}
