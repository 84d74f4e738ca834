/*
 * zk_call.c
 *		A call to ZooKeeper: its copy of what the caller asks for, and its kind.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_internal.h"

static uintptr_t next_number = 1; /* 0: a nudge, whose answer nobody waits for */

/*
 * Makes a call, which is in no list.  Copies what it points to, into the same block; data with a
 * NUL behind them, since a handler may make the next call from this one.
 */
Call *
zk_call_new(ZkCall asked, ZkReplyHandler handler, void *arg)
{
	size_t path_size = strlen(asked.path) + 1;
	size_t second_size = asked.marker ? strlen(asked.marker) + 1 : 0;
	size_t pin_size = asked.pin ? strlen(asked.pin) + 1 : 0;
	Call  *call;
	char  *copy;

	if (asked.data && asked.data_length == 0)
		asked.data_length = strlen(asked.data);
	call = palloc(sizeof(Call) + path_size + second_size + pin_size + asked.data_length + 1);
	*call = (Call){.number = next_number++, .asked = asked, .handler = handler, .arg = arg};
	copy = (char *) (call + 1);
	call->asked.path = memcpy(copy, asked.path, path_size);
	if (asked.marker) /* or what it is for this kind */
		call->asked.marker = memcpy(copy + path_size, asked.marker, second_size);
	if (asked.pin)
		call->asked.pin = memcpy(copy + path_size + second_size, asked.pin, pin_size);
	copy += path_size + second_size + pin_size;
	if (asked.data)
		call->asked.data = memcpy(copy, asked.data, asked.data_length);
	copy[asked.data_length] = '\0';
	return call;
}

/* Returns true if the call changes a node.  A check is a write as well, but changes none. */
bool
zk_call_is_write(const Call *call)
{
	ZkOperation kind = call->asked.kind;

	return kind == ZK_CREATE || kind == ZK_REPLACE || kind == ZK_APPEND ||
		   kind == ZK_SET_DATA || kind == ZK_DELETE || kind == ZK_CREATE_RECORD;
}

/* Returns true if the answer is what was read of a node, not what was written. */
bool
zk_call_is_read(const Call *call)
{
	ZkOperation kind = call->asked.kind;

	return kind == ZK_EXISTS || kind == ZK_GET_DATA || kind == ZK_GET_CHILDREN || kind == ZK_GET_ACL;
}

/* Returns true if the call removes a watch. */
bool
zk_call_is_unwatch(const Call *call)
{
	return call->asked.kind == ZK_UNWATCH_DATA || call->asked.kind == ZK_UNWATCH_CHILDREN;
}

/* Returns true if the call sets or removes a watch of children, false if one of data. */
static bool
is_of_children(const Call *call)
{
	return call->asked.kind == ZK_GET_CHILDREN || call->asked.kind == ZK_UNWATCH_CHILDREN;
}

/* Returns true if two calls set or remove the same kind of watch on the same path. */
bool
zk_call_same_watch(const Call *a, const Call *b)
{
	return is_of_children(a) == is_of_children(b) && strcmp(a->asked.path, b->asked.path) == 0;
}
