/*
 * lock_run.c
 *		The books of the lock manager: watches, paths and runs.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_table.h"

LockManager lock_manager = {.retry_at = -1};

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

/*
 * What a watch on the path, or on a node below it, costs in the packet that
 * registers all of them again; a node in the list of ephemeral nodes likewise.
 */
size_t
path_bytes(const LockPath *path, const char *name)
{
	return lock_manager.chroot_len + strlen(path->path) + (name ? 1 + strlen(name) : 0) + PATH_OVERHEAD;
}

/* Changes a watch's state and the account of watches. */
static void
watch_set(WatchState *watch, WatchState state, size_t bytes)
{
	if (*watch == WATCH_NONE && state != WATCH_NONE)
		lock_manager.watch_bytes += bytes;
	else if (*watch != WATCH_NONE && state == WATCH_NONE)
		lock_manager.watch_bytes -= bytes;
	*watch = state;
}

/* The watch on the path's children */
void
child_watch_set(LockPath *path, WatchState state)
{
	watch_set(&path->child_watch, state, path_bytes(path, NULL));
}

/* The watch on the run's own node */
void
own_watch_set(Run *run, WatchState state)
{
	watch_set(&run->own_watch, state, path_bytes(run->path, run->name));
}

/* The watch on the run's foreign predecessor, which is forgotten with it */
void
blocker_watch_set(Run *run, WatchState state)
{
	watch_set(&run->blocker_watch, state, path_bytes(run->path, run->blocker));
	if (state == WATCH_NONE)
	{
		pfree(run->blocker);
		run->blocker = NULL;
	}
}

/* Does without the child watch, and has it removed if it may exist. */
void
child_watch_give_up(LockPath *path, bool may_exist)
{
	if (may_exist)
		zk_unwatch_children(path->path);
	child_watch_set(path, WATCH_NONE);
}

/* Likewise for the watch on the run's predecessor, which other runs may need. */
void
blocker_watch_give_up(Run *run, bool may_exist)
{
	char	  *watched = node_path(run->path, run->blocker);
	dlist_iter iter;

	dlist_foreach (iter, &run->path->runs)
	{
		Run *other = dlist_container(Run, node, iter.cur);

		if (other != run && other->blocker && strcmp(other->blocker, run->blocker) == 0)
			may_exist = false;
	}
	if (may_exist)
		zk_unwatch_data(watched);
	pfree(watched);
	blocker_watch_set(run, WATCH_NONE);
}

/* ------------------------------------------------------------------------
 * Paths and runs
 * ------------------------------------------------------------------------
 */

/* The full path of a node, to be freed by the caller. */
char *
node_path(const LockPath *path, const char *name)
{
	return psprintf("%s/%s", path->path, name);
}

/* Finds a path by name, making it if we do not know it. */
static LockPath *
path_get(const char *name)
{
	bool	  found;
	LockPath *path = hash_search(lock_manager.paths, name, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) path + sizeof(path->path), 0, sizeof(LockPath) - sizeof(path->path));
		dlist_init(&path->runs);
		dlist_init(&path->arrivals);
	}
	return path;
}

/* The path of an entry, likewise. */
LockPath *
path_of_entry(const ContenderEntry *entry)
{
	LockPath *path = path_get(entry->path);

	if (entry->kind == CONTENDER_PERMIT)
		path->has_permits = true;
	return path;
}

/* Forgets what is known of foreign contenders. */
void
foreign_clear(LockPath *path)
{
	for (int i = 0; i < path->nforeign; i++)
		pfree(path->foreign_names[i]);
	if (path->foreign)
	{
		pfree(path->foreign);
		pfree(path->foreign_names);
	}
	path->foreign = NULL;
	path->foreign_names = NULL;
	path->nforeign = 0;
	leases_clear(path);
}

static int
foreign_find(const LockPath *path, const char *name)
{
	for (int i = 0; i < path->nforeign; i++)
	{
		if (strcmp(path->foreign_names[i], name) == 0)
			return i;
	}
	return -1;
}

/* A foreign contender is gone. */
void
foreign_remove(LockPath *path, const char *name)
{
	int i = foreign_find(path, name);

	if (i < 0)
		return;

	/*
	 * Whoever downgrades puts a shared node in place of the exclusive one.
	 * While the child watch stands, nothing but this deletion has happened.
	 */
	if (path->foreign[i].mode == LOCK_MODE_EXCLUSIVE && path->child_watch != WATCH_SET)
		path->heirs_unknown = true;
	pfree(path->foreign_names[i]);
	path->nforeign--;
	path->foreign[i] = path->foreign[path->nforeign];
	path->foreign_names[i] = path->foreign_names[path->nforeign];
}

/* Forgets a path nobody needs. */
void
path_free_if_idle(LockPath *path)
{
	if (path->calls > 0 || !dlist_is_empty(&path->runs) || !dlist_is_empty(&path->arrivals))
		return;
	child_watch_give_up(path, path->child_watch == WATCH_SET);
	foreign_clear(path);
	hash_search(lock_manager.paths, path->path, HASH_REMOVE, NULL);
}

/*
 * Makes a run.  Ids tell a later worker the order of a path's runs: 0 makes a
 * new one, behind all others.
 */
Run *
run_new(LockPath *path, uint64 id, LockMode mode, NodeDialect dialect)
{
	Run *run = palloc0(sizeof(Run));

	run->path = path;
	run->state = RUN_PLANNED;
	run->mode = mode;
	run->dialect = dialect;
	dlist_init(&run->queue);
	run->id = id;
	if (id == 0)
	{
		SpinLockAcquire(&zklock_shared->mutex);
		run->id = zklock_shared->next_run_id++;
		SpinLockRelease(&zklock_shared->mutex);
	}
	return run;
}

/* Puts a contender, which is in no list, at the end of a run's queue. */
void
run_join(Run *run, Contender *c)
{
	c->run = run;
	run->joined++;
	dlist_push_tail(&run->queue, &c->node);
	contender_publish(c);
}

/* The youngest run of a path, or NULL. */
Run *
last_run(LockPath *path)
{
	return dlist_is_empty(&path->runs) ? NULL : dlist_tail_element(Run, node, &path->runs);
}

/* The next older run on the same path, or NULL. */
Run *
run_before(Run *run)
{
	return dlist_has_prev(&run->path->runs, &run->node)
			   ? dlist_container(Run, node, dlist_prev_node(&run->path->runs, &run->node))
			   : NULL;
}

/* Does anybody hold or want the run's lock, other than a given one's session? */
bool
run_is_wanted(const Run *run, const Contender *by_others_than)
{
	dlist_iter iter;

	dlist_foreach (iter, unconstify(dlist_head *, &run->queue))
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (contender_state(c) != CONTENDER_RELEASING &&
			(by_others_than == NULL || !contender_same_session(c, by_others_than)))
			return true;
	}
	return false;
}

/* Might a contender join the run, as far as is known now? */
bool
run_is_open(const Run *run, LockMode mode, NodeDialect dialect)
{
	return !run->closed && !run->permit && run->mode == mode && run->dialect == dialect &&
		   run->joined < MAX_GRANTS && !dlist_is_empty(unconstify(dlist_head *, &run->queue));
}

/* Is what is known about newcomers behind the last run up to date? */
bool
run_is_fresh(const Run *run)
{
	return run->state == RUN_PLANNED || run->state == RUN_CREATING || run->state == RUN_UNKNOWN ||
		   (run->state == RUN_CREATED && !run->listed && run->path->child_watch == WATCH_ASKED) ||
		   run->path->child_watch == WATCH_SET;
}

/* The sequence in the full name of a run's node; false if there is none. */
bool
run_sequence(const Run *run, const char *name, int64 *sequence)
{
	NodeName	parsed;
	PermitLease lease;

	if (run->permit)
	{
		if (!lease_name_parse(name, &lease))
			return false;
		*sequence = lease.sequence;
		return true;
	}
	if (!node_name_parse(name, &parsed))
		return false;
	*sequence = parsed.sequence;
	return true;
}

/* Records in all its contenders' entries what is known of a run's node. */
void
run_publish(Run *run)
{
	dlist_iter iter;

	dlist_foreach (iter, &run->queue)
		contender_publish(dlist_container(Contender, node, iter.cur));
	if (run->record)
		contender_publish(run->record);
}

/* After a refusal: is it time to try again?  If not, see to it that it will be. */
bool
retry_is_due(int64 at)
{
	if (at <= zklock_now_ms())
		return true;
	if (lock_manager.retry_at < 0 || at < lock_manager.retry_at)
		lock_manager.retry_at = at;
	return false;
}

/* Likewise, for what has been refused to a run. */
bool
run_may_retry(const Run *run)
{
	return retry_is_due(run->retry_at);
}

/* Would we hear of it, or have heard, if someone deleted the run's node? */
bool
run_is_guarded(const Run *run)
{
	return run->path->child_watch == WATCH_SET || run->own_watch == WATCH_SET || run->unguarded;
}

/* From now on the run's node may exist, for the session with that pid. */
void
run_account_node(Run *run, int payer)
{
	if (run->charged != 0)
		return;
	run->charged = path_bytes(run->path, NULL) + ZKLOCK_NODE_SIZE;
	run->payer = payer;
	lock_manager.node_bytes += run->charged;
	account_charge(run->payer, run->charged);
}

/* It does not. */
static void
run_refund_node(Run *run)
{
	if (run->charged == 0)
		return;
	lock_manager.node_bytes -= run->charged;
	account_refund(run->payer, run->charged);
	run->charged = 0;
}

/*
 * The run's node does not exist, or not any more, and nobody is in its queue.
 */
void
run_finish(Run *run)
{
	Assert(dlist_is_empty(&run->queue));
	if (run->record)
		contender_forget(run->record);
	run->record = NULL;
	own_watch_set(run, WATCH_NONE);
	if (run->blocker_watch == WATCH_SET)
		blocker_watch_give_up(run, true);
	run_refund_node(run);
	dlist_delete(&run->node);
	run->state = RUN_GONE;
	if (run->calls == 0)
		pfree(run);
}

/* Refuses all who wait in a run. */
void
run_fail(Run *run, ContenderFailure failure, int code)
{
	dlist_mutable_iter iter;

	run->closed = true;
	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (!c->granted)
			contender_fail(c, failure, code);
	}
}

/*
 * The run's node is gone without our doing: holders have lost the lock, those
 * who waited queue again in a new run, in this place or, if others have passed
 * them meanwhile, behind all.
 */
void
run_replace(Run *run, bool keep_place)
{
	dlist_mutable_iter iter;
	Run				  *replacement = NULL;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (c->granted)
		{
			contender_lose(c, keep_place ? LOSS_EXPIRED : LOSS_DELETED);
			continue;
		}
		if (replacement == NULL)
		{
			replacement = run_new(run->path, keep_place ? run->id : 0, run->mode, run->dialect);
			replacement->permit = run->permit;
			if (keep_place)
				dlist_insert_after(&run->node, &replacement->node);
			else
				dlist_push_tail(&run->path->runs, &replacement->node);
		}
		dlist_delete(&c->node);
		run_join(replacement, c);
		contender_blocked_by(c, NULL, NULL);
	}
	run_finish(run);
}

/* Someone else deleted the run's node. */
void
run_deleted(Run *run)
{
	if (run->state != RUN_DELETING && !dlist_is_empty(&run->queue))
		ereport(LOG, (errmsg("node \"%s/%s\" of lock \"%s\" was deleted by someone else",
							 run->path->path, run->name, run->path->path),
					  run->state == RUN_GRANTED
						  ? errdetail("Its holder has lost the lock; waiting sessions queue again.")
						  : errdetail("Waiting sessions queue again.")));
	run_replace(run, false);
}

/*
 * A node of the run's name is somebody else's: ours is gone, and listings have
 * taken that one for it.
 */
void
run_usurped(Run *run)
{
	dlist_iter iter;

	dlist_foreach (iter, &run->path->runs)
		dlist_container(Run, node, iter.cur)->listed = false;
	run_deleted(run);
}
