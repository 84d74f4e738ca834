/*
 * element_receipt.h
 *		Removals of elements, and receipts.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_RECEIPT_H
#define ZKLOCK_ELEMENT_RECEIPT_H

#include "worker/element_work.h"

extern void worker_element_remove(ElementWork *work);
extern void worker_element_tear_receipt(ElementWork *work);
extern void worker_element_settle_receipt(ElementWork *work);

#endif /* ZKLOCK_ELEMENT_RECEIPT_H */
