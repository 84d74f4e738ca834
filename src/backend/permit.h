/*
 * permit.h
 *		The permits of semaphores that a session holds.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PERMIT_H
#define ZKLOCK_PERMIT_H

#include "access/xact.h"
#include "backend/wait.h"
#include "recipes/node_name.h"
#include "recipes/permit_recipe.h"
#include "shared/entry.h"

/* Longest path of a semaphore, so that those of its nodes can be locked. */
#define ZKLOCK_MAX_SEMAPHORE_PATH ((int) (ZKLOCK_MAX_PATH - strlen(PERMIT_LEASES)))

extern bool permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms);
extern bool permit_release(const char *path);
extern void permit_release_all(HandoverList *awaited);
extern bool permit_has_transaction_permits(void);
extern void permit_end_transaction(void);
extern void permit_end_subtransaction(SubXactEvent event, SubTransactionId subid,
									  SubTransactionId parent);

#endif /* ZKLOCK_PERMIT_H */
