/*
 * lock_calls.c
 *		What the lock manager asks ZooKeeper, and what it makes of the answers.
 *
 * Each call counts as outstanding with its path, and its run if it has one,
 * until it is answered; neither is freed before.  A run that is of no more use
 * meanwhile is RUN_GONE and its replies are ignored.  Each reply handler
 * records what it learnt and ends in path_pump(), which decides what follows.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_table.h"

#define MAX_REPORTED_PATHS 1000

typedef struct CheckCall
{
	Run	  *run;
	int	   index; /* of the contender's entry */
	uint32 number;
	char   node[ZKLOCK_NODE_SIZE];
} CheckCall;

/*
 * ZooKeeper's counter of a path's children ends at 2^31 - 1.  What comes then
 * differs between releases, and clients differ in what order they see in it.
 * So tell the administrator at half of that, and take no lock near its end.
 */
#define SEQUENCE_WARNING (1 << 30)
#define SEQUENCE_LIMIT (PG_INT32_MAX - 1000000)

typedef struct ListCall
{
	LockPath *path;
	bool	  watch;
} ListCall;

/* ------------------------------------------------------------------------
 * Replies.  Each starts by settling the count of outstanding calls.
 * ------------------------------------------------------------------------
 */

void
run_call_begin(Run *run)
{
	run->calls++;
	run->path->calls++;
}

/* Returns false if the run is gone, in which case so may be its path. */
bool
run_call_end(Run *run)
{
	LockPath *path = run->path;

	run->calls--;
	path->calls--;
	if (run->state != RUN_GONE)
		return true;
	if (run->calls == 0)
		pfree(run);
	path_free_if_idle(path);
	return false;
}

/* The same for calls that are about the run's node, of which there is one at a time. */
void
run_node_call_begin(Run *run)
{
	run->calling = true;
	run_call_begin(run);
}

bool
run_node_call_end(Run *run)
{
	run->calling = false;
	return run_call_end(run);
}

/* What has been logged of a path; NULL if no more is to be. */
static ReportedPath *
reported_path(const LockPath *path)
{
	bool		  found;
	ReportedPath *reported;
	bool full = hash_get_num_entries(lock_manager.reported_paths) >= MAX_REPORTED_PATHS;

	reported = hash_search(lock_manager.reported_paths, path->path,
						   full ? HASH_FIND : HASH_ENTER, &found);
	if (!full && !found)
		reported->unrecognised = reported->sequence = false;
	return reported;
}

/* Logs that a path will need a new counter one day; each worker does so once. */
static void
report_sequence(const LockPath *path, int64 sequence)
{
	ReportedPath *reported = reported_path(path);

	if (reported == NULL || reported->sequence)
		return;
	reported->sequence = true;
	ereport(WARNING,
			(errmsg("half of the sequence numbers of ZooKeeper path \"%s\" are used up", path->path),
			 errdetail("The last one was " INT64_FORMAT ". From %d on, zklock refuses to lock the path.",
					   sequence, SEQUENCE_LIMIT),
			 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));
}

/*
 * The node exists: adopts its full name.  One that is numbered too high is
 * deleted again; nobody is served under it.
 */
void
run_created(Run *run, const char *name, int64 czxid)
{
	strlcpy(run->name, name, sizeof(run->name));
	if (!run_sequence(run, name, &run->sequence))
		elog(ERROR, "unexpected node name \"%s\"", name);
	run->czxid = czxid;
	run->state = RUN_CREATED;
	parents_forget(run->path);
	if (run->sequence >= SEQUENCE_WARNING)
		report_sequence(run->path, run->sequence);
	if (run->sequence < 0 || run->sequence >= SEQUENCE_LIMIT)
		run_fail(run, FAILURE_WORN_OUT, 0);
	run_publish(run);
}

/* The entry of the run's first contender, which speaks for the run */
const ContenderEntry *
run_first_entry(Run *run)
{
	return entry_of(dlist_head_element(Contender, node, &run->queue));
}

/* The reply to run_create()'s create; that to its listing follows. */
static void
on_created(void *arg, const ZkReply *reply)
{
	Run		 *run = arg;
	LockPath *path = run->path;

	if (!run_node_call_end(run))
		return;
	switch (reply->outcome)
	{
		case ZK_OK:
			if (reply->ephemeral_owner != lock_manager.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			run_created(run, strrchr(reply->path, '/') + 1, reply->czxid);
			break;
		case ZK_UNKNOWN:
			run->state = RUN_UNKNOWN;
			break;
		case ZK_NO_NODE:
			run->state = RUN_PLANNED;
			parents_missing(run, reply->code);
			break;
		case ZK_NODE_EXISTS:
			/* The counter has stopped at its end, where that node is. */
			run->state = RUN_PLANNED;
			run_fail(run, FAILURE_WORN_OUT, 0);
			break;
		default:
			/* A server that broke down may have created it all the same. */
			run->state = zk_error_is_breakdown(reply->code) ? RUN_UNKNOWN : RUN_PLANNED;
			run_fail(run, reply->outcome == ZK_NO_CHILDREN ? FAILURE_NO_CHILDREN : FAILURE_REFUSED,
					 reply->code);
			break;
	}
	path_pump(path);
}

/* The node to be deleted, be it the heir's or the run's own */
static char *
doomed_node(const Run *run)
{
	return node_path(run->path, run->heir[0] != '\0' ? run->heir : run->name);
}

/* That is gone.  Of a downgrade that was not settled, both nodes have to go. */
static void
run_node_gone(Run *run)
{
	if (run->heir[0] != '\0')
		run->heir[0] = '\0';
	else
		run_finish(run);
}

/* The reply to send_delete() */
static void
on_deleted(void *arg, const ZkReply *reply)
{
	Run		 *run = arg;
	LockPath *path = run->path;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		run_node_gone(run);
	else if (reply->outcome != ZK_UNKNOWN)
	{
		if (!run->delete_refused)
			ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s", path->path,
								 run->name, zk_error_name(reply->code)),
						  errdetail("Nobody can get this lock until the node is gone; the deletion is repeated.")));
		run->delete_refused = true;
		run->retry_at = zklock_now_ms() + RETRY_MS;
	}
	path_pump(path);
}

static void
send_delete(Run *run)
{
	char *node = doomed_node(run);

	run_node_call_begin(run);
	zk_delete(run_owner(run), node, on_deleted, run);
	pfree(node);
}

/* The node to be deleted, read to make sure that it is still ours. */
static void
on_identified(void *arg, const ZkReply *reply)
{
	Run		 *run = arg;
	LockPath *path = run->path;

	if (!run_node_call_end(run))
		return;
	if (reply->outcome == ZK_OK && reply->ephemeral_owner == lock_manager.session_id)
		send_delete(run);
	else if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		run_node_gone(run);
	else if (reply->outcome != ZK_UNKNOWN)
		run->retry_at = zklock_now_ms() + RETRY_MS;
	path_pump(path);
}

/* For the time being we cannot see to it that we hear of the node's end. */
static void
run_unguarded(Run *run)
{
	run->unguarded = true;
	run->guard_at = zklock_now_ms() + RETRY_MS;
}

/* Our own node, read to set a watch on it. */
static void
on_guarded(void *arg, const ZkReply *reply)
{
	Run		 *run = arg;
	LockPath *path = run->path;

	if (!run_call_end(run))
		return;
	own_watch_set(run, reply->outcome == ZK_OK ? WATCH_SET : WATCH_NONE);
	if (reply->outcome == ZK_OK)
		run->unguarded = false;
	if (reply->outcome == ZK_OK && reply->ephemeral_owner != lock_manager.session_id)
		run_usurped(run);
	else if (reply->outcome == ZK_NO_NODE)
		run_vanished(run);
	else if (reply->outcome != ZK_OK && reply->outcome != ZK_UNKNOWN)
		run_unguarded(run);
	path_pump(path);
}

/*
 * A predecessor is our session's.  If no run has it, or may yet find that it
 * has, it was left behind by mistake and would block us for ever.
 */
static void
path_delete_orphan(LockPath *path, const char *name)
{
	dlist_iter iter;
	char	  *node;

	dlist_foreach (iter, &path->runs)
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (run->state == RUN_CREATING || run->state == RUN_UNKNOWN ||
			strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return;
	}
	node = node_path(path, name);
	ereport(LOG, (errmsg("deleting ZooKeeper node \"%s\", which this server left behind", node)));
	zk_delete(ZK_WORKER, node, NULL, NULL);
	pfree(node);
}

/* The reply to contender_check() */
static void
on_checked(void *arg, const ZkReply *reply)
{
	CheckCall	   *call = arg;
	Run			   *run = call->run;
	LockPath	   *path = run->path;
	ContenderEntry *entry = entry_at(call->index);

	if (reply->outcome == ZK_OK)
	{
		SpinLockAcquire(&entry->mutex);
		entry->check_done = call->number;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}
	if (run_call_end(run))
	{
		if (reply->outcome == ZK_NO_NODE && strcmp(run->name, call->node) == 0)
			run_vanished(run);
		else if (reply->outcome == ZK_NO_NODE)
			contender_check(&lock_manager.contenders[call->index]); /* its heir */
		path_pump(path);
	}
	pfree(call);
}

/*
 * Logs, once, that a predecessor has outlived its session, one of ours.  Right
 * after the end of a session that may be so for a moment.
 */
static void
report_stale(const LockPath *path, const char *name, const ZkReply *reply)
{
	static int64 reported; /* czxid of the node reported last */

	if (reported == reply->czxid)
		return;
	reported = reply->czxid;
	ereport(LOG, (errmsg("node \"%s\" of lock \"%s\" belongs to ZooKeeper session 0x%llx of this server, which has ended",
						 name, path->path, (unsigned long long) reply->ephemeral_owner),
				  errhint("If it does not go away by itself, zk_remove_stale_node() removes it.")));
}

/* The predecessor, read to set a watch on it. */
static void
on_blocker(void *arg, const ZkReply *reply)
{
	Run		 *run = arg;
	LockPath *path = run->path;

	if (run->state != RUN_GONE && reply->outcome == ZK_OK)
	{
		blocker_watch_set(run, WATCH_SET);
		if (reply->ephemeral_owner == lock_manager.session_id)
			path_delete_orphan(path, run->blocker);
		else if (zklock_session_has_ended(reply->ephemeral_owner))
			report_stale(path, run->blocker, reply);
	}
	else
	{
		if (reply->outcome == ZK_NO_NODE)
			foreign_remove(path, run->blocker);
		else if (reply->outcome == ZK_REFUSED)
			run->blind = true;
		blocker_watch_give_up(run, reply->watching);
	}
	if (run_call_end(run))
		path_pump(path);
}

/*
 * Logs, once per path, that it has a child that may be meant as a contender.
 * Others are none, such as paths below this one.
 */
static void
report_unrecognised(const LockPath *path, const char *child)
{
	ReportedPath *reported = node_name_has_sequence(child) ? reported_path(path) : NULL;

	if (reported == NULL || reported->unrecognised)
		return;
	reported->unrecognised = true;
	ereport(LOG, (errmsg("ignoring child \"%s\" of lock path \"%s\"", child, path->path),
				  errdetail("Its name is not one that a known lock recipe writes.")));
}

/*
 * Takes in what a listing shows: the foreign contenders, and whether our own
 * nodes are there.  Replies come in order, so a run whose node is known by now
 * was created before the listing was made.
 */
static void
path_apply_listing(LockPath *path, const ZkReply *reply)
{
	dlist_mutable_iter miter;
	dlist_iter		   iter;
	RunIndex		   ours;

	foreign_clear(path);
	path->heirs_unknown = false;
	dlist_foreach (iter, &path->runs)
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (run->state == RUN_CREATED || run->state == RUN_GRANTED)
			run->listed = false;
		run->heir_seen = false;
	}

	run_index_make(&ours, path);
	if (reply->nchildren > 0)
	{
		path->foreign = palloc(reply->nchildren * sizeof(RecipeContender));
		path->foreign_names = palloc(reply->nchildren * sizeof(char *));
	}
	for (int i = 0; i < reply->nchildren; i++)
	{
		const char *child = reply->children[i];
		NodeName	parsed;
		Run		   *run;

		if (!node_name_parse(child, &parsed))
		{
			if (!path->has_permits)
				report_unrecognised(path, child);
			continue;
		}
		run = run_index_find(&ours, child, parsed.sequence);
		if (run)
		{
			if (strcmp(run->name, child) == 0)
				run->listed = true;
			else
				run->heir_seen = true;
			continue;
		}
		path->foreign[path->nforeign].sequence = parsed.sequence;
		path->foreign[path->nforeign].mode = parsed.mode;
		path->foreign_names[path->nforeign] = pstrdup(child);
		path->nforeign++;
	}
	if (path->has_permits)
		leases_set(path, reply, &ours);
	run_index_drop(&ours);

	dlist_foreach_modify (miter, &path->runs)
	{
		Run *run = dlist_container(Run, node, miter.cur);

		if (run->state != RUN_CREATED && run->state != RUN_GRANTED)
			continue;
		if (!run->listed && run->heir_seen)
			run_downgraded(run);
		if (!run->listed)
			run_deleted(run);
		else if (recipe_newer_exists(path->foreign, path->nforeign, run->sequence, run->mode))
			run->closed = true;
	}
}

/* The reply to path_list() */
static void
on_listed(void *arg, const ZkReply *reply)
{
	ListCall		  *call = arg;
	LockPath		  *path = call->path;
	dlist_mutable_iter iter;

	path->calls--;
	path->lists_done++;
	if (call->watch && reply->outcome == ZK_OK)
		child_watch_set(path, WATCH_SET);
	else if (call->watch && path->child_watch != WATCH_SET)
		child_watch_give_up(path, reply->watching);
	pfree(call);

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		path_apply_listing(path, reply);
		arrivals_place(path);
	}
	else if (reply->outcome != ZK_UNKNOWN)
	{
		dlist_foreach_modify (iter, &path->arrivals)
			contender_fail(dlist_container(Contender, node, iter.cur), FAILURE_REFUSED, reply->code);
		dlist_foreach_modify (iter, &path->runs)
		{
			Run *run = dlist_container(Run, node, iter.cur);

			run_fail(run, FAILURE_REFUSED, reply->code);
			if (run->heir[0] != '\0')
				run->retry_at = zklock_now_ms() + RETRY_MS;
		}
	}
	path_pump(path);
}

/* ------------------------------------------------------------------------
 * Calls
 * ------------------------------------------------------------------------
 */

/*
 * For whom the run's calls are made: the session whose turn it is, or which
 * was in it last.
 */
int
run_owner(const Run *run)
{
	dlist_head *queue = unconstify(dlist_head *, &run->queue);

	if (!dlist_is_empty(queue))
		return entry_of(dlist_head_element(Contender, node, queue))->pid;
	return run->record ? entry_of(run->record)->pid : ZK_WORKER;
}

/* Asks, for a session, for the path's children, if wanted with a watch on them. */
void
path_list(LockPath *path, int owner, bool watch)
{
	ListCall *call = palloc(sizeof(ListCall));

	call->path = path;
	call->watch = watch;
	path->calls++;
	path->lists_sent++;
	if (watch && path->child_watch == WATCH_NONE)
		child_watch_set(path, WATCH_ASKED);
	zk_list(owner, path->path, watch, on_listed, call);
}

/* Sends create and, right behind it, a listing. */
void
run_create(Run *run)
{
	const ContenderEntry *head = run_first_entry(run);
	uint8				  uuid[ZKLOCK_UUID_BYTES];
	char				 *path;

	if (!pg_strong_random(uuid, sizeof(uuid)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	uuid[6] = (uuid[6] & 0x0f) | 0x40; /* version 4 */
	uuid[8] = (uuid[8] & 0x3f) | 0x80; /* variant 1 */
	if (run->permit)
		lease_name_prefix(run->name, sizeof(run->name), head->permits, uuid);
	else
		node_name_prefix(run->name, sizeof(run->name), run->dialect, run->mode, uuid);

	run_account_node(run);
	run->state = RUN_CREATING;
	run->listed = false;
	run_publish(run);
	run_node_call_begin(run);
	path = node_path(run->path, run->name);
	zk_create(head->pid, path, head->data, ZK_EPHEMERAL_SEQUENTIAL, on_created, run);
	pfree(path);
	path_list(run->path, head->pid, true);
}

/*
 * Deletes the run's node, or what may have taken its place.  A delete may be
 * one too many, after a lost reply or a restart of the worker, so a name that
 * may be somebody else's by now is looked at first.
 */
void
run_delete(Run *run)
{
	char *node;

	if (run->dialect != DIALECT_HIVE)
	{
		send_delete(run);
		return;
	}
	node = doomed_node(run);
	run_node_call_begin(run);
	zk_get(run_owner(run), node, false, on_identified, run);
	pfree(node);
}

/* Makes sure that we hear of it should someone delete the run's node. */
void
run_guard(Run *run)
{
	LockPath *path = run->path;
	size_t	  bytes = path_bytes(path, run->name);
	char	 *node;

	if (run->own_watch != WATCH_NONE || (run->unguarded && !retry_is_due(run->guard_at)) ||
		(path->child_watch != WATCH_NONE && !run->delete_refused))
		return;
	if (lock_manager.watch_bytes + bytes > SESSION_BUDGET)
	{
		run_unguarded(run);
		return;
	}
	own_watch_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = node_path(path, run->name);
	zk_get(run_owner(run), node, true, on_guarded, run);
	pfree(node);
}

/* Watches a foreign predecessor. */
void
run_watch_blocker(Run *run, const char *name)
{
	char *node;

	if (run->blocker)
	{
		/* Should it be another one, the reply or event will bring us back. */
		if (strcmp(run->blocker, name) == 0 || run->blocker_watch == WATCH_ASKED)
			return;
		blocker_watch_set(run, WATCH_NONE);
	}
	if (lock_manager.watch_bytes + path_bytes(run->path, name) > SESSION_BUDGET)
	{
		run_fail(run, FAILURE_SESSION_FULL, 0);
		return;
	}
	run->blocker = pstrdup(name);
	blocker_watch_set(run, WATCH_ASKED);
	run_call_begin(run);
	node = node_path(run->path, name);
	zk_get(run_owner(run), node, true, on_blocker, run);
	pfree(node);
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
	uint32			number;
	bool			wanted;
	char		   *node;

	if (!c->granted || !zk_client_connected())
		return;
	SpinLockAcquire(&entry->mutex);
	number = entry->check_wanted;
	wanted = number != entry->check_done;
	SpinLockRelease(&entry->mutex);
	if (!wanted)
		return;

	call = palloc(sizeof(CheckCall));
	call->run = c->run;
	call->index = entry_index(c);
	call->number = number;
	strlcpy(call->node, c->run->name, sizeof(call->node));
	run_call_begin(c->run);
	node = node_path(c->path, call->node);
	zk_check(entry->pid, node, on_checked, call);
	pfree(node);
}
