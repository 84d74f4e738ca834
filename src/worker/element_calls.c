/*
 * element_calls.c
 *		What is done in ZooKeeper for a request for an element.
 *
 *	SHOW	fetch; an element that has a child is claimed, and not shown
 *	REMOVE	fetch; multi{create receipt, delete element}; delete receipt
 *	TAKE	create claim and fetch, at once; watch the claim;
 *			in the end multi{delete claim, delete element}, or delete claim
 *	OFFER	look at the path; multi{create element, create receipt};
 *			delete receipt
 *
 * What is about to be made is noted in the request first (TRACE_UNSURE), and
 * what is noted is settled, or undone, before anything else is tried.
 *
 * Each of these files makes some of the calls, and has what is their own:
 *
 *		element_fetch.c		reading an element, and delivering its data
 *		element_claim.c		claims
 *		element_receipt.c	removals, and receipts
 *		element_offer.c		offers
 *
 * Here is what they share: names of nodes, and what replies have in common.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"
#include "worker/element_calls.h"
#include "worker/element_root.h"

/* ------------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------------
 */

/* What an attempt of a request is called */
char *
worker_element_attempt_name(const ElementRequest *request)
{
	char uuid[64];

	uuid_format(uuid, sizeof(uuid), request->uuid, UUID_DIGITS_ONLY);
	return psprintf("%s-%d", uuid, request->attempt);
}

/* Another attempt begins, in this session. */
void
worker_element_begin_attempt(ElementRequest *request)
{
	request->attempt++;
	request->session = engine.session_id;
}

char *
worker_element_receipt_path(const ElementRequest *request)
{
	char *name = worker_element_attempt_name(request);
	char *path = psprintf(ELEMENT_RECEIPTS "/%s", name);

	pfree(name);
	return path;
}

/*
 * The element of a request: its candidate, or, for a request that an earlier worker
 * has begun, what it has found.
 */
static const char *
element_name(const ElementWork *work)
{
	return work->candidate[0] != '\0' ? work->candidate : work_request(work)->name;
}

char *
worker_element_path(const ElementWork *work)
{
	return psprintf("%s/%s", work->queue->path, element_name(work));
}

char *
worker_element_claim_path(const ElementWork *work)
{
	return psprintf("%s/%s/" ELEMENT_CLAIM, work->queue->path, element_name(work));
}

/* ------------------------------------------------------------------------
 * Replies
 * ------------------------------------------------------------------------
 */

/* A reply has come.  Returns the request, which is looked at again. */
ElementRequest *
worker_element_reply_to(ElementWork *work)
{
	work->calls--;
	worker_element_mark(work);
	return work_request(work);
}

/* What failed is tried again in a while.  Others of the queue need not wait for that. */
void
worker_element_try_later(ElementWork *work)
{
	worker_element_retry(work, ELEMENT_RETRY_MS);
	worker_element_mark_all(work->queue);
}

/*
 * Does a reply leave open what has been done?  A server that broke down may have
 * done it all the same, so it is looked, in a while.
 */
bool
worker_element_leaves_open(ElementWork *work, const ZkReply *reply)
{
	bool broke_down = reply->outcome == ZK_REFUSED && zk_error_is_breakdown(reply->code);

	if (broke_down)
		worker_element_try_later(work);
	return broke_down || reply->outcome == ZK_UNKNOWN;
}

/* A refusal ends the request, unless somebody else's fault makes it try again. */
void
worker_element_refused(ElementWork *work, const ZkReply *reply)
{
	if (reply->outcome == ZK_NO_CHILDREN)
		(void) element_answer(work_request(work), ELEMENT_OUTCOME_NO_CHILDREN, reply->code);
	else if (reply->outcome != ZK_UNKNOWN)
		(void) element_answer(work_request(work), ELEMENT_OUTCOME_REFUSED, reply->code);
}
