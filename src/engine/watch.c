/*
 * watch.c
 *		Watches that report the end of a node: ours, or that for which a cohort waits.
 *
 * Someone else might delete a node of ours, and its holder must hear of it.  While the child
 * watch stands, it reports any change below the path; when that has fired, the node gets a
 * watch of its own.  So an uncontended lock needs no request for one.  A cohort that waits for
 * another client's contender watches that contender's node.  A holder about to commit may
 * also have a quorum asked for its node.
 *
 * Reusable names
 * ----------------
 *
 * Hive's names, those of elections with names "zookeeper", and the one name of an element's
 * claim are given again when a path, or node, has been deleted and created again.  What goes
 * by such a name proves nothing: a listing, a child watch, whose event is used up by anything
 * else, or an event of an earlier connection, which reports a change where one node has taken
 * the place of another.  The node is the cohort's if it has been read on this connection, is
 * our session's, and has the cohort's czxid (cohort_owns()): no two nodes of a name have the
 * same.  The read sets a watch on the node, so from its reply on we hear of the node's end
 * before anything that follows.  A new connection makes that void.  Until then
 *
 *	- nobody is granted under the node (watch_covers());
 *	- those behind it wait, as it may be another client's, even if nobody is in its cohort's
 *	  queue any more (peers.c);
 *	- it is not deleted or replaced (cohort_with_own_node(), cohort_plan()).
 *
 * It does not matter whose it was when the path was listed: if it is ours now it was ours
 * then, as our nodes are listed after their creation.
 *
 * ZooKeeper's check goes by the name, too, and a new node has the version 0 like the one
 * before.  So when a check was committed, the node is looked at once more.  The reply is of
 * a state that includes the check: a session's requests are executed in their order, and a
 * server with an older state does not accept our connection.  If it shows our node, with the
 * czxid with which it was created, then the node was there when the check was committed, too,
 * as an old czxid never comes back.
 *
 * paths_internal.h draws a watch's life, accounts.c counts its bytes.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* Between messages about orphans whose deletion is refused */
#define REFUSED_PAUSE_MS 60000

typedef struct CheckCall
{
	Cohort *cohort;
	int		index;		/* of the contender's entry */
	uint32	generation; /* of that: if it has changed, the contender is gone */
	uint32	number;
} CheckCall;

/*
 * Returns true if we would hear, or have heard, of a deletion of the cohort's node by someone
 * else.  A watch that ZooKeeper refuses is no reason to wait for it (path.c).
 */
bool
watch_covers(const Cohort *cohort)
{
	return cohort->own_watch == WATCH_SET || cohort->own_watch == WATCH_REFUSED ||
		   (cohort->path->child_watch == WATCH_SET && !cohort_name_is_reusable(cohort));
}

/* Returns true if the node that has the cohort's name is known to be the cohort's. */
bool
cohort_is_identified(const Cohort *cohort)
{
	return !cohort_name_is_reusable(cohort) || watch_covers(cohort);
}

/* Counts a reply about our own node.  Returns false if the cohort, or that node, is gone. */
static bool
own_call_end(Cohort *cohort, const ZkReply *reply)
{
	/*
	 * A downgraded node, the shared node that replaces an exclusive one, may have taken its
	 * place.
	 */
	return cohort_call_end(cohort) &&
		   strcmp(path_node(cohort->path, cohort->name), reply->asked->path) == 0;
}

/* Handles the reply about our own node, which is looked at because it cannot be watched. */
static void
on_own_looked(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!own_call_end(cohort, reply))
		return;
	watch_own_set(cohort, reply->outcome == CALL_OK ? WATCH_REFUSED : WATCH_NONE);
	(void) cohort_confirmed(cohort, reply);
}

/*
 * Takes note that for the time being no watch can report the node's end.  ZooKeeper before
 * 3.9.3 shows all the same whose the node is; a reusable name is of no use without that.
 */
static void
watch_own_refused(Cohort *cohort)
{
	cohort->own_watch_at = zklock_now_ms() + RETRY_MS;
	watch_own_set(cohort, cohort_name_is_reusable(cohort) ? WATCH_ASKED : WATCH_REFUSED);
	if (cohort_name_is_reusable(cohort))
		cohort_call(cohort,
					(ZkCall){.kind = ZK_EXISTS, .path = path_node(cohort->path, cohort->name)},
					on_own_looked);
}

/*
 * Handles the reply about our own node, which is read to set a watch on it.  If that node is
 * gone, the name may be another client's by now, so the watch that was set is not ours.
 */
static void
on_own_watched(void *arg, const ZkReply *reply)
{
	Cohort	   *cohort = arg;
	const Path *path = cohort->path;

	if (!own_call_end(cohort, reply))
	{
		if (reply->outcome == CALL_OK)
			watch_remove(path, strrchr(reply->asked->path, '/') + 1);
		return;
	}
	if (reply->outcome == CALL_REFUSED)
	{
		watch_own_refused(cohort);
		return;
	}
	watch_own_set(cohort, reply->outcome == CALL_OK ? WATCH_SET : WATCH_NONE);
	if (cohort_confirmed(cohort, reply) && node_contender_is_broken(reply->data, reply->data_length))
		entries_expect_deletion(cohort->id, LOSS_BROKEN);
}

/*
 * Makes sure that we hear of it if someone deletes the cohort's node.  The child watch does
 * while it stands, unless the name is reusable.  But it fires when the contender goes for
 * which the cohort waits, and nothing is to be asked then, so a cohort that waits for another
 * client has a watch of its own, when it is known that the other one has not gone already: if
 * it has, a listing follows.  A session that may not delete its node does not see from the
 * reply whether the node still exists, and needs the watch in any case.
 */
void
watch_own(Cohort *cohort)
{
	Path *path = cohort->path;
	bool  refused = cohort->state == COHORT_DELETING && cohort->refused_in == COHORT_DELETING;
	bool  covered =
		!refused && !cohort_name_is_reusable(cohort) &&
		(cohort->blocker ? cohort->blocker_watch == WATCH_ASKED : watch_exists(path->child_watch));

	if (watch_exists(cohort->own_watch) || covered || !engine_retry_is_due(cohort->own_watch_at))
		return;
	if (!watch_has_room(path, cohort->name, NULL))
	{
		watch_own_refused(cohort);
		return;
	}
	watch_own_set(cohort, WATCH_ASKED);
	cohort_call(cohort,
				(ZkCall){.kind = ZK_GET_DATA, .path = path_node(path, cohort->name), .watch = true},
				on_own_watched);
}

/* Handles the reply to the deletion of an orphan. */
static void
on_orphan_deleted(void *arg, const ZkReply *reply)
{
	static int64 log_at; /* no message before, ms */

	const char *node = reply->asked->path;

	if (reply->outcome == CALL_OK)
		ereport(LOG, (errmsg("deleted ZooKeeper node \"%s\", which this server left behind", node)));
	else if (reply->outcome != CALL_NO_NODE && reply->outcome != CALL_UNKNOWN && zklock_now_ms() >= log_at)
	{
		log_at = zklock_now_ms() + REFUSED_PAUSE_MS;
		ereport(LOG,
				(errmsg("could not delete ZooKeeper node \"%s\": %s", node, zk_error_name(reply->code)),
				 errdetail("This server left it behind; it blocks others, and the deletion is repeated.")));
	}
}

/*
 * Deletes a node that is in the way of others and our session's, unless a cohort has it, or may
 * yet find that it has.  It was left behind by mistake and would block us for ever, so it is
 * looked at again as long as it is there.
 */
static void
delete_orphan(Path *path, const char *name)
{
	if (ZKLOCK_FAULT("orphan") || !zk_client_connected())
		return;
	if (path->orphans_at == 0)
		path->orphans_at = zklock_now_ms() + RETRY_MS;
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->state == COHORT_CREATING || strcmp(cohort->name, name) == 0 ||
			strcmp(cohort->downgraded_name, name) == 0)
			return;
	}
	zk_call((ZkCall){.kind = ZK_DELETE, .path = path_node(path, name)}, on_orphan_deleted, NULL);
}

/* Handles the reply about the predecessor, which is read to set a watch on it. */
static void
on_blocker_watched(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;
	Path   *path = cohort->path;

	if (cohort->state != COHORT_GONE && reply->outcome == CALL_OK)
	{
		watch_blocker_set(cohort, WATCH_SET);
		cohort->blocker_announces = node_contender_has_version(reply->data, reply->data_length);
		if (reply->stat.ephemeral_owner == engine.session_id)
			delete_orphan(path, cohort->blocker);
		else if (session_info_has_ended(reply->stat.ephemeral_owner))
			report_stale(path, cohort->blocker, reply);
	}
	else
	{
		if (reply->outcome == CALL_NO_NODE)
			path_foreign_remove(path, cohort->blocker, DOWNGRADE_POSSIBLE);
		if (reply->watching)
			watch_blocker_set(cohort, WATCH_SET);
		watch_blocker_give_up(cohort, reply->outcome == CALL_REFUSED ? WATCH_REFUSED : WATCH_NONE);
	}
	(void) cohort_call_end(cohort);
}

static void on_owner_read(void *arg, const ZkReply *reply);

/* Looks whose the next of other clients' contenders is. */
static void
look_at_next(Path *path, ZkOwner owner)
{
	const char *name = path->foreign[path->orphans_next++].name;

	path->calls++;
	zk_call((ZkCall){.kind = ZK_EXISTS, .owner = owner, .path = path_node(path, name)},
			on_owner_read, path);
}

/*
 * Handles the reply to look_at_next(), and goes on with the one behind it.  The round ends
 * early if nobody is left who could wait.  A listing that comes meanwhile may have a few left
 * out; the next round finds them.
 */
static void
on_owner_read(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path->calls--;
	if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner == engine.session_id)
		delete_orphan(path, strrchr(reply->asked->path, '/') + 1);
	if (path->orphans_next < path->nforeign && cohort_first(path) && zk_client_connected())
	{
		look_at_next(path, reply->asked->owner);
		return;
	}
	path->orphans_at = zklock_now_ms() + RETRY_MS;
	path->orphans_next = 0;
	path_mark(path);
}

/*
 * Looks for orphans of ours among other clients' contenders, on behalf of a cohort that has
 * waited for long: one that watches none of them by itself, or has found one.  Others decide
 * how many there are, so they are looked at one after the other, for all cohorts of the path,
 * and each reply leads to the next look without a look at the path.
 */
void
watch_for_orphans(const Cohort *cohort)
{
	Path *path = cohort->path;

	if (path->orphans_at == 0)
		path->orphans_at = zklock_now_ms() + RETRY_MS;
	if (!engine_retry_is_due(path->orphans_at))
		return;
	path->orphans_at = NEVER;
	look_at_next(path, cohort_owner(cohort));
}

/* Watches another client's contender. */
void
watch_blocker(Cohort *cohort, const char *name)
{
	if (cohort->blocker)
	{
		/* If it is another one, the reply or event will bring us back. */
		if (strcmp(cohort->blocker, name) == 0 || cohort->blocker_watch == WATCH_ASKED)
			return;
		watch_blocker_set(cohort, WATCH_NONE);
	}
	if (!watch_has_room(cohort->path, name, entry_of(cohort_head(cohort))))
	{
		cohort_fail(cohort, FAILURE_SESSION_FULL, 0);
		return;
	}
	cohort->blocker = pstrdup(name);
	watch_blocker_set(cohort, WATCH_ASKED);
	cohort_call(cohort,
				(ZkCall){.kind = ZK_GET_DATA, .path = path_node(cohort->path, name), .watch = true},
				on_blocker_watched);
}

/* ------------------------------------------------------------------------
 * Proof for a commit
 * ------------------------------------------------------------------------
 */

/* Asks about the node of the cohort, which goes by its name as it is now. */
static void
check_call(CheckCall *call, ZkOperation kind, ZkReplyHandler handler)
{
	Cohort *cohort = call->cohort;

	cohort_call_begin(cohort);
	zk_call((ZkCall){.kind = kind,
					 .owner = entry_owner(entry_at(call->index)),
					 .path = path_node(cohort->path, cohort->name)},
			handler, call);
}

/*
 * Ends a check, and makes the next one if another number has been asked for meanwhile.  If the
 * node has passed, reports that to the session that asked.
 */
static void
check_end(CheckCall *call, bool passed)
{
	Contender *c = &engine.contenders[call->index];
	Entry	  *entry = entry_of(c);
	bool	   current = entry_generation(call->index) == call->generation;

	if (passed && current)
	{
		SpinLockAcquire(&entry->mutex);
		entry->status.check_done = call->number;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}
	c->checking = false;
	if (!current || entry_status(call->index).check_wanted != call->number)
		contender_check(c);
	pfree(call);
}

/*
 * Handles the reply about a node whose name passed a check, and which is looked at after it.
 */
static void
on_check_looked(void *arg, const ZkReply *reply)
{
	CheckCall *call = arg;

	check_end(call, own_call_end(call->cohort, reply) && cohort_confirmed(call->cohort, reply));
}

/*
 * Handles the reply to contender_check().  If a downgraded node has taken the node's place,
 * the session asks again.
 */
static void
on_node_checked(void *arg, const ZkReply *reply)
{
	CheckCall *call = arg;
	Cohort	  *cohort = call->cohort;
	bool	   reusable = cohort_name_is_reusable(cohort);
	bool	   current = own_call_end(cohort, reply);

	if (reply->outcome == CALL_OK && current && reusable)
	{
		check_call(call, ZK_EXISTS, on_check_looked);
		return;
	}
	if (reply->outcome == CALL_NO_NODE && current)
		cohort_end(cohort, END_MISSING);
	check_end(call, reply->outcome == CALL_OK && !reusable);
}

/*
 * Asks a quorum whether the node of a holder about to commit exists, if its session wants to
 * know.  A session may ask again as often as it likes, so one check for an entry is under way
 * at a time.  If the reply is lost, this is called again for the new connection.
 */
void
contender_check(Contender *c)
{
	CheckCall  *call;
	EntryStatus status;

	if (c->place != PLACE_GRANTED || c->checking || !zk_client_connected())
		return;
	status = entry_status(entry_index(c));
	if (status.check_wanted == status.check_done)
		return;

	c->checking = true;
	call = palloc(sizeof(CheckCall));
	*call = (CheckCall){.cohort = c->cohort,
						.index = entry_index(c),
						.generation = entry_generation(entry_index(c)),
						.number = status.check_wanted};
	check_call(call, ZK_CHECK, on_node_checked);
}
