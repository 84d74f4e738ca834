/*-------------------------------------------------------------------------
 *
 * queue_order.c
 *	  The contenders on a path in the order of their queue.
 *
 * Pure C: runs in any process or thread, keeps no state, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/queue_order.h"

#include <stdlib.h>
#include <string.h>

/* What has no number counts as the oldest. */
#define PLACE_UNNUMBERED INT64_MIN

static int
compare(const void *a, const void *b)
{
	const RecipeQueued *x = a;
	const RecipeQueued *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;

	/* The heir of an exclusive node has its number. */
	if (x->peer.mode != y->peer.mode)
		return x->peer.mode == LOCK_MODE_EXCLUSIVE ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Picks out of the n children of a path those that are contenders, and puts
 * them in the order of their queue, first the one that has come first.
 *
 *	queue	has room for n; gets pointers into "children"
 *
 * Returns how many there are.
 *
 * Numbers run in a circle, so their distance to one of them gives the order,
 * which is right for nodes less than 2^31 apart.
 */
int
recipe_queue(const Recipe *recipe, char *const *children, int n, RecipeQueued *queue)
{
	const RecipePeer *origin = NULL;
	int				  count = 0;

	for (int i = 0; i < n; i++)
	{
		RecipeQueued *next = &queue[count];

		if (!recipe->read(children[i], &next->peer))
			continue;
		next->name = children[i];
		if (origin == NULL && next->peer.numbered)
			origin = &next->peer;
		next->place = PLACE_UNNUMBERED;
		if (next->peer.numbered)
			next->place = (int32_t) ((uint32_t) next->peer.sequence - (uint32_t) origin->sequence);
		count++;
	}
	qsort(queue, (size_t) count, sizeof(RecipeQueued), compare);
	return count;
}
