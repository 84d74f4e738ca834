/*
 * zk_turn.c
 *		Whose turn it is: calls that wait to be sent.
 *
 * What all sessions of a server ask of ZooKeeper goes through one connection.
 * Three rules say which of the calls that wait is sent next:
 *
 *	- What is urgent goes first, and needs no room in the window of calls under
 *	  way: heartbeats, on which everybody's locks depend, and syncs.
 *	- Removals of watches go before everything else.  They are few, and a read
 *	  that sets the same watch again must come behind (see zk_flow.c).
 *	- Of the rest, releases (deletions) and work (creations, reads, the checks of
 *	  a commit) take turns while both wait; in each kind the sessions
 *	  take turns, and so each gets its share, however much one asks for.  Of
 *	  one session's calls of one kind the oldest goes first.
 *
 * So a session that releases thousands of locks delays the others by no more
 * than one that works hard, and sessions that create nodes by the thousand delay
 * nobody's release.
 *
 * A turn is one call, or two: the create of a lock's node is followed by the
 * listing that its session asked for behind it.  A patient deletion takes others
 * along (zk_batch.c): these cost little more.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_turn.h"

#include "utils/hsearch.h"

typedef enum TurnKind
{
	TURN_KIND_URGENT,
	TURN_KIND_UNWATCH,
	TURN_KIND_RELEASE,
	TURN_KIND_WORK
} TurnKind;

#define TURN_KINDS (TURN_KIND_WORK + 1)

typedef struct AskerKey
{
	int		 owner;
	TurnKind kind;
} AskerKey;

/* The calls of one kind that one session waits for; there is one at least. */
typedef struct Asker
{
	AskerKey   key;	  /* hash key */
	dlist_node link;  /* in askers[] */
	dlist_head calls; /* oldest first */
} Asker;

static HTAB		 *all_askers;
static dlist_head askers[TURN_KINDS];	 /* by kind; whose turn it is comes first */
static Asker	 *unfinished;			 /* its turn needs one more call, or NULL */
static TurnKind	  last = TURN_KIND_WORK; /* of the turn taken last, RELEASE or WORK */
static int		  npatient;				 /* deletions that are patient */

static TurnKind
turn_kind(const Call *call)
{
	switch (call->kind)
	{
		case CALL_BEAT:
		case CALL_SYNC:
		case CALL_NUDGE:
			return TURN_KIND_URGENT;
		case CALL_UNWATCH_DATA:
		case CALL_UNWATCH_CHILDREN:
			return TURN_KIND_UNWATCH;
		case CALL_DELETE:
		case CALL_DELETE_BOTH:
			return TURN_KIND_RELEASE;
		case CALL_CHECK:
		case CALL_CREATE:
		case CALL_EXCHANGE:
		case CALL_APPEND:
		case CALL_SET:
		case CALL_GET:
		case CALL_LOOK:
		case CALL_READ:
		case CALL_FETCH:
		case CALL_LIST:
			break;
	}
	return TURN_KIND_WORK;
}

static void
prepare(void)
{
	HASHCTL ctl = {.keysize = sizeof(AskerKey), .entrysize = sizeof(Asker)};

	all_askers = hash_create("zklock calls", 128, &ctl, HASH_ELEM | HASH_BLOBS);
	for (int kind = 0; kind < TURN_KINDS; kind++)
		dlist_init(&askers[kind]);
}

/* Puts a call, which is in no list, behind the others of its owner. */
void
zk_turn_wait(Call *call)
{
	AskerKey key;
	Asker	*asker;
	bool	 found;

	if (all_askers == NULL)
		prepare();
	memset(&key, 0, sizeof(key)); /* it is hashed with its padding */
	key.owner = call->owner;
	key.kind = turn_kind(call);
	asker = hash_search(all_askers, &key, HASH_ENTER, &found);
	if (!found)
	{
		dlist_init(&asker->calls);
		dlist_push_tail(&askers[key.kind], &asker->link);
	}
	dlist_push_tail(&asker->calls, &call->link);
	npatient += call->patient;
}

/* The first of a kind that has its turn, or NULL. */
static Asker *
first_asker(TurnKind kind, ZkTurnLimit limit)
{
	dlist_iter iter;

	if (limit == ZK_TURN_URGENT && kind != TURN_KIND_URGENT)
		return NULL;
	dlist_foreach (iter, &askers[kind])
	{
		Asker *asker = dlist_container(Asker, link, iter.cur);

		if (limit != ZK_TURN_NOT_PATIENT || !dlist_head_element(Call, link, &asker->calls)->patient)
			return asker;
	}
	return NULL;
}

/* The one whose turn it is, or NULL. */
static Asker *
next_asker(ZkTurnLimit limit)
{
	TurnKind order[] = {TURN_KIND_URGENT, TURN_KIND_UNWATCH,
						last == TURN_KIND_RELEASE ? TURN_KIND_WORK : TURN_KIND_RELEASE, last};

	if (unfinished)
		return unfinished;
	for (int i = 0; i < (int) lengthof(order); i++)
	{
		Asker *asker = first_asker(order[i], limit);

		if (asker)
			return asker;
	}
	return NULL;
}

/* Takes an asker's oldest call; the others of its kind come next. */
static Call *
take_oldest(Asker *asker)
{
	Call *call = dlist_container(Call, link, dlist_pop_head_node(&asker->calls));

	npatient -= call->patient;
	if (dlist_is_empty(&asker->calls))
	{
		dlist_delete(&asker->link);
		hash_search(all_askers, &asker->key, HASH_REMOVE, NULL);
	}
	else if (call->followed)
		unfinished = asker;
	else
	{
		dlist_delete(&asker->link);
		dlist_push_tail(&askers[asker->key.kind], &asker->link);
	}
	return call;
}

/* Takes the call that is to be sent next out of its queue; NULL if there is none. */
Call *
zk_turn_take(ZkTurnLimit limit)
{
	Asker *asker = all_askers ? next_asker(limit) : NULL;

	if (asker == NULL)
		return NULL;
	if (asker->key.kind == TURN_KIND_RELEASE || asker->key.kind == TURN_KIND_WORK)
		last = asker->key.kind;
	unfinished = NULL;
	return take_oldest(asker);
}

/* Takes the patient deletion whose turn comes first; NULL if there is none. */
Call *
zk_turn_take_patient(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &askers[TURN_KIND_RELEASE])
	{
		Asker *asker = dlist_container(Asker, link, iter.cur);

		if (dlist_head_element(Call, link, &asker->calls)->patient)
			return take_oldest(asker);
	}
	return NULL;
}

/* How many patient deletions are waiting? */
int
zk_turn_patient(void)
{
	return npatient;
}

bool
zk_turn_is_empty(void)
{
	for (int kind = 0; all_askers && kind < TURN_KINDS; kind++)
	{
		if (!dlist_is_empty(&askers[kind]))
			return false;
	}
	return true;
}

/* Is a call waiting that sets the watch which another is to remove? */
bool
zk_turn_sets_watch(const Call *unwatch)
{
	dlist_iter iter;
	dlist_iter waiting;

	if (all_askers == NULL)
		return false;
	dlist_foreach (iter, &askers[TURN_KIND_WORK])
	{
		dlist_foreach (waiting, &dlist_container(Asker, link, iter.cur)->calls)
		{
			const Call *call = dlist_container(Call, link, waiting.cur);

			if (call->watch && zk_call_same_watch(call, unwatch))
				return true;
		}
	}
	return false;
}
