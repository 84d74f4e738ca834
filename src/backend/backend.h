/*
 * backend.h
 *		What a session holds: counting, releasing, transactions.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_BACKEND_H
#define ZKLOCK_BACKEND_H

#include "backend/guard.h"
#include "backend/request.h"

#define NO_ENTRY (-1)

/* What the worker has still to do until a lock is free, or free to share. */
typedef struct Handover
{
	int	   entry;
	uint32 generation; /* when that has changed, it is done */
} Handover;

/* Is called with an entry, its path, and zklock.commit_guard when it was acquired. */
typedef void (*HoldVisitor)(int index, const char *path, CommitGuard taken_under, void *arg);
/* A lock to undo; the path in UTF-8 */
typedef struct LockTarget
{
	const char *path;
	LockMode	mode;
} LockTarget;

/* Entries, whoever in this process has them */
extern Handover entry_release(int index, bool notify);
extern void		wait_for_handover(Handover handover);

extern void	 backend_install_hooks(void);
extern void	 backend_start_session(void);
extern void	 backend_visit_holds(bool all, HoldVisitor visit, void *arg);
extern bool	 backend_lock(const char *path, LockMode mode, LockScope scope, int64 timeout_ms);
extern void	 backend_undo_lock(const char *path, LockMode mode, LockScope scope);
extern bool	 backend_unlock(const char *path, LockMode mode);
extern bool	 backend_unlock_together(const LockTarget *targets, int n);
extern void	 backend_unlock_all(void);
extern int64 backend_fencing_token(const char *path);
extern int64 backend_proved_token(const char *path);

#endif /* ZKLOCK_BACKEND_H */
