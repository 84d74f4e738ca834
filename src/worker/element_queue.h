/*
 * element_queue.h
 *		What the worker knows of a queue, and whose requests are about it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_QUEUE_H
#define ZKLOCK_ELEMENT_QUEUE_H

#include "worker/element_work.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

/* What became of a candidate */
typedef enum CandidateEnd
{
	CANDIDATE_FREE,	  /* it is as it was */
	CANDIDATE_GONE,	  /* it does not exist any more */
	CANDIDATE_CLAIMED /* somebody else has it */
} CandidateEnd;

extern void			 worker_element_queue_start(void);
extern bool			 worker_element_queue_join(ElementWork *work);
extern void			 worker_element_queue_leave(ElementWork *work);
extern void			 worker_element_queue_drop(ElementWork *work, CandidateEnd end);
extern void			 worker_element_queue_call_ends(ElementQueue *queue);
extern void			 worker_element_queue_rest(ElementQueue *queue);
extern bool			 worker_element_queue_has_waiters(ElementQueue *queue);
extern QueueElement *worker_element_queue_find(const ElementQueue *queue, const char *name);
extern void worker_element_queue_take_listing(ElementQueue *queue, const ZkReply *reply);
extern bool worker_element_queue_watch_claim(const ElementQueue *queue, QueueElement *element);
extern void worker_element_queue_unwatched(const ElementQueue *queue, QueueElement *element);
extern ElementWork *worker_element_queue_watch(ZkWatchEvent event, const char *path);
extern void			worker_element_queues_connected(void);

#endif /* ZKLOCK_ELEMENT_QUEUE_H */
