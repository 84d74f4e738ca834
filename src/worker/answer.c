/*
 * answer.c
 *		What the worker answers to errands.
 *
 * A long answer goes into the segment of the backend that asks (segment.c).  The
 * worker builds it in its own memory before.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "worker/answer.h"
#include "worker/segment.h"

/* Answers with what became of a call to ZooKeeper. */
void
worker_answer_outcome(Errand *errand, ZkOutcome outcome, int code)
{
	switch (outcome)
	{
		case ZK_OK:
			errand_answer(errand, ERRAND_OK, 0);
			break;
		case ZK_NO_NODE:
			errand_answer(errand, ERRAND_NO_NODE, 0);
			break;
		case ZK_UNKNOWN:
			errand_answer(errand, ERRAND_UNREACHABLE, 0);
			break;
		default:
			errand_answer(errand, ERRAND_REFUSED, code);
			break;
	}
}

/* Answers with "length" bytes. */
void
worker_answer_long(Errand *errand, const char *answer, Size length)
{
	ErrandOutcome outcome = ERRAND_UNDELIVERED;
	dsm_segment	 *segment = NULL;

	/* The handle of a backend that has given up means nothing any more. */
	if (errand_state(errand) == ERRAND_TAKEN)
		segment = worker_segment_attach(errand->segment);
	if (segment)
	{
		Size  room = dsm_segment_map_length(segment) - errand->payload_length;
		char *at = (char *) dsm_segment_address(segment) + errand->payload_length;

		outcome = length <= room ? ERRAND_OK : ERRAND_TOO_LONG;
		if (outcome == ERRAND_OK)
			memcpy(at, answer, length);
		errand->answer_length = length;
		dsm_detach(segment);
	}
	errand_answer(errand, outcome, 0);
}
