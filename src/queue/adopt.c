/*
 * adopt.c
 *		Taking over what an earlier worker left in shared memory.
 *
 * Contenders, runs and paths are made again from the entries: the id of a run
 * gives its place in the path's queue, a contender's ticket its place in the
 * run's.  What ZooKeeper has is found out when a connection stands.
 *
 * Runs in: the worker, at its start.  Of the entries in use it reads without a
 * lock what is constant and what only a worker writes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/adopt.h"
#include "queue/contender.h"
#include "queue/downgrade.h"
#include "queue/run.h"

/* Finds the run of an entry, or makes it again in its place. */
static Run *
run_of_entry(Path *path, const ContenderEntry *entry, const RecipeRequest *request)
{
	dlist_node *after = &path->runs.head;
	dlist_iter	iter;
	Run		   *run;

	dlist_foreach (iter, &path->runs)
	{
		Run *other = dlist_container(Run, link, iter.cur);

		if (other->id == entry->status.run_id)
			return other;
		if (other->id < entry->status.run_id)
			after = iter.cur;
	}
	run = run_new(path, entry->status.run_id, request);
	dlist_insert_after(after, &run->link);
	if (entry->node.name[0] != '\0')
		run_adopted(run, entry->node.name, entry->node.czxid, entry->request.pid);
	return run;
}

/*
 * Takes an entry over from an earlier worker.  That its run was granted is told
 * by any entry with a token, be it that of a holder that is leaving.
 */
static void
contender_adopt(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	ContenderState	state = contender_state(c);
	RecipeRequest	request = contender_request(c);
	Path		   *path;
	Run			   *run;

	if (entry->status.run_id == 0 && state != CONTENDER_QUEUED)
	{
		entry_mark_dirty(entry_index(c));
		return;
	}

	path = path_get(entry->request.path, recipe_by_id(entry->request.recipe));
	if (path == NULL)
		elog(ERROR, "path \"%s\" is in use with two recipes", entry->request.path);
	c->path = path;
	if (entry->status.run_id == 0)
	{
		c->place = PLACE_ARRIVED;
		c->needs_list = 1;
		dlist_push_tail(&path->arrivals, &c->link);
		return;
	}

	run = run_of_entry(path, entry, &request);
	run->grants = Max(run->grants, entry->node.grants);
	if (entry->status.token != 0 && run->state == RUN_CREATED)
		run_granted(run);
	c->run = run;
	if (state == CONTENDER_FAILED)
	{
		run->record = c;
		c->place = PLACE_ON_RECORD;
	}
	else
	{
		c->place = state == CONTENDER_GRANTED ? PLACE_GRANTED : PLACE_WAITING;
		dlist_push_tail(&run->queue, &c->link);
	}
	if (state == CONTENDER_RELEASING || contender_is_downgrading(c))
		entry_mark_dirty(entry_index(c));
}

/* Takes over the entries in use, which come in order of their tickets. */
void
adopt_entries(const int *indexes, int n)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	for (int i = 0; i < n; i++)
		contender_adopt(&engine.contenders[indexes[i]]);

	for (int i = 0; i < n; i++)
	{
		Contender *c = &engine.contenders[indexes[i]];
		int		   replaces = entry_of(c)->request.replaces;

		if (c->run && replaces != ENTRY_NONE && c->run->state != RUN_CREATED && c->run->state != RUN_GRANTED)
			run_replaces(c->run, &engine.contenders[replaces]);
	}

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_iter iter;

		dlist_foreach (iter, &path->runs)
		{
			Run		  *run = dlist_container(Run, link, iter.cur);
			dlist_iter waiting;

			run->joined = run->grants;
			dlist_foreach (waiting, &run->queue)
				run->joined += dlist_container(Contender, link, waiting.cur)->place != PLACE_GRANTED;

			/* How far the earlier worker came, a listing will tell. */
			if (run_wants_downgrade(run))
			{
				RecipeRequest request = contender_request(run_head(run));

				run_downgrading(run, &request);
			}
		}
	}
}
