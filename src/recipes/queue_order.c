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
 * Contenders that ask for the same, one of which has to wait.  Those behind that one have to
 * wait as well: all that keeps it out keeps them out, too.
 */
typedef struct Waiting
{
	LockMode mode;
	int32_t	 permits;
} Waiting;

/* How many such groups are known; nobody has more than that in earnest. */
#define MAX_WAITING 8

/* Returns true if the i-th peer holds, with "permits" as the size of the semaphore. */
static bool
would_hold(const Recipe *recipe, const RecipePeer *peers, int i, int32_t permits)
{
	RecipeRequest request = {.mode = peers[i].mode, .permits = permits};
	int32_t		  others_permits;

	return recipe_blocker(recipe, peers, i, &peers[i], &request, &others_permits) == RECIPE_NOBODY;
}

/*
 * Finds out which of the n contenders on a path hold, and do not wait.
 *
 *	peers	in the order of their queue
 *	permits	of a semaphore, in the opinion of those whose names do not state any
 *	holds	has room for n
 */
void
recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n, int32_t permits, bool *holds)
{
	Waiting known[MAX_WAITING];
	int		nknown = 0;

	for (int i = 0; i < n; i++)
	{
		int32_t asked = peers[i].permits > 0 ? peers[i].permits : permits;
		int		k = 0;

		while (k < nknown && (known[k].mode != peers[i].mode || known[k].permits != asked))
			k++;
		holds[i] = k == nknown && would_hold(recipe, peers, i, asked);
		if (!holds[i] && k == nknown && nknown < MAX_WAITING)
			known[nknown++] = (Waiting){peers[i].mode, asked};
	}
}
