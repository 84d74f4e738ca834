/*
 * queue_waits.c
 *		Watches for sessions that look for elements of queues.
 *
 * A session that waits for an element has watches set on the children of the queue, and on
 * the claims of elements that other clients have taken (calls ZK_GET_CHILDREN and
 * ZK_WATCH_DATA).  When one of these watches fires, the first session that waits there is
 * woken (shared/call.c).  A watch is removed when no session waits there any more.
 *
 * ZooKeeper removes all watches of a kind on a path.  So a watch where the engine has one as
 * well is left to the engine, and when the engine removes its own, a session that waits there
 * looks again.
 *
 * All watches together must fit beside the engine's in one packet (traps 3 and 4 in
 * doc/internals.md).  A role has a quarter of that room, and an eighth is for superusers; a
 * watch counts as that of the role which asked for it first.  A path for which there is no
 * room is not watched; the answer says so, and the session looks again from time to time.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "utils/hsearch.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* Bytes of paths, with what the client library adds */
#define WATCH_BYTES (60 * 1024)
#define PER_WATCH 8
#define BYTES_OF_ROLE (WATCH_BYTES / 4)
#define BYTES_RESERVE (WATCH_BYTES / 8) /* for superusers */

/* A claim's path: the queue's, the element's name, and its own */
#define WATCHED_SIZE (ZKLOCK_MAX_PATH + ELEMENT_NAME_SIZE + sizeof(ELEMENT_CLAIM) + 2)

typedef struct Watched
{
	char   path[WATCHED_SIZE]; /* hash key */
	size_t queue_length;	   /* of its beginning: the queue's path */
	Oid	   role;			   /* that asked for it */
} Watched;

static HTAB *watched;
static int64 session; /* the ZooKeeper session that has the watches */

static Watched *
find_watched(const char *path)
{
	return strlen(path) < WATCHED_SIZE ? hash_search(watched, path, HASH_FIND, NULL) : NULL;
}

/* Takes note of a watch on a queue's children, or on an element's claim. */
static void
add_watched(const char *path, WatchedKind kind, const CallSlot *slot)
{
	size_t	 length = strlen(path);
	Watched *each = hash_search(watched, path, HASH_ENTER, NULL);

	for (int levels = kind == WATCHED_CLAIM ? 2 : 0; levels > 0; levels--)
	{
		while (path[--length] != '/')
			;
	}
	each->queue_length = length;
	each->role = slot->role;
}

/*
 * Prepares for a watch that a session asks for: on a queue's children, or on an element's
 * claim.  Returns false if there is no room for it.
 */
bool
worker_queue_waits_watch(const char *path, WatchedKind kind, const CallSlot *slot)
{
	HASH_SEQ_STATUS status;
	const Watched  *each;
	size_t			length = strlen(path);
	size_t			all = length + PER_WATCH;
	size_t			of_role = length + PER_WATCH;

	if (find_watched(path))
		return true;
	if (length >= WATCHED_SIZE)
		return false;
	hash_seq_init(&status, watched);
	while ((each = hash_seq_search(&status)) != NULL)
	{
		all += strlen(each->path) + PER_WATCH;
		of_role += each->role == slot->role ? strlen(each->path) + PER_WATCH : 0;
	}
	if (slot->reserve == RESERVE_OPEN ? all > WATCH_BYTES
									  : all > WATCH_BYTES - BYTES_RESERVE || of_role > BYTES_OF_ROLE)
		return false;
	add_watched(path, kind, slot);
	return true;
}

/*
 * Notes the answer to what asked for a watch.  If the answer was lost, the watch may be set.
 * An earlier watch may have fired since this one was asked for, and the session may have gone.
 */
void
worker_queue_waits_answered(const char *path, WatchedKind kind, const CallSlot *slot,
							const ZkReply *reply)
{
	Watched *each = find_watched(path);

	if (!reply->watching && reply->outcome != CALL_UNKNOWN && each)
		hash_search(watched, each->path, HASH_REMOVE, NULL);
	if (!reply->watching || each)
		return;
	add_watched(path, kind, slot);
	pg_atomic_write_u32(&call_pool->queue_waits_left, 1);
}

/* Wakes the first session that waits there, since a watch has fired. */
void
worker_queue_waits_event(const char *path)
{
	Watched *each = find_watched(path);

	if (each == NULL)
		return;
	queue_wait_wake(path, each->queue_length);
	hash_search(watched, each->path, HASH_REMOVE, NULL);
}

/*
 * Removes watches where no session waits any more.  Those that the engine needs are looked at
 * again: it does not remove what it has not come to set.
 */
void
worker_queue_waits_attend(void)
{
	HASH_SEQ_STATUS status;
	Watched		   *each;
	bool			left = false;

	if (pg_atomic_read_u32(&call_pool->queue_waits_left) == 0)
		return;
	pg_atomic_exchange_u32(&call_pool->queue_waits_left, 0);
	hash_seq_init(&status, watched);
	while ((each = hash_seq_search(&status)) != NULL)
	{
		bool of_claim = each->path[each->queue_length] != '\0';
		ZkCall removal = {.kind = of_claim ? ZK_UNWATCH_DATA : ZK_UNWATCH_CHILDREN, .path = each->path};

		if (queue_wait_first(each->path, each->queue_length))
			continue;
		if (engine_needs_watch(&removal))
		{
			left = true;
			continue;
		}
		zk_call(removal, NULL, NULL);
		hash_search(watched, each->path, HASH_REMOVE, NULL);
	}
	if (left)
		pg_atomic_write_u32(&call_pool->queue_waits_left, 1);
}

/*
 * Handles a new connection.  In another ZooKeeper session nothing is watched; much may have
 * happened.
 */
void
worker_queue_waits_connected(void)
{
	if (session != zklock_session->info.id)
	{
		hash_destroy(watched);
		worker_queue_waits_start();
	}
	session = zklock_session->info.id;
	queue_wait_wake_all();
}

void
worker_queue_waits_start(void)
{
	HASHCTL ctl = {.keysize = WATCHED_SIZE, .entrysize = sizeof(Watched)};

	watched = hash_create("zklock watches of queue waits", 64, &ctl, HASH_ELEM | HASH_STRINGS);
}
