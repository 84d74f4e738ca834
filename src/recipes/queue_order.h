/*-------------------------------------------------------------------------
 *
 * queue_order.h
 *	  The contenders on a path in the order of their queue.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_ORDER_H
#define ZKLOCK_QUEUE_ORDER_H

#include "recipes/recipe.h"

typedef struct RecipeQueued
{
	const char *name; /* of the node */
	RecipePeer	peer;
	int64_t		place; /* private to queue_order.c */
} RecipeQueued;

extern int recipe_queue(const Recipe *recipe, char *const *children, int n, RecipeQueued *queue);
extern void recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n,
						   int32_t permits, bool *holds);

#endif /* ZKLOCK_QUEUE_ORDER_H */
