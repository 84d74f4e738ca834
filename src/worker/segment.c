/*
 * segment.c
 *		The segment of an element request, as the worker uses it.
 *
 * It belongs to the backend that asks (shared/element.c).  The worker is attached
 * only while it copies.  So a backend that gives up, or dies, in the meantime
 * leaves nothing mapped here; if it does so while the worker copies, PostgreSQL
 * keeps the segment until the worker detaches, and removes it then.  If the
 * worker dies, PostgreSQL detaches it, and the next one begins anew.
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
 * Attaches to a segment whose backend waits.  The caller detaches soon.
 *
 * Returns NULL if it is gone, or cannot be used, as when somebody has deleted its
 * file or there is no memory.  That the log tells: it is no reason for the worker
 * to end.
 */
dsm_segment *
worker_segment_attach(dsm_handle handle)
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

/*
 * Returns a palloc'd copy of the first bytes of a segment, with a NUL behind it;
 * NULL if it cannot be had, as above.
 */
char *
worker_segment_read(dsm_handle handle, Size length)
{
	dsm_segment *segment = worker_segment_attach(handle);
	char		*data;

	if (segment == NULL)
		return NULL;
	data = palloc(length + 1);
	memcpy(data, dsm_segment_address(segment), length);
	data[length] = '\0';
	dsm_detach(segment);
	return data;
}

/* Writes data into a segment that has room for it.  Returns false if it cannot be used. */
bool
worker_segment_write(dsm_handle handle, const char *data, Size length)
{
	dsm_segment *segment = worker_segment_attach(handle);

	if (segment == NULL)
		return false;
	memcpy(dsm_segment_address(segment), data, length);
	dsm_detach(segment);
	return true;
}
