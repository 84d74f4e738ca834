/*
 * zk_lookup.c
 *		Looking up the names of servers.
 *
 * The client library is given addresses (trap 1), so names are looked up here.
 * That may take long, and is done by a thread.
 *
 * Runs in: the worker; the main thread and a thread of its own, as the functions
 * say.  The thread calls nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_event.h"
#include "zk/zk_lookup.h"
#include "zk/zk_thread.h"

/* What the thread is given. */
typedef struct Question
{
	ConnectString servers;
	uintptr_t	  number;
} Question;

/* A thread of its own, which ends with it */
static void *
lookup_main(void *arg)
{
	Question *question = arg;
	char	  addresses[CONNECT_STRING_RESOLVED_SIZE];
	Event	  event = {.kind = EVENT_LOOKED_UP, .number = question->number};

	if (connect_string_resolve(&question->servers, CONNECT_RESOLVE_NAMES, addresses, sizeof(addresses)))
		event.text = strdup(addresses);
	free(question);
	zk_event_push(&event, EVENT_AT_ONCE);
	return NULL;
}

/*
 * Main thread: finds the addresses of servers, as zookeeper_init() is given them.
 *
 * If all are given in numbers, they are in "addresses" when this returns.  If
 * not, EVENT_LOOKED_UP with this number follows, whose text they are; or NULL,
 * if no name could be resolved.
 */
ZkLookup
zk_lookup(const ConnectString *servers, uintptr_t number, char *addresses, size_t size)
{
	Question *question;

	if (connect_string_resolve(servers, CONNECT_RESOLVE_NUMERIC, addresses, size))
		return ZK_LOOKUP_DONE;
	question = malloc(sizeof(Question));
	if (question == NULL)
		return ZK_LOOKUP_FAILED;
	question->servers = *servers;
	question->number = number;
	if (zk_thread_start(lookup_main, question))
		return ZK_LOOKUP_BEGUN;
	free(question);
	return ZK_LOOKUP_FAILED;
}
