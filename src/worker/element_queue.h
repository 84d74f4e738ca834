/*
 * element_queue.h
 *		A queue: which elements it has, and which of them are free.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_QUEUE_H
#define ZKLOCK_ELEMENT_QUEUE_H

#include "worker/element_work.h"
#include "zk/zk_call_record.h"
#include "zk/zk_client.h"

typedef enum Candidate
{
	CANDIDATE_FOUND,   /* work->candidate */
	CANDIDATE_LATER,   /* the queue is being looked at; the request is marked then */
	CANDIDATE_NONE,	   /* there is none that is free; likewise if it waits for one */
	CANDIDATE_NO_QUEUE /* the path does not exist */
} Candidate;

/* What became of a candidate */
typedef enum CandidateEnd
{
	CANDIDATE_FREE,	  /* it is as it was */
	CANDIDATE_GONE,	  /* it does not exist any more */
	CANDIDATE_CLAIMED /* somebody else has it */
} CandidateEnd;

extern void			worker_element_queue_start(void);
extern bool			worker_element_queue_join(ElementWork *work);
extern void			worker_element_queue_leave(ElementWork *work);
extern Candidate	worker_element_queue_pick(ElementWork *work);
extern void			worker_element_queue_drop(ElementWork *work, CandidateEnd end);
extern void			worker_element_queue_list(ElementQueue *queue, int owner);
extern void			worker_element_queue_see_data(ElementQueue *queue, const ZkReply *reply);
extern bool			worker_element_queue_read_data(ElementQueue *queue, int owner);
extern void			worker_element_queue_call_ends(ElementQueue *queue);
extern void			worker_element_queue_rest(ElementQueue *queue);
extern ElementWork *worker_element_queue_watch(ZkWatchEvent event, const char *path);
extern void			worker_element_queues_connected(void);

#endif /* ZKLOCK_ELEMENT_QUEUE_H */
