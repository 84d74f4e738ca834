/*
 * element_root.h
 *		Creating the path of a queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_ROOT_H
#define ZKLOCK_ELEMENT_ROOT_H

#include "worker/element_work.h"

extern void worker_element_root_make(ElementQueue *queue, const ElementRequest *request);
extern void worker_element_root_make_receipts(ElementQueue *queue, const ElementRequest *request);

#endif /* ZKLOCK_ELEMENT_ROOT_H */
