/*
 * answer.c
 *		What the worker answers to errands.
 *
 * A long answer goes into the segment of the backend that asks.  The worker
 * builds it in its own memory, and is attached to the segment only while it
 * copies it.  So a backend that gives up, or dies, in the meantime leaves
 * nothing mapped here; if it does so while the worker copies, PostgreSQL keeps
 * the segment until the worker detaches, and removes it then.  If the worker
 * dies, PostgreSQL detaches it, and the next one answers anew.
 *
 * The worker runs no transaction and has no resource owner.  A mapping lasts
 * until dsm_detach() then, or the end of the process, in all releases; it need
 * not be pinned.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "worker/answer.h"

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

/*
 * Attaches to the segment; NULL if it is gone, or cannot be used, as when
 * somebody has deleted its file or there is no memory.  That the log tells: it
 * is no reason for the worker to end.
 */
static dsm_segment *
attach(dsm_handle handle)
{
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *volatile segment = NULL;

	PG_TRY();
	{
		segment = dsm_attach(handle);
	}
	PG_CATCH();
	{
		dsm_segment *half = dsm_find_mapping(handle);

		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();

		/* Without a resource owner nobody else cleans up. */
		if (half)
			dsm_detach(half);
	}
	PG_END_TRY();
	return segment;
}

/* Answers with "length" bytes. */
void
worker_answer_long(Errand *errand, const char *answer, Size length)
{
	ErrandOutcome outcome = ERRAND_UNDELIVERED;
	dsm_segment	 *segment = NULL;

	/* The handle of a backend that has given up means nothing any more. */
	if (errand_state(errand) == ERRAND_TAKEN)
		segment = attach(errand->segment);
	if (segment)
	{
		outcome = length <= dsm_segment_map_length(segment) ? ERRAND_OK : ERRAND_TOO_LONG;
		if (outcome == ERRAND_OK)
			memcpy(dsm_segment_address(segment), answer, length);
		errand->answer_length = length;
		dsm_detach(segment);
	}
	errand_answer(errand, outcome, 0);
}
