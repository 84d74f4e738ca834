/*
 * contender.c
 *		The worker's steps in a contender's life.
 *
 * These functions keep three things in step with each other: a contender's entry in shared
 * memory, its place in the worker's queues, and the node that it names.
 *
 * Runs in: the worker.  shared/entry.h draws the states of entries; entry.c makes the steps,
 * and says how their parts are written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "utils/timestamp.h"

/* Returns the recipe by which the contender gets what it asks for. */
const Recipe *
contender_recipe(const Contender *c)
{
	static const Recipe *const recipes[] = {
		[REQUEST_LOCK] = &lock_recipe,		 [REQUEST_TURN] = &lock_recipe,
		[REQUEST_PERMIT] = &permit_recipe,	 [REQUEST_CANDIDACY] = &election_recipe,
		[REQUEST_ELEMENT] = &element_recipe,
	};

	return recipes[entry_of(c)->request.kind];
}

/*
 * Returns the contender's request, with the mode to which its backend may have downgraded it.
 */
RecipeRequest
contender_request(const Contender *c)
{
	RecipeRequest request = entry_of(c)->request.terms;

	request.mode = entry_status(entry_index(c)).mode;
	return request;
}

/*
 * Records in the entry which node stands for the contender.  Nobody has announced yet that a
 * new one will be deleted.
 */
void
contender_publish(Contender *c)
{
	Entry		 *entry = entry_of(c);
	const Cohort *cohort = c->cohort;

	SpinLockAcquire(&entry->mutex);
	if (entry->node.czxid != cohort->czxid)
		entry->status.deletion = LOSS_DELETED;
	entry->node.cohort_id = cohort->id;
	memcpy(entry->node.name, cohort->name, sizeof(cohort->name));
	entry->node.czxid = cohort->czxid;
	entry->node.grants = cohort->grants;
	SpinLockRelease(&entry->mutex);
}

/* Puts a contender, which is in no list and has no node, into the arrivals of a path. */
void
contender_arrive(Contender *c, Path *path)
{
	Entry *entry = entry_of(c);

	c->place = PLACE_ARRIVED;
	c->path = path;
	c->cohort = NULL;
	c->next_list = path->lists_sent + 1;
	c->came_at = zklock_now_ms();
	c->gives_up = 0;
	dlist_push_tail(&path->arrivals, &c->link);
	if (entry->node.cohort_id != 0)
	{
		SpinLockAcquire(&entry->mutex);
		entry->status.deletion = LOSS_DELETED;
		entry->node = (EntryNode){0};
		SpinLockRelease(&entry->mutex);
	}
	path_mark(path);
}

/*
 * Forgets a contender: its entry is given back, at once or when its backend has taken note of
 * a failure or loss.
 */
void
contender_forget(Contender *c)
{
	Entry *entry = entry_of(c);
	bool   released;

	c->place = PLACE_NONE;
	c->path = NULL;
	c->cohort = NULL;
	SpinLockAcquire(&entry->mutex);
	entry->node.cohort_id = 0;
	released = entry->status.state == ENTRY_RELEASING;
	SpinLockRelease(&entry->mutex);
	if (released)
		entry_free(entry_index(c));
}

/*
 * Takes a contender out of its queue.  If it was the last of a cohort that has, or may have, a
 * node, its entry keeps the node's name.
 */
void
contender_detach(Contender *c)
{
	Cohort *cohort = c->cohort;

	path_mark(c->path);
	dlist_delete(&c->link);
	if (cohort && cohort_head(cohort) == NULL && cohort->state != COHORT_PLANNED)
	{
		Assert(cohort->last_owner == NULL);
		cohort->last_owner = c;
		c->place = PLACE_KEEPS_NODE;
		return;
	}
	if (cohort && cohort_head(cohort) != NULL)
		contender_publish(cohort_head(cohort));
	contender_forget(c);
}

/* Refuses a contender that waits. */
void
contender_fail(Contender *c, Failure failure, int code)
{
	entry_fail(entry_index(c), failure, code);
	contender_detach(c);
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

/*
 * Marks a granted contender's lock as lost, whether or not the node is gone, and counts the
 * loss, unless its backend has given it up meanwhile.
 */
void
contender_lose(Contender *c, LossReason reason)
{
	c->cohort->may_keep = false;

	/*
	 * Nobody holds a turn, and worker/candidacy.c counts the losses of candidates, since it
	 * knows whether they still led.  A reservation that nobody has renewed is not lost, but
	 * over.
	 */
	if (entry_lose(entry_index(c), reason))
	{
		RequestKind kind = entry_of(c)->request.kind;
		EntryStatus status = entry_status(entry_index(c));
		int64		held = GetCurrentTimestamp() - status.granted_at;

		if (status.reserved)
			stats_add(STATS_LOCK_EXCLUSIVE, STATS_HOLD_US, Max(held, 0));
		if (kind != REQUEST_TURN && kind != REQUEST_CANDIDACY &&
			(!status.reserved || reason != LOSS_OVERRUN))
			stats_add(stats_kind(kind, status.mode), STATS_LOSSES, 1);
	}
	contender_detach(c);
}

/* Has the engine look at a holder when its time is over. */
void
contender_note_end(const Contender *c)
{
	EntryStatus status;

	if (entry_of(c)->request.max_hold_ms == 0)
		return;
	status = entry_status(entry_index(c));
	engine.overrun_us = Min(engine.overrun_us, status.expires_us);
}
