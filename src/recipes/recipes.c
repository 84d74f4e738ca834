/*-------------------------------------------------------------------------
 *
 * recipes.c
 *	  For whom contenders wait.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

/*
 * For whom does a contender wait?
 *
 *	peers	the n other contenders on the path, in any order
 *	self	its own node, or NULL if it has none yet and would come last
 *	remark	set to a number that the recipe wants its user to see, 0 if none
 *
 * Returns the index of a peer, or RECIPE_NOBODY: it is granted.
 */
int
recipe_blocker(const Recipe *recipe, const RecipePeer *peers, int n, const RecipePeer *self,
			   const RecipeRequest *request, int32_t *remark)
{
	int nearest = RECIPE_NOBODY;

	*remark = 0;
	if (recipe->blocker)
		return recipe->blocker(peers, n, self, request, remark);
	for (int i = 0; i < n; i++)
	{
		if ((self && peers[i].sequence >= self->sequence) || !recipe->excludes(&peers[i], request))
			continue;
		if (nearest == RECIPE_NOBODY || peers[i].sequence > peers[nearest].sequence)
			nearest = i;
	}
	return nearest;
}
