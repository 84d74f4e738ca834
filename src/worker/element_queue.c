/*
 * element_queue.c
 *		What the worker knows of a queue, and whose requests are about it.
 *
 * Requests of one queue share what is known of it: a listing, which elements are
 * ours to try, and which somebody else has claimed.  Nothing of that has to be
 * true when it is used.  An element that is tried may be gone or claimed by
 * then, and what ZooKeeper says to that counts.
 *
 * Watches tell of changes: one on the children while somebody waits for an element,
 * and some on claims (element_pick.c).  They are removed when nobody waits any more.
 * Watches and claims are charged to their session.  What all of them have must
 * fit beside the engine's in one packet (share.h, traps 3 and 4).
 *
 * A queue is known for as long as a request or a call is about it.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "queue/engine.h"
#include "utils/hsearch.h"
#include "worker/element_queue.h"
#include "zk/zk_call.h"

/* Bytes of paths: of all requests, of one session's, and of watched claims */
#define WORK_BYTES (100 * 1024)
#define SESSION_BYTES (WORK_BYTES / 8)
#define CLAIM_BYTES (20 * 1024)

static HTAB	 *queues;
static size_t work_bytes;  /* of all requests */
static size_t claim_bytes; /* of watched claims */

/* Prepares for queues. */
void
worker_element_queue_start(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(ElementQueue)};

	queues = hash_create("zklock element queues", 64, &ctl, HASH_ELEM | HASH_STRINGS);
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
QueueElement *
worker_element_queue_find(const ElementQueue *queue, const char *name)
{
	ElementName	  key = {.name = name};
	QueueElement *found;

	if (queue->n == 0 || !element_name_read(name, &key.number))
		return NULL;
	found = bsearch(&key, queue->elements, queue->n, sizeof(QueueElement), element_name_compare);
	return found && !found->gone ? found : NULL;
}

/* A watch is going to be set on an element's claim.  Returns false if there is no room for it. */
bool
worker_element_queue_watch_claim(const ElementQueue *queue, QueueElement *element)
{
	if (claim_bytes + claim_size(queue) > CLAIM_BYTES)
		return false;
	element->watched = true;
	claim_bytes += claim_size(queue);
	return true;
}

/* The watch of an element's claim has fired, or is removed. */
void
worker_element_queue_unwatched(const ElementQueue *queue, QueueElement *element)
{
	if (element->watched)
		claim_bytes -= claim_size(queue);
	element->watched = false;
}

static void
forget_elements(ElementQueue *queue)
{
	for (int i = 0; i < queue->n; i++)
		worker_element_queue_unwatched(queue, &queue->elements[i]);
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
	QueueElement *old = worker_element_queue_find(queue, element->name);

	if (old == NULL || !old->watched)
		return;
	element->watched = true;
	element->claimed = old->claimed;
	claim_bytes += claim_size(queue);
}

/* Takes in a listing. */
void
worker_element_queue_take_listing(ElementQueue *queue, const ZkReply *reply)
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
		QueueElement *element = worker_element_queue_find(queue, work->candidate);

		if (element)
			element->work = work;
	}
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

/* Is anybody to wait for an element? */
bool
worker_element_queue_has_waiters(ElementQueue *queue)
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

/* Removes the watches of a queue if nobody waits for its elements any more. */
void
worker_element_queue_rest(ElementQueue *queue)
{
	if (worker_element_queue_has_waiters(queue) || queue->listing)
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
		worker_element_queue_unwatched(queue, element);
	}
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

/* A request has its candidate no more; what it knows of it is forgotten. */
void
worker_element_queue_drop(ElementWork *work, CandidateEnd end)
{
	ElementQueue *queue = work->queue;
	QueueElement *element = worker_element_queue_find(queue, work->candidate);

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

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

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
	element = queue ? worker_element_queue_find(queue, name) : NULL;
	if (element == NULL)
		return NULL;
	worker_element_queue_unwatched(queue, element);
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
			worker_element_queue_unwatched(queue, &queue->elements[i]);
		worker_element_mark_all(queue);
	}
}
