/*
 * worker.c
 *		The background worker: the process and its main loop.
 *
 * One worker per database server owns the one ZooKeeper session.  Its loop sleeps until
 * something happens (its latch: a backend or a signal; the eventfd: the client library; a
 * timeout) and then handles all there is.  Nothing in it waits for ZooKeeper, DNS or a
 * backend.
 *
 * A round of the loop calls the other files of this folder:
 *
 *		worker_session.c	the session, and its settings
 *		lease.c				heartbeats
 *		calls.c				calls that the worker makes for sessions, and what they leave behind
 *		candidacy.c			the elections at which the server stands
 *
 * and in between, the client library's events (zk_client.c) and the engine (engine/engine.c).
 *
 * What a request for a lock passes on its way to ZooKeeper and back, and why each of these is
 * there:
 *
 *		entry, and its dirty bit	a session asks at any time, also where it may neither wait nor
 *									fail, as at the end of a transaction: it takes no lock of the
 *									worker's, and a bit that is set twice is looked at once
 *		the worker's latch			is set once for all that was asked while it sleeps
 *		batch (node.c)			bits have no order; tickets have: first come, first served
 *		a path's arrivals			who comes may join a node of ours, or must look behind a listing
 *									that was sent later: that is decided for all of a path together
 *		a cohort's queue			those behind one node, among whom it is handed on
 *		engine.marked				what a round brings to a path, however much, has one look
 *		a line (zk_flow.c)			a connection has limited room, and each role and session its
 *									share of it
 *		in_flight					each call is answered once, whatever the library does
 *		the events (zk_library.c)	the library's threads must not call PostgreSQL
 *		engine.marked, again		handlers of answers only store what they learn
 *		entry, and the owner's latch	the session reads its grant without asking anybody
 *
 * Exit codes: 0 would unregister the worker for ever and anything but 1 would restart all of
 * PostgreSQL, so the worker always exits with 1 and is started again a second later.  The
 * next worker resumes the session.  This is also how changed settings and addresses are
 * taken up, since a connected handle cannot be given up without ending its session.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "compat.h"
#include "engine/engine.h"
#include "fault.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

extern PGDLLEXPORT void zklock_worker_main(Datum arg);

/* ------------------------------------------------------------------------
 * Ends of the process
 * ------------------------------------------------------------------------
 */

/*
 * Ends the process without exit(), as the last of all callbacks.  exit() would run what other
 * libraries have registered for it, and free what the client library's threads are using; and
 * these cannot be stopped without ending the session.
 */
static void
on_exit_last(int code, Datum arg)
{
	_exit(code);
}

/*
 * Restarts the worker: a server's answer makes no sense.  The next worker takes the session
 * over on another connection; whatever was under way is settled like a lost reply.
 */
pg_noreturn static void
on_malformed(const char *fault)
{
	session_info_set_error(psprintf("malformed answer: %s", fault));
	zklock_worker_restart(psprintf("a malformed answer of ZooKeeper server %s: %s",
								   zklock_session->info.server, fault));
}

/* Wakes, at any exit, backends that wait; they then wait for the next worker. */
static void
on_exit_worker(int code, Datum arg)
{
	worker_opening_over();
	zklock_worker_ends();
	for (int i = 0; i < zklock_max_processes(); i++)
		call_slot_wake(&call_pool->slots[i]);
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		if (entry_status(i).state != ENTRY_FREE)
			entry_set_owner_latch(entry_at(i));
	}
}

/* ------------------------------------------------------------------------
 * How the worker ends when it is asked to
 * ------------------------------------------------------------------------
 */

/*
 * A worker that is terminated alone exits at once: the next one resumes the session, with
 * changed settings that have waited.  Only when the server shuts down does the worker end the
 * session, and only after all locks have been released: while a holder's transaction is still
 * finishing, no other session may get its lock.  If they are not released in time, the session
 * is left to expire: better late than while a lock is held.
 *
 * Calls under way are answered before the session is closed, unless ZooKeeper is silent: the
 * client library takes whatever arrives for the answer to its close and hangs up, and then the
 * server may never read that close.  A PostgreSQL session that has not ended yet may ask for a
 * lock meanwhile; then the worker waits until that lock is released, too.
 */

#define MAX_DRAIN_MS 30000
#define MAX_SETTLE_MS 3000
#define LOOK_AGAIN_MS 20

static int64 drain_until;  /* end of the wait for locks, ms; 0: no shutdown yet */
static int64 settle_until; /* end of the wait for calls, ms; 0: some lock is held */

static volatile sig_atomic_t postmaster_stops; /* it has sent SIGTERM */

/*
 * SIGTERM: whether the server shuts down, or the worker is terminated alone, depends on who
 * sends it.  In a smart shutdown the postmaster sends it last, and starts another worker if this
 * one is terminated before.
 */
static void
on_sigterm(int signal_number, siginfo_t *info, void *context)
{
	int saved_errno = errno;

	if (info->si_pid == PostmasterPid)
		postmaster_stops = true;
	ShutdownRequestPending = true;
	SetLatch(MyLatch);
	errno = saved_errno;
}

/* Goes on with the end that SIGTERM has asked for; may not return. */
static void
shut_down(void)
{
	int64 now = zklock_now_ms();
	bool  begins = drain_until == 0;
	bool  released;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	if (begins)
	{
		if (!postmaster_stops)
		{
			ereport(LOG, (errmsg("terminating zklock worker due to administrator command")));
			ProcessConfigFile(PGC_SIGHUP); /* perhaps before the signal that asks for it */
			worker_session_take_settings_up();
			proc_exit(1);
		}
		drain_until = now + MAX_DRAIN_MS;
	}

	/*
	 * Every backend has given its locks back, no transaction relies on a reservation, and no
	 * call is to have a persistent lock.  Reservations then end with the session: no other
	 * transaction may begin to rely on one.
	 */
	released =
		(pg_atomic_fetch_or_u32(&entry_pool->reliances, RELIANCES_CLOSED) & ~RELIANCES_CLOSED) == 0;
	for (int i = 0; i < entry_pool->max_entries && released; i++)
	{
		EntryStatus status = entry_status(i);

		released = status.state == ENTRY_FREE || status.state == ENTRY_RELEASING || status.reserved;
	}
	released = released && !worker_calls_unsettled(false);
	if (begins && !released)
		ereport(DEBUG1, (errmsg("zklock worker waits until all locks are released")));
	if (!released && now > drain_until)
	{
		ereport(LOG, (errmsg("zklock worker exits with locks still held"),
					  errdetail("ZooKeeper frees them when the session times out.")));
		proc_exit(1);
	}
	if (!released)
		settle_until = 0;
	else if (settle_until == 0)
		settle_until = now + MAX_SETTLE_MS;

	if (released && (zk_connection < ZK_CONNECTED || now >= settle_until ||
					 (entries_all_consumed() && zk_flow_idle())))
	{
		if (zk_client_close())
			worker_session_file_remove();
		proc_exit(1);
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/*
 * Adds a CONTEXT to each line of the log: ZooKeeper session and server, while there is a
 * session; and while the worker sees to a path or an answer, that path, and the process of the
 * session for which ZooKeeper was asked.  Must not fail.
 */
static void
add_context(void *arg)
{
	const ZkCall *answering = zk_answering;
	const char	 *path = answering ? answering->path : engine_attended_path();

	if (zklock_session->info.id != 0)
		errcontext("ZooKeeper session 0x%llx, server %s",
				   (unsigned long long) zklock_session->info.id, zklock_session->info.server);
	if (answering && answering->owner.pid != ZK_WORKER)
		errcontext("path \"%s\", for process %d", path, answering->owner.pid);
	else if (path)
		errcontext("path \"%s\"", path);
}

/*
 * Counts an answer in the statistics; one that a recipe expects, such as a missing node, is no
 * error.
 */
static void
count_answer(CallOutcome outcome, int64 us)
{
	pg_atomic_fetch_add_u64(&stats_shared->requests, 1);
	pg_atomic_fetch_add_u64(&stats_shared->request_us, us);
	if (outcome == CALL_UNKNOWN || outcome == CALL_REFUSED)
		pg_atomic_fetch_add_u64(&stats_shared->request_errors, 1);
}

/* Handles a watch that has fired, on a path with contenders or on a queue with elements. */
static void
on_watch(ZkWatchEvent event, const char *path)
{
	engine_watch(event, path);
	worker_calls_watch_event(path);
}

/* The worker's entry point, which zklock.c names to the postmaster */
void
zklock_worker_main(Datum arg)
{
	static ErrorContextCallback	   log_context = {.callback = add_context};
	static const ZkClientCallbacks callbacks = {.session = worker_session_event,
												.watch = on_watch,
												.looked_up = worker_session_looked_up,
												.malformed = on_malformed,
												.stuck = worker_session_stuck,
												.answered = count_answer,
												.complaint = session_info_set_error};
	struct sigaction terminate = {.sa_sigaction = on_sigterm, .sa_flags = SA_RESTART | SA_SIGINFO};
	WaitEventSet *events;
	int			  queue_fd;

	on_proc_exit(on_exit_last, 0); /* registered first, called last */
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	(void) sigaction(SIGTERM, &terminate, NULL);
	(void) signal(SIGINT, SIG_IGN); /* pqsignal() takes no SIG_IGN in 19 */
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

	/*
	 * Requests from before, which woke nobody, are seen when this looks afterwards: here and in
	 * zklock_wake_worker() a barrier stands between the write and the read.
	 */
	on_shmem_exit(on_exit_worker, 0);
	pg_atomic_write_u32(&zklock_session->worker, compat_my_proc_number());
	pg_memory_barrier();

	ZKLOCK_SLOW("slow-workers", 400, 150);
	engine_start();
	worker_calls_start();
	worker_session_start();

	log_context.previous = error_context_stack;
	error_context_stack = &log_context;

	/* The rounds of the loop; src/README describes one. */
	for (;;)
	{
		int64	  next = NEVER;
		int64	  calls_at;
		int64	  candidacy_at;
		int64	  session_at;
		int64	  lease_at;
		int64	  flow_at;
		WaitEvent occurred[2]; /* the latch and the client library, perhaps both */

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			shut_down();
		else if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			worker_session_reload();
		}

		worker_session_attend();
		lease_attend();
		zk_client_dispatch();
		engine_attend();
		calls_at = worker_calls_attend();
		engine_pump();
		if (ZKLOCK_FAULT("fail-fatally"))
			elog(FATAL, "fault: fail-fatally");
		candidacy_at = candidacy_attend(drain_until != 0);
		session_at = worker_session_give_way();
		lease_at = lease_attend_obstacle();
		flow_at = zk_flow_send();

		/* Sleep until there is something to do, if there is nothing already. */
		if (zk_event_may_sleep())
		{
			const int64 wanted[] = {calls_at,
									candidacy_at,
									session_at,
									lease_at,
									flow_at,
									zk_client_next_wakeup(),
									engine_next_wakeup()};

			if (drain_until != 0)
				next = zklock_now_ms() + LOOK_AGAIN_MS;
			for (int i = 0; i < (int) lengthof(wanted); i++)
				next = Min(next, wanted[i]);
			(void) WaitEventSetWait(events, next == NEVER ? -1 : zklock_ms_until(next), occurred,
									lengthof(occurred), zklock_wait_event(ZKLOCK_WAIT_WORKER));
		}
	}
}
