/*-------------------------------------------------------------------------
 *
 * neighbour.h
 *	  Which nodes cannot be children of one path together.
 *
 * Pure C: depends on node_name.h and permit_recipe.h alone, allocates nothing,
 * keeps no state, runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NEIGHBOUR_H
#define ZKLOCK_NEIGHBOUR_H

#include "recipes/node_name.h"

extern bool neighbour_disturbs_lock(const char *name);
extern bool neighbour_disturbs_semaphore(const char *parent);
extern bool neighbour_is_disturbed_lock(const char *child);
extern bool neighbour_is_disturbed_semaphore(const char *child);

#endif /* ZKLOCK_NEIGHBOUR_H */
