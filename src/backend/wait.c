/*
 * wait.c
 *		Waiting for the worker's answer, and what is told of that.
 *
 * The session sleeps on its latch until the worker has decided.  A wait may be
 * for several entries, one after the other, as for a semaphore's permit.
 *
 * Runs in: backends.  shared/entry.h says how entries are read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock_view.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "compat.h"
#include "fault.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/worker_process.h"
#include "storage/lock.h"
#include "utils/timeout.h"

/* How long a call waits for a worker to appear. */
#define WORKER_ABSENT_MS 10000

/* A latch cannot wait longer at once: 24 days. */
#define MAX_SLEEP_MS (INT64CONST(24) * 24 * 60 * 60 * 1000)

/*
 * With log_lock_waits, tells of a wait that lasts, as for other locks.
 *
 *	index	the entry that waits, to tell for whom, or negative
 */
static void
log_wait(const Wait *wait, const char *what, int index)
{
	StringInfoData detail;

	initStringInfo(&detail);
	if (index >= 0)
	{
		ContenderEntry *entry = entry_at(index);
		const char	   *outage = display_outage();
		LockView		view;
		uint64			run_id;
		int				pid;
		const char	   *node;

		SpinLockAcquire(&entry->mutex);
		run_id = entry->status.run_id;
		SpinLockRelease(&entry->mutex);
		lock_view_take(&view);
		lock_view_blocker(&view, run_id, MyProcPid, &pid, &node);
		if (pid != 0)
			appendStringInfo(&detail, _("Blocked by process %d."), pid);
		else if (node)
			appendStringInfo(&detail, _("Blocked by ZooKeeper node \"%s\"."), display_utf8(node));
		if (outage)
			appendStringInfo(&detail, "%s%s.", detail.len > 0 ? " " : "", outage);
		lock_view_drop(&view);
	}
	ereport(LOG, (errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld ms", MyProcPid, what,
						 wait->what, display_path(wait->path), (long) (zklock_now_ms() - wait->start)),
				  detail.len > 0 ? errdetail_log("%s", detail.data) : 0));
	pfree(detail.data);
}

/*
 * What an error says that ends a wait, such as a timeout.  The path's bytes may
 * be escaped: converting them could fail, which is not allowed here.
 */
static void
wait_context(void *arg)
{
	const Wait *wait = arg;
	const char *path = display_utf8(wait->path);
	const char *outage = display_outage();

	if (outage)
		errcontext("while waiting for %s on ZooKeeper path \"%s\": %s", wait->what, path, outage);
	else
		errcontext("while waiting for %s on ZooKeeper path \"%s\"", wait->what, path);
}

/* Only errors from outside need this context: all others name the path. */
static void
check_for_interrupts(Wait *wait)
{
	ErrorContextCallback context = {.callback = wait_context, .arg = wait, .previous = error_context_stack};

	error_context_stack = &context;
	CHECK_FOR_INTERRUPTS();
	error_context_stack = context.previous;
}

/* Begins a wait, which may be for several entries one after the other. */
void
wait_begin(Wait *wait, const char *path, const char *what, int64 timeout_ms)
{
	wait->path = path;
	wait->what = what;
	wait->timeout_ms = timeout_ms;
	wait->start = zklock_now_ms();
	wait->logged = false;
}

/* Ends a wait that was successful. */
void
wait_end(const Wait *wait)
{
	if (wait->logged)
		log_wait(wait, "acquired", -1);
}

/*
 * Waits until the worker has decided about an entry, as part of a wait.
 *
 * Returns true if it is granted, false if the timeout has passed; then the
 * caller releases the entry.  Anything else is an error.
 */
bool
wait_for_entry(Wait *wait, int index)
{
	ContenderEntry *entry = entry_at(index);
	const char	   *path = wait->path;
	int64			timeout_ms = wait->timeout_ms;
	int64			absent_since = -1;

	if (ZKLOCK_FAULT("fail-asked"))
		elog(ERROR, "fault: fail-asked");
	for (;;)
	{
		ContenderState	 state;
		ContenderFailure failure;
		int				 code;
		int64			 waited;
		int64			 sleep = MAX_SLEEP_MS;
		bool			 lease_holds;

		ZKLOCK_SLOW("slow-backends", 120, 25);
		ResetLatch(MyLatch);

		/*
		 * What was granted under a lease that has lapsed may be gone by now.
		 * In this order: a lease that was seen before is the lock's own.
		 */
		lease_holds = lease_state() == LEASE_HOLDS;
		SpinLockAcquire(&entry->mutex);
		state = entry->status.state;
		failure = entry->status.failure;
		code = entry->status.error_code;
		SpinLockRelease(&entry->mutex);
		waited = zklock_now_ms() - wait->start;

		if (state == CONTENDER_GRANTED && entry->request.kind != CONTENDER_TURN &&
			ZKLOCK_FAULT("fail-granted"))
			elog(ERROR, "fault: fail-granted");
		if (state == CONTENDER_GRANTED && lease_holds)
			return true;
		if (state == CONTENDER_LOST && entry->request.kind == CONTENDER_TURN)
			return true;
		if (state == CONTENDER_LOST)
			request_report_lost(index, path);
		if (state == CONTENDER_FAILED)
		{
			if (failure == FAILURE_BUSY)
				return false;
			request_report_failure(index, path, failure, code);
		}
		check_for_interrupts(wait);

		/* A call that does not wait is answered by the worker, if it can. */
		if (timeout_ms == LOCK_NO_WAIT && !lease_holds)
			request_report_unreachable(path);
		if (timeout_ms > 0)
		{
			if (waited >= timeout_ms)
			{
				if (!zklock_connected())
					request_report_unreachable(path);
				return false;
			}
			sleep = Min(sleep, timeout_ms - waited);
		}

		if (zklock_worker_pid() != 0)
			absent_since = -1;
		else
		{
			if (absent_since < 0)
				absent_since = waited;
			if (waited - absent_since >= WORKER_ABSENT_MS)
				request_report_unreachable(path);
			sleep = Min(sleep, 1000);
		}

		if (state == CONTENDER_GRANTED || timeout_ms == LOCK_NO_WAIT)
			sleep = Min(sleep, 1000);

		if (log_lock_waits && !wait->logged)
		{
			if (waited >= DeadlockTimeout)
			{
				log_wait(wait, "still waiting for", index);
				wait->logged = true;
			}
			else
				sleep = Min(sleep, DeadlockTimeout - waited);
		}

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) sleep, PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
}
