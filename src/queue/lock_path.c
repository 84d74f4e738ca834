/*
 * lock_path.c
 *		The lock manager in the worker: paths, runs and contenders.
 *
 * A contender is one request of one session (an entry in shared memory).  A
 * run is one ephemeral sequential node of ours and the contenders of this
 * server it stands for, in order of arrival: an exclusive run grants them one
 * after the other, a shared run all together.  A path has a queue of runs,
 * oldest first, which is also the order of their nodes' sequences.
 *
 * A run's life:
 *
 *		PLANNED -> CREATING -> CREATED -> GRANTED -> DELETING
 *		              |           ^
 *		              +-> UNKNOWN-+
 *
 *	PLANNED		no node; create is sent once the run before has its node
 *	CREATING	create is sent, and right behind it a listing of the path
 *	UNKNOWN		the reply was lost; a listing settles whether the node exists
 *	CREATED		the node exists; it waits until the listing shows no older
 *				conflicting contender
 *	GRANTED		it has the lock; contenders are granted from its queue
 *	DELETING	nobody needs it; delete is repeated until the node is gone
 *
 * A run stands for one attempt and one node name.  If its node vanishes, its
 * holders have lost the lock and its waiters move to a new run.
 *
 * New contenders join the last run while that is open: nobody foreign is known
 * behind it.  We know through the child watch on the path.  It is not armed
 * again when it fires, only when a contender arrives: that one then waits for
 * a listing ("arrivals").  So a path that is busy elsewhere costs us nothing
 * while nobody here asks for it.
 *
 * What is known about foreign contenders comes from the last listing, less
 * those seen to go.  For the contenders older than a run that is a superset
 * of the truth, since newcomers get higher sequences; this is why a run can be
 * granted without another listing.  There is one exception: an exclusive
 * contender that goes may have left a shared node with its sequence (see
 * recipe.c), so unless the child watch tells that it has not, an exclusive run
 * looks again before it is granted.
 *
 * A node of ours is "guarded": as long as the child watch is armed, any change
 * below the path is noticed; when that has fired, the node gets a watch of its
 * own.  So an uncontended lock needs no request for it.
 *
 * What a contender's own session holds does not block it.  So a shared holder
 * who asks for the exclusive lock waits for all others, be they in the same
 * shared run: it is a contender like any other, behind those who came before.
 * That an older writer waits for the shared holder in turn is a deadlock, not
 * a reason to pass it: tokens would not increase, and a client that does not
 * know shared locks may even hold the lock.  See lock_downgrade.c for the way
 * back.
 *
 * Everything is driven by path_pump(), which looks at what is and does what
 * comes next; events only record what they know and call it.  Nothing is sent
 * while ZooKeeper is not connected, or before a sync on a new connection was
 * answered, and nothing granted without the lease.
 *
 * For a worker that may end at any moment, shared memory records what exists
 * in ZooKeeper: before create is sent, the name is in the entries of the run's
 * contenders, and the last of them is kept (run->record) until the node is
 * known to be gone.  lock_adopt.c builds all this again from there.
 *
 * Runs in: the worker.  Entries' fields are read and written under their
 * spinlocks; everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "queue/lock_path.h"
#include "queue/lock_table.h"
#include "worker/lease.h"

/* How long a new worker may take to be connected before that counts as an outage. */
#define RESUME_MS 5000

/* ------------------------------------------------------------------------
 * Placing contenders in runs
 * ------------------------------------------------------------------------
 */

/* Is the path visibly taken for a contender that does not wait? */
static bool
path_is_taken(const Contender *c)
{
	dlist_iter iter;

	dlist_foreach (iter, &c->path->runs)
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (!run->permit && recipe_conflict(run->mode, entry_of(c)->mode) && run_is_wanted(run, c))
			return true;
	}
	return false;
}

/* Puts a contender into the last run, or a new one if that is not open. */
static void
contender_place(Contender *c)
{
	const ContenderEntry *entry = entry_of(c);
	LockPath			 *path = c->path;
	Run					 *last = last_run(path);
	bool				  permit = entry->kind == CONTENDER_PERMIT;

	if (last == NULL || permit || !run_is_open(last, entry->mode, entry->dialect))
	{
		size_t bytes = path_bytes(path, NULL) + ZKLOCK_NODE_SIZE;

		if (lock_manager.node_bytes + bytes > SESSION_BUDGET ||
			lock_manager.watch_bytes + 3 * bytes > SESSION_BUDGET)
		{
			dlist_push_tail(&path->arrivals, &c->node);
			contender_fail(c, FAILURE_SESSION_FULL, 0);
			return;
		}
		last = run_new(path, 0, entry->mode, entry->dialect);
		last->permit = permit;
		dlist_push_tail(&path->runs, &last->node);
	}
	run_join(last, c);
}

/* Places the arrivals for whom the listing that came in last tells. */
void
arrivals_place(LockPath *path)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &path->arrivals)
	{
		Contender			 *c = dlist_container(Contender, node, iter.cur);
		const ContenderEntry *entry = entry_of(c);

		if (c->needs_list > path->lists_done)
			continue;
		if (entry->nowait &&
			(entry->kind == CONTENDER_PERMIT
				 ? !permit_is_free(path, entry)
				 : path_is_taken(c) || recipe_blocker(path->foreign, path->nforeign,
													  PG_INT64_MAX, entry->mode) >= 0))
			contender_fail(c, FAILURE_BUSY, 0);
		else
		{
			dlist_delete(&c->node);
			contender_place(c);
		}
	}
}

/* ------------------------------------------------------------------------
 * The pump: what comes next
 * ------------------------------------------------------------------------
 */

/*
 * Is a contender of another session in the run's queue, ahead of "c" if that
 * is in it too?
 */
static bool
run_has_others(const Run *run, const Contender *c)
{
	dlist_iter iter;

	dlist_foreach (iter, unconstify(dlist_head *, &run->queue))
	{
		Contender *other = dlist_container(Contender, node, iter.cur);

		if (other == c)
			return false;
		if (!contender_same_session(other, c))
			return true;
	}
	return false;
}

/*
 * The run of ours that a contender waits for: its own if that grants one after
 * the other and it is not its turn, else the nearest older one that conflicts
 * and is still needed.  NULL if there is none.  What its session holds itself
 * does not count.
 */
static Run *
contender_own_blocker(const Contender *c)
{
	Run		  *run = c->run;
	dlist_iter iter;
	Run		  *nearest = NULL;

	if (run->mode == LOCK_MODE_EXCLUSIVE && run_has_others(run, c))
		return run;
	dlist_foreach (iter, &run->path->runs)
	{
		Run *other = dlist_container(Run, node, iter.cur);

		if (!other->permit && other->state >= RUN_CREATED && other->sequence < run->sequence &&
			recipe_conflict(other->mode, run->mode) && run_has_others(other, c) &&
			(nearest == NULL || other->sequence > nearest->sequence))
			nearest = other;
	}
	return nearest;
}

/* Sees to it that the run's listing comes. */
static void
run_list(Run *run)
{
	LockPath *path = run->path;

	if (path->lists_sent == path->lists_done)
		path_list(path, run_owner(run), !run->closed);
}

/* Decides whether a run that has its node and listing must wait, and for whom. */
static void
run_evaluate(Run *run)
{
	LockPath *path = run->path;
	Run		 *own = contender_own_blocker(dlist_head_element(Contender, node, &run->queue));
	int foreign = recipe_blocker(path->foreign, path->nforeign, run->sequence, run->mode);
	dlist_mutable_iter iter;

	if (own == NULL && foreign < 0)
	{
		if (run->mode == LOCK_MODE_EXCLUSIVE && path->heirs_unknown)
		{
			run->listed = false;
			run_list(run);
			return;
		}
		run->state = RUN_GRANTED;
		if (run->blocker_watch == WATCH_SET)
			blocker_watch_set(run, WATCH_NONE);
		return;
	}

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (entry_of(c)->nowait)
			contender_fail(c, FAILURE_BUSY, 0);
	}
	if (dlist_is_empty(&run->queue))
		return;

	if (own && (foreign < 0 || own->sequence > path->foreign[foreign].sequence))
		contender_blocked_by(dlist_head_element(Contender, node, &run->queue), own, NULL);
	else
	{
		contender_blocked_by(dlist_head_element(Contender, node, &run->queue), NULL,
							 path->foreign_names[foreign]);
		if (!run->blind)
			run_watch_blocker(run, path->foreign_names[foreign]);
		else if (path->child_watch == WATCH_NONE)
			path_list(path, run_owner(run), true);
	}
}

/* Grants the lock to those of a granted run whose turn it is. */
static void
run_grant(Run *run)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, node, iter.cur);

		if (c->granted)
			continue;
		if (run->mode == LOCK_MODE_EXCLUSIVE && !run->permit)
		{
			Run *own = contender_own_blocker(c);

			if (own)
			{
				contender_blocked_by(c, own, NULL);
				break;
			}
		}
		if (!contender_grant(c))
			contender_detach(c); /* it gave up while this was under way */
	}
}

static void
run_pump(Run *run)
{
	LockPath *path = run->path;
	Run		 *before = run_before(run);

	switch (run->state)
	{
		case RUN_PLANNED:
			if (dlist_is_empty(&run->queue))
				run_finish(run);
			else if (path->parents_pending == 0 && (before == NULL || before->state >= RUN_CREATED))
				run_create(run);
			return;
		case RUN_UNKNOWN:
			if (!run->calling && run_may_retry(run))
				run_probe(run);
			return;
		case RUN_CREATED:
		case RUN_GRANTED:
			if (dlist_is_empty(&run->queue))
				break;
			if (run_wants_downgrade(run) && run_is_wanted(run, NULL))
				run_downgrade_begin(run);
			if (run->heir[0] != '\0')
			{
				run_downgrade_pump(run);
				return;
			}
			if (!run->listed && !dlist_head_element(Contender, node, &run->queue)->granted)
			{
				run_list(run);
				return;
			}
			if (run->state == RUN_CREATED && run->permit)
				permit_evaluate(run);
			else if (run->state == RUN_CREATED)
				run_evaluate(run);
			run_guard(run);
			if (run->state == RUN_GRANTED && run_is_guarded(run) && lease_state() == LEASE_HOLDS)
				run_grant(run);
			break;
		default:
			break;
	}

	if ((run->state == RUN_CREATED || run->state == RUN_GRANTED) && dlist_is_empty(&run->queue))
	{
		run->state = RUN_DELETING;
		run->retry_at = 0;
	}
	if (run->state == RUN_DELETING && !run->calling && run_may_retry(run))
		run_delete(run);

	/* Who may not delete is not even told that there is nothing to delete. */
	if (run->state == RUN_DELETING && run->delete_refused)
		run_guard(run);
}

/* Does what is to be done for a path.  The path may be gone afterwards. */
void
path_pump(LockPath *path)
{
	dlist_mutable_iter iter;

	if (!zk_client_connected() || !lock_manager.synced)
	{
		/* Nothing is sent, but who gave up need not be kept. */
		dlist_foreach_modify (iter, &path->runs)
		{
			Run *run = dlist_container(Run, node, iter.cur);

			if (run->state == RUN_PLANNED && dlist_is_empty(&run->queue))
				run_finish(run);
		}
	}
	else
	{
		dlist_foreach_modify (iter, &path->runs)
			run_pump(dlist_container(Run, node, iter.cur));
		if (!dlist_is_empty(&path->arrivals) && path->lists_sent == path->lists_done)
			path_list(path, entry_of(dlist_head_element(Contender, node, &path->arrivals))->pid,
					  last_run(path) != NULL && !last_run(path)->closed);
	}
	path_free_if_idle(path);
}

/* Does what is to be done for all paths. */
void
lock_pump_all(void)
{
	HASH_SEQ_STATUS status;
	LockPath	   *path;

	hash_seq_init(&status, lock_manager.paths);
	while ((path = hash_seq_search(&status)) != NULL)
		path_pump(path);
}

/* ------------------------------------------------------------------------
 * Interface
 * ------------------------------------------------------------------------
 */

/* A backend asks for a lock. */
static void
contender_arrive(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	LockPath	   *path = path_of_entry(entry);
	Run			   *last = last_run(path);
	bool			must_look;

	/*
	 * A backend may have drawn a ticket and been overtaken before we heard of
	 * it.  A later worker must find the order that we have seen.
	 */
	SpinLockAcquire(&entry->mutex);
	entry->ticket = pg_atomic_fetch_add_u64(&zklock_shared->next_ticket, 1);
	SpinLockRelease(&entry->mutex);
	if (!contender_step(c, CONTENDER_REQUESTED, CONTENDER_QUEUED))
	{
		path_free_if_idle(path);
		contender_forget(c);
		return;
	}
	c->path = path;
	c->run = NULL;
	c->granted = false;

	must_look = entry->nowait ||
				(last && run_is_open(last, entry->mode, entry->dialect) && !run_is_fresh(last));

	/* Who needs no listing of its own still must not overtake those who wait for one. */
	c->needs_list = path->lists_sent + (must_look ? 1 : 0);
	if (!dlist_is_empty(&path->arrivals))
		c->needs_list =
			Max(c->needs_list, dlist_tail_element(Contender, node, &path->arrivals)->needs_list);

	if (lock_manager.refused_code != 0)
	{
		dlist_push_tail(&path->arrivals, &c->node);
		contender_fail(c, FAILURE_REFUSED, lock_manager.refused_code);
	}
	else if (entry->nowait)
	{
		dlist_push_tail(&path->arrivals, &c->node);
		if ((!zk_client_connected() && lock_manager.resume_until < 0) || lease_state() != LEASE_HOLDS)
			contender_fail(c, FAILURE_UNREACHABLE, 0);
		else if (entry->kind != CONTENDER_PERMIT && path_is_taken(c))
			contender_fail(c, FAILURE_BUSY, 0);
	}
	else if (must_look || !dlist_is_empty(&path->arrivals))
		dlist_push_tail(&path->arrivals, &c->node);
	else
		contender_place(c);
	path_pump(path);
}

/* A backend has given up the exclusive part of what it holds. */
static void
contender_downgrade(Contender *c)
{
	if (c->run == NULL || contender_mode(c) != LOCK_MODE_SHARED)
		return;

	/* If others of this server are next, they keep the run as it is. */
	if (!run_wants_downgrade(c->run) && c->run->heir[0] == '\0')
		contender_downgraded(c);
	path_pump(c->path);
}

/* A backend gave a contender up: cancelled, released, or took note of its end. */
static void
contender_leave(Contender *c)
{
	LockPath *path = c->path;

	if (path == NULL)
		contender_forget(c);
	else if (c->run == NULL || c->run->record != c)
	{
		contender_detach(c);
		path_pump(path);
	}
}

static int *batch; /* indexes of entries to look at */
static int	nbatch;

static void
batch_add(int index)
{
	batch[nbatch++] = index;
}

/* Orders entries as they asked. */
static int
compare_tickets(const void *a, const void *b)
{
	uint64 ticket_a = entry_at(*(const int *) a)->ticket;
	uint64 ticket_b = entry_at(*(const int *) b)->ticket;

	return ticket_a < ticket_b ? -1 : ticket_a > ticket_b ? 1 : 0;
}

/* Takes up what backends have asked for since the last call. */
void
lock_path_attend(void)
{
	nbatch = 0;
	entries_visit_dirty(batch_add);
	qsort(batch, nbatch, sizeof(int), compare_tickets);
	for (int i = 0; i < nbatch; i++)
	{
		Contender	  *c = &lock_manager.contenders[batch[i]];
		ContenderState state = contender_state(c);

		if (state == CONTENDER_REQUESTED)
			contender_arrive(c);
		else if (state == CONTENDER_RELEASING)
			contender_leave(c);
		else if (state == CONTENDER_GRANTED)
		{
			contender_check(c);
			contender_downgrade(c);
		}
	}
}

/*
 * Prepares the lock manager and takes over what an earlier worker left in
 * shared memory.
 */
void
lock_path_start(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(LockPath)};
	HASHCTL reported_ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(ReportedPath)};
	int		max = zklock_shared->max_entries;
	SessionInfo session;

	zklock_get_session(&session, NULL);
	lock_manager.chroot_len = strlen(session.chroot);
	lock_manager.paths = hash_create("zklock paths", 128, &ctl, HASH_ELEM | COMPAT_HASH_STRINGS);
	lock_manager.reported_paths =
		hash_create("zklock reported paths", 16, &reported_ctl, HASH_ELEM | COMPAT_HASH_STRINGS);
	lock_manager.contenders = palloc0(max * sizeof(Contender));
	batch = palloc(max * sizeof(int));

	nbatch = 0;
	for (int i = 0; i < max; i++)
	{
		if (contender_state(&lock_manager.contenders[i]) != CONTENDER_FREE)
			batch_add(i);
	}
	qsort(batch, nbatch, sizeof(int), compare_tickets);
	lock_adopt(batch, nbatch);

	/* A worker that follows another is soon connected: who does not wait waits for that. */
	if (lease_state() == LEASE_HOLDS)
	{
		lock_manager.resume_until = zklock_now_ms() + RESUME_MS;
		(void) retry_is_due(lock_manager.resume_until);
	}
	else
		lock_session_unreachable();
}

/* A watch has fired on a path, or on a child of one. */
void
lock_path_watch(ZkWatchEvent event, const char *name)
{
	LockPath		  *path = NULL;
	const char		  *child = strrchr(name, '/') + 1;
	char			  *parent;
	dlist_mutable_iter iter;

	/* A foreign client may have nodes with longer paths than ours can be. */
	if (strlen(name) <= ZKLOCK_MAX_PATH)
		path = hash_search(lock_manager.paths, name, HASH_FIND, NULL);
	if (path && event != ZK_WATCH_CHANGED)
	{
		if (path->child_watch == WATCH_SET)
			child_watch_set(path, WATCH_NONE);

		/* What was refused may work now, or no longer be needed. */
		dlist_foreach_modify (iter, &path->runs)
			dlist_container(Run, node, iter.cur)->retry_at = 0;
		path_pump(path);
	}
	if (event == ZK_WATCH_CHILDREN)
		return;

	if (child - 1 - name > ZKLOCK_MAX_PATH)
		return;
	parent = pnstrdup(name, Max(child - 1 - name, 1));
	path = hash_search(lock_manager.paths, parent, HASH_FIND, NULL);
	pfree(parent);
	if (path == NULL)
		return;
	dlist_foreach_modify (iter, &path->runs)
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (run->blocker && strcmp(run->blocker, child) == 0 && run->blocker_watch == WATCH_SET)
			blocker_watch_set(run, WATCH_NONE);
		if (run->state >= RUN_CREATED && strcmp(run->name, child) == 0)
		{
			own_watch_set(run, WATCH_NONE);
			if (event == ZK_WATCH_DELETED)
				run_vanished(run);
		}
	}
	if (event == ZK_WATCH_DELETED)
		foreign_remove(path, child);
	path_pump(path);
}

/* Does again what was refused a while ago. */
void
lock_path_retry(void)
{
	if (lock_manager.retry_at < 0 || zklock_now_ms() < lock_manager.retry_at)
		return;
	lock_manager.retry_at = -1;
	if (zk_client_connected() && lock_manager.sync_at >= 0 && retry_is_due(lock_manager.sync_at))
		lock_synchronize();
	if (lock_manager.resume_until >= 0 && retry_is_due(lock_manager.resume_until))
		lock_session_unreachable();
	lock_pump_all();
}

/* When lock_path_retry() wants to be called, or -1. */
int64
lock_path_next_wakeup(void)
{
	return lock_manager.retry_at;
}
