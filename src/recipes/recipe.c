/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  Who waits for whom: the lock recipe as arithmetic.
 *
 * The algorithm is that of ZooKeeper's recipes for exclusive and shared
 * locks: a contender waits for the nearest older one that it conflicts with,
 * and looks again when that one is gone.  So each departure wakes one writer
 * or the readers behind it, never everybody.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

/*
 * Do two modes exclude each other?  All but shared with shared do.
 */
bool
recipe_conflict(LockMode a, LockMode b)
{
	return a != LOCK_MODE_SHARED || b != LOCK_MODE_SHARED;
}

/*
 * Whom does a contender with the given sequence and mode wait for?
 *
 * contenders are the n recognised contenders for the lock, in any order; the
 * one that asks may be among them.  Returns the index of the nearest, that is
 * the youngest, among those that are older and conflict, or -1 if there is
 * none: then the lock is granted.
 *
 * Sequences are distinct but for one case.  The shared node of an exclusive
 * holder who downgrades inherits the sequence of the exclusive one: Curator
 * creates it beside, zklock in place of the other.  Equal sequences never
 * block each other, and for anyone younger either node will do: when the one
 * returned is gone, the other is found.  It follows that the set of contenders
 * older than a given one can grow, by a shared one in the moment that an
 * exclusive one goes.
 */
int
recipe_blocker(const RecipeContender *contenders, int n, int64_t sequence, LockMode mode)
{
	int blocker = -1;
	int i;

	for (i = 0; i < n; i++)
	{
		if (contenders[i].sequence >= sequence || !recipe_conflict(contenders[i].mode, mode))
			continue;
		if (blocker < 0 || contenders[i].sequence > contenders[blocker].sequence)
			blocker = i;
	}
	return blocker;
}

/*
 * Has anyone come after the given sequence who conflicts with the mode?
 * contenders as above.
 */
bool
recipe_newer_exists(const RecipeContender *contenders, int n, int64_t sequence, LockMode mode)
{
	int i;

	for (i = 0; i < n; i++)
	{
		if (contenders[i].sequence > sequence && recipe_conflict(contenders[i].mode, mode))
			return true;
	}
	return false;
}
