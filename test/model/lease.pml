/*
 * lease.pml
 *		The lease: while it holds, ZooKeeper has not ended the session.
 *
 * doc/internals.md, "The lease", has the rule, and the facts about ZooKeeper
 * that this model is made of.
 *
 *	Client		sends heartbeats and looks at their answers, at any time: it may be
 *				stopped anywhere.  It stands for src/worker/lease.c and lease_rule.c.
 *	Requests	the follower's thread for the client: notes the session, forwards
 *	Quorum		the follower's thread for the leader: answers pings, passes commits on
 *	Leader		two of them.  The second is elected at any time or never, and the
 *				first need not know.  Only the one with a quorum commits anything.
 *	Network		connections that end, and the follower that follows the new leader
 *	Clock		moves on, unless somebody is late whom an assumption keeps in time
 *
 * A message takes any time.  The unit of time is half a tick: the time between
 * two pings.  These make the model smaller and no difference to what the leader
 * learns: a ping behind another one that nobody has read yet is no message; an answer
 * to a ping is one only if it tells of the session; one heartbeat at a time is
 * under way, since those that overlap are no links of the rule's chain and their touches
 * only help.  Expiry is not rounded up to ticks, which ends sessions earlier.
 *
 * With any of these the model leaves out a piece of the rule, or breaks an
 * assumption, and the property must fail:
 *
 *	NO_GAP				no tick between the answer to A and B
 *	LAST_BEAT			the last A counts, not the one before
 *	LATE_RENEWAL		an answer counts that is seen after the deadline
 *	UNCONFIRMED			a proof after a lapse counts at once
 *	RECONNECT_RENEWS	a new connection counts like a proof
 *	LATE_PING			the leader pings late while its session tracker goes on
 *	SLOW_TRACKER		the tracker stands still for a tick between its two steps
 *
 * NEVER_RENEWED and NEVER_RECOVERED claim that no proof succeeds, while the lease
 * holds and after a lapse.  They must fail as well, or the model would not move.
 */
#ifndef TIMEOUT
#define TIMEOUT 4 /* of the session: two ticks, the least that ZooKeeper allows */
#endif
#ifndef HORIZON
#define HORIZON 8 /* the end of time */
#endif
#ifndef BEATS
#define BEATS 5 /* heartbeats in all */
#endif
#ifndef CONNECTIONS
#define CONNECTIONS 1 /* of the client */
#endif
#ifndef ELECTIONS
#define ELECTIONS 0
#endif
#define HISTORY 3 /* heartbeats that the client remembers */

#ifdef NO_GAP
#define GAP 0
#else
#define GAP 2 /* zklock.tick_time */
#endif
#ifdef LATE_PING
#define PING_WITHIN 3 /* time between two pings at most */
#else
#define PING_WITHIN 1
#endif
#ifdef SLOW_TRACKER
#define CLOSE_WITHIN 4 /* time between the tracker's two steps at most */
#else
#define CLOSE_WITHIN 1
#endif

#define NEVER 255

mtype = { PING, PONG, REQUEST, COMMIT, REVALIDATE, VALID };

byte now;

/* The ensemble: one leader has a quorum, and one is followed by the client's server. */
bit leading;
bit follows;
bool ended;			   /* the end of the session is committed */
byte expires;		   /* the session, at the leader with the quorum */
byte polled = NEVER;   /* when its tracker has taken the session off its queue */
byte pinged;		   /* when the followed leader pinged last */

/* Streams between the client's server and its leader; a message names the connection */
chan up = [4] of { mtype, byte };
chan down = [4] of { mtype, byte };
mtype last_up; /* the message sent last, if it is still there */
mtype last_down;

/* The client's server */
bool noted;		/* its table has the session */
byte touching;	/* a thread for this connection has the table at hand to note the session, or 0 ... */
bool exchanged; /* ... and the table has been exchanged since */
bool lost;		/* the last touch was lost that way */

/* The client's connection */
bool request; /* a heartbeat is on its way to the server ... */
bool answer;  /* ... its answer on the way back */
byte connection = 1;
bool connected = true;
bool connecting;
byte opened;		  /* when the client began to connect last */
bool seen_new_leader; /* servers that know less refuse the client */

/* The client */
byte until = TIMEOUT; /* the lease: the session was asked for at 0 */
bool suspended;
byte tentative;	 /* after a lapse: the lease, if a heartbeat is answered that was sent ... */
byte confirm_at; /* ... then or later */
byte count_from;
byte nbeats;
byte beat = NEVER; /* when the heartbeat was sent that is under way */
byte n;			   /* in the history */
byte sent[HISTORY];
byte answered[HISTORY];
byte proved; /* a lease that was found, and is not yet published, or 0 */

/* Without meaning between two steps */
hidden mtype kind;
hidden byte whose;
hidden byte a;
hidden byte b;
hidden byte base;

inline check()
{
	assert(!(ended && now < until))
}

inline publish(time)
{
#ifdef NEVER_RENEWED
	assert(suspended || time <= until);
#endif
#ifdef NEVER_RECOVERED
	assert(!suspended || time <= now);
#endif
	if
	:: time > until ->
		until = time;
		suspended = false;
		tentative = 0;
		confirm_at = 0
	:: else
	fi;
	check()
}

/* ------------------------------------------------------------------------
 * The client: lease.c and lease_rule.c
 * ------------------------------------------------------------------------
 */

inline forget_first()
{
	a = 1;
	do
	:: a < n ->
		sent[a - 1] = sent[a];
		answered[a - 1] = answered[a];
		a++
	:: else -> break
	od;
	n--;
	sent[n] = 0;
	answered[n] = 0
}

inline notice_lapse()
{
#ifndef LATE_RENEWAL
	if
	:: !suspended && now >= until ->
		suspended = true;
		count_from = now;
		do
		:: n > 0 -> forget_first()
		:: else -> break
		od
	:: else
	fi
#else
	skip
#endif
}

/* The heartbeat is C, the one before it B: finds the last A, and appends the heartbeat. */
inline add_to_history()
{
	base = NEVER;
	a = (n > 0 -> n - 1 : 0);
	do
	:: a > 0 && answered[a - 1] + GAP > sent[n - 1] -> a--
	:: else -> break
	od;
	if
#ifdef LAST_BEAT
	:: a >= 1 -> base = sent[a - 1]
#else
	:: a >= 2 -> base = sent[a - 2]
#endif
	:: else
	fi;
	if
	:: n == HISTORY -> forget_first()
	:: else
	fi;
	sent[n] = beat;
	answered[n] = now;
	n++
}

/* What follows: while the lease holds, a proof counts at once; after a lapse, when confirmed */
inline conclude()
{
	if
	:: base == NEVER || base + TIMEOUT <= now
#ifdef UNCONFIRMED
	:: else -> proved = base + TIMEOUT
#else
	:: else ->
		if
		:: !suspended -> proved = base + TIMEOUT
		:: suspended && now >= tentative ->
			tentative = base + TIMEOUT;
			confirm_at = now + GAP
		:: else -> tentative = (base + TIMEOUT > tentative -> base + TIMEOUT : tentative)
		fi
#endif
	fi;
	if
	:: suspended && now < tentative && beat >= confirm_at -> proved = tentative
	:: else
	fi
}

active proctype Client()
{
end:
	do
	:: d_step {
			connected && beat == NEVER && nbeats < BEATS ->
			notice_lapse();
			nbeats++;
			beat = now;
			request = true
		}
	:: d_step {
			proved == 0 && answer ->
			answer = false;
			notice_lapse();
			if
			:: beat >= count_from -> add_to_history(); conclude()
			:: else
			fi;
			beat = NEVER
		}
	:: d_step { proved != 0 -> publish(proved); proved = 0 }
	od
}

/* ------------------------------------------------------------------------
 * The client's server, a follower
 * ------------------------------------------------------------------------
 */

inline forward(of_connection)
{
	up!REQUEST(of_connection);
	last_up = REQUEST
}

/* A touch may go into a table that has been sent by then.  Two in a row do not. */
active proctype Requests()
{
end:
	do
	:: d_step { request && !touching -> request = false; noted = true; lost = false; forward(connection) }
	:: d_step { request && !touching && !lost -> request = false; touching = connection }
	:: d_step { touching && exchanged -> forward(touching); touching = 0; exchanged = false; lost = true }
	od
}

active proctype Quorum()
{
end:
	do
	:: d_step {
			len(down) > 0 && len(up) < 3 ->
			down?kind(whose);
			last_down = (len(down) == 0 -> 0 : last_down);
			if
			:: kind == PING ->
				if
				:: noted && last_up != PONG -> up!PONG(0); last_up = PONG
				:: else
				fi;
				noted = false;
				exchanged = touching != 0
			:: kind == COMMIT && connected && whose == connection ->
				answer = true;
				seen_new_leader = (follows == 1)
			:: kind == VALID && connecting && whose == connection ->
				connecting = false;
				connected = true;
#ifdef RECONNECT_RENEWS
				if
				:: now < until -> publish(opened + TIMEOUT)
				:: else
				fi
#endif
			:: else
			fi
		}
	od
}

/* ------------------------------------------------------------------------
 * Leaders
 * ------------------------------------------------------------------------
 */

inline ping()
{
	pinged = now;
	if
	:: last_down != PING -> down!PING(0); last_down = PING
	:: else
	fi
}

/* A touch between the tracker's two steps comes too late. */
inline touch(me)
{
	if
	:: leading == me && polled == NEVER -> expires = now + TIMEOUT
	:: else
	fi
}

proctype Leader(bit me)
{
end:
	do
	:: d_step {
			follows == me && len(up) > 0 && len(down) < 3 ->
			up?kind(whose);
			last_up = (len(up) == 0 -> 0 : last_up);
			if
			:: kind == PONG -> touch(me)
			:: kind == REQUEST && leading == me && !ended -> down!COMMIT(whose); last_down = COMMIT
			:: kind == REVALIDATE && (leading != me || !ended) ->
				touch(me);
				down!VALID(whose);
				last_down = VALID
			:: else
			fi
		}
	:: d_step { leading == me && !ended && polled == NEVER && now >= expires -> polled = now }
	:: d_step { leading == me && !ended && polled != NEVER -> ended = true; check() }
	od
}

/* ------------------------------------------------------------------------
 * What happens to them
 * ------------------------------------------------------------------------
 */

inline new_streams()
{
	do
	:: len(up) > 0 -> up?kind(whose)
	:: else -> break
	od;
	do
	:: len(down) > 0 -> down?kind(whose)
	:: else -> break
	od;
	last_up = 0;
	last_down = 0;
	noted = false;
	touching = 0;
	exchanged = false;
	lost = false;
	ping()
}

inline disconnect()
{
	request = false;
	answer = false;
	beat = NEVER;
	connected = false;
	connecting = false;
	connection++
}

inline connect()
{
	connecting = true;
	opened = now;
	up!REVALIDATE(connection);
	last_up = REVALIDATE
}

active proctype Network()
{
end:
	do
	/* An election: a session whose end was not committed begins anew. */
	:: d_step {
			ELECTIONS && leading == 0 && !ended ->
			leading = 1;
			polled = NEVER;
			expires = now + TIMEOUT
		}
	/* The client's server hears of it, and ends its connections. */
	:: d_step {
			leading == 1 && follows == 0 && connection < CONNECTIONS ->
			follows = 1;
			new_streams();
			disconnect()
		}
	:: d_step { connected && connection < CONNECTIONS -> disconnect() }
	/* A new connection: to the same server, to another one, or to one that follows the other leader */
	:: d_step { !connected && !connecting && len(up) < 3 -> connect() }
	:: d_step { !connected && !connecting -> new_streams(); connect() }
	:: d_step {
			!connected && !connecting && leading == 1 && !seen_new_leader ->
			follows = 1 - follows;
			new_streams();
			connect()
		}
	od
}

active proctype Clock()
{
end:
	do
	:: d_step {
			now < HORIZON && len(down) < 4 && (polled == NEVER || ended || now - polled < CLOSE_WITHIN) ->
			now++;
			if
			:: now - pinged >= PING_WITHIN -> ping()
			:: else
			fi
		}
	od
}

init
{
	atomic {
		expires = TIMEOUT;
		run Leader(0);
		run Leader(1)
	}
}
