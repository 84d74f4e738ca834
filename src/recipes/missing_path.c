/*-------------------------------------------------------------------------
 *
 * missing_path.c
 *	  Creating the missing levels of a path: which node comes next, and whom a new one would
 *	  harm.
 *
 * The engine creates the paths of locks (engine/parents.c), and sessions those of what they
 * have created by calls (backend/call.c).  Both walk as missing_path_next() says:
 *
 *	up		The lowest missing level is tried first: if it can be created, or exists by
 *			now, all is well.  If its parent is missing as well, that is tried next, and
 *			so on.  So no request touches what has always been there, and above which we
 *			may have no rights.
 *	down	From the first level that exists now, the others are created below it.
 *
 * The reply that a node exists is as good as a new one.  If something has been deleted
 * meanwhile, as empty containers are, all is done again, MISSING_PATH_ATTEMPTS times at most.
 *
 * A new node can harm others.  A path that is locked can have other children than lock nodes,
 * such as paths that are locked too.  Most clients ignore those.  Two cannot:
 *
 *  - Curator's locks (InterProcessMutex, InterProcessReadWriteLock's writers, LeaderLatch)
 *    take every child for a contender, and sort all by what follows the last marker of the
 *    lock's kind, or by the whole name without one.  A name that sorts before every
 *    sequence stands in front of everybody for as long as it exists.  A name that begins
 *    like "eu" or "order-17" sorts behind them and harms nobody.
 *  - Semaphores, Curator's and ours, count every child of PERMIT_LEASES as a permit in use.
 *
 * neighbour_harm() needs the new node's name alone, and for nearly all names the result is
 * that it harms nobody; then no child has to be looked at.  Otherwise the parent is listed
 * first, and neighbour_is_harmed() looks at each child that exists, for signs that such a
 * client is at work.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <string.h>

#include "recipes/recipe.h"

#define CURATOR_PREFIX "_c_"

/*
 * Sequences begin with '0' until there have been a thousand million of them; long before that,
 * the counter is what is worn out.
 */
#define BEHIND_SEQUENCES '1'

static const char *const markers[] = {"lock-", "__READ__", "__WRIT__", "latch-"};

/* ------------------------------------------------------------------------
 * The walk
 * ------------------------------------------------------------------------
 */

/* Returns the length of the path above the one that is the first "length" bytes. */
size_t
missing_path_above(const char *path, size_t length)
{
	while (path[--length] != '/')
		;
	return length;
}

/*
 * Moves the walk on.
 *
 *	path	of the node to be created; the walk ends at its first walk->end bytes
 *	exists	the node that was tried exists now; false: its parent does not
 */
MissingStep
missing_path_next(MissingPath *walk, const char *path, bool exists)
{
	int levels = 1; /* that are missing */

	if (exists)
	{
		walk->descending = true;
		if (walk->length == walk->end)
			return MISSING_END;
		walk->length += 1 + strcspn(path + walk->length + 1, "/");
		return MISSING_CREATE;
	}
	if (walk->descending)
		return MISSING_END; /* what was there is gone */
	for (const char *c = path + walk->length; *c != '\0'; c++)
		levels += *c == '/';
	walk->length = missing_path_above(path, walk->length);
	if (walk->length == 0)
		return MISSING_NO_CHROOT;
	return levels >= ZKLOCK_MAX_LEVELS ? MISSING_TOO_DEEP : MISSING_LOOK;
}

/* ------------------------------------------------------------------------
 * Neighbours
 * ------------------------------------------------------------------------
 */

/* Returns the NeighbourHarms that a child of this name can do below this parent. */
int
neighbour_harm(const char *parent, const char *name)
{
	size_t len = strlen(parent);
	size_t tail = strlen(PERMIT_LEASES);
	int	   harm = 0;

	if (len >= tail && strcmp(parent + len - tail, PERMIT_LEASES) == 0)
		harm |= HARMS_SEMAPHORE;
	for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]); i++)
	{
		/* Curator sorts by what follows the marker, or by all of a name without one. */
		const char *sorted = node_name_after_last(name, markers[i]);

		if ((unsigned char) (sorted ? sorted : name)[0] < BEHIND_SEQUENCES)
			harm |= HARMS_LOCK;
	}
	return harm;
}

/* Returns true if an existing child shows a client to which such harm would be done. */
bool
neighbour_is_harmed(int harm, const char *child)
{
	RecipePeer lease;

	/* Curator's clients write such names, and so do other clients that follow them. */
	if ((harm & HARMS_LOCK) && strncmp(child, CURATOR_PREFIX, strlen(CURATOR_PREFIX)) == 0 &&
		node_name_has_sequence(child))
		return true;
	return (harm & HARMS_SEMAPHORE) && permit_recipe.read(child, &lease) && lease.numbered;
}
