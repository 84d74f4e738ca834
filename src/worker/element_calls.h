/*
 * element_calls.h
 *		What is done in ZooKeeper for a request for an element.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_CALLS_H
#define ZKLOCK_ELEMENT_CALLS_H

#include "worker/element_work.h"
#include "zk/zk_call.h"

extern char			  *worker_element_attempt_name(const ElementRequest *request);
extern void			   worker_element_begin_attempt(ElementRequest *request);
extern char			  *worker_element_receipt_path(const ElementRequest *request);
extern char			  *worker_element_path(const ElementWork *work);
extern char			  *worker_element_claim_path(const ElementWork *work);
extern ElementRequest *worker_element_reply_to(ElementWork *work);
extern void			   worker_element_try_later(ElementWork *work);
extern bool			   worker_element_leaves_open(ElementWork *work, const ZkReply *reply);
extern void			   worker_element_refused(ElementWork *work, const ZkReply *reply);

#endif /* ZKLOCK_ELEMENT_CALLS_H */
