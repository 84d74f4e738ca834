/*-------------------------------------------------------------------------
 *
 * queue_order.c
 *	  The contenders on a path in the order of their queue, and who waits for whom.
 *
 * Pure C: runs in any process or thread, keeps no state, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

#include <stdlib.h>
#include <string.h>

/* A contender without a number counts as the oldest. */
#define PLACE_UNNUMBERED INT64_MIN

static int
compare(const void *a, const void *b)
{
	const RecipeQueued *x = a;
	const RecipeQueued *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;

	/* The shared node that replaces an exclusive one has its number. */
	if (x->peer.mode != y->peer.mode)
		return x->peer.mode == LOCK_MODE_EXCLUSIVE ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Picks the contenders out of the n children of a path, and puts them in the order of their
 * queue, the one that came first at the beginning.
 *
 *	queue	has room for n; gets pointers into "children"
 *
 * Returns how many there are.
 *
 * Numbers run in a circle, so their distance to one of them gives the order, which is right
 * for nodes less than 2^31 apart.
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

/*
 * Returns for whom a contender waits: the index of a peer, or RECIPE_NOBODY if it is granted.
 *
 *	peers	the n other contenders on the path, in any order
 *	self	its own node, or NULL if it has none yet and would come last
 *	others_permits	set to the lowest number of permits that others record, 0 if none
 */
int
recipe_blocker(const Recipe *recipe, const RecipePeer *peers, int n, const RecipePeer *self,
			   const RecipeRequest *request, int32_t *others_permits)
{
	int nearest = RECIPE_NOBODY;

	*others_permits = 0;
	if (recipe->blocker)
		return recipe->blocker(peers, n, self, request, others_permits);
	for (int i = 0; i < n; i++)
	{
		if ((self && peers[i].sequence >= self->sequence) || !recipe->excludes(&peers[i], request))
			continue;
		if (nearest == RECIPE_NOBODY || peers[i].sequence > peers[nearest].sequence)
			nearest = i;
	}
	return nearest;
}

/*
 * Finds out which of the n contenders on a path hold, and do not wait.
 *
 *	peers	in the order of their queue
 *	permits	of a semaphore, in the opinion of those whose names do not state any
 *	holds	has room for n
 *
 * Asking recipe_blocker() about each with all peers would take n times as long.  Of those that
 * come first, a recipe that judges peers one by one needs to see the oldest in each mode, as
 * no other property counts.  With blocker(), the first hold, as many as the contender and all
 * before it allow, and one if they name no number.
 */
void
recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n, int32_t permits, bool *holds)
{
	RecipePeer oldest[2];
	int		   nmodes = 0;
	int32_t	   least = INT32_MAX;

	for (int i = 0; i < n; i++)
	{
		RecipeRequest request = {.mode = peers[i].mode};
		int32_t		  asked = peers[i].permits > 0 ? peers[i].permits : permits;
		int32_t		  others_permits;
		int			  k = 0;

		if (recipe->blocker)
		{
			holds[i] = i < least && (i < asked || i == 0);
			if (peers[i].permits > 0 && peers[i].permits < least)
				least = peers[i].permits;
			continue;
		}
		holds[i] = recipe_blocker(recipe, oldest, nmodes, &peers[i], &request, &others_permits) ==
				   RECIPE_NOBODY;
		while (k < nmodes && oldest[k].mode != peers[i].mode)
			k++;
		if (k == nmodes)
			oldest[nmodes++] = peers[i];
		else if (peers[i].sequence < oldest[k].sequence)
			oldest[k] = peers[i];
	}
}
