/*
 * session.c
 *		What the session's life means for the engine.
 *
 * A lock is as good as the session that owns its node.
 *
 *	connected	 nothing is asked before a sync, and nothing granted before our
 *				 nodes were seen again
 *	unreachable	 holders hold, waiters wait; who does not wait gets an error
 *	proved		 the lease holds again (lease.c): grants and commits go on
 *	unproved for a session timeout
 *				 holders have lost their locks
 *	ended		 likewise, and waiters queue again in the next session
 *	refused		 waiters get an error
 *
 * The worker calls these as its session goes from one to the other.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/report.h"
#include "queue/run.h"
#include "queue/run_calls.h"
#include "queue/session.h"
#include "queue/watch.h"

/* Pause before a sync that was refused is sent again. */
#define SYNC_AGAIN_MS 1000

/* What a new connection, or a new handle, makes void */
typedef enum Forget
{
	FORGET_LISTINGS,
	FORGET_WATCHES /* and listings */
} Forget;

/*
 * What was seen of the runs' nodes no longer holds: before anything is granted
 * they must be seen again.  With a new handle, watches are gone as well.
 */
static void
forget_listings(Forget what)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_iter iter;

		if (what == FORGET_WATCHES)
			watch_child_set(path, WATCH_NONE);
		dlist_foreach (iter, &path->runs)
		{
			Run *run = dlist_container(Run, link, iter.cur);

			run->listed = false;
			if (what == FORGET_WATCHES)
			{
				watch_own_set(run, WATCH_NONE);
				if (run->blocker)
					watch_blocker_set(run, WATCH_NONE);
			}
		}
	}
}

/* The reply to queue_session_synchronize() */
static void
on_synced(void *arg, const ZkReply *reply)
{
	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome == ZK_OK)
	{
		engine.synced = true;
		path_mark_all();
		return;
	}
	ereport(LOG, (errmsg("could not synchronize with ZooKeeper: %s", zk_error_name(reply->code)),
				  errdetail("Nothing is locked or released until that succeeds; it is repeated.")));
	engine.sync_at = zklock_now_ms() + SYNC_AGAIN_MS;
	(void) engine_retry_is_due(engine.sync_at);
	queue_session_unreachable();
}

/*
 * What another connection or worker of ours did may not have reached this
 * server yet: nothing is asked before it has.
 */
void
queue_session_synchronize(void)
{
	engine.synced = false;
	engine.sync_at = -1;
	zk_sync(on_synced, NULL);
}

/* A connection stands, of the session before or of a new one. */
void
queue_session_connected(const SessionInfo *session)
{
	engine.session_id = session->id;
	engine.chroot_len = strlen(session->chroot);
	engine.refused_code = 0;
	engine.resume_until = -1;
	queue_session_synchronize();
	forget_listings(FORGET_LISTINGS);
	for (int i = 0; i < entries_max(); i++)
		contender_check(&engine.contenders[i]);
}

/*
 * ZooKeeper cannot be reached, or what it says proves nothing; the session may
 * go on.  A call that does not wait for other holders does not wait for this either.
 */
void
queue_session_unreachable(void)
{
	engine.resume_until = -1;
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place == PLACE_NONE)
			continue;

		/* A session that waits for a release need not wait for ZooKeeper. */
		if (contender_state(c) == CONTENDER_RELEASING || contender_is_downgrading(c))
			entry_set_owner_latch(entry_at(i));
		else if ((c->place == PLACE_ARRIVED || c->place == PLACE_WAITING) &&
				 entry_at(i)->request.nowait)
			contender_fail(c, FAILURE_UNREACHABLE, 0);
	}
	path_mark_all();
}

/*
 * The session is proved to live again: sessions that wait for that go on.
 */
void
queue_session_proved(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		if (engine.contenders[i].place == PLACE_GRANTED)
			entry_set_owner_latch(entry_at(i));
	}
	path_mark_all();
}

/*
 * It has not been proved for so long that the session may be over, and others
 * may have our locks.  Holders have lost them, for good, even should the
 * session turn out to be alive; then their nodes are deleted.
 */
void
queue_session_unproved(void)
{
	Losses losses;

	report_losses_begin(&losses);
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place != PLACE_GRANTED)
			continue;
		report_losses_add(&losses, c);
		contender_lose(c, LOSS_UNPROVED);
	}
	if (losses.count > 0)
		ereport(WARNING,
				(errmsg("the ZooKeeper session was not proved to be alive for a session timeout"),
				 errdetail("Locks lost: %d.%s", losses.count, report_losses_list(&losses))));
	report_losses_end(&losses);
	path_mark_all();
}

/*
 * The session is over, and all its nodes with it.  Holders have lost
 * their locks, contenders that waited queue again in the next session.
 */
void
queue_session_ended(const char *reason)
{
	HASH_SEQ_STATUS status;
	Path		   *path;
	Losses			losses;
	int				nwaiting = 0;

	report_losses_begin(&losses);
	for (int i = 0; i < entries_max(); i++)
	{
		report_losses_add(&losses, &engine.contenders[i]);
		if (engine.contenders[i].place != PLACE_NONE &&
			contender_state(&engine.contenders[i]) == CONTENDER_QUEUED)
			nwaiting++;
	}
	ereport(losses.count > 0 ? WARNING : LOG,
			(errmsg("ZooKeeper session ended: %s", reason),
			 errdetail("Locks lost: %d. Waiting requests that queue again: %d.%s",
					   losses.count, nwaiting, report_losses_list(&losses))));
	report_losses_end(&losses);

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_mutable_iter iter;

		watch_child_set(path, WATCH_NONE);
		path_foreign_clear(path);
		dlist_foreach_modify (iter, &path->runs)
		{
			Run *run = dlist_container(Run, link, iter.cur);

			if (run->state != RUN_PLANNED)
				run_expired(run);
		}
		path_mark(path);
	}
}

/*
 * ZooKeeper refuses our credentials: so are all who wait, now and until a
 * connection stands again, which will be another handle's.
 */
void
queue_session_refused(int code)
{
	engine.refused_code = code;
	forget_listings(FORGET_WATCHES);
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place != PLACE_NONE && contender_state(c) == CONTENDER_QUEUED)
			contender_fail(c, FAILURE_REFUSED, code);
	}
	path_mark_all();
}
