/*-------------------------------------------------------------------------
 *
 * heed.h
 *	  Which clients wait for the names that we write.
 *
 * Pure C: depends on node_name.h alone, allocates nothing, keeps no state,
 * runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HEED_H
#define ZKLOCK_HEED_H

#include "recipes/node_name.h"

typedef enum Heed
{
	HEED_YES,	 /* it waits for us, or need not */
	HEED_NO,	 /* it does not: both of us may hold the lock */
	HEED_UNKNOWN /* clients of this name differ; zklock is one that waits */
} Heed;

extern Heed heed_expected(NodeDialect dialect, LockMode mode, const char *name);

#endif /* ZKLOCK_HEED_H */
