/*
 * account.h
 *		What each session has of the bytes that all of them share.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ACCOUNT_H
#define ZKLOCK_ACCOUNT_H

#include "queue/engine.h"

extern void				account_start(void);
extern void				account_charge(int pid, size_t bytes);
extern void				account_refund(int pid, size_t bytes);
extern size_t			account_budget(const ContenderEntry *entry);
extern ContenderFailure account_check(const ContenderEntry *entry, size_t bytes);

#endif /* ZKLOCK_ACCOUNT_H */
