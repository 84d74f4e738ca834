/*
 * zk_call.c
 *		Calls to ZooKeeper, from when they are made until they are answered.
 *
 * The main loop makes calls at any time; the client library (zk_client.c) gets
 * them in that order, on a connection that stands, and not too many at once
 * (trap 7).  Each is registered here under a number of its own and is answered
 * exactly once: by the server, or by us when its connection or session ends
 * and the library may never do so (trap 8).  A late answer finds its number
 * gone.
 *
 * A server of some versions forgets a request until another one arrives
 * (ZOOKEEPER-4537, trap 5), and the library does not ping while it waits for
 * answers.  So a call that has waited for NUDGE_MS is followed by a harmless
 * one.
 *
 * A watch that nobody wants any more is removed by a call as well.  If that
 * fails, the library would carry the watch from one connection to the next; so
 * it is repeated, unless somebody asks for the watch again meanwhile.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "zk/zk_call.h"

#define MAX_IN_FLIGHT 1000
#define NUDGE_MS 400
#define UNWATCH_AGAIN_MS 5000

static dlist_head queued = DLIST_STATIC_INIT(queued);		/* not yet sent */
static dlist_head in_flight = DLIST_STATIC_INIT(in_flight); /* in order of sending */
static dlist_head unwanted = DLIST_STATIC_INIT(unwanted);	/* watches still to be removed */
static int64	  unwatch_at;								/* when to try that again, ms */
static int		  n_in_flight;
static uint64	  next_call = 1; /* 0: a nudge, whose answer nobody waits for */
static uint64	  connection;	 /* counts connections */
static int64	  nudged_at;	 /* ms */
static bool		  watches_exist; /* or may: the handle has been connected */

static void
free_call(Call *call)
{
	pfree(call->path);
	if (call->data)
		pfree(call->data);
	if (call->replaced)
		pfree(call->replaced);
	pfree(call);
}

/* Does the call change a node?  A check is a write as well, but of nothing. */
static bool
is_write(const Call *call)
{
	return call->kind == CALL_CREATE || call->kind == CALL_DELETE || call->kind == CALL_EXCHANGE;
}

/* Do two calls set or remove the same kind of watch on the same path? */
static bool
same_watch(const Call *a, const Call *b)
{
	bool a_children = a->kind == CALL_LIST || a->kind == CALL_UNWATCH_CHILDREN;
	bool b_children = b->kind == CALL_LIST || b->kind == CALL_UNWATCH_CHILDREN;

	return a_children == b_children && strcmp(a->path, b->path) == 0;
}

/* Has a watch been asked for since that the call was to remove? */
static bool
watch_is_wanted(const Call *unwatch)
{
	dlist_head *lists[] = {&in_flight, &queued};
	dlist_iter	iter;

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_foreach (iter, lists[i])
		{
			const Call *call = dlist_container(Call, node, iter.cur);

			if (call->watch && call->number > unwatch->number && same_watch(call, unwatch))
				return true;
		}
	}
	return false;
}

/* A watch is still there that should be removed: that is tried again. */
static void
keep_unwatch(Call *unwatch)
{
	if (!watches_exist || watch_is_wanted(unwatch))
	{
		free_call(unwatch);
		return;
	}
	dlist_push_tail(&unwanted, &unwatch->node);
	unwatch_at = zklock_now_ms() + UNWATCH_AGAIN_MS;
}

/* Somebody asks for a watch: it need not be removed. */
static void
forget_unwatch(const Call *watch)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &unwanted)
	{
		Call *unwatch = dlist_container(Call, node, iter.cur);

		if (same_watch(watch, unwatch))
		{
			dlist_delete(&unwatch->node);
			free_call(unwatch);
		}
	}
}

static void
unwatch_again(void)
{
	while (!dlist_is_empty(&unwanted))
	{
		Call *unwatch = dlist_container(Call, node, dlist_pop_head_node(&unwanted));

		unwatch->number = next_call++;
		dlist_push_tail(&queued, &unwatch->node);
	}
}

/* Takes a call out of its list and answers it. */
static void
finish_call(Call *call, ZkReply *reply)
{
	dlist_delete(&call->node);
	reply->outcome = zk_error_outcome(reply->code);
	if ((call->kind == CALL_UNWATCH_DATA || call->kind == CALL_UNWATCH_CHILDREN) &&
		reply->outcome != ZK_OK && reply->code != ZK_NO_WATCHER)
	{
		keep_unwatch(call);
		return;
	}

	/*
	 * The leader looks at the session first, at the node next, and at its ACL
	 * in the end.  Any other error may have come from somewhere else.
	 */
	if (call->kind == CALL_CHECK && reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
		reply->outcome = reply->code == ZK_NO_AUTH ? ZK_OK : ZK_UNKNOWN;
	if (call->kind != CALL_SYNC && call->kind != CALL_CHECK)
		ZKLOCK_SLOW("slow-answers", 120, 150);
	if (is_write(call) && reply->outcome == ZK_OK && ZKLOCK_FAULT("fail-written"))
		elog(ERROR, "fault: fail-written");
	if (call->handler)
		call->handler(call->arg, reply);
	free_call(call);
}

/* Answers all calls of a list as unknown. */
static void
fail_calls(dlist_head *calls, int code)
{
	while (!dlist_is_empty(calls))
	{
		ZkReply reply = {.code = code};

		finish_call(dlist_head_element(Call, node, calls), &reply);
	}
}

/* Hands queued calls to the library as far as the limit allows. */
static void
send_queued(void)
{
	while (!dlist_is_empty(&queued) && n_in_flight < MAX_IN_FLIGHT && zk_client_connected())
	{
		Call *call = dlist_container(Call, node, dlist_pop_head_node(&queued));
		int	  code;

		dlist_push_tail(&in_flight, &call->node);
		n_in_flight++;
		call->sent_at = zklock_now_ms();
		call->connection = connection;
		if (call->kind == CALL_LIST || call->watch)
			ZKLOCK_SLOW("slow-reads", 120, 150);
		else if (is_write(call))
			ZKLOCK_SLOW("slow-writes", 120, 150);
		code = zk_client_send(call);

		/* What was not sent is answered like the rest, in its turn. */
		if (zk_error_outcome(code) != ZK_OK)
		{
			Event event = {.kind = EVENT_REPLY, .call = call->number, .code = code};

			zk_event_push(&event);
		}
	}
}

static Call *
new_call(CallKind kind, const char *path, const char *data, ZkReplyHandler handler, void *arg)
{
	Call *call = palloc0(sizeof(Call));

	call->kind = kind;
	call->number = next_call++;
	call->handler = handler;
	call->arg = arg;
	call->path = pstrdup(path);
	call->data = data ? pstrdup(data) : NULL;
	return call;
}

static void
submit_call(Call *call)
{
	if (call->watch)
		forget_unwatch(call);
	dlist_push_tail(&queued, &call->node);
	send_queued();
}

static void
submit(CallKind kind, const char *path, const char *data, ZkNodeKind node_kind, bool watch,
	   ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(kind, path, data, handler, arg);

	call->node_kind = node_kind;
	call->watch = watch;
	submit_call(call);
}

/*
 * The calls.  Each is sent now or when earlier ones have been answered, in
 * the order of these calls, and answered in that order too.  The handler runs
 * in zk_client_dispatch(), never before the call returns.  Strings are copied.
 * Make them only while zk_client_connected().
 *
 * zk_create()	creates a node with our ACL; an ephemeral sequential one gets
 *				its sequence appended.  data may be NULL.
 * zk_exchange() creates an ephemeral node and deletes another, both or none:
 *				ZK_NODE_EXISTS or ZK_NO_NODE tells of the first or second.
 * zk_get()		reads a node's Stat, setting a data watch if it exists.
 * zk_list()	reads a node's children, setting a child watch if it exists.
 * zk_check()	has the leader look, as a write that a quorum commits, whether a
 *				node exists in a session that lives: ZK_OK, ZK_NO_NODE, or
 *				ZK_UNKNOWN if that was not committed.
 * zk_sync()	makes later reads see all that was committed before.
 */
void
zk_create(const char *path, const char *data, ZkNodeKind kind, ZkReplyHandler handler, void *arg)
{
	submit(CALL_CREATE, path, data, kind, false, handler, arg);
}

void
zk_exchange(const char *path, const char *data, const char *replaced, ZkReplyHandler handler, void *arg)
{
	Call *call = new_call(CALL_EXCHANGE, path, data, handler, arg);

	call->replaced = pstrdup(replaced);
	submit_call(call);
}

void
zk_delete(const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_DELETE, path, NULL, 0, false, handler, arg);
}

void
zk_get(const char *path, bool watch, ZkReplyHandler handler, void *arg)
{
	submit(CALL_GET, path, NULL, 0, watch, handler, arg);
}

void
zk_list(const char *path, bool watch, ZkReplyHandler handler, void *arg)
{
	submit(CALL_LIST, path, NULL, 0, watch, handler, arg);
}

void
zk_check(const char *path, ZkReplyHandler handler, void *arg)
{
	submit(CALL_CHECK, path, NULL, 0, false, handler, arg);
}

void
zk_sync(ZkReplyHandler handler, void *arg)
{
	submit(CALL_SYNC, "/", NULL, 0, false, handler, arg);
}

/* Removes a watch that nobody wants any more, now or when we are connected. */
static void
unwatch(CallKind kind, const char *path)
{
	submit(kind, path, NULL, 0, false, NULL, NULL);
	if (!zk_client_connected())
		fail_calls(&queued, ZK_CONNECTION_LOSS);
}

void
zk_unwatch_data(const char *path)
{
	unwatch(CALL_UNWATCH_DATA, path);
}

void
zk_unwatch_children(const char *path)
{
	unwatch(CALL_UNWATCH_CHILDREN, path);
}

/* ------------------------------------------------------------------------
 * The client's side
 * ------------------------------------------------------------------------
 */

/* A connection stands, of the session before or of a new one. */
void
zk_calls_connected(void)
{
	connection++;
	watches_exist = true;
	unwatch_again();
}

/* It is lost.  What was sent is still answered by the library. */
void
zk_calls_disconnected(void)
{
	fail_calls(&queued, ZK_CONNECTION_LOSS);
}

/* The handle is closed, and with it all that was asked of it. */
void
zk_calls_over(void)
{
	watches_exist = false;
	fail_calls(&in_flight, ZK_CLOSING);
	n_in_flight = 0;
	fail_calls(&queued, ZK_CLOSING);
	fail_calls(&unwanted, ZK_CLOSING);
}

/* What is wrong with the answer to a call, as a sentence, or NULL. */
static const char *
answer_fault(const Call *call, const Event *event)
{
	const char *fault = event->fault ? event->fault : zk_answer_code_fault(event->code);

	if (fault || zk_error_outcome(event->code) != ZK_OK)
		return fault;
	switch (call->kind)
	{
		case CALL_CREATE:
			fault = zk_answer_path_fault(event->text, call->path,
										 call->node_kind == ZK_EPHEMERAL_SEQUENTIAL
											 ? ANSWER_PATH_NUMBERED
											 : ANSWER_PATH_SAME);
			if (fault == NULL)
				fault = zk_answer_new_stat_fault(&event->stat);
			if (fault == NULL && call->node_kind == ZK_EPHEMERAL_SEQUENTIAL)
				fault = zk_answer_owner_fault(&event->stat, zk_client_session_id());
			return fault;
		case CALL_GET:
			return zk_answer_stat_fault(&event->stat);
		case CALL_LIST:
			return zk_answer_children_fault(event->children, event->nchildren);
		default:
			return NULL; /* the code is all there is */
	}
}

/* An answer has come. */
void
zk_calls_answer(const Event *event)
{
	dlist_iter	iter;
	ZkReply		reply = {.code = event->code, .path = event->text};
	const char *fault;

	/* Answers come in order, so this finds it at the head but for oddities. */
	dlist_foreach (iter, &in_flight)
	{
		Call *call = dlist_container(Call, node, iter.cur);

		if (call->number != event->call)
			continue;

		fault = answer_fault(call, event);
		if (fault)
		{
			zk_client_malformed(fault);
			return;
		}

		/*
		 * The library may have sent it on a newer connection than we knew of.
		 * What was read there, ahead of our sync, may be older than what we
		 * have seen before; but a watch is set.
		 */
		reply.watching = call->watch && zk_error_outcome(event->code) == ZK_OK;
		if (call->connection != connection && (call->kind == CALL_GET || call->kind == CALL_LIST))
			reply.code = ZK_CONNECTION_LOSS;
		reply.czxid = event->stat.czxid;
		reply.ephemeral_owner = event->stat.ephemeral_owner;
		reply.nchildren = event->nchildren;
		reply.children = event->children;
		n_in_flight--;
		finish_call(call, &reply);
		return;
	}
}

/* Has all been answered? */
bool
zk_calls_idle(void)
{
	return dlist_is_empty(&queued) && dlist_is_empty(&in_flight);
}

/* When a call has been without an answer for too long, or -1. */
static int64
nudge_at(void)
{
	if (!zk_client_connected() || dlist_is_empty(&in_flight))
		return -1;
	return Max(dlist_head_element(Call, node, &in_flight)->sent_at, nudged_at) + NUDGE_MS;
}

/* When zk_calls_send() wants to run next at the latest, or -1. */
int64
zk_calls_next_wakeup(void)
{
	int64 wakeup = nudge_at();

	if (zk_client_connected() && !dlist_is_empty(&unwanted))
		wakeup = wakeup < 0 ? unwatch_at : Min(wakeup, unwatch_at);
	return wakeup;
}

static void
nudge(void)
{
	char  root[] = "/";
	Call  nudge_call = {.kind = CALL_NUDGE, .path = root};
	int64 wakeup = nudge_at();

	if (wakeup < 0 || zklock_now_ms() < wakeup)
		return;
	nudged_at = zklock_now_ms();
	(void) zk_client_send(&nudge_call);
}

/* Sends what is waiting for its turn or its time. */
void
zk_calls_send(void)
{
	nudge();
	if (zk_client_connected() && zklock_now_ms() >= unwatch_at)
		unwatch_again();
	send_queued();
}
