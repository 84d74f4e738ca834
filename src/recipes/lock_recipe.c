/*-------------------------------------------------------------------------
 *
 * lock_recipe.c
 *	  Exclusive and shared locks.
 *
 * The algorithm is that of ZooKeeper's recipes for exclusive and shared locks: a contender
 * waits for the nearest older one that it conflicts with, and looks again when that one is
 * gone.  So a contender that leaves wakes one writer or the readers behind it, never
 * everybody.
 *
 * Sequences are distinct but for one case.  The shared node of an exclusive holder that
 * downgrades has the sequence of the exclusive one: Curator creates it beside the other,
 * zklock in its place.  Equal sequences never block each other, and for a younger contender
 * either node will do: when the one returned is gone, the other is found.  It follows that
 * the set of contenders older than a given one can grow, by a shared one at the moment
 * that an exclusive one goes.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"
#include "recipes/recipe.h"

/* Every dialect's contenders are recognised, whichever dialect is written. */
static bool
lock_read(const char *child, RecipePeer *peer)
{
	NodeName parsed;

	if (!node_name_parse(child, &parsed))
		return false;
	*peer = (RecipePeer){.sequence = parsed.sequence,
						 .numbered = true,
						 .may_be_kept = parsed.kept,
						 .mode = parsed.mode};
	return true;
}

static void
lock_write(char *dst, size_t size, const RecipeRequest *request, const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	node_name_prefix(dst, size, request->dialect, request->mode, uuid);
}

static bool
lock_name_is_reusable(const RecipeRequest *request)
{
	return node_name_is_reusable(request->dialect);
}

/* All pairs of modes exclude each other, except shared with shared. */
static bool
lock_excludes(const RecipePeer *peer, const RecipeRequest *request)
{
	return peer->mode != LOCK_MODE_SHARED || request->mode != LOCK_MODE_SHARED;
}

static bool
lock_heedless(const char *child, const RecipeRequest *request, RecipeHeedless *why)
{
	NodeName parsed;

	if (heed_expected(request->dialect, request->mode, child) != HEED_NO ||
		!node_name_parse(child, &parsed))
		return false;
	*why = (RecipeHeedless){.ours = node_dialect_names[request->dialect],
							.theirs = node_dialect_names[parsed.dialect]};
	if (parsed.dialect == DIALECT_KAZOO && request->dialect == DIALECT_CURATOR)
		why->remedy =
			", or give kazoo's Lock extra_lock_patterns=[\"lock-\", \"__READ__\"]. If it has that already, ignore this.";
	return true;
}

static bool
lock_may_join(const RecipeRequest *node, const RecipeRequest *request)
{
	return node->mode == request->mode && node->dialect == request->dialect;
}

static bool
lock_downgraded_name(char *dst, size_t size, const char *name, const RecipeRequest *request)
{
	return request->mode == LOCK_MODE_SHARED &&
		   node_name_downgraded(dst, size, request->dialect, name);
}

const Recipe lock_recipe = {.name = "lock",
							.read = lock_read,
							.write = lock_write,
							.name_is_reusable = lock_name_is_reusable,
							.excludes = lock_excludes,
							.heedless = lock_heedless,
							.may_join = lock_may_join,
							.downgraded_name = lock_downgraded_name};
