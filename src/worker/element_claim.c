/*
 * element_claim.c
 *		Claims: that a session has taken an element of a queue.
 *
 * A claim is the ephemeral child "claim" of an element.  Its create proves that
 * the element is there and nobody else has it, and no client can delete an
 * element that has a child.  Its data name one attempt of one request, which tells
 * it from others' when the reply to the create was lost.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "worker/element_calls.h"
#include "worker/element_claim.h"
#include "worker/element_queue.h"
#include "zk/zk_call.h"

/* ------------------------------------------------------------------------
 * A claim is made
 * ------------------------------------------------------------------------
 */

/* Others had been faster, or not: the reply to the create of a claim. */
static void
on_claimed(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (worker_element_leaves_open(work, reply))
		return;
	request->claim = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
		worker_element_watch_claim(work);
	else if (reply->outcome == ZK_NO_NODE)
		worker_element_queue_drop(work, CANDIDATE_GONE);
	else if (reply->outcome == ZK_NODE_EXISTS)
		worker_element_queue_drop(work, CANDIDATE_CLAIMED);
	else
		worker_element_refused(work, reply);
}

/* Claims the candidate. */
void
worker_element_claim(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = worker_element_claim_path(work);
	char		   *name;

	worker_element_begin_attempt(request);
	name = worker_element_attempt_name(request);
	element_set_found(request, work->candidate, 0, 0);
	request->claim = TRACE_UNSURE;
	work->calls++;
	zk_create(request->pid, path, name, ZK_EPHEMERAL, on_claimed, work);
	pfree(path);
	pfree(name);
}

/* ------------------------------------------------------------------------
 * It is there, and watched
 * ------------------------------------------------------------------------
 */

/* Somebody has deleted our claim. */
void
worker_element_claim_lost(ElementWork *work)
{
	ElementRequest *request = work_request(work);

	request->claim = TRACE_NONE;
	if (element_lose(request))
		ereport(WARNING, (errmsg("process %d has lost element \"%s\" of ZooKeeper queue \"%s\": somebody deleted its claim",
								 request->pid, request->name, request->path)));
	(void) element_step(request, ELEMENT_FOUND, ELEMENT_WAITING);
	(void) element_step(request, ELEMENT_FETCHING, ELEMENT_WAITING);
	worker_element_queue_drop(work, CANDIDATE_FREE);
	worker_element_mark(work);
}

/* The watch on our claim is set, or the claim is gone already. */
static void
on_claim_watched(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_NO_NODE && request->claim == TRACE_THERE)
		worker_element_claim_lost(work);
}

/* Sets a watch on the claim, which tells if somebody deletes it. */
void
worker_element_watch_claim(ElementWork *work)
{
	char *path = worker_element_claim_path(work);

	work->calls++;
	zk_get(work_request(work)->pid, path, ZK_WATCHED, on_claim_watched, work);
	pfree(path);
}

static void
on_checked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_OK)
		element_check_done(request, work->check);
	else if (reply->outcome == ZK_NO_NODE)
		worker_element_claim_lost(work);
}

/* Has a quorum commit that the claim is there, if its backend wants that. */
void
worker_element_check(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path;
	bool			wanted;

	SpinLockAcquire(&request->mutex);
	wanted = request->check_wanted != request->check_done;
	work->check = request->check_wanted;
	SpinLockRelease(&request->mutex);
	if (!wanted)
		return;
	path = worker_element_claim_path(work);
	work->calls++;
	zk_check(request->pid, path, on_checked, work);
	pfree(path);
}

/* ------------------------------------------------------------------------
 * It goes, with its element or alone
 * ------------------------------------------------------------------------
 */

/* Claim and element are gone, or not. */
static void
on_finished(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_OK)
	{
		request->claim = TRACE_NONE;
		worker_element_queue_drop(work, CANDIDATE_GONE);
	}
	else if (reply->outcome != ZK_UNKNOWN && reply->outcome != ZK_NO_NODE)
	{
		request->claim = TRACE_THERE;
		worker_element_try_later(work);
		if (work->attempts++ == 0)
			ereport(LOG, (errmsg("could not remove element \"%s\" of ZooKeeper queue \"%s\", which a committed transaction has taken: %s",
								 request->name, request->path, zk_error_name(reply->code)),
						  errdetail("It is tried again; until then the element stays taken.")));
	}
}

/* The transaction that has the element has committed: the element goes. */
void
worker_element_finish(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *claim = worker_element_claim_path(work);
	char		   *path = worker_element_path(work);

	request->claim = TRACE_UNSURE;
	work->calls++;
	zk_delete_both(request->pid, claim, path, on_finished, work);
	pfree(claim);
	pfree(path);
}

static void
on_returned(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		request->claim = TRACE_NONE;
		worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		worker_element_try_later(work);
}

/* Gives the element back. */
void
worker_element_return(ElementWork *work)
{
	char *claim = worker_element_claim_path(work);

	work->calls++;
	zk_delete(work_request(work)->pid, claim, on_returned, work);
	pfree(claim);
}

/* ------------------------------------------------------------------------
 * A reply was lost
 * ------------------------------------------------------------------------
 */

/* The claim was read: is it the one of this attempt? */
static void
on_claim_read(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);
	char		   *name;

	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
	{
		worker_element_try_later(work);
		return;
	}
	name = worker_element_attempt_name(request);
	request->claim = TRACE_NONE;
	if (reply->outcome == ZK_OK && reply->data_length == (int) strlen(name) &&
		memcmp(reply->data, name, reply->data_length) == 0)
		request->claim = TRACE_THERE;
	pfree(name);
	if (request->claim == TRACE_NONE)
		worker_element_claim_lost(work);
	else if (element_state(request) == ELEMENT_HELD)
		worker_element_watch_claim(work);
}

/* Is the claim there?  It was sent, or is to be deleted, on an earlier connection. */
void
worker_element_settle_claim(ElementWork *work)
{
	char *claim = worker_element_claim_path(work);

	work->calls++;
	zk_read(work_request(work)->pid, claim, on_claim_read, work);
	pfree(claim);
}
