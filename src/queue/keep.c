/*
 * keep.c
 *		Locks that nobody holds and that are kept for a while: zklock.keep_idle.
 *
 * A session that gives up a lock may keep it: the node stays, and the session
 * has the lock again without a request to ZooKeeper, or to us.  Whenever somebody
 * else wants the lock, be it a session of this server or another client, it is
 * let go at once.  shared/entry.c has the steps, which the session takes alone:
 *
 *		GRANTED <--> KEPT --> RELEASING
 *
 * Whether it may is decided here, once per look at a path, and told in the entry
 * (keepable).  It may while nobody can come unnoticed, and nobody is there:
 *
 *	- its contender is the only one of this server on the path, and its run the
 *	  only one, which is granted and has not been downgraded;
 *	- no client is known to be there for which that run would have to wait;
 *	- the child watch stands, so that we hear of the next one that comes.  For an
 *	  exclusive lock that is enough to let it go: whoever comes wants it.  While a
 *	  shared one is kept the path is listed, and watched, again.
 *
 * When that ends, the session can keep the lock no more, and what it keeps we give
 * up (entry_recall()): who comes first under the entry's spinlock has it.  From there
 * on it is like any other release.  So is the end of the time, of our session, of
 * the backend, and of this worker: the next one lets go of what was kept.
 *
 * Why there are never two holders: until the node is deleted it stands in the way of
 * all others, like that of a holder; it is deleted only after the step to
 * RELEASING, which no session can undo.  A session that takes the lock again sees
 * first that the lease holds, and then its entry KEPT, which it is no longer once we
 * have heard of the ZooKeeper session's end: so the lease was that of the node's session.
 *
 * Others' calls that do not wait would fail while a lock is merely kept.  Those of
 * this server recall it when they arrive.  Those of another server must know that it
 * may be worth asking, without a request for each time that the lock is held:
 *
 *		name	has a UUID of its own kind (run->keeps): the data can tell more
 *		data	says that the node may be kept (run->mark), since the first time
 *				that it was; who unlocks waits until it does
 *
 * A call that does not wait then creates its node all the same and waits for the
 * answer, which is our deletion of the node, or that the data say so no more, as
 * the lock is held (inquiry.c).  We owe this answer: as long as the mark stands, or
 * may, the child watch stands, or the mark is being taken away, which is repeated
 * until it is done.
 *
 *	lost reply		the mark is written, or taken away, again; a node that is to go is
 *					deleted
 *	refused			what cannot be marked is not kept
 *	a new worker	takes all nodes with such names for marked
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/keep.h"
#include "queue/listing.h"
#include "queue/run.h"
#include "queue/watch.h"
#include "shared/entry_keep.h"
#include "zk/zk_client.h"

/* The data of a node with the mark */
#define MARKED_DATA_SIZE (ZKLOCK_NODE_DATA_SIZE + 32)

/* ------------------------------------------------------------------------
 * Whether a lock may be kept
 * ------------------------------------------------------------------------
 */

/* Is a client there for which the run would have to wait, or that waits for it? */
static bool
is_contested(const Run *run)
{
	const Path *path = run->path;

	for (int i = 0; i < path->nforeign; i++)
	{
		if (path->recipe->excludes(&path->foreign[i].peer, &run->request))
			return true;
	}
	return run->closed;
}

/* Do we hear of whoever comes? */
static bool
is_watched(const Run *run)
{
	return run->path->child_watch == WATCH_SET ||
		   (run_shares(run) && run->path->child_watch == WATCH_ASKED);
}

/* The only contender of a granted run, if that is what it asked for at first; or NULL. */
static Contender *
lone_holder(Run *run)
{
	Contender *c = dlist_is_empty(&run->queue) ? NULL : run_head(run);

	if (c == NULL || dlist_has_next(&run->queue, &c->link) || !entry_of(c)->request.keep ||
		contender_request(c).mode != run->request.mode)
		return NULL;
	return c;
}

/* The contender on a path whose session may keep what it has, or NULL. */
static Contender *
find_keeper(Path *path)
{
	Run *run = run_last(path);

	if (!engine.keeps || run == NULL || run_before(run) || !dlist_is_empty(&path->arrivals) ||
		run->state != RUN_GRANTED || !run->keeps || is_contested(run) || !is_watched(run))
		return NULL;
	return lone_holder(run);
}

/* ------------------------------------------------------------------------
 * The mark on the node
 * ------------------------------------------------------------------------
 */

/* The reply to a write, which is not that it was done */
static void
mark_failed(Run *run, const ZkReply *reply)
{
	if (reply->outcome == ZK_NO_NODE)
		run_vanished(run);
	else if (reply->outcome != ZK_UNKNOWN)
	{
		run->keeps = false;
		if (run_refused(run))
			ereport(LOG, (errmsg("could not write to ZooKeeper node \"%s/%s\" whether it may be kept: %s",
								 run->path->path, run->name, zk_error_name(reply->code))));
	}
}

static void
on_marked(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome != ZK_OK)
	{
		mark_failed(run, reply);
		return;
	}
	run->mark = KEEP_MARK_STANDS;
	if (run->path->keeper && run->path->keeper->run == run)
		entry_kept_told(entry_index(run->path->keeper));
}

static void
on_unmarked(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK)
		run->mark = KEEP_MARK_NONE;
	else
		mark_failed(run, reply);
}

static void
write_data(Run *run, const char *data, ZkReplyHandler handler)
{
	char *node = path_node(run->path, run->name);

	run->mark = KEEP_MARK_UNSURE;
	run_node_call_begin(run, NODE_CALL_MARK);
	zk_set(run_owner(run), node, data, ZK_ANY_VERSION, handler, run);
	pfree(node);
}

static void
set_mark(Run *run)
{
	char data[MARKED_DATA_SIZE];

	if (node_contender_write_kept(data, sizeof(data), entry_of(run_head(run))->data))
		write_data(run, data, on_marked);
	else
	{
		run->keeps = false;
		path_mark(run->path);
	}
}

/* Sets the mark of a run that is kept for the first time, or takes it away if that is due. */
static void
pump_mark(Run *run)
{
	const Path		*path = run->path;
	const Contender *keeper = path->keeper && path->keeper->run == run ? path->keeper : NULL;

	if (run->node_call != NODE_CALL_NONE || dlist_is_empty(&run->queue) ||
		(run->state != RUN_CREATED && run->state != RUN_GRANTED))
		return;
	if (keeper && run->mark != KEEP_MARK_STANDS && contender_state(keeper) == CONTENDER_KEPT)
		set_mark(run);
	else if (keeper == NULL && run->mark != KEEP_MARK_NONE &&
			 (path->child_watch != WATCH_SET || is_contested(run)) &&
			 engine_retry_is_due(run->retry_at))
		write_data(run, entry_of(run_head(run))->data, on_unmarked);
}

/* ------------------------------------------------------------------------
 * What comes next
 * ------------------------------------------------------------------------
 */

/*
 * Somebody else wants what is on the path, or may: from now on it cannot be kept.
 *
 * Returns the contender that was kept and is RELEASING now, for the caller to take
 * out of its queue; NULL if none was.
 */
Contender *
keep_recall(Path *path)
{
	Contender *c = path->keeper;
	bool	   kept;

	if (c == NULL)
		return NULL;
	path->keeper = NULL;
	kept = entry_recall(entry_index(c));
	contender_note_grants(c);
	return kept ? c : NULL;
}

/* What is kept on the path goes: somebody else wants the lock, or the path for something else. */
void
keep_let_go(Path *path)
{
	Contender *kept = keep_recall(path);

	path_mark(path);
	if (kept)
		contender_detach(kept);
}

/* Who has come?  For a shared lock that may be somebody who can share it. */
static void
look_again(Path *path)
{
	const Run *run = path->keeper->run;

	if (run_shares(run) && path->child_watch == WATCH_NONE &&
		path->lists_sent == path->lists_done && path->lists_told == path->lists_done)
		path_list(path, run_owner(run), LIST_AND_WATCH);
}

/*
 * Finds the contender whose session may keep what it has, or is about to have: one
 * that lets go right after the grant is to find it so.
 */
void
keep_prepare(Path *path)
{
	Contender *keeper;

	if (path->recipe->may_be_kept == NULL || path->keeper)
		return;
	keeper = find_keeper(path);
	if (keeper == NULL)
		return;
	path->keeper = keeper;
	entry_allow_keeping(entry_index(keeper));
	if (keeper->run->mark == KEEP_MARK_STANDS)
		entry_kept_told(entry_index(keeper));
}

/* Does what comes next on a path, as far as what is kept is concerned. */
void
keep_pump(Path *path)
{
	bool	   can_send = zk_client_connected() && engine.synced;
	Contender *keeper;
	dlist_iter iter;

	if (path->recipe->may_be_kept == NULL)
		return;
	if (path->keeper && can_send)
		look_again(path);
	keeper = find_keeper(path);
	if (path->keeper && path->keeper != keeper)
		keep_let_go(path);
	keep_prepare(path);
	dlist_foreach (iter, &path->runs)
	{
		if (can_send)
			pump_mark(dlist_container(Run, link, iter.cur));
	}
}

/* ------------------------------------------------------------------------
 * Time
 * ------------------------------------------------------------------------
 */

/* A session has kept something, or taken it again for a limited time. */
void
keep_look_later(const Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	EntryStatus	   *status = &entry->status;
	int64			held_until = 0;
	int64			at;

	SpinLockAcquire(&entry->mutex);
	if (status->state == CONTENDER_GRANTED)
		held_until = status->expires_us;
	at = status->state == CONTENDER_KEPT ? status->kept_until_us : held_until;
	if (at != 0 && (status->look_at_us == 0 || at < status->look_at_us))
		status->look_at_us = at;
	at = status->look_at_us;
	SpinLockRelease(&entry->mutex);
	if (at != 0)
		engine.kept_us = Min(engine.kept_us, at);
	if (held_until != 0)
		engine.overrun_us = Min(engine.overrun_us, held_until);
}

/* Is it kept, and has been for long enough?  It is looked at as was said. */
static bool
is_over(const Contender *c, int64 now)
{
	ContenderEntry *entry = entry_of(c);
	bool			over;

	SpinLockAcquire(&entry->mutex);
	over = entry->status.state == CONTENDER_KEPT && now >= entry->status.kept_until_us;
	entry->status.look_at_us = 0;
	SpinLockRelease(&entry->mutex);
	return over;
}

/* Lets go of what has been kept for long enough. */
void
queue_keep_attend(void)
{
	int64 now = zklock_now_us();

	if (now < engine.kept_us)
		return;
	engine.kept_us = PG_INT64_MAX;
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];
		int64	   look_at_us = entry_at(i)->status.look_at_us;

		if (c->place != PLACE_GRANTED || look_at_us == 0)
			continue;
		if (now < look_at_us)
			engine.kept_us = Min(engine.kept_us, look_at_us);
		else if (is_over(c, now) && c->path->keeper == c)
			keep_let_go(c->path);
		else
			keep_look_later(c);
	}
}

/* When queue_keep_attend() wants to be called at the latest, ms; or -1. */
int64
queue_keep_next_wakeup(void)
{
	return engine.kept_us == PG_INT64_MAX ? -1 : engine.kept_us / 1000 + 1;
}

/*
 * There is no room for the node of a contender: lets go of what is kept, by its session
 * if that has its share, else by all.
 *
 *	failure		with which the contender is refused if there is nothing
 *
 * Returns whether it is worth waiting: all paths are marked when there is more room.
 */
bool
keep_make_room(const Contender *asking, ContenderFailure failure)
{
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];
		Run		  *run = c->run;

		if (c->place != PLACE_GRANTED || c->path->keeper != c || contender_state(c) != CONTENDER_KEPT ||
			(failure == FAILURE_SHARE_FULL && run->payer != entry_of(asking)->request.pid))
			continue;
		engine.making_room += !run->makes_room;
		run->makes_room = true;
		keep_let_go(c->path);
	}
	return engine.making_room > 0;
}

/* Lets go of all that is kept. */
void
queue_keep_let_go(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place == PLACE_GRANTED && c->path->keeper == c && contender_state(c) == CONTENDER_KEPT)
			keep_let_go(c->path);
	}
}

/* The server is about to stop: nothing is kept any more. */
void
queue_keep_stop(void)
{
	engine.keeps = false;
	path_mark_all();
}
