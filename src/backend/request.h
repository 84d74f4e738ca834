/*
 * request.h
 *		Why a request is refused, and what a session is told that has lost a lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "shared/entry.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

extern void request_refuse_election(const char *path);
extern void request_report_lost(int index, const char *path, LockScope held_at);
extern void request_report_unreachable(const char *path);
extern void request_report_failure(int index, const char *path, Failure failure, int code);

#endif /* ZKLOCK_REQUEST_H */
