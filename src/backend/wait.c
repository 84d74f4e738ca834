/*
 * wait.c
 *		Waiting for the worker's answer, and what is told of that.
 *
 * The session sleeps on its latch until the worker has decided.  A wait may be
 * for several entries, one after the other, as for a semaphore's permit.
 *
 * However a wait ends, it is counted once: granted, refused, or with an error.
 * If the session is terminated no error is caught, and its exit counts the wait.
 *
 * Runs in: backends.  shared/entry.h says how entries are read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/deadlock.h"
#include "backend/display.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "compat.h"
#include "fault.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "shared/worker_process.h"
#include "storage/ipc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* How long a call waits for a worker to appear. */
#define WORKER_ABSENT_MS 10000
#define WORKER_LATE_MS 3000 /* by then one should have been started */

/* How long a session sleeps that waits for something of which nobody tells it. */
#define LOOK_MS 1000

/*
 * A session looks for a deadlock whenever it has waited for as long again as before,
 * but at least each time that so many deadlock_timeouts have passed.
 */
#define MAX_LOOK_PAUSE 8

/* A latch cannot wait longer at once: 24 days. */
#define MAX_SLEEP_MS (INT64CONST(24) * 24 * 60 * 60 * 1000)

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
	wait->start_us = zklock_now_us();
	wait->absent_since = -1;
	wait->look_at = DeadlockTimeout;
	wait->told_outage = false;
	wait_log_begin(&wait->log, path, what, wait->start_us);
}

/* Ends a wait that was successful. */
void
wait_end(Wait *wait)
{
	wait_log_granted(&wait->log);
}

/* What is known of an entry that waits. */
typedef struct Answer
{
	bool		   lease_holds;
	ContenderState state;
	Failure		   failure;
	int			   code; /* ZooKeeper's, for FAILURE_REFUSED */
} Answer;

/*
 * What was granted under a lease that has lapsed may be gone by now; what was
 * granted for a time that is over is lost.  Read in this order: a lease that was
 * seen before is the lock's own.
 */
static Answer
look(int index)
{
	bool		lease_holds = lease_state() == LEASE_HOLDS;
	EntryStatus status = entry_status(index);
	bool over = status.state == CONTENDER_GRANTED && entry_is_overrun(status.expires_us);

	return (Answer){.lease_holds = lease_holds,
					.state = over ? CONTENDER_LOST : status.state,
					.failure = status.failure,
					.code = status.error_code};
}

/*
 * Is it no more than that a request which does not wait was not granted?  An
 * eager one is made again then, by a call that can wait until ZooKeeper is back.
 */
static bool
is_mere_refusal(int index, Failure failure)
{
	return failure == FAILURE_BUSY ||
		   (failure == FAILURE_UNREACHABLE && entry_at(index)->request.eager);
}

/*
 * Has the worker decided?  Then *granted tells; a refusal is an error, but for
 * that of a request that does not wait.
 *
 * A turn that was lost is as good as one that is held: it brings order only.
 */
static bool
is_decided(const Wait *wait, int index, const Answer *answer, bool *granted)
{
	bool turn = entry_at(index)->request.kind == CONTENDER_TURN;

	if (answer->state == CONTENDER_GRANTED && !turn && ZKLOCK_FAULT("fail-granted"))
		elog(ERROR, "fault: fail-granted");
	*granted = (answer->state == CONTENDER_GRANTED && answer->lease_holds) ||
			   (answer->state == CONTENDER_LOST && turn);
	if (*granted)
		return true;
	if (answer->state == CONTENDER_LOST)
		request_report_lost(index, wait->path, LOCK_SCOPE_TRANSACTION);
	if (answer->state != CONTENDER_FAILED)
		return false;
	if (!is_mere_refusal(index, answer->failure))
		request_report_failure(index, wait->path, answer->failure, answer->code);
	return true;
}

/*
 * Has the timeout passed?  If there was nobody to answer, that is an error.  A
 * call that does not wait is answered by the worker, if it can.
 */
static bool
is_out_of_time(const Wait *wait, bool lease_holds, int64 waited)
{
	if (wait->timeout_ms == LOCK_NO_WAIT && !lease_holds)
		request_report_unreachable(wait->path);
	if (wait->timeout_ms <= 0 || waited < wait->timeout_ms)
		return false;
	if (!zklock_connected())
		request_report_unreachable(wait->path);
	return true;
}

/* Raises an error if there has been no worker for too long. */
static void
watch_worker(Wait *wait, int64 waited)
{
	if (zklock_worker_pid() != 0)
		wait->absent_since = -1;
	else if (wait->absent_since < 0)
		wait->absent_since = waited;
	else if (waited - wait->absent_since >= WORKER_ABSENT_MS)
		request_report_unreachable(wait->path);
	else if (waited - wait->absent_since >= WORKER_LATE_MS)
		zklock_want_worker();
}

/* Tells the client, once, that nothing has been granted to anybody for deadlock_timeout. */
static void
tell_outage(Wait *wait, int64 waited)
{
	SessionInfo session;

	if (wait->told_outage || waited < DeadlockTimeout || lease_state() == LEASE_HOLDS)
		return;
	session_info_read(&session);
	if (session.obstacle[0] == '\0' ||
		!TimestampDifferenceExceeds(session.obstacle_since, GetCurrentTimestamp(), DeadlockTimeout))
		return;
	ereport(NOTICE, (errmsg("still waiting for %s on ZooKeeper path \"%s\"", wait->what,
							display_utf8(wait->path)),
					 errdetail("%s It has been so since %s.", display_utf8(session.obstacle),
							   timestamptz_to_str(session.obstacle_since)),
					 errhint("The call goes on waiting. See view zk_session, and the server log.")));
	wait->told_outage = true;
}

/*
 * How long the session may sleep before it has to look again, ms; "index" is as
 * for wait_turn().
 */
static int64
sleep_time(const Wait *wait, int index, WaitLook look, int64 waited)
{
	int64 sleep = MAX_SLEEP_MS;

	if (wait->timeout_ms > 0)
		sleep = Min(sleep, wait->timeout_ms - waited);
	if (index >= 0 && wait->timeout_ms != LOCK_NO_WAIT)
		sleep = Min(sleep, wait->look_at - waited);
	if (deadlock_across_next_wakeup() >= 0 && wait->log.state != WAIT_LOG_ASKED)
		sleep = Min(sleep, Max(deadlock_across_next_wakeup() - zklock_now_ms(), 0));
	if (log_lock_waits && wait->log.state == WAIT_LOG_NOTHING)
		sleep = Min(sleep, DeadlockTimeout - waited);

	if (!wait->told_outage && lease_state() != LEASE_HOLDS)
		sleep = Min(sleep, Max(DeadlockTimeout, 1));

	/* Nobody tells that the lease has lapsed, or that no worker comes. */
	if (look == WAIT_LOOK_SOON || wait->timeout_ms == LOCK_NO_WAIT || wait->absent_since >= 0)
		sleep = Min(sleep, LOOK_MS);
	return sleep;
}

/*
 * Looks for a deadlock if that is due: on this server, which raises an error if there
 * is one, and across servers.
 */
static void
look_for_deadlock(Wait *wait, int index, int64 waited)
{
	int64 until = wait->timeout_ms > 0 ? wait->start_us / 1000 + wait->timeout_ms : PG_INT64_MAX;

	if (index < 0 || wait->timeout_ms == LOCK_NO_WAIT)
		return;
	if (waited >= wait->look_at)
	{
		deadlock_check(index);
		wait->look_at =
			waited + Max(Min(waited, MAX_LOOK_PAUSE * (int64) DeadlockTimeout), DeadlockTimeout);
	}

	/* The log's question and the search take turns. */
	if ((waited >= DeadlockTimeout || deadlock_across_concerns(index)) && wait->log.state != WAIT_LOG_ASKED)
		deadlock_across_attend(index, until);
}

/*
 * One turn of a wait for what is not there yet: sleeps until the latch is set, or
 * something else has to be looked at.
 *
 *	index	the entry that waits, or negative if there is none
 *
 * Returns false if the timeout has passed.  Raises an error if the wait is
 * interrupted, or if there was nobody to answer.
 */
bool
wait_turn(Wait *wait, int index, bool lease_holds, WaitLook look)
{
	int64 waited = zklock_ms_since(wait->start_us);

	check_for_interrupts(wait);
	if (is_out_of_time(wait, lease_holds, waited))
		return false;
	watch_worker(wait, waited);
	tell_outage(wait, waited);
	if (log_lock_waits && waited >= DeadlockTimeout)
		wait_log_attend(&wait->log, index);
	look_for_deadlock(wait, index, waited);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 (long) sleep_time(wait, index, look, waited),
					 zklock_wait_event(ZKLOCK_WAIT_LOCK));
	return true;
}

/* The wait that is under way, or NULL. */
static Wait *current = NULL;

/* Counts a wait that is over. */
static void
count_wait(const Wait *wait, StatsWaitEnd end)
{
	current = NULL;
	stats_waited(wait->counted_as, end, zklock_now_us() - wait->start_us);
}

/* The session ends.  If it waits, that is over. */
void
wait_end_at_exit(void)
{
	deadlock_across_leave();
	if (current == NULL)
		return;
	wait_log_give_up(&current->log);
	count_wait(current, STATS_WAIT_CANCELLED);
}

/* How a wait was granted: the first to be served behind a node got it from ZooKeeper. */
static StatsWaitEnd
how_granted(int index)
{
	return (entry_status(index).token & MAX_GRANTS) > 1 ? STATS_WAIT_HANDED_OVER : STATS_WAIT_GRANTED;
}

/* How a wait ends, by the SQLSTATE of the error that ends it. */
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

/* Waits until the worker has decided, as wait_for_entry() says. */
static bool
wait_for_decision(Wait *wait, int index)
{
	if (ZKLOCK_FAULT("fail-asked"))
		elog(ERROR, "fault: fail-asked");
	for (;;)
	{
		Answer answer;
		bool   granted;

		ZKLOCK_SLOW("slow-backends", 120, 25);
		ResetLatch(MyLatch);
		answer = look(index);
		if (is_decided(wait, index, &answer, &granted))
			return granted;
		if (!wait_turn(wait, index, answer.lease_holds,
					   answer.state == CONTENDER_GRANTED ? WAIT_LOOK_SOON : WAIT_TOLD))
			return false;
	}
}

/* Waits until the worker is done, as wait_for_handovers() says. */
static bool
wait_until_settled(Wait *wait, const HandoverList *list)
{
	int done = 0;

	for (;;)
	{
		ResetLatch(MyLatch);
		while (done < list->n &&
			   entry_is_settled(list->handovers[done].entry, list->handovers[done].generation))
			done++;
		if (done == list->n)
			return true;
		if (!wait_turn(wait, ENTRY_NONE, true, WAIT_LOOK_SOON))
			return false;
	}
}

/*
 * Waits, as part of a wait, until the worker has decided about an entry.
 *
 * Returns true if it is granted, false if the timeout has passed or if a call
 * that does not wait found it taken; then the caller releases the entry.
 * Anything else is an error.
 */
bool
wait_for_entry(Wait *wait, int index)
{
	volatile bool granted = false;

	current = wait;
	PG_TRY();
	{
		granted = wait_for_decision(wait, index);
	}
	PG_CATCH();
	{
		deadlock_across_leave();
		wait_log_give_up(&wait->log);
		count_wait(wait, how_failed(geterrcode()));
		PG_RE_THROW();
	}
	PG_END_TRY();
	deadlock_across_leave();
	if (granted && entry_at(index)->request.kind != CONTENDER_TURN)
	{
		count_wait(wait, how_granted(index));
		return true;
	}

	/*
	 * It is over; or it goes on, for the permit or in turn for what could not be
	 * had at once, and may fail before that is asked for.
	 */
	wait_log_give_up(&wait->log);
	current = NULL;
	if (granted || entry_at(index)->request.eager)
		return granted;
	count_wait(wait, wait->timeout_ms == LOCK_NO_WAIT ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	if (wait->timeout_ms == LOCK_NO_WAIT)
		wait_log_refused(&wait->log, index);
	return false;
}

/*
 * Waits, as part of a wait, until the worker is done with all that was given up,
 * be it when ZooKeeper is back.
 *
 * Returns false if the timeout has passed.
 */
bool
wait_for_handovers(Wait *wait, const HandoverList *list)
{
	volatile bool done = false;

	current = wait;
	PG_TRY();
	{
		done = wait_until_settled(wait, list);
	}
	PG_CATCH();
	{
		wait_log_give_up(&wait->log);
		count_wait(wait, how_failed(geterrcode()));
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (done)
		current = NULL; /* the wait goes on, for an entry */
	else
		count_wait(wait, STATS_WAIT_TIMEOUT);
	return done;
}

/* ------------------------------------------------------------------------
 * Waits that ask for no entry
 *
 * Between begin and end they are protected by PG_ENSURE_ERROR_CLEANUP with
 * wait_counted_break(), so that each is counted once.
 * ------------------------------------------------------------------------
 */

/* A call begins to wait. */
void
wait_counted_begin(CountedWait *wait, StatsKind kind)
{
	*wait = (CountedWait){.kind = kind, .start_us = zklock_now_us()};
}

/* It has ended without an error.  Cannot fail. */
void
wait_counted_end(const CountedWait *wait, StatsWaitEnd end)
{
	stats_waited(wait->kind, end, zklock_now_us() - wait->start_us);
}

/* As a callback at error and exit: an error ends it, or the end of the session. */
void
wait_counted_break(int code, Datum arg)
{
	wait_counted_end((const CountedWait *) DatumGetPointer(arg),
					 proc_exit_inprogress ? STATS_WAIT_CANCELLED : how_failed(geterrcode()));
}
