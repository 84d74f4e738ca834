/*
 * seeks.c
 *		Watches for sessions that look for elements of queues.
 *
 * A session that waits for an element has the children of the queue watched, and
 * the claims of elements that others have taken (calls OP_LIST and OP_WATCH).
 * When one of these watches fires, the first of those who seek there is told
 * (shared/call.c).  They are removed when nobody seeks there any more.
 *
 * ZooKeeper removes all watches of a kind on a path.  So one that the engine has there as
 * well is left to it, and when the engine removes its own, a seeker looks again.
 *
 * All watches together must fit beside the engine's in one packet (traps 3 and 4).
 * A path for which there is no room is not watched, and its session, which is told
 * so, looks again from time to time.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/queue.h"
#include "utils/hsearch.h"
#include "worker/inside.h"
#include "zk/zk_client.h"

/* Bytes of paths, with what the client library adds */
#define WATCH_BYTES (60 * 1024)
#define PER_WATCH 8

/* A claim's path: the queue's, the element's name, and its own */
#define WATCHED_SIZE (ZKLOCK_MAX_PATH + ELEMENT_NAME_SIZE + sizeof(ELEMENT_CLAIM) + 2)

typedef struct Watched
{
	char   path[WATCHED_SIZE]; /* hash key */
	size_t queue_length;	   /* of its beginning: the queue's path */
} Watched;

static HTAB	 *watched;
static size_t watched_bytes;
static int64  session; /* the ZooKeeper session that has the watches */

static Watched *
find(const char *path)
{
	return strlen(path) < WATCHED_SIZE ? hash_search(watched, path, HASH_FIND, NULL) : NULL;
}

static void
forget(Watched *each)
{
	watched_bytes -= strlen(each->path) + PER_WATCH;
	(void) hash_search(watched, each->path, HASH_REMOVE, NULL);
}

/*
 * A path is going to be watched: a queue's, for its children, or an element's claim.
 * Returns false if there is no room for that.
 */
bool
worker_seeks_watch(const char *path, WatchedKind kind)
{
	size_t	 length = strlen(path);
	Watched *each = find(path);

	if (each)
		return true;
	if (watched_bytes + length + PER_WATCH > WATCH_BYTES || length >= WATCHED_SIZE)
		return false;
	watched_bytes += length + PER_WATCH;
	for (int levels = kind == WATCHED_CLAIM ? 2 : 0; levels > 0; levels--)
	{
		while (path[--length] != '/')
			;
	}
	each = hash_search(watched, path, HASH_ENTER, NULL);
	each->queue_length = length;
	return true;
}

/* The watch could not be set. */
void
worker_seeks_unwatched(const char *path)
{
	Watched *each = find(path);

	if (each)
		forget(each);
}

/* A watch has fired. */
void
worker_seeks_event(const char *path)
{
	Watched *each = find(path);

	if (each == NULL)
		return;
	seek_tell(path, each->queue_length);
	forget(each);
}

/* Removes watches where nobody seeks any more. */
void
worker_seeks_attend(void)
{
	HASH_SEQ_STATUS status;
	Watched		   *each;

	if (pg_atomic_read_u32(&call_pool->seeks_left) == 0)
		return;
	pg_atomic_exchange_u32(&call_pool->seeks_left, 0);
	hash_seq_init(&status, watched);
	while ((each = hash_seq_search(&status)) != NULL)
	{
		bool of_claim = each->path[each->queue_length] != '\0';
		ZkCall removal = {.kind = of_claim ? ZK_UNWATCH_DATA : ZK_UNWATCH_CHILDREN, .path = each->path};

		if (seek_exists(each->path, each->queue_length))
			continue;
		if (!queue_needs_watch(&removal))
			zk_call(removal, NULL, NULL);
		forget(each);
	}
}

/* A connection stands.  In another ZooKeeper session nothing is watched; much may have happened. */
void
worker_seeks_connected(void)
{
	HASH_SEQ_STATUS status;
	Watched		   *each;

	if (session != zklock_session->info.id)
	{
		hash_seq_init(&status, watched);
		while ((each = hash_seq_search(&status)) != NULL)
			forget(each);
	}
	session = zklock_session->info.id;
	seek_tell_all();
}

void
worker_seeks_start(void)
{
	HASHCTL ctl = {.keysize = WATCHED_SIZE, .entrysize = sizeof(Watched)};

	watched = hash_create("zklock watches for seekers", 64, &ctl, HASH_ELEM | HASH_STRINGS);
}
