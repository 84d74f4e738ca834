/*-------------------------------------------------------------------------
 *
 * heed.c
 *	  Which clients wait for the names that we write.
 *
 * zklock knows the names of all clients and waits for each of them.  Most clients know
 * their own names alone: what they do when they find ours depends on the dialect that we
 * write.  The table is taken from the sources of those clients and from the tests that run
 * them (test/t/160 and 161); "who excludes whom" in the documentation is the same from a
 * user's point of view.
 *
 * A name does not show everything.  zklock writes the names of other clients and respects
 * what they do not, and kazoo's Lock and WriteLock have the same names but differ in what
 * they wait for.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <string.h>

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
