/*
 * zk_flow.c
 *		Calls to ZooKeeper, from when they are made until they are answered.
 *
 * The main loop makes calls at any time (zk_call).  They are sent while a connection
 * stands, and not too many at once.  Each call has a number and is answered exactly once:
 * by the server, or by us if the connection is lost before it is sent, or if the handle is
 * closed, because the library may never answer it then (trap 8).  A late answer finds no
 * call with its number, and is ignored.  A call is sent again, under the same number, only
 * after its first request has been answered: that nothing was done.
 *
 * While there is no connection but the session may live, nothing is sent; the library
 * still answers calls that were sent, and its watches may exist.  Without a session no
 * call is under way, and no watch exists.
 *
 * On its way a call is in these lists, one after the other:
 *
 *		put_off		removals of watches, which must not pass the read that sets the watch
 *		a line		releases and work, of one session: how many calls are under way is
 *					limited (see "The window"), and each session gets its share
 *		in_flight	all that was sent, so that each is answered, whatever the library does
 *		throttled	what a busy server has dropped, for a while; then in its line again
 *
 * All sessions of a server share one connection to ZooKeeper.  These rules say which of
 * the calls that wait is sent next:
 *
 *	- Urgent calls go out at once, whatever is under way: heartbeats, on which all locks
 *	  depend, and whose number lease.c bounds, and the check and the sync with which a
 *	  connection begins.
 *	- Removals of watches go next.  They are few.
 *	- Releases (deletions) and work (all other calls: creates, reads, the checks of a
 *	  COMMIT) take turns while both wait.  Within each kind the roles take turns, and within
 *	  a role its sessions.  So each gets its share, however many calls one makes, and
 *	  however many sessions a role has.  A session's calls of one kind go in the order in
 *	  which they were made.
 *	- A session that has MAX_OF_SESSION calls under way creates and reads nothing more,
 *	  however often it gives up and asks anew: on a slow link, others wait for what is
 *	  under way.  Its releases and the checks of its COMMIT go out, as there are no more of
 *	  them than it holds locks.
 *	- A role has at most MAX_BULKY_OF_ROLE calls under way whose answers may be long:
 *	  ZooKeeper sends each answer whole, and those to heartbeats come behind.
 *
 * So a session that releases thousands of locks delays the others by no more than one
 * that works hard, and sessions that create thousands of nodes do not delay releases.
 *
 * A turn is one call, or two: the create of a lock's node is followed by the listing that
 * its session makes behind it.  A patient call takes others along, which cost little more
 * (see "Calls that go out in one request"); the listings of several creates follow all of
 * them.  Such a request is registered as the first of its calls.
 *
 * Callers can rely on the following:
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
#include "utils/hsearch.h"
#include "zk/zk_internal.h"

#define NUDGE_MS 400
#define AGAIN_MS 5000	 /* until a removal of a watch is tried again */
#define THROTTLED_MS 500 /* until what a busy server has dropped is sent again */

#define MAX_OF_SESSION 48
#define MAX_BULKY_OF_ROLE 16

#define ALL_OF_ROLE (-1) /* no pid */

struct ZkShare;

/* The calls of one kind, of a role or a session, that wait for their turn */
typedef struct Line
{
	ZkTurnKind		turn;
	struct ZkShare *share;	 /* whose line this is */
	dlist_node		link;	 /* unless it is empty: a session's in its role's line, a role's in
							  * "roles" of the kind */
	dlist_head		waiting; /* a role's: the lines of its sessions, the next one first; a
							  * session's: its calls, oldest first */
} Line;

/* What a session, or a role, has of the connection.  It exists while there is any. */
typedef struct ZkShare
{
	ZkOwner			owner;	/* hash key; a role's has ALL_OF_ROLE for a pid */
	struct ZkShare *role;	/* a session's: the share of which it has a part */
	int				ncalls; /* waiting or under way */
	int	 nunder_way;		/* taken, and not answered yet; a role's: its bulky calls alone */
	Line lines[ZK_TURN_KINDS];
} ZkShare;

static HTAB *shares;

/* What all sessions have of one kind */
static struct
{
	dlist_head roles; /* the lines of roles, the next one first */

	/* Patient calls; see "Calls that go out in one request" */
	int	  nwaiting;
	int	  nunder_way;
	int64 quickest_us; /* about the shortest time of an answer to a create, or a deletion */
	int64 again_at;	   /* when they may go out together again, ms */
} turns[ZK_TURN_KINDS] = {{.quickest_us = PG_INT64_MAX}, {.quickest_us = PG_INT64_MAX}};

static ZkTurnKind last_turn = ZK_TURN_WORK; /* kind of the last turn */

/* Calls that were taken, and not answered yet */
static int nunder_way;
static int nurgent; /* of these, those that need no room in the window */

const ZkCall *zk_answering;
ZkConnection  zk_connection = ZK_NO_HANDLE;

static dlist_head in_flight = DLIST_STATIC_INIT(in_flight); /* in order of sending */
static dlist_head watching = DLIST_STATIC_INIT(watching);	/* unanswered calls that set a
															 * watch */
static int64	  session;	  /* of the connection, or the one before; 0: there is none */
static uint64	  connection; /* counts connections */
static int64	  nudged_at;  /* ms */
static dlist_head put_off = DLIST_STATIC_INIT(put_off);		/* removals of watches */
static int64	  again_at;									/* when to send them, ms */
static dlist_head throttled = DLIST_STATIC_INIT(throttled); /* calls to be sent again ... */
static int64	  throttled_until;							/* ... then, ms */

/* ------------------------------------------------------------------------
 * Kinds of calls
 * ------------------------------------------------------------------------
 */

/* Returns true if the call changes a node.  A check is a write as well, but changes none. */
static bool
changes_node(const Call *call)
{
	ZkOperation kind = call->asked.kind;

	return kind == ZK_CREATE || kind == ZK_REPLACE || kind == ZK_APPEND ||
		   kind == ZK_SET_DATA || kind == ZK_DELETE || kind == ZK_CREATE_RECORD;
}

/* Returns true if the call removes a watch. */
static bool
is_unwatch(const Call *call)
{
	return call->asked.kind == ZK_UNWATCH_DATA || call->asked.kind == ZK_UNWATCH_CHILDREN;
}

/* Returns true if a read sets the watch that a removal removes: of the same kind and path. */
static bool
sets_watch_of(const Call *read, const Call *unwatch)
{
	return (read->asked.kind == ZK_GET_CHILDREN) == (unwatch->asked.kind == ZK_UNWATCH_CHILDREN) &&
		   strcmp(read->asked.path, unwatch->asked.path) == 0;
}

/* ------------------------------------------------------------------------
 * The window: how many calls may be under way at once
 * ------------------------------------------------------------------------
 */

/*
 * The calls that are under way when a heartbeat is sent delay it, and all locks depend on
 * heartbeats.  So a window limits the calls under way.  The others wait for their turn,
 * and heartbeats pass them.
 *
 * The window adapts to what is observed.  A call that had few others ahead of it shows how
 * long ZooKeeper takes by itself.  If calls behind more others take twice as long, or
 * MAX_DELAY_US longer if that is more, the window shrinks; otherwise it grows while calls
 * wait.  So it is small for a slow server, and large for one that is far away, which needs
 * more calls under way to be busy.
 *
 * It is there for the heartbeats, not for speed.  A server that does 5,000 calls in a second
 * answers one that comes behind 1,000 others after 200 ms, and one that comes behind
 * MIN_WINDOW or FIRST_WINDOW others after 6 or 26 ms.
 *
 * A busy server does 5,000 to 10,000 calls in a second, so MIN_WINDOW calls are about 5 ms
 * of work.  MAX_WINDOW, with the few urgent calls, is far from what the library cannot take
 * (trap 7).
 */
#define MIN_WINDOW 32
#define FIRST_WINDOW 128
#define MAX_WINDOW 512
#define MAX_DELAY_US 10000

static int	 window = FIRST_WINDOW;
static int64 undisturbed; /* how long a call takes with few others, us; 0: unknown */
static int64 changed_at;  /* us */

/* Returns true if only calls that need no room may go out. */
static bool
window_is_full(void)
{
	return nunder_way - nurgent >= window;
}

/*
 * Adapts the window, and the quickest time of its kind, to a request that was answered just now.
 *
 *	calls_wait	for their turn
 */
static void
learn_from_answer(const Call *first, bool calls_wait)
{
	int64  now = zklock_now_us();
	int64  taken = now - first->sent_at;
	int64 *quickest = &turns[first->turn].quickest_us;

	if (first->asked.kind == ZK_CREATE || first->asked.kind == ZK_DELETE)
		*quickest = taken < *quickest ? taken : *quickest + (taken - *quickest) / 256;

	if (first->ahead < MIN_WINDOW)
	{
		/* Many things can make a single call slow, but nothing makes one fast. */
		if (undisturbed == 0)
			undisturbed = taken;
		else
			undisturbed += (taken - undisturbed) / (taken < undisturbed ? 4 : 256);
		return;
	}

	/* It changes once in the time of a call: only later calls show the effect of a change. */
	if (first->sent_at < changed_at)
		return;
	if (taken > undisturbed + Max(undisturbed, MAX_DELAY_US))
		window = Max(window - window / 4, MIN_WINDOW);
	else if (calls_wait)
		window = Min(window + window / 8, MAX_WINDOW);
	else
		return;
	changed_at = now;
}

/* ------------------------------------------------------------------------
 * Calls that go out in one request
 * ------------------------------------------------------------------------
 */

/*
 * Most calls of a busy server create lock nodes, list their paths, or delete them.  Creates
 * and deletions that are marked as patient go out together, those of one kind in one
 * request: ZooKeeper commits them in one write and answers them in one message.  When the
 * turn comes to a patient call, the others of its kind that wait go with it.
 *
 * So that they gather, patient calls wait while a request of others of their kind is under
 * way, unless ZK_MULTI_MAX have gathered.  This delays a lock or an unlock by the time of
 * one request at most, and pays where requests cost more work than time.  So it is done
 * only if ZooKeeper can answer within NEAR_US.  The quickest answers show that, the latest
 * of them most; under load all answers take longer.  A session that is alone never waits.
 *
 * That is worth, with 16 sessions on a path each, two cores and ZooKeeper in memory: a node that
 * is created, listed and deleted by the client library alone takes 362 us of processor time,
 * ZooKeeper's included; 259 us if deletions go out together, 163 us if creates do, too.  A lock
 * and its release take 407 us in all processes with deletions alone, 327 us with both, and there
 * are 1.13 times as many of them in a second.  One session gains nothing.
 *
 * Such a request does all or nothing.  If it is refused, nothing was done, and each call is
 * sent again by itself, no longer patient, which shows what is wrong with which.  For PAUSE_MS
 * each call of that kind then goes by itself, so that a node that cannot be created or
 * deleted does not cost all others a second request each time; but where paths are missing,
 * the caller says which creates are patient (engine/node.c).  If it is not known what became
 * of the request, it is not known of any of its calls.
 */
#define NEAR_US 5000
#define PAUSE_MS 1000

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/* Which calls may have the next turn */
typedef enum TurnLimit
{
	TAKE_ALL, /* all of them, none of which is sent */
	TAKE_ANY,
	TAKE_PATIENT /* those that may go out with the one that was taken */
} TurnLimit;

/* Counts a call that is under way from now on (1), or no longer (-1). */
static void
count_under_way(Call *call, int change)
{
	ZkShare *share = call->share; /* NULL: it has not waited for a turn */
	ZkShare *role;

	if (change > 0)
		call->ahead = nunder_way;
	nunder_way += change;
	if (call->asked.urgent)
		nurgent += change;
	if (call->asked.patient)
		turns[call->turn].nunder_way += change;
	if (share == NULL)
		return;
	share->nunder_way += change;
	if (call->asked.bulky)
		share->role->nunder_way += change;
	if (change > 0)
		return;
	call->share = NULL;
	role = share->role;
	if (--share->ncalls == 0)
		(void) hash_search(shares, &share->owner, HASH_REMOVE, NULL);
	if (--role->ncalls == 0)
		(void) hash_search(shares, &role->owner, HASH_REMOVE, NULL);
}

/* Puts a call, which is in no list, behind the others of its session. */
static void
wait_for_turn(Call *call)
{
	HASHCTL	 ctl = {.keysize = sizeof(ZkOwner), .entrysize = sizeof(ZkShare)};
	ZkOwner	 role_owner = {.pid = ALL_OF_ROLE, .role = call->asked.owner.role};
	ZkShare *share[2]; /* the role's, and the session's */
	Line	*its;
	Line	*role;

	if (shares == NULL)
		shares = hash_create("zklock calls", 128, &ctl, HASH_ELEM | HASH_BLOBS);
	for (int i = 0; i < 2; i++)
	{
		bool found;

		share[i] = hash_search(shares, i == 0 ? &role_owner : &call->asked.owner, HASH_ENTER, &found);
		if (!found)
		{
			share[i]->role = i == 0 ? NULL : share[0];
			share[i]->ncalls = share[i]->nunder_way = 0;
			for (ZkTurnKind turn = 0; turn < ZK_TURN_KINDS; turn++)
			{
				share[i]->lines[turn].turn = turn;
				share[i]->lines[turn].share = share[i];
				dlist_init(&share[i]->lines[turn].waiting);
			}
		}
		share[i]->ncalls++;
	}
	call->share = share[1];
	if (call->asked.patient)
		turns[call->turn].nwaiting++;

	role = &share[0]->lines[call->turn];
	its = &share[1]->lines[call->turn];
	if (dlist_is_empty(&role->waiting))
		dlist_push_tail(&turns[call->turn].roles, &role->link);
	if (dlist_is_empty(&its->waiting))
		dlist_push_tail(&role->waiting, &its->link);
	dlist_push_tail(&its->waiting, &call->link);
}

/*
 * Returns the line of the session that has the next turn, or NULL.  It is one of the other kind
 * than the last, if there is one, but what goes out with a call is of the same kind.
 */
static Line *
next_line(TurnLimit limit)
{
	ZkTurnKind other = last_turn == ZK_TURN_RELEASE ? ZK_TURN_WORK : ZK_TURN_RELEASE;

	for (int i = limit == TAKE_PATIENT ? 1 : 0; i < ZK_TURN_KINDS; i++)
	{
		ZkTurnKind turn = i == 0 ? other : last_turn;
		dlist_iter role;
		dlist_iter iter;

		/* Patient calls wait until more have gathered. */
		bool gather = turns[turn].nunder_way > 0 && turns[turn].nwaiting < ZK_MULTI_MAX &&
					  (turns[turn].quickest_us <= NEAR_US || ZKLOCK_FAULT("near")) &&
					  zklock_now_ms() >= turns[turn].again_at;

		dlist_foreach (role, &turns[turn].roles)
		{
			dlist_foreach (iter, &dlist_container(Line, link, role.cur)->waiting)
			{
				Line		  *line = dlist_container(Line, link, iter.cur);
				const ZkShare *share = line->share;
				const ZkCall  *asked = &dlist_head_element(Call, link, &line->waiting)->asked;

				if (limit == TAKE_ALL)
					return line;
				if (limit == TAKE_PATIENT ? !asked->patient : asked->patient && gather)
					continue;

				/* Others of its session or role must be answered first. */
				if (turn == ZK_TURN_WORK && asked->owner.pid != ZK_WORKER &&
					((asked->bulky && share->role->nunder_way >= MAX_BULKY_OF_ROLE) ||
					 (asked->kind != ZK_CHECK && share->nunder_way >= MAX_OF_SESSION)))
					continue;
				return line;
			}
		}
	}
	return NULL;
}

/*
 * Takes a session's oldest call out of its line, and its follower, if it has one; they are under
 * way from now on.  When the turn is over, the session comes behind the others of its role, and
 * the role behind the other roles.
 */
static Call *
take_turn(Line *line)
{
	Line  *role = &line->share->role->lines[line->turn];
	Call  *first = NULL;
	Call **taken = &first;

	for (;;)
	{
		Call *call = *taken = dlist_container(Call, link, dlist_pop_head_node(&line->waiting));

		if (call->asked.patient)
			turns[line->turn].nwaiting--;
		count_under_way(call, 1);
		if (taken != &first || !call->asked.followed || dlist_is_empty(&line->waiting))
			break;
		taken = &call->follower;
	}
	dlist_delete(&line->link);
	if (!dlist_is_empty(&line->waiting))
		dlist_push_tail(&role->waiting, &line->link);
	dlist_delete(&role->link);
	if (!dlist_is_empty(&role->waiting))
		dlist_push_tail(&turns[line->turn].roles, &role->link);
	last_turn = line->turn;
	return first;
}

/* ------------------------------------------------------------------------
 * Watches that are no longer wanted
 * ------------------------------------------------------------------------
 */

/*
 * A watch is removed by a call.  The call waits until we are connected and no read that
 * sets the watch is waiting or under way, because it must not pass that read: until it is
 * answered, the library knows of no watch that it could remove.  If the removal fails, the
 * library would carry the watch from one connection to the next, so it is repeated, unless
 * a read has set the watch again meanwhile.
 */

/* Returns true if a read that sets the watch which the call removes waits or is under way. */
static bool
watch_is_wanted(const Call *unwatch)
{
	dlist_iter iter;

	dlist_foreach (iter, &watching)
	{
		if (sets_watch_of(dlist_container(Call, watching, iter.cur), unwatch))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

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

/*
 * Answers all calls of a request, which were taken and are in no list, and frees them.  Puts off
 * the removal of a watch instead if it has failed.
 */
static void
finish_request(Call *first, const ZkReply *answer)
{
	Call *next;
	int	  n = 0;

	if (first->sent_at != 0)
		zk_callbacks.answered(answer->code == ZK_NO_WATCHER ? CALL_OK : zk_error(answer->code).outcome,
							  zklock_now_us() - first->sent_at);
	for (Call *call = first; call; call = next)
	{
		const ZkCall *asked = &call->asked;
		ZkReply		  reply = nth_reply(answer, call, n++);

		next = call->next;
		reply.outcome = zk_error(reply.code).outcome;
		count_under_way(call, -1);
		if (asked->watch)
			dlist_delete(&call->watching);
		if (asked->kind == ZK_DELETE && call->sent_at != 0)
			zk_event_expect_echo(asked->path, -1);
		if (is_unwatch(call) && reply.outcome != CALL_OK && reply.code != ZK_NO_WATCHER &&
			!watch_is_wanted(call))
		{
			if (dlist_is_empty(&put_off))
				again_at = zklock_now_ms() + AGAIN_MS;
			dlist_push_tail(&put_off, &call->link);
			continue;
		}

		/*
		 * The leader checks the session first, then the node, and then its ACL.  Any other
		 * error may come from another server or from the library.
		 */
		if (asked->kind == ZK_CHECK && reply.outcome != CALL_OK && reply.outcome != CALL_NO_NODE)
			reply.outcome = reply.code == ZK_NO_AUTH ? CALL_OK : CALL_UNKNOWN;
		if (asked->kind != ZK_SYNC && asked->kind != ZK_CHECK)
			ZKLOCK_SLOW("slow-answers", 120, 150);
		if (changes_node(call) && reply.outcome == CALL_OK && ZKLOCK_FAULT("fail-written"))
			elog(ERROR, "fault: fail-written");
		reply.asked = asked;
		reply.sent_at = call->sent_at;
		zk_answering = asked->urgent ? NULL : asked;
		if (call->handler)
			call->handler(call->arg, &reply);
		zk_answering = NULL;
		pfree(call);
	}
}

/* Handles an answer that has come. */
void
zk_flow_answer(const Event *event)
{
	ZkReply		reply = event->reply;
	CallOutcome outcome = zk_error(reply.code).outcome;
	bool		unknown = outcome == CALL_UNKNOWN || zk_error(reply.code).is_breakdown;
	const char *fault = event->fault;
	Call	   *first = NULL;
	Call	   *next;
	int			n = 0;
	bool		refused;
	dlist_iter	iter;

	/* Answers come in order, so the call is at the head of the list, with rare exceptions. */
	dlist_foreach (iter, &in_flight)
	{
		first = dlist_container(Call, link, iter.cur);
		if (first->number == event->number)
			break;
		first = NULL;
	}
	if (first == NULL)
		return; /* we have answered it */

	for (const Call *call = first; call && fault == NULL; call = call->next)
	{
		ZkReply its = nth_reply(&reply, call, n++);

		fault = zk_answer_fault(&call->asked, &its, session);
	}
	if (fault)
	{
		zk_callbacks.malformed(fault);
		return;
	}
	dlist_delete(&first->link);
	if (outcome != CALL_UNKNOWN)
		learn_from_answer(first, next_line(TAKE_ALL) != NULL);

	/*
	 * If a request of several calls did nothing, or the server was too busy to look at one, each
	 * call is sent again by itself: at once, or later.
	 */
	refused = first->next && outcome != CALL_OK && !unknown && !ZKLOCK_FAULT("batch-done");
	if (refused && (first->asked.kind == ZK_DELETE || outcome != CALL_NO_NODE))
		turns[first->turn].again_at = zklock_now_ms() + PAUSE_MS;
	refused |= reply.code == ZK_THROTTLED && !first->asked.urgent && !is_unwatch(first);
	if (refused && zk_connection >= ZK_CONNECTED)
	{
		/* The time runs from the first call that was dropped: later ones do not put it off. */
		if (dlist_is_empty(&throttled))
			throttled_until = zklock_now_ms() + THROTTLED_MS;
		for (Call *call = first; call; call = next)
		{
			next = call->next;
			count_under_way(call, -1);
			call->next = call->follower = NULL;
			call->asked.patient = false;
			call->asked.followed = false; /* the listing that was to follow has been sent */
			call->sent_at = 0;
			if (call->asked.kind == ZK_DELETE)
				zk_event_expect_echo(call->asked.path, -1);
			if (reply.code == ZK_THROTTLED)
				dlist_push_tail(&throttled, &call->link);
			else
				wait_for_turn(call);
		}
		return;
	}

	/* Nothing was done, but there is no connection on which to send it again. */
	if (refused)
		reply.code = ZK_CONNECTION_LOSS;

	/*
	 * The library may have sent the call on a newer connection than we knew of.  What was read
	 * there, ahead of our sync, may be an older state of the node than we have seen before.  So
	 * the answer does not count, but the watch is set.
	 */
	reply.watching = first->asked.watch && outcome == CALL_OK;
	if (first->connection != connection &&
		(first->asked.kind == ZK_EXISTS || first->asked.kind == ZK_GET_DATA ||
		 first->asked.kind == ZK_GET_CHILDREN || first->asked.kind == ZK_GET_ACL))
		reply.code = ZK_CONNECTION_LOSS;
	finish_request(first, &reply);
}

/* ------------------------------------------------------------------------
 * Calls are made and sent
 * ------------------------------------------------------------------------
 */

/* Hands a request, which was taken, to the library. */
static void
send_request(Call *first)
{
	for (Call *call = first; call; call = call->next)
	{
		call->sent_at = zklock_now_us();
		if (call->asked.kind == ZK_DELETE)
			zk_event_expect_echo(call->asked.path, 1);
	}
	first->connection = connection;
	dlist_push_tail(&in_flight, &first->link);
	if (first->asked.kind == ZK_GET_CHILDREN || first->asked.watch)
		ZKLOCK_SLOW("slow-reads", 120, 150);
	else if (changes_node(first))
		ZKLOCK_SLOW("slow-writes", 120, 150);
	zk_library_send(first);
}

void
zk_call(ZkCall asked, ZkReplyHandler handler, void *arg)
{
	static uintptr_t last_number; /* 0 is a nudge's, for whose answer nobody waits */

	size_t path_size = strlen(asked.path) + 1;
	size_t second_size = asked.marker ? strlen(asked.marker) + 1 : 0;
	size_t pin_size = asked.pin ? strlen(asked.pin) + 1 : 0;
	Call  *call;
	char  *copy;

	/* Data get a NUL behind them, since a handler may make the next call from this one. */
	if (asked.data && asked.data_length == 0)
		asked.data_length = strlen(asked.data);
	call = palloc(sizeof(Call) + path_size + second_size + pin_size + asked.data_length + 1);
	*call = (Call){.number = ++last_number, .asked = asked, .handler = handler, .arg = arg};
	call->turn = asked.kind == ZK_DELETE ? ZK_TURN_RELEASE : ZK_TURN_WORK;
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

	if (is_unwatch(call))
	{
		again_at = zklock_now_ms();
		dlist_push_tail(&put_off, &call->link);
		return;
	}
	Assert(zk_connection >= ZK_CONNECTED);
	if (asked.watch)
	{
		dlist_mutable_iter iter;

		/* The watch is wanted again. */
		dlist_foreach_modify (iter, &put_off)
		{
			Call *unwatch = dlist_container(Call, link, iter.cur);

			if (sets_watch_of(call, unwatch))
			{
				dlist_delete(&unwatch->link);
				pfree(unwatch);
			}
		}
		dlist_push_tail(&watching, &call->watching);
	}
	if (asked.urgent)
	{
		count_under_way(call, 1);
		send_request(call);
	}
	else
		wait_for_turn(call);
}

/*
 * Sends the calls whose turn or time has come, at the end of a round.  Returns when it must run
 * next at the latest, ms.
 */
int64
zk_flow_send(void)
{
	const Call		   look = {.asked = {.kind = ZK_EXISTS, .path = "/"}};
	int64			   now = zklock_now_ms();
	int64			   next = NEVER;
	dlist_mutable_iter iter;
	Line			  *line;

	if (zk_connection < ZK_CONNECTED)
		return NEVER;

	/* Removals that are due, except those of watches that a read is about to set */
	if (!dlist_is_empty(&put_off) && now >= again_at)
	{
		again_at = now + AGAIN_MS;
		dlist_foreach_modify (iter, &put_off)
		{
			Call *unwatch = dlist_container(Call, link, iter.cur);

			if (watch_is_wanted(unwatch))
				continue;
			if (window_is_full())
			{
				again_at = now; /* it stays due: answers make room */
				break;
			}
			dlist_delete(&unwatch->link);
			count_under_way(unwatch, 1);
			send_request(unwatch);
		}
	}

	while (!dlist_is_empty(&throttled) && now >= throttled_until)
		wait_for_turn(dlist_container(Call, link, dlist_pop_head_node(&throttled)));
	while (!window_is_full() && (line = next_line(TAKE_ANY)) != NULL)
	{
		Call *first = take_turn(line);
		Call *call = first;
		bool  others = first->asked.patient && now >= turns[first->turn].again_at;

		/* A patient call takes others along. */
		for (int n = 1; others && n < ZK_MULTI_MAX && !window_is_full(); n++)
		{
			line = next_line(TAKE_PATIENT);
			if (line == NULL)
				break;
			call = call->next = take_turn(line);
		}
		send_request(first);
		for (call = first; call; call = call->next)
		{
			if (call->follower)
				send_request(call->follower);
		}
	}

	/* The oldest call under way may have waited for too long. */
	if (!dlist_is_empty(&in_flight))
	{
		int64 oldest = dlist_head_element(Call, link, &in_flight)->sent_at / 1000;

		if (now >= Max(oldest, nudged_at) + NUDGE_MS)
		{
			nudged_at = now;
			zk_library_send(&look);
		}
		next = Max(oldest, nudged_at) + NUDGE_MS;
	}
	if (!dlist_is_empty(&put_off) && !window_is_full())
		next = Min(next, again_at);
	return dlist_is_empty(&throttled) ? next : Min(next, throttled_until);
}

/* ------------------------------------------------------------------------
 * The connection
 * ------------------------------------------------------------------------
 */

/* Called when we are connected, in the former session or a new one. */
void
zk_flow_connected(int64 session_)
{
	Assert(zk_connection < ZK_CONNECTED);
	zk_connection = ZK_CONNECTED;
	session = session_;
	connection++;
	again_at = zklock_now_ms();
}

/*
 * Called when the connection is lost: the library still answers the calls that were sent.  Or
 * when the handle, if there was one, is closed ("for_good"): all calls are answered as unknown.
 */
void
zk_flow_disconnected(bool for_good)
{
	ZkReply reply = {.code = for_good ? ZK_CLOSING : ZK_CONNECTION_LOSS};
	Line   *line;

	zk_connection = for_good ? ZK_NO_HANDLE : ZK_CONNECTING;
	if (for_good)
	{
		session = 0;
		while (!dlist_is_empty(&in_flight))
			finish_request(dlist_container(Call, link, dlist_pop_head_node(&in_flight)), &reply);
	}

	/* What waits to be sent never will be, so its outcome is unknown as well. */
	while (!dlist_is_empty(&throttled))
		wait_for_turn(dlist_container(Call, link, dlist_pop_head_node(&throttled)));
	while ((line = next_line(TAKE_ALL)) != NULL)
	{
		Call *call = take_turn(line);

		call->next = call->follower;
		finish_request(call, &reply);
	}
	while (for_good && !dlist_is_empty(&put_off))
		pfree(dlist_container(Call, link, dlist_pop_head_node(&put_off)));
}

/* Returns true if all calls have been answered. */
bool
zk_flow_idle(void)
{
	return next_line(TAKE_ALL) == NULL && dlist_is_empty(&in_flight) && dlist_is_empty(&throttled);
}

/* Returns since when a server owes us the oldest answer, ms, or NEVER. */
int64
zk_flow_waits_since(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &in_flight)
	{
		Call *call = dlist_container(Call, link, iter.cur);

		if (zk_connection >= ZK_CONNECTED && call->connection == connection)
			return call->sent_at / 1000;
	}
	return NEVER;
}
