/*
 * segment.h
 *		The segment of an errand, as the worker uses it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SEGMENT_H
#define ZKLOCK_SEGMENT_H

#include "shared/errand.h"

extern dsm_segment *worker_segment_attach(Errand *errand);
extern char		   *worker_segment_payload(Errand *errand);

#endif /* ZKLOCK_SEGMENT_H */
