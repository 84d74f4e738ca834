/*
 * lease_rule.c
 *		How long a ZooKeeper session is sure to live, from what it answered.
 *
 * The leader ends a session when it has not heard of the client for the session timeout.
 * A request to a follower "touches" its client's session there.  The leader learns of touches
 * only from the follower's answer to its ping, which it sends every half tick; a client's write
 * does not touch the session when the leader commits it.  So the rule takes a chain of three
 * committed heartbeats:
 *
 *	A	touched the session on the follower after s(A), when it was sent.
 *	B	was sent a tick or more after A was answered.  The leader has sent a ping
 *		meanwhile, and sends B's commit behind it: when B is answered, the follower has
 *		answered that ping and reported A's touch to the leader.
 *	C	was sent after B was answered and so behind that answer.  C committed: the leader
 *		had heard of the touch, and had not ended the session.
 *
 * So the leader does not end the session before s(A) + session timeout.  A client that
 * moves to another server in between is announced to the leader by that server, which
 * touches the session as well; a new leader gives every session a fresh timeout, and has
 * been elected after C's quorum.
 *
 * A follower can lose one touch that comes while it makes the answer to a ping, so the last
 * A but one counts.
 *
 * The leader ends a session in two steps: it takes it off its queue, and then refuses its
 * writes.  It commits them in between, when a touch comes too late.  It has not begun before
 * the old deadline, so a proof that is seen by then counts at once.  A later one, after a
 * lapse, must be confirmed by a heartbeat that was sent a tick after C was answered, and has
 * committed: had the touch come between the two steps, the second would have been taken by
 * then.  The proof moves its deadline on until it is confirmed, as if it counted.
 *
 * The rule assumes that our clock goes on, also while the machine is suspended.
 * doc/internals.md names this and the other assumptions; test/model/lease.pml is a model of
 * all this.  lease.c sends the heartbeats and publishes the deadline, which is the lease: it
 * HOLDS before the deadline, is SUSPENDED after it, and OVER a session timeout later.
 *
 * Runs in: the worker; pure C.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "worker/lease_rule.h"

#include <string.h>

/*
 * Notes a committed heartbeat.  Heartbeats are added in the order in which they were sent,
 * which is that of their answers.
 *
 *	tick	the longest time between two pings of the leader, with a margin
 *
 * Returns the time from which the session's timeout runs at the earliest, or -1 if that is not
 * known.
 */
int64_t
lease_history_add(LeaseHistory *history, int64_t sent, int64_t answered, int64_t tick)
{
	int		b;
	int		a;
	int64_t base = -1;

	for (b = history->n - 1; b >= 0 && history->beats[b].answered > sent; b--)
		;
	for (a = b; a >= 0 && history->beats[a].answered > history->beats[b].sent - tick; a--)
		;
	if (a >= 1)
		base = history->beats[a - 1].sent;

	/* Behind the others; the oldest is dropped if there is no room. */
	if (history->n == LEASE_HISTORY)
	{
		history->n--;
		memmove(&history->beats[0], &history->beats[1], history->n * sizeof(LeaseBeat));
	}
	history->beats[history->n++] = (LeaseBeat){.sent = sent, .answered = answered};
	return base;
}

/*
 * Notes, after a lapse, a committed heartbeat that lease_history_add() knows.
 *
 *	until	the deadline that follows from it, or -1
 *
 * Returns the deadline that is confirmed, or -1.
 */
int64_t
lease_recovery_add(LeaseRecovery *recovery, int64_t until, int64_t sent, int64_t answered, int64_t tick)
{
	if (until > answered && answered >= recovery->until)
		*recovery = (LeaseRecovery){.until = until, .confirm_from = answered + tick};
	else if (until > recovery->until)
		recovery->until = until;
	return answered < recovery->until && sent >= recovery->confirm_from ? recovery->until : -1;
}
