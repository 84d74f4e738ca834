/*
 * ask.h
 *		Sending the worker on an errand, and waiting for the answer.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ASK_H
#define ZKLOCK_ASK_H

#include "shared/errand.h"

/* The question, and the answer. */
typedef struct Question
{
	ErrandKind	kind;
	RecipeId	recipe;	 /* ERRAND_CONTENDERS: of the path */
	int			limit;	 /* likewise: of so many, the first, more is read than the name */
	const char *path;	 /* UTF-8 */
	int64		czxid;	 /* of the node: ERRAND_DELETE relies on it, ERRAND_READ fills it in */
	int64		owner;	 /* its session, 0 if it is not ephemeral; likewise */
	int			code;	 /* of the outcomes that have one */
	const char *payload; /* goes with the question; constant while it is asked */
	Size		payload_length; /* bytes, ERRAND_MAX_PAYLOAD at most; 0 for none */
	Size		answer_size;	/* longest answer that is expected, bytes; 0 for none */
	char	   *answer;			/* palloc'd; NULL if none */
	Size		answer_length;
} Question;

/* A question that has been asked, or not: all zero. */
typedef struct AskedQuestion
{
	Question	*question;
	Errand		*errand;
	dsm_segment *segment;
} AskedQuestion;

extern ErrandOutcome backend_ask(Question *question);
extern bool			 backend_ask_begin(AskedQuestion *asked, Question *question);
extern bool			 backend_ask_is_answered(const AskedQuestion *asked);
extern ErrandOutcome backend_ask_end(AskedQuestion *asked);
extern void			 backend_ask_at_exit(AskedQuestion *asked);

#endif /* ZKLOCK_ASK_H */
