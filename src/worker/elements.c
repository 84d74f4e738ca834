/*
 * elements.c
 *		How the worker sees to requests for elements of queues.
 *
 * shared/element.c draws the states of a request; each is looked at here when
 * something has happened to it, and makes one step.  Nothing is asked while an
 * answer is outstanding, and nothing before what was noted in "claim" and
 * "receipt" is settled: so it does not matter at which point a connection, a
 * worker, or a backend was lost.
 *
 *		element_work.c		what is kept of a request
 *		element_queue.c		what is known of a queue
 *		element_pick.c		which elements there are, and which are free
 *		element_root.c		paths that do not exist yet
 *		element_calls.c		what is done for a request, and in which files
 *
 * When the ZooKeeper session ends its claims and receipts are gone.  What is held
 * is lost then.  What was committed and not yet removed will be taken again, by
 * whomever: the log says so.  Whether something that was sent has been done cannot
 * be known, and its session is told so.
 *
 * Runs in: the worker.  shared/element.h says how requests are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"
#include "shared/clock.h"
#include "worker/element_claim.h"
#include "worker/element_fetch.h"
#include "worker/element_offer.h"
#include "worker/element_pick.h"
#include "worker/element_queue.h"
#include "worker/element_receipt.h"
#include "worker/element_root.h"
#include "worker/elements.h"

/* ------------------------------------------------------------------------
 * What comes next for a request
 * ------------------------------------------------------------------------
 */

/* Gets an element for a request that has none, or says that there is none. */
static void
seek(ElementWork *work)
{
	ElementRequest *request = work_request(work);

	if (work->queue->making)
		return;
	if (work->candidate[0] != '\0')
		worker_element_queue_drop(work, CANDIDATE_FREE);
	switch (worker_element_pick(work))
	{
		case CANDIDATE_FOUND:
			worker_element_try(work);
			break;
		case CANDIDATE_LATER:
			break;
		case CANDIDATE_NONE:
			if (request->waiting == ELEMENT_NO_WAIT)
				(void) element_answer(request, ELEMENT_OUTCOME_NONE, 0);
			break;
		case CANDIDATE_NO_QUEUE:
			if (request->waiting == ELEMENT_NO_WAIT)
				(void) element_answer(request, ELEMENT_OUTCOME_NONE, 0);
			else
				worker_element_root_make(work->queue, request);
			break;
	}
}

/* Does anybody of this server hold, or wait for, what is at that path? */
static bool
is_wanted(const Path *path)
{
	dlist_iter iter;

	if (!dlist_is_empty(unconstify(dlist_head *, &path->arrivals)))
		return true;
	dlist_foreach (iter, unconstify(dlist_head *, &path->runs))
	{
		if (!dlist_is_empty(&dlist_container(Run, link, iter.cur)->queue))
			return true;
	}
	return false;
}

/* A request for which nothing is decided */
static void
go_on_waiting(ElementWork *work)
{
	ElementRequest *request = work_request(work);

	Path *lock = path_find(request->path);

	if (lock && is_wanted(lock))
		(void) element_answer(request, ELEMENT_OUTCOME_OTHER_USE,
							  lock->recipe == &election_recipe ? ELEMENT_USE_ELECTION
															   : ELEMENT_USE_LOCK);
	else if (lock)
		worker_element_retry(work, ELEMENT_LOOK_MS);
	else if (request->claim == TRACE_THERE)
		worker_element_return(work);
	else if (request->action == ELEMENT_OFFER)
	{
		if (!work->queue->making)
			worker_element_offer(work);
	}
	else
		seek(work);
}

/* Nothing is left but to undo, or to finish, what is noted. */
static void
clear_away(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	ElementState	state = element_state(request);

	if (request->receipt == TRACE_THERE)
		worker_element_tear_receipt(work);
	else if (request->claim == TRACE_THERE && state == ELEMENT_COMMITTED)
		worker_element_finish(work);
	else if (request->claim == TRACE_THERE)
		worker_element_return(work);
	else if (state == ELEMENT_COMMITTED || state == ELEMENT_GIVEN_UP)
	{
		worker_element_queue_leave(work);
		element_free(request);
	}
}

static void
attend(ElementWork *work)
{
	ElementRequest *request = work_request(work);
	ElementState	state = element_state(request);

	if (work->queue == NULL)
		return;
	if (state == ELEMENT_FETCHING && work->fetched)
	{
		worker_element_deliver(work);
		return;
	}
	if (work->calls > 0 || work->retry_at > zklock_now_ms())
		return;

	/* Without a connection, only what has left nothing behind can be freed. */
	if (!zk_client_connected())
	{
		if (state == ELEMENT_GIVEN_UP && request->claim == TRACE_NONE && request->receipt == TRACE_NONE)
			clear_away(work);
		return;
	}
	if (request->receipt == TRACE_UNSURE)
	{
		worker_element_settle_receipt(work);
		return;
	}
	if (request->claim == TRACE_UNSURE)
	{
		worker_element_settle_claim(work);
		return;
	}
	switch (state)
	{
		case ELEMENT_WAITING:
			go_on_waiting(work);
			break;
		case ELEMENT_HELD:
			worker_element_check(work);
			break;
		case ELEMENT_DONE:
		case ELEMENT_LOST:
		case ELEMENT_COMMITTED:
		case ELEMENT_GIVEN_UP:
			clear_away(work);
			break;
		default:
			break; /* it is the backend's turn, or that of a reply */
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

static ElementRequest *arrived[ELEMENT_REQUESTS];
static int			   narrived;

static int
compare_numbers(const void *a, const void *b)
{
	uint64 x = (*(ElementRequest *const *) a)->number;
	uint64 y = (*(ElementRequest *const *) b)->number;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* A backend has marked a request. */
static void
visit(ElementRequest *request)
{
	ElementWork *work = &worker_element_works[element_index(request)];
	ElementState state = element_state(request);

	if (work->queue)
		worker_element_mark(work);
	else if (state != ELEMENT_FREE && state != ELEMENT_CLAIMED)
		arrived[narrived++] = request;
}

/* Takes up the requests that have come, in the order of asking. */
static void
take_up(void)
{
	qsort(arrived, narrived, sizeof(arrived[0]), compare_numbers);
	for (int i = 0; i < narrived; i++)
	{
		ElementRequest *request = arrived[i];
		ElementWork	   *work = &worker_element_works[element_index(request)];

		(void) element_step(request, ELEMENT_ASKED, ELEMENT_WAITING);
		if (!worker_element_queue_join(work) && element_state(request) == ELEMENT_WAITING)
			(void) element_answer(request, ELEMENT_OUTCOME_SESSION_FULL, 0);
		worker_element_mark(work);
	}
	narrived = 0;
}

/* Does what comes next for all requests to which something has happened. */
void
worker_elements_attend(void)
{
	ElementWork *work;

	worker_element_retry_due();
	element_visit_dirty(visit);
	take_up();

	/* What is marked is looked at when what we read is no older than the connection. */
	if (zk_client_connected() && !engine.synced)
		return;
	while ((work = worker_element_next_marked()) != NULL)
	{
		ElementQueue *queue = work->queue;

		attend(work);
		if (queue && work->queue == queue)
			worker_element_queue_rest(queue);
	}
}

/* When worker_elements_attend() wants to be called, ms; or -1. */
int64
worker_elements_next_wakeup(void)
{
	return worker_element_retry_at();
}

/* A request that an earlier worker has left: what was in its memory only is done again. */
static void
adopt(ElementRequest *request)
{
	ElementWork *work = &worker_element_works[element_index(request)];

	(void) element_step(request, ELEMENT_FOUND, ELEMENT_WAITING);
	(void) element_step(request, ELEMENT_FETCHING, ELEMENT_WAITING);

	/* What is noted as there may be gone by now. */
	if (request->claim == TRACE_THERE)
		request->claim = TRACE_UNSURE;
	if (element_state(request) == ELEMENT_SENT)
		request->receipt = TRACE_UNSURE;
	visit(request);
	take_up();
	if (request->claim != TRACE_NONE)
		strlcpy(work->candidate, request->name, sizeof(work->candidate));
}

/* Prepares for requests, and takes over those of an earlier worker. */
void
worker_elements_start(void)
{
	worker_element_work_start();
	worker_element_queue_start();
	element_visit_all(adopt);
}

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

/* A watch has fired. */
void
worker_elements_watch(ZkWatchEvent event, const char *path)
{
	ElementWork *work = worker_element_queue_watch(event, path);

	if (work == NULL || work_request(work)->claim != TRACE_THERE)
		return;
	if (event == ZK_WATCH_DELETED)
	{
		ElementState state = element_state(work_request(work));

		/* Else we have deleted it ourselves. */
		if (state == ELEMENT_FOUND || state == ELEMENT_FETCHING || state == ELEMENT_HELD)
			worker_element_claim_lost(work);
	}
	else if (event == ZK_WATCH_CHANGED)
		worker_element_watch_claim(work);
}

/* The session in which a request has made nodes is over. */
static void
end_session_of(ElementRequest *request)
{
	if (element_state(request) == ELEMENT_COMMITTED && request->claim != TRACE_NONE)
		ereport(WARNING,
				(errmsg("element \"%s\" of ZooKeeper queue \"%s\" was taken by a transaction that committed, and may not have been removed",
						request->name, request->path),
				 errdetail("The ZooKeeper session ended first. If the element is still there it is taken again, with the same token.")));
	request->claim = TRACE_NONE;
	request->receipt = TRACE_NONE;
	(void) element_lose(request);
	if (element_state(request) == ELEMENT_SENT)
		(void) element_answer(request, ELEMENT_OUTCOME_UNCERTAIN, 0);
	(void) element_step(request, ELEMENT_FOUND, ELEMENT_WAITING);
	(void) element_step(request, ELEMENT_FETCHING, ELEMENT_WAITING);
	worker_element_queue_drop(&worker_element_works[element_index(request)], CANDIDATE_FREE);
	worker_element_mark(&worker_element_works[element_index(request)]);
}

static void
reconnect(ElementRequest *request)
{
	ElementWork *work = &worker_element_works[element_index(request)];

	if (work->queue == NULL)
		return;
	if ((request->claim != TRACE_NONE || request->receipt != TRACE_NONE) &&
		request->session != engine.session_id)
		end_session_of(request);

	/* Another handle has no watches. */
	else if (request->claim == TRACE_THERE)
		request->claim = TRACE_UNSURE;
	worker_element_mark(work);
}

/* A connection stands, of the session before or of a new one. */
void
worker_elements_connected(void)
{
	worker_element_queues_connected();
	element_visit_all(reconnect);
}

static void
end_session_if_known(ElementRequest *request)
{
	if (worker_element_works[element_index(request)].queue)
		end_session_of(request);
}

/* The session is over, and all its nodes with it. */
void
worker_elements_session_ended(void)
{
	element_visit_all(end_session_if_known);
}

static int refused_code;

static void
refuse(ElementRequest *request)
{
	ElementState state = element_state(request);

	if (state == ELEMENT_ASKED || state == ELEMENT_WAITING)
		(void) element_answer(request, ELEMENT_OUTCOME_REFUSED, refused_code);
}

/* ZooKeeper refuses our credentials: so are all for whom nothing is decided. */
void
worker_elements_refused(int code)
{
	refused_code = code;
	element_visit_all(refuse);
}

/* ------------------------------------------------------------------------
 * The end
 * ------------------------------------------------------------------------
 */

static bool found_in_use;
static bool found_unsettled;

static void
note_use(ElementRequest *request)
{
	ElementState state = element_state(request);

	found_in_use |= state != ELEMENT_COMMITTED && state != ELEMENT_GIVEN_UP;
	found_unsettled |= state == ELEMENT_COMMITTED;
}

/* Has every backend given its requests back? */
bool
worker_elements_released(void)
{
	found_in_use = false;
	element_visit_all(note_use);
	return !found_in_use;
}

/* Are all elements gone that committed transactions have taken? */
bool
worker_elements_settled(void)
{
	found_unsettled = false;
	element_visit_all(note_use);
	return !found_unsettled;
}
