/*
 * node.pml
 *		A cohort's node and the answers about it: two servers of zklock and a Curator.
 *
 * doc/internals.md, "Contenders and cohorts" and "Lost replies", has the arguments.
 *
 *	Server		two of them, each with one contender, for one path.  It stands for src/engine: how
 *				the node is created, looked for, watched, granted, downgraded and deleted.
 *				Its connection ends at any step, or the worker does: the next one knows what
 *				shared memory has.
 *	ZooKeeper	serves the requests of each session in their order, one at a time
 *	Curator		a writer: it waits for the next older node, whatever that is, and may downgrade
 *	Deleter		deletes any node of the servers'
 *
 * A node is known by its sequence.  Its downgraded node has the same one and another name: with
 * the shared bit.
 *
 * These make the model smaller: a server has one request under way, but for a create and its
 * listing; ZooKeeper's servers know all that is committed; no session ends.
 *
 * Checked: no two hold the lock, but for one whose node somebody has deleted and
 * who is yet to hear of that; all come to their end; no node is left then.
 *
 * With any of these the model leaves something out, and must fail:
 *
 *	UNLISTED		a contender is granted as soon as its node exists
 *	LISTED_BEFORE	the listing is sent before the create
 *	UNWATCHED		nobody watches a contender's own node
 *	NO_DOWNGRADED			when a foreign exclusive contender has gone, nobody looks for its downgraded node
 *	UNNOTICED		a server does not change its node before it downgrades it
 *	CHILD_WATCH		the child watch counts as set although it has fired
 *	BLOCKER_WATCH	a watch that was asked for counts as set
 *	OLD_LISTING		a listing counts on the next connection
 *	LOST_CREATE		a create without an answer counts as not done
 *	LOST_DOWNGRADE	a downgrade without an answer counts as done
 *	LOST_DELETE		a delete without an answer counts as done
 *	NO_SYNC			a new connection's requests may be served before those of the old one
 *	FORGOTTEN_NAME	the name is not in shared memory before the create is sent
 *	KEPT_NODE		the next worker takes a node that nobody wants any more for the exclusive one
 *
 * NEVER_SHARED claims that no two ever share the lock; it must fail as well, or the model
 * would not move.
 */
#ifndef CUTS
#define CUTS 0 /* connections that end */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* those of them whose worker ends */
#endif
#ifndef DELETIONS
#define DELETIONS 0
#endif
#ifndef DOWNGRADES
#define DOWNGRADES 0
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 0 /* contenders that do not wait until they are granted */
#endif
#ifndef CURATORS
#define CURATORS 0
#endif

#define NODES 7		 /* sequences: 1 to 7 */
#define CURATOR 2	 /* session, beside the servers' 0 and 1 */
#define SHARED_BIT 8 /* in a node's name */

mtype = { IDLE, CREATING, CREATED, GRANTED, DOWNGRADING, DELETING, DONE };
mtype = { UNSET, ASKED, SET };
mtype = { NONE, CREATE, LIST, PROBE, READ, REPLACE, DELETE, CHILDREN, CHANGED, GONE };

/* ZooKeeper: the nodes of the path by sequence, and who watches what */
byte owner[NODES + 1];
byte attempt[NODES + 1];
byte there;		 /* bits of the nodes that exist ... */
byte shared;	 /* ... and of those that are shared */
byte sequence;	 /* of the last one created */
byte watched[3]; /* bits of nodes, by session */
bool watched_path[2];

/*
 * Connections.  A request is its kind, its attempt or a node's name, and the number of the
 * connection.  An answer is the kind, whether it was done, the node's name, and the
 * bits of nodes for a listing.  An event is its kind and the node's name.
 */
chan request[2] = [3] of { mtype, byte, byte };
chan answer[2] = [6] of { mtype, bool, byte, byte, byte };
byte connection[2];
bool curator_told;

/* What is held, and what is to come */
bool holds[3];
bool holds_shared[3];
bool robbed[3]; /* its node was deleted, and it has not heard of that */
byte cuts = CUTS;
byte restarts = RESTARTS;
byte deletions = DELETIONS;
byte downgrades = DOWNGRADES;
byte give_ups = GIVE_UPS;
byte attempts;
byte done; /* servers and Curators */

#define BIT(name) (1 << SEQUENCE(name))
#define SEQUENCE(name) ((name) & (SHARED_BIT - 1))
#define NAME(node, is_shared) ((node) | ((is_shared) -> SHARED_BIT : 0))
#define OLDER(node) (BIT(node) - 1)
#define EXISTS(name)                                                                              \
	((there & BIT(name)) != 0 && ((shared & BIT(name)) != 0) == (((name) & SHARED_BIT) != 0))

/* Without meaning between two steps */
hidden byte other;
hidden mtype kind;
hidden byte ok;
hidden byte name;
hidden byte number;
hidden byte present;
hidden byte shareds;
hidden byte kept;

inline grant(me, its_shared)
{
	other = 0;
	do
	:: other < 3 ->
		if
		:: other != me && holds[other] && !robbed[other] && !robbed[me] ->
			assert(its_shared && holds_shared[other]);
#ifdef NEVER_SHARED
			assert(false)
#endif
		:: else
		fi;
		other++
	:: else -> break
	od;
	holds[me] = true;
	holds_shared[me] = its_shared
}

/* ------------------------------------------------------------------------
 * ZooKeeper
 * ------------------------------------------------------------------------
 */

inline tell_path()
{
	other = 0;
	do
	:: other < 2 ->
		if
		:: watched_path[other] -> answer[other]!CHILDREN(true, 0, 0, 0)
		:: else
		fi;
		watched_path[other] = false;
		other++
	:: else -> break
	od
}

/* The node goes, or is changed before it goes. */
inline tell(event, its_name)
{
	other = 0;
	do
	:: other < 2 ->
		if
		:: (watched[other] & BIT(its_name)) != 0 -> answer[other]!event(true, its_name, 0, 0)
		:: else
		fi;
		watched[other] = watched[other] & ~BIT(its_name);
		other++
	:: else -> break
	od;
	curator_told = curator_told || (watched[CURATOR] & BIT(its_name)) != 0;
	watched[CURATOR] = watched[CURATOR] & ~BIT(its_name)
}

inline create(session, its_attempt, its_shared)
{
	sequence++;
	assert(sequence <= NODES);
	owner[sequence] = session;
	attempt[sequence] = its_attempt;
	there = there | BIT(sequence);
	shared = (its_shared -> shared | BIT(sequence) : shared);
	tell_path()
}

/* The downgraded node is created, and the exclusive node deleted, in one transaction. */
inline replace(event, its_name)
{
	shared = shared | BIT(its_name);
	tell_path();
	tell(event, its_name)
}

inline remove(its_name)
{
	there = there & ~BIT(its_name);
	shared = shared & ~BIT(its_name);
	owner[SEQUENCE(its_name)] = 0;
	attempt[SEQUENCE(its_name)] = 0;
	tell(GONE, its_name);
	tell_path()
}

/* The node that was created in an attempt of the session's, by its name, or 0 */
inline find(session, its_attempt)
{
	other = NODES;
	do
	:: other > 0 && (attempt[other] != its_attempt || owner[other] != session) -> other--
	:: else -> break
	od;
	name = NAME(other, (shared & BIT(other)) != 0)
}

#define HAS_ROOM (len(answer[0]) <= 3 && len(answer[1]) <= 3)

inline serve(s)
{
	ok = true;
	present = 0;
	shareds = 0;
	if
	:: kind == CREATE ->
		create(s, SEQUENCE(name), (name & SHARED_BIT) != 0);
		name = NAME(sequence, (name & SHARED_BIT) != 0)
	:: kind == LIST || kind == PROBE ->
		find(s, name);
		present = there;
		shareds = shared;
		watched_path[s] = watched_path[s] || (kind == LIST && number == connection[s])
	:: kind == READ ->
		ok = EXISTS(name);
		present = (owner[SEQUENCE(name)] == CURATOR -> 1 : 0);
		watched[s] = watched[s] | (ok && number == connection[s] -> BIT(name) : 0)
	:: kind == REPLACE ->
		ok = EXISTS(name);
		if
		:: ok ->
#ifdef UNNOTICED
			replace(GONE, name)
#else
			replace(CHANGED, name)
#endif
		:: else
		fi
	:: kind == DELETE ->
		ok = EXISTS(name);
		if
		:: ok -> remove(name)
		:: else
		fi
	fi;
	if
	:: number == connection[s] -> answer[s]!kind(ok, name, present, shareds)
	:: else
	fi
}

#define SERVE(s)                                                                                  \
	:: d_step { len(request[s]) > 0 && HAS_ROOM -> request[s]?kind, name, number; serve(s) }
#define SERVE_NEW_CONNECTION(s)                                                                   \
	:: d_step {                                                                                   \
			HAS_ROOM && request[s]??[kind, name, eval(connection[s])] ->                          \
			request[s]??kind, name, eval(connection[s]);                                          \
			number = connection[s];                                                               \
			serve(s)                                                                              \
		}

active proctype ZooKeeper()
{
end:
	do
	SERVE(0)
	SERVE(1)
#ifdef NO_SYNC
	SERVE_NEW_CONNECTION(0)
	SERVE_NEW_CONNECTION(1)
#endif
	od
}

/* ------------------------------------------------------------------------
 * A server of zklock
 * ------------------------------------------------------------------------
 */

#define OWN_NAME NAME(node, is_shared)
#define HAS_NODE (state == CREATED || state == GRANTED)
#define IS_OLDER(name)                                                                            \
	((older & BIT(name)) != 0 && ((older_shared & BIT(name)) != 0) == (((name) & SHARED_BIT) != 0))
#ifdef UNWATCHED
#define IS_COVERED true
#else
#define IS_COVERED (child_watch == SET || own_watch == SET)
#endif

inline send(its_kind, its_name)
{
	request[me]!its_kind(its_name, connection[me]);
	pending = its_kind
}

/* The nearest older contender that this one waits for, by its name, or 0 */
inline find_blocker()
{
	blocker = node;
	do
	:: blocker > 0 && ((older & BIT(blocker)) == 0 || (is_shared && (older_shared & BIT(blocker)) != 0)) ->
		blocker--
	:: else -> break
	od;
	blocker = NAME(blocker, (older_shared & BIT(blocker)) != 0)
}

/* A foreign contender has gone: may there be a downgraded node that matters? */
inline foreign_gone(its_name, downgrade_possible)
{
	if
	:: IS_OLDER(its_name) ->
#ifndef NO_DOWNGRADED
		listed = listed && !(downgrade_possible && child_watch != SET && state == CREATED && !is_shared &&
							 (its_name & SHARED_BIT) == 0);
#endif
		older = older & ~BIT(its_name);
		find_blocker()
	:: else
	fi
}

/* There is no node: who has not given up asks anew. */
inline lose()
{
	holds[me] = false;
	robbed[me] = false;
	done = (wanted -> done : done + 1);
	state = (wanted -> IDLE : DONE);
	node = 0;
	id = 0;
	listed = false;
	older = 0;
	older_shared = 0;
	blocker = 0;
	own_watch = UNSET;
	watching = 0;
	is_watching = false
}

inline downgraded()
{
	is_shared = true;
	own_watch = UNSET;
	listed = true;
	state = GRANTED
}

/* The answers */

inline on_listed()
{
	child_watch = (child_watch == ASKED -> SET : child_watch);
	older = present & OLDER(node);
	older_shared = shareds & OLDER(node);
	find_blocker();
	if
	:: HAS_NODE && name == 0 -> lose()
	:: HAS_NODE && name != 0 -> listed = true
	:: state == DOWNGRADING && name == 0 -> lose()
	:: state == DOWNGRADING && (name & SHARED_BIT) != 0 -> downgraded()
	:: state == DOWNGRADING && name != 0 && (name & SHARED_BIT) == 0 -> listed = true
	:: else
	fi
}

inline vanished()
{
	own_watch = UNSET;
	if
	:: state == DOWNGRADING -> listed = false
	:: state != DOWNGRADING && state != DELETING -> lose()
	:: else
	fi
}

inline on_read()
{
	if
	:: name == OWN_NAME && own_watch == ASKED ->
		own_watch = (ok -> SET : UNSET);
		if
		:: !ok -> vanished()
		:: else
		fi
	:: name == watching && !is_watching ->
		is_watching = ok;
		is_announcing = ok && present == 0;
#ifndef BLOCKER_WATCH
		if
		:: !ok -> watching = 0; foreign_gone(name, true)
		:: else
		fi
#endif
	:: else
	fi
}

/* A watch on a node has fired. */
inline on_changed()
{
	if
	:: name == watching && is_watching ->
		ok = !is_announcing;
		listed = listed && (ok || kind == GONE); /* who has taken its place? */
		watching = 0;
		is_watching = false
	:: else -> ok = true
	fi;
	if
	:: kind == GONE -> foreign_gone(name, ok)
	:: else
	fi;
	if
	:: node != 0 && name == OWN_NAME && kind == GONE -> vanished()
	:: node != 0 && name == OWN_NAME && kind == CHANGED -> own_watch = UNSET
	:: else
	fi
}

proctype Server(byte me)
{
	/* In shared memory */
	mtype state = IDLE;
	byte id;   /* of the attempt to create a node, which is in its name */
	byte node; /* its sequence, when it is known */
	bool is_shared;
	bool wanted = true;

	/* The engine's own */
	mtype pending = NONE;
	bool listed;
	byte older; /* foreign contenders: bits of those in the last listing, less those seen to go */
	byte older_shared;
	byte blocker; /* follows from that */
	mtype child_watch = UNSET;
	mtype own_watch = UNSET;
	byte watching; /* the blocker's name, or 0 ... */
	bool is_watching; /* ... and whether its watch is set */
	bool is_announcing; /* a server of zklock, whose node tells */

	do
	:: state == DONE -> break

	/* ---- Create and look for ---- */
	:: atomic {
			state == IDLE && len(request[me]) < 2 && pending == NONE ->
			if
			:: is_shared = false
			:: is_shared = true
			fi;
			d_step {
				attempts++;
				id = attempts;
				state = CREATING;
				child_watch = ASKED;
#ifdef LISTED_BEFORE
				request[me]!LIST(id, connection[me]);
#endif
				send(CREATE, NAME(id, is_shared));
#ifndef LISTED_BEFORE
				request[me]!LIST(id, connection[me])
#endif
			}
		}
	:: d_step {
			state == CREATING && pending == NONE && len(request[me]) < 3 ->
#ifdef LOST_CREATE
			lose()
#else
			if
			:: id == 0 -> lose()
			:: else -> send(PROBE, id)
			fi
#endif
		}

	/* ---- List, watch, grant ---- */
	:: d_step {
			pending == NONE && !listed && len(request[me]) < 3 &&
			(state == DOWNGRADING || (HAS_NODE && wanted && !holds[me])) ->
			child_watch = (child_watch == UNSET -> ASKED : child_watch);
			send(LIST, id)
		}
	:: d_step {
			pending == NONE && state == CREATED && wanted && listed && len(request[me]) < 3 &&
			blocker != 0 && watching != blocker ->
			watching = blocker;
			is_watching = false;
			send(READ, blocker)
		}
#ifndef UNWATCHED
	:: d_step {
			pending == NONE && own_watch == UNSET && wanted && (listed || holds[me]) && len(request[me]) < 3 &&
			(HAS_NODE || state == DOWNGRADING) && !(child_watch != UNSET && watching == 0) ->
			own_watch = ASKED;
			send(READ, OWN_NAME)
		}
#endif
	:: d_step {
			state == CREATED && wanted && listed && blocker == 0 ->
			state = GRANTED;
			watching = 0;
			is_watching = false
		}
	:: d_step { state == GRANTED && wanted && listed && !holds[me] && IS_COVERED -> grant(me, is_shared) }

	/* ---- What the session does ---- */
	:: d_step { holds[me] && !robbed[me] -> holds[me] = false; wanted = false }
	:: d_step {
			wanted && !holds[me] && give_ups > 0 && state != IDLE ->
			give_ups--;
			wanted = false
		}
	:: d_step {
			state == GRANTED && holds[me] && !is_shared && downgrades > 0 ->
			downgrades--;
			holds_shared[me] = true;
			listed = true;
			state = DOWNGRADING
		}

	/* ---- Downgrade and delete ---- */
	:: d_step {
			state == DOWNGRADING && listed && wanted && pending == NONE && len(request[me]) < 3 ->
			send(REPLACE, OWN_NAME)
		}
	:: d_step {
			!wanted && pending == NONE && len(request[me]) < 3 &&
			(HAS_NODE || (state == DOWNGRADING && listed) || state == DELETING) ->
			state = DELETING;
			send(DELETE, OWN_NAME)
		}

	/* ---- Answers and events ---- */
	:: d_step {
			len(answer[me]) > 0 ->
			answer[me]?kind, ok, name, present, shareds;
			pending = (kind == pending -> NONE : pending);
			if
			:: kind == CREATE ->
				state = CREATED;
				node = SEQUENCE(name);
#ifdef LISTED_BEFORE
				listed = true;
				find_blocker()
#else
				pending = LIST;
#ifdef UNLISTED
				state = GRANTED;
				grant(me, is_shared)
#endif
#endif
			:: kind == LIST && state != CREATING -> on_listed()
#ifdef LISTED_BEFORE
			:: kind == LIST && state == CREATING ->
				child_watch = SET;
				older = present;
				older_shared = shareds
#endif
			:: kind == PROBE && name != 0 -> state = CREATED; node = SEQUENCE(name)
			:: kind == PROBE && name == 0 -> lose()
			:: kind == READ -> on_read()
			:: kind == REPLACE && ok -> downgraded()
			:: kind == REPLACE && !ok -> listed = false
			:: kind == DELETE -> wanted = false; lose()
#ifndef CHILD_WATCH
			:: kind == CHILDREN -> child_watch = (child_watch == SET -> UNSET : child_watch)
#endif
			:: kind == CHANGED || kind == GONE -> on_changed()
			:: else
			fi
		}

	/*
	 * ---- Faults ----
	 *
	 * The connection ends: what was under way is done, or some of it not.  The library
	 * registers the watches anew that it knows; the server tells what has gone meanwhile.
	 */
	:: atomic {
			cuts > 0 && state != IDLE && state != DONE ->
			cuts--;
			if
			:: kept = 0
			:: len(request[me]) > 0 -> kept = 1
			:: len(request[me]) > 1 -> kept = 2
			fi;
			d_step {
				other = len(request[me]);
				do
				:: other > 0 ->
					request[me]?kind, name, number;
					if
					:: kept > 0 -> request[me]!kind, name, number; kept--
					:: else
					fi;
					other--
				:: else -> break
				od;
				connection[me]++;
				other = len(answer[me]);
				do
				:: other > 0 ->
					answer[me]?kind, ok, name, present, shareds;
					if
					:: kind == CHILDREN && child_watch == SET -> answer[me]!kind, ok, name, 0, 0
					:: (kind == CHANGED || kind == GONE) &&
					   ((name == watching && is_watching) || (name == OWN_NAME && own_watch == SET)) ->
						answer[me]!GONE, ok, name, 0, 0
					:: else
					fi;
					other--
				:: else -> break
				od;
				watched_path[me] = watched_path[me] && child_watch == SET;
				watched[me] = watched[me] &
							  ((is_watching -> BIT(watching) : 0) | (own_watch == SET -> BIT(node) : 0));
				child_watch = (child_watch == ASKED -> UNSET : child_watch);
				own_watch = (own_watch == ASKED -> UNSET : own_watch);
				watching = (is_watching -> watching : 0);
#ifdef LOST_DELETE
				if
				:: pending == DELETE -> lose()
				:: else
				fi;
#endif
#ifdef LOST_DOWNGRADE
				if
				:: pending == REPLACE -> downgraded()
				:: else
				fi;
#endif
				pending = NONE;
#ifndef OLD_LISTING
				listed = false
#endif
			}
			if
			:: true
			:: d_step {
					restarts > 0 ->
					restarts--;
					do
					:: len(answer[me]) > 0 -> answer[me]?kind, ok, name, present, shareds
					:: else -> break
					od;
					watched_path[me] = false;
					watched[me] = 0;
					child_watch = UNSET;
					own_watch = UNSET;
					watching = 0;
					is_watching = false;
					listed = false;
					older = 0;
					older_shared = 0;
					blocker = 0;
#ifdef FORGOTTEN_NAME
					id = (state == CREATING -> 0 : id);
#endif
#ifdef KEPT_NODE
					state = (state == DOWNGRADING && !wanted -> GRANTED : state);
#endif
					state = (state == GRANTED && !holds[me] && wanted -> CREATED : state)
				}
			fi
		}
	od;
end:
	do
	:: d_step { len(answer[me]) > 0 -> answer[me]?kind, ok, name, present, shareds }
	od
}

/* ------------------------------------------------------------------------
 * Others
 * ------------------------------------------------------------------------
 */

proctype Curator()
{
	byte node;
	byte before;

	d_step { HAS_ROOM -> create(CURATOR, 0, false); node = sequence }
	do
	:: d_step {
			!holds[CURATOR] ->
			curator_told = false;
			before = node - 1;
			do
			:: before > 0 && (there & BIT(before)) == 0 -> before--
			:: else -> break
			od;
			if
			:: before > 0 -> watched[CURATOR] = BIT(before)
			:: else -> grant(CURATOR, false)
			fi;
			before = 0
		}
		(holds[CURATOR] || curator_told)
	:: d_step {
			holds[CURATOR] && !holds_shared[CURATOR] && downgrades > 0 && HAS_ROOM ->
			downgrades--;
			holds_shared[CURATOR] = true;
			replace(GONE, node)
		}
	:: d_step {
			holds[CURATOR] && HAS_ROOM ->
			holds[CURATOR] = false;
			remove(NAME(node, holds_shared[CURATOR]));
			done++
		}
		break
	od
}

active proctype Deleter()
{
	byte node;

end:
	do
	:: atomic {
			deletions > 0 && HAS_ROOM ->
			deletions--;
			select(node : 1 .. NODES);
			d_step {
				if
				:: (there & BIT(node)) != 0 && owner[node] != CURATOR ->
					robbed[owner[node]] = true;
					name = NAME(node, (shared & BIT(node)) != 0);
					remove(name)
				:: else
				fi;
				node = 0
			}
		}
	od
}

init
{
	atomic {
		run Server(0);
		run Server(1);
		if
		:: CURATORS > 0 -> run Curator()
		:: else
		fi
	}
	done == 2 + CURATORS;
	assert(there == 0)
}
