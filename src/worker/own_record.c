/*
 * own_record.c
 *		Deadlocks across servers: our own record.
 *
 * A record (recipes/wait_record.c) is an ephemeral node below WAIT_RECORD_ROOT that is
 * never changed: a new one takes its place, and the old one is deleted.  Its name
 * has the id of its session, which ZooKeeper confirms, and a number.  When nobody
 * waits for long any more, ours is deleted.
 *
 * A lost reply is settled by the next listing: what has our session's id in its name
 * and is not the record that we know of is deleted.  That one may exist is noted
 * in shared memory before it is created, so the next worker sees to it as well.  A
 * new session has nothing to clear away.
 *
 * Runs in: the worker.  All of this is private to it, but for what verdict.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/wait_record.h"
#include "shared/entry.h"
#include "shared/settings.h"
#include "shared/verdict.h"
#include "utils/memutils.h"
#include "worker/own_record.h"
#include "worker/round_calls.h"

/* Of the name, the session's id */
#define NAME_ID_LENGTH 16

/* The record that we know of */
typedef struct Published
{
	char  name[RECORD_NAME_LENGTH + 1]; /* "" if there is none that we know of */
	int64 session;
	int64 seen;
	char *body; /* palloc'd */
} Published;

static Published published;
static char	   **remains; /* names of what is to be deleted; of the round */
static int		 nremains;
static bool		 refusal_is_told; /* the log has been told that nothing can be published */

/* ------------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------------
 */

/* The path of a record, palloc'd. */
char *
worker_record_path(const char *name)
{
	return psprintf("%s/%s", WAIT_RECORD_ROOT, name);
}

/* The session whose id is in the name of a record; 0 if it is no such name. */
int64
worker_record_session(const char *name)
{
	if (strlen(name) != RECORD_NAME_LENGTH || name[NAME_ID_LENGTH] != '-' ||
		strspn(name, "0123456789abcdef") != NAME_ID_LENGTH ||
		strspn(name + NAME_ID_LENGTH + 1, "0123456789abcdef") != RECORD_NAME_LENGTH - NAME_ID_LENGTH - 1)
		return 0;
	return (int64) strtoull(name, NULL, 16);
}

/* Is it a record of our session other than the one that we know of? */
bool
worker_own_record_is_remains(const char *name)
{
	int64 session = worker_record_session(name);

	return session == our_session() && session != 0 && strcmp(name, published.name) != 0;
}

/* ------------------------------------------------------------------------
 * Our record, and others of ours
 * ------------------------------------------------------------------------
 */

static void
add_remains(const char *name)
{
	remains[nremains++] = MemoryContextStrdup(worker_round_calls.context, name);
}

/* A round begins.  Returns true if the session is another one than in the last. */
bool
worker_own_record_begin(void)
{
	nremains = 0;
	if (published.session == our_session())
		return false;

	/* What another session had is gone with it. */
	published.name[0] = '\0';
	published.session = our_session();
	return true;
}

/* Sees in the listing of all records what of ours is there. */
void
worker_own_record_listed(const ZkReply *reply)
{
	bool is_there = false;

	/* Two more: our record, and the one that it replaces */
	remains =
		MemoryContextAlloc(worker_round_calls.context, (reply->nchildren + 2) * sizeof(char *));
	for (int i = 0; i < reply->nchildren; i++)
	{
		is_there |= strcmp(reply->children[i], published.name) == 0;
		if (worker_own_record_is_remains(reply->children[i]))
			add_remains(reply->children[i]);
	}
	if (!is_there)
		published.name[0] = '\0';
}

/* Is there a record of ours that tells this? */
bool
worker_own_record_tells(const char *body)
{
	return published.name[0] != '\0' && strcmp(published.body, body) == 0;
}

/* The newest zxid of a record that had been read before ours was written */
int64
worker_own_record_seen(void)
{
	return published.seen;
}

/* ------------------------------------------------------------------------
 * Writing and deleting
 * ------------------------------------------------------------------------
 */

static void
tell_refusal(const char *what, int code)
{
	if (!refusal_is_told)
		ereport(LOG, (errmsg("could not %s ZooKeeper node \"%s\": %s", what, WAIT_RECORD_ROOT,
							 zk_error_name(code)),
					  errdetail("Deadlocks across servers are not found."),
					  errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
	refusal_is_told = true;
}

/* The record is there: the one before goes. */
static void
on_written(void *arg, const ZkReply *reply)
{
	Published *written = arg;

	if (reply->outcome == ZK_OK)
	{
		refusal_is_told = false;
		if (published.name[0] != '\0')
			add_remains(published.name);
		if (published.body)
			pfree(published.body);
		published = *written;
		published.body = MemoryContextStrdup(TopMemoryContext, written->body);
	}
	else if (reply->outcome == ZK_REFUSED)
		tell_refusal("create nodes below", reply->code);
	worker_round_answered(reply->outcome == ZK_OK ? ROUND_GOES_ON : ROUND_FAILED);
}

static void
on_root_created(void *arg, const ZkReply *reply)
{
	if (reply->outcome == ZK_REFUSED)
		tell_refusal("create", reply->code);

	/* Its first record is written in the next round, soon. */
	worker_round_answered(
		reply->outcome == ZK_OK || reply->outcome == ZK_NODE_EXISTS ? ROUND_AGAIN : ROUND_FAILED);
}

static void
on_written_first(void *arg, const ZkReply *reply)
{
	if (reply->outcome != ZK_NO_NODE)
		on_written(arg, reply);
	else if (zklock_parent_nodes == PARENTS_EXISTING)
	{
		tell_refusal("create nodes below", reply->code);
		on_written(arg, reply);
	}
	else
		zk_create(ZK_WORKER, WAIT_RECORD_ROOT, NULL,
				  zklock_parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER,
				  on_root_created, NULL);
}

/*
 * Publishes what we have to tell.
 *
 *	own		our waits, and the record's text
 *	seen	the newest zxid of a record that has been read before
 */
void
worker_own_record_write(const OwnWaits *own, int64 seen)
{
	Published *written = MemoryContextAllocZero(worker_round_calls.context, sizeof(Published));
	uint32	   number;
	char	  *path;

	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	written->session = our_session();
	written->seen = seen;
	written->body = MemoryContextStrdup(worker_round_calls.context, own->body);
	snprintf(written->name, sizeof(written->name), "%016llx-%08x",
			 (unsigned long long) written->session, number);
	verdicts->record_may_exist = true;
	path = worker_record_path(written->name);
	worker_round_calls.pending++;
	zk_create(ZK_WORKER, path, own->record, ZK_EPHEMERAL, on_written_first, written);
	pfree(path);
}

static void
on_deleted(void *arg, const ZkReply *reply)
{
	/* Whatever is left is deleted in the next round. */
	worker_round_answered(reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE ? ROUND_GOES_ON
																				  : ROUND_FAILED);
}

static void
delete_node(const char *name)
{
	char *path = worker_record_path(name);

	worker_round_calls.pending++;
	zk_delete(ZK_WORKER, path, on_deleted, NULL);
	pfree(path);
}

/* We have nothing to tell any more. */
void
worker_own_record_withdraw(void)
{
	if (published.name[0] == '\0')
		return;
	add_remains(published.name);
	published.name[0] = '\0';
}

/* Deletes what of ours is there besides our record. */
void
worker_own_record_delete_remains(void)
{
	for (int i = 0; i < nremains; i++)
		delete_node(remains[i]);
}
