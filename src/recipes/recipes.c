/*-------------------------------------------------------------------------
 *
 * recipes.c
 *	  The recipes there are.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

static const Recipe *const recipes[] = {
	[RECIPE_LOCK] = &lock_recipe,
	[RECIPE_PERMIT] = &permit_recipe,
	[RECIPE_ELECTION] = &election_recipe,
	[RECIPE_ELEMENT] = &element_recipe,
};

/* The recipe with an id, which must be one of RecipeId. */
const Recipe *
recipe_by_id(RecipeId id)
{
	return recipes[id];
}
