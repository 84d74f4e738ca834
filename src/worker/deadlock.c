/*
 * deadlock.c
 *		Deadlocks across servers: what the worker does for the session that searches.
 *
 * It tells that session for which entries others matter, as far as the engine knows,
 * and keeps this server's record in ZooKeeper (shared/search.c).  A record is an
 * ephemeral node below WAIT_RECORD_ROOT that is never changed: a new one takes its
 * place, both or none.  When nobody searches any more, it is deleted.
 *
 *	does not exist		-> create, until it does
 *	exists, not wanted	-> delete, until it surely does not; then its place is free
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

#define MAX_RECORD_PATH (sizeof(WAIT_RECORD_ROOT "/") + RECORD_NAME_LENGTH)

static bool	 is_pending;	  /* a call about our record is under way */
static int64 retry_at = -1;	  /* no deletion before, ms */
static bool	 refusal_is_told; /* the log has been told that nothing can be published */

/* Answers the question for which entries others matter, if it is asked. */
static void
answer_question(void)
{
	DeadlockSearch *search = deadlock_search;
	int				searcher;

	if (!search_engine_is_asked())
		return;
	for (int i = 0; i < entries_max(); i++)
	{
		ContenderEntry *entry = entry_at(i);

		entry_change_begin(entry);
		entry->node.waits_abroad = queue_waits_abroad(i);
		entry->node.wanted_abroad = queue_is_wanted_abroad(i);
		entry_change_end(entry);
	}
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	search->deadlock_timeout = DeadlockTimeout;
	search->asked = false;
	searcher = search->searcher;
	LWLockRelease(search_lock);
	if (searcher != ENTRY_NONE)
		entry_set_owner_latch(entry_at(searcher));
}

/* ------------------------------------------------------------------------
 * Our record
 * ------------------------------------------------------------------------
 */

/* There is surely a node of that name, or none for "", and no other one of ours. */
static void
settle(const char *name)
{
	SearchRecord *record = &deadlock_search->record;

	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	if (strcmp(record->name, name) != 0)
	{
		strlcpy(record->name, name, sizeof(record->name));
		record->wanted = false;
	}
	record->exists = true;
	record->replaces[0] = '\0';
	LWLockRelease(search_lock);
}

/* The node whose place the record was to take is gone. */
static void
forget_replaced(void)
{
	LWLockAcquire(search_lock, LW_EXCLUSIVE);
	deadlock_search->record.replaces[0] = '\0';
	LWLockRelease(search_lock);
}

/* ZooKeeper refuses to create a record: the session that searches may try again. */
static void
refuse(const char *what, int code)
{
	settle(search_record().replaces);
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
	is_pending = false;
	if (reply->outcome == ZK_REFUSED)
		refuse("create", reply->code);
}

static void
on_created(void *arg, const ZkReply *reply)
{
	SearchRecord record = search_record();

	is_pending = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NODE_EXISTS)
	{
		settle(record.name);
		refusal_is_told = false;
	}
	else if (reply->outcome == ZK_NO_NODE && record.replaces[0] != '\0')
		forget_replaced();
	else if (reply->outcome == ZK_NO_NODE && zklock_parent_nodes != PARENTS_EXISTING)
	{
		is_pending = true;
		zk_call((ZkCall){.kind = ZK_CREATE,
						 .path = WAIT_RECORD_ROOT,
						 .node_kind = zklock_parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT
																				: ZK_CONTAINER},
				on_root_created, NULL);
	}
	else if (zk_error_is_breakdown(reply->code))
		retry_at = zklock_now_ms() + RETRY_MS; /* it may exist, which the next attempt tells */
	else if (reply->outcome != ZK_UNKNOWN)
		refuse("create nodes below", reply->code);
}

static void
on_deleted(void *arg, const ZkReply *reply)
{
	is_pending = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		settle("");
	else if (reply->outcome != ZK_UNKNOWN)
		retry_at = zklock_now_ms() + RETRY_MS;
}

/* Is it still to be created, or deleted? */
static bool
record_needs_call(const SearchRecord *record)
{
	return record->name[0] != '\0' && (!record->exists || !record->wanted);
}

/* Makes the call that our record needs next, if it needs one. */
static void
attend_record(const SearchRecord *record)
{
	char path[MAX_RECORD_PATH];
	char replaced[MAX_RECORD_PATH];

	if (!record_needs_call(record) || zklock_now_ms() < retry_at)
		return;
	retry_at = -1;
	snprintf(path, sizeof(path), "%s/%s", WAIT_RECORD_ROOT, record->name);
	snprintf(replaced, sizeof(replaced), "%s/%s", WAIT_RECORD_ROOT, record->replaces);
	is_pending = true;
	if (!record->exists)
		zk_call((ZkCall){.kind = record->replaces[0] != '\0' ? ZK_EXCHANGE : ZK_CREATE,
						 .path = path,
						 .other = replaced,
						 .data = deadlock_search->text,
						 .node_kind = ZK_EPHEMERAL,
						 .version = ZK_ANY_VERSION},
				on_created, NULL);
	else
		zk_call((ZkCall){.kind = ZK_DELETE, .path = path}, on_deleted, NULL);
}

/* Does what the session that searches wants. */
void
worker_deadlock_attend(void)
{
	SearchRecord record;

	answer_question();
	if (search_record().name[0] == '\0')
		return;
	if (!search_is_under_way())
		search_withdraw();
	record = search_record();
	if (is_pending || !zk_client_connected() || zklock_session->info.id == 0)
		return;
	if (search_record_session(record.name) != zklock_session->info.id)
		settle(record.replaces);
	else
		attend_record(&record);
}

/* When worker_deadlock_attend() wants to run next at the latest, ms; or -1. */
int64
worker_deadlock_next_wakeup(void)
{
	SearchRecord record;

	if (retry_at < 0 || is_pending || !zk_client_connected())
		return -1;
	record = search_record();
	return record_needs_call(&record) ? retry_at : -1;
}
