/*
 * shutdown.c
 *		How the worker ends when it is asked to.
 *
 * A worker that is terminated alone leaves at once: the next one resumes the
 * session, unless changed settings wait for its end.  Only when the server shuts down does the worker end the session, and
 * only after all locks have been released: while a holder's transaction is still
 * finishing, no other session may get its lock.  If they are not released in time, the
 * session is left to expire: better late than while a lock is held.
 *
 * Calls under way are answered before the session is closed, unless ZooKeeper is
 * silent: the client library takes whatever arrives for the answer to its close
 * and hangs up, and then the server may never read that close.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/shmem.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/pidfile.h"
#include "worker/candidacy.h"
#include "worker/elements.h"
#include "worker/session.h"
#include "worker/shutdown.h"
#include "zk/zk_client.h"

#define MAX_DRAIN_MS 30000
#define MAX_SETTLE_MS 3000
#define LOOK_AGAIN_MS 20

/*
 * The shutdown; each arrow is one function here, and those without an aim end
 * the process:
 *
 *               draining               settling
 *      RUNNING ----------> DRAINING --------------> SETTLING
 *         |                   |    <--------------     |
 *         | leave_alone       |      asked_again       | end_session
 *         v                   | leave_locks            v
 *                             v
 */
typedef enum Shutdown
{
	SHUTDOWN_RUNNING,  /* it has not been asked for */
	SHUTDOWN_DRAINING, /* backends release their locks */
	SHUTDOWN_SETTLING  /* all are released; calls under way are answered */
} Shutdown;

static Shutdown progress = SHUTDOWN_RUNNING;
static int64	drain_until;  /* DRAINING: not for longer, ms */
static int64	settle_until; /* SETTLING: likewise */

/* ------------------------------------------------------------------------
 * Conditions
 * ------------------------------------------------------------------------
 */

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
	for (int i = 0; i < entries_max(); i++)
	{
		ContenderState state = entry_status(i).state;

		if (state != CONTENDER_FREE && state != CONTENDER_RELEASING)
			return false;
	}
	return worker_elements_released();
}

/* Is there nothing to wait for before the session is closed? */
static bool
is_settled(void)
{
	return !zk_client_connected() || (zk_flow_idle() && worker_elements_settled()) ||
		   zklock_now_ms() >= settle_until;
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

/* The worker alone is to end. */
static void
leave_alone(void)
{
	Assert(progress == SHUTDOWN_RUNNING);
	ereport(LOG, (errmsg("terminating zklock worker due to administrator command")));
	if (session_settings_insist())
		session_life_end();
	proc_exit(1);
}

/* The server stops. */
static void
draining(void)
{
	Assert(progress == SHUTDOWN_RUNNING);
	progress = SHUTDOWN_DRAINING;
	drain_until = zklock_now_ms() + MAX_DRAIN_MS;
	candidacy_withdraw_all();
	if (!all_released())
		ereport(DEBUG1, (errmsg("zklock worker waits until all locks are released")));
}

/* All locks are released. */
static void
settling(void)
{
	Assert(progress == SHUTDOWN_DRAINING);
	progress = SHUTDOWN_SETTLING;
	settle_until = zklock_now_ms() + MAX_SETTLE_MS;
}

/* A session that has not ended yet has asked for a lock. */
static void
asked_again(void)
{
	Assert(progress == SHUTDOWN_SETTLING);
	progress = SHUTDOWN_DRAINING;
}

/* Nothing is held, nothing under way. */
static void
end_session(void)
{
	Assert(progress == SHUTDOWN_SETTLING);
	if (zk_client_close())
		session_file_remove();
	proc_exit(1);
}

/* Locks are held for too long. */
static void
leave_locks(void)
{
	Assert(progress == SHUTDOWN_DRAINING);
	ereport(LOG, (errmsg("zklock worker exits with locks still held"),
				  errdetail("ZooKeeper frees them when the session times out.")));
	proc_exit(1);
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* Goes on with the shutdown that SIGTERM has asked for; may not return. */
void
worker_shutdown_attend(void)
{
	bool released;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	released = all_released();
	if (progress == SHUTDOWN_RUNNING && !postmaster_is_stopping())
		leave_alone();
	if (progress == SHUTDOWN_RUNNING)
		draining();
	if (progress == SHUTDOWN_DRAINING && released)
		settling();
	else if (progress == SHUTDOWN_SETTLING && !released)
		asked_again();

	if (progress == SHUTDOWN_SETTLING && is_settled())
		end_session();
	if (progress == SHUTDOWN_DRAINING && zklock_now_ms() > drain_until)
		leave_locks();
}

/* When worker_shutdown_attend() wants to be called, ms; or -1. */
int64
worker_shutdown_next_wakeup(void)
{
	return progress == SHUTDOWN_RUNNING ? -1 : zklock_now_ms() + LOOK_AGAIN_MS;
}
