/*
 * request.h
 *		Asking the worker for a lock, and waiting for its answer.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "shmem.h"

#define LOCK_WAIT_FOREVER (-1)
#define LOCK_NO_WAIT 0

extern int	request_lock(const char *path, LockMode mode, bool transaction_level, bool nowait);
extern bool wait_for_grant(int index, const char *path, LockMode mode, int64 timeout_ms);
extern void report_lost(int index, const char *path);
extern const char *loss_detail(int index);
extern char		  *path_for_display(const char *path);

#endif /* ZKLOCK_REQUEST_H */
