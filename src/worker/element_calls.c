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
 * A receipt is an ephemeral node of ours of which nobody else knows, and exists
 * if and only if the other half of its multi was done.  So a lost reply is
 * settled for certain as long as the session lives: on the next connection the
 * receipt is there, or what asked for it never will be done, since the leader
 * refuses what a session has sent on an older connection.  ZooKeeper gives all
 * operations of a multi the same transaction number: an element that was offered
 * is the one created with its receipt.
 *
 * A claim is the ephemeral child "claim" of an element.  Its create proves that
 * the element is there and nobody else has it, and no client can delete an
 * element that has a child.  Nobody reads the element before that: what is fetched
 * behind the create belongs to what was claimed.  The data of claim and receipt
 * name one attempt of one request.
 *
 * What is about to be made is noted in the request first (TRACE_UNSURE), and
 * what is noted is settled, or undone, before anything else is tried.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fault.h"
#include "queue/engine.h"
#include "worker/element_calls.h"
#include "worker/element_queue.h"
#include "worker/element_root.h"
#include "worker/segment.h"
#include "zk/zk_call.h"

/* Sequence numbers end at 2147483647, and order with them: long before, it is told. */
#define LAST_SEQUENCE (PG_INT32_MAX - 1000000)

/* Bytes that may be under way in offers: heartbeats come behind them. */
#define OFFERED_BYTES (2 * 1024 * 1024)

/* After a lost reply, so many of the newest elements are looked at for the one offered. */
#define SEARCH 256

/* So many queues are known for what they are. */
#define KNOWN_QUEUES 64

/* A queue that was listed */
typedef struct KnownQueue
{
	uint32 hash;  /* of the path */
	int64  czxid; /* of its node */
} KnownQueue;

static KnownQueue known_queues[KNOWN_QUEUES];
static int		  next_known;

static Size offered_bytes;	/* under way */
static bool offers_waiting; /* for room */

/* ------------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------------
 */

/* What an attempt of a request is called */
static char *
attempt_name(const ElementRequest *request)
{
	char uuid[64];

	uuid_format(uuid, sizeof(uuid), request->uuid, UUID_DIGITS_ONLY);
	return psprintf("%s-%d", uuid, request->attempt);
}

static char *
receipt_path(const ElementRequest *request)
{
	char *name = attempt_name(request);
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

static char *
element_path(const ElementWork *work)
{
	return psprintf("%s/%s", work->queue->path, element_name(work));
}

static char *
claim_path(const ElementWork *work)
{
	return psprintf("%s/%s/" ELEMENT_CLAIM, work->queue->path, element_name(work));
}

/* A reply has come.  Returns the request, which is looked at again. */
static ElementRequest *
reply_to(ElementWork *work)
{
	work->calls--;
	worker_element_mark(work);
	return work_request(work);
}

/* What failed is tried again in a while.  Others of the queue need not wait for that. */
static void
try_later(ElementWork *work)
{
	worker_element_retry(work, ELEMENT_RETRY_MS);
	worker_element_mark_all(work->queue);
}

/*
 * Does a reply leave open what has been done?  A server that broke down may have
 * done it all the same, so it is looked, in a while.
 */
static bool
leaves_open(ElementWork *work, const ZkReply *reply)
{
	bool broke_down = reply->outcome == ZK_REFUSED && zk_error_is_breakdown(reply->code);

	if (broke_down)
		try_later(work);
	return broke_down || reply->outcome == ZK_UNKNOWN;
}

/* A refusal ends the request, unless somebody else's fault makes it try again. */
static void
refused(ElementWork *work, const ZkReply *reply)
{
	if (reply->outcome == ZK_NO_CHILDREN)
		(void) element_answer(work_request(work), ELEMENT_OUTCOME_NO_CHILDREN, reply->code);
	else if (reply->outcome != ZK_UNKNOWN)
		(void) element_answer(work_request(work), ELEMENT_OUTCOME_REFUSED, reply->code);
}

/* ------------------------------------------------------------------------
 * An element is tried
 * ------------------------------------------------------------------------
 */

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
	ElementRequest *request = reply_to(work);
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
		refused(work, reply);
}

/* Others had been faster, or not: the reply to the create of a claim. */
static void
on_claimed(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (leaves_open(work, reply))
		return;
	request->claim = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
		worker_element_watch_claim(work);
	else if (reply->outcome == ZK_NO_NODE)
		worker_element_queue_drop(work, CANDIDATE_GONE);
	else if (reply->outcome == ZK_NODE_EXISTS)
		worker_element_queue_drop(work, CANDIDATE_CLAIMED);
	else
		refused(work, reply);
}

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
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_NO_NODE && request->claim == TRACE_THERE)
		worker_element_claim_lost(work);
}

/* Sets a watch on the claim, which tells if somebody deletes it. */
void
worker_element_watch_claim(ElementWork *work)
{
	char *path = claim_path(work);

	work->calls++;
	zk_get(work_request(work)->pid, path, ZK_WATCHED, on_claim_watched, work);
	pfree(path);
}

/* Another attempt begins, in this session. */
static void
begin_attempt(ElementRequest *request)
{
	request->attempt++;
	request->session = engine.session_id;
}

static void
create_claim(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = claim_path(work);
	char		   *name;

	begin_attempt(request);
	name = attempt_name(request);
	element_set_found(request, work->candidate, 0, 0);
	request->claim = TRACE_UNSURE;
	work->calls++;
	zk_create(request->pid, path, name, ZK_EPHEMERAL, on_claimed, work);
	pfree(path);
	pfree(name);
}

/* Claims the candidate, if it is to be taken, and reads it. */
void
worker_element_try(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = element_path(work);

	if (request->action == ELEMENT_TAKE)
		create_claim(work);
	work->calls++;
	zk_fetch(request->pid, path, on_fetched, work);
	pfree(path);
}

/* ------------------------------------------------------------------------
 * An element is delivered, and removed
 * ------------------------------------------------------------------------
 */

/* Neither was done, for want of the element or of the parent of receipts. */
static void
on_doubt(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_OK)
		worker_element_root_make_receipts(work->queue, request);
	worker_element_queue_drop(work, reply->outcome == ZK_NO_NODE ? CANDIDATE_GONE : CANDIDATE_FREE);
}

static void
on_removed(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_UNKNOWN && ZKLOCK_FAULT("removal-again"))
	{
		request->receipt = TRACE_NONE;
		(void) element_step(request, ELEMENT_SENT, ELEMENT_WAITING);
		worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	if (leaves_open(work, reply))
		return;
	request->receipt = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
	{
		worker_element_queue_drop(work, CANDIDATE_GONE);
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	else if (reply->outcome == ZK_NO_NODE)
	{
		char *path = element_path(work);

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
		refused(work, reply);
}

/* Removes the element whose data has been delivered. */
static void
remove_element(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *path = element_path(work);
	char		   *receipt;

	begin_attempt(request);
	receipt = receipt_path(request);
	request->receipt = TRACE_UNSURE;
	work->calls++;
	zk_exchange(request->pid, receipt, path, ZK_EPHEMERAL, path, ZK_UNNOTICED, on_removed, work);
	pfree(path);
	pfree(receipt);
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
		remove_element(work);
	worker_element_forget(work);
	worker_element_mark(work);
}

/* ------------------------------------------------------------------------
 * What is held
 * ------------------------------------------------------------------------
 */

static void
on_checked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

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
	path = claim_path(work);
	work->calls++;
	zk_check(request->pid, path, on_checked, work);
	pfree(path);
}

/* Claim and element are gone, or not. */
static void
on_finished(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_OK)
	{
		request->claim = TRACE_NONE;
		worker_element_queue_drop(work, CANDIDATE_GONE);
	}
	else if (reply->outcome != ZK_UNKNOWN && reply->outcome != ZK_NO_NODE)
	{
		request->claim = TRACE_THERE;
		try_later(work);
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
	char		   *claim = claim_path(work);
	char		   *path = element_path(work);

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
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		request->claim = TRACE_NONE;
		worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		try_later(work);
}

/* Gives the element back. */
void
worker_element_return(ElementWork *work)
{
	char *claim = claim_path(work);

	work->calls++;
	zk_delete(work_request(work)->pid, claim, on_returned, work);
	pfree(claim);
}

static void
on_torn(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		request->receipt = TRACE_NONE;
	else if (reply->outcome != ZK_UNKNOWN)
		try_later(work);
}

/* Deletes the receipt, of which note has been taken. */
void
worker_element_tear_receipt(ElementWork *work)
{
	char *receipt = receipt_path(work_request(work));

	work->calls++;
	zk_delete(work_request(work)->pid, receipt, on_torn, work);
	pfree(receipt);
}

/* ------------------------------------------------------------------------
 * Offers
 * ------------------------------------------------------------------------
 */

/* There may be room for offers that wait for it. */
static void
go_on_with_offers(void)
{
	if (!offers_waiting)
		return;
	offers_waiting = false;
	for (int i = 0; i < ELEMENT_REQUESTS; i++)
	{
		if (worker_element_works[i].queue && work_request(&worker_element_works[i])->action == ELEMENT_OFFER)
			worker_element_mark(&worker_element_works[i]);
	}
}

static void
on_appended(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	offered_bytes -= work->sent_bytes;
	work->sent_bytes = 0;
	go_on_with_offers();
	if (leaves_open(work, reply))
		return;
	request->receipt = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
	{
		element_set_found(request, strrchr(reply->path, '/') + 1, 0, 0);
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	else if (reply->outcome == ZK_NO_NODE && work->attempts < ELEMENT_ATTEMPTS)
	{
		/* The path was there a moment ago. */
		(void) element_step(request, ELEMENT_SENT, ELEMENT_WAITING);
		worker_element_root_make_receipts(work->queue, request);
	}
	else
		refused(work, reply);
}

/* Sends an offer, if there is room for it. */
static void
append(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	char		   *data;
	char		   *path;
	char		   *receipt;

	if (offered_bytes > 0 && offered_bytes + request->offered_length > OFFERED_BYTES)
	{
		offers_waiting = true;
		return;
	}
	data = request->offered_length > 0
			   ? worker_segment_read(request->segment, request->offered_length)
			   : pstrdup("");
	if (data == NULL)
	{
		(void) element_answer(request, ELEMENT_OUTCOME_UNDELIVERED, 0);
		return;
	}
	if (element_step(request, ELEMENT_WAITING, ELEMENT_SENT))
	{
		begin_attempt(request);
		path = psprintf("%s/" ELEMENT_PREFIX, work->queue->path);
		receipt = receipt_path(request);
		request->receipt = TRACE_UNSURE;
		work->attempts++;
		work->sent_bytes = request->offered_length;
		offered_bytes += work->sent_bytes;
		work->calls++;
		zk_append(request->pid, path, data, (int) request->offered_length, receipt, on_appended, work);
		pfree(path);
		pfree(receipt);
	}
	pfree(data);
}

/* Are the children of the path, whose node was created then, known to show no other use? */
static bool
is_known(const ElementQueue *queue, int64 czxid)
{
	KnownQueue known = {.hash = hash_bytes((const unsigned char *) queue->path,
										   (int) strlen(queue->path)),
						.czxid = czxid};

	for (int i = 0; i < KNOWN_QUEUES; i++)
	{
		if (known_queues[i].hash == known.hash && known_queues[i].czxid == czxid)
			return true;
	}
	if (queue->verified)
		known_queues[next_known++ % KNOWN_QUEUES] = known;
	return queue->verified;
}

/* Does a look at the path show data that have to be read first? */
static bool
has_data_to_read(const ElementWork *work, const ZkReply *reply)
{
	worker_element_queue_see_data(work->queue, reply);
	return !worker_element_queue_read_data(work->queue, work_request(work)->pid);
}

/* The path has been looked at. */
static void
on_looked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (element_state(request) != ELEMENT_WAITING)
		return;
	if (reply->outcome == ZK_NO_NODE && work->attempts++ < ELEMENT_ATTEMPTS)
		worker_element_root_make(work->queue, request);
	else if (reply->outcome != ZK_OK)
		refused(work, reply);
	else if (has_data_to_read(work, reply))
		return;
	else if (reply->child_count >= ELEMENT_MAX_CHILDREN)
		(void) element_answer(request, ELEMENT_OUTCOME_FULL, 0);
	else if (reply->child_changes < 0 || reply->child_changes > LAST_SEQUENCE)
		(void) element_answer(request, ELEMENT_OUTCOME_WORN_OUT, 0);
	else if (reply->child_count > 0 && !is_known(work->queue, reply->czxid))
		worker_element_queue_list(work->queue, request->pid);
	else
		append(work);
}

/* Looks whether the element can be offered, and does so. */
void
worker_element_offer(ElementWork *work)
{
	work->calls++;
	zk_look(work_request(work)->pid, work->queue->path, on_looked, work);
}

/* ------------------------------------------------------------------------
 * Lost replies
 * ------------------------------------------------------------------------
 */

/* The claim was read: is it the one of this attempt? */
static void
on_claim_read(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);
	char		   *name;

	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
	{
		try_later(work);
		return;
	}
	name = attempt_name(request);
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
	char *claim = claim_path(work);

	work->calls++;
	zk_read(work_request(work)->pid, claim, on_claim_read, work);
	pfree(claim);
}

/* One of the newest elements, after the reply to an offer was lost */
typedef struct SearchCall
{
	ElementWork *work;
	int64		 czxid; /* of what we offered */
	char		 name[ELEMENT_NAME_SIZE];
} SearchCall;

static void
on_searched(void *arg, const ZkReply *reply)
{
	SearchCall	   *call = arg;
	ElementRequest *request = reply_to(call->work);

	if (reply->outcome == ZK_OK && reply->czxid == call->czxid)
		element_set_found(request, call->name, 0, 0);

	/* Not found: it was taken meanwhile, and its name is not known. */
	if (call->work->calls == 0 && reply->outcome != ZK_UNKNOWN)
	{
		request->receipt = TRACE_THERE;
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	pfree(call);
}

/* Looks at the newest elements for the one that was offered. */
static void
on_search_listed(void *arg, const ZkReply *reply)
{
	SearchCall	   *found = arg;
	ElementWork	   *work = found->work;
	ElementRequest *request = reply_to(work);
	ElementName	   *names;
	int				n;

	if (reply->outcome == ZK_UNKNOWN)
	{
		pfree(found);
		return;
	}
	names = MemoryContextAllocHuge(CurrentMemoryContext,
								   Max(reply->nchildren, 1) * sizeof(ElementName));
	n = element_name_sort(reply->children, reply->nchildren, names);
	if (n == 0)
	{
		request->receipt = TRACE_THERE;
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	for (int i = Max(n - SEARCH, 0); i < n; i++)
	{
		SearchCall *call = palloc(sizeof(SearchCall));
		char	   *path = psprintf("%s/%s", work->queue->path, names[i].name);

		call->work = work;
		call->czxid = found->czxid;
		strlcpy(call->name, names[i].name, sizeof(call->name));
		work->calls++;
		zk_look(request->pid, path, on_searched, call);
		pfree(path);
	}
	pfree(names);
	pfree(found);
}

/* Is the receipt there? */
static void
on_receipt_looked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = reply_to(work);

	if (reply->outcome == ZK_NO_NODE)
	{
		request->receipt = TRACE_NONE;
		if (element_step(request, ELEMENT_SENT, ELEMENT_WAITING))
			worker_element_queue_drop(work, CANDIDATE_FREE);
	}
	else if (reply->outcome == ZK_OK && request->action == ELEMENT_OFFER &&
			 element_state(request) == ELEMENT_SENT)
	{
		SearchCall *call = palloc0(sizeof(SearchCall));

		call->work = work;
		call->czxid = reply->czxid;
		work->calls++;
		zk_list(request->pid, work->queue->path, ZK_UNWATCHED, on_search_listed, call);
	}
	else if (reply->outcome == ZK_OK)
	{
		request->receipt = TRACE_THERE;
		worker_element_queue_drop(work, CANDIDATE_GONE);
		(void) element_answer(request, ELEMENT_OUTCOME_OK, 0);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		try_later(work);
}

/* Was it done for which we have no reply? */
void
worker_element_settle_receipt(ElementWork *work)
{
	char *receipt = receipt_path(work_request(work));

	work->calls++;
	zk_look(work_request(work)->pid, receipt, on_receipt_looked, work);
	pfree(receipt);
}
