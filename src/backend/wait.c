/*
 * wait.c
 *		Waiting for the worker's answer, and the messages of a session that waits.
 *
 * The session sleeps on its latch until the caller's look finds what is awaited: that the
 * worker has decided about an entry, or is done with entries that were given up, that this
 * server leads, or that it is the session's turn at a queue.  A wait begins when that has
 * been asked for.  One wait may be for several of these, one after the other; its timeout and
 * PostgreSQL's lock_timeout are for all of them.
 *
 * However a wait ends, it is counted once: by wait_granted() or wait_refused(), or with the
 * error that ends it.  It is counted before it is logged, since a message may raise an error:
 * errfinish() looks at interrupts.
 *
 * Runs in: backends.  shared/entry.h says how entries are read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/request.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "fault.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* How long a session sleeps if nothing sets its latch for what it waits for */
#define LOOK_MS 1000

/*
 * A session looks for a deadlock each time that its wait has doubled, but no later than so
 * many deadlock_timeouts after the last look.
 */
#define MAX_LOOK_PAUSE 8

/* The longest sleep on a latch: 24 days */
#define MAX_SLEEP_MS (INT64CONST(24) * 24 * 60 * 60 * 1000)

/*
 * Adds the wait to the context of an error that ends it, such as a timeout, if it is for a
 * lock.  Messages about the wait itself name it anyway.  Bytes of the path may be escaped:
 * converting them could fail, which is not allowed here.
 */
static void
wait_context(void *arg)
{
	const Wait *wait = arg;

	if (wait->event != ZKLOCK_WAIT_LOCK || geterrcode() == ERRCODE_SUCCESSFUL_COMPLETION ||
		geterrcode() == ERRCODE_T_R_DEADLOCK_DETECTED)
		return;
	errcontext("while waiting for %s on ZooKeeper path \"%s\"%s", wait->what,
			   display_utf8(wait->path), display_outage_suffix());
}

/* Begins a wait. */
void
wait_begin(Wait *wait, const char *path, const char *what, StatsKind kind, int64 timeout_ms)
{
	*wait = (Wait){.path = path,
				   .what = what,
				   .timeout_ms = timeout_ms,
				   .counted = {.kind = kind, .start_us = zklock_now_us()},
				   .event = ZKLOCK_WAIT_LOCK,
				   .entry = ENTRY_NONE,
				   .deadlock_check_at = DeadlockTimeout};
}

/*
 * Returns true if the timeout has passed.  Raises an error if nobody could answer.  A call
 * that does not wait gets its answer from the worker, if the worker can give one.
 */
static bool
is_out_of_time(const Wait *wait, int64 waited)
{
	if (wait->timeout_ms == LOCK_NO_WAIT && lease_state() != LEASE_HOLDS)
		request_report_unreachable(wait->path);
	if (wait->timeout_ms <= 0 || waited < wait->timeout_ms)
		return false;
	if (!zklock_connected())
		request_report_unreachable(wait->path);
	return true;
}

/*
 * Raises a NOTICE, once, if nothing has been granted to anybody for deadlock_timeout.  A call
 * that does not wait for others, or lacks a worker, ends soon, and does not.
 *
 * Returns when it is to be called again, ms.
 */
static int64
report_outage(Wait *wait)
{
	SessionInfo session;
	int64		notice_at;

	if (wait->outage_reported || wait->timeout_ms == LOCK_NO_WAIT || wait->absent_since != 0 ||
		zklock_connected())
		return NEVER;
	session_info_read(&session);

	/* The worker may not have stored the obstacle yet. */
	if (session.obstacle[0] == '\0')
		session.obstacle_since = zklock_now_us();
	notice_at = Max((session.obstacle_since - wait->counted.start_us) / 1000, 0) + DeadlockTimeout;
	if (zklock_ms_since(wait->counted.start_us) < notice_at)
		return wait->counted.start_us / 1000 + notice_at + 1;
	ereport(NOTICE, (errmsg("still waiting for %s on ZooKeeper path \"%s\"", wait->what,
							display_utf8(wait->path)),
					 errdetail("%s It has been so since %s.", display_utf8(session.obstacle),
							   timestamptz_to_str(GetCurrentTimestamp() -
												  (zklock_now_us() - session.obstacle_since))),
					 errhint("The call goes on waiting. See view zk_session, and the server log.")));
	wait->outage_reported = true;
	return NEVER;
}

/*
 * Returns true if log_lock_waits is to log that the wait lasts.  A wait for an element is
 * never logged.
 */
static bool
is_to_be_logged(const Wait *wait)
{
	return log_lock_waits && !wait->is_logged && wait->event == ZKLOCK_WAIT_LOCK;
}

static bool
looks_for_deadlocks(const Wait *wait)
{
	return wait->entry != ENTRY_NONE && wait->timeout_ms != LOCK_NO_WAIT;
}

/*
 * Returns how long the session may sleep before it has to look again, ms.
 *
 *	until	the session has something else to do then, ms
 */
static int64
wait_sleep_time(const Wait *wait, WaitAnswer answer, int64 waited, int64 until)
{
	int64 left = zklock_ms_until(until);
	int64 sleep = Min(MAX_SLEEP_MS, left);

	if (looks_for_deadlocks(wait))
	{
		sleep = Min(sleep, wait->deadlock_check_at - waited);
		left = zklock_ms_until(deadlock_across_next_wakeup(wait->entry));
		sleep = Min(sleep, left);
	}
	if (is_to_be_logged(wait))
		sleep = Min(sleep, Max(DeadlockTimeout - waited, 0));

	/* Nothing sets the latch when the lease lapses, or if no worker comes. */
	if (answer == WAIT_POLLED || wait->timeout_ms == LOCK_NO_WAIT || wait->absent_since != 0)
		sleep = Min(sleep, LOOK_MS);
	return sleep;
}

/*
 * Looks for a deadlock if that is due: on this server, which raises an error if there is one,
 * and across servers.
 *
 *	until	the timeout passes then, ms
 */
static void
look_for_deadlock(Wait *wait, int64 waited, int64 until)
{
	if (!looks_for_deadlocks(wait))
		return;
	if (waited >= wait->deadlock_check_at)
	{
		deadlock_check(wait->entry);
		wait->deadlock_check_at =
			waited + Max(Min(waited, MAX_LOOK_PAUSE * (int64) DeadlockTimeout), DeadlockTimeout);
	}
	deadlock_across_attend(wait->entry, waited, until);
}

/*
 * Sleeps, as part of a wait, until the latch is set, or until the session has to look at
 * something else.  Raises an error if nobody can answer.
 *
 *	until	the session has something else to do then, ms
 */
void
wait_sleep(Wait *wait, WaitAnswer answer, int64 until, ZklockWaitEvent event)
{
	int64			 waited = zklock_ms_since(wait->counted.start_us);
	int64			 outage_at;
	InterruptContext doing;
	MemoryContext	 context;
	MemoryContext	 old;

	if (request_lacks_worker(&wait->absent_since))
		request_report_unreachable(wait->path);

	/* A message may wait for a client that does not read it, and a search takes time. */
	interrupt_context_begin(&doing, wait_context, wait);
	context = AllocSetContextCreate(CurrentMemoryContext, "zklock wait", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	look_for_deadlock(wait, waited, until);
	outage_at = report_outage(wait);
	if (is_to_be_logged(wait) && waited >= DeadlockTimeout)
		wait_log_lasting(wait, until);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	interrupt_context_end(&doing);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 (long) wait_sleep_time(wait, answer, waited, Min(until, outage_at)),
					 zklock_wait_event(event));
}

/*
 * Sleeps until the latch is set, or until the session has to look at something else.
 *
 * Returns false if the timeout has passed.  Raises an error if the wait is interrupted, or if
 * nobody can answer.
 */
static bool
sleep_until_notified(Wait *wait, WaitAnswer answer)
{
	int64 until = wait->timeout_ms > 0 ? wait->counted.start_us / 1000 + wait->timeout_ms : NEVER;

	interrupt_check(wait_context, wait);
	if (is_out_of_time(wait, zklock_ms_since(wait->counted.start_us)))
		return false;
	wait_sleep(wait, answer, until, wait->event);
	return true;
}

/* Ends the session's wait, or this part of it. */
static void
stop(const Wait *wait)
{
	/* Keep the indicator: an interrupt that is still to come may be the timeout's. */
	disable_timeout(LOCK_TIMEOUT, true);
	deadlock_across_leave(wait->entry);
}

/* Stops and counts a wait, as a callback at error and exit. */
static void
break_off_wait(int code, Datum arg)
{
	Wait *wait = (Wait *) DatumGetPointer(arg);

	stop(wait);
	wait_counted_break(code, PointerGetDatum(&wait->counted));
}

/*
 * Waits, as part of a wait, until a look shows that it is over.
 *
 * Returns false if what is awaited will not come, or if the timeout has passed.
 */
bool
wait_until(Wait *wait, WaitLook look, void *arg)
{
	WaitAnswer answer;

	PG_ENSURE_ERROR_CLEANUP(break_off_wait, PointerGetDatum(wait));
	{
		/* Setting the timeout clears the indicator that it has ended the part before. */
		interrupt_check(wait_context, wait);
		if (LockTimeout > 0 && wait->event == ZKLOCK_WAIT_LOCK)
		{
			int64 left = LockTimeout - zklock_ms_since(wait->counted.start_us);

			enable_timeout_after(LOCK_TIMEOUT, (int) Max(left, 1));
		}
		do
		{
			ResetLatch(MyLatch);
			answer = look(wait, arg);
		} while (answer != WAIT_OVER && answer != WAIT_REFUSED && sleep_until_notified(wait, answer));
	}
	PG_END_ENSURE_ERROR_CLEANUP(break_off_wait, PointerGetDatum(wait));
	stop(wait);
	return answer == WAIT_OVER;
}

/* ------------------------------------------------------------------------
 * Entries
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if a failure only means that the request was not granted.  A request for a
 * lock that did not look counts as refused even if ZooKeeper could not be reached: it is made
 * again, by a call that can wait until ZooKeeper is back.
 */
static bool
is_mere_refusal(const Hold *hold, Failure failure)
{
	if (hold->kind == REQUEST_ELEMENT)
		return failure == FAILURE_BUSY || failure == FAILURE_NO_PATH;
	return failure == FAILURE_BUSY || (failure == FAILURE_UNREACHABLE &&
									   entry_at(hold->entry)->request.manner == ASK_AND_GRAB);
}

/*
 * Looks whether the worker has decided about a request.  A refusal is an error, unless the
 * request does not wait.
 *
 * A lock that was granted under a lease that has lapsed may be gone by now; one that was
 * granted for a time that is over is lost.  The lease is read before the entry: a lease that
 * was seen before the lock is the lock's own.  A turn that was lost is as good as one that is
 * held, as it brings only order.
 */
WaitAnswer
wait_look_at_hold(const Wait *wait, void *arg)
{
	const Hold *hold = arg;
	bool		lease_holds = lease_state() == LEASE_HOLDS;
	EntryStatus status;
	bool		lost = hold_entry(hold, &status) == ENTRY_NONE;
	bool		turn = hold->kind == REQUEST_TURN;

	ZKLOCK_SLOW("slow-backends", 120, 25);
	if (ZKLOCK_FAULT("fail-asked"))
		elog(ERROR, "fault: fail-asked");
	if (status.state == ENTRY_GRANTED && !turn && ZKLOCK_FAULT("fail-granted"))
		elog(ERROR, "fault: fail-granted");
	if (lost && !turn)
		hold_report_lost(hold);
	if (lost)
		return WAIT_OVER;
	if (status.state == ENTRY_GRANTED)
		return lease_holds ? WAIT_OVER : WAIT_POLLED;
	if (status.state != ENTRY_FAILED)
		return WAIT_NOTIFIED;
	if (!is_mere_refusal(hold, status.failure))
		request_report_failure(hold->entry, wait->path, status.failure, status.error_code);
	return WAIT_REFUSED;
}

/*
 * Waits, as part of a wait, until the worker has decided about a request.
 *
 * Returns true if it is granted.  Returns false, and has ended the wait, if the timeout has
 * passed or if a call that does not wait found the lock taken.  Anything else is an error.
 */
bool
wait_for_hold(Wait *wait, Hold *hold)
{
	bool granted;

	wait->entry = hold->entry;
	granted = wait_until(wait, wait_look_at_hold, hold);

	/* A request that did not look is made again, alone, and that one is counted. */
	if (!granted && entry_at(hold->entry)->request.manner != ASK_AND_GRAB)
		wait_refused(wait);
	return granted;
}

/* ------------------------------------------------------------------------
 * The end
 * ------------------------------------------------------------------------
 */

/*
 * Ends a wait that got all it waited for.  A token's low bits count the grants of its node:
 * the first session behind a node got the lock from ZooKeeper, later ones from the one
 * before.
 */
void
wait_granted(Wait *wait)
{
	bool handed_over =
		wait->entry != ENTRY_NONE && (entry_status(wait->entry).token & MAX_GRANTS) > 1;

	wait_counted_end(&wait->counted, handed_over ? STATS_WAIT_HANDED_OVER : STATS_WAIT_GRANTED);
	wait_log_granted(wait);
}

/* Ends a wait that did not get what it waited for. */
void
wait_refused(Wait *wait)
{
	bool is_try = wait->timeout_ms == LOCK_NO_WAIT;

	wait_counted_end(&wait->counted, is_try ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	if (is_try && wait->entry != ENTRY_NONE)
		wait_log_refused(wait);
}

/* ------------------------------------------------------------------------
 * Statistics
 *
 * A call that takes time without a Wait is protected by
 * PG_ENSURE_ERROR_CLEANUP with wait_counted_break(), so that it is counted once.
 * ------------------------------------------------------------------------
 */

/* Counts the end of a wait, unless it has been counted.  Cannot fail. */
void
wait_counted_end(CountedWait *wait, StatsWaitEnd end)
{
	if (wait->kind != WAIT_UNCOUNTED)
		stats_waited(wait->kind, end, zklock_now_us() - wait->start_us);
	wait->kind = WAIT_UNCOUNTED;
}

/* Returns how a wait ends, by the SQLSTATE of the error that ends it. */
static StatsWaitEnd
how_failed(int sqlerrcode)
{
	switch (sqlerrcode)
	{
		case ERRCODE_LOCK_NOT_AVAILABLE:
			return STATS_WAIT_TIMEOUT;
		case ERRCODE_QUERY_CANCELED:
			return STATS_WAIT_CANCELLED;
		case ERRCODE_T_R_DEADLOCK_DETECTED:
			return STATS_WAIT_DEADLOCK;
		default:
			return STATS_WAIT_FAILED;
	}
}

/*
 * Counts a wait that an error or the end of the session ends, as a callback at error and
 * exit.
 */
void
wait_counted_break(int code, Datum arg)
{
	wait_counted_end((CountedWait *) DatumGetPointer(arg),
					 proc_exit_inprogress ? STATS_WAIT_CANCELLED : how_failed(geterrcode()));
}
