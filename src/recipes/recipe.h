/*-------------------------------------------------------------------------
 *
 * recipe.h
 *	  Who waits for whom: the lock recipe as arithmetic.
 *
 * Every contender for a lock has a sequence number, given out by ZooKeeper in
 * order of arrival, and a mode.  It is served once no older contender of a
 * conflicting mode is left.
 *
 * Pure C: depends on nothing but node_name.h, allocates nothing, keeps no
 * state, runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECIPE_H
#define ZKLOCK_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "recipes/node_name.h"

typedef struct RecipeContender
{
	int64_t	 sequence;
	LockMode mode;
} RecipeContender;

extern bool recipe_conflict(LockMode a, LockMode b);
extern int recipe_blocker(const RecipeContender *contenders, int n, int64_t sequence, LockMode mode);
extern bool
recipe_newer_exists(const RecipeContender *contenders, int n, int64_t sequence, LockMode mode);

#endif /* ZKLOCK_RECIPE_H */
