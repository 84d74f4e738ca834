/*
 * claim.h
 *		Claiming entries in shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CLAIM_H
#define ZKLOCK_CLAIM_H

#include "shared/share.h"

extern int claim_entry(int share, ShareReserve reserve);

#endif /* ZKLOCK_CLAIM_H */
