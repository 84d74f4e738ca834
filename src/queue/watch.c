/*
 * watch.c
 *		Hearing of the end of a node: ours, or that for which a run waits.
 *
 * Someone else might delete a node of ours, and its holder must hear of it.
 * While the child watch stands, any change below the path is noticed; when
 * that has fired, the node gets a watch of its own.  So an uncontended lock
 * needs no request for it.  A run that waits for another client's contender
 * watches that one's node.  Besides, a holder about to commit may have a quorum
 * asked for its node.
 *
 * engine.h draws a watch's life, engine.c has the account of them.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written;
 * everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/engine.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

typedef struct CheckCall
{
	Run	  *run;
	int	   index;	   /* of the contender's entry */
	uint32 generation; /* of that: if it has changed, the contender is gone */
	uint32 number;
} CheckCall;

/* For the time being we cannot see to it that we hear of the node's end. */
static void
watch_own_refused(Run *run)
{
	watch_own_set(run, WATCH_REFUSED);
	run->own_watch_at = zklock_now_ms() + RETRY_MS;
}

/* Our own node, read to set a watch on it. */
static void
on_own_watched(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	/* An heir may have taken the place of the node that was asked about. */
	if (!run_call_end(run) || strcmp(path_node(run->path, run->name), reply->asked->path) != 0)
		return;
	watch_own_set(run, reply->outcome == CALL_OK ? WATCH_SET : WATCH_NONE);
	if (reply->outcome == CALL_OK && node_contender_tells_broken(reply->data, reply->data_length))
		entries_expect_deletion(run->id, LOSS_BROKEN);
	if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner != engine.session_id)
		run_usurped(run);
	else if (reply->outcome == CALL_NO_NODE)
		run_vanished(run);
	else if (reply->outcome != CALL_OK && reply->outcome != CALL_UNKNOWN)
		watch_own_refused(run);
}

/*
 * Makes sure that we hear of it should someone delete the run's node.  While the
 * child watch stands, that does.  But it fires when the contender goes for which
 * the run waits, and nothing is to be asked then: so a run that waits for one has
 * a watch of its own.  A session that may not delete its node is not even told
 * that there is none, and needs one in any case.
 */
void
watch_own(Run *run)
{
	Path *path = run->path;
	bool  refused = run->state == RUN_DELETING && run->refused_in == RUN_DELETING;
	bool  covered = watch_exists(path->child_watch) && !refused && run->blocker == NULL;

	if (watch_exists(run->own_watch) || covered ||
		(run->own_watch == WATCH_REFUSED && !engine_retry_is_due(run->own_watch_at)))
		return;
	if (!watch_has_room(path, run->name, NULL))
	{
		watch_own_refused(run);
		return;
	}
	watch_own_set(run, WATCH_ASKED);
	run_call(run, (ZkCall){.kind = ZK_READ, .path = path_node(path, run->name), .watch = true},
			 on_own_watched);
}

/*
 * A predecessor is our session's.  If no run has it, or may yet find that it
 * has, it was left behind by mistake and would block us for ever.
 */
static void
delete_orphan(Path *path, const char *name)
{
	char *node;

	for (Run *run = run_first(path); run; run = run_after(run))
	{
		if (run->state == RUN_CREATING || strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return;
	}
	node = path_node(path, name);
	ereport(LOG, (errmsg("deleting ZooKeeper node \"%s\", which this server left behind", node)));
	zk_call((ZkCall){.kind = ZK_DELETE, .path = node}, NULL, NULL);
}

/* The predecessor, read to set a watch on it. */
static void
on_blocker_watched(void *arg, const ZkReply *reply)
{
	Run	 *run = arg;
	Path *path = run->path;

	if (run->state != RUN_GONE && reply->outcome == CALL_OK)
	{
		watch_blocker_set(run, WATCH_SET);
		run->blocker_announces = node_contender_tells_version(reply->data, reply->data_length);
		if (reply->stat.ephemeral_owner == engine.session_id && !ZKLOCK_FAULT("orphan"))
			delete_orphan(path, run->blocker);
		else if (session_info_has_ended(reply->stat.ephemeral_owner))
			report_stale(path, run->blocker, reply);
	}
	else
	{
		if (reply->outcome == CALL_NO_NODE)
			path_foreign_remove(path, run->blocker, HEIR_POSSIBLE);
		if (reply->watching)
			watch_blocker_set(run, WATCH_SET);
		watch_blocker_give_up(run, reply->outcome == CALL_REFUSED ? WATCH_REFUSED : WATCH_NONE);
	}
	(void) run_call_end(run);
}

/* Watches another client's contender. */
void
watch_blocker(Run *run, const char *name)
{
	if (run->blocker)
	{
		/* Should it be another one, the reply or event will bring us back. */
		if (strcmp(run->blocker, name) == 0 || run->blocker_watch == WATCH_ASKED)
			return;
		watch_blocker_set(run, WATCH_NONE);
	}
	if (!watch_has_room(run->path, name, entry_of(run_head(run))))
	{
		run_fail(run, FAILURE_SESSION_FULL, 0);
		return;
	}
	run->blocker = pstrdup(name);
	watch_blocker_set(run, WATCH_ASKED);
	run_call(run, (ZkCall){.kind = ZK_READ, .path = path_node(run->path, name), .watch = true},
			 on_blocker_watched);
}

/* ------------------------------------------------------------------------
 * Proof for a commit
 * ------------------------------------------------------------------------
 */

/* The reply to contender_check() */
static void
on_checked(void *arg, const ZkReply *reply)
{
	CheckCall	   *call = arg;
	Run			   *run = call->run;
	ContenderEntry *entry = entry_at(call->index);

	if (reply->outcome == CALL_OK && entry_generation(call->index) == call->generation)
	{
		SpinLockAcquire(&entry->mutex);
		entry->status.check_done = call->number;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}

	/* If an heir has taken the node's place, the session asks again, for that one. */
	if (run_call_end(run) && reply->outcome == CALL_NO_NODE &&
		strcmp(path_node(run->path, run->name), reply->asked->path) == 0)
		run_vanished(run);
	pfree(call);
}

/*
 * A holder about to commit wants to know that its node exists, from a quorum.
 * If the answer is lost, this is called again for the new connection.
 */
void
contender_check(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	CheckCall	   *call;
	EntryStatus		status;

	if (c->place != PLACE_GRANTED || !zk_client_connected())
		return;
	status = entry_status(entry_index(c));
	if (status.check_wanted == status.check_done)
		return;

	call = palloc(sizeof(CheckCall));
	*call = (CheckCall){.run = c->run,
						.index = entry_index(c),
						.generation = entry_generation(entry_index(c)),
						.number = status.check_wanted};
	run_call_begin(c->run);
	zk_call((ZkCall){.kind = ZK_CHECK,
					 .owner = entry_owner(entry),
					 .path = path_node(c->path, c->run->name)},
			on_checked, call);
}
