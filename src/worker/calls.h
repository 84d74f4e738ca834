/*
 * calls.h
 *		How the worker makes sessions' calls to ZooKeeper, and watches for those that seek.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CALLS_H
#define ZKLOCK_CALLS_H

#include "shared/call.h"

extern void worker_calls_start(void);
extern void worker_calls_attend(void);
extern void worker_calls_connected(void);
extern void worker_calls_at_exit(void);
extern bool worker_calls_in_doubt(void);

/* question.c: the operations of a question, sent together */
typedef struct Operation Operation;
typedef void (*QuestionDone)(const CallSlot *slot);

typedef struct Question
{
	CallSlot	 *slot;
	MemoryContext context; /* has the operations; NULL if this worker has not sent it */
	Operation	 *operations;
	int			  pending; /* calls that are not answered */
	bool		  lost;	   /* one was not, and never will be */
	QuestionDone  done;
} Question;

extern bool worker_question_only_reads(CallSlot *slot);
extern bool worker_question_makes_scratch(CallSlot *slot);
extern void worker_question_send(Question *question, CallSlot *slot, QuestionDone done);
extern Size worker_question_answer_length(const Question *question);
extern void worker_question_answer(const Question *question, char *dst);

/* seeks.c: watches for sessions that look for elements of queues */
typedef enum WatchedKind
{
	WATCHED_QUEUE,
	WATCHED_CLAIM
} WatchedKind;

extern void worker_seeks_start(void);
extern void worker_seeks_attend(void);
extern bool worker_seeks_watch(const char *path, WatchedKind kind);
extern void worker_seeks_unwatched(const char *path);
extern void worker_seeks_event(const char *path);
extern void worker_seeks_connected(void);

#endif /* ZKLOCK_CALLS_H */
