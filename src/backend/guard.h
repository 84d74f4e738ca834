/*
 * guard.h
 *		What a transaction relies on, and what happens when it ends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_GUARD_H
#define ZKLOCK_GUARD_H

#include "backend/hold.h"

/* When the locks are looked at */
typedef enum GuardMoment
{
	GUARD_EARLY, /* before others' callbacks, which may commit elsewhere */
	GUARD_FINAL	 /* before the commit here */
} GuardMoment;

/* guard.c: no commit on the strength of a lock that was lost */
extern void guard_check(GuardMoment moment);
extern void guard_settle(Hold *hold);
extern void guard_forget(void);

/* interrupt.c: whether the loss of a lock interrupts the session, and what it is told */
extern void interrupt_set_policy(int policy, void *extra);
extern void interrupt_defer(void);
extern void interrupt_resume(void);
extern bool interrupt_is_deferred(void);
extern void interrupt_check(void (*describe)(void *), void *arg);

/* transaction.c: what ends when */
extern void transaction_start_session(void);
extern int	transaction_begin_call(void);
extern void transaction_acquired(Hold *hold, LockMode mode, LockScope scope);
extern void transaction_end_call(int mark, bool complete);
extern bool transaction_leads(int election, int64 *term);
extern void backend_install_hooks(void);

#endif /* ZKLOCK_GUARD_H */
