/*-------------------------------------------------------------------------
 *
 * election_recipe.c
 *	  Elections: the oldest candidate leads.
 *
 * All clients agree on that, but not on names, and each knows only its own:
 *
 *		_c_<uuid>-latch-N	Curator's LeaderLatch, which sorts all children by what
 *							follows the last "latch-"
 *		n_N					ZooKeeper's LeaderElectionSupport, which takes what follows
 *							the first two characters of any child for a number
 *		<names of locks>	Curator's LeaderSelector and kazoo's Election, which lead
 *							while they hold a lock
 *
 * So a path has candidates of one family.  A candidate of ours waits for all that it
 * recognises, but where it finds another family than its own it does not even create a
 * node: LeaderElectionSupport, for one, never elects anybody again once it has met a name
 * that is not its own.  This is why the path is looked at first.
 *
 * A candidate that waits looks again when any child has changed.  To watch the next older
 * one would suffice; but candidates are few and seldom change, and this way each knows its
 * place, and who leads.
 *
 * Names n_N have no identifier, and N begins anew with a new path, so another node can have
 * the same name later.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "recipes/recipe.h"

#define LATCH_MARKER "latch-"
#define SUPPORT_PREFIX "n_"

const char *const election_family_names[] =
	{[ELECTION_LATCH] = "curator_latch", [ELECTION_SUPPORT] = "zookeeper", [ELECTION_LOCK] = "lock", NULL};

/* Reads a sequence behind a marker; returns false if there is none. */
static bool
read_sequence(const char *name, const char *marker, int64_t *sequence)
{
	const char *number = node_name_after_last(name, marker);

	return number && node_name_read_number(number, strlen(number), sequence);
}

/* Candidates of all families are recognised, whichever is written. */
static bool
election_read(const char *child, RecipePeer *peer)
{
	NodeName lock;

	*peer = (RecipePeer){.numbered = true, .mode = LOCK_MODE_EXCLUSIVE};
	if (read_sequence(child, LATCH_MARKER, &peer->sequence))
		peer->family = ELECTION_LATCH;
	else if (read_sequence(child, SUPPORT_PREFIX, &peer->sequence))
		peer->family = ELECTION_SUPPORT;
	else if (node_name_parse(child, &lock))
	{
		peer->family = ELECTION_LOCK;
		peer->sequence = lock.sequence;
	}
	else
		return false;
	return true;
}

static void
election_write(char *dst, size_t size, const RecipeRequest *request,
			   const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	char text[37];

	switch (request->family)
	{
		case ELECTION_LATCH:
			uuid_format(text, sizeof(text), uuid, UUID_DASHES);
			snprintf(dst, size, "_c_%s-" LATCH_MARKER, text);
			break;
		case ELECTION_SUPPORT:
			snprintf(dst, size, SUPPORT_PREFIX);
			break;
		case ELECTION_LOCK:
			node_name_prefix(dst, size, request->dialect, LOCK_MODE_EXCLUSIVE, uuid);
			break;
	}
}

/* Returns the oldest candidate that is older than "self": it leads. */
static int
election_blocker(const RecipePeer *peers, int n, const RecipePeer *self,
				 const RecipeRequest *request, int32_t *others_permits)
{
	int oldest = RECIPE_NOBODY;

	(void) request; /* the older one leads, whatever its name */
	(void) others_permits;
	for (int i = 0; i < n; i++)
	{
		if (self && peers[i].sequence >= self->sequence)
			continue;
		if (oldest == RECIPE_NOBODY || peers[i].sequence < peers[oldest].sequence)
			oldest = i;
	}
	return oldest;
}

/*
 * Returns true if a child of this name shows that its path is an election's.  Not every name
 * that a candidate waits for does: "region_1" has nothing to do with elections, and names of
 * locks are those of locks.
 */
bool
recipe_shows_election(const char *child)
{
	RecipePeer peer;

	return node_name_has_sequence(child) && election_read(child, &peer) &&
		   (peer.family == ELECTION_LATCH ||
			strncmp(child, SUPPORT_PREFIX, strlen(SUPPORT_PREFIX)) == 0);
}

static bool
election_cannot_coexist(const RecipePeer *peer, const RecipeRequest *request)
{
	return peer->family != request->family;
}

static bool
election_name_is_reusable(const RecipeRequest *request)
{
	return request->family == ELECTION_SUPPORT ||
		   (request->family == ELECTION_LOCK && node_name_is_reusable(request->dialect));
}

const Recipe election_recipe = {.name = "election",
								.read = election_read,
								.write = election_write,
								.blocker = election_blocker,
								.cannot_coexist = election_cannot_coexist,
								.name_is_reusable = election_name_is_reusable};
