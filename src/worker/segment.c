/*
 * segment.c
 *		The segment of an errand, as the worker uses it.
 *
 * It belongs to the backend that asks (shared/errand.c).  The worker is attached
 * only while it copies.  So a backend that gives up, or dies, in the meantime
 * leaves nothing mapped here; if it does so while the worker copies, PostgreSQL
 * keeps the segment until the worker detaches, and removes it then.  If the
 * worker dies, PostgreSQL detaches it, and the next one begins the errand anew.
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
#include "worker/segment.h"

/*
 * Attaches to the segment of an errand.  The caller detaches soon.
 *
 * Returns NULL if the backend has given up, or the segment cannot be used, as
 * when somebody has deleted its file or there is no memory.  That the log tells:
 * it is no reason for the worker to end.
 */
dsm_segment *
worker_segment_attach(Errand *errand)
{
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *volatile segment = NULL;

	/* The handle of a backend that has given up means nothing any more. */
	if (errand_state(errand) != ERRAND_TAKEN)
		return NULL;
	PG_TRY();
	{
		segment = dsm_attach(errand->segment);
	}
	PG_CATCH();
	{
		dsm_segment *half = dsm_find_mapping(errand->segment);

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

/*
 * Returns a palloc'd copy of an errand's payload, of payload_length bytes, with a
 * NUL behind it; NULL if it cannot be had, as above.  The answer to the errand is
 * ERRAND_UNDELIVERED then.
 */
char *
worker_segment_payload(Errand *errand)
{
	dsm_segment *segment = worker_segment_attach(errand);
	char		*payload;

	if (segment == NULL)
		return NULL;
	payload = palloc(errand->payload_length + 1);
	memcpy(payload, dsm_segment_address(segment), errand->payload_length);
	payload[errand->payload_length] = '\0';
	dsm_detach(segment);
	return payload;
}
