/*
 * element_queue.c
 *		A queue: which elements it has, and which of them are free.
 *
 * Requests of one queue share what is known of it: a listing, which elements are
 * ours to try, and which somebody else has claimed.  Nothing of that has to be
 * true when it is used.  An element that is tried may be gone or claimed by
 * then, and what ZooKeeper says to that counts; that there is none, on the other
 * hand, is said only after a listing that was made when the request had come.
 *
 *	listing		one at a time, for all.  While somebody waits for an element it sets
 *				a child watch, which is removed when nobody does any more.
 *	survey		where somebody else takes elements too, the first ones may all be
 *				claimed.  When we have met one that is, the next SURVEY are looked at
 *				together: claimed is what has a child.
 *	claims		whoever waits while elements are claimed is to have one that is given
 *				back, of which the queue's children tell nothing.  So the claims
 *				of the first elements are watched, as far as CLAIM_WATCHES and
 *				CLAIM_BYTES go.  If there are more, they are looked at every
 *				CLAIM_LOOK_MS.
 *
 * A path with the record of zk_claim() in its data is no queue.  How long the data
 * are is told by each listing, and each look before an offer; only if there are any
 * are they read, and nothing is tried before that is answered.
 *
 * Watches and claims are charged to their session.  What all of them have must
 * fit beside the engine's in one packet (share.h, traps 3 and 4).
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "queue/engine.h"
#include "recipes/claim_record.h"
#include "shared/clock.h"
#include "utils/hsearch.h"
#include "worker/element_queue.h"
#include "zk/zk_call.h"

#define SURVEY 64
#define CLAIM_WATCHES 16
#define CLAIM_LOOK_MS 1000

/* Bytes of paths: of all requests, of one session's, and of watched claims */
#define WORK_BYTES (100 * 1024)
#define SESSION_BYTES (WORK_BYTES / 8)
#define CLAIM_BYTES (20 * 1024)

/* An argument of a call about a queue, or about one of its elements */
typedef struct QueueCall
{
	ElementQueue *queue;
	uint64		  list;	 /* number of the listing */
	bool		  watch; /* it sets one */
	ElementName	  element;
	char		  name[ELEMENT_NAME_SIZE];
} QueueCall;

static HTAB	 *queues;
static size_t work_bytes;  /* of all requests */
static size_t claim_bytes; /* of watched claims */

/* Prepares for queues. */
void
worker_element_queue_start(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(ElementQueue)};

	queues = hash_create("zklock element queues", 64, &ctl, HASH_ELEM | COMPAT_HASH_STRINGS);
}

/* What a watch of a claim, or a claim, takes of the packets' bytes */
static size_t
claim_size(const ElementQueue *queue)
{
	return engine.chroot_len + strlen(queue->path) + ELEMENT_NAME_SIZE + sizeof(ELEMENT_CLAIM) + 8;
}

/* ------------------------------------------------------------------------
 * Elements
 * ------------------------------------------------------------------------
 */

/* The element of a name; NULL if it is not listed, or gone. */
static QueueElement *
find_element(const ElementQueue *queue, const char *name)
{
	ElementName	  key = {.name = name};
	QueueElement *found;

	if (queue->n == 0 || !element_name_read(name, &key.number))
		return NULL;
	found = bsearch(&key, queue->elements, queue->n, sizeof(QueueElement), element_name_compare);
	return found && !found->gone ? found : NULL;
}

/* The watch of an element's claim has fired, or is removed. */
static void
claim_unwatched(const ElementQueue *queue, QueueElement *element)
{
	if (element->watched)
		claim_bytes -= claim_size(queue);
	element->watched = false;
}

static void
forget_elements(ElementQueue *queue)
{
	for (int i = 0; i < queue->n; i++)
		claim_unwatched(queue, &queue->elements[i]);
	if (queue->elements)
		pfree(queue->elements);
	queue->elements = NULL;
	queue->n = 0;
	queue->first = 0;
}

/* Makes a copy of a name that its element points to itself. */
static void
set_key(QueueElement *element, const ElementName *key)
{
	strlcpy(element->name, key->name, sizeof(element->name));
	element->key.number = key->number;
	element->key.name = element->name;
}

/* Takes over what was known of an element, if it still means anything. */
static void
inherit(ElementQueue *queue, QueueElement *element)
{
	QueueElement *old = find_element(queue, element->name);

	if (old == NULL || !old->watched)
		return;
	element->watched = true;
	element->claimed = old->claimed;
	claim_bytes += claim_size(queue);
}

/* Takes in a listing. */
static void
take_listing(ElementQueue *queue, const ZkReply *reply)
{
	ElementName	 *names = MemoryContextAllocHuge(CurrentMemoryContext,
												 Max(reply->nchildren, 1) * sizeof(ElementName));
	int			  n = element_name_sort(reply->children, reply->nchildren, names);
	QueueElement *elements =
		MemoryContextAllocHuge(CurrentMemoryContext, Max(n, 1) * sizeof(QueueElement));
	dlist_iter iter;

	memset(elements, 0, Max(n, 1) * sizeof(QueueElement));
	for (int i = 0; i < n; i++)
	{
		set_key(&elements[i], &names[i]);
		inherit(queue, &elements[i]);
	}
	pfree(names);
	forget_elements(queue);
	queue->elements = elements;
	queue->n = n;
	dlist_foreach (iter, &queue->works)
	{
		ElementWork	 *work = dlist_container(ElementWork, link, iter.cur);
		QueueElement *element = find_element(queue, work->candidate);

		if (element)
			element->work = work;
	}
}

/* ------------------------------------------------------------------------
 * Calls about a queue
 * ------------------------------------------------------------------------
 */

static QueueCall *
begin_call(ElementQueue *queue)
{
	QueueCall *call = palloc0(sizeof(QueueCall));

	call->queue = queue;
	queue->calls++;
	return call;
}

static char *
element_path(const ElementQueue *queue, const char *name)
{
	return psprintf("%s/%s", queue->path, name);
}

/* Is anybody to wait for an element? */
static bool
has_waiters(ElementQueue *queue)
{
	dlist_iter iter;

	dlist_foreach (iter, &queue->works)
	{
		ElementRequest *request = work_request(dlist_container(ElementWork, link, iter.cur));

		if (request->waiting == ELEMENT_WAIT && element_state(request) == ELEMENT_WAITING)
			return true;
	}
	return false;
}

/* Forgets a queue that no request and no call is about. */
static void
forget_if_idle(ElementQueue *queue)
{
	if (!dlist_is_empty(&queue->works) || queue->calls > 0)
		return;
	worker_element_queue_rest(queue);
	forget_elements(queue);
	hash_search(queues, queue->path, HASH_REMOVE, NULL);
}

/* A call about the queue has been answered.  The queue may be gone afterwards. */
void
worker_element_queue_call_ends(ElementQueue *queue)
{
	queue->calls--;
	worker_element_mark_all(queue);
	forget_if_idle(queue);
}

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
worker_element_queue_see_data(ElementQueue *queue, const ZkReply *reply)
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
worker_element_queue_read_data(ElementQueue *queue, int owner)
{
	if (queue->data == QUEUE_DATA_UNREAD)
	{
		queue->data = QUEUE_DATA_ASKED;
		zk_read(owner, queue->path, on_data_read, begin_call(queue));
	}
	return queue->data != QUEUE_DATA_ASKED;
}

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
			worker_element_queue_see_data(queue, reply);
		queue->verified = reply->outcome == ZK_OK && use == ELEMENT_USE_NONE;
		if (use != ELEMENT_USE_NONE)
			worker_element_fail_all(queue, ELEMENT_OUTCOME_OTHER_USE, use);
		else
			take_listing(queue, reply);
	}
	else if (reply->outcome != ZK_UNKNOWN)
		worker_element_fail_all(queue, ELEMENT_OUTCOME_REFUSED, reply->code);
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/* Asks for the elements: no older than what anybody knows by now. */
void
worker_element_queue_list(ElementQueue *queue, int owner)
{
	QueueCall *call;

	if (queue->listing)
		return;
	call = begin_call(queue);
	call->list = ++queue->lists_sent;
	call->watch = has_waiters(queue);
	queue->listing = true;
	zk_sync(NULL, NULL);
	zk_list(owner, queue->path, call->watch ? ZK_WATCHED : ZK_UNWATCHED, on_listed, call);
}

static void
on_surveyed(void *arg, const ZkReply *reply)
{
	QueueCall	 *call = arg;
	ElementQueue *queue = call->queue;
	QueueElement *element = find_element(queue, call->name);

	queue->surveying--;
	if (element && reply->outcome == ZK_NO_NODE)
		element->gone = true;
	else if (element && reply->outcome == ZK_OK && reply->child_count > 0)
		element->claimed = true;
	pfree(call);
	worker_element_queue_call_ends(queue);
}

/* Calls "ask" for an element, or for its claim. */
static void
ask_about(ElementQueue *queue, QueueElement *element, int owner, ZkReplyHandler handler)
{
	QueueCall *call = begin_call(queue);
	char	  *path = element_path(queue, element->name);

	strlcpy(call->name, element->name, sizeof(call->name));
	if (handler == on_surveyed)
		zk_look(owner, path, handler, call);
	else
	{
		char *claim = psprintf("%s/" ELEMENT_CLAIM, path);

		zk_get(owner, claim, ZK_WATCHED, handler, call);
		pfree(claim);
	}
	pfree(path);
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
		if (!is_free(&queue->elements[i]))
			continue;
		queue->surveying++;
		ask_about(queue, &queue->elements[i], owner, on_surveyed);
	}
}

/* A claim of somebody else's has been looked at, and is watched if it exists. */
static void
on_claim_watched(void *arg, const ZkReply *reply)
{
	QueueCall	 *call = arg;
	ElementQueue *queue = call->queue;
	QueueElement *element = find_element(queue, call->name);

	if (element && !reply->watching)
		claim_unwatched(queue, element);
	if (element && reply->outcome == ZK_NO_NODE)
		element->claimed = false;
	pfree(call);
	worker_element_queue_call_ends(queue);
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
		if (!element->watched && watched < CLAIM_WATCHES && claim_bytes + claim_size(queue) <= CLAIM_BYTES)
		{
			element->watched = true;
			claim_bytes += claim_size(queue);
			ask_about(queue, element, owner, on_claim_watched);
		}
		watched++;
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
 * Requests
 * ------------------------------------------------------------------------
 */

/* Has the session of a request its share, with so many bytes more? */
static bool
has_room(const ElementWork *work, size_t bytes)
{
	int	   pid = work_request(work)->pid;
	size_t sum = bytes;

	for (int i = 0; i < ELEMENT_REQUESTS; i++)
	{
		if (worker_element_works[i].queue && work_request(&worker_element_works[i])->pid == pid)
			sum += worker_element_works[i].bytes;
	}
	return sum <= SESSION_BYTES && work_bytes + bytes <= WORK_BYTES;
}

/*
 * What a request takes of the packets at most: the watch of a claim of its own, and
 * that of the children if it waits.  Receipts are few and short.
 */
static size_t
bytes_needed(const ElementQueue *queue, const ElementRequest *request)
{
	size_t bytes = request->waiting == ELEMENT_WAIT ? claim_size(queue) : 0;

	return bytes + (request->action == ELEMENT_TAKE ? claim_size(queue) : 0);
}

/* Takes a request up.  Returns false if there is no room for its watches and nodes. */
bool
worker_element_queue_join(ElementWork *work)
{
	const char	 *path = work_request(work)->path;
	bool		  found;
	ElementQueue *queue = hash_search(queues, path, HASH_ENTER, &found);
	bool		  room;

	if (!found)
	{
		memset((char *) queue + sizeof(queue->path), 0, sizeof(ElementQueue) - sizeof(queue->path));
		dlist_init(&queue->works);
	}
	work->bytes = bytes_needed(queue, work_request(work));
	room = has_room(work, work->bytes);
	work->queue = queue;
	work->calls = 0;
	work->retry_at = 0;
	work->needs_list = queue->lists_sent + 1;
	work->candidate[0] = '\0';
	work->attempts = 0;
	work->sent_bytes = 0;
	work_bytes += work->bytes;
	dlist_push_tail(&queue->works, &work->link);
	return room;
}

/* Nothing is left of a request. */
void
worker_element_queue_leave(ElementWork *work)
{
	ElementQueue *queue = work->queue;

	worker_element_queue_drop(work, CANDIDATE_FREE);
	work_bytes -= work->bytes;
	work->bytes = 0;
	work->queue = NULL;
	dlist_delete(&work->link);
	worker_element_queue_rest(queue);
	forget_if_idle(queue);
}

/* Is an element of ours just being given back, or settled, for a session that does not wait for that? */
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
worker_element_queue_pick(ElementWork *work)
{
	ElementQueue   *queue = work->queue;
	ElementRequest *request = work_request(work);

	if (!worker_element_queue_read_data(queue, request->pid) || queue->surveying > 0)
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
		worker_element_queue_list(queue, request->pid);
		return CANDIDATE_LATER;
	}
	if (queue->is_missing)
		return CANDIDATE_NO_QUEUE;
	if (request->waiting == ELEMENT_WAIT)
		watch_claims(queue, request->pid);
	return CANDIDATE_NONE;
}

/* A request has its candidate no more; what it knows of it is forgotten. */
void
worker_element_queue_drop(ElementWork *work, CandidateEnd end)
{
	ElementQueue *queue = work->queue;
	QueueElement *element = find_element(queue, work->candidate);

	worker_element_forget(work);
	work->candidate[0] = '\0';
	if (element == NULL || element->work != work)
		return;
	element->work = NULL;
	element->gone = end == CANDIDATE_GONE;
	element->claimed = end == CANDIDATE_CLAIMED;
	if (end == CANDIDATE_CLAIMED)
		queue->contended = true;
	worker_element_mark_all(queue);
}

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

/* Removes the watches of a queue if nobody waits for its elements any more. */
void
worker_element_queue_rest(ElementQueue *queue)
{
	if (has_waiters(queue) || queue->listing)
		return;
	if ((queue->watched || queue->maybe_watched) && zk_client_connected())
		zk_unwatch_children(queue->path);
	queue->watched = false;
	queue->maybe_watched = false;
	for (int i = 0; i < queue->n; i++)
	{
		QueueElement *element = &queue->elements[i];

		if (element->watched && element->work == NULL)
		{
			char *claim = psprintf("%s/%s/" ELEMENT_CLAIM, queue->path, element->name);

			zk_unwatch_data(claim);
			pfree(claim);
			element->claimed = false;
		}
		claim_unwatched(queue, element);
	}
}

/* A watch has fired on the claim of an element.  Returns whose claim it is if it is ours. */
static ElementWork *
claim_changed(ZkWatchEvent event, char *path)
{
	char		 *claim = strrchr(path, '/');
	char		 *name;
	ElementQueue *queue;
	QueueElement *element;

	if (claim == path || strcmp(claim + 1, ELEMENT_CLAIM) != 0)
		return NULL;
	*claim = '\0';
	name = strrchr(path, '/');
	*name++ = '\0';
	queue = hash_search(queues, path, HASH_FIND, NULL);
	element = queue ? find_element(queue, name) : NULL;
	if (element == NULL)
		return NULL;
	claim_unwatched(queue, element);
	if (event == ZK_WATCH_DELETED)
		element->claimed = false;
	worker_element_mark_all(queue);
	return element->work;
}

/*
 * A watch has fired, perhaps on a queue or on a claim.  Returns the request whose
 * claim it was on, or NULL.
 */
ElementWork *
worker_element_queue_watch(ZkWatchEvent event, const char *path)
{
	ElementQueue *queue =
		strlen(path) <= ZKLOCK_MAX_PATH ? hash_search(queues, path, HASH_FIND, NULL) : NULL;
	char		*copy;
	ElementWork *work;

	if (queue && event != ZK_WATCH_CHANGED)
	{
		queue->watched = false;
		queue->listed = false;
		worker_element_mark_all(queue);
	}
	copy = pstrdup(path);
	work = claim_changed(event, copy);
	pfree(copy);
	return work;
}

/*
 * A connection stands, perhaps another handle's, which has no watches: what has
 * been read is read again.
 */
void
worker_element_queues_connected(void)
{
	HASH_SEQ_STATUS status;
	ElementQueue   *queue;

	hash_seq_init(&status, queues);
	while ((queue = hash_seq_search(&status)) != NULL)
	{
		queue->maybe_watched |= queue->watched;
		queue->watched = false;
		queue->listed = false;
		for (int i = 0; i < queue->n; i++)
			claim_unwatched(queue, &queue->elements[i]);
		worker_element_mark_all(queue);
	}
}
