/*
 * guard.h
 *		What becomes of a session that has lost a lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_GUARD_H
#define ZKLOCK_GUARD_H

#include "shared/settings.h"

extern void guard_commit(bool finally);
extern void guard_set_loss_policy(int policy, void *extra);
extern void guard_forget(void);
extern void guard_released(CommitGuard taken_under, bool proved);
extern void guard_install_hooks(void);

#endif /* ZKLOCK_GUARD_H */
