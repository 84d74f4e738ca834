/*
 * zk_call.c
 *		Making calls to ZooKeeper.
 *
 * zk_flow.c decides what becomes of a call.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_inside.h"

static Call *
new_call(CallKind kind, int owner, const char *path, const char *data, ZkReplyHandler handler,
		 void *arg)
{
	Call *call = zk_call_new(kind, owner, path, data, data ? (int) strlen(data) : 0);

	call->handler = handler;
	call->arg = arg;
	return call;
}

/* A call that has a path and nothing else */
static void
submit(CallKind kind, int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	zk_flow_submit(new_call(kind, owner, path, NULL, handler, arg));
}

/* A call that may set a watch */
static void
submit_read(CallKind kind, int owner, const char *path, ZkWatching watching,
			ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(kind, owner, path, NULL, handler, arg);

	call->watch = watching == ZK_WATCHED;
	zk_flow_submit(call);
}

/*
 * The calls.  Each is sent when its turn comes, at the end of the main loop's
 * round at the earliest, but for heartbeats and syncs, which are at once;
 * zk_flow.c tells in which order.  The handler runs in zk_client_dispatch(), never
 * before the call returns.  Strings are copied.  Make them only while
 * zk_client_connected().
 *
 * owner		whose call it is: a session's process id, or ZK_WORKER
 *
 * zk_create()	creates a node with our ACL; an ephemeral sequential one gets
 *				its sequence appended.  data may be NULL.
 * zk_create_followed() likewise; must be followed by another call of the same
 *				owner's work, which goes out with it.
 * zk_exchange() creates an ephemeral node, which may be sequential, and deletes
 *				another, both or none: ZK_NODE_EXISTS or ZK_NO_NODE tells of the
 *				first or second.  The answer does not tell the sequence.  If
 *				ZK_NOTICED, the other one is changed in between: it is of that
 *				that watches of it tell, and not of the deletion.
 * zk_remove()	deletes a node if its data have that version, and creates an empty
 *				ephemeral one, its receipt, both or none.
 * zk_set()		replaces a node's data if they have that version, or any with
 *				ZK_ANY_VERSION: ZK_REFUSED with ZK_BAD_VERSION if they do not.
 * zk_append()	creates a persistent sequential node with data, and an empty ephemeral one,
 *				its receipt, both or none.  Both have the same czxid.
 * zk_delete()	deletes a node.
 * zk_delete_patiently() likewise, when nobody is known to wait for that: if other such
 *				deletions are under way, it goes out when they are answered.
 * zk_delete_both() deletes two nodes in this order, both or none.
 * zk_get()		reads a node's Stat and data, setting a data watch if it exists.
 * zk_look()	reads a node's Stat, which ZooKeeper shows even where the node's ACL
 *				forbids to read it.
 * zk_read()	reads a node's data.  All of it is sent, however long: look first.
 * zk_fetch()	reads all of a node's data, and its Stat.
 * zk_list()	reads a node's children and Stat, setting a child watch if it exists.
 * zk_check()	has the leader look, as a write that a quorum commits, whether a
 *				node exists in a session that lives: ZK_OK, ZK_NO_NODE, or
 *				ZK_UNKNOWN if that was not committed.
 * zk_beat()	the same for the root, ahead of all that waits.
 * zk_sync()	makes later reads see all that was committed before; likewise.
 */
void
zk_create(int owner, const char *path, const char *data, ZkNodeKind kind,
		  ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_CREATE, owner, path, data, handler, arg);

	call->node_kind = kind;
	zk_flow_submit(call);
}

void
zk_create_followed(int owner, const char *path, const char *data, ZkNodeKind kind,
				   ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_CREATE, owner, path, data, handler, arg);

	call->node_kind = kind;
	call->followed = true;
	zk_flow_submit(call);
}

void
zk_exchange(int owner, const char *path, const char *data, ZkNodeKind kind,
			const char *replaced, ZkNotice notice, ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_EXCHANGE, owner, path, data, handler, arg);

	call->node_kind = kind;
	call->notice = notice;
	call->version = ZK_ANY_VERSION;
	call->other = pstrdup(replaced);
	zk_flow_submit(call);
}

void
zk_append(int owner, const char *path, const char *data, int length, const char *receipt,
		  ZkReplyHandler handler, void *arg)
{
	Call *call = zk_call_new(CALL_APPEND, owner, path, data, length);

	call->handler = handler;
	call->arg = arg;
	call->other = pstrdup(receipt);
	zk_flow_submit(call);
}

void
zk_remove(int owner, const char *path, int32 version, const char *receipt,
		  ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_EXCHANGE, owner, receipt, NULL, handler, arg);

	call->node_kind = ZK_EPHEMERAL;
	call->other = pstrdup(path);
	call->version = version;
	zk_flow_submit(call);
}

void
zk_set(int owner, const char *path, const char *data, int32 version, ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_SET, owner, path, data, handler, arg);

	call->version = version;
	zk_flow_submit(call);
}

void
zk_delete(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_DELETE, owner, path, handler, arg);
}

void
zk_delete_patiently(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_DELETE, owner, path, NULL, handler, arg);

	call->patient = true;
	zk_flow_submit(call);
}

void
zk_delete_both(int owner, const char *first, const char *second, ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_DELETE_BOTH, owner, first, NULL, handler, arg);

	call->other = pstrdup(second);
	zk_flow_submit(call);
}

void
zk_get(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler, void *arg)
{
	submit_read(CALL_GET, owner, path, watching, handler, arg);
}

void
zk_list(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler, void *arg)
{
	submit_read(CALL_LIST, owner, path, watching, handler, arg);
}

void
zk_look(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_LOOK, owner, path, handler, arg);
}

void
zk_read(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_GET, owner, path, handler, arg);
}

void
zk_fetch(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_FETCH, owner, path, handler, arg);
}

void
zk_check(int owner, const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_CHECK, owner, path, handler, arg);
}

void
zk_beat(ZkReplyHandler handler, void *arg)
{
	submit(CALL_BEAT, ZK_WORKER, "/", handler, arg);
}

void
zk_sync(ZkReplyHandler handler, void *arg)
{
	submit(CALL_SYNC, ZK_WORKER, "/", handler, arg);
}

/* Removes a watch that nobody wants any more, now or when we are connected. */
static void
remove_watch(CallKind kind, const char *path)
{
	zk_flow_submit_unwatch(new_call(kind, ZK_WORKER, path, NULL, NULL, NULL));
}

void
zk_unwatch_data(const char *path)
{
	remove_watch(CALL_UNWATCH_DATA, path);
}

void
zk_unwatch_children(const char *path)
{
	remove_watch(CALL_UNWATCH_CHILDREN, path);
}
