/*
 * element_pick.h
 *		Which elements a queue has, and which of them is free for a request.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_PICK_H
#define ZKLOCK_ELEMENT_PICK_H

#include "worker/element_work.h"
#include "zk/zk_call.h"

typedef enum Candidate
{
	CANDIDATE_FOUND,   /* work->candidate */
	CANDIDATE_LATER,   /* the queue is being looked at; the request is marked then */
	CANDIDATE_NONE,	   /* there is none that is free; likewise if it waits for one */
	CANDIDATE_NO_QUEUE /* the path does not exist */
} Candidate;

extern Candidate worker_element_pick(ElementWork *work);
extern void		 worker_element_list(ElementQueue *queue, int owner);
extern void		 worker_element_see_data(ElementQueue *queue, const ZkReply *reply);
extern bool		 worker_element_read_data(ElementQueue *queue, int owner);

#endif /* ZKLOCK_ELEMENT_PICK_H */
