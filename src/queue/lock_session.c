/*
 * lock_session.c
 *		What the session's life means for the locks.
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
 * Runs in: the worker.  Entries' fields are read and written under their
 * spinlocks; everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_path.h"
#include "queue/lock_table.h"

/* Pause before a sync that was refused is sent again. */
#define SYNC_AGAIN_MS 1000

/*
 * What was seen of the runs' nodes no longer holds: before anything is granted
 * they must be seen again.  With a new handle, watches are gone as well.
 */
static void
forget_listings(bool watches)
{
	HASH_SEQ_STATUS status;
	LockPath	   *path;

	hash_seq_init(&status, lock_manager.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_iter iter;

		if (watches)
			child_watch_set(path, WATCH_NONE);
		dlist_foreach (iter, &path->runs)
		{
			Run *run = dlist_container(Run, node, iter.cur);

			run->listed = false;
			if (watches)
			{
				own_watch_set(run, WATCH_NONE);
				if (run->blocker)
					blocker_watch_set(run, WATCH_NONE);
			}
		}
	}
}

/* The reply to lock_synchronize() */
static void
on_synced(void *arg, const ZkReply *reply)
{
	(void) arg;
	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome == ZK_OK)
	{
		lock_manager.synced = true;
		lock_pump_all();
		return;
	}
	ereport(LOG, (errmsg("could not synchronize with ZooKeeper: %s", zk_error_name(reply->code)),
				  errdetail("Nothing is locked or released until that succeeds; it is repeated.")));
	lock_manager.sync_at = zklock_now_ms() + SYNC_AGAIN_MS;
	(void) retry_is_due(lock_manager.sync_at);
	lock_session_unreachable();
}

/*
 * What another connection or worker of ours did may not have reached this
 * server yet: nothing is asked before it has.
 */
void
lock_synchronize(void)
{
	lock_manager.synced = false;
	lock_manager.sync_at = -1;
	zk_sync(on_synced, NULL);
}

/* A connection stands, of the session before or of a new one. */
void
lock_session_connected(const SessionInfo *session)
{
	lock_manager.session_id = session->id;
	lock_manager.chroot_len = strlen(session->chroot);
	lock_manager.refused_code = 0;
	lock_manager.resume_until = -1;
	lock_synchronize();
	forget_listings(false);
	for (int i = 0; i < zklock_shared->max_entries; i++)
		contender_check(&lock_manager.contenders[i]);
}

/*
 * ZooKeeper cannot be reached, or what it says proves nothing; the session may
 * go on.  Who does not wait for other holders does not wait for this either.
 */
void
lock_session_unreachable(void)
{
	lock_manager.resume_until = -1;
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		Contender *c = &lock_manager.contenders[i];

		if (c->path == NULL)
			continue;

		/* Who waits for a release need not wait for ZooKeeper. */
		if (contender_state(c) == CONTENDER_RELEASING || entry_at(i)->downgrading)
			entry_set_owner_latch(entry_at(i));
		else if (!c->granted && entry_at(i)->nowait && !(c->run && c->run->record == c))
			contender_fail(c, FAILURE_UNREACHABLE, 0);
	}
	lock_pump_all();
}

/*
 * The session is proved to live again: who waits for that goes on.
 */
void
lock_session_proved(void)
{
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		if (lock_manager.contenders[i].granted)
			entry_set_owner_latch(entry_at(i));
	}
	lock_pump_all();
}

/*
 * It has not been proved for so long that the session may be over, and others
 * may have our locks.  Holders have lost them, for good, even should the
 * session turn out to be alive; then their nodes are deleted.
 */
void
lock_session_unproved(void)
{
	Losses losses;

	losses_begin(&losses);
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		Contender *c = &lock_manager.contenders[i];

		if (!c->granted)
			continue;
		losses_add(&losses, c);
		contender_lose(c, LOSS_UNPROVED);
	}
	if (losses.count > 0)
		ereport(WARNING, (errmsg("the ZooKeeper session was not proved to be alive for a session timeout"),
						  errdetail("Locks lost: %d.%s", losses.count, losses_list(&losses))));
	pfree(losses.lines.data);
	lock_pump_all();
}

/*
 * The session is over, and all its nodes with it.  Who held a lock has lost
 * it, who waited queues again when there is a new session.
 */
void
lock_session_ended(const char *reason)
{
	HASH_SEQ_STATUS status;
	LockPath	   *path;
	Losses			losses;
	int				nwaiting = 0;

	losses_begin(&losses);

	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		losses_add(&losses, &lock_manager.contenders[i]);
		if (lock_manager.contenders[i].path &&
			contender_state(&lock_manager.contenders[i]) == CONTENDER_QUEUED)
			nwaiting++;
	}
	ereport(losses.count > 0 ? WARNING : LOG,
			(errmsg("ZooKeeper session ended: %s", reason),
			 errdetail("Locks lost: %d. Waiting requests that queue again: %d.%s",
					   losses.count, nwaiting, losses_list(&losses))));
	pfree(losses.lines.data);

	hash_seq_init(&status, lock_manager.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_mutable_iter iter;

		child_watch_set(path, WATCH_NONE);
		foreign_clear(path);
		dlist_foreach_modify (iter, &path->runs)
		{
			Run *run = dlist_container(Run, node, iter.cur);

			if (run->state != RUN_PLANNED)
				run_replace(run, true);
		}
		path_free_if_idle(path);
	}
}

/*
 * ZooKeeper refuses our credentials: so are all who wait, now and until a
 * connection stands again, which will be another handle's.
 */
void
lock_session_refused(int code)
{
	lock_manager.refused_code = code;
	forget_listings(true);
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		Contender *c = &lock_manager.contenders[i];

		if (c->path && contender_state(c) == CONTENDER_QUEUED)
			contender_fail(c, FAILURE_REFUSED, code);
	}
	lock_pump_all();
}
