/*
 * request.h
 *		Asking the worker for a lock, and waiting for its answer.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "shared/shmem.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

typedef struct ContenderRequest
{
	EntryKind	kind;
	const char *path;
	LockMode	mode;
	int			permits;
	bool		transaction_level;
	bool		nowait;
	TimestampTz since; /* when the user asked */
} ContenderRequest;

/* A call that waits */
typedef struct Wait
{
	const char *path; /* for messages */
	const char *what; /* is waited for, likewise */
	int64		timeout_ms;
	int64		start;
	bool		logged; /* for log_lock_waits */
} Wait;

extern int	request_contender(const ContenderRequest *request);
extern int	request_lock(const char *path, LockMode mode, bool transaction_level, bool nowait);
extern bool wait_for_grant(int index, const char *path, LockMode mode, int64 timeout_ms);
extern void wait_begin(Wait *wait, const char *path, const char *what, int64 timeout_ms);
extern bool wait_for_entry(Wait *wait, int index);
extern void wait_end(const Wait *wait);
extern void report_lost(int index, const char *path);
extern const char *loss_detail(int index);
extern const char *describe_outage(void);
extern char		  *path_for_display(const char *path);

#endif /* ZKLOCK_REQUEST_H */
