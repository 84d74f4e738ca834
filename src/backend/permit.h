/*
 * permit.h
 *		The permits of semaphores that a session holds.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PERMIT_H
#define ZKLOCK_PERMIT_H

#include "backend/handover.h"
#include "recipes/node_name.h"
#include "recipes/permit_recipe.h"

/* Longest path of a semaphore, so that those of its nodes can be locked. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, int64 timeout_ms);
extern bool permit_release(const char *path);
extern void permit_release_all(HandoverList *awaited);

#endif /* ZKLOCK_PERMIT_H */
