/*
 * shutdown.c
 *		How the worker ends when it is asked to.
 *
 * A worker that is terminated alone leaves at once: the next one resumes the
 * session, unless changed settings wait for its end.  Only when the server shuts down
 * does the worker end the session, and only after all locks have been released: while a
 * holder's transaction is still finishing, no other session may get its lock.  If they
 * are not released in time, the session is left to expire: better late than while a lock
 * is held.
 *
 * Calls under way are answered before the session is closed, unless ZooKeeper is
 * silent: the client library takes whatever arrives for the answer to its close
 * and hangs up, and then the server may never read that close.  A session of
 * PostgreSQL that has not ended yet may ask for a lock meanwhile; then that is waited
 * for once more.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "shared/shmem.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/pidfile.h"
#include "worker/inside.h"

#define MAX_DRAIN_MS 30000
#define MAX_SETTLE_MS 3000
#define LOOK_AGAIN_MS 20

static int64 drain_until;  /* locks are waited for until then, ms; 0: no shutdown yet */
static int64 settle_until; /* calls are; 0: some lock is held */

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
	return true;
}

/* The worker alone is to end. */
static void
leave_alone(void)
{
	ereport(LOG, (errmsg("terminating zklock worker due to administrator command")));
	if (session_settings_wait())
	{
		ereport(LOG, (errmsg("zklock takes up changed settings, and loses all locks, as the worker is terminated")));
		session_life_move("the worker was terminated while changed settings waited");
	}
	proc_exit(1);
}

/* Goes on with the shutdown that SIGTERM has asked for; may not return. */
void
worker_shutdown_attend(void)
{
	int64 now = zklock_now_ms();
	bool  released;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	released = all_released();
	if (drain_until == 0)
	{
		if (!postmaster_is_stopping())
			leave_alone();
		drain_until = now + MAX_DRAIN_MS;
		candidacy_withdraw_all();
		if (!released)
			ereport(DEBUG1, (errmsg("zklock worker waits until all locks are released")));
	}
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

	if (released && (!zk_client_connected() || now >= settle_until ||
					 (zk_flow_idle() && entries_all_consumed())))
	{
		if (zk_client_close())
			session_file_remove();
		proc_exit(1);
	}
}

/* When worker_shutdown_attend() wants to be called, ms; or -1. */
int64
worker_shutdown_next_wakeup(void)
{
	return drain_until == 0 ? -1 : zklock_now_ms() + LOOK_AGAIN_MS;
}
