/*
 * call.c
 *		Calls to ZooKeeper, which the worker makes for this session.
 *
 * shared/call.c has the states of the slot through which a session asks.  Code that makes
 * calls is written as a sequence, in the backend, and relies on these rules:
 *
 *	- Reads are made again until they are answered.  A write is made once: if its
 *	  answer is lost, the outcome is CALL_UNKNOWN, and then it has been done or
 *	  never will be.  The caller reads what shows which, with CALL_AFTER_SYNC.
 *	- While something is in doubt the caller is CALL_PATIENT: only the answer ends
 *	  the wait, or an interrupt, for which the caller's error context says what is
 *	  not known.
 *	- An impatient call ends within ANSWER_MS with CALL_UNREACHABLE if ZooKeeper
 *	  does not answer, whatever the cause, unless a write has been sent.
 *	- What this session has given up counts as its own until the worker is done
 *	  with it: the next call waits for that.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/hold.h"
#include "compat.h"
#include "shared/common.h"
#include "storage/ipc.h"

#define ANSWER_MS 30000 /* how long an impatient call waits for anything */
#define LOOK_MS 1000	/* a worker that has gone sets no latch */

/* ------------------------------------------------------------------------
 * Batches and answers
 * ------------------------------------------------------------------------
 */

/*
 * Lays a batch out: the calls, and behind them what they point to.  Returns its length.
 *
 *	place	in shared memory; NULL to have the length alone
 */
static Size
lay_out_batch(char *place, const CallStep *steps, int n)
{
	Size at = n * sizeof(ZkCall);

	for (int i = 0; i < n; i++)
	{
		ZkCall		 call = steps[i].asked;
		const char **texts[] = {&call.path, &call.marker, &call.pin};

		for (size_t k = 0; k < lengthof(texts); k++)
		{
			Size size = *texts[k] ? strlen(*texts[k]) + 1 : 0;

			if (place && size > 0)
				*texts[k] = memcpy(place + at, *texts[k], size);
			at += size;
		}
		if (call.data && call.data_length == 0)
			call.data_length = strlen(call.data);
		if (call.data_length == 0)
			call.data = NULL;
		else if (place)
			call.data = memcpy(place + at, call.data, call.data_length);
		at += call.data_length;
		if (place)
			((ZkCall *) place)[i] = call;
	}
	return at;
}

/* Copies the worker's answer to a step: data, or names one after the other. */
static void
take_result(CallStep *step, const char *answer, int index)
{
	const CallResult *result = (const CallResult *) answer + index;
	char			 *copy = palloc(result->text_length + 1);

	memcpy(copy, answer + result->text, result->text_length);
	copy[result->text_length] = '\0';
	step->result = *result;
	step->read = result->text_length > 0 ? copy : NULL;
	step->children = palloc_extended((result->nchildren + 1) * sizeof(char *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < result->nchildren; i++)
	{
		step->children[i] = copy;
		copy += strlen(copy) + 1;
	}
}

/* ------------------------------------------------------------------------
 * Waiting
 * ------------------------------------------------------------------------
 */

static void
drop_at_exit(int code, Datum arg)
{
	call_slot_give_up(call_slot_own());
}

/*
 * Returns true if this process's slot is free.  Else it gives the slot up: an earlier call
 * may still be under way.
 */
static bool
is_usable(CallSlot *slot)
{
	static bool started = false;

	CallState state = call_slot_state(slot);

	if (!started)
		on_shmem_exit(drop_at_exit, 0);
	started = true;
	if (state == CALL_FREE)
		return true;
	call_slot_give_up(slot);
	return false;
}

/*
 * Waits until the slot is in a state, or until a time, ms; -1: for ever.  Returns true if it
 * is.  A wait that is not for ever ends when there has been no worker for too long.
 */
static bool
wait_for(CallSlot *slot, CallState state, const Caller *caller, int64 until)
{
	int64 absent_since = 0;

	for (;;)
	{
		int64 timeout;

		ResetLatch(MyLatch);
		if (call_slot_state(slot) == state)
			return true;
		timeout = until < 0 ? LOOK_MS : Min(zklock_ms_until(until), LOOK_MS);
		if (timeout == 0 || (caller->is_called_away && caller->is_called_away(caller->away_arg)) ||
			(request_lacks_worker(&absent_since) && until >= 0))
			return false;
		if (!caller->is_called_away)
			CHECK_FOR_INTERRUPTS();
		if (caller->attend)
		{
			int64 left = zklock_ms_until(caller->attend(caller->attend_arg));

			timeout = Min(timeout, left);
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, (long) timeout,
						 zklock_wait_event(caller->is_called_away ? ZKLOCK_WAIT_LOCK : ZKLOCK_WAIT_CALL));
	}
}

/* Asks, and waits for the answer, but not for too long. */
static void
ask_and_wait(const Caller *caller, const CallStep *steps, int n, CallSight sight)
{
	CallSlot *slot = call_slot_own();
	Size	  length = lay_out_batch(NULL, steps, n);
	int64	  until = caller->patience == CALL_PATIENT ? -1 : zklock_now_ms() + ANSWER_MS;

	Assert(n > 0 && n <= CALL_MAX_OPERATIONS);
	if (length > CALL_MAX_BATCH)
		elog(ERROR, "batch of calls to the zklock worker is too long: %zu bytes", length);
	if (caller->until > 0)
		until = caller->until;
	if (!is_usable(slot) && !wait_for(slot, CALL_FREE, caller, until))
		return;
	slot->pid = MyProcPid;
	slot->role = GetSessionUserId();
	slot->reserve = superuser() ? RESERVE_OPEN : RESERVE_CLOSED;
	slot->patience = caller->patience;
	slot->after_sync = sight == CALL_AFTER_SYNC;
	slot->writes = false;
	for (int i = 0; i < n; i++)
		slot->writes |= !call_is_read(steps[i].asked.kind);
	slot->creates_provisional = steps[0].asked.kind == ZK_CREATE &&
								(steps[0].asked.node_kind == ZK_CONTAINER ||
								 steps[0].asked.node_kind == ZK_PERSISTENT_SEQUENTIAL);
	slot->ncalls = n;
	slot->batch_length = length;
	if (length > CALL_BUFFER_SIZE)
	{
		call_slot_ask(slot, CALL_ROOM_WANTED);
		if (!wait_for(slot, CALL_ROOM_GIVEN, caller, until))
			return;
	}
	(void) lay_out_batch(call_slot_text(slot, &slot->batch_room), steps, n);
	strlcpy(slot->next_marker, steps[0].asked.marker ? steps[0].asked.marker : "",
			sizeof(slot->next_marker));
	if (steps[0].asked.marker)
		slot->marker_wanted = true;
	if (slot->creates_provisional)
	{
		/* It stays until the session gives it up. */
		SpinLockAcquire(&slot->mutex);
		if (slot->provisional[0] != '\0' && !slot->provisional_wanted)
			slot->provisional_abandoned = true;
		slot->provisional_wanted = true;
		SpinLockRelease(&slot->mutex);
	}
	call_slot_ask(slot, CALL_ASKED);

	/*
	 * A batch that was not sent need not be: take_answer() gives it up.  If it was sent
	 * and writes, the session waits for the answer.
	 */
	if (!wait_for(slot, CALL_ANSWERED, caller, until) && slot->writes &&
		!call_slot_step(slot, CALL_ASKED, CALL_GIVEN_UP))
		(void) wait_for(slot, CALL_ANSWERED, caller, -1);
}

/*
 * Takes the answer.  Without one, the call is given up as if ZooKeeper could not be reached.
 */
static void
take_answer(Caller *caller, CallStep *steps, int n)
{
	CallSlot   *slot = call_slot_own();
	bool		answered = call_slot_state(slot) == CALL_ANSWERED;
	CallOutcome outcome = answered ? slot->outcome : CALL_UNREACHABLE;

	for (int i = 0; i < n; i++)
	{
		steps[i].result = (CallResult){.outcome = outcome, .code = answered ? slot->code : 0};
		steps[i].read = NULL;
		steps[i].children = NULL;
		if (outcome == CALL_OK)
			take_result(&steps[i], call_slot_text(slot, &slot->answer_room), i);
	}
	if (!answered)
	{
		call_slot_give_up(slot);
		return;
	}
	caller->session = slot->session;
	if (steps[0].asked.marker)
		caller->sent_session = slot->sent_session;
	(void) call_slot_step(slot, CALL_ANSWERED, CALL_FREE);
	if (slot->answer_room.size > 0)
		call_slot_want_worker(slot);
}

void
call_batch(Caller *caller, CallStep *steps, int n, CallSight sight)
{
	PG_TRY();
	{
		ask_and_wait(caller, steps, n, sight);
	}
	PG_CATCH();
	{
		call_slot_give_up(call_slot_own());
		PG_RE_THROW();
	}
	PG_END_TRY();
	take_answer(caller, steps, n);
}

/* Raises the error for a step whose outcome is not one that callers handle. */
void
call_report(const CallStep *step)
{
	static const Failure failures[] = {
		[CALL_NO_CHILDREN] = FAILURE_NO_CHILDREN, [CALL_NOT_EMPTY] = FAILURE_REFUSED,
		[CALL_UNREACHABLE] = FAILURE_UNREACHABLE, [CALL_TOO_LONG] = FAILURE_TOO_LONG,
		[CALL_REFUSED] = FAILURE_REFUSED,
	};

	if (failures[step->result.outcome] != FAILURE_NONE)
		request_report_failure(ENTRY_NONE, step->asked.path, failures[step->result.outcome],
							   step->result.code);
}

/*
 * The same for a step of a call that may have a deadline: then CALL_UNREACHABLE is no error, as
 * it may mean that the time is over.
 */
void
call_report_of(const Caller *caller, const CallStep *step)
{
	if (step->result.outcome != CALL_UNREACHABLE || caller->until == 0)
		call_report(step);
}

/* Makes one call, and raises the error for its outcome. */
const CallStep *
call_make(Caller *caller, ZkCall asked, CallSight sight)
{
	CallStep *made = palloc(sizeof(CallStep));

	*made = (CallStep){.asked = asked};
	call_batch(caller, made, 1, sight);
	call_report(made);
	return made;
}
