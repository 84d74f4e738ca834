/*
 * element_offer.h
 *		Offers of elements.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_OFFER_H
#define ZKLOCK_ELEMENT_OFFER_H

#include "worker/element_work.h"

extern void worker_element_offer(ElementWork *work);
extern void worker_element_offer_search(ElementWork *work, int64 czxid);

#endif /* ZKLOCK_ELEMENT_OFFER_H */
