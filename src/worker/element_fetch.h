/*
 * element_fetch.h
 *		Reading an element of a queue, and delivering its data.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_FETCH_H
#define ZKLOCK_ELEMENT_FETCH_H

#include "worker/element_work.h"

extern void worker_element_try(ElementWork *work);
extern void worker_element_deliver(ElementWork *work);

#endif /* ZKLOCK_ELEMENT_FETCH_H */
