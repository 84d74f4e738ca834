/*
 * answer.h
 *		What the worker answers to errands.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "shared/errand.h"
#include "zk/zk_error.h"

extern void worker_answer_outcome(Errand *errand, ZkOutcome outcome, int code);
extern void worker_answer_long(Errand *errand, const char *answer, Size length);

#endif /* ZKLOCK_ANSWER_H */
