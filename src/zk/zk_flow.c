/*
 * zk_flow.c
 *		Calls to ZooKeeper, from when they are made until they are answered.
 *
 * The main loop makes calls at any time (zk_call); the client library gets them on a
 * connection that stands, and not too many at once.  Each call is registered here
 * under a number of its own and is answered exactly once: by the server, or by us
 * when its connection or session ends and the library may never do so (trap 8).
 * A late answer finds its number gone; a call that is sent once more has been answered.
 *
 * While a connection stands, calls are sent.  While there is none but the session may
 * live, nothing is sent; the library still answers calls that were, and its watches may
 * exist.  Without a session no call is under way, and no watch exists.
 *
 * How many at once: zk_turn.c says.  What is urgent needs no room in that window:
 * heartbeats, of which lease.c bounds the number, and the two calls with which a connection
 * begins.  MAX_UNDER_WAY bounds all (trap 7).
 *
 * In which order, and what goes out together: zk_turn.c chooses.  A request may be
 * that of several calls; it is registered as the first of them.  The following can
 * be relied on:
 *
 *	- Answers, handled one after the other, come in the order in which calls
 *	  were sent, and the server did them in that order.  Therefore a node of
 *	  ours whose create was answered before a listing was there when the
 *	  listing was made, and a node whose delete was answered was not.
 *	- Work of one owner is sent in the order in which it was asked for: a
 *	  create before the listing behind it, a node before those below it.
 *	- The create of a lock's node and the call made next for the same owner,
 *	  which is its listing, go out together, if the former says so.
 *	- The removal of a watch never comes between a read that sets it and that
 *	  read's answer, and a read asked for after a removal comes behind it.
 *	- A sync goes before reads that its owner asks for after it; an urgent one, before
 *	  all of them.
 *
 * Nothing more is needed.  Calls that create, find, replace or delete one node
 * are made one at a time, each when the one before has been answered, or, if it
 * is not known what became of that, on the next connection: so a delete cannot
 * overtake the create of its node.  Of listings of one path, made for several
 * owners, any may come first; a contender that waits for the n-th of them waits
 * until n have come, and the last to come was sent after it had asked.  A deletion
 * that overtakes a listing only makes it shorter, and is answered before it.
 *
 * A server of some versions forgets a request until another one arrives
 * (ZOOKEEPER-4537, trap 5), and the library does not ping while it waits for
 * answers.  So a call that has waited for NUDGE_MS is followed by a harmless
 * one.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/common.h"
#include "zk/zk_internal.h"

#define NUDGE_MS 400
#define AGAIN_MS 5000 /* until a removal of a watch is tried again */

ZkClientCallbacks zk_callbacks;

static bool		  flowing;									/* a connection stands */
static dlist_head in_flight = DLIST_STATIC_INIT(in_flight); /* in order of sending */
static dlist_head watching = DLIST_STATIC_INIT(watching); /* calls that set a watch, not answered yet */
static int64		 session;	 /* of the connection, or the one before; 0: there is none */
static uint64		 connection; /* counts connections */
static int64		 nudged_at;	 /* ms */
static dlist_head	 put_off = DLIST_STATIC_INIT(put_off); /* removals of watches */
static int64		 again_at;							   /* when to send them, ms */
static const ZkCall *answering;							   /* see zk_flow_answering() */

/* ------------------------------------------------------------------------
 * Watches that nobody wants any more
 * ------------------------------------------------------------------------
 */

/*
 * A watch is removed by a call, which waits until we are connected and no read that
 * sets the watch is waiting or under way, which it must not pass.  If the removal fails,
 * the library would carry the watch from one connection to the next, so it is repeated,
 * unless somebody has asked for the watch again meanwhile.
 */

/* A removal, which is in no list, is to be sent at that time, ms, or later. */
static void
put_off_unwatch(Call *unwatch, int64 when)
{
	again_at = dlist_is_empty(&put_off) ? when : Min(again_at, when);
	dlist_push_tail(&put_off, &unwatch->link);
}

/* Somebody asks for a watch: it need not be removed. */
static void
forget_unwatch(const Call *watch)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &put_off)
	{
		Call *unwatch = dlist_container(Call, link, iter.cur);

		if (zk_call_same_watch(watch, unwatch))
		{
			dlist_delete(&unwatch->link);
			pfree(unwatch);
		}
	}
}

/* Is a read waiting or under way that sets the watch which the call removes? */
static bool
watch_is_wanted(const Call *unwatch)
{
	dlist_iter iter;

	dlist_foreach (iter, &watching)
	{
		if (zk_call_same_watch(dlist_container(Call, watching, iter.cur), unwatch))
			return true;
	}
	return false;
}

/*
 * Sends in their turn what removals are due, but for those that must not pass a read: as
 * long as that is not answered, the library knows of no watch that it could remove.
 */
static void
submit_unwatches(void)
{
	dlist_mutable_iter iter;

	if (!flowing || dlist_is_empty(&put_off) || zklock_now_ms() < again_at)
		return;
	again_at = zklock_now_ms() + AGAIN_MS;
	dlist_foreach_modify (iter, &put_off)
	{
		Call *unwatch = dlist_container(Call, link, iter.cur);

		if (watch_is_wanted(unwatch))
			continue;
		dlist_delete(&unwatch->link);
		zk_turn_wait(unwatch);
	}
}

/* ------------------------------------------------------------------------
 * Calls
 * ------------------------------------------------------------------------
 */

/* Answers a call, which is under way no more. */
static void
finish_call(Call *call, ZkReply *reply)
{
	reply->outcome = zk_error_outcome(reply->code);
	zk_turn_over(call);
	if (call->asked.watch)
		dlist_delete(&call->watching);
	if (call->asked.kind == ZK_DELETE && call->sent_at != 0)
		zk_event_expect_echo(call->asked.path, -1);
	if (zk_call_is_unwatch(call) && reply->outcome != CALL_OK && reply->code != ZK_NO_WATCHER)
	{
		if (watch_is_wanted(call))
			pfree(call);
		else
			put_off_unwatch(call, zklock_now_ms() + AGAIN_MS);
		return;
	}

	/*
	 * The leader looks at the session first, at the node next, and at its ACL
	 * in the end.  Any other error may have come from somewhere else.
	 */
	if (call->asked.kind == ZK_CHECK && reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		reply->outcome = reply->code == ZK_NO_AUTH ? CALL_OK : CALL_UNKNOWN;
	if (call->asked.kind != ZK_SYNC && call->asked.kind != ZK_CHECK)
		ZKLOCK_SLOW("slow-answers", 120, 150);
	if (zk_call_is_write(call) && reply->outcome == CALL_OK && ZKLOCK_FAULT("fail-written"))
		elog(ERROR, "fault: fail-written");
	reply->asked = &call->asked;
	answering = call->asked.urgent ? NULL : &call->asked;
	if (call->handler)
		call->handler(call->arg, reply);
	answering = NULL;
	pfree(call);
}

/* Answers all calls of a request, which is in no list any more. */
static void
finish_request(Call *first, ZkReply *reply)
{
	Call *next;

	zk_callbacks.answered(reply->code == ZK_NO_WATCHER ? CALL_OK : zk_error_outcome(reply->code),
						  zklock_now_us() - first->sent_at);
	for (Call *call = first; call; call = next)
	{
		next = call->next;
		finish_call(call, reply);
	}
}

/* Answers all that wait to be sent as unknown. */
static void
fail_waiting(int code)
{
	ZkReply reply = {.code = code};
	Call   *call;

	while ((call = zk_turn_take(ZK_TURN_ALL)) != NULL)
		finish_call(call, &reply);
}

/* Hands a request to the library. */
static void
send_request(Call *call)
{
	int code;

	for (Call *each = call; each; each = each->next)
	{
		each->sent_at = zklock_now_us();
		if (each->asked.kind == ZK_DELETE)
			zk_event_expect_echo(each->asked.path, 1);
	}
	call->connection = connection;
	dlist_push_tail(&in_flight, &call->link);
	if (call->asked.kind == ZK_LIST || call->asked.watch)
		ZKLOCK_SLOW("slow-reads", 120, 150);
	else if (zk_call_is_write(call))
		ZKLOCK_SLOW("slow-writes", 120, 150);
	code = zk_library_send(call);

	/* A call that was not sent is answered like the rest, in its turn. */
	if (zk_error_outcome(code) != CALL_OK)
	{
		Event event = {.kind = EVENT_REPLY, .number = call->number, .reply.code = code};

		zk_event_push(&event);
	}
}

/* Sends what waits, or only what of it is urgent, as far as the limits allow. */
static void
send_waiting(ZkTurnLimit limit)
{
	Call *call;

	while (flowing && (call = zk_turn_take(limit)) != NULL)
		send_request(call);
}

void
zk_call(ZkCall asked, ZkReplyHandler handler, void *arg)
{
	Call *call = zk_call_new(asked, handler, arg);

	if (zk_call_is_unwatch(call))
	{
		put_off_unwatch(call, zklock_now_ms());
		return;
	}
	if (asked.watch)
	{
		forget_unwatch(call);
		dlist_push_tail(&watching, &call->watching);
	}
	zk_turn_wait(call);
	if (asked.urgent)
		send_waiting(ZK_TURN_URGENT);
}

/* ------------------------------------------------------------------------
 * The client's side
 * ------------------------------------------------------------------------
 */

/* May calls be made? */
bool
zk_client_connected(void)
{
	return flowing;
}

/* A connection stands, of the session before or of a new one. */
void
zk_flow_connected(int64 session_)
{
	Assert(!flowing);
	flowing = true;
	session = session_;
	connection++;
	again_at = zklock_now_ms();
}

/* It is lost.  What was sent is still answered by the library. */
void
zk_flow_disconnected(void)
{
	Assert(flowing);
	flowing = false;
	fail_waiting(ZK_CONNECTION_LOSS);
}

/* The handle is closed, if there was any, and with it all that was asked of it. */
void
zk_flow_over(void)
{
	ZkReply reply = {.code = ZK_CLOSING};

	flowing = false;
	session = 0;
	while (!dlist_is_empty(&in_flight))
		finish_request(dlist_container(Call, link, dlist_pop_head_node(&in_flight)), &reply);
	fail_waiting(ZK_CLOSING);
	while (!dlist_is_empty(&put_off))
		pfree(dlist_container(Call, link, dlist_pop_head_node(&put_off)));
}

/* Several deletions were refused together: each is to be sent by itself. */
static void
part_batch(Call *first)
{
	Call *next;

	for (Call *call = first; call; call = next)
	{
		next = call->next;
		zk_turn_over(call);
		call->next = NULL;
		call->asked.patient = false;
		call->sent_at = 0;
		zk_event_expect_echo(call->asked.path, -1);
		zk_turn_wait(call);
	}
	if (!flowing)
		fail_waiting(ZK_CONNECTION_LOSS);
}

/* An answer has come. */
void
zk_flow_answer(const Event *event)
{
	dlist_iter	iter;
	ZkReply		reply = event->reply;
	const char *fault;

	/* Answers come in order, so this finds it at the head but for oddities. */
	dlist_foreach (iter, &in_flight)
	{
		Call *call = dlist_container(Call, link, iter.cur);

		if (call->number != event->number)
			continue;

		fault = event->fault ? event->fault : zk_answer_fault(&call->asked, &reply, session);
		if (fault)
		{
			zk_callbacks.malformed(fault);
			return;
		}

		dlist_delete(&call->link);
		if (zk_turn_answered(call, reply.code))
		{
			part_batch(call);
			return;
		}

		/*
		 * The library may have sent it on a newer connection than we knew of.
		 * A node that was read there, ahead of our sync, may be older than we
		 * have seen it before; but a watch is set.
		 */
		reply.watching = call->asked.watch && zk_error_outcome(reply.code) == CALL_OK;
		if (call->connection != connection && zk_call_is_read(call))
			reply.code = ZK_CONNECTION_LOSS;
		finish_request(call, &reply);
		return;
	}
}

/* The call whose handler runs, if it is of some path; else NULL. */
const ZkCall *
zk_flow_answering(void)
{
	return answering;
}

/* Has all been answered? */
bool
zk_flow_idle(void)
{
	return zk_turn_is_empty() && dlist_is_empty(&in_flight);
}

/* When a call has been without an answer for too long */
static int64
nudge_at(void)
{
	if (!flowing || dlist_is_empty(&in_flight))
		return NEVER;
	return Max(dlist_head_element(Call, link, &in_flight)->sent_at / 1000, nudged_at) + NUDGE_MS;
}

/* When zk_flow_send() wants to run next at the latest, ms. */
int64
zk_flow_next_wakeup(void)
{
	return flowing && !dlist_is_empty(&put_off) ? Min(nudge_at(), again_at) : nudge_at();
}

static void
nudge(void)
{
	const Call look = {.asked = {.kind = ZK_LOOK, .path = "/"}};

	if (zklock_now_ms() < nudge_at())
		return;
	nudged_at = zklock_now_ms();
	(void) zk_library_send(&look);
}

/* Sends what is waiting for its turn or its time. */
void
zk_flow_send(void)
{
	nudge();
	submit_unwatches();
	send_waiting(ZK_TURN_ANY);
}
