/*
 * ask.c
 *		Sending the worker on an errand, and waiting for the answer.
 *
 * shared/errand.c has the states of an errand.  Here the slot, and the segment
 * for a payload and a long answer, are given back however the wait ends.
 *
 * Runs in: backends.  A backend has one errand at a time.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/ask.h"
#include "backend/display.h"
#include "compat.h"
#include "shared/clock.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "zk/zk_error.h"

#define TURN_MS 100		/* between two looks whether a slot is free */
#define ANSWER_MS 30000 /* how long to wait for an answer */
#define LOOK_MS 1000	/* a worker that is just starting is not woken */

static void
sleep_interruptibly(long ms)
{
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* As a callback at error and exit */
static void
drop_errand(int code, Datum arg)
{
	errand_drop((Errand *) DatumGetPointer(arg));
}

/* Waits for the answer; false if none comes. */
static bool
wait_for_answer(Errand *errand)
{
	int64 until = zklock_now_ms() + ANSWER_MS;

	while (errand_state(errand) != ERRAND_ANSWERED)
	{
		if (zklock_now_ms() >= until)
			return false;
		sleep_interruptibly(LOOK_MS);
	}
	return true;
}

/* Takes what the worker has found out. */
static ErrandOutcome
take_answer(const Errand *errand, dsm_segment *segment, Question *question)
{
	question->czxid = errand->czxid;
	question->owner = errand->owner;
	question->written_at = errand->written_at;
	question->code = errand->code;
	if (segment && errand->outcome == ERRAND_OK)
	{
		question->answer_length = errand->answer_length;
		question->answer = palloc(Max(errand->answer_length, 1));
		memcpy(question->answer, (char *) dsm_segment_address(segment) + errand->payload_length,
			   errand->answer_length);
	}
	return errand->outcome;
}

static void
report_refused(const Question *question)
{
	int code = question->code;

	ereport(ERROR, (errcode(zk_error_is_permission(code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
														 : ERRCODE_SYSTEM_ERROR),
					errmsg("cannot access ZooKeeper node \"%s\"", display_path(question->path)),
					errdetail("ZooKeeper refused: %s.", zk_error_name(code))));
}

/*
 * Sends the worker on an errand, and waits for the answer, and before that for
 * a free slot.  No answer is an error, and so is a refusal by ZooKeeper, an
 * answer that is too long, and a payload or an answer that cannot be delivered.
 */
ErrandOutcome
backend_ask(Question *question)
{
	dsm_segment *volatile segment = NULL;
	Errand				  *errand;
	volatile ErrandOutcome outcome = ERRAND_UNREACHABLE;

	Assert(question->payload_length <= ERRAND_MAX_PAYLOAD);
	question->answer = NULL;
	question->answer_length = 0;
	while ((errand = errand_claim()) == NULL)
		sleep_interruptibly(TURN_MS);
	PG_ENSURE_ERROR_CLEANUP(drop_errand, PointerGetDatum(errand));
	{
		/* Not before there is a slot: there are no more segments than slots. */
		if (question->payload_length + question->answer_size > 0)
			segment = dsm_create(question->payload_length + question->answer_size, 0);
		if (question->payload_length > 0)
			memcpy(dsm_segment_address(segment), question->payload, question->payload_length);
		errand->kind = question->kind;
		errand->recipe = question->recipe;
		errand->parent_nodes = zklock_parent_nodes;
		errand->doubt = DOUBT_NONE;
		strlcpy(errand->path, question->path, sizeof(errand->path));
		errand->czxid = question->czxid;
		errand->owner = question->owner;
		errand->segment = segment ? dsm_segment_handle(segment) : DSM_HANDLE_INVALID;
		errand->payload_length = question->payload_length;
		errand->answer_length = 0;
		errand_ask(errand);
		if (wait_for_answer(errand))
		{
			outcome = take_answer(errand, segment, question);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_errand, PointerGetDatum(errand));
	errand_drop(errand);
	if (segment)
		dsm_detach(segment);

	switch (outcome)
	{
		case ERRAND_UNREACHABLE:
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("could not access ZooKeeper node \"%s\"", display_path(question->path)),
					 errdetail("The worker has no connection to ZooKeeper, or lost it.")));
			break;
		case ERRAND_REFUSED:
			report_refused(question);
			break;
		case ERRAND_TOO_LONG:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("what ZooKeeper tells of \"%s\" is too long", display_path(question->path)),
					 errdetail("An answer can have at most %zu bytes.", question->answer_size)));
			break;
		case ERRAND_UNDELIVERED:
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
							errmsg("could not exchange data with the zklock worker about \"%s\"",
								   display_path(question->path)),
							errdetail("The worker could not use the dynamic shared memory segment for it."),
							errhint("See server log for the reason.")));
			break;
		default:
			break;
	}
	return outcome;
}
