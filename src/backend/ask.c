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

/*
 * Sends the worker on an errand, and does not wait.  Its answer sets the latch.
 * The caller sees to it that backend_ask_end() follows, or at exit
 * backend_ask_at_exit(); the question must live as long.
 *
 * Returns false if there is no slot free.
 */
bool
backend_ask_begin(AskedQuestion *asked, Question *question)
{
	dsm_segment *volatile segment = NULL;
	Errand *errand = errand_claim();

	Assert(question->payload_length <= ERRAND_MAX_PAYLOAD);
	if (errand == NULL)
		return false;
	PG_ENSURE_ERROR_CLEANUP(drop_errand, PointerGetDatum(errand));
	{
		/* Not before there is a slot: there are no more segments than slots. */
		if (question->payload_length + question->answer_size > 0)
			segment = dsm_create(question->payload_length + question->answer_size, 0);
		if (question->payload_length > 0)
			memcpy(dsm_segment_address(segment), question->payload, question->payload_length);
		errand->kind = question->kind;
		errand->recipe = question->recipe;
		errand->limit = question->limit;
		strlcpy(errand->path, question->path, sizeof(errand->path));
		errand->czxid = question->czxid;
		errand->owner = question->owner;
		errand->segment = segment ? dsm_segment_handle(segment) : DSM_HANDLE_INVALID;
		errand->payload_length = question->payload_length;
		errand->answer_length = 0;
		errand_ask(errand);
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_errand, PointerGetDatum(errand));
	question->answer = NULL;
	question->answer_length = 0;
	*asked = (AskedQuestion){question, errand, segment};
	return true;
}

bool
backend_ask_is_answered(const AskedQuestion *asked)
{
	return errand_state(asked->errand) == ERRAND_ANSWERED;
}

/*
 * Takes what the worker has found out, and gives slot and segment back.  If it has
 * not answered yet, it is as if ZooKeeper could not be reached.  Cannot fail.
 */
ErrandOutcome
backend_ask_end(AskedQuestion *asked)
{
	Question	 *question = asked->question;
	const Errand *errand = asked->errand;
	ErrandOutcome outcome = ERRAND_UNREACHABLE;

	if (backend_ask_is_answered(asked))
	{
		outcome = errand->outcome;
		question->code = errand->code;
		question->czxid = errand->czxid;
		question->owner = errand->owner;
		if (asked->segment && outcome == ERRAND_OK)
		{
			const char *at =
				(const char *) dsm_segment_address(asked->segment) + errand->payload_length;

			/* An error here would leave the slot behind. */
			question->answer = palloc_extended(Max(errand->answer_length, 1), MCXT_ALLOC_NO_OOM);
			if (question->answer)
			{
				question->answer_length = errand->answer_length;
				memcpy(question->answer, at, errand->answer_length);
			}
			else
				outcome = ERRAND_UNDELIVERED;
		}
	}
	errand_drop(asked->errand);
	if (asked->segment)
		dsm_detach(asked->segment);
	memset(asked, 0, sizeof(*asked));
	return outcome;
}

/* Gives the slot back as the process ends; the segment PostgreSQL takes back. */
void
backend_ask_at_exit(AskedQuestion *asked)
{
	errand_drop(asked->errand);
}

/* As a callback at error and exit, where PostgreSQL takes the segment back. */
static void
drop_asked(int code, Datum arg)
{
	backend_ask_at_exit((AskedQuestion *) DatumGetPointer(arg));
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
	AskedQuestion asked;
	ErrandOutcome outcome;

	while (!backend_ask_begin(&asked, question))
		sleep_interruptibly(TURN_MS);
	PG_ENSURE_ERROR_CLEANUP(drop_asked, PointerGetDatum(&asked));
	{
		int64 until = zklock_now_ms() + ANSWER_MS;

		while (!backend_ask_is_answered(&asked) && zklock_now_ms() < until)
			sleep_interruptibly(LOOK_MS);
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_asked, PointerGetDatum(&asked));
	outcome = backend_ask_end(&asked);

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
