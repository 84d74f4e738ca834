/*-------------------------------------------------------------------------
 *
 * permit_recipe.c
 *	  The permits of semaphores.
 *
 * The layout is that of Curator's InterProcessSemaphoreV2.  A node below <path>/leases is a
 * permit, or waits to become one.  Curator takes the permit when there are no more nodes
 * than permits, and lets only one client at a time wait for that, the one that holds the
 * lock <path>/locks.
 *
 * Here a node is a permit when there are fewer older ones than permits.  Consider the
 * youngest of all nodes that are permits: the others are older, so its owner has counted
 * them, whatever its rule was.  Hence the two rules go together, and neither needs the lock
 * to be safe.  The lock only brings order among the clients that wait.  Since this rule
 * looks at older nodes only, clients that come together without the lock do not all fail:
 * some get the permits that are left.
 *
 * A node of ours has in its name the number of permits in its owner's opinion, so that a
 * listing shows clients that disagree.  Curator gives no meaning to the names.
 *
 * Each node is one contender's, and while a contender waits, any change among the children
 * is a reason to look again.  That causes no herd: only the session that holds the lock
 * waits here.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

#include <stdio.h>
#include <string.h>

#include "fault.h"

#define LEASE_MARKER "lease-"
#define PERMITS_MARKER "-of"

/*
 * Returns the permits that a name states by "-of<permits>-" before the marker of a lease, or
 * 0.
 */
static int32_t
read_permits(const char *name, size_t len)
{
	const size_t marker_len = strlen(PERMITS_MARKER);
	size_t		 start;
	int64_t		 permits;

	if (len == 0 || name[--len] != '-')
		return 0;
	for (start = len; start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9'; start--)
		;
	if (start < marker_len || memcmp(name + start - marker_len, PERMITS_MARKER, marker_len) != 0 ||
		!node_name_read_number(name + start, len - start, &permits))
		return 0;
	return (int32_t) permits;
}

static void
permit_write(char *dst, size_t size, const RecipeRequest *request, const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	char text[37];

	uuid_format(text, sizeof(text), uuid, UUID_DASHES);
	snprintf(dst, size, "_c_%s" PERMITS_MARKER "%d-" LEASE_MARKER, text, (int) request->permits);
}

/*
 * Every child counts for Curator, and so it does here.  A child that has no sequence where one
 * belongs counts as the oldest.
 */
static bool
permit_read(const char *child, RecipePeer *peer)
{
	const char *number = node_name_after_last(child, LEASE_MARKER);

	*peer = (RecipePeer){.numbered = false, .mode = LOCK_MODE_EXCLUSIVE};
	if (number == NULL)
		return true;
	peer->numbered = node_name_read_number(number, strlen(number), &peer->sequence);
	peer->permits = read_permits(child, (size_t) (number - child) - strlen(LEASE_MARKER));
	return true;
}

/*
 * Returns how much older one node is than another.  Sequences run in a circle, so their
 * distance decides, which is right for nodes less than 2^31 apart.
 */
static int64_t
age(const RecipePeer *peer, const RecipePeer *than)
{
	if (!peer->numbered || !than->numbered)
		return peer->numbered ? INT32_MIN : (int64_t) INT32_MAX + 1;
	return (int32_t) ((uint32_t) than->sequence - (uint32_t) peer->sequence);
}

/*
 * Returns the oldest peer if there is no permit left.  The semaphore has the number of permits
 * that was asked for, or fewer if the owner of an older node thinks so; the smallest number
 * that those owners name is others_permits.
 */
static int
permit_blocker(const RecipePeer *peers, int n, const RecipePeer *self,
			   const RecipeRequest *request, int32_t *others_permits)
{
	int32_t permits = request->permits;
	int		oldest = RECIPE_NOBODY;
	int		older = 0;

	for (int i = 0; i < n; i++)
	{
		if (self && age(&peers[i], self) < 0)
			continue;
		older++;
		if (peers[i].permits > 0 && (*others_permits == 0 || peers[i].permits < *others_permits))
			*others_permits = peers[i].permits;
		if (oldest == RECIPE_NOBODY || age(&peers[i], &peers[oldest]) > 0)
			oldest = i;
	}
	if (*others_permits > 0 && *others_permits < permits)
		permits = *others_permits;
	if (older < permits || ZKLOCK_FAULT("permit-early"))
		return RECIPE_NOBODY;
	return oldest;
}

const Recipe permit_recipe = {.name = "semaphore",
							  .read = permit_read,
							  .write = permit_write,
							  .blocker = permit_blocker};
