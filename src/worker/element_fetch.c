/*
 * element_fetch.c
 *		Reading an element of a queue, and delivering its data.
 *
 * An element that is to be taken is claimed right before it is read, without waiting
 * for that: what is read then belongs to what was claimed.  The data stays in the
 * worker's memory until the backend has made room for it.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "worker/element_calls.h"
#include "worker/element_claim.h"
#include "worker/element_fetch.h"
#include "worker/element_queue.h"
#include "worker/element_receipt.h"
#include "worker/segment.h"
#include "zk/zk_call.h"

/* All that was asked about the candidate has been answered. */
static void
tried(ElementWork *work)
{
	ElementRequest *request = work_request(work);

	if (request->action == ELEMENT_TAKE && request->claim != TRACE_THERE)
		return;
	element_set_found(request, work->candidate, work->czxid, work->length);
	(void) element_step(request, ELEMENT_WAITING, ELEMENT_FOUND);
}

static void
on_fetched(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);
	bool			take = request->action == ELEMENT_TAKE;

	if (work->candidate[0] == '\0')
		return;
	if (reply->outcome == ZK_NO_NODE && !take)
		worker_element_queue_drop(work, CANDIDATE_GONE);
	else if (reply->outcome == ZK_OK && reply->child_count > 0 && !take)
		worker_element_queue_drop(work, CANDIDATE_CLAIMED);
	else if (reply->outcome == ZK_OK)
	{
		worker_element_forget(work);
		work->fetched = true;
		work->czxid = reply->czxid;
		work->length = reply->data ? reply->data_length : 0;
		if (work->length > 0)
			work->data = memcpy(MemoryContextAllocHuge(CurrentMemoryContext, work->length),
								reply->data, work->length);
		tried(work);
	}
	else if (reply->outcome != ZK_NO_NODE)
		worker_element_refused(work, reply);
}

/* Claims the candidate, if it is to be taken, and reads it. */
void
worker_element_try(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = worker_element_path(work);

	if (request->action == ELEMENT_TAKE)
		worker_element_claim(work);
	work->calls++;
	zk_fetch(request->pid, path, on_fetched, work);
	pfree(path);
}

/* The backend has made room for the data: delivers it. */
void
worker_element_deliver(ElementWork *work)
{
	ElementRequest *request = work_request(work);

	if (work->length > 0 && !worker_segment_write(request->segment, work->data, work->length))
		(void) element_answer(request, ELEMENT_OUTCOME_UNDELIVERED, 0);
	else if (request->action == ELEMENT_SHOW)
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	else if (request->action == ELEMENT_TAKE)
	{
		if (ZKLOCK_FAULT("take-early"))
			worker_element_finish(work);
		(void) element_step(request, ELEMENT_FETCHING, ELEMENT_HELD);
	}
	else if (element_step(request, ELEMENT_FETCHING, ELEMENT_SENT))
		worker_element_remove(work);
	worker_element_forget(work);
	worker_element_mark(work);
}
