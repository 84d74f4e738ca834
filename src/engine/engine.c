/*
 * engine.c
 *		The engine as the main loop sees it: time, and the life of the ZooKeeper session.
 *
 * The ZooKeeper session
 * ---------------------
 *
 * A lock is as good as the session that owns its node.
 *
 *	connected		nothing is asked before a sync, and nothing granted before our nodes
 *					were seen again
 *	unreachable		holders hold, waiters wait; a call that does not wait gets an error
 *	proved			the lease holds again (lease.c): grants and commits go on
 *	unproved for a session timeout
 *					holders have lost their locks
 *	ended			the same, and waiters queue again in the next session
 *	refused			waiters get an error
 *
 * The worker calls these functions as its session goes from one to the other.
 *
 * A sync proves little by itself.  A leader that has been deposed, and has not noticed, still
 * answers it at once, from what it knows.  It also admits a client that has seen nothing of
 * the new epoch, although what that client sent in that epoch, on the connection before, has
 * been executed, or will be: the new leader knows nothing of the new connection, and accepts
 * what comes on the old one.  So a check goes ahead of the sync, which a quorum has to commit.
 * When it is answered, this server follows the leader of an epoch in which the session has
 * moved to this connection.  What was sent on an earlier one has then been executed before
 * the check, or is refused, and this session never reads anything older than the check.
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
 * it goes on waiting, in its place (backend/lock.c), while the next one begins to.
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

/* Pause before a sync that was refused is sent again */
#define SYNC_AGAIN_MS 1000

/* Since the last message */
static Losses overruns; /* locks and permits */
static Losses expired;	/* reservations */

static int64 overruns_at; /* no message before, ms */

/* ------------------------------------------------------------------------
 * Contenders for which those of other servers and clients matter
 * ------------------------------------------------------------------------
 */

/*
 * Records in the entries for which contenders other servers and clients matter, as far as is
 * known.  A node may be gone by now, but none is missed.
 *
 *	waits_remote	the contender waits for a node that is not this server's
 *	blocks_remote	it may keep others back.  For one that holds, it is false only if there is
 *					surely nobody: the child watch stands, and the last listing showed nobody
 *					behind the node.  For one that waits, it is true only if the contender
 *					stands behind another server's or client's node that would let others pass.
 */
void
engine_note_remote_waits(void)
{
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		Entry			*entry = entry_at(i);
		const Contender *c = &engine.contenders[i];
		const Path		*path = c->path;
		bool			 holds = c->place == PLACE_GRANTED;
		bool has_node = (holds || c->place == PLACE_WAITING) && cohort_has_node(c->cohort);
		bool waits = false;
		bool wanted = has_node && holds && path->child_watch != WATCH_SET;

		for (int k = 0; has_node && k < path->nforeign; k++)
		{
			const RecipePeer *peer = &path->foreign[k].peer;
			bool			  older = peer->sequence < c->cohort->peer.sequence;
			bool anyhow = path->recipe->excludes == NULL; /* anybody may give a permit back */

			if (holds)
				wanted |= anyhow || peer->sequence > c->cohort->peer.sequence;
			else
			{
				waits |= anyhow || (older && path->recipe->excludes(peer, &c->cohort->request));
				wanted |= older && peer->mode == LOCK_MODE_SHARED;
			}
		}

		/* Only the worker writes these. */
		if (entry->node.waits_remote == waits && entry->node.blocks_remote == wanted)
			continue;
		SpinLockAcquire(&entry->mutex);
		entry->node.waits_remote = waits;
		entry->node.blocks_remote = wanted;
		SpinLockRelease(&entry->mutex);
	}
}

/*
 * Finds, for a leader, the candidate of a higher priority than its own that has stood for the
 * longest time.  Returns false if none is known.  What it points to is valid until the path is
 * looked at again.
 */
bool
engine_rival(int entry, int priority, EngineRival *rival)
{
	const Contender *c = &engine.contenders[entry];

	*rival = (EngineRival){.since = NEVER};
	for (int i = 0; c->place == PLACE_GRANTED && i < c->path->nforeign; i++)
	{
		const ForeignContender *other = &c->path->foreign[i];
		size_t					name_len;
		int other_priority = other->data ? recipe_data_read(other->data, &name_len) : 0;

		if (other_priority > priority && other->seen_at < rival->since)
			*rival = (EngineRival){.node = other->name,
								   .data = other->data,
								   .priority = other_priority,
								   .since = other->seen_at};
	}
	return rival->node != NULL;
}

/* ------------------------------------------------------------------------
 * The life of the ZooKeeper session
 * ------------------------------------------------------------------------
 */

/*
 * Has all paths looked at in this round or the next; or only those that may wait for a time, as one on which
 * a node is merely kept does not: there may be thousands.
 */
static void
path_mark_all(bool only_waiting)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		const Cohort *cohort = cohort_first(path);

		if (!only_waiting || cohort == NULL || cohort->kept_since == 0 ||
			!dlist_is_empty(&path->arrivals))
			path_mark(path);
	}
}

/* Handles the replies to engine_session_synchronize(): that to the check, and that to the sync. */
static void
on_session_synced(void *arg, const ZkReply *reply)
{
	int code = reply->outcome == CALL_OK ? engine.uncommitted : reply->code;

	if (reply->asked->kind == ZK_CHECK)
	{
		engine.uncommitted =
			reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE ? 0 : reply->code;
		return;
	}
	if (reply->outcome == CALL_UNKNOWN)
		return;
	if (code == 0)
	{
		engine_synced = true;
		path_mark_all(false);
		return;
	}
	ereport(LOG, (errmsg("could not synchronize with ZooKeeper: %s", zk_error(code).name),
				  errdetail("Nothing is locked or released until that succeeds; it is repeated.")));
	engine.sync_at = zklock_now_ms() + SYNC_AGAIN_MS;
	(void) engine_await(engine.sync_at);
	engine_session_unreachable(0);
}

/*
 * Sends a check and a sync.  Changes made by another connection or worker of ours may not have
 * reached this server yet: nothing is asked before they have, and no more can come.
 */
static void
engine_session_synchronize(void)
{
	engine_synced = false;
	engine.sync_at = NEVER;
	zk_call((ZkCall){.kind = ZK_CHECK, .path = "/", .urgent = true}, on_session_synced, NULL);
	zk_call((ZkCall){.kind = ZK_SYNC, .path = "/", .urgent = true}, on_session_synced, NULL);
}

/* Takes note that a connection stands, of the session before or of a new one. */
void
engine_session_connected(const SessionInfo *session)
{
	engine.session_id = session->id;
	engine.chroot_len = strlen(session->chroot);
	engine.refused_code = 0;
	engine.resume_until = NEVER;
	engine_session_synchronize();
	watch_forget(FORGET_LISTINGS);
	for (int i = 0; i < entry_pool->max_entries; i++)
		contender_check(&engine.contenders[i]);
}

/*
 * Takes note that ZooKeeper cannot be reached, or that what it says proves nothing; the
 * session may go on.  A call that does not wait for other holders does not wait for this
 * either.  If ZooKeeper refuses our credentials, by the code, path_pump_marked() refuses all who
 * wait, now and until a connection stands again, which will be another handle's.
 */
void
engine_session_unreachable(int refused_code)
{
	engine.resume_until = NEVER;
	if (refused_code != 0)
	{
		engine.refused_code = refused_code;
		watch_forget(FORGET_WATCHES);
	}
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		Contender  *c = &engine.contenders[i];
		EntryStatus status = entry_status(i);
		bool		releases = status.state == ENTRY_RELEASING || status.downgrading;
		bool		waits = c->place == PLACE_ARRIVED || c->place == PLACE_WAITING;

		/*
		 * A backend that waits for a release need not wait for ZooKeeper; one that waits for a
		 * lock reports the outage to its client.
		 */
		if (c->place != PLACE_NONE &&
			(releases || (waits && entry_at(i)->request.manner == ASK_AND_WAIT)))
			entry_set_owner_latch(entry_at(i));
		else if (waits)
			contender_fail(c, FAILURE_UNREACHABLE, 0);
	}
	path_mark_all(false);
}

/*
 * Takes note that the session is proved to be alive again, and wakes the backends that wait for
 * that; or that it has not been for so long that it may be over, and others may have our locks.
 * Holders have lost them then, for good, even if the session turns out to be alive; then their
 * nodes are deleted, unless others of this server wait behind them.
 */
void
engine_session_proved(bool is_alive)
{
	Losses losses = {0};

	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place != PLACE_GRANTED)
			continue;
		if (is_alive)
			entry_set_owner_latch(entry_at(i));
		else
		{
			report_losses_add(&losses, c);
			contender_lose(c, LOSS_UNPROVED);
		}
	}
	if (losses.count > 0)
		ereport(WARNING,
				(errmsg("the ZooKeeper session was not proved to be alive for a session timeout"),
				 errdetail("Locks lost: %d.%s", losses.count, report_losses_take(&losses))));
	path_mark_all(false);
}

/*
 * Takes note that the session is over, and all its nodes with it.  Holders have lost their
 * locks, contenders that waited queue again in the next session.
 */
void
engine_session_ended(const char *reason)
{
	HASH_SEQ_STATUS status;
	Path		   *path;
	Losses			losses = {0};
	int				nwaiting = 0;

	/* All calls have been answered: no reply comes to what is freed here. */
	Assert(zk_connection == ZK_NO_HANDLE);
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		report_losses_add(&losses, &engine.contenders[i]);
		if (engine.contenders[i].place != PLACE_NONE && entry_status(i).state == ENTRY_QUEUED)
			nwaiting++;
	}
	ereport(losses.count > 0 ? WARNING : LOG,
			(errmsg("ZooKeeper session ended: %s", reason),
			 errdetail("Locks lost: %d. Waiting requests that queue again: %d.%s",
					   losses.count, nwaiting, report_losses_take(&losses))));

	/* At once: holders have lost their locks when the session is known to be over. */
	watch_forget(FORGET_WATCHES);
	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		path_foreign_clear(path);
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			if (cohort->state != COHORT_PLANNED)
				cohort_note_end(cohort, END_EXPIRED);
		}
		path_mark(path);
	}
	path_pump_marked();
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/*
 * Does what comes next for the paths to which something has happened, and what it is time for.
 * Returns when it must be called again at the latest, ms.
 */
int64
engine_pump(void)
{
	int64 now_us;
	int64 overrun_at;
	int64 report_at;

	if (zklock_now_ms() >= engine.retry_at)
	{
		engine.retry_at = NEVER;
		if (zk_connection >= ZK_CONNECTED && engine_await(engine.sync_at))
			engine_session_synchronize();
		if (engine_await(engine.resume_until))
			engine_session_unreachable(0);
		path_mark_all(true);
	}

	/* Holders whose time is over lose what they hold; and when is the next one's? */
	now_us = zklock_now_us();
	if (now_us >= engine.overrun_us)
	{
		engine.overrun_us = NEVER;
		for (int i = 0; i < entry_pool->max_entries; i++)
		{
			Contender		   *c = &engine.contenders[i];
			const EntryRequest *request = &entry_of(c)->request;
			int64 expires_us = c->place == PLACE_GRANTED ? entry_status(i).expires_us : NEVER;

			if (now_us < expires_us)
			{
				engine.overrun_us = Min(engine.overrun_us, expires_us);
				continue;
			}
			if (request->kind != REQUEST_TURN)
				report_losses_add(request->scope == LOCK_SCOPE_RESERVATION ? &expired : &overruns, c);
			contender_lose(c, LOSS_OVERRUN);
		}
	}

	/* They are reported once in a while. */
	if (overruns.count + expired.count > 0 && zklock_now_ms() >= overruns_at)
	{
		if (overruns.count > 0)
			ereport(WARNING,
					(errmsg("locks were held for longer than \"zklock.max_hold_time\""),
					 errdetail("Locks lost: %d.%s", overruns.count, report_losses_take(&overruns))));
		if (expired.count > 0)
			ereport(LOG, (errmsg("reservations were not renewed in time"),
						  errdetail("Reservations: %d.%s", expired.count,
									report_losses_take(&expired))));
		overruns.count = expired.count = 0;
		overruns_at = zklock_now_ms() + MESSAGE_PAUSE_MS;
	}

	kept_expire();
	path_pump_marked();

	overrun_at = engine.overrun_us == NEVER ? NEVER : engine.overrun_us / 1000 + 1;
	report_at = overruns.count + expired.count > 0 ? overruns_at : NEVER;
	return Min(Min(engine.retry_at, overrun_at), Min(report_at, kept_next_wakeup()));
}
