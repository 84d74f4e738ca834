/*
 * request.h
 *		Asking the worker for a lock, and saying why it was refused.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "shared/entry.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

typedef struct ContenderRequest
{
	EntryKind	kind;
	const char *path;
	LockMode	mode;
	int			permits;
	LockScope	scope;
	bool		nowait;
	bool		eager; /* with nowait: see EntryRequest */
	TimestampTz since; /* when the user asked */
} ContenderRequest;

extern void request_refuse_election(const char *path);
extern int	request_contender(const ContenderRequest *request);
extern void request_report_lost(int index, const char *path, LockScope held_at);
extern void request_report_unreachable(const char *path);
extern void request_report_failure(int index, const char *path, Failure failure, int code);

#endif /* ZKLOCK_REQUEST_H */
