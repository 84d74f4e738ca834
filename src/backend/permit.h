/*
 * permit.h
 *		The permits of semaphores that a session holds.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PERMIT_H
#define ZKLOCK_PERMIT_H

#include "backend/backend.h"
#include "recipes/permit_recipe.h"

/* Longest path of a semaphore, so that those of its nodes can be locked. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int permits, int64 timeout_ms);
extern bool permit_release(const char *path);
extern int	permit_count(void);
extern int	permit_release_all(Handover *handovers);
extern void permit_visit(HoldVisitor visit, void *arg);

#endif /* ZKLOCK_PERMIT_H */
