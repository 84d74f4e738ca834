/*
 * element_calls.h
 *		What is done in ZooKeeper for a request for an element.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_CALLS_H
#define ZKLOCK_ELEMENT_CALLS_H

#include "worker/element_work.h"

extern void worker_element_try(ElementWork *work);
extern void worker_element_deliver(ElementWork *work);
extern void worker_element_offer(ElementWork *work);
extern void worker_element_claim_lost(ElementWork *work);
extern void worker_element_check(ElementWork *work);
extern void worker_element_watch_claim(ElementWork *work);
extern void worker_element_finish(ElementWork *work);
extern void worker_element_return(ElementWork *work);
extern void worker_element_tear_receipt(ElementWork *work);
extern void worker_element_settle_claim(ElementWork *work);
extern void worker_element_settle_receipt(ElementWork *work);

#endif /* ZKLOCK_ELEMENT_CALLS_H */
