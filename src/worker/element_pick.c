/*
 * element_pick.c
 *		Which elements a queue has, and which of them is free for a request.
 *
 *	listing		one at a time, for all requests of the queue.  While somebody waits for
 *				an element it sets a child watch.  That there is no element is said
 *				only after a listing that was made when the request had come.
 *	survey		where somebody else takes elements too, the first ones may all be
 *				claimed.  When we have met one that is, the next SURVEY are looked at
 *				together: claimed is what has a child.
 *	claims		whoever waits while elements are claimed is to have one that is given
 *				back, of which the queue's children tell nothing.  So the claims
 *				of the first elements are watched, as far as CLAIM_WATCHES and the room
 *				for watches go.  If there are more, they are looked at every
 *				CLAIM_LOOK_MS.
 *
 * A path with the record of zk_claim() in its data is no queue.  How long the data
 * are is told by each listing, and each look before an offer; only if there are any
 * are they read, and nothing is tried before that is answered.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/claim_record.h"
#include "shared/clock.h"
#include "worker/element_pick.h"
#include "worker/element_queue.h"
#include "zk/zk_call.h"

#define SURVEY 64
#define CLAIM_WATCHES 16
#define CLAIM_LOOK_MS 1000

/* An argument of a call about a queue, or about one of its elements */
typedef struct QueueCall
{
	ElementQueue *queue;
	uint64		  list;	 /* number of the listing */
	bool		  watch; /* it sets one */
	char		  name[ELEMENT_NAME_SIZE];
} QueueCall;

static QueueCall *
begin_call(ElementQueue *queue)
{
	QueueCall *call = palloc0(sizeof(QueueCall));

	call->queue = queue;
	queue->calls++;
	return call;
}

/* ------------------------------------------------------------------------
 * What the path is
 * ------------------------------------------------------------------------
 */

/*
 * What does a listing show that the path is used for?  Where there are elements it is
 * a queue: a lock that somebody asks for there is refused, and its node goes.
 */
static ElementOtherUse
other_use(const ZkReply *reply)
{
	ElementOtherUse found = ELEMENT_USE_NONE;
	int64_t			number;

	for (int i = 0; i < reply->nchildren; i++)
	{
		if (element_name_read(reply->children[i], &number))
			return ELEMENT_USE_NONE;
		if (found == ELEMENT_USE_NONE)
			found = element_name_other_use(reply->children[i]);
	}
	return found;
}

/* Takes note of whether the queue's node, as a reply tells, has data that may be a claim's. */
void
worker_element_see_data(ElementQueue *queue, const ZkReply *reply)
{
	if (queue->data == QUEUE_DATA_NONE && reply->data_length > 0 && reply->data_length < CLAIM_RECORD_SIZE)
		queue->data = QUEUE_DATA_UNREAD;
}

static void
on_data_read(void *arg, const ZkReply *reply)
{
	QueueCall	 *call = arg;
	ElementQueue *queue = call->queue;
	ClaimRecord	  record;

	queue->data = QUEUE_DATA_UNREAD; /* by whoever asks next */
	if (reply->outcome == ZK_NO_NODE)
		queue->data = QUEUE_DATA_NONE;
	else if (reply->outcome == ZK_OK &&
			 claim_record_read(reply->data ? reply->data : "", reply->data_length, &record))
		worker_element_fail_all(queue, ELEMENT_OUTCOME_OTHER_USE, ELEMENT_USE_CLAIMS);
	else if (reply->outcome != ZK_UNKNOWN)
		queue->data = QUEUE_DATA_OTHER; /* What we may not read is no reason to refuse. */
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/*
 * Reads the data of the queue's node, if there are any that may be a claim's.
 * Returns false if that is under way: requests are marked when it is answered.
 */
bool
worker_element_read_data(ElementQueue *queue, int owner)
{
	if (queue->data == QUEUE_DATA_UNREAD)
	{
		queue->data = QUEUE_DATA_ASKED;
		zk_read(owner, queue->path, on_data_read, begin_call(queue));
	}
	return queue->data != QUEUE_DATA_ASKED;
}

/* ------------------------------------------------------------------------
 * Which elements there are
 * ------------------------------------------------------------------------
 */

static void
on_listed(void *arg, const ZkReply *reply)
{
	QueueCall	   *call = arg;
	ElementQueue   *queue = call->queue;
	ElementOtherUse use = reply->outcome == ZK_OK ? other_use(reply) : ELEMENT_USE_NONE;

	queue->listing = false;
	if (call->watch && reply->watching)
		queue->watched = true;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		queue->lists_told = call->list;
		queue->is_missing = reply->outcome == ZK_NO_NODE;
		queue->listed = true;
		if (reply->outcome == ZK_OK)
			worker_element_see_data(queue, reply);
		queue->verified = reply->outcome == ZK_OK && use == ELEMENT_USE_NONE;
		if (use != ELEMENT_USE_NONE)
			worker_element_fail_all(queue, ELEMENT_OUTCOME_OTHER_USE, use);
		else
			worker_element_queue_take_listing(queue, reply);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		worker_element_fail_all(queue, ELEMENT_OUTCOME_REFUSED, reply->code);
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/* Asks for the elements: no older than what anybody knows by now. */
void
worker_element_list(ElementQueue *queue, int owner)
{
	QueueCall *call;

	if (queue->listing)
		return;
	call = begin_call(queue);
	call->list = ++queue->lists_sent;
	call->watch = worker_element_queue_has_waiters(queue);
	queue->listing = true;
	zk_sync(NULL, NULL);
	zk_list(owner, queue->path, call->watch ? ZK_WATCHED : ZK_UNWATCHED, on_listed, call);
}

/* ------------------------------------------------------------------------
 * Which of them are claimed
 * ------------------------------------------------------------------------
 */

static void
on_surveyed(void *arg, const ZkReply *reply)
{
	QueueCall	 *call = arg;
	ElementQueue *queue = call->queue;
	QueueElement *element = worker_element_queue_find(queue, call->name);

	queue->surveying--;
	if (element && reply->outcome == ZK_NO_NODE)
		element->gone = true;
	else if (element && reply->outcome == ZK_OK && reply->child_count > 0)
		element->claimed = true;
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/* A call about an element of the queue */
static QueueCall *
begin_element_call(ElementQueue *queue, const QueueElement *element)
{
	QueueCall *call = begin_call(queue);

	strlcpy(call->name, element->name, sizeof(call->name));
	return call;
}

static bool
is_free(const QueueElement *element)
{
	return !element->gone && !element->claimed && element->work == NULL;
}

/* Looks which of the first elements that seem to be free are. */
static void
survey(ElementQueue *queue, int owner)
{
	queue->contended = false;
	for (int i = queue->first; i < queue->n && queue->surveying < SURVEY; i++)
	{
		const QueueElement *element = &queue->elements[i];
		char			   *path;

		if (!is_free(element))
			continue;
		path = psprintf("%s/%s", queue->path, element->name);
		queue->surveying++;
		zk_look(owner, path, on_surveyed, begin_element_call(queue, element));
		pfree(path);
	}
}

/* A claim of somebody else's has been looked at, and is watched if it exists. */
static void
on_claim_watched(void *arg, const ZkReply *reply)
{
	QueueCall	 *call = arg;
	ElementQueue *queue = call->queue;
	QueueElement *element = worker_element_queue_find(queue, call->name);

	if (element && !reply->watching)
		worker_element_queue_unwatched(queue, element);
	if (element && reply->outcome == ZK_NO_NODE)
		element->claimed = false;
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/* Watches the claim of an element, if there is room for that. */
static void
watch_claim(ElementQueue *queue, QueueElement *element, int owner)
{
	char *claim;

	if (element->watched || !worker_element_queue_watch_claim(queue, element))
		return;
	claim = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path, element->name);
	zk_get(owner, claim, ZK_WATCHED, on_claim_watched, begin_element_call(queue, element));
	pfree(claim);
}

/* Watches the claims of the first elements that somebody else has, and looks at others later. */
static void
watch_claims(ElementQueue *queue, int owner)
{
	int	 watched = 0;
	bool all = true;

	for (int i = queue->first; i < queue->n && all; i++)
	{
		QueueElement *element = &queue->elements[i];

		if (element->gone || !element->claimed)
			continue;
		if (watched++ < CLAIM_WATCHES)
			watch_claim(queue, element, owner);
		all = element->watched;
	}
	if (!all && queue->look_at == 0)
		worker_element_look_later(queue, CLAIM_LOOK_MS);
}

/* The claims that are not watched may have ended meanwhile: looks at them, if it is time for that. */
static void
look_again(ElementQueue *queue)
{
	if (queue->look_at == 0 || zklock_now_ms() < queue->look_at)
		return;
	queue->look_at = 0;
	queue->contended = true;
	for (int i = queue->first; i < queue->n; i++)
		queue->elements[i].claimed &= queue->elements[i].watched;
}

/* ------------------------------------------------------------------------
 * Which one to try
 * ------------------------------------------------------------------------
 */

/* Is an element just being given back, or looked for, of which its session wants nothing more? */
static bool
is_coming_back(const QueueElement *element)
{
	return !element->gone && element->work && element->work->retry_at == 0 &&
		   element_state(work_request(element->work)) == ELEMENT_GIVEN_UP;
}

/*
 * Chooses an element for a request that has none.  One that is coming back is
 * waited for, in its place: who rolls back and asks again gets the same one.
 */
Candidate
worker_element_pick(ElementWork *work)
{
	ElementQueue   *queue = work->queue;
	ElementRequest *request = work_request(work);

	if (!worker_element_read_data(queue, request->pid) || queue->surveying > 0)
		return CANDIDATE_LATER;
	look_again(queue);
	if (queue->contended)
		survey(queue, request->pid);
	if (queue->surveying > 0)
		return CANDIDATE_LATER;
	while (queue->first < queue->n && queue->elements[queue->first].gone)
		queue->first++;
	for (int i = queue->first; i < queue->n; i++)
	{
		QueueElement *element = &queue->elements[i];

		if (is_coming_back(element))
			return CANDIDATE_LATER;
		if (!is_free(element))
			continue;
		element->work = work;
		strlcpy(work->candidate, element->name, sizeof(work->candidate));
		return CANDIDATE_FOUND;
	}
	if (queue->lists_told < work->needs_list ||
		(request->waiting == ELEMENT_WAIT && !queue->is_missing && !(queue->listed && queue->watched)))
	{
		worker_element_list(queue, request->pid);
		return CANDIDATE_LATER;
	}
	if (queue->is_missing)
		return CANDIDATE_NO_QUEUE;
	if (request->waiting == ELEMENT_WAIT)
		watch_claims(queue, request->pid);
	return CANDIDATE_NONE;
}
