/*
 * element_claim.h
 *		Claims: that a session has taken an element of a queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_CLAIM_H
#define ZKLOCK_ELEMENT_CLAIM_H

#include "worker/element_work.h"

extern void worker_element_claim(ElementWork *work);
extern void worker_element_claim_lost(ElementWork *work);
extern void worker_element_watch_claim(ElementWork *work);
extern void worker_element_check(ElementWork *work);
extern void worker_element_finish(ElementWork *work);
extern void worker_element_return(ElementWork *work);
extern void worker_element_settle_claim(ElementWork *work);

#endif /* ZKLOCK_ELEMENT_CLAIM_H */
