/*
 * lock_adopt.c
 *		Taking over what an earlier worker left in shared memory.
 *
 * Contenders, runs and paths are made again from the entries: the id of a run
 * gives its place in the path's queue, a contender's ticket its place in the
 * run's.  What ZooKeeper has is found out when a connection stands.
 *
 * Runs in: the worker, at its start.  Entries are read under no lock but for
 * their state: their other fields change only with it, or not at all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_table.h"

/*
 * Takes an entry over from an earlier worker.  "granted" of a run is told by
 * any entry with a token, be it that of a holder who is leaving.
 */
static void
contender_adopt(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	ContenderState	state = contender_state(c);
	LockPath	   *path;
	dlist_iter		iter;
	Run			   *run = NULL;
	dlist_node	   *after;
	NodeName		parsed;

	if (entry->run_id == 0)
	{
		if (state == CONTENDER_QUEUED)
		{
			c->path = path_of_entry(entry);
			c->needs_list = 1;
			dlist_push_tail(&c->path->arrivals, &c->node);
		}
		else
			entry_mark_dirty(entry_index(c));
		return;
	}

	path = path_of_entry(entry);
	after = &path->runs.head;
	dlist_foreach (iter, &path->runs)
	{
		Run *other = dlist_container(Run, node, iter.cur);

		if (other->id == entry->run_id)
			run = other;
		if (other->id < entry->run_id)
			after = iter.cur;
	}
	if (run == NULL)
	{
		run = run_new(path, entry->run_id, entry->mode, entry->dialect);
		run->permit = entry->kind == CONTENDER_PERMIT;
		dlist_insert_after(after, &run->node);
		strlcpy(run->name, entry->node, sizeof(run->name));
		run->czxid = entry->czxid;
		if (run->name[0] != '\0')
		{
			run_account_node(run, entry->pid);
			run->state = RUN_UNKNOWN;
			if (run_sequence(run, run->name, &run->sequence))
				run->state = RUN_CREATED;
			if (node_name_parse(run->name, &parsed))
				run->mode = parsed.mode;
		}
	}
	run->grants = Max(run->grants, entry->run_grants);
	if (entry->token != 0)
		run->state = RUN_GRANTED;

	c->path = path;
	c->run = run;
	c->granted = state == CONTENDER_GRANTED;
	if (state == CONTENDER_FAILED)
		run->record = c;
	else
		dlist_push_tail(&run->queue, &c->node);
	if (state == CONTENDER_RELEASING || entry->downgrading)
		entry_mark_dirty(entry_index(c));
}

/* Takes over the entries in use, which come in order of their tickets. */
void
lock_adopt(const int *indexes, int n)
{
	HASH_SEQ_STATUS status;
	LockPath	   *path;

	for (int i = 0; i < n; i++)
		contender_adopt(&lock_manager.contenders[indexes[i]]);

	hash_seq_init(&status, lock_manager.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_iter iter;

		dlist_foreach (iter, &path->runs)
		{
			Run		  *run = dlist_container(Run, node, iter.cur);
			dlist_iter waiting;

			run->joined = run->grants;
			dlist_foreach (waiting, &run->queue)
				run->joined += !dlist_container(Contender, node, waiting.cur)->granted;

			/* How far the earlier worker came, a listing will tell. */
			if (run_wants_downgrade(run))
				run_downgrade_begin(run);
		}
	}
}
