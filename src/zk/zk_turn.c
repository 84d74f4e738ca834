/*
 * zk_turn.c
 *		Whose turn it is: which call is sent, when, and with which others.
 *
 * All sessions of a server ask ZooKeeper through one connection.
 * These rules say which of the calls that wait is sent next:
 *
 *	- What is urgent goes first, and needs no room in the window of calls under
 *	  way: heartbeats, on which everybody's locks depend, and the sync of a connection.
 *	- Removals of watches go before everything else.  They are few, and a read
 *	  that sets the same watch again must come behind (see zk_flow.c).
 *	- Of the rest, releases (deletions) and work (creations, reads, the checks of
 *	  a commit) take turns while both wait; in each kind the roles take turns, of
 *	  one role its sessions, and so each gets its share, however much one asks for,
 *	  and however many sessions it has.  Of one session's calls of one kind the
 *	  oldest goes first.
 *	- A session that has MAX_OF_SESSION calls under way creates and reads nothing
 *	  more, however often it gives up and asks anew: on a slow link, others wait for
 *	  what is under way.  Releases, and the checks of its COMMIT, are no more than it
 *	  holds locks, and go out.
 *	- Of the calls whose answers may be long, a role has MAX_BULKY_OF_ROLE under way:
 *	  ZooKeeper sends answers whole, and those of heartbeats come behind.
 *
 * So a session that releases thousands of locks delays the others by no more
 * than one that works hard, and sessions that create nodes by the thousand delay
 * nobody's release.
 *
 * A turn is one call, or two: the create of a lock's node is followed by the
 * listing that its session asked for behind it.  A patient deletion takes others
 * along: these cost little more.
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

/* The calls of one kind of turn for which a role or a session waits; the line is never empty. */
typedef struct Line
{
	LineKey		 key;	/* hash key */
	struct Line *role;	/* a session's */
	dlist_node	 link;	/* in its role's line, or in roles[] */
	dlist_head waiting; /* a role's: its sessions' lines, whose turn it is first; a session's:
						   * its calls, oldest first */
} Line;

/* How many calls of an owner are under way; there is one at least. */
typedef struct OwnerCalls
{
	ZkOwner owner; /* hash key: a session; with ALL_OF_ROLE, a role, of which bulky ones count */
	int		ncalls;
} OwnerCalls;

/* Calls that were taken and are not over */
static struct
{
	int	  all;
	int	  urgent;  /* of these, those that need no room in the window */
	int	  patient; /* ... and patient deletions */
	HTAB *of_owners;
} under_way;

static HTAB		 *all_lines;
static dlist_head roles[TURN_KINDS]; /* their lines; whose turn it is comes first */
static Line		 *unfinished;		 /* a session whose turn needs one more call, or NULL */
static TurnKind	  last = TURN_KIND_WORK; /* of the turn taken last, RELEASE or WORK */
static int		  nwaiting;
static int		  npatient; /* of these, patient deletions */

static TurnKind
turn_kind(const Call *call)
{
	if (call->asked.urgent)
		return TURN_KIND_URGENT;
	if (zk_call_is_unwatch(call))
		return TURN_KIND_UNWATCH;
	return call->asked.kind == ZK_DELETE ? TURN_KIND_RELEASE : TURN_KIND_WORK;
}

/* Once, before any call waits. */
void
zk_turn_start(void)
{
	HASHCTL line_ctl = {.keysize = sizeof(LineKey), .entrysize = sizeof(Line)};
	HASHCTL owner_ctl = {.keysize = sizeof(ZkOwner), .entrysize = sizeof(OwnerCalls)};

	all_lines = hash_create("zklock calls", 128, &line_ctl, HASH_ELEM | HASH_BLOBS);
	under_way.of_owners =
		hash_create("zklock calls under way", 128, &owner_ctl, HASH_ELEM | HASH_BLOBS);
}

/* A line, or a new one, which is empty and in no list yet. */
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

/* One of a line has been served: the line goes behind the others, or ends if it is empty. */
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
	npatient += call->asked.patient;
}

/* Does no call wait for its turn? */
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

/* How many calls of an owner are under way? */
static int
count_of(ZkOwner owner)
{
	const OwnerCalls *its = hash_search(under_way.of_owners, &owner, HASH_FIND, NULL);

	return its ? its->ncalls : 0;
}

/* Is a call to wait until others of its session, or of its role, have been answered? */
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

/* May a session's oldest call be taken? */
static bool
is_allowed(Line *session, ZkTurnLimit limit)
{
	const Call *call = dlist_head_element(Call, link, &session->waiting);

	if (limit == ZK_TURN_ALL)
		return true;
	if (call->asked.patient ? limit == ZK_TURN_NOT_PATIENT : limit == ZK_TURN_PATIENT)
		return false;
	return !is_beyond_share(call);
}

/* The session that has its turn of a kind, or NULL. */
static Line *
first_session(TurnKind turn, ZkTurnLimit limit)
{
	dlist_iter role;
	dlist_iter iter;

	if ((limit == ZK_TURN_URGENT && turn != TURN_KIND_URGENT) ||
		(limit == ZK_TURN_PATIENT && turn != TURN_KIND_RELEASE))
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

/* The session whose turn it is, or NULL. */
static Line *
next_session(ZkTurnLimit limit)
{
	TurnKind order[] = {TURN_KIND_URGENT, TURN_KIND_UNWATCH,
						last == TURN_KIND_RELEASE ? TURN_KIND_WORK : TURN_KIND_RELEASE, last};
	Line	*session = unfinished;

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

/* A call is under way from now on, or is no more: "change" is 1 or -1. */
static void
count(const Call *call, int change)
{
	under_way.all += change;
	under_way.urgent += call->asked.urgent ? change : 0;
	under_way.patient += call->asked.patient ? change : 0;
	count_for(call->asked.owner, change);
	if (call->asked.bulky)
		count_for(role_of(call->asked.owner), change);
}

/*
 * Takes the call that is next out of its line; NULL if there is none.  Others of its
 * role come behind other roles', and of its session behind other sessions'.
 */
static Call *
take(ZkTurnLimit limit)
{
	Line *session = next_session(limit);
	Line *role;
	Call *call;

	if (session == NULL)
		return NULL;
	if (session->key.turn == TURN_KIND_RELEASE || session->key.turn == TURN_KIND_WORK)
		last = session->key.turn;
	call = dlist_container(Call, link, dlist_pop_head_node(&session->waiting));
	nwaiting--;
	npatient -= call->asked.patient;
	count(call, 1);
	unfinished = call->asked.followed && !dlist_is_empty(&session->waiting) ? session : NULL;
	if (unfinished == NULL)
	{
		role = session->role;
		line_requeue(session, &role->waiting);
		line_requeue(role, &roles[role->key.turn]);
	}
	return call;
}

/* ------------------------------------------------------------------------
 * How many calls may be under way at once
 * ------------------------------------------------------------------------
 */

/*
 * The calls under way when a heartbeat is sent delay it, and heartbeats are what
 * everybody's locks depend on.  So there is a window of calls under way, and the
 * rest waits for its turn, where heartbeats pass by.
 *
 * The window follows what is observed.  A call that had few others ahead of it
 * shows how long ZooKeeper takes by itself.  When calls behind more than that
 * take twice as long, or MAX_DELAY_US longer if that is more, the window
 * shrinks; it grows as long as they do not and more are waiting.  So it is small
 * for a slow server, and large for one that is far away, which needs more under
 * way to be busy.
 */

/*
 * A server does 5,000 to 10,000 calls in a second when it has enough to do at
 * once, so MIN_WINDOW are some 5 ms of work.
 */
#define MIN_WINDOW 32
#define FIRST_WINDOW 128
#define MAX_WINDOW 512
#define MAX_DELAY_US 10000

static int	 window = FIRST_WINDOW;
static int64 undisturbed; /* a call takes so long with few others, us; 0: unknown */
static int64 changed_at;  /* us */

/* Is there no more room, but for calls that need none? */
static bool
window_is_full(void)
{
	return under_way.all - under_way.urgent >= window;
}

/*
 * A call has been answered just now.  The window changes once in the time of a call,
 * for only later ones show what came of it.
 */
static void
window_learn(const Call *call)
{
	int64 now = zklock_now_us();
	int64 taken = now - call->sent_at;

	if (call->ahead < MIN_WINDOW)
	{
		/* Much can make a call slow for once, nothing makes it fast. */
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
 * Deletions that go out in one request
 * ------------------------------------------------------------------------
 */

/*
 * Half of what a busy server asks of ZooKeeper are deletions.  Most are patient:
 * no other client is known to wait for them.  Patient ones that are waiting when
 * the turn comes to one of them go out with it, as one request: ZooKeeper commits
 * them in one write, and one message answers them.
 *
 * So that there are some, they wait while a request for others is under way,
 * unless ZK_BATCH_MAX have gathered.  This delays an unlock by the time of one
 * request at most, and pays where requests cost more work than time: so it is done
 * only if ZooKeeper can answer within NEAR_US.  The quickest answers tell, of which
 * the last count most; under load all take longer.
 *
 * Such a request does all or nothing.  If it is refused, nothing was done, and
 * each deletion is asked for again by itself, patient no more, which tells what is
 * wrong with which.  For PAUSE_MS each goes by itself then, so that a node that cannot
 * be deleted does not cost all others a second request each time.  If nobody knows what
 * became of the request, then nobody knows it of any of its deletions.
 */

#define NEAR_US 5000
#define PAUSE_MS 1000

static int64 quickest_us = PG_INT64_MAX; /* in which a deletion was answered, more or less */
static int64 again_at;					 /* deletions are put together from then on, ms */

/* Are patient deletions to wait for each other? */
static bool
batch_gathers(void)
{
	return under_way.patient > 0 && npatient < ZK_BATCH_MAX && zklock_now_ms() >= again_at &&
		   (quickest_us <= NEAR_US || ZKLOCK_FAULT("near"));
}

/* If the call, which was taken, is a patient deletion, others are taken with it. */
static void
batch_gather(Call *first)
{
	Call *last = first;

	if (!first->asked.patient || zklock_now_ms() < again_at)
		return;
	for (int n = 1; n < ZK_BATCH_MAX && !window_is_full(); n++)
	{
		last->next = take(ZK_TURN_PATIENT);
		if (last->next == NULL)
			return;
		last = last->next;
	}
}

/* A request for deletions has been answered just now: how long does it take? */
static void
batch_learn(const Call *first)
{
	int64 taken = zklock_now_us() - first->sent_at;

	if (taken < quickest_us)
		quickest_us = taken;
	else
		quickest_us += (taken - quickest_us) / 256;
}

/* Does an answer with that code mean that a request for several calls has done nothing? */
static bool
batch_is_refused(const Call *first, int code)
{
	if (ZKLOCK_FAULT("batch-done"))
		return false;
	return first->next && zk_error_outcome(code) != CALL_OK && !zk_error_is_breakdown(code);
}

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/*
 * Takes what is to be sent next in one request: a call, or more, linked by "next".
 * Returns NULL if there is none that may be sent now.
 */
Call *
zk_turn_take(ZkTurnLimit limit)
{
	int	  ahead = under_way.all;
	Call *first;

	if (limit == ZK_TURN_ALL)
		return take(limit);
	if (ahead >= MAX_UNDER_WAY)
		return NULL;
	if (window_is_full())
		limit = ZK_TURN_URGENT;
	else if (limit == ZK_TURN_ANY && batch_gathers())
		limit = ZK_TURN_NOT_PATIENT;
	first = take(limit);
	if (first)
	{
		first->ahead = ahead;
		batch_gather(first);
	}
	return first;
}

/*
 * A request has been answered, with that code.  Returns true if that was one for several
 * deletions and did nothing: for a while each goes by itself.
 */
bool
zk_turn_answered(const Call *first, int code)
{
	if (zk_error_outcome(code) == CALL_UNKNOWN)
		return false;
	window_learn(first);
	if (first->asked.kind == ZK_DELETE)
		batch_learn(first);
	if (!batch_is_refused(first, code))
		return false;
	again_at = zklock_now_ms() + PAUSE_MS;
	return true;
}

/* A call that was taken is under way no more. */
void
zk_turn_over(const Call *call)
{
	count(call, -1);
}
