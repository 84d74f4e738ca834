/*
 * session.c
 *		What the life of the ZooKeeper session means for the engine.
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
 * When another worker has taken the place of an earlier one, it builds contenders, cohorts and
 * paths again from the entries: the id of a cohort gives its place in the path's queue, a
 * contender's ticket its place in the cohort's.  The worker finds out the state of ZooKeeper
 * when a connection stands.  It reads the entries in use without a lock as far as they are
 * constant or only a worker writes them.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "zk/zk_client.h"

/* Pause before a sync that was refused is sent again */
#define SYNC_AGAIN_MS 1000

/* Knowledge that a new connection, or a new handle, makes void */
typedef enum Forget
{
	FORGET_LISTINGS,
	FORGET_WATCHES /* and listings */
} Forget;

/*
 * Forgets what listings showed: the cohorts' nodes must be seen again before anything is
 * granted, and those whose names are reusable be read again.  With a new handle, watches are
 * gone as well.
 */
static void
forget_listings(Forget what)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		path->lists_shown = 0;
		if (what == FORGET_WATCHES)
			watch_child_set(path, WATCH_NONE);
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			cohort->listed = false;
			if (what == FORGET_WATCHES || cohort_name_is_reusable(cohort))
			{
				watch_own_set(cohort, WATCH_NONE);
				cohort->own_watch_at = 0;
			}
			if (what == FORGET_WATCHES && cohort->blocker)
				watch_blocker_set(cohort, WATCH_NONE);
		}
	}
}

/* Handles the reply to the check that goes ahead of a sync. */
static void
on_session_checked(void *arg, const ZkReply *reply)
{
	bool committed = reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE;

	engine.uncommitted = committed ? 0 : reply->code;
}

/* Handles the reply to engine_session_synchronize(). */
static void
on_session_synced(void *arg, const ZkReply *reply)
{
	int code = reply->outcome == CALL_OK ? engine.uncommitted : reply->code;

	if (reply->outcome == CALL_UNKNOWN)
		return;
	if (code == 0)
	{
		engine.synced = true;
		path_mark_all();
		return;
	}
	ereport(LOG, (errmsg("could not synchronize with ZooKeeper: %s", zk_error_name(code)),
				  errdetail("Nothing is locked or released until that succeeds; it is repeated.")));
	engine.sync_at = zklock_now_ms() + SYNC_AGAIN_MS;
	(void) engine_retry_is_due(engine.sync_at);
	engine_session_unreachable();
}

/*
 * Sends a check and a sync.  Changes made by another connection or worker of ours may not have
 * reached this server yet: nothing is asked before they have, and no more can come.
 */
void
engine_session_synchronize(void)
{
	engine.synced = false;
	engine.sync_at = NEVER;
	zk_call((ZkCall){.kind = ZK_CHECK, .path = "/", .urgent = true}, on_session_checked, NULL);
	zk_call((ZkCall){.kind = ZK_SYNC, .path = "/", .urgent = true}, on_session_synced, NULL);
}

/* Returns true if that is done, on this connection. */
bool
engine_session_synchronized(void)
{
	return zk_client_connected() && engine.synced;
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
	forget_listings(FORGET_LISTINGS);
	for (int i = 0; i < entries_max(); i++)
		contender_check(&engine.contenders[i]);
}

/*
 * Takes note that ZooKeeper cannot be reached, or that what it says proves nothing; the
 * session may go on.  A call that does not wait for other holders does not wait for this
 * either.
 */
void
engine_session_unreachable(void)
{
	engine.resume_until = NEVER;
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place == PLACE_NONE)
			continue;

		/*
		 * A backend that waits for a release need not wait for ZooKeeper; one that waits for a
		 * lock reports the outage to its client.
		 */
		if (contender_state(c) == ENTRY_RELEASING || entry_status(i).downgrading)
			entry_set_owner_latch(entry_at(i));
		else if (c->place != PLACE_ARRIVED && c->place != PLACE_WAITING)
			continue;
		else if (entry_at(i)->request.manner == ASK_AND_WAIT)
			entry_set_owner_latch(entry_at(i));
		else
			contender_fail(c, FAILURE_UNREACHABLE, 0);
	}
	path_mark_all();
}

/*
 * Takes note that the session is proved to be alive again, and wakes the backends that wait
 * for that.
 */
void
engine_session_proved(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		if (engine.contenders[i].place == PLACE_GRANTED)
			entry_set_owner_latch(entry_at(i));
	}
	path_mark_all();
}

/*
 * Takes note that the session has not been proved alive for so long that it may be over, and
 * others may have our locks.  Holders have lost them, for good, even if the session turns out
 * to be alive; then their nodes are deleted.
 */
void
engine_session_unproved(void)
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
	path_mark_all();
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
	Losses			losses;
	int				nwaiting = 0;

	report_losses_begin(&losses);
	for (int i = 0; i < entries_max(); i++)
	{
		report_losses_add(&losses, &engine.contenders[i]);
		if (engine.contenders[i].place != PLACE_NONE &&
			contender_state(&engine.contenders[i]) == ENTRY_QUEUED)
			nwaiting++;
	}
	ereport(losses.count > 0 ? WARNING : LOG,
			(errmsg("ZooKeeper session ended: %s", reason),
			 errdetail("Locks lost: %d. Waiting requests that queue again: %d.%s",
					   losses.count, nwaiting, report_losses_list(&losses))));

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		dlist_mutable_iter iter;

		watch_child_set(path, WATCH_NONE);
		path_foreign_clear(path);
		dlist_foreach_modify (iter, &path->cohorts)
		{
			Cohort *cohort = dlist_container(Cohort, link, iter.cur);

			if (cohort->state != COHORT_PLANNED)
				cohort_end(cohort, END_EXPIRED);
		}
		path_mark(path);
	}
}

/*
 * Takes note that ZooKeeper refuses our credentials.  All who wait are refused, now and until
 * a connection stands again, which will be another handle's.
 */
void
engine_session_refused(int code)
{
	engine.refused_code = code;
	forget_listings(FORGET_WATCHES);
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];

		if (c->place != PLACE_NONE && contender_state(c) == ENTRY_QUEUED)
			contender_fail(c, FAILURE_REFUSED, code);
	}
	path_mark_all();
}

/* ------------------------------------------------------------------------
 * Taking over from an earlier worker
 * ------------------------------------------------------------------------
 */

/* Returns the cohort of an entry, created again in its place if need be. */
static Cohort *
cohort_of_entry(Path *path, const Entry *entry, const RecipeRequest *request)
{
	dlist_node *after = &path->cohorts.head;
	Cohort	   *cohort;

	for (Cohort *other = cohort_first(path); other; other = cohort_after(other))
	{
		if (other->id == entry->node.cohort_id)
			return other;
		if (other->id < entry->node.cohort_id)
			after = &other->link;
	}
	cohort = cohort_new(path, entry->node.cohort_id, request);
	dlist_insert_after(after, &cohort->link);
	if (entry->node.name[0] != '\0')
		cohort_adopted(cohort, entry->node.name, entry->node.czxid,
					   entry->status.kept ? PAYER_NOBODY : entry_payer(entry));
	return cohort;
}

/*
 * Takes an entry over from an earlier worker.  Any entry with a token shows that its cohort
 * was granted, even that of a holder that is leaving.
 */
static void
contender_adopt(Contender *c)
{
	Entry		 *entry = entry_of(c);
	EntryState	  state = contender_state(c);
	RecipeRequest request = contender_request(c);
	Path		 *path;
	Cohort		 *cohort;

	if (entry->node.cohort_id == 0 && state != ENTRY_QUEUED)
	{
		entry_mark_dirty(entry_index(c));
		return;
	}

	path = path_get(entry->request.path, contender_recipe(c));
	if (entry->node.cohort_id == 0)
	{
		contender_arrive(c, path);
		return;
	}
	if (path->recipe != contender_recipe(c))
	{
		/* No worker leaves that behind; but an error would end each next one, too. */
		ereport(WARNING,
				(errmsg_internal("path \"%s\" is in use with two recipes", entry->request.path)));
		(void) entry_lose(entry_index(c), LOSS_UNPROVED);
		entry_fail(entry_index(c), FAILURE_REFUSED, 0);
		contender_forget(c);
		return;
	}

	c->path = path;
	c->next_list = path->lists_sent + 1;
	cohort = cohort_of_entry(path, entry, &request);
	cohort->joined += Max(entry->node.grants - cohort->grants, 0);
	cohort->grants = Max(cohort->grants, entry->node.grants);
	if (entry->status.token != 0 && cohort->state == COHORT_CREATED)
		cohort_granted(cohort);
	c->cohort = cohort;
	if (state == ENTRY_FAILED || state == ENTRY_LOST)
	{
		Assert(cohort->last_owner == NULL);
		cohort->last_owner = c;
		c->place = PLACE_KEEPS_NODE;
	}
	else
	{
		c->place = state == ENTRY_GRANTED ? PLACE_GRANTED : PLACE_WAITING;
		cohort->joined += c->place == PLACE_WAITING;
		dlist_push_tail(&cohort->queue, &c->link);
	}
	cohort->closed |= cohort_has_downgraded_node(cohort);
	if (state == ENTRY_RELEASING || entry_status(entry_index(c)).downgrading)
		entry_mark_dirty(entry_index(c));
}

/* Takes over the entries in use, which come in order of their tickets. */
void
engine_adopt_entries(const int *indexes, int n)
{
	for (int i = 0; i < n; i++)
		contender_adopt(&engine.contenders[indexes[i]]);

	for (int i = 0; i < n; i++)
	{
		Contender *c = &engine.contenders[indexes[i]];

		if (c->cohort == NULL)
			continue;
		if (c->cohort->state != COHORT_CREATED && c->cohort->state != COHORT_GRANTED)
			cohort_replaces(c->cohort, c);

		/* A listing will show how far the earlier worker came. */
		if (cohort_wants_downgrade(c->cohort))
			cohort_downgrading(c->cohort);
	}
}
