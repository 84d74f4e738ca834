/*
 * transaction.h
 *		What a transaction relies on, and what happens when it ends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TRANSACTION_H
#define ZKLOCK_TRANSACTION_H

#include "backend/hold.h"

/* When the commit guard checks the locks */
typedef enum GuardMoment
{
	GUARD_COMMAND, /* before a command whose effects a rollback may not undo */
	GUARD_EARLY,   /* at the command COMMIT, before callbacks that may commit elsewhere */
	GUARD_FINAL	   /* before the commit here */
} GuardMoment;

/* guard.c: prevents the commit of a transaction that relied on a lost lock */
extern void guard_check(GuardMoment moment);
extern void guard_release(Hold *hold, LockMode mode, int n);

/* transaction.c: what ends when */
extern int	transaction_begin_call(void);
extern void transaction_acquired(Hold *hold, LockMode mode, LockScope scope);
extern void transaction_end_call(int mark, bool complete);
extern bool transaction_leads(int election, int64 *term);
extern void backend_install_hooks(void);

#endif /* ZKLOCK_TRANSACTION_H */
