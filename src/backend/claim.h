/*
 * claim.h
 *		Claiming entries in shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CLAIM_H
#define ZKLOCK_CLAIM_H

extern int claim_entry(int share, bool may_use_reserve);

#endif /* ZKLOCK_CLAIM_H */
