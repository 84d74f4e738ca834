/*
 * node.c
 *		Creating, finding and deleting a cohort's node.
 *
 * Reply handlers finish the step that they belong to; path.c decides whom to grant.
 *
 * A reply may be lost with the connection after ZooKeeper has created the node; its outcome is
 * CALL_UNKNOWN.  The cohort stays CREATING.  When a quorum has committed a check on the next
 * connection (session.c), the create has been executed or never will be.  A listing then shows
 * whether a node exists that may be it, and the node's owner whether it is.  If there is none,
 * those that wait go on in a new cohort, which sends a create of its own.  A name with a UUID
 * fits one node at most.  Each node of the name is looked at if it has no UUID: our session
 * creates one node of a path at a time, so the one that it owns and that is no other cohort's
 * is the one.
 *
 * A contender that goes to the end of the queue, as a leader that resigns, must not be out of it
 * for a moment, nor seem to be in it twice.  So one multi creates the new node and deletes the
 * old one, both or none.  The old cohort waits in COHORT_DELETING (cohort->replaced_by) for the
 * reply:
 *
 *		done			the old cohort is over; the reply does not contain the new node's
 *						sequence, so a listing finds the node
 *		not answered	the same, but the old cohort stays until the new node is found; if
 *						it is not, the multi is sent again
 *		no node			the old node is gone: the new cohort goes on without it
 *		refused			those in the new cohort get an error, and the old node is deleted
 *						like any other
 *
 * A worker that takes over finds both entries, one of which names the other, and both cohorts;
 * session.c ties them together again.  A node of our session other than the old one is the new
 * one, if names have no UUID.
 *
 * cohort_node_call_end(), first in each handler, returns false if the cohort is gone.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "fault.h"
#include "zk/zk_client.h"

/* Pause before we find out what a server has done that broke down */
#define BREAKDOWN_MS 1000

/* Other creates may be refused, too, for so long after one whose path does not exist. */
#define MISSING_MS 1000

static int64 missing_until; /* ms */

/* ------------------------------------------------------------------------
 * Create
 * ------------------------------------------------------------------------
 */

/*
 * Handles a refused create.  Nothing was created, as far as is known, and those who wait for
 * the node get an error.
 */
static void
create_refused(Cohort *cohort, const ZkReply *reply)
{
	bool	fixed_name = cohort->path->recipe->fixed_name;
	Failure failure = FAILURE_REFUSED;

	/*
	 * A server that broke down may have created it all the same, so the cohort stays CREATING
	 * until that is found out.  The claim of an element is refused only then.
	 */
	if (!zk_error_is_breakdown(reply->code))
		cohort_planned(cohort);
	else if (fixed_name)
	{
		cohort->retry_at = zklock_now_ms() + BREAKDOWN_MS;
		return;
	}

	/* A node whose name has a sequence exists if the counter has stopped at its end. */
	if (reply->outcome == CALL_NODE_EXISTS)
		failure = fixed_name ? FAILURE_BUSY : FAILURE_WORN_OUT;
	else if (reply->outcome == CALL_NO_CHILDREN)
		failure = FAILURE_NO_CHILDREN;
	cohort_fail(cohort, failure, reply->code);
}

/* Handles the reply to cohort_create()'s create; that to its listing follows. */
static void
on_node_created(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	switch (reply->outcome)
	{
		case CALL_OK:
			if (reply->stat.ephemeral_owner != engine.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			cohort_created(cohort, strrchr(reply->path, '/') + 1, reply->stat.czxid);
			parents_exist(cohort->path);
			break;
		case CALL_UNKNOWN: /* cohort_pump() has the node looked for */
			if (ZKLOCK_FAULT("orphan"))
				cohort_end(cohort, END_NOT_CREATED);
			break;
		case CALL_NO_NODE:
			missing_until = zklock_now_ms() + MISSING_MS;
			cohort_planned(cohort);
			parents_missing(cohort, reply->code);
			break;
		default:
			create_refused(cohort, reply);
			break;
	}
}

/* Handles the reply to the multi that creates one node in place of another. */
static void
on_replaced(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	if (reply->outcome == CALL_NO_NODE)
		cohort_planned(cohort);
	else if (reply->outcome != CALL_OK && reply->outcome != CALL_UNKNOWN)
		create_refused(cohort, reply);
	if (cohort->replaces && (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE))
		cohort_end(cohort->replaces, END_DELETED);
}

/* Returns a new random UUID, marked with a version.  Drawing many at once is much cheaper. */
static const uint8 *
new_uuid(int version)
{
	static uint8 drawn[64][ZKLOCK_UUID_BYTES];
	static int	 left = 0;
	uint8		*uuid;

	if (left == 0)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(drawn);
	}
	uuid = drawn[--left];
	uuid[6] = (uuid[6] & 0x0f) | version << 4;
	uuid[8] = (uuid[8] & 0x3f) | 0x80; /* variant 1 */
	return uuid;
}

/*
 * Creates the cohort's node, whose name has never been used if it has a UUID.  A listing
 * follows right behind; its watch reports all that comes later.
 *
 * The create may go out together with those of other paths, unless the name is reusable, since
 * a lost reply is settled by the name.  One that is refused for want of its path ends that for
 * a while, except where the path has just been created.
 */
void
cohort_create(Cohort *cohort)
{
	Path  *path = cohort->path;
	ZkCall create = {.kind = ZK_CREATE,
					 .data = entry_of(cohort_head(cohort))->data,
					 .node_kind = path->recipe->fixed_name ? ZK_EPHEMERAL : ZK_EPHEMERAL_SEQUENTIAL};

	cohort->may_keep = kept_later(cohort);
	path->recipe->write(cohort->name, sizeof(cohort->name), &cohort->request,
						new_uuid(cohort->may_keep ? UUID_VERSION_KEPT : UUID_VERSION_RANDOM));
	cohort_creating(cohort);
	create.path = path_node(path, cohort->name);
	if (cohort->replaces)
	{
		create.kind = ZK_REPLACE;
		create.replaced = path_node(path, cohort->replaces->name);
		create.version = ZK_ANY_VERSION;
		cohort_node_call(cohort, create, on_replaced);
	}
	else
	{
		bool exists = parents_create_ahead(cohort) || path->parents_attempts > 0;

		create.followed = true;
		create.patient =
			!cohort_name_is_reusable(cohort) && (exists || zklock_now_ms() >= missing_until);
		cohort_node_call(cohort, create, on_node_created);
		path_list(path, cohort_owner(cohort), LIST_AND_WATCH);
	}
}

/* ------------------------------------------------------------------------
 * Find
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if ZooKeeper refuses to show whether the node of a cohort was created.  Nobody
 * knows how long it does, so those behind it do not wait.
 */
bool
cohort_is_hidden(const Cohort *cohort)
{
	return cohort->state == COHORT_CREATING && cohort->list_error != 0 &&
		   zk_error_outcome(cohort->list_error) != CALL_UNKNOWN;
}

/*
 * Ends a search that has not found the node.  If ZooKeeper refuses to show it, contenders that
 * wait for it get an error; but it may exist, so the search is repeated, so as not to leave it
 * behind.
 */
static void
end_find_node(Cohort *cohort)
{
	if (cohort->list_error == 0)
		cohort_end(cohort, END_NOT_CREATED);
	else if (cohort_is_hidden(cohort))
	{
		cohort_fail(cohort, FAILURE_REFUSED, cohort->list_error);
		cohort->retry_at = zklock_now_ms() + RETRY_MS;
	}
}

/* Returns true if a node of our session is another cohort's. */
static bool
is_of_other(const Cohort *cohort, const char *child, const NodeStat *stat)
{
	const Cohort *other = cohort_by_name(cohort->path, child);

	return other && (strcmp(other->downgraded_name, child) == 0 || cohort_owns(other, stat));
}

/*
 * Handles the reply about a node that may be the cohort's, which it is if it is this session's
 * and no other cohort's.
 */
static void
on_found(void *arg, const ZkReply *reply)
{
	Cohort	   *cohort = arg;
	const char *child;

	if (!cohort_node_call_end(cohort) || cohort->state != COHORT_CREATING)
		return;
	child = strrchr(reply->asked->path, '/') + 1;
	if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner == engine.session_id &&
		!is_of_other(cohort, child, &reply->stat))
	{
		cohort_created(cohort, child, reply->stat.czxid);
		parents_exist(cohort->path);
		return;
	}
	if (reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		cohort->list_error = reply->code;
	if (cohort->node_calls == 0)
		end_find_node(cohort);
}

/*
 * Returns true if a child of the path may be the node that was to be created for the cohort.
 */
static bool
may_be_node(const Cohort *cohort, const char *child)
{
	RecipePeer peer;

	return strlen(child) < sizeof(cohort->name) && cohort->path->recipe->read(child, &peer) &&
		   peer.numbered && strncmp(child, cohort->name, strlen(cohort->name)) == 0 &&
		   (cohort_name_is_reusable(cohort) || cohort_by_name(cohort->path, child) == NULL);
}

/* Handles the listing that shows whether a create was executed whose reply was lost. */
static void
on_children_listed(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	cohort->list_error =
		reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE ? 0 : reply->code;
	for (int i = 0; reply->outcome == CALL_OK && i < reply->nchildren; i++)
	{
		if (may_be_node(cohort, reply->children[i]))
			cohort_node_call(cohort,
							 (ZkCall){.kind = ZK_EXISTS,
									  .path = path_node(cohort->path, reply->children[i])},
							 on_found);
	}
	if (cohort->node_calls == 0)
		end_find_node(cohort);
}

/* Asks whether the node exists whose create was not answered. */
void
cohort_find_node(Cohort *cohort)
{
	cohort_node_call(cohort,
					 (ZkCall){.kind = ZK_GET_CHILDREN, .path = cohort->path->path, .bulky = true},
					 on_children_listed);
}

/* ------------------------------------------------------------------------
 * Touch and delete
 * ------------------------------------------------------------------------
 */

/* Handles the reply to look_for_element(). */
static void
on_element_seen(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	if (reply->outcome == CALL_OK)
		report_unremoved(cohort->path, LOSS_DELETED);
	if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
		cohort_gone(cohort);
	else if (reply->outcome != CALL_UNKNOWN)
		cohort->retry_at = zklock_now_ms() + RETRY_MS;
}

/*
 * Looks whether an element still exists that was to be deleted with its claim, which is gone.
 */
static void
look_for_element(Cohort *cohort)
{
	cohort_node_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = cohort->path->path}, on_element_seen);
}

/*
 * Returns true if the node that was read by the cohort's name exists and is the cohort's.  If
 * it is not, the cohort's is gone.
 */
bool
cohort_confirmed(Cohort *cohort, const ZkReply *reply)
{
	if (reply->outcome == CALL_OK && cohort_owns(cohort, &reply->stat))
		return true;
	if (reply->outcome == CALL_OK)
		cohort_end(cohort, END_NAME_REUSED);
	else if (reply->outcome == CALL_NO_NODE)
		cohort_end(cohort, END_MISSING);
	return false;
}

/* Handles the reply about a node that is looked at before something is done with it. */
static void
on_identified(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	if (cohort_consumes(cohort) && (reply->outcome == CALL_NO_NODE ||
									(reply->outcome == CALL_OK && !cohort_owns(cohort, &reply->stat))))
		look_for_element(cohort);
	else if (cohort_confirmed(cohort, reply))
		cohort->step(cohort);
	else if (reply->outcome == CALL_REFUSED && cohort_refused(cohort))
		ereport(LOG, (errmsg("could not look at ZooKeeper node \"%s/%s\": %s",
							 cohort->path->path, cohort->name, zk_error_name(reply->code)),
					  errdetail("Nobody can get this %s until that succeeds; it is repeated.",
								cohort->path->recipe->name)));
}

/*
 * Has something done with the cohort's node.  After a lost reply or a restart of the worker, a
 * request may be one too many, so a node whose name may be somebody else's by now is looked at
 * first, unless a watch would have reported that.  ZooKeeper before 3.9.3 shows whose the node
 * is to those who may not read it, too.
 */
void
cohort_with_own_node(Cohort *cohort, CohortStep step)
{
	if (!cohort_name_is_reusable(cohort) || cohort->own_watch == WATCH_SET)
	{
		step(cohort);
		return;
	}
	cohort->step = step;
	cohort_node_call(cohort,
					 (ZkCall){.kind = ZK_EXISTS, .path = path_node(cohort->path, cohort->name)},
					 on_identified);
}

/* Handles the reply to send_delete(). */
static void
on_node_deleted(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;

	if (!cohort_node_call_end(cohort))
		return;
	cohort->listed = false;
	if (reply->outcome == CALL_NO_NODE && cohort_consumes(cohort))
		look_for_element(cohort);
	else if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
		cohort_gone(cohort);
	else if (reply->outcome != CALL_UNKNOWN && cohort_refused(cohort))
		ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s",
							 cohort->path->path, cohort->name, zk_error_name(reply->code)),
					  errdetail("Nobody can get this %s until the node is gone; the deletion is repeated.",
								cohort->path->recipe->name)));
}

/*
 * Sends the deletion of the cohort's node.  It may wait for others, and be sent with them,
 * unless another client may wait for it, as far as is known, the name may become another
 * client's meanwhile, or the deletion has been refused.
 */
static void
send_delete(Cohort *cohort)
{
	ZkCall delete = {.kind = ZK_DELETE, .path = path_node(cohort->path, cohort->name)};

	if (cohort_consumes(cohort))
		delete.also_deleted = cohort->path->path;
	else
		delete.patient = cohort->path->nforeign == 0 && cohort->path->child_watch == WATCH_SET &&
						 !cohort_name_is_reusable(cohort) && cohort->refused_in != cohort->state;
	cohort_node_call(cohort, delete, on_node_deleted);
}

/* Deletes the cohort's node. */
void
cohort_delete(Cohort *cohort)
{
	cohort_with_own_node(cohort, send_delete);
}
