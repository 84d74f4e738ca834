/*
 * session_life.c
 *		The life of the ZooKeeper session.
 *
 * While the client library has a handle, it connects, and reconnects, by itself.
 * An expired session is followed by a new one at once.  If a session cannot begin
 * (no name resolves, bad credentials), it is tried again later and later.
 *
 * The session outlives the worker: its id and password are in shared memory, the
 * next worker resumes it, and locks, queue places and waiting backends go on.
 * They are in a file as well, so that the session can be ended after a crash
 * (session_former.c).
 *
 * A lease proves that the session lives, and with it the locks held in it
 * (lease.c).  queue/session.c hears of each change and does what it means for them.
 *
 * Runs in: the worker.  All of this is private to it; session_status.c publishes
 * the part that others may know.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/queue.h"
#include "shared/clock.h"
#include "shared/stats.h"
#include "utils/timestamp.h"
#include "worker/calls.h"
#include "worker/elements.h"
#include "worker/lease.h"
#include "worker/seeks.h"
#include "worker/session.h"

#define MIN_BACKOFF_MS 500
#define MAX_BACKOFF_MS 30000
#define ADDRESS_CHECK_MS 10000
#define NEVER PG_INT64_MAX

/*
 * The session as the worker sees it; each arrow is one function here:
 *
 *                            .---------------.
 *                 opened     | CONNECTING    |  connected
 *      NO_HANDLE ----------> |               | -----------> CONNECTED
 *          ^                 | ENDING_FORMER | <-----------   |
 *          |                 '---------------' disconnected   |
 *          |                         |                        |
 *          '-------------------------+------------------------'
 *                              closed
 *
 *      opened      to ENDING_FORMER while there is a former session
 *      disconnected, connected
 *                  to and from CONNECTING
 *      closed      says what others see until the next handle is opened: DOWN, there
 *                  is no session, or no way to it; REFUSED, ZooKeeper refuses the
 *                  credentials; CONNECTING, the next one follows
 */
typedef enum Life
{
	LIFE_NO_HANDLE,
	LIFE_ENDING_FORMER, /* the handle is for the former session, to close it */
	LIFE_CONNECTING,	/* the handle resumes our session, or begins one */
	LIFE_CONNECTED		/* a server has accepted the session */
} Life;

static Life	 life = LIFE_NO_HANDLE;
static int64 open_at;			 /* NO_HANDLE: when to open one, ms */
static int64 opened_at;			 /* when one was opened last, us */
static int64 check_addresses_at; /* CONNECTING, ENDING_FORMER: ms */
static int	 backoff_ms = MIN_BACKOFF_MS;
static int64 connected_at = NEVER; /* last, ms; NEVER: not since back_off() */
static bool	 doubt_logged;		   /* since the session was connected last */

/* ------------------------------------------------------------------------
 * When to try again
 * ------------------------------------------------------------------------
 */

static void
open_at_once(void)
{
	open_at = zklock_now_ms();
}

/* Tries again later, and later still the next time, unless it went well for long. */
static void
back_off(void)
{
	if (connected_at != NEVER && zklock_now_ms() - connected_at > MAX_BACKOFF_MS)
		backoff_ms = MIN_BACKOFF_MS;
	connected_at = NEVER;
	open_at = zklock_now_ms() + backoff_ms;
	backoff_ms = Min(backoff_ms * 2, MAX_BACKOFF_MS);
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

static void
opened(void)
{
	Assert(life == LIFE_NO_HANDLE);
	life = session_former_exists() ? LIFE_ENDING_FORMER : LIFE_CONNECTING;
	check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
	session_status_set_state(SESSION_CONNECTING);
}

static void
connected(const SessionInfo *session)
{
	Assert(life == LIFE_CONNECTING);
	life = LIFE_CONNECTED;
	connected_at = zklock_now_ms();
	doubt_logged = false;
	session_status_connected(session);
}

static void
disconnected(void)
{
	Assert(life == LIFE_CONNECTED);
	life = LIFE_CONNECTING;
	check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
	session_status_set_state(SESSION_CONNECTING);
}

static void
closed(SessionState shown)
{
	life = LIFE_NO_HANDLE;
	session_status_set_state(shown);
}

/* ------------------------------------------------------------------------
 * Opening the session
 * ------------------------------------------------------------------------
 */

/* Has a handle resume our session, or begin a new one. */
static Credentials
configure_own(ZkClientConfig *config)
{
	const SessionSettings *settings = session_settings_used();
	SessionInfo			   session;

	session_info_read(&session);
	config->session_id = session.id;
	memcpy(config->session_password, zklock_session->info.password, sizeof(config->session_password));
	if (session.id != 0 && settings->session_timeout < session.shortest_timeout)
		lease_set_timeout(settings->session_timeout, opened_at);
	return CREDENTIALS_SHOWN;
}

/*
 * Opens a handle: for the session left behind if there is one; or else for ours.
 * A session can be ended without credentials.
 */
static void
open_handle(void)
{
	ZkClientConfig config = {0};
	Credentials	   credentials;
	bool		   is_open;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	opened_at = zklock_now_us();
	if (session_former_exists())
		credentials = session_former_configure(&config);
	else
		credentials = configure_own(&config);
	is_open = session_settings_configure(&config, credentials) ||
			  (session_former_exists() && session_settings_configure(&config, CREDENTIALS_WITHHELD));
	is_open = is_open && zk_client_open(&config);
	explicit_bzero(&config, sizeof(config));
	if (is_open)
	{
		opened();
		return;
	}
	closed(SESSION_DOWN);
	back_off();
	queue_session_unreachable();
}

/* ------------------------------------------------------------------------
 * Ending the session
 * ------------------------------------------------------------------------
 */

/*
 * The session is over: forgets it, and the locks with it.  Its id goes last:
 * should the worker fail halfway, the next one must not take the locks to the
 * next session.
 */
static void
forget_session(const char *reason)
{
	session_info_ended(session_status_id());
	session_file_remove();
	session_status_set_error(reason);
	queue_session_ended(reason);
	worker_elements_session_ended();
	lease_end();
	session_status_forget();
}

/* Gives the session up, in which no lock is held, for one with other settings. */
void
session_life_move(void)
{
	zk_client_leave();
	closed(SESSION_DOWN);
	open_at_once();
	if (session_status_id() == 0)
		return;
	forget_session("it moves to where changed settings lead");
	queue_session_unreachable();
}

/* Ends the session with all locks in it, as the worker is about to end. */
void
session_life_end(void)
{
	(void) zk_client_close();
	closed(SESSION_DOWN);
	if (session_status_id() != 0)
		forget_session("the worker was terminated while changed settings waited");
}

/* ------------------------------------------------------------------------
 * Events of the former session
 * ------------------------------------------------------------------------
 */

/* The former session has been dealt with: ours comes next. */
static void
go_on_to_own(void)
{
	closed(SESSION_CONNECTING);
	open_at_once();
	backoff_ms = MIN_BACKOFF_MS;
}

static void
on_former_connected(void)
{
	FormerStep step = session_former_close();

	if (step == FORMER_FORGOTTEN)
	{
		go_on_to_own();
		return;
	}
	closed(SESSION_CONNECTING);
	back_off();
	if (step == FORMER_LOOK_NOW)
		open_at_once();
}

/* ------------------------------------------------------------------------
 * Events of our session
 * ------------------------------------------------------------------------
 */

static void
on_connected(void)
{
	SessionInfo before;
	SessionInfo now;
	ZkSession	session;
	bool		resumed;

	session_info_read(&before);
	zk_client_session(&session);
	now = before;
	now.id = session.id;
	memcpy(now.password, session.password, sizeof(now.password));
	now.negotiated_timeout = session.negotiated_timeout;
	strlcpy(now.server, session.server, sizeof(now.server));
	resumed = before.id != 0;
	now.state = SESSION_CONNECTED;
	now.connected_since = GetCurrentTimestamp();
	strlcpy(now.chroot, session_settings_chroot(), sizeof(now.chroot));
	now.shortest_timeout = now.negotiated_timeout;
	if (resumed)
	{
		now.reconnects++;
		now.shortest_timeout = Min(now.negotiated_timeout, before.shortest_timeout);
		lease_set_timeout(now.shortest_timeout, lease_base());
	}
	else
		lease_begin(opened_at, now.negotiated_timeout);
	if (now.id != before.id)
		session_file_write(now.id, now.password); /* to be ended after a crash */
	connected(&now);

	ereport(LOG, (errmsg("connected to ZooKeeper server %s, %s session 0x%llx", now.server,
						 resumed ? "continuing" : "new", (unsigned long long) now.id)));
	lease_check_timeout(session_settings_used()->session_timeout);
	queue_session_connected(&now);
	worker_calls_connected();
	worker_seeks_connected();
	worker_elements_connected();
}

static void
on_disconnected(void)
{
	ereport(LOG, (errmsg("lost connection to ZooKeeper")));
	disconnected();
	queue_session_unreachable();
}

static void
on_expired(void)
{
	closed(SESSION_DOWN);
	open_at_once();
	forget_session("session expired");
	session_status_expired();
	queue_session_unreachable();
}

/* ZooKeeper refuses to serve us. */
static void
on_refused(void)
{
	if (session_settings_have_credentials())
	{
		session_status_set_error(
			"authentication failed: ZooKeeper refused the credentials in \"zklock.auth_file\"");
		ereport(LOG, (errmsg("ZooKeeper refused the credentials in \"zklock.auth_file\"")));
	}
	else
	{
		session_status_set_error(
			"authentication failed: ZooKeeper demands credentials, and \"zklock.auth_file\" is not set");
		ereport(LOG, (errmsg("ZooKeeper demands credentials, and \"zklock.auth_file\" is not set")));
	}
	closed(SESSION_AUTH_FAILED);
	back_off();
	queue_session_unreachable();
	queue_session_refused(ZK_AUTH_FAILED);
	worker_elements_refused(ZK_AUTH_FAILED);
}

/* There is no session yet, and what answers need not be ZooKeeper. */
static void
on_doubt(void)
{
	const char *fault = "what answers at \"zklock.servers\" does not prove to be a ZooKeeper server";

	closed(SESSION_CONNECTING);
	back_off();
	session_status_set_error(fault);
	if (!doubt_logged)
		ereport(LOG, (errmsg_internal("%s", fault), errdetail("It is tried again.")));
	doubt_logged = true;
	queue_session_unreachable();
}

static void
on_unresolved(void)
{
	/* Of a row of failures, the log tells once. */
	if (backoff_ms == MIN_BACKOFF_MS)
		ereport(LOG, (errmsg("could not resolve any server name in \"zklock.servers\"")));
	closed(SESSION_DOWN);
	back_off();
	session_status_set_error("no server name could be resolved");
	queue_session_unreachable();
}

/* Something has happened to the handle. */
void
session_life_event(ZkSessionEvent event)
{
	bool is_former = life == LIFE_ENDING_FORMER;

	switch (event)
	{
		case ZK_SESSION_CONNECTED:
			if (is_former)
				on_former_connected();
			else
				on_connected();
			break;
		case ZK_SESSION_DISCONNECTED:
			on_disconnected();
			break;
		case ZK_SESSION_EXPIRED:
			if (is_former)
			{
				session_former_is_over();
				go_on_to_own();
			}
			else
				on_expired();
			break;
		case ZK_SESSION_AUTH_FAILED:
			if (is_former)
			{
				session_former_refused();
				go_on_to_own();
			}
			else
				on_refused();
			break;
		case ZK_SESSION_IN_DOUBT:
			on_doubt();
			break;
		case ZK_SESSION_UNRESOLVED:
			on_unresolved();
			break;
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/*
 * A worker starts: it goes on with the session of the one before it.  If there is
 * none, a former session may have been left behind.
 */
void
session_life_start(void)
{
	if (session_status_id() != 0)
		lease_take_over(session_status_shortest_timeout());
	else
	{
		lease_end();
		session_former_find();
	}
}

/*
 * The handle cannot connect.  A server that does not answer is given up by the
 * library after a part of the session timeout that was negotiated, which may be
 * for hours; a new handle knows only what we have asked for.
 */
static void
look_for_a_way(void)
{
	ZkSession session;

	zk_client_session(&session);
	if (session.negotiated_timeout > session_settings_used()->session_timeout)
	{
		zk_client_leave();
		closed(SESSION_CONNECTING);
		open_at_once();
	}
	else
	{
		zk_client_check_addresses();
		check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
	}
	explicit_bzero(&session, sizeof(session));
}

/* Opens a handle when that is due, and sees to one that does not get a connection. */
void
session_life_attend(void)
{
	if ((life == LIFE_CONNECTING || life == LIFE_ENDING_FORMER) && zklock_now_ms() >= check_addresses_at)
		look_for_a_way();
	if (life == LIFE_NO_HANDLE && zklock_now_ms() >= open_at)
		open_handle();
}

/* When session_life_attend() wants to be called, ms; or -1. */
int64
session_life_next_wakeup(void)
{
	if (life == LIFE_NO_HANDLE)
		return open_at;
	return life == LIFE_CONNECTED ? -1 : check_addresses_at;
}
