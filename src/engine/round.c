/*
 * round.c
 *		The engine as the main loop sees it: requests, watch events, time.
 *
 * Holders that have held for longer than zklock.max_hold_time
 * -----------------------------------------------------------
 *
 * The grant fixes the time: it is in the entry, on the clock that nobody sets (common.c).
 * When it is over, the holder has lost the lock, by one step of its entry from GRANTED to
 * LOST.  Its backend need not do anything for that: it may be stopped, in a loop, or wait for
 * a client that is gone.  From there on this is a loss like any other, except that the node
 * exists and is ours.  So the cohort goes on without that contender: it grants the next one
 * of this server, with a new token, or its node is deleted.
 *
 *	backend		looks at the clock itself before it relies on the lock: a worker that is
 *				stopped prolongs nothing
 *	worker		the entry survives it; the next worker begins with a look at all entries
 *	ZooKeeper	if it is away, the holder has lost the lock all the same; the node goes
 *				when it is back, or with the session
 *
 * A turn at a semaphore is limited as well, since a session that is stopped while it has its
 * turn would hold up all others.  A session that merely waits for its permit loses nothing:
 * it goes on waiting, in its place (permit.c), while the next one begins to.
 *
 * The time of a reservation is its own, and backends may move it (shared/entry.c): they have the
 * worker look at it, as it may end sooner.
 *
 * The worker looks at all holders when the first one's time is over, and no sooner; that look
 * finds the next time.  Locks that are released in time, as nearly all are, cost no more than
 * that look, once in a while.
 *
 * Contenders that wait for long
 * -----------------------------
 *
 * Sessions search for deadlocks when they have waited for long.  The engine notes in the
 * entries which contenders may have to do with other servers, since it knows the nodes of
 * others on their paths.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* Time that a new worker may take to connect before that counts as an outage */
#define RESUME_MS 5000

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

/* Takes up the request of a backend. */
static void
take_up(Contender *c)
{
	ZKLOCK_SLOW("slow-requests", 400, 150);
	if (entry_take_up(entry_index(c)))
		contender_arrive(c, path_get(entry_of(c)->request.path, contender_recipe(c)));
	else
		contender_forget(c);
}

/* Takes note that a backend has given up the exclusive part of what it holds. */
static void
contender_downgrade(Contender *c)
{
	Cohort *cohort = c->cohort;

	if (c->place != PLACE_GRANTED || contender_request(c).mode != LOCK_MODE_SHARED)
		return;

	/* Others of this server that are next keep the cohort as it is; those to come do not. */
	if (cohort_wants_downgrade(cohort))
		cohort->closed = true;
	else if (cohort->state != COHORT_DOWNGRADING)
		contender_downgraded(c);
	path_mark(c->path);
}

/*
 * Takes a contender out that its backend has given up: cancelled, released, or after it took
 * note of its end.
 */
static void
contender_leave(Contender *c)
{
	if (c->place == PLACE_NONE)
		contender_forget(c);
	else if (c->place != PLACE_KEEPS_NODE)
		contender_detach(c);
}

static int *batch; /* indexes of entries to look at */
static int	nbatch;

static void
batch_add(int index)
{
	batch[nbatch++] = index;
	engine.contenders[index].ticket = entry_status(index).ticket;
}

/* Orders entries by when they asked. */
static int
compare_tickets(const void *a, const void *b)
{
	uint64 ticket_a = engine.contenders[*(const int *) a].ticket;
	uint64 ticket_b = engine.contenders[*(const int *) b].ticket;

	return ticket_a < ticket_b ? -1 : ticket_a > ticket_b ? 1 : 0;
}

/* Takes up what backends have asked for since the last call. */
void
engine_attend(void)
{
	nbatch = 0;
	zklock_visit_marked(entry_pool->dirty, entries_max(), batch_add);
	qsort(batch, nbatch, sizeof(int), compare_tickets);
	if (nbatch > 0 && ZKLOCK_FAULT("fail-requests"))
		elog(ERROR, "fault: fail-requests");
	for (int i = 0; i < nbatch; i++)
	{
		Contender *c = &engine.contenders[batch[i]];
		EntryState state = contender_state(c);

		if (state == ENTRY_REQUESTED)
			take_up(c);
		else if (state == ENTRY_RELEASING)
			contender_leave(c);
		else if (state == ENTRY_GRANTED)
		{
			contender_check(c);
			contender_downgrade(c);
			contender_note_end(c);
		}
	}
}

/* Prepares the engine, and takes over what an earlier worker left in shared memory. */
void
engine_start(void)
{
	int			max = entries_max();
	SessionInfo session;

	accounts_start();
	session_info_read(&session);
	engine.chroot_len = strlen(session.chroot);
	batch = palloc(max * sizeof(int));

	nbatch = 0;
	for (int i = 0; i < max; i++)
	{
		if (contender_state(&engine.contenders[i]) != ENTRY_FREE)
			batch_add(i);
	}
	qsort(batch, nbatch, sizeof(int), compare_tickets);
	engine_adopt_entries(batch, nbatch);

	/*
	 * A worker that follows another is soon connected; calls that do not wait for others wait
	 * for that.
	 */
	if (lease_state() == LEASE_HOLDS)
	{
		engine.resume_until = zklock_now_ms() + RESUME_MS;
		(void) engine_retry_is_due(engine.resume_until);
	}
	else
		engine_session_unreachable();
}

/* ------------------------------------------------------------------------
 * Watch events
 * ------------------------------------------------------------------------
 */

/* Takes note that the path itself has changed: its children, or it is gone. */
static void
path_changed(Path *path)
{
	if (path->child_watch == WATCH_SET)
	{
		watch_child_set(path, WATCH_NONE);
		path->unseen = true;
		kept_children_changed(path);
	}

	/* Calls that were refused may work now, or no longer be needed. */
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		cohort->retry_at = 0;
	path_mark(path);
}

/* Takes note that a child of the path, ours or another client's, has changed or is gone. */
static void
child_changed(Path *path, ZkWatchEvent event, const char *child)
{
	dlist_mutable_iter iter;
	DowngradeChance	   downgrade = DOWNGRADE_POSSIBLE;

	dlist_foreach_modify (iter, &path->cohorts)
	{
		Cohort *cohort = dlist_container(Cohort, link, iter.cur);

		if (cohort->blocker && strcmp(cohort->blocker, child) == 0 && cohort->blocker_watch == WATCH_SET)
		{
			if (cohort->blocker_announces && event == ZK_WATCH_DELETED)
				downgrade = DOWNGRADE_IMPOSSIBLE;
			else if (cohort->blocker_announces)
				cohort->listed = false; /* look who has taken its place */
			watch_blocker_set(cohort, WATCH_NONE);
		}
		if (cohort_has_node(cohort) && strcmp(cohort->name, child) == 0)
		{
			watch_own_set(cohort, WATCH_NONE);
			if (event == ZK_WATCH_DELETED)
				cohort_end(cohort, END_MISSING);
		}
	}
	if (event == ZK_WATCH_DELETED)
		path_foreign_remove(path, child, downgrade);
	path_mark(path);
}

/* Returns the path of which a node is a child, or NULL. */
static Path *
path_of_child(const char *node, const char *child)
{
	char *parent = pnstrdup(node, child - 1 - node);
	Path *path = path_find(parent);

	pfree(parent);
	return path;
}

/* Handles a watch that has fired on a path, or on a child of one. */
void
engine_watch(ZkWatchEvent event, const char *name)
{
	Path	   *path = path_find(name);
	const char *child = strrchr(name, '/') + 1;

	ZKLOCK_SLOW("slow-writes", 120, 150);
	if (path && event != ZK_WATCH_CHANGED)
		path_changed(path);
	if (event == ZK_WATCH_CHILDREN)
		return;

	path = path_of_child(name, child);
	if (path)
	{
		engine.attended = path;
		child_changed(path, event, child);
		engine.attended = NULL;
	}
}

/* Returns true if the engine needs the watch that such a call would remove. */
bool
engine_needs_watch(const ZkCall *removal)
{
	const char *child = strrchr(removal->path, '/') + 1;
	const Path *path = path_find(removal->path);

	if (removal->kind == ZK_UNWATCH_CHILDREN)
		return path && (watch_exists(path->child_watch) || path->lists_watching > path->lists_done);
	path = path_of_child(removal->path, child);
	return path && watch_is_needed(path, child);
}

/* ------------------------------------------------------------------------
 * Holders whose time is over
 * ------------------------------------------------------------------------
 */

/* Takes from a holder what it has held for too long. */
static void
take_from(Contender *c)
{
	if (entry_of(c)->request.kind != REQUEST_TURN)
		report_overrun(c);
	(void) contender_lose(c, LOSS_OVERRUN);
}

/* Takes from all holders whose time is over what they hold, and plans the next look. */
static void
attend_overruns(void)
{
	int64 now = zklock_now_us();

	if (now < engine.overrun_us)
		return;
	engine.overrun_us = NEVER;
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];
		int64	   expires_us = c->place == PLACE_GRANTED ? entry_status(i).expires_us : 0;

		if (expires_us == 0)
			continue;
		if (now >= expires_us)
			take_from(c);
		else
			engine.overrun_us = Min(engine.overrun_us, expires_us);
	}
}

/* ------------------------------------------------------------------------
 * Contenders for which those of other servers and clients matter
 * ------------------------------------------------------------------------
 */

/*
 * Sets *waits if a contender waits for a node that is not this server's, as far as is known.
 * The node may be gone by now, but none is missed.
 *
 * Sets *wanted if a contender may keep others back.  For one that holds, it is false only if
 * there is surely nobody: the child watch stands, and the last listing showed nobody behind
 * the node.  For one that waits, it is true only if the contender stands behind another
 * server's or client's node that would let others pass.
 */
static void
note_remote_waits(const Contender *c, bool *waits, bool *wanted)
{
	const Path *path = c->path;
	bool		holds = c->place == PLACE_GRANTED;

	*waits = *wanted = false;
	if ((!holds && c->place != PLACE_WAITING) || !cohort_has_node(c->cohort))
		return;
	*wanted = holds && path->child_watch != WATCH_SET;
	for (int i = 0; i < path->nforeign; i++)
	{
		const RecipePeer *peer = &path->foreign[i].peer;
		bool			  older = peer->sequence < c->cohort->peer.sequence;
		bool anyhow = path->recipe->excludes == NULL; /* anybody may give a permit back */

		if (holds)
			*wanted |= anyhow || peer->sequence > c->cohort->peer.sequence;
		else
		{
			*waits |= anyhow || (older && path->recipe->excludes(peer, &c->cohort->request));
			*wanted |= older && peer->mode == LOCK_MODE_SHARED;
		}
	}
}

/* Records in the entries for which contenders other servers and clients matter. */
void
engine_note_remote_waits(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		Entry *entry = entry_at(i);
		bool   waits;
		bool   wanted;

		note_remote_waits(&engine.contenders[i], &waits, &wanted);

		/* Only the worker writes these. */
		if (entry->node.waits_remote == waits && entry->node.blocks_remote == wanted)
			continue;
		SpinLockAcquire(&entry->mutex);
		entry->node.waits_remote = waits;
		entry->node.blocks_remote = wanted;
		SpinLockRelease(&entry->mutex);
	}
}

/* ------------------------------------------------------------------------
 * The next steps
 * ------------------------------------------------------------------------
 */

/* Does what comes next for the paths to which something has happened. */
void
engine_pump(void)
{
	if (zklock_now_ms() >= engine.retry_at)
	{
		engine.retry_at = NEVER;
		if (zk_client_connected() && engine_retry_is_due(engine.sync_at))
			engine_session_synchronize();
		if (engine_retry_is_due(engine.resume_until))
			engine_session_unreachable();
		path_mark_all();
	}
	attend_overruns();
	report_overruns();
	kept_expire();
	path_pump_marked();
}

/* Returns the path that is being worked on, for the log; NULL if there is none. */
const char *
engine_attended_path(void)
{
	return engine.attended ? engine.attended->path : NULL;
}

/* Returns when engine_pump() must be called again at the latest, ms. */
int64
engine_next_wakeup(void)
{
	int64 overrun_at = engine.overrun_us == NEVER ? NEVER : engine.overrun_us / 1000 + 1;

	return Min(Min(engine.retry_at, overrun_at), Min(report_next_wakeup(), kept_next_wakeup()));
}
