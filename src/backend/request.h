/*
 * request.h
 *		What the worker is asked, why that is refused, and what a session is told that
 *		has lost a lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "backend/hold.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

extern void request_refuse_election(const char *path);
extern int	request_entry(const HoldRequest *request, int share);
extern void request_report_lost(const Hold *hold);
extern void request_report_unreachable(const char *path);
extern void request_report_failure(int index, const char *path, Failure failure, int code);

#endif /* ZKLOCK_REQUEST_H */
