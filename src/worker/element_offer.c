/*
 * element_offer.c
 *		Offers of elements.
 *
 * The path is looked at first: does it exist, is it a queue, is there room?  That it is
 * a queue its children tell, which are listed once; the last KNOWN_QUEUES are
 * remembered.
 *
 * ZooKeeper gives all operations of a multi the same transaction number.  So if
 * the reply to an offer was lost, and its receipt shows that it was made, the element
 * is the one that was created with the receipt.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "worker/element_calls.h"
#include "worker/element_offer.h"
#include "worker/element_pick.h"
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
 * An offer
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
	ElementRequest *request = worker_element_reply_to(work);

	offered_bytes -= work->sent_bytes;
	work->sent_bytes = 0;
	go_on_with_offers();
	if (worker_element_leaves_open(work, reply))
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
		worker_element_refused(work, reply);
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
		worker_element_begin_attempt(request);
		path = psprintf("%s/" ELEMENT_PREFIX, work->queue->path);
		receipt = worker_element_receipt_path(request);
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
	worker_element_see_data(work->queue, reply);
	return !worker_element_read_data(work->queue, work_request(work)->pid);
}

/* The path has been looked at. */
static void
on_looked(void *arg, const ZkReply *reply)
{
	ElementWork	   *work = arg;
	ElementRequest *request = worker_element_reply_to(work);

	if (element_state(request) != ELEMENT_WAITING)
		return;
	if (reply->outcome == ZK_NO_NODE && work->attempts++ < ELEMENT_ATTEMPTS)
		worker_element_root_make(work->queue, request);
	else if (reply->outcome != ZK_OK)
		worker_element_refused(work, reply);
	else if (has_data_to_read(work, reply))
		return;
	else if (reply->child_count >= ELEMENT_MAX_CHILDREN)
		(void) element_answer(request, ELEMENT_OUTCOME_FULL, 0);
	else if (reply->child_changes < 0 || reply->child_changes > LAST_SEQUENCE)
		(void) element_answer(request, ELEMENT_OUTCOME_WORN_OUT, 0);
	else if (reply->child_count > 0 && !is_known(work->queue, reply->czxid))
		worker_element_list(work->queue, request->pid);
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
 * Its reply was lost
 * ------------------------------------------------------------------------
 */

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
	ElementRequest *request = worker_element_reply_to(call->work);

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
	ElementRequest *request = worker_element_reply_to(work);
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

/* An offer was made: which element is it, which was created by that transaction? */
void
worker_element_offer_search(ElementWork *work, int64 czxid)
{
	SearchCall *call = palloc0(sizeof(SearchCall));

	call->work = work;
	call->czxid = czxid;
	work->calls++;
	zk_list(work_request(work)->pid, work->queue->path, ZK_UNWATCHED, on_search_listed, call);
}
