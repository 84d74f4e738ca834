/*
 * zk_flow.c
 *		Calls to ZooKeeper, from when they are made until they are answered.
 *
 * The main loop makes calls at any time (zk_call).  They are sent while a connection
 * stands, and not too many at once.  Each call has a number and is answered exactly once:
 * by the server, or by us if the connection is lost before it is sent, or if the handle is
 * closed, because the library may never answer it then (trap 8).  A late answer finds no
 * call with its number, and is ignored.  A call is sent again, under the same number, only
 * after its first request has been answered: that nothing was done (send_again).
 *
 * While there is no connection but the session may live, nothing is sent; the library
 * still answers calls that were sent, and its watches may exist.  Without a session no
 * call is under way, and no watch exists.
 *
 * zk_turn.c chooses how many calls are sent at once, in which order, and which go out
 * together.  Urgent calls need no room in its window: heartbeats, whose number lease.c
 * bounds, and the two calls with which a connection begins.  MAX_UNDER_WAY bounds all
 * (trap 7).  A request may consist of several calls; it is registered as the first of
 * them.  Callers can rely on the following:
 *
 *	- Answers are handled one after the other, in the order in which the calls were sent,
 *	  and the server did them in that order.  Therefore a node of ours whose create was
 *	  answered before a listing existed when the listing was made, and a node whose delete
 *	  was answered did not.
 *	- The work of one owner, which is all but its deletions, removals of watches and urgent
 *	  calls, is sent in the order in which it was made: a create before the listing behind
 *	  it, a node before those below it.
 *	- The create of a lock's node, if it is marked as "followed", goes out right ahead of
 *	  the next call of the same owner, which is its listing, with nothing in between but
 *	  the same of others.
 *	- The removal of a watch never comes between a read that sets it and that read's
 *	  answer, and a read that is made after a removal comes behind it.
 *	- A sync is sent before the reads that its owner makes after it; an urgent one, before
 *	  the reads of all owners.
 *
 * Nothing more is needed.  The calls that create, find, replace or delete one node are
 * made one at a time, each when the one before has been answered, or, if it is not known
 * what became of that one, on the next connection.  So a delete cannot overtake the create
 * of its node.  Listings of one path for several owners may come in any order: a contender
 * that waits for the n-th of them waits until n have come, and the last to come was sent
 * after it had asked.  A deletion that overtakes a listing only makes it shorter, and is
 * answered before it.
 *
 * A server of some versions forgets a request until another one arrives (ZOOKEEPER-4537,
 * trap 5), and the library does not ping while it waits for answers.  So a call that has
 * waited for NUDGE_MS is followed by a harmless one.
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
#define AGAIN_MS 5000	 /* until a removal of a watch is tried again */
#define THROTTLED_MS 500 /* until what a busy server has dropped is sent again */

ZkClientCallbacks zk_callbacks;

static bool			 flowing;								   /* a connection stands */
static dlist_head	 in_flight = DLIST_STATIC_INIT(in_flight); /* in order of sending */
static dlist_head	 watching = DLIST_STATIC_INIT(watching);   /* unanswered calls that set a
														   * watch */
static int64		 session;	 /* of the connection, or the one before; 0: there is none */
static uint64		 connection; /* counts connections */
static int64		 nudged_at;	 /* ms */
static dlist_head	 put_off = DLIST_STATIC_INIT(put_off);	   /* removals of watches */
static int64		 again_at;								   /* when to send them, ms */
static dlist_head	 throttled = DLIST_STATIC_INIT(throttled); /* calls to be sent again ... */
static int64		 throttled_until;						   /* ... then, ms */
static const ZkCall *answering;								   /* see zk_flow_answering() */

/* ------------------------------------------------------------------------
 * Watches that are no longer wanted
 * ------------------------------------------------------------------------
 */

/*
 * A watch is removed by a call.  The call waits until we are connected and no read that
 * sets the watch is waiting or under way, because it must not pass that read.  If the
 * removal fails, the library would carry the watch from one connection to the next, so it
 * is repeated, unless a read has set the watch again meanwhile.
 */

/* Has a removal, which is in no list, sent at the time "when", ms, or later. */
static void
put_off_unwatch(Call *unwatch, int64 when)
{
	again_at = dlist_is_empty(&put_off) ? when : Min(again_at, when);
	dlist_push_tail(&put_off, &unwatch->link);
}

/* Drops the removals of the watch that a read sets. */
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

/* Returns true if a read that sets the watch which the call removes waits or is under way. */
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
 * Has the removals that are due wait for their turn, except those that must not pass a
 * read: until it is answered, the library knows of no watch that it could remove.
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

/*
 * Answers a call, which was taken and is in no list, and frees it.  Puts off the removal of a
 * watch instead if it has failed.
 */
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
	 * The leader checks the session first, then the node, and then its ACL.  Any other
	 * error may come from another server or from the library.
	 */
	if (call->asked.kind == ZK_CHECK && reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		reply->outcome = reply->code == ZK_NO_AUTH ? CALL_OK : CALL_UNKNOWN;
	if (call->asked.kind != ZK_SYNC && call->asked.kind != ZK_CHECK)
		ZKLOCK_SLOW("slow-answers", 120, 150);
	if (zk_call_is_write(call) && reply->outcome == CALL_OK && ZKLOCK_FAULT("fail-written"))
		elog(ERROR, "fault: fail-written");
	reply->asked = &call->asked;
	reply->sent_at = call->sent_at;
	answering = call->asked.urgent ? NULL : &call->asked;
	if (call->handler)
		call->handler(call->arg, reply);
	answering = NULL;
	pfree(call);
}

/*
 * Returns the reply to the n-th call of a request.  Several creates, and an append, are
 * answered by the paths of the nodes, which come as children do.
 */
static ZkReply
nth_reply(const ZkReply *all, const Call *call, int n)
{
	ZkReply reply = *all;

	if (call->asked.kind == ZK_GET_CHILDREN || n >= all->nchildren)
		return reply;
	reply.path = all->children[n];
	reply.nchildren = 0;
	return reply;
}

/* Answers all calls of a request, which is no longer in any list. */
static void
finish_request(Call *first, ZkReply *reply)
{
	Call *next;
	int	  n = 0;

	zk_callbacks.answered(reply->code == ZK_NO_WATCHER ? CALL_OK : zk_error_outcome(reply->code),
						  zklock_now_us() - first->sent_at);
	for (Call *call = first; call; call = next)
	{
		ZkReply own = nth_reply(reply, call, n++);

		next = call->next;
		finish_call(call, &own);
	}
}

/* Has the calls that a busy server has dropped wait for their turn again. */
static void
submit_throttled(void)
{
	while (!dlist_is_empty(&throttled))
		zk_turn_wait(dlist_container(Call, link, dlist_pop_head_node(&throttled)));
}

/* Answers all calls that wait to be sent, with a code whose outcome is unknown. */
static void
fail_waiting(int code)
{
	ZkReply reply = {.code = code};
	Call   *call;

	submit_throttled();
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
	if (call->asked.kind == ZK_GET_CHILDREN || call->asked.watch)
		ZKLOCK_SLOW("slow-reads", 120, 150);
	else if (zk_call_is_write(call))
		ZKLOCK_SLOW("slow-writes", 120, 150);
	code = zk_library_send(call);

	/* A call that could not be sent is answered by an event too, in its turn. */
	if (zk_error_outcome(code) != CALL_OK)
	{
		Event event = {.kind = EVENT_REPLY, .number = call->number, .reply.code = code};

		zk_event_push(&event);
	}
}

/* Sends calls that wait, or only the urgent ones, as far as the limits allow. */
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

/* Returns true while a connection stands, so that calls may be made. */
bool
zk_client_connected(void)
{
	return flowing;
}

/* Called when we are connected, in the former session or a new one. */
void
zk_flow_connected(int64 session_)
{
	Assert(!flowing);
	flowing = true;
	session = session_;
	connection++;
	again_at = zklock_now_ms();
}

/* Called when the connection is lost.  The library still answers the calls that were sent. */
void
zk_flow_disconnected(void)
{
	Assert(flowing);
	flowing = false;
	fail_waiting(ZK_CONNECTION_LOSS);
}

/* Called when the handle, if there was one, is closed.  Answers all calls as unknown. */
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

/*
 * Has each call of a request that did nothing sent again by itself: at once, or later if the
 * server was too busy to look at it.  The listing that was to follow a create has been sent.
 */
static void
send_again(Call *first, int code)
{
	Call *next;

	/* The time runs from the first call that was dropped: later ones do not put it off. */
	if (dlist_is_empty(&throttled))
		throttled_until = zklock_now_ms() + THROTTLED_MS;
	for (Call *call = first; call; call = next)
	{
		next = call->next;
		zk_turn_over(call);
		call->next = NULL;
		call->asked.patient = false;
		call->asked.followed = false;
		call->sent_at = 0;
		if (call->asked.kind == ZK_DELETE)
			zk_event_expect_echo(call->asked.path, -1);
		dlist_push_tail(&throttled, &call->link);
	}
	if (code != ZK_THROTTLED)
		submit_throttled();
	if (!flowing)
		fail_waiting(ZK_CONNECTION_LOSS);
}

/* Returns what is malformed in the answer to a request, or NULL. */
static const char *
find_fault(const Call *first, const Event *event)
{
	const char *fault = event->fault;
	int			n = 0;

	for (const Call *call = first; call && fault == NULL; call = call->next)
	{
		ZkReply reply = nth_reply(&event->reply, call, n++);

		fault = zk_answer_fault(&call->asked, &reply, session);
	}
	return fault;
}

/* Handles an answer that has come. */
void
zk_flow_answer(const Event *event)
{
	dlist_iter	iter;
	ZkReply		reply = event->reply;
	const char *fault;

	/* Answers come in order, so the call is at the head of the list, with rare exceptions. */
	dlist_foreach (iter, &in_flight)
	{
		Call *call = dlist_container(Call, link, iter.cur);

		if (call->number != event->number)
			continue;

		fault = find_fault(call, event);
		if (fault)
		{
			zk_callbacks.malformed(fault);
			return;
		}

		dlist_delete(&call->link);
		if (zk_turn_answered(call, reply.code) ||
			(reply.code == ZK_THROTTLED && !call->asked.urgent && !zk_call_is_unwatch(call)))
		{
			send_again(call, reply.code);
			return;
		}

		/*
		 * The library may have sent the call on a newer connection than we knew of.  A read
		 * there, ahead of our sync, may return an older state of the node than we have seen
		 * before.  So the answer does not count, but the watch is set.
		 */
		reply.watching = call->asked.watch && zk_error_outcome(reply.code) == CALL_OK;
		if (call->connection != connection && zk_call_is_read(call))
			reply.code = ZK_CONNECTION_LOSS;
		finish_request(call, &reply);
		return;
	}
}

/* Returns the call whose handler runs, unless it is an urgent one; else NULL. */
const ZkCall *
zk_flow_answering(void)
{
	return answering;
}

/* Returns true if all calls have been answered. */
bool
zk_flow_idle(void)
{
	return zk_turn_is_empty() && dlist_is_empty(&in_flight) && dlist_is_empty(&throttled);
}

/* Returns since when a server owes us the oldest answer, ms, or NEVER. */
int64
zk_flow_waits_since(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &in_flight)
	{
		Call *call = dlist_container(Call, link, iter.cur);

		if (flowing && call->connection == connection)
			return call->sent_at / 1000;
	}
	return NEVER;
}

/* Returns when the oldest call under way has waited for too long, ms. */
static int64
nudge_at(void)
{
	if (!flowing || dlist_is_empty(&in_flight))
		return NEVER;
	return Max(dlist_head_element(Call, link, &in_flight)->sent_at / 1000, nudged_at) + NUDGE_MS;
}

/* Returns when zk_flow_send() must run next at the latest, ms. */
int64
zk_flow_next_wakeup(void)
{
	int64 wakeup = nudge_at();

	if (flowing && !dlist_is_empty(&put_off))
		wakeup = Min(wakeup, again_at);
	return dlist_is_empty(&throttled) ? wakeup : Min(wakeup, throttled_until);
}

static void
nudge(void)
{
	const Call look = {.asked = {.kind = ZK_EXISTS, .path = "/"}};

	if (zklock_now_ms() < nudge_at())
		return;
	nudged_at = zklock_now_ms();
	(void) zk_library_send(&look);
}

/* Sends the calls whose turn or time has come. */
void
zk_flow_send(void)
{
	nudge();
	submit_unwatches();
	if (zklock_now_ms() >= throttled_until)
		submit_throttled();
	send_waiting(ZK_TURN_ANY);
}
