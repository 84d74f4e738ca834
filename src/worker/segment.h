/*
 * segment.h
 *		The segment of an element request, as the worker uses it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SEGMENT_H
#define ZKLOCK_SEGMENT_H

#include "storage/dsm.h"

extern dsm_segment *worker_segment_attach(dsm_handle handle);
extern char		   *worker_segment_read(dsm_handle handle, Size length);
extern bool			worker_segment_write(dsm_handle handle, const char *data, Size length);

#endif /* ZKLOCK_SEGMENT_H */
