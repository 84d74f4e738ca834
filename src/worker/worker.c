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
 *		batch (node.c)				bits have no order; tickets have: first come, first served
 *		a path's arrivals			who comes may join a node of ours, or must look behind a listing
 *									that was sent later: that is decided for all of a path together
 *		a cohort's queue			those behind one node, among whom it is handed on
 *		engine.marked				what a round brings to a path, however much, has one look
 *		a line (zk_client.c)		a connection has limited room, and each role and session its
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

/* Wakes, at any exit, backends that wait; they then wait for the next worker. */
static void
on_exit_worker(int code, Datum arg)
{
	zklock_worker_ends();
	for (int i = 0; i < zklock_max_processes(); i++)
		call_slot_wake(&call_pool->slots[i]);
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		if (entry_status(i).state != ENTRY_FREE)
			entry_set_owner_latch(entry_at(i));
	}
}

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
	const char	 *path = answering ? answering->path : engine_attended;

	if (zklock_session->info.id != 0)
		errcontext("ZooKeeper session 0x%llx, server %s",
				   (unsigned long long) zklock_session->info.id, zklock_session->info.server);
	if (answering && answering->owner.pid != ZK_WORKER)
		errcontext("path \"%s\", for process %d", path, answering->owner.pid);
	else if (path)
		errcontext("path \"%s\"", path);
}

/* Returns the sooner of two times.  Unlike Min(), this calls what returns one of them once. */
static int64
sooner(int64 a, int64 b)
{
	return a < b ? a : b;
}

/* The worker's entry point, which zklock.c names to the postmaster */
void
zklock_worker_main(Datum arg)
{
	static ErrorContextCallback log_context = {.callback = add_context};
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
	queue_fd = worker_session_start();

	events = compat_create_wait_event_set(3);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(events, WL_SOCKET_READABLE, queue_fd, NULL, NULL);

	log_context.previous = error_context_stack;
	error_context_stack = &log_context;

	/* The rounds of the loop; src/README describes one. */
	for (;;)
	{
		int64	  next = NEVER; /* when to look again, ms */
		bool	  stops;
		WaitEvent occurred[2]; /* the latch and the client library, perhaps both */

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		stops = ShutdownRequestPending;
		if (stops)
			next = sooner(next, worker_session_shut_down(postmaster_stops));
		else if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			worker_session_reload();
		}

		lease_attend();
		zk_client_dispatch();
		engine_attend();
		next = sooner(next, worker_calls_attend());
		next = sooner(next, engine_pump());
		if (ZKLOCK_FAULT("fail-fatally"))
			elog(FATAL, "fault: fail-fatally");
		next = sooner(next, candidacy_attend(stops));
		next = sooner(next, worker_session_attend());
		next = sooner(next, lease_attend_obstacle());
		next = sooner(next, zk_client_send());

		/* Sleep until there is something to do, if there is nothing already. */
		if (zk_event_may_sleep())
			(void) WaitEventSetWait(events, next == NEVER ? -1 : zklock_ms_until(next), occurred,
									lengthof(occurred), zklock_wait_event(ZKLOCK_WAIT_WORKER));
	}
}
