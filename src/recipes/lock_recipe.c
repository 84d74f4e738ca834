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
 * Sequences are distinct but for one case.  An exclusive holder that downgrades gets a shared
 * node with the sequence of the exclusive one: Curator creates it beside the other, zklock in
 * its place.  Nodes with equal sequences never block each other.  A younger contender may wait
 * for either: it looks again when that is gone, and finds the other.  So the set of contenders
 * older than a given one can grow, by a shared one at the moment that an exclusive one goes.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "recipes/node_name.h"
#include "recipes/recipe.h"

/* ------------------------------------------------------------------------
 * Which clients wait for the names that we write
 *
 * zklock knows the names of all clients and waits for each of them.  Most clients know
 * their own names alone: what they do when they find ours depends on the dialect that we
 * write.  The table is taken from the sources of those clients and from the tests that run
 * them (test/t/peers); "who excludes whom" in the documentation is the same from a
 * user's point of view.
 *
 * A name does not show everything.  zklock writes the names of other clients and respects
 * what they do not, and kazoo's Lock and WriteLock have the same names but differ in what
 * they wait for.
 * ------------------------------------------------------------------------
 */

#define NDIALECTS 5
#define NMODES 2

/* go-zk writes a UUID without dashes, Curator one with dashes. */
#define GO_PREFIX "_c_"
#define GO_UUID_DIGITS 32
#define GO_MARKER "-lock-"

/*
 * A client whose names begin like this may be .NET's DistributedLock, which waits for such
 * names alone; others wait for all names that contain it.
 */
#define BARE_LOCK "lock-"

#define Y HEED_YES
#define N HEED_NO
#define U HEED_UNKNOWN

/*
 * By dialect and mode of their name, by our dialect, and by our mode, exclusive
 * first.  Readers need not wait for each other.
 */
static const Heed table[NDIALECTS][NMODES][NDIALECTS][NMODES] =
	{[DIALECT_CURATOR] =
		 {/* InterProcessMutex; zklock's own, which respects our readers */
		  [LOCK_MODE_EXCLUSIVE] = {{Y, U}, {N, N}, {N, N}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{U, Y}, {Y, Y}, {N, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_CURATOR_RW] =
		 {/* InterProcessReadWriteLock; readers may be zklock's in "curator" */
		  [LOCK_MODE_EXCLUSIVE] = {{N, Y}, {Y, Y}, {N, N}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{U, Y}, {Y, Y}, {N, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_KAZOO] =
		 {/* Lock, and WriteLock, which waits for readers too */
		  [LOCK_MODE_EXCLUSIVE] = {{N, N}, {N, N}, {Y, U}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {Y, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_ZOOKEEPER] =
		 {/* WriteLock; readers of the documented recipe, or zklock's */
		  [LOCK_MODE_EXCLUSIVE] = {{Y, N}, {N, N}, {N, N}, {Y, Y}, {Y, Y}},
		  [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {N, Y}, {U, Y}, {N, Y}}},
	 [DIALECT_HIVE] = {[LOCK_MODE_EXCLUSIVE] = {{N, N}, {N, N}, {N, N}, {N, N}, {Y, Y}},
					   [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {N, Y}, {N, Y}, {Y, Y}}}};

/* go-zk counts every child with a number, and fails if it finds another. */
static bool
is_go_zk(const char *name)
{
	const char *uuid = name + strlen(GO_PREFIX);

	return strncmp(name, GO_PREFIX, strlen(GO_PREFIX)) == 0 &&
		   strspn(uuid, "0123456789abcdefABCDEF") == GO_UUID_DIGITS &&
		   strncmp(uuid + GO_UUID_DIGITS, GO_MARKER, strlen(GO_MARKER)) == 0;
}

/*
 * Returns whether the client that gave a node this name waits for older nodes of ours, in the
 * given dialect and mode; HEED_UNKNOWN for a name that is not recognised as a contender's.
 */
Heed
heed_expected(NodeDialect dialect, LockMode mode, const char *name)
{
	NodeName parsed;
	Heed	 heed;

	if (!node_name_parse(name, &parsed))
		return HEED_UNKNOWN;
	if (is_go_zk(name))
		return HEED_YES;
	heed = table[parsed.dialect][parsed.mode][dialect][mode];
	return heed == HEED_YES && strncmp(name, BARE_LOCK, strlen(BARE_LOCK)) == 0 ? HEED_UNKNOWN : heed;
}

/* ------------------------------------------------------------------------
 * The recipe
 * ------------------------------------------------------------------------
 */

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

/* heed_expected() above says which clients wait for which names. */
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
