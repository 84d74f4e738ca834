/*
 * lease.c
 *		Proof that the ZooKeeper session lives, and with it our locks.
 *
 * Being connected proves nothing: a follower that is cut off from its leader goes on
 * answering while the leader ends the session.  So the worker's main loop sends heartbeats
 * that a quorum must commit, and lease_rule.c computes from their answers the time before
 * which the leader cannot have ended the session.  That deadline is the lease.  It is
 * published in shared memory as a time on a clock that runs on while the machine sleeps.  So
 * it passes by itself, even if the worker is stopped, the network is cut, or the machine
 * sleeps.
 *
 *		HOLDS		before the deadline.  Locks are granted, commits pass.
 *		SUSPENDED	after it.  Nothing is granted, commits that rely on a lock
 *					wait.  A new proof makes it HOLDS again.
 *		OVER		a session timeout later.  Locks held so far are lost for
 *					good, even if the session turns out to be alive.
 *
 * A renewal counts at once only if it is seen before the old deadline.  When that has
 * passed, the proof starts from nothing, with heartbeats that follow each other faster until
 * it stands, and must be confirmed.
 *
 * A new session begins with a lease: the leader committed its creation, which came after we
 * began to connect.  A connection alone renews nothing.
 *
 * Runs in: the worker.  Only this file writes the two times in shared memory; they outlive
 * the worker, so the next one goes on from there.  session_info.c says how others read them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "fault.h"
#include "worker/lease_rule.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

#define MAX_BEAT_US INT64CONST(1000000)
#define MIN_BEAT_US INT64CONST(10000)
#define MAX_OUTSTANDING 32

/* How much clocks may differ in speed: this part of the session timeout */
#define DRIFT_PART 100

/*
 * How the proof stands.  lease_begin() leads to BEGUN or OVER, notice_lapse() goes down,
 * on_heartbeat() renews:
 *
 *      NO_SESSION --- begin ---------------> BEGUN --> RENEWED <------.
 *           |                                  |  renewed |           |
 *           |                                  |          |           |
 *           |                                  '- lapsed -+           |
 *           |                                             v           |
 *           |                                         SUSPENDED ------+ renewed
 *           |                                             | ran out   |
 *           |                                             v           |
 *           '--- begin: too late ---------------------> OVER ---------'
 *
 * In RENEWED, a renewal moves the deadline on.  From all of them, lease_end() leads to
 * NO_SESSION.
 *
 * Other processes see the two times alone: BEGUN and RENEWED are HOLDS to them, and
 * OVER is SUSPENDED again once the locks have been marked as lost.
 */
typedef enum Proof
{
	PROOF_NO_SESSION, /* there is nothing to be proved */
	PROOF_BEGUN,	  /* the deadline stands, but this worker has not moved it yet */
	PROOF_RENEWED,	  /* heartbeats move the deadline on */
	PROOF_SUSPENDED,  /* the deadline has passed */
	PROOF_OVER		  /* a session timeout has passed since; the session may still live */
} Proof;

static Proof		 proof = PROOF_NO_SESSION;
static LeaseHistory	 history;
static LeaseRecovery recovery;
static int64		 timeout;			/* of the session, us; 0 if there is none */
static int64		 count_from;		/* heartbeats sent earlier do not count, us */
static int64		 next_beat;			/* us */
static int			 outstanding;		/* heartbeats */
static int			 checked_timeout;	/* the last one that was checked, ms */
static int			 checked_tick;		/* the last one that was checked, ms */
static bool			 chroot_is_missing; /* by ZooKeeper's last answer */

/* Returns the deadline if the session's timeout runs from "base". */
static int64
deadline(int64 base)
{
	return base + timeout - timeout / DRIFT_PART;
}

/* Begins the proof from nothing. */
static void
start_proof(void)
{
	history.n = 0;
	recovery = (LeaseRecovery){0};
	count_from = zklock_now_us();
	next_beat = 0;
}

/* ------------------------------------------------------------------------
 * Its beginning and end
 * ------------------------------------------------------------------------
 */

/*
 * Begins the lease of a session.  We began to connect at "opened_at", so the leader cannot have
 * heard of a new session before.  If connecting took too long, or if no lease is possible, the
 * session begins without one.  That of an earlier worker (0), with which this one starts, goes
 * on with the lease that it has, if there is one.
 *
 *	timeout_ms	the shortest timeout that the session has had
 */
void
lease_begin(int64 opened_at_us, int timeout_ms)
{
	int64 until;

	Assert(proof == PROOF_NO_SESSION);
	proof = PROOF_OVER;
	timeout = INT64CONST(1000) * timeout_ms;
	until = deadline(opened_at_us);
	if (opened_at_us != 0 && lease_is_possible() && until > zklock_now_us())
		lease_publish(until, until + timeout);
	else if (opened_at_us != 0)
		lease_publish(0, 0);
	if (lease_over() != 0)
		proof = PROOF_BEGUN;
	start_proof();
}

/*
 * Forgets the lease: there is no session, or it is over and the sessions that held locks know.
 */
void
lease_end(void)
{
	timeout = 0;
	proof = PROOF_NO_SESSION;
	start_proof();
	lease_publish(0, 0);
}

/* ------------------------------------------------------------------------
 * Heartbeats
 * ------------------------------------------------------------------------
 */

/*
 * Notices that the deadline has passed: the lease is suspended; and that a session timeout has
 * passed since: it is over.
 */
static void
notice_lapse(void)
{
	int64 now = zklock_now_us();

	if ((proof == PROOF_BEGUN || proof == PROOF_RENEWED) && now >= lease_until())
	{
		proof = PROOF_SUSPENDED;
		start_proof();
		ereport(LOG, (errmsg("the ZooKeeper session is no longer proved to be alive"),
					  errdetail("Locks are suspended: none is granted, and transactions that rely on one wait at commit.")));
		engine_session_unreachable(0);
	}
	if (proof == PROOF_SUSPENDED && now >= lease_over())
	{
		proof = PROOF_OVER;
		engine_session_proved(false);
		lease_publish(0, 0);
	}
}

/* Handles the answer to a heartbeat, which may prove that the session lives. */
static void
on_heartbeat(void *arg, const ZkReply *reply)
{
	const char *chroot = zklock_session->info.chroot;
	int64		tick = INT64CONST(1000) * zklock_session->settings.tick_time;
	int64		sent = reply->sent_at;
	bool		has_lapsed;
	int64		now;
	int64		base;
	int64		until;

	outstanding--;
	notice_lapse();

	/* An answer that the chroot is missing has been committed as well.  Without one, "/" exists. */
	if (reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		return;
	if (chroot_is_missing && reply->outcome == CALL_OK)
		ereport(LOG, (errmsg("the chroot \"%s\" in \"zklock.servers\" exists now", chroot)));
	else if (!chroot_is_missing && reply->outcome == CALL_NO_NODE)
	{
		ereport(WARNING,
				(errmsg("the chroot \"%s\" in \"zklock.servers\" does not exist in ZooKeeper", chroot),
				 errhint("Create the chroot node in ZooKeeper, or correct \"zklock.servers\".")));
		session_info_set_error("the chroot in \"zklock.servers\" does not exist");
	}
	chroot_is_missing = reply->outcome == CALL_NO_NODE;

	if (proof == PROOF_NO_SESSION || sent < count_from || !lease_is_possible())
		return;
	now = zklock_now_us();
	base = lease_history_add(&history, sent, now, tick);
	if (ZKLOCK_FAULT("naive-lease"))
		base = sent;
	until = base < 0 ? -1 : deadline(base);
	has_lapsed = proof == PROOF_SUSPENDED || proof == PROOF_OVER;
	if (has_lapsed)
		until = lease_recovery_add(&recovery, until, sent, now, tick);
	if (until <= lease_until() || until <= now)
		return;

	/* Heartbeats prove that the session lives until then. */
	proof = PROOF_RENEWED;
	lease_publish(until, until + timeout);
	if (has_lapsed)
	{
		ereport(LOG, (errmsg("the ZooKeeper session is proved to be alive again")));
		engine_session_proved(true);
	}
}

/* Sends heartbeats and notices that the lease has lapsed. */
void
lease_attend(void)
{
	int64 now = zklock_now_us();
	int64 interval = Min(MAX_BEAT_US, timeout / 10);
	int64 tick = INT64CONST(1000) * zklock_session->settings.tick_time;

	notice_lapse();
	if (zk_connection < ZK_CONNECTED || proof == PROOF_NO_SESSION || now < next_beat ||
		outstanding >= MAX_OUTSTANDING)
		return;
	if (proof != PROOF_RENEWED)
		interval = Min(interval, tick / 8);
	next_beat = now + Max(interval, MIN_BEAT_US);
	outstanding++;
	if (ZKLOCK_FAULT("naive-lease"))
		zk_call((ZkCall){.kind = ZK_GET_DATA, .path = "/"}, on_heartbeat, NULL);
	else
		zk_call((ZkCall){.kind = ZK_CHECK, .path = "/", .urgent = true}, on_heartbeat, NULL);
}

/* ------------------------------------------------------------------------
 * The session's timeout
 * ------------------------------------------------------------------------
 */

/*
 * Takes up another timeout of the session, which begins to count when we are connected again,
 * not before "since"; if that is 0, the present lease goes on to run from where it does.  If it
 * is shorter, call this before the server can have heard of it.  It must not be longer than the
 * shortest that the session has had: a new leader only knows the first, and a follower we have
 * left may announce another to the leader.
 *
 * The end stays where it is: it follows the next renewal.
 */
void
lease_set_timeout(int timeout_ms, int64 since_us)
{
	int64 until = lease_until();

	if (since_us == 0)
		since_us = until - deadline(0);
	timeout = INT64CONST(1000) * timeout_ms;
	if (until > deadline(since_us))
		lease_publish(deadline(since_us), lease_over());
}

/* ------------------------------------------------------------------------
 * The times that ZooKeeper and we must agree on
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if there can be a lease on the present session.  Its proof takes a tick and a
 * few heartbeats.  A timeout of less than two ticks, the shortest that ZooKeeper allows by
 * default, leaves little or nothing beyond that, so that locks would be suspended at any
 * delay: then none is granted at all.
 */
bool
lease_is_possible(void)
{
	return proof == PROOF_NO_SESSION || timeout / 1000 >= 2 * zklock_session->settings.tick_time;
}

/* ------------------------------------------------------------------------
 * What keeps locks from being granted
 * ------------------------------------------------------------------------
 */

/*
 * Shows what is in the way of granting locks, if that has changed: in zk_session, and in the
 * errors of sessions that fail to get a lock.  It follows from the session's state, its
 * settings, the chroot and the lease.  Comes last in a round, and returns when lease_attend()
 * wants to be called, ms.
 */
int64
lease_attend_obstacle(void)
{
	const SessionInfo	  *session = &zklock_session->info;
	const SessionSettings *used = &zklock_session->settings;
	int					   granted = (int) (timeout / 1000);
	int					   needed = 2 * used->tick_time;
	char				   too_short[ZKLOCK_ERROR_SIZE] = ""; /* why no lease is possible */
	char				   text[ZKLOCK_ERROR_SIZE] = "";
	int64				   next = NEVER;

	if (!lease_is_possible() && session->negotiated_timeout > granted)
		snprintf(too_short, sizeof(too_short),
				 "The ZooKeeper session was once granted a timeout of %d ms, and gives way to another when no lock is held. With a \"zklock.tick_time\" of %d ms, %d ms are needed.",
				 granted, used->tick_time, needed);
	else if (!lease_is_possible() && used->session_timeout > granted)
		snprintf(too_short, sizeof(too_short),
				 "ZooKeeper has granted a session timeout of %d ms of the %d ms asked for. With a \"zklock.tick_time\" of %d ms, %d ms are needed.",
				 granted, used->session_timeout, used->tick_time, needed);
	else if (!lease_is_possible())
		snprintf(too_short, sizeof(too_short),
				 "The session timeout is %d ms. With a \"zklock.tick_time\" of %d ms, %d ms are needed.",
				 granted, used->tick_time, needed);

	/* That is logged once for the same times. */
	if (zk_connection >= ZK_CONNECTED && (granted != checked_timeout || used->tick_time != checked_tick))
	{
		checked_timeout = granted;
		checked_tick = used->tick_time;
		if (!lease_is_possible())
			ereport(WARNING,
					(errmsg("\"zklock.tick_time\" is %d ms, too long for a session timeout of %d ms",
							used->tick_time, granted),
					 errdetail("It cannot be proved in time that the session is alive, so locks are neither granted nor kept. %s",
							   too_short),
					 granted < used->session_timeout
						 ? errhint("Raise maxSessionTimeout of the ZooKeeper servers, or set \"zklock.tick_time\" to their tickTime.")
						 : errhint("Raise \"zklock.session_timeout\", or set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers.")));
	}

	if (session->state == SESSION_AUTH_FAILED)
		snprintf(text, sizeof(text), "ZooKeeper refuses to serve: %s.", session->last_error);
	else if (session->state != SESSION_CONNECTED)
		snprintf(text, sizeof(text), "There is no connection to ZooKeeper%s%s.",
				 session->last_error[0] != '\0' ? ": " : "", session->last_error);
	else if (chroot_is_missing)
		strlcpy(text, "The chroot in \"zklock.servers\" does not exist.", sizeof(text));
	else if (used->acl == ZKLOCK_ACL_CREATOR && used->auth_file[0] == '\0' &&
			 used->tls.names[TLS_CERT][0] == '\0')
		strlcpy(text, "\"zklock.acl\" is \"creator\", but neither \"zklock.auth_file\" nor \"zklock.tls_cert_file\" is set.",
				sizeof(text));
	else if (lease_state() != LEASE_HOLDS && !lease_is_possible())
		strlcpy(text, too_short, sizeof(text));
	else if (lease_state() != LEASE_HOLDS)
		snprintf(text, sizeof(text), SESSION_UNPROVED, session->server);
	if (strcmp(text, session->obstacle) != 0)
		session_info_set_obstacle(text);

	if (proof == PROOF_BEGUN || proof == PROOF_RENEWED)
		next = lease_until();
	else if (proof == PROOF_SUSPENDED)
		next = lease_over();
	if (zk_connection >= ZK_CONNECTED && proof != PROOF_NO_SESSION && outstanding < MAX_OUTSTANDING)
		next = Min(next, next_beat);
	return next == NEVER ? NEVER : next / 1000 + 1;
}
