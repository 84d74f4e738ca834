/*
 * deadlock.c
 *		Deadlocks across servers: what the worker does for the session that searches.
 *
 * It tells that session for which entries others matter, as far as the engine knows,
 * and keeps this server's record in ZooKeeper (shared/search.c).  A record is an
 * ephemeral node below WAIT_RECORD_ROOT that is never changed: a new one takes its
 * place, and then the old one is deleted.  When nobody searches any more, it is.
 *
 *	wanted				-> create, until it exists
 *	not wanted			-> delete, until it surely does not; then its place is free
 *	of another session	-> gone with that
 *
 * Both calls are repeated until their answer is known, which settles lost replies:
 * the name is the same, and nobody else's.
 *
 * Runs in: the worker.  shared/search.h says what is shared, and under which lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/queue.h"
#include "shared/common.h"
#include "shared/search.h"
#include "shared/settings.h"
#include "storage/proc.h"
#include "worker/inside.h"
#include "zk/zk_call.h"

/* A deletion that was refused is tried again so much later. */
#define RETRY_MS 5000

static bool	 is_pending[SEARCH_RECORDS]; /* a call about it is under way */
static int64 retry_at = -1;				 /* no deletion before, ms */
static bool	 refusal_is_told; /* the log has been told that nothing can be published */

/* Answers the question for which entries others matter, if it is asked. */
static void
answer_question(void)
{
	DeadlockSearch *search = deadlock_search;
	int				searcher = ENTRY_NONE;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	if (search->answer != search->question)
	{
		memset(&search->signs, 0, sizeof(search->signs));
		search->signs.deadlock_timeout = DeadlockTimeout;
		for (int i = 0; i < entries_max(); i++)
		{
			if (queue_waits_abroad(i))
				search->signs.abroad[i / 8] |= 1 << (i % 8);
			if (queue_is_wanted_abroad(i))
				search->signs.coveted[i / 8] |= 1 << (i % 8);
		}
		search->answer = search->question;
		searcher = search->searcher;
	}
	LWLockRelease(search_lock);
	if (searcher != ENTRY_NONE)
		entry_set_owner_latch(entry_at(searcher));
}

/* ------------------------------------------------------------------------
 * Our record
 * ------------------------------------------------------------------------
 */

/* There is surely no such node. */
static void
record_is_gone(int index)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	deadlock_search->records[index].wanted = false;
	deadlock_search->records[index].name[0] = '\0';
	LWLockRelease(search_lock);
}

static void
record_exists(int index)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	deadlock_search->records[index].exists = true;
	LWLockRelease(search_lock);
	refusal_is_told = false;
}

/* ZooKeeper refuses: the session that searches may try again. */
static void
record_is_refused(int index, const char *what, int code)
{
	record_is_gone(index);
	if (!refusal_is_told)
		ereport(LOG, (errmsg("could not %s ZooKeeper node \"%s\": %s", what, WAIT_RECORD_ROOT,
							 zk_error_name(code)),
					  errdetail("Deadlocks across servers are not found."),
					  errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
	refusal_is_told = true;
}

static void
on_root_created(void *arg, const ZkReply *reply)
{
	int index = (int) (intptr_t) arg;

	is_pending[index] = false;
	if (reply->outcome == ZK_REFUSED)
		record_is_refused(index, "create", reply->code);
}

static void
on_created(void *arg, const ZkReply *reply)
{
	int index = (int) (intptr_t) arg;

	is_pending[index] = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NODE_EXISTS)
		record_exists(index);
	else if (reply->outcome == ZK_NO_NODE && zklock_parent_nodes != PARENTS_EXISTING)
	{
		is_pending[index] = true;
		zk_call((ZkCall){.kind = ZK_CREATE,
						 .path = WAIT_RECORD_ROOT,
						 .node_kind = zklock_parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT
																				: ZK_CONTAINER},
				on_root_created, arg);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		record_is_refused(index, "create nodes below", reply->code);
}

static void
on_deleted(void *arg, const ZkReply *reply)
{
	int index = (int) (intptr_t) arg;

	is_pending[index] = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		record_is_gone(index);
	else if (reply->outcome != ZK_UNKNOWN)
		retry_at = zklock_now_ms() + RETRY_MS;
}

/* Makes the call that a record needs next, if it needs one. */
static void
attend_record(int index, const SearchRecord *record, bool may_go)
{
	void *arg = (void *) (intptr_t) index;
	char *path = psprintf("%s/%s", WAIT_RECORD_ROOT, record->name);

	if (search_record_session(record->name) != zklock_session->info.id)
		record_is_gone(index);
	else if (record->wanted && !record->exists)
	{
		/* The text is constant as long as there is a name, which the worker alone takes away. */
		is_pending[index] = true;
		zk_call((ZkCall){.kind = ZK_CREATE,
						 .path = path,
						 .data = deadlock_search->texts[index],
						 .node_kind = ZK_EPHEMERAL},
				on_created, arg);
	}
	else if (!record->wanted && may_go && (retry_at < 0 || zklock_now_ms() >= retry_at))
	{
		is_pending[index] = true;
		retry_at = -1;
		zk_call((ZkCall){.kind = ZK_DELETE, .path = path}, on_deleted, arg);
	}
	pfree(path);
}

static void
attend_records(void)
{
	SearchRecord records[SEARCH_RECORDS];
	bool		 may_go = true; /* nothing is to come in its place */

	search_copy_records(records);
	for (int i = 0; i < SEARCH_RECORDS; i++)
		may_go &= !records[i].wanted || records[i].exists;
	for (int i = 0; i < SEARCH_RECORDS; i++)
	{
		if (records[i].name[0] != '\0' && !is_pending[i])
			attend_record(i, &records[i], may_go);
	}
}

/* Does what the session that searches wants. */
void
worker_deadlock_attend(void)
{
	answer_question();
	if (!search_has_record(NULL))
		return;
	if (!search_is_under_way())
		search_withdraw();
	if (zk_client_connected() && zklock_session->info.id != 0)
		attend_records();
}

/* When worker_deadlock_attend() wants to run next at the latest, ms; or -1. */
int64
worker_deadlock_next_wakeup(void)
{
	return retry_at;
}
