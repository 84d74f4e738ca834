/*
 * request.h
 *		Requests to the worker, and the errors for those that it refuses.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "backend/hold.h"
#include "compat.h"

extern void				request_refuse_election(const char *path);
extern Hold			   *request_hold(EntryRequest *request, const char *path);
extern bool				request_lacks_worker(int64 *since);
pg_noreturn extern void request_report_other_use(const char *path, const char *detail);
pg_noreturn extern void request_report_unreachable(const char *path);
pg_noreturn extern void request_report_failure(int index, const char *path, Failure failure, int code);

#endif /* ZKLOCK_REQUEST_H */
