/*
 * transaction.h
 *		What ends with a call, and with a transaction.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TRANSACTION_H
#define ZKLOCK_TRANSACTION_H

#include "backend/hold.h"

extern int	transaction_begin_call(void);
extern void transaction_acquired(Hold *hold, LockMode mode, LockScope scope);
extern void transaction_end_call(int mark, bool complete);
extern bool transaction_leads(int election, int64 *term);
extern void backend_install_hooks(void);

#endif /* ZKLOCK_TRANSACTION_H */
