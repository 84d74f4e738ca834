/*
 * zk_turn.c
 *		The scheduler of calls: which one is sent, when, and with which others.
 *
 * All sessions of a server share one connection to ZooKeeper.  These rules say which of
 * the calls that wait is sent next:
 *
 *	- Urgent calls go first, and need no room in the window of calls under way:
 *	  heartbeats, on which all locks depend, and the check and the sync with which a
 *	  connection begins.
 *	- Removals of watches go next.  They are few, and a read that sets the same watch again
 *	  must come behind (see zk_flow.c).
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
 * (zk_multi.c); the listings of several creates follow all of them.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/common.h"
#include "utils/hsearch.h"
#include "zk/zk_internal.h"

typedef enum TurnKind
{
	TURN_KIND_URGENT,
	TURN_KIND_UNWATCH,
	TURN_KIND_RELEASE,
	TURN_KIND_WORK
} TurnKind;

#define TURN_KINDS (TURN_KIND_WORK + 1)

#define MAX_UNDER_WAY 1000
#define MAX_OF_SESSION 48
#define MAX_BULKY_OF_ROLE 16

#define ALL_OF_ROLE (-1) /* no pid */

typedef struct LineKey
{
	uint32	 role;
	int		 pid; /* a session of that role, or ALL_OF_ROLE */
	TurnKind turn;
} LineKey;

/*
 * The calls of one kind that wait for their turn, of a role or a session.  The line of a
 * role or session without such calls does not exist.
 */
typedef struct Line
{
	LineKey		 key;	  /* hash key */
	struct Line *role;	  /* a session's: the line of its role */
	dlist_node	 link;	  /* a session's: in its role's line; a role's: in roles[] */
	dlist_head	 waiting; /* a role's: the lines of its sessions, the next one first; a
						   * session's: its calls, oldest first */
} Line;

/* The number of an owner's calls under way, at least one */
typedef struct OwnerCalls
{
	ZkOwner owner; /* hash key: a session; with ALL_OF_ROLE a role, whose bulky calls count */
	int		ncalls;
} OwnerCalls;

/* The numbers of calls under way: taken, and not answered yet */
static struct
{
	int	  all;
	int	  urgent; /* of these, those that need no room in the window */
	HTAB *of_owners;
} under_way;

static HTAB		 *all_lines;
static dlist_head roles[TURN_KINDS]; /* the lines of roles, the next one first */
static dlist_head followers = DLIST_STATIC_INIT(followers); /* taken, and to be sent next */
static TurnKind	  last = TURN_KIND_WORK; /* kind of the last turn that was RELEASE or WORK */
static int		  nwaiting;

static TurnKind
turn_kind(const Call *call)
{
	if (call->asked.urgent)
		return TURN_KIND_URGENT;
	if (zk_call_is_unwatch(call))
		return TURN_KIND_UNWATCH;
	return call->asked.kind == ZK_DELETE ? TURN_KIND_RELEASE : TURN_KIND_WORK;
}

/* Creates the hash tables; called once, before any call waits. */
void
zk_turn_start(void)
{
	HASHCTL line_ctl = {.keysize = sizeof(LineKey), .entrysize = sizeof(Line)};
	HASHCTL owner_ctl = {.keysize = sizeof(ZkOwner), .entrysize = sizeof(OwnerCalls)};

	all_lines = hash_create("zklock calls", 128, &line_ctl, HASH_ELEM | HASH_BLOBS);
	under_way.of_owners =
		hash_create("zklock calls under way", 128, &owner_ctl, HASH_ELEM | HASH_BLOBS);
}

/* Returns a line; a new one is empty and in no list yet. */
static Line *
line_get(uint32 role, int pid, TurnKind turn)
{
	LineKey key = {.role = role, .pid = pid, .turn = turn};
	bool	found;
	Line   *line = hash_search(all_lines, &key, HASH_ENTER, &found);

	if (!found)
		dlist_init(&line->waiting);
	return line;
}

/* Moves a line whose turn is over behind the others, or removes it if it is empty. */
static void
line_requeue(Line *line, dlist_head *among)
{
	dlist_delete(&line->link);
	if (dlist_is_empty(&line->waiting))
		(void) hash_search(all_lines, &line->key, HASH_REMOVE, NULL);
	else
		dlist_push_tail(among, &line->link);
}

/* Puts a call, which is in no list, behind the others of its owner. */
void
zk_turn_wait(Call *call)
{
	TurnKind turn = turn_kind(call);
	ZkOwner	 owner = call->asked.owner;
	Line	*session = line_get(owner.role, owner.pid, turn);

	if (dlist_is_empty(&session->waiting))
	{
		session->role = line_get(owner.role, ALL_OF_ROLE, turn);
		if (dlist_is_empty(&session->role->waiting))
			dlist_push_tail(&roles[turn], &session->role->link);
		dlist_push_tail(&session->role->waiting, &session->link);
	}
	dlist_push_tail(&session->waiting, &call->link);
	nwaiting++;
	zk_multi_count(call, 1, 0);
}

/* Returns true if no call waits for its turn. */
bool
zk_turn_is_empty(void)
{
	return nwaiting == 0;
}

static ZkOwner
role_of(ZkOwner owner)
{
	return (ZkOwner){.pid = ALL_OF_ROLE, .role = owner.role};
}

/* Returns the number of an owner's calls under way. */
static int
count_of(ZkOwner owner)
{
	const OwnerCalls *its = hash_search(under_way.of_owners, &owner, HASH_FIND, NULL);

	return its ? its->ncalls : 0;
}

/* Returns true if a call must wait until others of its session or role have been answered. */
static bool
is_beyond_share(const Call *call)
{
	ZkOwner owner = call->asked.owner;

	if (owner.pid == ZK_WORKER || turn_kind(call) != TURN_KIND_WORK)
		return false;
	if (call->asked.bulky && count_of(role_of(owner)) >= MAX_BULKY_OF_ROLE)
		return true;
	return call->asked.kind != ZK_CHECK && count_of(owner) >= MAX_OF_SESSION;
}

/* Returns true if a session's oldest call may be taken. */
static bool
is_allowed(Line *session, ZkTurnLimit limit)
{
	const Call *call = dlist_head_element(Call, link, &session->waiting);

	if (limit == ZK_TURN_ALL)
		return true;
	if (limit == ZK_TURN_PATIENT ? !call->asked.patient : zk_multi_gathers(call))
		return false;
	return !is_beyond_share(call);
}

/* Returns the session that has the next turn of a kind, or NULL. */
static Line *
first_session(TurnKind turn, ZkTurnLimit limit)
{
	dlist_iter role;
	dlist_iter iter;

	if (limit == ZK_TURN_URGENT && turn != TURN_KIND_URGENT)
		return NULL;
	dlist_foreach (role, &roles[turn])
	{
		dlist_foreach (iter, &dlist_container(Line, link, role.cur)->waiting)
		{
			Line *session = dlist_container(Line, link, iter.cur);

			if (is_allowed(session, limit))
				return session;
		}
	}
	return NULL;
}

/* Returns the session whose turn it is, or NULL. */
static Line *
next_session(ZkTurnLimit limit)
{
	TurnKind order[] = {TURN_KIND_URGENT, TURN_KIND_UNWATCH,
						last == TURN_KIND_RELEASE ? TURN_KIND_WORK : TURN_KIND_RELEASE, last};
	Line	*session = NULL;

	for (int i = 0; i < (int) lengthof(order) && session == NULL; i++)
		session = first_session(order[i], limit);
	return session;
}

static void
count_for(ZkOwner owner, int change)
{
	bool		found;
	OwnerCalls *its = hash_search(under_way.of_owners, &owner, HASH_ENTER, &found);

	its->ncalls = found ? its->ncalls + change : change;
	if (its->ncalls == 0)
		(void) hash_search(under_way.of_owners, &owner, HASH_REMOVE, NULL);
}

/* Counts a call that is under way from now on (1), or no longer (-1). */
static void
count(const Call *call, int change)
{
	under_way.all += change;
	under_way.urgent += call->asked.urgent ? change : 0;
	zk_multi_count(call, 0, change);
	count_for(call->asked.owner, change);
	if (call->asked.bulky)
		count_for(role_of(call->asked.owner), change);
}

/* Takes the oldest call out of a session's line; it is under way from now on. */
static Call *
take_oldest(Line *session)
{
	Call *call = dlist_container(Call, link, dlist_pop_head_node(&session->waiting));

	nwaiting--;
	zk_multi_count(call, -1, 0);
	call->ahead = under_way.all;
	count(call, 1);
	return call;
}

/*
 * Takes a session's oldest call, and the one that goes out right behind it.  When the turn
 * is over, the role comes behind the other roles, and the session behind the others of its
 * role.  Returns NULL if there is no session.
 */
static Call *
take_from_line(Line *session)
{
	Line *role;
	Call *call;

	if (session == NULL)
		return NULL;
	if (session->key.turn == TURN_KIND_RELEASE || session->key.turn == TURN_KIND_WORK)
		last = session->key.turn;
	call = take_oldest(session);
	if (call->asked.followed && !dlist_is_empty(&session->waiting))
		dlist_push_tail(&followers, &take_oldest(session)->link);
	role = session->role;
	line_requeue(session, &role->waiting);
	line_requeue(role, &roles[role->key.turn]);
	return call;
}

/* ------------------------------------------------------------------------
 * How many calls may be under way at once
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
 * answers one that comes behind MAX_UNDER_WAY others after 200 ms, and one that comes behind
 * MIN_WINDOW or FIRST_WINDOW others after 6 or 26 ms.
 */

/*
 * A busy server does 5,000 to 10,000 calls in a second, so MIN_WINDOW calls are about 5 ms
 * of work.
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
	return under_way.all - under_way.urgent >= window;
}

/*
 * Adapts the window to a call that has been answered just now.  The window changes once in
 * the time of a call, because only later calls show the effect of a change.
 */
static void
window_learn(const Call *call)
{
	int64 now = zklock_now_us();
	int64 taken = now - call->sent_at;

	if (call->ahead < MIN_WINDOW)
	{
		/* Many things can make a single call slow, but nothing makes one fast. */
		if (undisturbed == 0)
			undisturbed = taken;
		else
			undisturbed += (taken - undisturbed) / (taken < undisturbed ? 4 : 256);
		return;
	}
	if (call->sent_at < changed_at)
		return;
	if (taken > undisturbed + Max(undisturbed, MAX_DELAY_US))
		window = Max(window - window / 4, MIN_WINDOW);
	else if (!zk_turn_is_empty())
		window = Min(window + window / 8, MAX_WINDOW);
	else
		return;
	changed_at = now;
}

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/* Takes the other calls that may go out in the same request as one that was taken. */
static void
take_others(Call *first)
{
	Call *call = first;

	if (!zk_multi_may_grow(first))
		return;
	for (int n = 1; call && n < ZK_MULTI_MAX && !window_is_full(); n++)
	{
		call->next = take_from_line(first_session(turn_kind(first), ZK_TURN_PATIENT));
		call = call->next;
	}
}

/*
 * Takes the call that is sent next, and those that go out in the same request, linked by
 * "next".  Returns NULL if no call may be sent now.
 */
Call *
zk_turn_take(ZkTurnLimit limit)
{
	Call *first;

	if (!dlist_is_empty(&followers))
		return dlist_container(Call, link, dlist_pop_head_node(&followers));
	if (limit == ZK_TURN_ALL)
		return take_from_line(next_session(limit));
	if (under_way.all >= MAX_UNDER_WAY)
		return NULL;
	first = take_from_line(next_session(window_is_full() ? ZK_TURN_URGENT : limit));
	if (first)
		take_others(first);
	return first;
}

/*
 * Learns from the answer to a request.  Returns true if it was one of several calls and did
 * nothing.
 */
bool
zk_turn_answered(const Call *first, int code)
{
	if (zk_error_outcome(code) == CALL_UNKNOWN)
		return false;
	window_learn(first);
	return zk_multi_answered(first, code);
}

/* Called when a call that was taken is no longer under way. */
void
zk_turn_over(const Call *call)
{
	count(call, -1);
}
