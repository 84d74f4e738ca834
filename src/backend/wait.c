/*
 * wait.c
 *		Waiting for the worker's answer, or for anything else that ends a call.
 *
 * wait_until() is the one wait of a session.  It sleeps on the session's latch until the
 * caller's look finds what is awaited: that the worker has decided about an entry, or is done with
 * entries that were given up, that this server leads, or that it is the session's turn at a queue.
 * A wait begins when that has been asked for.  One wait may be for several of these, one after the
 * other; its timeout and PostgreSQL's lock_timeout are for all of them.
 *
 * However a wait ends, it is counted once: by wait_end(), or with the error that ends it.  It is
 * counted before it is logged, since a message may raise an error: errfinish() looks at interrupts.
 *
 * A session waits for an answer of ZooKeeper in call.c, which is below this file, since the log and
 * the search for deadlocks make calls.  If that is part of a longer wait, it has the errors and the
 * NOTICE of a wait from wait_attend().
 *
 * Runs in: backends.  Entries are read and written under their spinlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/view.h"
#include "backend/wait.h"
#include "deadlock/deadlock.h"
#include "fault.h"
#include "shared/deadlock_search.h"
#include "storage/ipc.h"
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

/* The log: number of contenders whose data are read, and of names in each list */
#define MAX_NAMED 20

/* The log: how long a session waits for ZooKeeper's answer, ms */
#define PATIENCE_MS 10000

const int64 wait_bounds_us[] = {500,	  1000,		 2000,		5000,	   10000,
								20000,	  50000,	 100000,	200000,	   500000,
								1000000,  2000000,	 5000000,	10000000,  30000000,
								60000000, 300000000, 600000000, 3600000000};

/* ------------------------------------------------------------------------
 * The log
 *
 * With log_lock_waits, a wait that has lasted for deadlock_timeout is logged as PostgreSQL
 * does for its own locks: who holds and who waits.  Shared memory has the sessions of this
 * server.  ZooKeeper knows the other clients, so the session asks it, unless the wait ends
 * meanwhile.  While ZooKeeper cannot be reached, the log says so, and names the sessions in
 * shared memory.
 *
 * A session that waits for a permit of a semaphore has to wait for its turn first.  In either
 * case the log names the holders of permits, then the sessions that wait for a permit, then
 * those that wait for the turn.
 * ------------------------------------------------------------------------
 */

/* Contenders by name, with commas between them */
typedef struct Names
{
	StringInfoData text;
	int			   n; /* number of contenders, named or not */
} Names;

static void
add_name(Names *names, const char *name)
{
	if (names->text.data == NULL)
		initStringInfo(&names->text);
	if (names->n++ < MAX_NAMED)
		appendStringInfo(&names->text, "%s%s", names->n > 1 ? ", " : "", name);
}

static void
add_session(Names *holders, Names *waiters, const EntryCopy *entry)
{
	EntryState state = entry->status.state;

	if (state == ENTRY_GRANTED || state == ENTRY_QUEUED || state == ENTRY_REQUESTED)
		add_name(state == ENTRY_GRANTED ? holders : waiters,
				 entry->status.reserved ? "a reservation" : psprintf("%d", entry->request.pid));
}

/*
 * Adds the contenders on a path: those that ZooKeeper lists, in the order of the queue, then
 * the other sessions of this server.
 *
 *	call	to ask ZooKeeper; or NULL
 */
static void
add_contenders(Names *holders, Names *waiters, const char *path, const Recipe *recipe, Caller *call)
{
	Contenders listed = {0};
	LockView   ours;
	bool	  *added;

	if (call && zklock_connected())
		listed = contenders_read(path, recipe, call, MAX_NAMED, CALL_AFTER_SYNC);
	ours = lock_view_take(path, true);
	added = palloc0(Max(ours.n, 1) * sizeof(bool));
	for (int i = 0; i < listed.n; i++)
	{
		bool is_ours = false;

		for (int k = 0; k < ours.n; k++)
		{
			if (strcmp(ours.entries[k]->node.name, listed.nodes[i].name) != 0)
				continue;
			add_session(holders, waiters, ours.entries[k]);
			is_ours = added[k] = true;
		}
		if (!is_ours)
		{
			/* A session of zklock is named as PostgreSQL would name it. */
			static const char process[] = "process ";
			const char		 *name = contenders_describe(&listed.nodes[i]);

			if (strncmp(name, process, strlen(process)) == 0)
				name += strlen(process);
			add_name(listed.nodes[i].holds ? holders : waiters, name);
		}
	}
	for (int k = 0; k < ours.n; k++)
	{
		if (!added[k])
			add_session(holders, waiters, ours.entries[k]);
	}
}

/*
 * Returns the DETAIL of a message: the holders and waiters, as far as they are known, and that
 * ZooKeeper cannot be reached, if that is so; or NULL.
 *
 *	call	to ask ZooKeeper; or NULL, to use only shared memory
 */
static const char *
describe_parties(const Wait *wait, Caller *call)
{
	Names		holders = {0};
	Names		waiters = {0};
	Names		turn = {0}; /* its holder also has a node for a permit */
	const char *parties = NULL;
	const char *outage;

	if (wait->entry != ENTRY_NONE && entry_at(wait->entry)->request.kind == REQUEST_LOCK)
		add_contenders(&holders, &waiters, wait->path, &lock_recipe, call);
	else if (wait->entry != ENTRY_NONE)
	{
		add_contenders(&holders, &waiters, psprintf("%s" PERMIT_LEASES, wait->path),
					   &permit_recipe, call);
		add_contenders(&turn, &waiters, psprintf("%s" PERMIT_TURNS, wait->path), &lock_recipe, call);
	}
	if (holders.n > MAX_NAMED)
		appendStringInfo(&holders.text, " and %d more", holders.n - MAX_NAMED);
	if (waiters.n > MAX_NAMED)
		appendStringInfo(&waiters.text, " and %d more", waiters.n - MAX_NAMED);
	if (holders.n > 0)
		parties = psprintf(holders.n == 1 ? "Process holding the lock: %s. Wait queue: %s."
										  : "Processes holding the lock: %s. Wait queue: %s.",
						   holders.text.data, waiters.n > 0 ? waiters.text.data : "");
	outage = display_outage(parties ? " " : "", ".");
	return parties ? psprintf("%s%s", parties, outage) : outage[0] != '\0' ? outage : NULL;
}

/* Logs a message; "what" is what the process does. */
static void
log_wait(const Wait *wait, const char *what, const char *detail)
{
	int64 us = zklock_now_us() - wait->start_us;

	ereport(LOG,
			(errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld.%03d ms", MyProcPid, what,
					wait->what, display_path(wait->path), (long) (us / 1000), (int) (us % 1000)),
			 detail ? errdetail_log("%s", detail) : 0));
}

/* Returns true if the worker has decided about the entry that the session waits for. */
static bool
is_decided(const Wait *wait)
{
	EntryState state;

	if (wait->entry == ENTRY_NONE)
		return false;
	state = entry_status(wait->entry).state;
	return state != ENTRY_REQUESTED && state != ENTRY_QUEUED;
}

static bool
is_called_away_from_log(void *arg)
{
	return InterruptPending || !zklock_connected() || is_decided(arg);
}

/* ------------------------------------------------------------------------
 * The wait
 * ------------------------------------------------------------------------
 */

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
			   display_utf8(wait->path), display_outage(": ", ""));
}

/*
 * Begins a wait.  A call that asks in another way than by wait_until() is enclosed in
 * PG_ENSURE_ERROR_CLEANUP with wait_break_off(), so that it is counted once.
 */
void
wait_begin(Wait *wait, const char *path, const char *what, StatsKind kind, int64 timeout_ms)
{
	*wait = (Wait){.path = path,
				   .what = what,
				   .timeout_ms = timeout_ms,
				   .start_us = zklock_now_us(),
				   .kind = kind,
				   .event = ZKLOCK_WAIT_LOCK,
				   .entry = ENTRY_NONE,
				   .deadlock_check_at = DeadlockTimeout};
}

/*
 * Attends to outages while the session waits.  Raises an error if there has been no worker for
 * too long, and a NOTICE, once, if nothing has been granted to anybody for deadlock_timeout.  A
 * call that does not wait for others, or lacks a worker, ends soon, and has no NOTICE.
 *
 * Returns when it is to be called again, ms.
 */
int64
wait_attend(void *arg)
{
	Wait			*wait = arg;
	SessionInfo		 session;
	int64			 notice_at;
	InterruptContext doing;

	if (request_lacks_worker(&wait->absent_since))
		request_report_unreachable(wait->path);
	if (wait->outage_reported || wait->timeout_ms == LOCK_NO_WAIT || wait->absent_since != 0 ||
		zklock_connected())
		return NEVER;
	session_info_read(&session);

	/* The worker may not have stored the obstacle yet. */
	if (session.obstacle[0] == '\0')
		session.obstacle_since = zklock_now_us();
	notice_at = Max((session.obstacle_since - wait->start_us) / 1000, 0) + DeadlockTimeout;
	if (zklock_ms_since(wait->start_us) < notice_at)
		return wait->start_us / 1000 + notice_at + 1;

	/* The message may wait for a client that does not read it. */
	interrupt_context_begin(&doing, wait_context, wait);
	ereport(NOTICE, (errmsg("still waiting for %s on ZooKeeper path \"%s\"", wait->what,
							display_utf8(wait->path)),
					 errdetail("%s It has been so since %s.", display_utf8(session.obstacle),
							   timestamptz_to_str(GetCurrentTimestamp() -
												  (zklock_now_us() - session.obstacle_since))),
					 errhint("The call goes on waiting. See view zk_session, and the server log.")));
	error_context_stack = doing.lost.previous;
	wait->outage_reported = true;
	return NEVER;
}

/* Ends the session's wait, or this part of it. */
static void
stop_wait(const Wait *wait)
{
	/* Keep the indicator: an interrupt that is still to come may be the timeout's. */
	disable_timeout(LOCK_TIMEOUT, true);
	if (wait->searched || search_is_ours(wait->entry))
		deadlock_across_leave(wait->entry);
}

/* Counts the end of a wait, unless it has been counted.  Cannot fail. */
static void
count_wait(Wait *wait, StatsWaitEnd end)
{
	int64 us = zklock_now_us() - wait->start_us;
	int	  bucket = 0;

	if (wait->kind == WAIT_UNCOUNTED)
		return;
	while (bucket < STATS_BUCKETS - 1 && us >= wait_bounds_us[bucket])
		bucket++;
	pg_atomic_fetch_add_u64(&stats_shared->of_kind[wait->kind].waits[end][bucket], 1);
	stats_add(wait->kind, STATS_WAIT_US, us);
	wait->kind = WAIT_UNCOUNTED;
}

/*
 * Stops and counts a wait that an error or the end of the session ends, as a callback at error
 * and exit.
 */
void
wait_break_off(int code, Datum arg)
{
	Wait		*wait = (Wait *) DatumGetPointer(arg);
	StatsWaitEnd end = STATS_WAIT_FAILED;

	stop_wait(wait);
	if (proc_exit_inprogress || geterrcode() == ERRCODE_QUERY_CANCELED)
		end = STATS_WAIT_CANCELLED;
	else if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		end = STATS_WAIT_TIMEOUT;
	else if (geterrcode() == ERRCODE_T_R_DEADLOCK_DETECTED)
		end = STATS_WAIT_DEADLOCK;
	count_wait(wait, end);
}

/*
 * Waits, as part of a wait, until a look shows that it is over.
 *
 * Returns false if what is awaited will not come, or if the timeout has passed.  Raises an error
 * if the wait is interrupted, if it is part of a deadlock, or if nobody can answer.
 */
bool
wait_until(Wait *wait, WaitLook look, void *arg)
{
	bool	   searches = wait->entry != ENTRY_NONE && wait->timeout_ms != LOCK_NO_WAIT;
	WaitAnswer answer;

	PG_ENSURE_ERROR_CLEANUP(wait_break_off, PointerGetDatum(wait));
	{
		int64 until = wait->timeout_ms > 0 ? wait->start_us / 1000 + wait->timeout_ms : NEVER;

		/* Setting the timeout clears the indicator that it has ended the part before. */
		interrupt_check(wait_context, wait);
		if (LockTimeout > 0 && wait->event == ZKLOCK_WAIT_LOCK)
		{
			int64 left = LockTimeout - zklock_ms_since(wait->start_us);

			enable_timeout_after(LOCK_TIMEOUT, (int) Max(left, 1));
		}
		for (;;)
		{
			int64			 waited;
			int64			 attend_at;
			int64			 left;
			int64			 sleep = MAX_SLEEP_MS;
			InterruptContext doing;
			MemoryContext	 context;
			MemoryContext	 old;

			/* The latch that a change sets after this look is set when the session sleeps. */
			ResetLatch(MyLatch);
			answer = look(wait, arg);
			if (answer == WAIT_OVER || answer == WAIT_REFUSED)
				break;

			/* Interrupts: cancellation, lock_timeout, a loss that ends the session */
			interrupt_check(wait_context, wait);

			/*
			 * The timeout.  A call that does not wait gets its answer from the worker, if the worker
			 * can give one.
			 */
			waited = zklock_ms_since(wait->start_us);
			if (wait->timeout_ms == LOCK_NO_WAIT && lease_state() != LEASE_HOLDS)
				request_report_unreachable(wait->path);
			if (wait->timeout_ms > 0 && waited >= wait->timeout_ms)
			{
				if (!zklock_connected())
					request_report_unreachable(wait->path);
				break;
			}

			/* The worker, and the connection to ZooKeeper */
			attend_at = wait_attend(wait);

			/*
			 * Deadlocks, on this server, which raises an error if there is one, and across
			 * servers.  A search takes time, and a message may wait for a client that does not read
			 * it: each looks at interrupts.
			 */
			waited = zklock_ms_since(wait->start_us);
			interrupt_context_begin(&doing, wait_context, wait);
			context = AllocSetContextCreate(CurrentMemoryContext, "zklock wait", ALLOCSET_DEFAULT_SIZES);
			old = MemoryContextSwitchTo(context);
			if (searches && waited >= wait->deadlock_check_at)
			{
				deadlock_check(wait->entry);
				wait->deadlock_check_at =
					waited +
					Max(Min(waited, MAX_LOOK_PAUSE * (int64) DeadlockTimeout), DeadlockTimeout);
			}
			if (searches)
				sleep = Min(sleep, wait->deadlock_check_at - waited);

			/* Across servers, if another session has not passed the search on to this one earlier */
			if (searches && (waited >= DeadlockTimeout || search_is_ours(wait->entry)))
			{
				wait->searched = true;
				left = zklock_ms_until(deadlock_across_attend(wait->entry, until));
				sleep = Min(sleep, left);
			}

			/*
			 * log_lock_waits.  If the wait ends while ZooKeeper is asked for the contenders, only its
			 * end is logged; after an interrupt that does not end it, they are asked for again.  A
			 * wait for an element is never logged.
			 */
			if (log_lock_waits && !wait->is_logged && wait->event == ZKLOCK_WAIT_LOCK)
			{
				if (waited >= DeadlockTimeout)
				{
					Caller		call = {.until = Min(until, zklock_now_ms() + PATIENCE_MS),
										.is_called_away = is_called_away_from_log,
										.away_arg = wait};
					const char *parties = describe_parties(wait, &call);

					wait->is_logged = !InterruptPending;
					if (wait->is_logged && !is_decided(wait))
						log_wait(wait, "still waiting for", parties);

					/* The latch may have been set for what the session waits for. */
					SetLatch(MyLatch);
				}
				sleep = Min(sleep, Max(DeadlockTimeout - waited, 0));
			}
			MemoryContextSwitchTo(old);
			MemoryContextDelete(context);
			error_context_stack = doing.lost.previous;

			/*
			 * Sleep until the latch is set, or until one of these is due again.  Nothing sets the
			 * latch when the lease lapses, or if no worker comes.
			 */
			left = zklock_ms_until(Min(until, attend_at));
			sleep = Min(sleep, left);
			if (answer == WAIT_POLLED || wait->timeout_ms == LOCK_NO_WAIT || wait->absent_since != 0)
				sleep = Min(sleep, LOOK_MS);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 (long) sleep, zklock_wait_event(wait->event));
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_break_off, PointerGetDatum(wait));
	stop_wait(wait);
	return answer == WAIT_OVER;
}

/*
 * Counts and logs the end of a wait that got all it waited for, or did not.  A token's low bits
 * count the grants of its node: the first session behind a node got the lock from ZooKeeper,
 * later ones from the one before.
 */
void
wait_end(Wait *wait, bool granted)
{
	bool is_try = wait->timeout_ms == LOCK_NO_WAIT;

	if (granted)
	{
		bool handed_over =
			wait->entry != ENTRY_NONE && (entry_status(wait->entry).token & MAX_GRANTS) > 1;

		count_wait(wait, handed_over ? STATS_WAIT_HANDED_OVER : STATS_WAIT_GRANTED);
		if (wait->is_logged)
			log_wait(wait, "acquired", NULL);
	}
	else
	{
		count_wait(wait, is_try ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
		if (is_try && wait->entry != ENTRY_NONE && compat_log_lock_failures())
			log_wait(wait, "could not obtain", describe_parties(wait, NULL));
	}
}

/* ------------------------------------------------------------------------
 * Waits for what was asked
 * ------------------------------------------------------------------------
 */

/*
 * Looks whether the worker has decided about a request.  A refusal is an error, unless it only
 * means that the request was not granted.
 *
 * A lock that was granted under a lease that has lapsed may be gone by now; one that was
 * granted for a time that is over is lost.  The lease is read before the entry: a lease that
 * was seen before the lock is the lock's own.  A turn that was lost is as good as one that is
 * held, as it brings only order.
 */
static WaitAnswer
look_at_hold(const Wait *wait, void *arg)
{
	const Hold *hold = arg;
	bool		lease_holds = lease_state() == LEASE_HOLDS;
	EntryStatus status;
	bool		lost = !hold_stands(hold, &status);
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

	/*
	 * A request for a lock that did not look counts as refused even if ZooKeeper could not be
	 * reached: it is made again, by a call that can wait until ZooKeeper is back.
	 */
	if (status.failure == FAILURE_BUSY ||
		(hold->kind == REQUEST_ELEMENT ? status.failure == FAILURE_NO_PATH
									   : status.failure == FAILURE_UNREACHABLE &&
											 entry_at(hold->entry)->request.manner == ASK_AND_GRAB))
		return WAIT_REFUSED;
	request_report_failure(hold->entry, wait->path, status.failure, status.error_code);
}

/*
 * Waits, as part of a wait, until the worker has decided about a request.  One that others may
 * keep waiting takes part in the search for deadlocks, and its holders are logged; an element that
 * somebody has is refused.
 */
bool
wait_for_hold(Wait *wait, Hold *hold)
{
	if (hold->kind != REQUEST_ELEMENT)
		wait->entry = hold->entry;
	return wait_until(wait, look_at_hold, hold);
}

/* What was given up or downgraded: an entry in that generation */
typedef struct GivenUp
{
	int	   entry;
	uint32 generation;
} GivenUp;

/*
 * Looks whether the worker is done with what was given up or downgraded.  A session that only waits
 * until others can have it does not wait for ZooKeeper to come back, nor for it to do what it
 * refuses.
 */
static WaitAnswer
look_at_release(const Wait *wait, void *arg)
{
	const GivenUp *given_up = arg;

	if (entry_is_settled(given_up->entry, given_up->generation))
		return WAIT_OVER;
	if (wait->event == ZKLOCK_WAIT_UNLOCK &&
		(!zklock_connected() || entry_status(given_up->entry).refused))
		return WAIT_REFUSED;
	return WAIT_POLLED;
}

/*
 * Waits until the worker is done with what was given up or downgraded, so that others can have
 * it.  A cancellation ends only the wait.
 *
 *	whole	the wait that this is a part of; or NULL, to wait for others alone
 *
 * Returns false if it is not done.
 */
bool
wait_for_release(Wait *whole, const char *path, int entry, uint32 generation)
{
	Wait wait;

	wait_begin(&wait, path, "a release", WAIT_UNCOUNTED, LOCK_WAIT_FOREVER);
	wait.event = ZKLOCK_WAIT_UNLOCK;
	return wait_until(whole ? whole : &wait, look_at_release, &(GivenUp){entry, generation});
}
