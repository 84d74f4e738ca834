/*
 * element_work.c
 *		What the worker keeps of requests for elements, and of their queues.
 *
 * Whatever happens to a request marks it, and each marked one is looked at once
 * in a round of the main loop (elements.c), in the order of the marks.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "worker/element_work.h"

ElementWork *worker_element_works;

static dlist_head marked = DLIST_STATIC_INIT(marked);
static int64	  retry_at = -1; /* of all requests and queues, the earliest; -1: none */

/* Prepares for requests. */
void
worker_element_work_start(void)
{
	worker_element_works = palloc0(ELEMENT_REQUESTS * sizeof(ElementWork));
}

/* Has a request looked at in this round of the main loop, or the next. */
void
worker_element_mark(ElementWork *work)
{
	if (work->marked)
		return;
	work->marked = true;
	dlist_push_tail(&marked, &work->marked_link);
}

/* Likewise all of a queue, in order of asking. */
void
worker_element_mark_all(ElementQueue *queue)
{
	dlist_iter iter;

	dlist_foreach (iter, &queue->works)
		worker_element_mark(dlist_container(ElementWork, link, iter.cur));
}

/* Takes the next that is marked out of the list; NULL if there is none. */
ElementWork *
worker_element_next_marked(void)
{
	ElementWork *work;

	if (dlist_is_empty(&marked))
		return NULL;
	work = dlist_container(ElementWork, marked_link, dlist_pop_head_node(&marked));
	work->marked = false;
	return work;
}

/* Something is to be done at that time, ms. */
static void
wake_at(int64 at)
{
	if (retry_at < 0 || at < retry_at)
		retry_at = at;
}

/* Something failed for a request that is tried again after a pause. */
void
worker_element_retry(ElementWork *work, int64 pause_ms)
{
	work->retry_at = zklock_now_ms() + pause_ms;
	wake_at(work->retry_at);
}

/* A queue has claims of which nobody tells when they end: its requests are marked after a pause. */
void
worker_element_look_later(ElementQueue *queue, int64 pause_ms)
{
	queue->look_at = zklock_now_ms() + pause_ms;
	wake_at(queue->look_at);
}

/* When worker_element_retry_due() wants to be called, ms; or -1. */
int64
worker_element_retry_at(void)
{
	return retry_at;
}

/* Marks the requests whose pause is over, or that of their queue. */
void
worker_element_retry_due(void)
{
	int64 now = zklock_now_ms();

	if (retry_at < 0 || now < retry_at)
		return;
	retry_at = -1;
	for (int i = 0; i < ELEMENT_REQUESTS; i++)
	{
		ElementWork *work = &worker_element_works[i];

		if (work->queue == NULL)
			continue;
		if (work->retry_at != 0 && work->retry_at <= now)
		{
			work->retry_at = 0;
			worker_element_mark(work);
		}
		else if (work->retry_at != 0)
			wake_at(work->retry_at);
		if (work->queue->look_at != 0 && work->queue->look_at <= now)
			worker_element_mark(work);
		else if (work->queue->look_at != 0)
			wake_at(work->queue->look_at);
	}
}

/* Forgets what has been read of a request's candidate. */
void
worker_element_forget(ElementWork *work)
{
	if (work->data)
		pfree(work->data);
	work->data = NULL;
	work->length = 0;
	work->fetched = false;
}

/* Nothing can be done about the queue: answers all for whom nothing is decided. */
void
worker_element_fail_all(ElementQueue *queue, ElementOutcome outcome, int code)
{
	dlist_iter iter;

	dlist_foreach (iter, &queue->works)
	{
		ElementWork	   *work = dlist_container(ElementWork, link, iter.cur);
		ElementRequest *request = work_request(work);

		if (element_state(request) == ELEMENT_WAITING)
			(void) element_answer(request, outcome, code);
		worker_element_mark(work);
	}
}
