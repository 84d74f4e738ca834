/*
 * guard.h
 *		What becomes of a session that has lost a lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_GUARD_H
#define ZKLOCK_GUARD_H

#include "shared/settings.h"

extern void guard_start_session(void);
extern void guard_come_first(void);
extern void guard_commit(void);
extern void guard_defer_interrupts(void);
extern void guard_set_loss_policy(int policy, void *extra);
extern void guard_forget(void);
extern void guard_released(CommitGuard taken_under, bool proved);
extern void guard_install_hooks(void);

#endif /* ZKLOCK_GUARD_H */
