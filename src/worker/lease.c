/*
 * lease.c
 *		Proof that the ZooKeeper session lives, and with it our locks.
 *
 * Being connected proves nothing: a follower that is cut off from its leader
 * goes on answering while the leader ends the session.  So the worker's main
 * loop sends heartbeats that a quorum must commit, and lease_rule.c tells from
 * their answers until when the leader cannot have ended the session.  That
 * deadline is the lease.  It is published in shared memory as a time on a
 * clock that runs on while the machine sleeps, so it passes by itself whoever
 * is stopped, cut off or asleep: worker, backend or machine.
 *
 *		HOLDS		before the deadline.  Locks are granted, commits pass.
 *		SUSPENDED	after it.  Nothing is granted, commits that rely on a lock
 *					wait.  A new proof makes it HOLDS again.
 *		OVER		a session timeout later.  Locks held so far are lost for
 *					good, even if the session turns out to be alive.
 *
 * A renewal counts only if it is seen before the old deadline: the leader ends
 * a session in two steps, and what it commits in between proves nothing.  Once
 * the deadline has passed, the proof starts from nothing, with heartbeats that
 * follow each other faster until it stands.
 *
 * A new session begins with a lease: the leader committed its creation, which
 * came after we began to connect.  A connection alone renews nothing.
 *
 * Runs in: the worker.  lease_until and lease_over are atomics, written here
 * alone; they outlive the worker, so the next one goes on from there.  Everybody
 * reads them through lease_state.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/session.h"
#include "shared/lease_state.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "worker/lease.h"
#include "worker/lease_rule.h"
#include "worker/status.h"
#include "zk/zk_client.h"

#define MAX_BEAT_US INT64CONST(1000000)
#define MIN_BEAT_US INT64CONST(10000)
#define MAX_OUTSTANDING 32

/* Clocks may differ in speed by so much, in parts of the session timeout. */
#define DRIFT_PART 100

static LeaseHistory history;
static int64		timeout;		 /* of the session, us; 0 if there is none */
static int64		count_from;		 /* heartbeats sent earlier do not count, us */
static int64		next_beat;		 /* us */
static int			outstanding;	 /* heartbeats */
static bool			lapsed;			 /* the deadline has passed */
static bool			renewed;		 /* since the session began, or the lapse */
static int			our_tick;		 /* zklock.tick_time as it was taken up, ms */
static int			their_tick;		 /* what a server has told, ms; 0: none has */
static int			asked_timeout;	 /* of ZooKeeper, ms */
static int			checked_timeout; /* ms, that the log was told of */
static int			checked_tick;	 /* likewise */

/*
 * Publishes a deadline; 0 for none.  The end of a later deadline comes before
 * it, so that nobody sees the later deadline with the earlier end.
 */
static void
publish(int64 until)
{
	if (until != 0)
		pg_atomic_write_u64(&zklock_shared->lease_over, (uint64) (until + timeout));
	pg_write_barrier();
	pg_atomic_write_u64(&zklock_shared->lease_until, (uint64) until);
	if (until == 0)
		pg_atomic_write_u64(&zklock_shared->lease_over, 0);
}

/*
 * The tickTime that counts, ms: the longer of what is set and what a server has
 * told, since a longer one is safe.
 */
static int
tick_time(void)
{
	return Max(our_tick, their_tick);
}

/* The deadline that follows if the session's timeout runs from "base". */
static int64
deadline(int64 base)
{
	return base + timeout - timeout / DRIFT_PART;
}

static void
start_proof(void)
{
	lease_history_clear(&history);
	count_from = zklock_now_us();
	next_beat = 0;
	renewed = false;
}

/* Notices that the deadline, or the end, has passed. */
static void
notice_lapse(void)
{
	int64 now = zklock_now_us();
	int64 until = (int64) pg_atomic_read_u64(&zklock_shared->lease_until);
	int64 over = (int64) pg_atomic_read_u64(&zklock_shared->lease_over);

	if (over == 0 || now < until)
		return;
	if (!lapsed)
	{
		lapsed = true;
		start_proof();
		ereport(LOG, (errmsg("the ZooKeeper session is no longer proved to be alive"),
					  errdetail("Locks are suspended: none is granted, and transactions that rely on one wait at commit.")));
		queue_session_unreachable();
	}
	if (now >= over)
	{
		queue_session_unproved();
		publish(0);
	}
}

static void
on_beat(void *arg, const ZkReply *reply)
{
	int64 *beat = arg;
	int64  sent = *beat;
	int64  base;
	int64  until;

	pfree(beat);
	outstanding--;
	notice_lapse();
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		status_set_chroot_exists(reply->outcome == ZK_OK);

	/* That the chroot is missing is a committed answer as well. */
	if ((reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE) || sent < count_from)
		return;
	base = lease_history_add(&history, sent, zklock_now_us(), INT64CONST(1000) * tick_time());
	if (ZKLOCK_FAULT("naive-lease"))
		base = sent;
	if (base < 0)
		return;
	until = deadline(base);
	if (until <= (int64) pg_atomic_read_u64(&zklock_shared->lease_until) || until <= zklock_now_us())
		return;
	publish(until);
	renewed = true;
	if (lapsed)
	{
		lapsed = false;
		ereport(LOG, (errmsg("the ZooKeeper session is proved to be alive again")));
		queue_session_proved();
	}
}

/*
 * Takes up the lease of an earlier worker, whose session had this timeout.
 */
void
lease_start(int timeout_ms)
{
	timeout = INT64CONST(1000) * timeout_ms;
	lapsed = pg_atomic_read_u64(&zklock_shared->lease_over) == 0;
	start_proof();
}

/*
 * A new session exists.  We began to connect at "opened_at", so the leader
 * cannot have heard of it before.
 */
void
lease_begin(int64 opened_at_us, int timeout_ms)
{
	timeout = INT64CONST(1000) * timeout_ms;
	start_proof();

	/* If it took too long to connect, there is nothing to begin with. */
	lapsed = deadline(opened_at_us) <= zklock_now_us();
	publish(lapsed ? 0 : deadline(opened_at_us));
}

/*
 * The session goes on with another timeout, which begins to count when we are
 * connected again, not before "since".  If it is shorter, call this before the
 * server can have heard of it.  It must not be longer than any the session has
 * had: a new leader only knows the first, and a follower we have left may tell
 * the leader of another.
 *
 * The end stays where it is: it follows the next renewal.
 */
void
lease_set_timeout(int timeout_ms, int64 since_us)
{
	int64 until = (int64) pg_atomic_read_u64(&zklock_shared->lease_until);

	timeout = INT64CONST(1000) * timeout_ms;
	if (until > deadline(since_us))
		pg_atomic_write_u64(&zklock_shared->lease_until, (uint64) deadline(since_us));
}

/* The time from which the present lease runs, us. */
int64
lease_base(void)
{
	return (int64) pg_atomic_read_u64(&zklock_shared->lease_until) - deadline(0);
}

/* The session is over, and who held a lock knows. */
void
lease_end(void)
{
	timeout = 0;
	publish(0);
	lapsed = true;
	start_proof();
}

/* ------------------------------------------------------------------------
 * The times that ZooKeeper and we must agree on
 * ------------------------------------------------------------------------
 */

/*
 * Can a session with this timeout be proved to be alive?  The proof takes a tick
 * and a few heartbeats, and leaves nothing of a timeout that is not longer than
 * two ticks, which ZooKeeper's shortest is.
 */
bool
lease_is_possible_with(int timeout_ms, int tick_ms)
{
	return timeout_ms >= 2 * tick_ms;
}

/* Can the present session? */
bool
lease_is_possible(void)
{
	return timeout == 0 || lease_is_possible_with((int) (timeout / 1000), tick_time());
}

/* Says why it cannot: one or two sentences. */
void
lease_describe_timeout(char *text, size_t size)
{
	int granted = (int) (timeout / 1000);
	int needed = 2 * tick_time();

	if (asked_timeout > granted)
		snprintf(text, size,
				 "ZooKeeper has granted a session timeout of %d ms of the %d ms asked for. With a \"zklock.tick_time\" of %d ms, %d ms are needed.",
				 granted, asked_timeout, tick_time(), needed);
	else
		snprintf(text, size,
				 "The session timeout is %d ms. With a \"zklock.tick_time\" of %d ms, %d ms are needed.",
				 granted, tick_time(), needed);
}

/*
 * Tells the log if the session timeout is too short for any lease, unless it has
 * been told already.
 *
 *	asked	the timeout that ZooKeeper was asked for
 */
void
lease_check_timeout(int asked_ms)
{
	char detail[ZKLOCK_ERROR_SIZE];
	int	 granted = (int) (timeout / 1000);

	asked_timeout = asked_ms;
	if (granted == checked_timeout && tick_time() == checked_tick)
		return;
	checked_timeout = granted;
	checked_tick = tick_time();
	if (lease_is_possible())
		return;
	lease_describe_timeout(detail, sizeof(detail));
	ereport(WARNING,
			(errmsg("\"zklock.tick_time\" is %d ms, too long for a session timeout of %d ms",
					tick_time(), granted),
			 errdetail("It cannot be proved in time that the session is alive, so no lock is granted. %s",
					   detail),
			 granted < asked_ms
				 ? errhint("Raise maxSessionTimeout of the ZooKeeper servers, or set \"zklock.tick_time\" to their tickTime.")
				 : errhint("Raise \"zklock.session_timeout\", or set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers.")));
}

/* Takes up a value of zklock.tick_time. */
void
lease_set_tick_time(int ours_ms)
{
	our_tick = ours_ms;
}

/* A server has told its tickTime, which should not be longer than ours. */
void
lease_tick_time_is(const char *server, int theirs_ms)
{
	if (theirs_ms == their_tick)
		return;
	their_tick = theirs_ms;
	if (their_tick > our_tick)
	{
		ereport(WARNING,
				(errmsg("\"zklock.tick_time\" is %d ms, but ZooKeeper server %s has a tickTime of %d ms",
						our_tick, server, their_tick),
				 errdetail("With a value that is too low, a lock might count as held after it has been lost. zklock goes by the longer one of both."),
				 errhint("Set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers.")));
		status_set_error("\"zklock.tick_time\" is lower than the tickTime of the ZooKeeper servers");
		start_proof();
	}
}

/* Sends heartbeats and notices that the lease has lapsed. */
void
lease_attend(void)
{
	int64  now = zklock_now_us();
	int64  interval = Min(MAX_BEAT_US, timeout / 10);
	int64 *beat;

	notice_lapse();
	if (!zk_client_connected() || timeout == 0 || now < next_beat || outstanding >= MAX_OUTSTANDING)
		return;
	if (!renewed)
		interval = Min(interval, INT64CONST(1000) * tick_time() / 8);
	next_beat = now + Max(interval, MIN_BEAT_US);
	beat = palloc(sizeof(int64));
	*beat = now;
	outstanding++;
	if (ZKLOCK_FAULT("naive-lease"))
		zk_get(ZK_WORKER, "/", ZK_UNWATCHED, on_beat, beat);
	else
		zk_beat(on_beat, beat);
}

/* When lease_attend() wants to be called, ms; or -1. */
int64
lease_next_wakeup(void)
{
	int64 over = (int64) pg_atomic_read_u64(&zklock_shared->lease_over);
	int64 until = (int64) pg_atomic_read_u64(&zklock_shared->lease_until);
	int64 next = -1;

	if (over != 0)
		next = lapsed ? over : until;
	if (zk_client_connected() && timeout != 0 && outstanding < MAX_OUTSTANDING)
		next = next < 0 ? next_beat : Min(next, next_beat);
	return next < 0 ? -1 : next / 1000 + 1;
}
