/*
 * zk_client.c
 *		The connection to ZooKeeper, and the calls on it until they are answered.
 *
 * The files of this folder, from the lowest layer to the highest:
 *
 *		connect_string.c	servers and their addresses
 *		zk_answer.c			checks of answers, and the meaning of error codes
 *		zk_security.c		TLS, SASL, credentials, and the files that they need
 *		zk_library.c		the client library: handles, threads, and what these hand over to
 *							the main loop; calls and answers in its terms
 *		zk_client.c			the connection, and what follows from events; which call is sent
 *							and when
 *
 * The library has traps.  Comments refer to them by the numbers of the table in
 * doc/internals.md, which says what is done about each.  This file deals with these:
 *
 *	 - The library may reconnect at any time without reporting the loss (trap 7).
 *	 - It presents the password that the last handshake has brought, whatever that was
 *	   (trap 17).  The password must be the session's (zk_answer_session_fault).
 *	 - If a server marks watch events as session events, the library takes them for its
 *	   own.  An end of the session that the handle does not know of is ignored
 *	   (zk_library.c, on_event); a lost connection that was not lost is noticed
 *	   (zk_client_look_again).
 *	 - It reconnects at once, up to ten times a second, to a server that always hangs up
 *	   (trap 15).  Such a handle cannot be given up, so the worker ends.  The next one begins
 *	   a second later, or more if that happens again (connection_changed).
 *	 - It leaves a silent server too late: after two thirds of the session timeout, or in
 *	   TLS's handshake never (leave_silent_server).
 *	 - The library cannot be asked to leave a connection and keep the session (trap 16):
 *	   zookeeper_close() ends the session, and zoo_set_servers() frees what the library's thread
 *	   uses.  But it takes a connection whose socket was shut down for one that is lost, and
 *	   tries the next address, in whatever state it is: connecting, in TLS's handshake or
 *	   ZooKeeper's, or connected (leave_silent_server).
 *	 - That SASL has failed is a state of the handle, but no event (trap 22).  It is looked
 *	   at (zk_client_dispatch).
 *
 * Servers are believed: if one says that the session is over, it is over (trap 14).
 *
 * Calls
 * -----
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

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "fault.h"
#include "shared/common.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "zk/zk_internal.h"

#define LOOK_MS 250		 /* how often we look for a silent server */
#define STILL_MS 1000	 /* if we look so much later, the process has stood still */
#define MAX_UNANSWERED 3 /* connections in a row */

#define SASL_EPILOGUE "SASL authentication failed" /* follows each complaint about SASL */

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_UNIMPLEMENTED == ZUNIMPLEMENTED &&
					 ZK_API_ERROR == ZAPIERROR && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_INVALID_ACL == ZINVALIDACL && ZK_AUTH_FAILED == ZAUTHFAILED &&
					 ZK_CLOSING == ZCLOSING && ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");
#define NUDGE_MS 400
#define AGAIN_MS 5000	 /* until a removal of a watch is tried again */
#define THROTTLED_MS 500 /* until what a busy server has dropped is sent again */

#define MAX_OF_SESSION 48
#define MAX_BULKY_OF_ROLE 16

#define ALL_OF_ROLE (-1) /* no pid */

/* ------------------------------------------------------------------------
 * State
 * ------------------------------------------------------------------------
 */

/*
 * The library connects, and reconnects, by itself while there is a handle:
 *
 *                 zk_client_open                connected              answer
 *      NO_HANDLE ----------------> CONNECTING -----------> CONNECTED --------> ANSWERED
 *         ^  ^                     |    ^                    |  |               |  |
 *         |  '---------------------'    '--------------------+------------------'  |
 *         |       leave_handle                any state         |                  |
 *         '-----------------------------------------------------+------------------'
 *                   leave_handle, zk_client_close
 *
 * connection_changed() takes the steps that the library reports.  A handle that is connected
 * cannot be given up without ending its session.
 */
ZkConnection zk_connection = ZK_NO_HANDLE;

static ZkClientConfig config;	  /* with the id of the session, once there is one */
static bool			  complained; /* since a server has answered */
static bool			  sasl_fault; /* the library itself has given up SASL with this handle */

static char addresses[ZKLOCK_ADDRESSES_SIZE]; /* the handle's */

static int unanswered; /* connections in a row that ended without an answer */

/* Silence */
static int64  look_at;	  /* when to look for it next, ms */
static uint64 attempt;	  /* the inode of the socket that tries to connect; 0: none */
static int64  attempt_at; /* when it was seen first, ms */
static int	  nleft;	  /* machines left, since one has answered in time */
static uint32 to_skip;	  /* a bit for each machine that is left at once if it comes again */
static bool	  silent;	  /* the next complaint is about a server that we have left */

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

static int nunder_way; /* calls that were taken, and not answered yet, but for urgent ones */

const ZkCall *zk_answering;

static dlist_head in_flight = DLIST_STATIC_INIT(in_flight); /* in order of sending */
static dlist_head watching = DLIST_STATIC_INIT(watching);	/* unanswered calls that set a
															 * watch */
static uint64	  connection;								/* counts connections */
static int64	  nudged_at;								/* ms */
static dlist_head put_off = DLIST_STATIC_INIT(put_off);		/* removals of watches */
static int64	  again_at;									/* when to send them, ms */
static dlist_head throttled = DLIST_STATIC_INIT(throttled); /* calls to be sent again ... */
static int64	  throttled_until;							/* ... then, ms */

/*
 * Returns for how long a server may be silent, ms: a third of the session timeout, as it was asked
 * for and granted.  The session outlives two of them.
 */
static int
silence_may_last(void)
{
	int granted = zoo_recv_timeout(zk_handle);

	return Min(config.session_timeout, granted) / 3;
}

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

/*
 * Adapts the window, the quickest time of its kind, and what is known of silent servers, to a
 * request that was answered just now.
 *
 *	calls_wait	for their turn
 */
static void
learn_from_answer(const Call *first, bool calls_wait)
{
	int64  now = zklock_now_us();
	int64  taken = now - first->sent_at;
	int64 *quickest = &turns[first->turn].quickest_us;

	/* A server has answered in time. */
	if (taken / 1000 < silence_may_last())
		nleft = to_skip = 0;
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
	if (!call->asked.urgent)
		nunder_way += change;
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
		{
			dlist_mutable_iter iter;

			dlist_delete(&call->watching);

			/* The watch is wanted again, as it is set: removals from before are not made. */
			dlist_foreach_modify (iter, &put_off)
			{
				Call *unwatch = dlist_container(Call, link, iter.cur);

				if (!reply.watching || unwatch->number > call->number || !sets_watch_of(call, unwatch))
					continue;
				dlist_delete(&unwatch->link);
				pfree(unwatch);
			}
		}
		if (asked->kind == ZK_DELETE && call->sent_at != 0)
			zk_event_expect_echo(asked->path, -1);
		if (is_unwatch(call) && reply.outcome != CALL_OK && reply.code != ZK_NO_WATCHER)
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
static void
take_answer(const Event *event)
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

		fault = zk_answer_fault(&call->asked, &its, config.session_id);
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
		dlist_push_tail(&watching, &call->watching);
	if (asked.urgent)
	{
		count_under_way(call, 1);
		send_request(call);
	}
	else
		wait_for_turn(call);
}

/*
 * Sends the calls whose turn or time has come, at the end of a round.  Returns when it, or
 * zk_client_dispatch(), must run next at the latest, ms.
 */
int64
zk_client_send(void)
{
	const Call		   look = {.asked = {.kind = ZK_EXISTS, .path = "/"}};
	int64			   now = zklock_now_ms();
	int64			   next = NEVER;
	dlist_mutable_iter iter;
	Line			  *line;

	if (zk_connection < ZK_CONNECTED)
		return zk_handle ? look_at : NEVER;

	/* Removals that are due, except those of watches that a read is about to set */
	if (!dlist_is_empty(&put_off) && now >= again_at)
	{
		again_at = now + AGAIN_MS;
		dlist_foreach_modify (iter, &put_off)
		{
			Call *unwatch = dlist_container(Call, link, iter.cur);

			if (watch_is_wanted(unwatch))
				continue;
			if (nunder_way >= window)
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
	while (nunder_way < window && (line = next_line(TAKE_ANY)) != NULL)
	{
		Call *first = take_turn(line);
		Call *call = first;
		bool  others = first->asked.patient && now >= turns[first->turn].again_at;

		/* A patient call takes others along. */
		for (int n = 1; others && n < ZK_MULTI_MAX && nunder_way < window; n++)
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
		next = Min(Max(oldest, nudged_at) + NUDGE_MS, look_at);
	}
	if (!dlist_is_empty(&put_off) && nunder_way < window)
		next = Min(next, again_at);
	return dlist_is_empty(&throttled) ? next : Min(next, throttled_until);
}

/* ------------------------------------------------------------------------
 * Complaints
 * ------------------------------------------------------------------------
 */

/*
 * Reports a complaint, a sentence without its period, palloc'd, which is freed.  Logs only the
 * first of an outage.
 */
static void
complain(char *message)
{
	zk_callbacks.complaint(message);
	if (!complained)
		ereport(LOG, (errmsg_internal("%s", message)));
	complained = true;
	pfree(message);
}

/* ------------------------------------------------------------------------
 * The connection
 * ------------------------------------------------------------------------
 */

/*
 * Gives calls up.  The connection is lost: the library still answers those that were sent.  Or
 * the handle, if there was one, is closed ("for_good"): all are answered as unknown.
 */
static void
connection_over(bool for_good)
{
	ZkReply reply = {.code = for_good ? ZK_CLOSING : ZK_CONNECTION_LOSS};
	Line   *line;

	zk_connection = for_good ? ZK_NO_HANDLE : ZK_CONNECTING;
	while (for_good && !dlist_is_empty(&in_flight))
		finish_request(dlist_container(Call, link, dlist_pop_head_node(&in_flight)), &reply);

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
zk_client_idle(void)
{
	return next_line(TAKE_ALL) == NULL && dlist_is_empty(&in_flight) && dlist_is_empty(&throttled);
}

/*
 * Begins to connect.  There must be no handle.  The session callback reports what happens.
 * The configuration is copied; the copy's credentials are wiped when the library has them.
 *
 *	addresses	as zk_client_look_up() finds them
 *
 * Returns false if the library could not create a handle.
 */
bool
zk_client_open(const char *addresses_, const ZkClientConfig *config_)
{
	Assert(zk_handle == NULL);
	config = *config_;
	strlcpy(addresses, addresses_, sizeof(addresses));
	nleft = 0;
	to_skip = 0;
	sasl_fault = false;
	if (zk_handle_open(addresses, &config))
	{
		zk_connection = ZK_CONNECTING;
		return true;
	}
	ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
	return false;
}

/*
 * Gives up the handle, and all calls with it.  If connected, this ends the session, which
 * takes up to a few seconds with a server that hangs.
 *
 * Returns true if ZooKeeper has ended the session, as far as we can know.
 */
bool
zk_client_close(void)
{
	bool idle = zk_client_idle();
	bool ended = zk_handle && zk_handle_close(true) && idle;

	connection_over(true);
	return ended;
}

/* Gives up the handle, and all calls with it, without waiting, and reports the event. */
static void
leave_handle(ZkSessionEvent event)
{
	(void) zk_handle_close(false);
	connection_over(true);
	zk_callbacks.session(event, NULL);
}

/* Takes the step to a state that the library reports: the arrows in the drawing above. */
static void
connection_changed(int state)
{
	const clientid_t	   *id;
	ZkSession				session = {.server = "(unknown)"};
	struct sockaddr_storage address;
	socklen_t				len = sizeof(address);
	char					host[NI_MAXHOST];
	char					port[NI_MAXSERV];
	const char			   *fault;

	if (state == ZOO_AUTH_FAILED_STATE)
	{
		leave_handle(ZK_SESSION_AUTH_FAILED);
		return;
	}
	if (state == ZOO_EXPIRED_SESSION_STATE)
	{
		leave_handle(config.session_id != 0 ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
		return;
	}

	/*
	 * Whatever it is, the connection before is lost, or has been replaced already: there are
	 * reconnects that the library does not announce (trap 7).  The library does not wait between
	 * two connections, so after MAX_UNANSWERED in a row on which no server has answered, the
	 * library is stuck.
	 */
	if (zk_connection >= ZK_CONNECTED)
	{
		unanswered = zk_connection == ZK_ANSWERED ? 0 : unanswered + 1;
		connection_over(false);
		zk_callbacks.session(ZK_SESSION_DISCONNECTED, NULL);
		if (unanswered >= MAX_UNANSWERED)
			zk_callbacks.stuck(
				"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
	}
	if (state != ZOO_CONNECTED_STATE && state != ZOO_READONLY_STATE)
		return;

	/*
	 * A server has accepted the session, which so exists.  If it is malformed, nothing that comes
	 * on this connection can be relied on, so the connection is given up.  If we have no session
	 * yet, the handle goes with it.  The library cannot give up a connection and keep a session
	 * (trap 16); the worker can, by starting again.
	 */
	Assert(zk_handle != NULL && zk_connection < ZK_CONNECTED);
	id = zoo_client_id(zk_handle);
	session.id = id->client_id;
	memcpy(session.password, id->passwd, sizeof(session.password));
	session.negotiated_timeout = zoo_recv_timeout(zk_handle);

	/* If the server has hung up again, the library has no address. */
	if (zookeeper_get_connected_host(zk_handle, (struct sockaddr *) &address, &len) &&
		getnameinfo((struct sockaddr *) &address, len, host, sizeof(host), port, sizeof(port),
					NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(session.server, sizeof(session.server),
				 address.ss_family == AF_INET ? "%s:%s" : "[%s]:%s", host, port);
	fault = state == ZOO_READONLY_STATE ? "The session is read-only."
										: zk_answer_session_fault(&session, &config);
	if (fault && config.session_id != 0)
		zk_callbacks.malformed(fault);
	else if (fault)
	{
		complain(psprintf("malformed answer of ZooKeeper server %s: %s", session.server, fault));
		leave_handle(ZK_SESSION_IN_DOUBT);
	}
	else
	{
		/*
		 * Passes the credentials to the library, ahead of all calls, and wipes them: the library
		 * repeats them on each later connection.  It refuses them between two attempts to
		 * connect; then they are kept for the next connection.  SASL's have served already.
		 */
		if (config.auth_scheme[0] != '\0' &&
			(config.sasl || zoo_add_auth(zk_handle, config.auth_scheme, config.auth_credentials,
										 strlen(config.auth_credentials), NULL, NULL) == ZOK))
		{
			explicit_bzero(config.auth_scheme, sizeof(config.auth_scheme));
			explicit_bzero(config.auth_credentials, sizeof(config.auth_credentials));
		}
		config.session_id = session.id;
		memcpy(config.session_password, session.password, sizeof(config.session_password));
		zk_connection = ZK_CONNECTED;
		connection++;
		again_at = zklock_now_ms();
		zk_callbacks.session(ZK_SESSION_CONNECTED, &session);
	}
	explicit_bzero(&session, sizeof(session));
}

/*
 * Called when an outage has lasted.  If the library is connected all the same, a server
 * had sent the loss of the connection as an event: uses the connection again.
 *
 * Returns false if only another handle finds a way in time: once a server has granted a session
 * timeout, even if it goes on silent then, the library pauses for a part of that, which may be
 * hours.
 */
bool
zk_client_look_again(void)
{
	Assert(zk_connection == ZK_CONNECTING);
	if (zoo_recv_timeout(zk_handle) > config.session_timeout)
		return false;
	if (zoo_state(zk_handle) == ZOO_CONNECTED_STATE)
		connection_changed(ZOO_CONNECTED_STATE);
	return true;
}

/* ------------------------------------------------------------------------
 * Silent servers
 * ------------------------------------------------------------------------
 */

/*
 * Finds the socket with which the library is connected, or tries to connect, to one of the
 * addresses.  The library does not show it, but no other TCP socket of the worker leads to one
 * of their ports; its address may differ, as with 0.0.0.0.  While it connects it leads nowhere
 * yet, so one that belongs to a name service may be taken for it.
 *
 * Returns its inode, which no other socket has, or 0 if there is none.
 */
static uint64
find_socket(int *fd)
{
	static const char name[] = "/proc/self/fd";

	DIR			  *directory = AllocateDir(name);
	uint64		   inode = 0;
	struct dirent *entry;

	while ((entry = ReadDirExtended(directory, name, LOG)) != NULL)
	{
		int						which = atoi(entry->d_name);
		struct sockaddr_storage peer;
		socklen_t				len = sizeof(int);
		struct stat				st;
		int						protocol;
		char					port[NI_MAXSERV + 1] = ":";

		if (getsockopt(which, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) != 0 ||
			protocol != IPPROTO_TCP || fstat(which, &st) != 0)
			continue;
		len = sizeof(peer);
		if (getpeername(which, (struct sockaddr *) &peer, &len) == 0 &&
			getnameinfo((struct sockaddr *) &peer, len, NULL, 0, port + 1, sizeof(port) - 1,
						NI_NUMERICSERV) == 0 &&
			!connect_string_has_port(addresses, port))
			continue;
		*fd = which;
		inode = st.st_ino;
	}
	FreeDir(directory);
	return inode;
}

/*
 * Leaves a server that is silent for a third of the session timeout, so that the session
 * outlives two of them, while we connect or wait for an answer, which is at least that to a
 * heartbeat.  The library then tries the next one; if that is on a machine which was left
 * already, it is left at once, but not twice.
 *
 * If that has happened to as many machines as there are, and none has answered in time, the
 * servers are slow rather than dead.  They may take twice as long until one is in time again:
 * if they were left for ever before they answer, the session would end.
 */
static void
leave_silent_server(void)
{
	int64	   now = zklock_now_ms();
	bool	   stood_still = now > look_at + STILL_MS; /* and answers have not been read */
	int64	   since = NEVER;						   /* ms */
	int64	   patience;
	int		   machine;
	uint32	   its_bit;
	int		   fd = -1;
	uint64	   socket;
	char	   address[ZK_SERVER_SIZE] = "";
	int		   len = 0;
	dlist_iter iter;

	if (zk_handle == NULL || now < look_at)
		return;
	look_at = now + LOOK_MS;
	socket = zk_connection >= ZK_CONNECTED ? 0 : find_socket(&fd);
	if (socket != attempt)
		attempt_at = now;
	attempt = socket;
	if (socket != 0)
		since = attempt_at;
	else
	{
		/* The oldest answer that this connection owes us */
		dlist_foreach (iter, &in_flight)
		{
			Call *call = dlist_container(Call, link, iter.cur);

			if (zk_connection >= ZK_CONNECTED && call->connection == connection)
			{
				since = call->sent_at / 1000;
				break;
			}
		}
	}
	if (since == NEVER)
		return;

	/* IPv6 comes in brackets.  The library's thread may write this anew meanwhile. */
	for (const char *c = zoo_get_current_server(zk_handle); *c != '\0' && len < ZK_SERVER_SIZE; c++)
	{
		if (*c != '[' && *c != ']')
			address[len++] = *c;
	}
	machine = connect_string_machine(addresses, address, len);
	its_bit = machine < 0 ? 0 : UINT32_C(1) << machine;
	patience = silence_may_last();
	if (nleft >= connect_string_machine(addresses, "", 0))
		patience *= 2;
	else if (socket != 0 && (to_skip & its_bit) != 0)
		patience = 0;
	if (stood_still || now - since < patience)
		return;
	if (socket == 0 && find_socket(&fd) == 0)
		return;
	(void) shutdown(fd, SHUT_RDWR);
	silent = true;
	attempt_at = now;
	unanswered = -1; /* it is we who hang up */
	to_skip &= ~its_bit;
	if (patience > 0)
	{
		to_skip |= its_bit;
		nleft++;
	}
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

/*
 * Handles all events since the last call, which threads have handed over, in their order: runs
 * reply handlers and callbacks.
 */
void
zk_client_dispatch(void)
{
	/* Whether SASL has failed is asked first: then the reason is among the events. */
	bool sasl_failed = zk_handle && config.sasl && zoo_state(zk_handle) == ZOO_AUTH_FAILED_STATE;
	uintptr_t number = zk_handle_number;
	Event	 *event = zk_event_take_all();

	while (event)
	{
		bool is_ours = zk_handle && event->number == zk_handle_number; /* of SESSION and WATCH */
		Event *next = event->next;
		char   server[128];
		int	   code = 0;
		int	   error = 0;
		int	   nfields;
		bool   in_use; /* the connection that a complaint is about */
		bool   closed;

		switch (event->kind)
		{
			case EVENT_REPLY:
				/* A server that requires credentials answers one call with this code, and hangs up. */
				if (zk_handle && event->reply.code == ZK_REQUIRES_AUTH)
				{
					leave_handle(ZK_SESSION_AUTH_FAILED);
					break;
				}
				if (zk_connection >= ZK_CONNECTED && zk_error(event->reply.code).outcome != CALL_UNKNOWN)
				{
					zk_connection = ZK_ANSWERED;
					unanswered = 0;
					complained = false;
				}
				take_answer(event);
				break;
			case EVENT_SESSION:
				if (is_ours)
					connection_changed(event->code);
				break;
			case EVENT_WATCH:
				if (!is_ours)
					break;

				/* Nothing else would notice the loss of an event, so the worker starts again. */
				if (event->fault)
					zk_callbacks.malformed(event->fault);
				else if (event->text == NULL)
					ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
				else if (event->code == ZOO_DELETED_EVENT)
					zk_callbacks.watch(ZK_WATCH_DELETED, event->text);
				else if (event->code == ZOO_CHANGED_EVENT)
					zk_callbacks.watch(ZK_WATCH_CHANGED, event->text);
				else if (event->code == ZOO_CHILD_EVENT)
					zk_callbacks.watch(ZK_WATCH_CHILDREN, event->text);
				break;
			case EVENT_LOG:
				ereport(event->code ? DEBUG1 : DEBUG2,
						(errmsg_internal("ZooKeeper client: %s", event->text)));

				/*
				 * A complaint that comes after the handle was given up would hide the reason for
				 * that; so would the second one of SASL, which says less.
				 */
				if (!event->code || zk_handle == NULL || strstr(event->text, CONNECT_STRING_NOWHERE) ||
					strncmp(event->text, SASL_EPILOGUE, strlen(SASL_EPILOGUE)) == 0)
					break;
				if (config.sasl && strstr(event->text, "SASL"))
					sasl_fault = true;

				/*
				 * The library's "Socket address:port zk retcode=..., errno=...(...): ..." becomes a
				 * sentence.  Its word for the end of a connection is EHOSTDOWN.
				 */
				nfields = sscanf(event->text, "Socket %127s zk retcode=%d, errno=%d(", server,
								 &code, &error);
				in_use = zk_connection == ZK_ANSWERED;
				closed = error == EHOSTDOWN || error == ECONNRESET || error == EPIPE;
				if (strstr(event->text, "SASL negotiation: invalid parameter"))
					/* Cyrus SASL's complaint about the empty answer of a server that cannot go on */
					complain(pstrdup("SASL with ZooKeeper fails: its servers may not have it"));
				else if (nfields != 3)
					complain(pstrdup(event->text));
				else if (silent || error == ETIMEDOUT)
					complain(psprintf("ZooKeeper server %s does not answer", server));
				else if (code == ZSSLCONNECTIONERROR)
					complain(psprintf("TLS with ZooKeeper server %s fails", server));
				else if (closed && in_use)
					complain(psprintf("ZooKeeper server %s closed the connection", server));
				else if (closed)
					complain(psprintf("ZooKeeper server %s closes new connections at once; it may have no quorum, lack data that we have seen (wiped or restored), demand TLS or refuse the certificate, or have reached its limit of connections per client (maxClientCnxns)",
									  server));
				else if (code == ZSESSIONEXPIRED)
					complain(psprintf("server %s says that the session is over", server));
				else if (in_use)
					complain(psprintf("lost the connection to ZooKeeper server %s: %s", server,
									  strerror(error)));
				else
					complain(psprintf("could not connect to ZooKeeper server %s: %s", server,
									  strerror(error)));
				silent = false;
				break;
			case EVENT_LOOKED_UP:
				zk_callbacks.looked_up(event->number, event->text);
				break;
		}
		free(event->text);
		free(event->reply.children);
		free(event);
		event = next;
	}
	leave_silent_server();
	if (sasl_failed && zk_handle && zk_handle_number == number)
		leave_handle(sasl_fault ? ZK_SESSION_SASL_FAILED : ZK_SESSION_AUTH_FAILED);
}
