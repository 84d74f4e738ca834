/*
 * element_receipt.c
 *		Removals of elements, and receipts.
 *
 * A receipt is an ephemeral node of ours of which nobody else knows, and exists
 * if and only if the other half of its multi was done.  So a lost reply is
 * settled for certain as long as the session lives: on the next connection the
 * receipt is there, or what asked for it never will be done, since the leader
 * refuses what a session has sent on an older connection.  Its name is that of one
 * attempt of one request.
 *
 * Offers have receipts as well (element_offer.c).
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "worker/element_calls.h"
#include "worker/element_offer.h"
#include "worker/element_queue.h"
#include "worker/element_receipt.h"
#include "worker/element_root.h"
#include "zk/zk_call.h"

/* ------------------------------------------------------------------------
 * A removal
 * ------------------------------------------------------------------------
 */

/* Neither was done, for want of the element or of the parent of receipts. */
static void
on_doubt(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_OK)
		worker_element_root_make_receipts(work->queue, request);
	worker_element_queue_drop(work, reply->outcome == ZK_NO_NODE ? CANDIDATE_GONE : CANDIDATE_FREE);
}

static void
on_removed(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_UNKNOWN && ZKLOCK_FAULT("removal-again"))
	{
		request->receipt = TRACE_NONE;
		(void) element_step(request, ELEMENT_SENT, ELEMENT_WAITING);
		worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	if (worker_element_leaves_open(work, reply))
		return;
	request->receipt = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
	{
		worker_element_queue_drop(work, CANDIDATE_GONE);
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	else if (reply->outcome == ZK_NO_NODE)
	{
		char *path = worker_element_path(work);

		(void) element_step(request, ELEMENT_SENT, ELEMENT_WAITING);
		work->calls++;
		zk_look(request->pid, path, on_doubt, work);
		pfree(path);
	}
	else if (reply->code == ZK_NOT_EMPTY)
	{
		(void) element_step(request, ELEMENT_SENT, ELEMENT_WAITING);
		worker_element_queue_drop(work, CANDIDATE_CLAIMED);
	}
	else
		worker_element_refused(work, reply);
}

/* Removes the element whose data has been delivered. */
void
worker_element_remove(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = worker_element_path(work);
	char		   *receipt;

	worker_element_begin_attempt(request);
	receipt = worker_element_receipt_path(request);
	request->receipt = TRACE_UNSURE;
	work->calls++;
	zk_exchange(request->pid, receipt, path, ZK_EPHEMERAL, path, ZK_UNNOTICED, on_removed, work);
	pfree(path);
	pfree(receipt);
}

/* ------------------------------------------------------------------------
 * A receipt
 * ------------------------------------------------------------------------
 */

static void
on_torn(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		request->receipt = TRACE_NONE;
	else if (reply->outcome != ZK_UNKNOWN)
		worker_element_try_later(work);
}

/* Deletes the receipt, of which note has been taken. */
void
worker_element_tear_receipt(ElementWork *work)
{
	char *receipt = worker_element_receipt_path(work_request(work));

	work->calls++;
	zk_delete(work_request(work)->pid, receipt, on_torn, work);
	pfree(receipt);
}

/* Is the receipt there? */
static void
on_receipt_looked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_NO_NODE)
	{
		request->receipt = TRACE_NONE;
		if (element_step(request, ELEMENT_SENT, ELEMENT_WAITING))
			worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	else if (reply->outcome == ZK_OK && request->action == ELEMENT_OFFER &&
			 element_state(request) == ELEMENT_SENT)
		worker_element_offer_search(work, reply->czxid);
	else if (reply->outcome == ZK_OK)
	{
		request->receipt = TRACE_THERE;
		worker_element_queue_drop(work, CANDIDATE_GONE);
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		worker_element_try_later(work);
}

/* Was it done for which we have no reply? */
void
worker_element_settle_receipt(ElementWork *work)
{
	char *receipt = worker_element_receipt_path(work_request(work));

	work->calls++;
	zk_look(work_request(work)->pid, receipt, on_receipt_looked, work);
	pfree(receipt);
}
