/*
 * lock_permit.c
 *		Permits of semaphores in the lock manager.
 *
 * A semaphore has two paths.  On one of them backends take turns with an
 * ordinary lock, and whose turn it is asks for a permit on the other (see
 * permit.c).  There each contender has a run, and so a node, of its own: a
 * lease, whatever else it may be waiting for.  A run becomes a permit by the
 * arithmetic of permit_recipe.c, from a listing of the path; while it waits,
 * the child watch makes us list again after each change.  That is only the
 * one whose turn it is, so there is no herd.
 *
 * These leases have nothing to do with that of the session (lease.c), but that
 * nothing is granted without it.  In all other respects, to create, find again,
 * guard, lose and delete its node, a permit's run is like any other.
 *
 * Runs in: the worker.  All of this is private to it, but for the entries,
 * whose fields are written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_table.h"

/* Forgets what is known of a path's leases. */
void
leases_clear(LockPath *path)
{
	for (int i = 0; i < path->nleases; i++)
		pfree(path->lease_names[i]);
	if (path->leases)
	{
		pfree(path->leases);
		pfree(path->lease_places);
		pfree(path->lease_names);
	}
	path->leases = NULL;
	path->lease_places = NULL;
	path->lease_names = NULL;
	path->nleases = 0;
}

/* Takes in a listing: every child counts, whatever it may be. */
void
leases_set(LockPath *path, const ZkReply *reply, const RunIndex *ours)
{
	Run **runs;

	leases_clear(path);
	if (reply->nchildren == 0)
		return;
	path->leases = palloc(reply->nchildren * sizeof(PermitLease));
	path->lease_places = palloc(reply->nchildren * sizeof(PermitPlace));
	path->lease_names = palloc(reply->nchildren * sizeof(char *));
	runs = palloc0(reply->nchildren * sizeof(Run *));
	for (int i = 0; i < reply->nchildren; i++)
	{
		const char	*child = reply->children[i];
		PermitLease *lease = &path->leases[i];

		if (lease_name_parse(child, lease))
			runs[i] = run_index_find(ours, child, lease->sequence);
		path->lease_names[i] = pstrdup(child);
	}
	path->nleases = reply->nchildren;

	permit_order(path->leases, path->nleases, path->lease_places);
	for (int place = 0; place < path->nleases; place++)
	{
		Run *run = runs[path->lease_places[place].lease];

		if (run == NULL || !run->permit)
			continue;
		run->listed = true;
		run->place = place;
	}
	pfree(runs);
}

/* Records what owners of older leases think of the number of permits. */
static void
publish_others_permits(ContenderEntry *entry, int others)
{
	SpinLockAcquire(&entry->mutex);
	entry->others_permits = others;
	SpinLockRelease(&entry->mutex);
}

/* Is there a permit to be had, by the last listing? */
bool
permit_is_free(const LockPath *path, const ContenderEntry *entry)
{
	int32_t others;
	bool	free = permit_blocker(path->leases, path->lease_places, path->nleases, -1,
								  entry->permits, &others) < 0;

	if (others != 0)
		publish_others_permits(unconstify(ContenderEntry *, entry), others);
	return free;
}

/* The run that has the oldest lease, or NULL if that is not one of ours. */
static Run *
oldest_permit(LockPath *path, const char *name)
{
	dlist_iter iter;

	dlist_foreach (iter, &path->runs)
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (!run->permit || run->state < RUN_CREATED || !run->listed)
			continue;
		if (strcmp(run->name, name) == 0)
			return run;
		if (run->state != RUN_DELETING)
			return NULL;
	}
	return NULL;
}

/* Decides whether a run that has its lease and listing has a permit. */
void
permit_evaluate(Run *run)
{
	LockPath	   *path = run->path;
	Contender	   *c = dlist_head_element(Contender, node, &run->queue);
	ContenderEntry *entry = entry_of(c);
	int				blocker;
	int32_t			others;
	Run			   *holder;

	blocker = permit_blocker(path->leases, path->lease_places, path->nleases, run->place,
							 entry->permits, &others);
	if (others != 0)
		publish_others_permits(entry, others);
	if (blocker < 0)
	{
		run->state = RUN_GRANTED;
		return;
	}
	if (entry->nowait)
	{
		contender_fail(c, FAILURE_BUSY, 0);
		return;
	}

	/* One of several is waited for; any change is a reason to look again. */
	holder = oldest_permit(path, path->lease_names[blocker]);
	contender_blocked_by(c, holder, holder ? NULL : path->lease_names[blocker]);
	if (path->child_watch == WATCH_NONE)
		path_list(path, run_owner(run), true);
}
