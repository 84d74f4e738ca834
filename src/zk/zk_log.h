/*
 * zk_log.h
 *		The lines that the client library logs, and sentences made of them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_LOG_H
#define ZKLOCK_ZK_LOG_H

#include "zk/zk_error.h"
#include "zk/zk_event.h"

/* Has the same outage been complained of before? */
typedef enum ZkComplaint
{
	ZK_COMPLAINT_FIRST, /* since a server has answered */
	ZK_COMPLAINT_REPEATED
} ZkComplaint;

/* Is given a sentence without its period. */
typedef void (*ZkComplaintHandler)(const char *message, ZkComplaint complaint);

extern void zk_log_start(ZkComplaintHandler handler);
extern void zk_log_push(const char *message, uintptr_t number);
extern bool zk_log_is_complaint(const Event *event);
extern void zk_log_complain(const char *message);
extern void zk_log_outage_over(void);

#endif /* ZKLOCK_ZK_LOG_H */
