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

/*
 * Contenders that ask for the same.  Of these, whoever comes behind one that has
 * to wait has to wait as well: all that was in the way of that one is in its way,
 * too.
 */
typedef struct Likes
{
	LockMode mode;
	int32_t	 permits;
	int		 first; /* the first place in which one would have to wait */
} Likes;

/* So many kinds of them are dealt with together; more than that nobody has in earnest. */
#define MAX_LIKES 8

/* Would a contender that asks for that hold in the i-th place? */
static bool
would_hold(const Recipe *recipe, const RecipePeer *peers, int i, LockMode mode, int32_t permits)
{
	RecipeRequest request = {.mode = mode, .permits = permits};
	int32_t		  remark;

	return recipe->blocker(peers, i, &peers[i], &request, &remark) == RECIPE_NOBODY;
}

/* Finds the first place by bisection: the recipe looks at n peers log n times, not n times. */
static int
first_to_wait(const Recipe *recipe, const RecipePeer *peers, int n, LockMode mode, int32_t permits)
{
	int from = 0;
	int to = n;

	while (from < to)
	{
		int middle = from + (to - from) / 2;

		if (would_hold(recipe, peers, middle, mode, permits))
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/*
 * Which of the n contenders on a path hold, and do not wait?
 *
 *	peers	in the order of their queue
 *	permits	of a semaphore, in the opinion of those who do not tell
 *	holds	has room for n
 */
void
recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n, int32_t permits, bool *holds)
{
	Likes known[MAX_LIKES];
	int	  nknown = 0;

	for (int i = 0; i < n; i++)
	{
		int32_t asked = peers[i].permits > 0 ? peers[i].permits : permits;
		int		k = 0;

		while (k < nknown && (known[k].mode != peers[i].mode || known[k].permits != asked))
			k++;
		if (k == nknown && nknown < MAX_LIKES)
			known[nknown++] = (Likes){peers[i].mode, asked,
									  first_to_wait(recipe, peers, n, peers[i].mode, asked)};
		holds[i] = k < nknown ? i < known[k].first
							  : would_hold(recipe, peers, i, peers[i].mode, asked);
	}
}
