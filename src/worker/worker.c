/*
 * worker.c
 *		The background worker: main loop and life of the session.
 *
 * One worker per database server owns the one ZooKeeper session.  Its loop
 * sleeps until something happens (its latch: a backend or a signal; the
 * eventfd: the client library; a timeout) and then handles all there is:
 * settings, shutdown, ZooKeeper's replies and events, backends' requests.
 * Nothing in it waits for ZooKeeper, DNS or a backend.
 *
 * The session: DOWN -> CONNECTING <-> CONNECTED.  While a handle exists the
 * client library connects, and reconnects, by itself.  An expired session is
 * followed by a new one at once; what could not begin (no name resolves, bad
 * credentials) is begun again later and later.
 *
 * A server that crashed, or was shut down at once, left its session behind.
 * Shared memory is empty then, but a file tells of it (session_file.c).  The
 * worker ends this "former" session before it begins one of its own, so that
 * others need not wait for the locks in it until it times out:
 *
 *		start, a former session is known: connect to it
 *			connected			close it, and connect again to see
 *			expired, refused	begin our own
 *			unreachable			go on trying, as with our own
 *
 * It never gets into shared memory: a handle on it counts as CONNECTING.  No
 * process of the former server can be left that relies on it: the postmaster
 * does not initialise shared memory before all are gone.
 *
 * Exit codes: 0 would unregister the worker for ever and anything but 1 would
 * restart all of PostgreSQL, so the worker always leaves with 1 and is started
 * again a second later.  The session outlives that: its id and password are in
 * shared memory, the next worker resumes it, and locks, queue places and
 * waiting backends go on.  This is also how changed settings are taken up (see
 * settings.c), since a connected handle cannot be given up without ending its
 * session.
 *
 * That the session lives, and the locks held in it with it, is proved by a lease
 * (lease.c), which the main loop renews.
 *
 * Only when the server shuts down does the worker end the session itself, and
 * only after all locks have been released: while a holder's transaction is
 * still finishing, nobody else may get its lock.
 *
 * Runs in: the worker.  SessionInfo is written here alone, under
 * zklock_session_lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "worker/worker.h"

#include "compat.h"
#include "fault.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "queue/queue.h"
#include "queue/session.h"
#include "shared/settings.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/pidfile.h"
#include "utils/timestamp.h"
#include "worker/errands.h"
#include "worker/lease.h"
#include "worker/session_file.h"
#include "worker/settings.h"
#include "worker/status.h"
#include "zk/zk_client.h"

#define RESTART_SECONDS 1
#define MIN_BACKOFF_MS 500
#define MAX_BACKOFF_MS 30000
#define MAX_CLOSES 4
#define ADDRESS_CHECK_MS 10000
#define MAX_DRAIN_MS 30000
#define MAX_SETTLE_MS 3000

static SessionKey former;		 /* session left behind, to be ended; id 0: none */
static int		  former_closes; /* how often it has been closed so far */
static bool		  handle_open;
static int64	  open_at;	 /* when to open a handle next, ms */
static int64	  opened_at; /* when it was opened last, us */
static int		  backoff_ms = MIN_BACKOFF_MS;
static int64	  connected_at = -1;  /* last, ms; -1: not since back_off() */
static int64	  check_addresses_at; /* while not connected, ms */
static int64	  drain_until = -1;	  /* shutting down: not after, ms; -1: no */
static int64	  settle_until = -1;  /* all released: likewise */
static bool		  in_doubt;			  /* the log has been told */

/* ------------------------------------------------------------------------
 * Remembering and forgetting the session
 * ------------------------------------------------------------------------
 */

/* Sees to it that the session can be ended after a crash. */
static void
remember_session(const SessionInfo *session)
{
	SessionKey key = {.id = session->id};

	memcpy(key.password, session->password, sizeof(key.password));
	session_file_write(&key);
	explicit_bzero(&key, sizeof(key));
}

/*
 * Forgets the session, and the locks with it.  Its id goes last: should the
 * worker fail halfway, the next one must not take the locks to the next session.
 */
static void
session_forget(const char *reason)
{
	session_file_remove();
	status_set_error(reason);
	queue_session_ended(reason);
	lease_end();
	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	zklock_shared->session.id = 0;
	memset(zklock_shared->session.password, 0, ZKLOCK_PASSWORD_SIZE);
	LWLockRelease(zklock_session_lock);
}

/* ------------------------------------------------------------------------
 * Opening the session
 * ------------------------------------------------------------------------
 */

/* Tries again later, and later still the next time, unless it went well for long. */
static void
back_off(void)
{
	if (connected_at >= 0 && zklock_now_ms() - connected_at > MAX_BACKOFF_MS)
		backoff_ms = MIN_BACKOFF_MS;
	connected_at = -1;
	handle_open = false;
	open_at = zklock_now_ms() + backoff_ms;
	backoff_ms = Min(backoff_ms * 2, MAX_BACKOFF_MS);
}

/*
 * Makes a handle: for the session left behind if there is one; or else resumes
 * ours, or begins a new one.  A session can be ended without credentials.
 */
static void
session_open(void)
{
	ZkClientConfig config = {0};
	SessionInfo	   session;
	bool		   is_former = former.id != 0;
	bool		   show_credentials;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	zklock_get_session(&session, NULL);
	config.closing = is_former;
	config.session_id = is_former ? former.id : session.id;
	memcpy(config.session_password, is_former ? former.password : session.password,
		   ZKLOCK_PASSWORD_SIZE);
	opened_at = zklock_now_us();
	if (session.id != 0 && settings_session_timeout() < session.shortest_timeout)
		lease_set_timeout(settings_session_timeout(), opened_at);

	/* Who shows wrong ones may not even close, so that is tried without too. */
	show_credentials = settings_have_credentials() && (!is_former || former_closes % 2 == 0);
	handle_open =
		(settings_configure(&config, show_credentials) || is_former) && zk_client_open(&config);
	explicit_bzero(&config, sizeof(config));
	if (!handle_open)
	{
		status_set_state(SESSION_DOWN);
		back_off();
		queue_session_unreachable();
	}
	else
	{
		status_set_state(SESSION_CONNECTING);
		check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
	}
}

/* ------------------------------------------------------------------------
 * What the client tells us
 * ------------------------------------------------------------------------
 */

/*
 * Something has happened to a handle for the session left behind.  Returns
 * false if it is to be treated like any handle.
 *
 * The request to close a session may be lost with the connection, and that is
 * all we hear of an answer.  So we know only when we connect to it in vain.
 */
static bool
on_former_session(ZkSessionEvent event)
{
	unsigned long long id = (unsigned long long) former.id;
	bool			   ended = event == ZK_SESSION_EXPIRED;

	if (event != ZK_SESSION_CONNECTED && event != ZK_SESSION_EXPIRED && event != ZK_SESSION_AUTH_FAILED)
		return false;
	if (event == ZK_SESSION_CONNECTED)
	{
		bool closed = zk_client_close();

		if (++former_closes < MAX_CLOSES)
		{
			back_off();
			if (closed)
				open_at = zklock_now_ms();
			return true;
		}
	}

	if (!ended)
		ereport(LOG, (errmsg("could not end ZooKeeper session 0x%llx, which had been left behind", id),
					  errdetail("ZooKeeper frees its locks when it times out.")));
	else if (former_closes > 0)
		ereport(LOG, (errmsg("ended ZooKeeper session 0x%llx, which had been left behind", id)));
	else
		ereport(DEBUG1,
				(errmsg("ZooKeeper session 0x%llx, which had been left behind, is over", id)));
	if (ended)
		zklock_session_ended(former.id);
	explicit_bzero(&former, sizeof(former));
	session_file_remove();
	handle_open = false;
	open_at = zklock_now_ms();
	backoff_ms = MIN_BACKOFF_MS;
	return true;
}

/* A server has accepted the session, perhaps with a shorter timeout. */
static void
on_greeted(void)
{
	SessionInfo before;
	SessionInfo now;

	zklock_get_session(&before, NULL);
	now = before;
	zk_client_session(&now);
	if (now.id != before.id || now.negotiated_timeout >= before.shortest_timeout)
		return;
	lease_set_timeout(now.negotiated_timeout, lease_base());
	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	zklock_shared->session.shortest_timeout = now.negotiated_timeout;
	LWLockRelease(zklock_session_lock);
}

static void
on_connected(void)
{
	SessionInfo before;
	SessionInfo now;

	zklock_get_session(&before, NULL);
	now = before;
	zk_client_session(&now);
	now.state = SESSION_CONNECTED;
	now.connected_since = GetCurrentTimestamp();
	strlcpy(now.chroot, settings_chroot(), sizeof(now.chroot));
	if (before.id != 0)
		now.reconnects++;
	connected_at = zklock_now_ms();
	in_doubt = false;
	now.shortest_timeout = now.negotiated_timeout;
	if (before.id == 0)
		lease_begin(opened_at, now.negotiated_timeout);
	else
	{
		now.shortest_timeout = Min(now.negotiated_timeout, before.shortest_timeout);
		lease_set_timeout(now.shortest_timeout, lease_base());
	}
	if (now.id != before.id)
		remember_session(&now);

	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	zklock_shared->session = now;
	LWLockRelease(zklock_session_lock);

	ereport(LOG, (errmsg("connected to ZooKeeper server %s, %s session 0x%llx", now.server,
						 before.id != 0 ? "continuing" : "new", (unsigned long long) now.id)));
	lease_check_timeout(settings_session_timeout());
	queue_session_connected(&now);
}

/* ZooKeeper does not talk to us. */
static void
on_refused(void)
{
	if (settings_have_credentials())
	{
		status_set_error(
			"authentication failed: ZooKeeper refused the credentials in \"zklock.auth_file\"");
		ereport(LOG, (errmsg("ZooKeeper refused the credentials in \"zklock.auth_file\"")));
	}
	else
	{
		status_set_error(
			"authentication failed: ZooKeeper demands credentials, and \"zklock.auth_file\" is not set");
		ereport(LOG, (errmsg("ZooKeeper demands credentials, and \"zklock.auth_file\" is not set")));
	}
	status_set_state(SESSION_AUTH_FAILED);
	queue_session_unreachable();
	queue_session_refused(ZK_AUTH_FAILED);
}

static void
on_session(ZkSessionEvent event)
{
	if (former.id != 0 && on_former_session(event))
		return;
	switch (event)
	{
		case ZK_SESSION_GREETED:
			on_greeted();
			break;
		case ZK_SESSION_CONNECTED:
			on_connected();
			break;
		case ZK_SESSION_DISCONNECTED:
			ereport(LOG, (errmsg("lost connection to ZooKeeper")));
			status_set_state(SESSION_CONNECTING);
			check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
			queue_session_unreachable();
			break;
		case ZK_SESSION_EXPIRED:
			handle_open = false;
			open_at = zklock_now_ms();
			status_set_state(SESSION_DOWN);
			zklock_session_ended(zklock_shared->session.id);
			session_forget("session expired");
			LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
			zklock_shared->session.expirations++;
			LWLockRelease(zklock_session_lock);
			queue_session_unreachable();
			break;
		case ZK_SESSION_AUTH_FAILED:
			back_off();
			on_refused();
			break;
		case ZK_SESSION_IN_DOUBT:
			back_off();
			if (zklock_shared->session.id != 0)
				open_at = Min(open_at, zklock_now_ms() + settings_session_timeout() / 6);
			status_set_state(SESSION_CONNECTING);
			status_set_error("what answers at \"zklock.servers\" does not prove to be a ZooKeeper server");
			if (!in_doubt)
				ereport(LOG, (errmsg("what answers at \"zklock.servers\" does not prove to be a ZooKeeper server"),
							  errdetail("It is tried again.")));
			in_doubt = true;
			queue_session_unreachable();
			break;
		case ZK_SESSION_UNRESOLVED:
			if (backoff_ms == MIN_BACKOFF_MS)
				ereport(LOG, (errmsg("could not resolve any server name in \"zklock.servers\"")));
			back_off();
			status_set_error("no server name could be resolved");
			status_set_state(SESSION_DOWN);
			queue_session_unreachable();
			break;
	}
}

/* Something is wrong with a server; of an outage, log it once. */
static void
on_complaint(const char *message, bool first)
{
	status_set_error(message);
	if (first)
		ereport(LOG, (errmsg_internal("%s", message)));
}

/* ------------------------------------------------------------------------
 * The process
 * ------------------------------------------------------------------------
 */

/* Leaves so that the postmaster starts a new worker. */
static void
restart(const char *reason)
{
	ereport(LOG, (errmsg("zklock worker restarts because of %s", reason)));
	proc_exit(1);
}

/*
 * A server's answer makes no sense.  The next worker takes the session over on
 * another connection; whatever was under way is settled like a lost reply.
 */
static void
on_malformed(const char *fault)
{
	SessionInfo session;

	zklock_get_session(&session, NULL);
	status_set_error(psprintf("malformed answer: %s", fault));
	restart(psprintf("a malformed answer of ZooKeeper server %s: %s", session.server, fault));
}

/* At any exit: tells waiting backends, who wait for the next worker then. */
static void
on_exit_worker(int code, Datum arg)
{
	(void) code;
	(void) arg;
	status_set_state(SESSION_DOWN);
	SpinLockAcquire(&zklock_shared->mutex);
	zklock_shared->worker_pid = 0;
	SpinLockRelease(&zklock_shared->mutex);
	pg_atomic_write_u32(&zklock_shared->worker_proc_number, NO_WORKER);
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		if (entry_get_state(i) != CONTENDER_FREE)
			entry_set_owner_latch(entry_at(i));
	}
}

/*
 * SIGTERM comes from pg_terminate_backend() as well as from a postmaster that
 * shuts down.  The latter says so in its pid file before it sends any signal.
 */
static bool
postmaster_is_stopping(void)
{
	FILE *file = AllocateFile("postmaster.pid", "r");
	char  line[MAXPGPATH];
	bool  stopping = false;

	if (file == NULL)
		return false;
	for (int number = 1; fgets(line, sizeof(line), file) != NULL; number++)
	{
		if (number == LOCK_FILE_LINE_PM_STATUS)
			stopping = strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
	}
	FreeFile(file);
	return stopping;
}

/* Has every backend given its locks back? */
static bool
all_released(void)
{
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		ContenderState state = entry_get_state(i);

		if (state != CONTENDER_FREE && state != CONTENDER_RELEASING)
			return false;
	}
	return true;
}

/*
 * Handles SIGTERM: leaves at once, or, if the server stops, when all locks
 * are released, ending the session.  If they are not within a bounded time,
 * the session is left to expire: better late than while a lock is held.
 *
 * Calls under way are answered first, unless ZooKeeper is silent: the library
 * takes whatever arrives for the answer to its close and hangs up, and then the
 * server may never read that close.
 */
static void
shut_down(void)
{
	ZKLOCK_SLOW("slow-workers", 400, 150);
	if (drain_until < 0)
	{
		if (!postmaster_is_stopping())
		{
			ereport(LOG, (errmsg("terminating zklock worker due to administrator command")));
			proc_exit(1);
		}
		drain_until = zklock_now_ms() + MAX_DRAIN_MS;
		if (!all_released())
			ereport(DEBUG1, (errmsg("zklock worker waits until all locks are released")));
	}
	if (all_released())
	{
		if (settle_until < 0)
			settle_until = zklock_now_ms() + MAX_SETTLE_MS;
		if (zk_client_connected() && !zk_calls_idle() && zklock_now_ms() < settle_until)
			return;
		if (zk_client_close())
			session_file_remove();
		proc_exit(1);
	}
	if (zklock_now_ms() > drain_until)
	{
		ereport(LOG, (errmsg("zklock worker exits with locks still held"),
					  errdetail("ZooKeeper frees them when the session times out.")));
		proc_exit(1);
	}
}

static void
reload_settings(void)
{
	ProcessConfigFile(PGC_SIGHUP);
	settings_changed();
	lease_check_timeout(settings_session_timeout());
}

/* Gives the session up, in which no lock is held, for one with other settings. */
static void
move_session(void)
{
	int64 id = zklock_shared->session.id;

	zk_client_leave();
	handle_open = false;
	open_at = zklock_now_ms();
	status_set_state(SESSION_DOWN);
	if (id == 0)
		return;
	zklock_session_ended(id);
	session_forget("it moves to where changed settings lead");
	queue_session_unreachable();
}

/* Does what settings that have changed ask for. */
static void
attend_settings(void)
{
	switch (settings_attend())
	{
		case SETTINGS_GO_ON:
			break;
		case SETTINGS_RESUME:
			restart("changed settings");
			break;
		case SETTINGS_MOVE:
			move_session();
			break;
	}
}

/* How long the loop may sleep, ms; -1 for ever. */
static long
sleep_time(void)
{
	int64 next = -1;
	int64 wanted[] = {zk_calls_next_wakeup(),
					  zk_client_next_wakeup(),
					  settings_next_wakeup(),
					  queue_next_wakeup(),
					  handle_open ? -1 : open_at,
					  handle_open && !zk_client_connected() ? check_addresses_at : -1,
					  lease_next_wakeup(),
					  drain_until < 0 ? -1 : zklock_now_ms() + 20};

	for (int i = 0; i < (int) lengthof(wanted); i++)
	{
		if (wanted[i] >= 0)
			next = next < 0 ? wanted[i] : Min(next, wanted[i]);
	}
	return next < 0 ? -1 : Max(next - zklock_now_ms(), 0);
}

static void
main_loop(WaitEventSet *events)
{
	uint32 wait_event = compat_wait_event("ZklockWorkerMain");

	for (;;)
	{
		WaitEvent occurred;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			shut_down();
		else if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload_settings();
		}

		if (!handle_open && zklock_now_ms() >= open_at)
			session_open();
		if (handle_open && !zk_client_connected() && zklock_now_ms() >= check_addresses_at)
		{
			zk_client_check_addresses();
			check_addresses_at = zklock_now_ms() + ADDRESS_CHECK_MS;
		}
		lease_attend();
		zk_client_dispatch();
		if (zk_client_addresses_changed())
			restart("changed addresses of ZooKeeper servers");
		queue_attend();
		worker_errands_attend();
		queue_pump();
		attend_settings();
		status_attend();

		(void) WaitEventSetWait(events, sleep_time(), &occurred, 1, wait_event);
	}
}

/* The worker's entry point. */
void
zklock_worker_main(Datum arg)
{
	static const ZkClientCallbacks callbacks = {.session = on_session,
												.watch = queue_watch,
												.malformed = on_malformed,
												.complaint = on_complaint,
												.tick_time = lease_tick_time_is};
	WaitEventSet				  *events;
	SessionInfo					   session;
	int							   queue_fd;

	(void) arg;
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGINT, SIG_IGN);
	BackgroundWorkerUnblockSignals();

	/* No database, but this makes us visible in pg_stat_activity. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	MemoryContextSwitchTo(
		AllocSetContextCreate(TopMemoryContext, "zklock worker", ALLOCSET_DEFAULT_SIZES));

	ZKLOCK_SLOW("slow-workers", 400, 150);
	queue_fd = zk_client_start(&callbacks);
	events = compat_create_wait_event_set(3);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(events, WL_SOCKET_READABLE, queue_fd, NULL, NULL);

	on_shmem_exit(on_exit_worker, 0);
	SpinLockAcquire(&zklock_shared->mutex);
	zklock_shared->worker_pid = MyProcPid;
	SpinLockRelease(&zklock_shared->mutex);
	pg_atomic_write_u32(&zklock_shared->worker_proc_number, compat_my_proc_number());

	ZKLOCK_SLOW("slow-workers", 400, 150);
	queue_start();
	worker_errands_start();
	zklock_get_session(&session, NULL);
	lease_start(session.id != 0 ? session.shortest_timeout : 0);
	if (session.id == 0)
		session_file_read(&former);
	status_start();
	settings_start();

	main_loop(events);
}

/* Registers the worker; in the postmaster, while it loads libraries. */
void
zklock_register_worker(void)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = RESTART_SECONDS;
	strlcpy(worker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "zklock_worker_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "zklock worker", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "zklock worker", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
