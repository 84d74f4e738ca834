/*
 * zk_echo.c
 *		Watch events of what we delete ourselves.
 *
 * The deletion of a node of ours makes the watches on it and on its parent fire,
 * ours as well, and the answer to the deletion follows upon these events.  They
 * tell nothing that the answer does not tell, so the main loop need not be woken
 * for them (zk_event.c).
 *
 * Deletions under way are counted by a hash of what they change, in a table of
 * fixed size.  Should another path have the same hash, its event is looked at
 * when the deletion is answered: a little later, never not at all, as each call
 * is answered once (zk_flow.c).
 *
 * Runs in: the worker.  zk_echo_is() runs in the library's completion thread, and
 * calls nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>

#include "zk/zk_echo.h"

#define ECHO_SLOTS 4096

static pthread_mutex_t echo_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint16 expected[ECHO_SLOTS]; /* under echo_mutex; calls are at most MAX_IN_FLIGHT */

/* FNV-1a, of so many bytes */
static uint32
echo_slot(const char *path, size_t len)
{
	uint32 hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) path[i]) * 16777619u;
	return (hash ^ hash >> 16) % ECHO_SLOTS;
}

static void
echo_count(const char *deleted, int change)
{
	uint32 node = echo_slot(deleted, strlen(deleted));
	uint32 parent = echo_slot(deleted, strrchr(deleted, '/') - deleted);

	pthread_mutex_lock(&echo_mutex);
	expected[node] += change;
	expected[parent] += change;
	pthread_mutex_unlock(&echo_mutex);
}

/* A deletion is about to be sent. */
void
zk_echo_expect(const char *deleted)
{
	echo_count(deleted, 1);
}

/* It has been answered. */
void
zk_echo_over(const char *deleted)
{
	echo_count(deleted, -1);
}

/* A watch has fired: will an answer to us follow that tells as much? */
bool
zk_echo_is(const char *changed)
{
	uint32 slot = echo_slot(changed, strlen(changed));
	bool   is;

	pthread_mutex_lock(&echo_mutex);
	is = expected[slot] > 0;
	pthread_mutex_unlock(&echo_mutex);
	return is;
}
