/*
 * worker_session.c
 *		The life of the ZooKeeper session.
 *
 * While the client library has a handle, it connects, and reconnects, by itself.  A new
 * session follows an expired one at once.  If a session cannot begin (no name resolves, bad
 * credentials, a server that hangs up), the worker tries again after ever longer pauses.
 *
 * The session outlives the worker: its id and password are in shared memory, the next worker
 * resumes it, and locks, queue places and waiting backends go on.  They are in a file as
 * well, so that the session can be ended after a crash (leftover_session.c).
 *
 * A lease proves that the session lives, and with it the locks held in it (lease.c).
 * engine/engine.c is called for each change and does what it means for them.
 *
 * Runs in: the worker.  All of this is private to it; shared/session_info.c has the part
 * that others may know.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "fault.h"
#include "shared/common.h"
#include "utils/timestamp.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

#define MIN_PAUSE_MS 500
#define MAX_PAUSE_MS 30000
#define CHECK_MS 10000		  /* between looks at files, in an outage */
#define LOOK_UP_MS 1000		  /* ... and at the servers' addresses */
#define TRY_MS 3000			  /* at most, for a handle that does not know all of them */
#define LOOK_UP_CALM_MS 60000 /* ... while connected */

static int64	 open_at;		/* without a handle: when to look for the servers, ms */
static int64	 opened_at;		/* when a handle was opened last, us */
static int64	 open_by;		/* ... when to open one with known addresses, ms */
static uintptr_t lookup;		/* the look-up of the servers' addresses under way; 0: none */
static int64	 look_up_at;	/* with a handle: when to begin another, ms */
static bool		 new_addresses; /* of which the handle does not know */
static int64	 give_up_at; /* not connected any more: the handle, if the lease is over, ms */
static int64	 check_at;	 /* not connected: ms */
static bool		 doubt_logged; /* since the session was connected last */

/*
 * Returns how long to wait before the next attempt to connect.  The pause grows with the
 * number of attempts that have failed, in this worker and in those before it, but it is never
 * so long that the session ends because of the pauses.
 */
static int64
pause_ms(void)
{
	int failures = Min(zklock_session->failures, 10);
	int timeout = zklock_session->settings.session_timeout;

	if (failures == 0)
		return 0;
	if (zklock_session->info.id != 0)
		timeout = Min(timeout, zklock_session->info.negotiated_timeout);
	return Min(MIN_PAUSE_MS << (failures - 1), Min(MAX_PAUSE_MS, timeout / 3));
}

/*
 * Notes that there is no handle any more.  Until the next one is opened, others see: DOWN if
 * there is no session, or no way to it; AUTH_FAILED if ZooKeeper refuses the credentials;
 * CONNECTING if the next one follows.
 */
static void
closed(SessionState shown)
{
	lookup = 0;
	open_at = zklock_now_ms() + pause_ms();
	session_info_set_state(shown);
}

/* Notes that an attempt to connect has failed. */
static void
failed(SessionState shown)
{
	zklock_session->failures++;
	closed(shown);
	engine_session_unreachable();
}

/* ------------------------------------------------------------------------
 * Opening the session
 * ------------------------------------------------------------------------
 */

/*
 * Opens a handle: for the session left behind if there is one; else to resume ours, or to
 * begin a new one.  A session can be ended without credentials.
 */
static void
open_handle(void)
{
	const SessionInfo *own = &zklock_session->info;
	int				   timeout = zklock_session->settings.session_timeout;
	ZkClientConfig	   config = {0};
	Credentials		   credentials = CREDENTIALS_SHOWN;
	bool			   is_open;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	opened_at = zklock_now_us();
	if (leftover_session_exists())
		credentials = leftover_session_configure(&config);
	else
	{
		config.session_id = own->id;
		memcpy(config.session_password, own->password, sizeof(config.session_password));
		if (own->id != 0 && timeout < own->shortest_timeout)
			lease_set_timeout(timeout, opened_at);
	}
	is_open =
		session_settings_configure(&config, credentials) ||
		(leftover_session_exists() && session_settings_configure(&config, CREDENTIALS_WITHHELD));
	if ((ZKLOCK_FAULT("crash-leftover") && leftover_session_exists()) ||
		(ZKLOCK_FAULT("crash-credentials") && config.auth_scheme[0] != '\0'))
		abort();
	is_open = is_open && zk_client_open(zklock_session->addresses, &config);
	explicit_bzero(&config, sizeof(config));
	give_up_at = NEVER;
	new_addresses = false;
	look_up_at = zklock_now_ms() + LOOK_UP_MS;
	check_at = zklock_now_ms() + CHECK_MS;
	if (!is_open)
		failed(SESSION_DOWN);
}

/* Begins to look up the servers' names. */
static void
begin_look_up(void)
{
	lookup = zk_client_look_up(zklock_session->settings.servers);
	look_up_at = NEVER;
}

/*
 * Restarts the worker if the names have other addresses now, of which its handle does not know,
 * and there is no connection.  The handle has some time before: a name service may have others
 * each time.
 */
static void
take_addresses_up(void)
{
	int64 until = opened_at / 1000 + Min(TRY_MS, zklock_session->settings.session_timeout / 3);

	if (new_addresses && !zk_client_connected() && zklock_now_ms() >= until)
		zklock_worker_restart("changed addresses of ZooKeeper servers");
}

/*
 * Takes the addresses that the servers' names have.  Those that were looked up last serve as
 * long as no name can be resolved.
 */
void
worker_session_looked_up(uintptr_t lookup_, const char *found)
{
	char *addresses = zklock_session->addresses;

	if (lookup_ != lookup)
		return;
	lookup = 0;
	look_up_at = zklock_now_ms() + (zk_client_connected() ? LOOK_UP_CALM_MS : LOOK_UP_MS);
	if (found && zk_client_is_open() && connect_string_has_new(found, addresses))
		new_addresses = true;
	if (found)
		strlcpy(addresses, found, ZKLOCK_ADDRESSES_SIZE);
	if (zk_client_is_open())
		take_addresses_up();
	else if (addresses[0] != '\0')
		open_handle();
	else
	{
		/* Only the first of several failures in a row is logged. */
		if (zklock_session->failures == 0)
			ereport(LOG, (errmsg("could not resolve any server name in \"zklock.servers\"")));
		session_info_set_error("no server name could be resolved");
		failed(SESSION_DOWN);
	}
}

/* ------------------------------------------------------------------------
 * Ending the session
 * ------------------------------------------------------------------------
 */

/*
 * Forgets the session, which is over, and the locks with it.  Its id goes last: should the
 * worker fail halfway, the next one must not take the locks to the next session.
 */
static void
forget_session(const char *reason)
{
	SessionInfo now;

	session_info_ended(zklock_session->info.id);
	session_file_remove();
	session_info_set_error(reason);
	engine_session_ended(reason);
	lease_end();
	now = zklock_session->info;
	now.id = 0;
	explicit_bzero(now.password, sizeof(now.password));
	session_info_publish(&now);
}

/* Ends the session, if there is one, and with it all locks.  The worker has to restart. */
void
worker_session_end(const char *reason)
{
	(void) zk_client_close();
	if (zklock_session->info.id != 0)
		forget_session(reason);
}

/*
 * Restarts the worker: its handle cannot connect any more, so the next worker makes another
 * one.
 */
void
worker_session_stuck(const char *why)
{
	zklock_session->failures++;
	session_info_set_error(why);
	zklock_worker_restart(psprintf("a connection that does not serve: %s", why));
}

/* ------------------------------------------------------------------------
 * Events of the former session
 * ------------------------------------------------------------------------
 */

/* Goes on to our own session, since the former one has been dealt with. */
static void
go_on_to_own(void)
{
	zklock_session->failures = 0;
	closed(SESSION_CONNECTING);
}

static void
on_former_connected(void)
{
	if (leftover_session_close() || !leftover_session_exists())
		go_on_to_own();
	else
		failed(SESSION_CONNECTING);
}

static void
on_former_expired(void)
{
	leftover_session_is_over();
	go_on_to_own();
}

/* ------------------------------------------------------------------------
 * Events of our session
 * ------------------------------------------------------------------------
 */

static void
on_connected(void)
{
	SessionInfo now = zklock_session->info;
	bool		resumed = now.id != 0;
	char		shown[ZKLOCK_ERROR_SIZE];
	ZkSession	session;

	zk_client_session(&session);
	now.state = SESSION_CONNECTED;
	now.id = session.id;
	memcpy(now.password, session.password, sizeof(now.password));
	now.negotiated_timeout = session.negotiated_timeout;
	strlcpy(now.server, session.server, sizeof(now.server));
	strlcpy(now.chroot, connect_string_chroot(zklock_session->settings.servers), sizeof(now.chroot));
	now.connected_since = GetCurrentTimestamp();
	if (resumed)
	{
		now.reconnects++;
		now.shortest_timeout = Min(now.negotiated_timeout, now.shortest_timeout);
		lease_set_timeout(now.shortest_timeout, lease_base());
	}
	else
	{
		now.shortest_timeout = now.negotiated_timeout;
		lease_begin(opened_at, now.negotiated_timeout);
	}
	if (now.id != zklock_session->info.id)
		session_file_write(now.id, now.password); /* to be ended after a crash */
	doubt_logged = false;
	session_info_publish(&now);

	ereport(LOG, (errmsg("connected to ZooKeeper server %s, %s session 0x%llx", now.server,
						 resumed ? "continuing" : "new", (unsigned long long) now.id)));
	if (now.negotiated_timeout > now.shortest_timeout)
	{
		snprintf(shown, sizeof(shown),
				 "the lease goes by a session timeout of %d ms, not %d ms, until another ZooKeeper session begins",
				 now.shortest_timeout, now.negotiated_timeout);
		session_info_set_error(shown);
	}
	lease_check_timeout();
	engine_session_connected(&now);
	worker_calls_connected();
	worker_queue_waits_connected();
}

/* Reads the files anew if there is no connection for our session. */
static void
read_files(void)
{
	if (!leftover_session_exists())
		session_settings_read_files();
}

static void
on_disconnected(void)
{
	ereport(LOG, (errmsg("lost connection to ZooKeeper")));
	if (!lease_is_possible())
		/* The client library's handle will ask for no more than it was granted. */
		zklock_worker_restart("a session timeout that is too short");
	take_addresses_up();
	read_files();
	if (lookup == 0)
		begin_look_up();
	check_at = zklock_now_ms() + CHECK_MS;
	give_up_at = zklock_now_ms() + zklock_session->settings.session_timeout / 3;
	session_info_set_state(SESSION_CONNECTING);
	engine_session_unreachable();
}

static void
on_expired(void)
{
	SessionInfo now;

	bool found_out = give_up_at == NEVER && lease_has_run_out();

	closed(SESSION_DOWN);
	forget_session(found_out ? "session expired; if ZooKeeper refused it before, its data were wiped or restored"
							 : "session expired");
	now = zklock_session->info;
	now.expirations++;
	session_info_publish(&now);
	engine_session_unreachable();
}

static void
refused(void)
{
	failed(SESSION_AUTH_FAILED);
	engine_session_refused(ZK_AUTH_FAILED);
}

/* Reports that ZooKeeper refuses to serve us. */
static void
on_refused(void)
{
	const char *fault = zklock_session->settings.auth_file[0] != '\0'
							? "ZooKeeper refused the credentials in \"zklock.auth_file\""
							: "ZooKeeper demands credentials, and \"zklock.auth_file\" is not set";
	char		message[ZKLOCK_ERROR_SIZE];

	ereport(LOG, (errmsg_internal("%s", fault)));
	snprintf(message, sizeof(message), "authentication failed: %s", fault);
	session_info_set_error(message);
	refused();
}

/* Reports that what answers need not be ZooKeeper; there is no session yet. */
static void
on_doubt(void)
{
	const char *fault = "what answers at \"zklock.servers\" does not prove to be a ZooKeeper server";

	session_info_set_error(fault);
	if (!doubt_logged)
		ereport(LOG, (errmsg_internal("%s", fault), errdetail("It is tried again.")));
	doubt_logged = true;
	failed(SESSION_CONNECTING);
}

/* Handles an event of the handle, which is our session's, or the former one's. */
void
worker_session_event(ZkSessionEvent event)
{
	static const struct
	{
		void (*own)(void);
		void (*former)(void);
	} on_event[] = {
		[ZK_SESSION_CONNECTED] = {on_connected, on_former_connected},
		[ZK_SESSION_DISCONNECTED] = {on_disconnected, on_disconnected},
		[ZK_SESSION_EXPIRED] = {on_expired, on_former_expired},
		[ZK_SESSION_AUTH_FAILED] = {on_refused, on_refused},
		[ZK_SESSION_SASL_FAILED] = {refused, refused}, /* last_error has the reason */
		[ZK_SESSION_IN_DOUBT] = {on_doubt, on_doubt},
	};

	if (leftover_session_exists())
		on_event[event].former();
	else
		on_event[event].own();
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/*
 * Does without what may have made the workers before crash: the session left behind, and files
 * that settings name.  A session without these files would not be the one that is wanted.  So
 * then, or if there is nothing to do without, or that has not helped, none is opened before a
 * reload.
 */
static void
do_without(int ncrashes)
{
	const SessionSettings *settings = &zklock_session->settings;
	bool				   had_leftover = leftover_session_exists();

	ereport(WARNING,
			(errmsg("zklock worker has crashed %d times in a row while it opened a ZooKeeper session",
					ncrashes),
			 errdetail("A session that was left behind is not ended: ZooKeeper frees its locks when it times out. Files that settings name are not used."),
			 errhint("Check \"zklock.auth_file\" and \"zklock.tls_*_file\", then reload the configuration.")));
	leftover_session_forget();
	if (ncrashes == OPENING_MAX_CRASHES && had_leftover && settings->auth_file[0] == '\0' &&
		settings->tls.names[TLS_CA][0] == '\0')
		return;
	session_info_set_error(
		"the worker has crashed again and again while it opened a session; it waits for a reload");
	open_at = NEVER;
}

/*
 * Goes on, as a worker starts, with the session of the one before it.  If there is none, a
 * former session may have been left behind.
 */
void
worker_session_start(void)
{
	int ncrashes = worker_opening_begins();

	if (zklock_session->info.id != 0)
		lease_take_over(zklock_session->info.shortest_timeout);
	else
	{
		lease_end();
		leftover_session_find();
	}
	open_at = zklock_now_ms() + pause_ms();
	if (ncrashes >= OPENING_MAX_CRASHES)
		do_without(ncrashes);
}

/* Has another worker try again, after a reload, what this one does without. */
void
worker_session_reload(void)
{
	if (open_at == NEVER)
		zklock_worker_restart("a reload after crashes");
}

/*
 * Looks for a way to connect, which the handle does not find.  The library pauses for a part of
 * the session timeout that was negotiated, which may be hours; a new handle knows only what we
 * have asked for.
 */
static void
look_for_a_way(void)
{
	ZkSession session;

	zk_client_session(&session);
	explicit_bzero(session.password, sizeof(session.password));
	if (session.negotiated_timeout > zklock_session->settings.session_timeout)
		zklock_worker_restart("a ZooKeeper server that does not answer");
	read_files();
	check_at = zklock_now_ms() + CHECK_MS;
	zk_client_look_again();
}

/*
 * Opens a handle when that is due, and looks for a way to connect for one without a
 * connection.
 */
void
worker_session_attend(void)
{
	int64 now = zklock_now_ms();

	if (zk_client_answered())
	{
		zklock_session->failures = 0;
		zklock_session->settings_work = true;
		worker_opening_over();
	}
	if (now < worker_session_next_wakeup())
		return;
	if (!zk_client_is_open() && lookup != 0)
		open_handle(); /* names cannot be looked up, but the session waits */
	else if (!zk_client_is_open())
	{
		begin_look_up();
		open_by = zklock_session->addresses[0] != '\0' ? now + LOOK_UP_MS : NEVER;
		session_info_set_state(SESSION_CONNECTING);
	}
	else
	{
		if (now >= look_up_at)
			begin_look_up();

		/*
		 * ZooKeeper refuses a client that has seen newer data than it has, as when its data
		 * were wiped or restored.  The next worker's handle has seen none, and hears what has
		 * become of the session; no lock depends on that any more.
		 */
		if (!zk_client_connected() && now >= give_up_at && lease_has_run_out())
			zklock_worker_restart("a ZooKeeper session that is not continued");
		if (!zk_client_connected() && now >= check_at)
			look_for_a_way();
	}
}

/* Returns when worker_session_attend() wants to be called, ms. */
int64
worker_session_next_wakeup(void)
{
	if (zk_client_is_open())
		return zk_client_connected() ? look_up_at : Min(look_up_at, check_at);
	return lookup == 0 ? open_at : open_by;
}
