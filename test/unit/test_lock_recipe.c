/*-------------------------------------------------------------------------
 *
 * test_lock_recipe.c
 *	  Unit tests of recipe.c: who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define EX LOCK_MODE_EXCLUSIVE
#define SH LOCK_MODE_SHARED

#define MAX_CONTENDERS 6

/* A peer with what matters for locks */
typedef struct Peer
{
	int64_t	 sequence;
	LockMode mode;
} Peer;

static RecipePeer
recipe_peer(Peer peer)
{
	return (RecipePeer){.sequence = peer.sequence, .numbered = true, .mode = peer.mode};
}

/* Whom a contender waits for, if these are the others */
static int
blocker(const Peer *peers, int n, int64_t sequence, LockMode mode)
{
	RecipePeer	  all[MAX_CONTENDERS];
	RecipePeer	  self = {.sequence = sequence, .numbered = true, .mode = mode};
	RecipeRequest request = {.mode = mode};
	int32_t		  others_permits = 99;
	int			  found;

	for (int i = 0; i < n; i++)
		all[i] = recipe_peer(peers[i]);
	found = recipe_blocker(&lock_recipe, all, n, &self, &request, &others_permits);
	if (others_permits != 0)
		abort();
	return found;
}

/* The same for one that has no node yet */
static int
newcomer_blocker(const Peer *peers, int n, LockMode mode)
{
	RecipePeer	  all[MAX_CONTENDERS];
	RecipeRequest request = {.mode = mode};
	int32_t		  others_permits;

	for (int i = 0; i < n; i++)
		all[i] = recipe_peer(peers[i]);
	return recipe_blocker(&lock_recipe, all, n, NULL, &request, &others_permits);
}

static bool
excludes(LockMode a, LockMode b)
{
	RecipePeer	  peer = recipe_peer((Peer){0, a});
	RecipeRequest request = {.mode = b};

	return lock_recipe.excludes(&peer, &request);
}

static void
test_conflict(void)
{
	ok(excludes(EX, EX), "exclusive excludes exclusive");
	ok(excludes(EX, SH), "exclusive excludes shared");
	ok(excludes(SH, EX), "shared excludes exclusive");
	ok(!excludes(SH, SH), "shared admits shared");
}

static void
test_blocker(void)
{
	/* In order of arrival: S10 X20 S30 S40 X50, listed in another order. */
	static const Peer queue[] = {{40, SH}, {10, SH}, {50, EX}, {20, EX}, {30, SH}};
	static const Peer readers[] = {{3, SH}, {1, SH}, {2, SH}};
	static const Peer edges[] = {{INT32_MAX, EX}, {INT32_MIN, EX}, {0, EX}};

	is_int(blocker(NULL, 0, 5, EX), -1, "nobody there, exclusive");
	is_int(blocker(NULL, 0, 5, SH), -1, "nobody there, shared");

	is_int(blocker(queue, 5, 10, SH), -1, "the first waits for none");
	is_int(blocker(queue, 5, 20, EX), 1, "writer waits for the reader");
	is_int(blocker(queue, 5, 30, SH), 3, "reader waits for the writer");
	is_int(blocker(queue, 5, 40, SH), 3, "reader waits for the writer past another reader");
	is_int(blocker(queue, 5, 50, EX), 0, "writer waits for the nearest reader");
	is_int(blocker(queue, 5, 60, EX), 2, "newcomer waits for the last writer");
	is_int(blocker(queue, 5, 60, SH), 2, "so does a reader that comes new");
	is_int(blocker(queue, 5, 45, SH), 3, "younger ones do not count");
	is_int(blocker(queue, 5, 5, EX), -1, "the oldest writer is free");
	is_int(blocker(queue, 2, 50, EX), 0, "no more than n are looked at");

	is_int(blocker(readers, 3, 4, SH), -1, "readers share");
	is_int(blocker(readers, 3, 4, EX), 0, "writer waits for readers");
	is_int(blocker(readers, 3, 2, SH), -1, "reader among readers");

	is_int(blocker(edges, 3, INT32_MIN, EX), -1, "smallest sequence");
	is_int(blocker(edges, 3, 0, EX), 1, "negative ones are older");
	is_int(blocker(edges, 3, INT32_MAX, EX), 2, "largest sequence");
	is_int(blocker(edges, 3, (int64_t) INT32_MAX + 1, EX), 0, "beyond the largest sequence");
}

/* A holder's read node may carry the sequence of its own write node. */
static void
test_equal_sequences(void)
{
	static const Peer twins[] = {{7, SH}, {7, EX}};
	static const Peer left[] = {{7, SH}};
	int				  either;

	is_int(blocker(twins, 2, 7, EX), -1, "a twin never blocks a writer");
	is_int(blocker(twins, 2, 7, SH), -1, "a twin never blocks a reader");
	is_int(blocker(twins, 2, 8, SH), 1, "reader waits for the write node");
	either = blocker(twins, 2, 8, EX);
	ok(either == 0 || either == 1, "writer waits for either");
	is_int(blocker(left, 1, 8, EX), 0, "and then for the one left");
}

/* A contender that has no node yet comes last. */
static void
test_newcomer(void)
{
	static const Peer queue[] = {{4, SH}, {INT32_MAX, EX}, {-3, EX}};

	is_int(newcomer_blocker(NULL, 0, EX), RECIPE_NOBODY, "nobody there");
	is_int(newcomer_blocker(queue, 3, EX), 1, "waits for the last one that it conflicts with");
	is_int(newcomer_blocker(queue, 1, SH), RECIPE_NOBODY, "shares with readers");
	is_int(newcomer_blocker(queue, 1, EX), 0, "waits for readers as a writer");
}

static void
test_joining(void)
{
	RecipeRequest exclusive = {.mode = EX, .dialect = DIALECT_CURATOR};
	RecipeRequest shared = {.mode = SH, .dialect = DIALECT_CURATOR};
	RecipeRequest kazoo = {.mode = EX, .dialect = DIALECT_KAZOO};

	ok(lock_recipe.may_join(&exclusive, &exclusive), "like joins like");
	ok(!lock_recipe.may_join(&exclusive, &shared), "a reader does not join a writer");
	ok(!lock_recipe.may_join(&shared, &exclusive), "nor a writer a reader");
	ok(!lock_recipe.may_join(&exclusive, &kazoo), "nor one dialect another");
}

static void
test_names(void)
{
	static const uint8_t uuid[ZKLOCK_UUID_BYTES] = {0xf8, 0x1d, 0x4f};
	RecipeRequest		 request = {.mode = EX, .dialect = DIALECT_CURATOR};
	RecipeRequest		 downgraded = {.mode = SH, .dialect = DIALECT_CURATOR};
	RecipePeer			 peer;
	char				 name[ZKLOCK_MAX_NODE_NAME + 1];
	char				 downgraded_name[ZKLOCK_MAX_NODE_NAME + 1];

	lock_recipe.write(name, sizeof(name), &request, uuid);
	is_str(name, "_c_f81d4f00-0000-0000-0000-000000000000-lock-", "the name of a writer");
	strcat(name, "0000000012");
	ok(lock_recipe.read(name, &peer), "is read");
	is_int(peer.mode, EX, "as a writer");
	is_int(peer.sequence, 12, "with its sequence");
	ok(lock_recipe.downgraded_name(downgraded_name, sizeof(downgraded_name), name, &downgraded),
	   "has a downgraded node");
	is_str(downgraded_name, "_c_f81d4f00-0000-0000-0000-000000000000-__READ__0000000012",
		   "of the same attempt and sequence");
	ok(!lock_recipe.downgraded_name(downgraded_name, sizeof(downgraded_name), name, &request),
	   "if it is downgraded");
	ok(!lock_recipe.read("partition=7", &peer), "other children are none of its business");
}

/*
 * Play every queue of up to six contenders to its end, with one leaving at a
 * time in each possible choice of holder.  At no time may conflicting
 * contenders be granted together, someone must always be granted, and nobody
 * who is granted may lose that through another's leaving.
 */
static bool
play(const Peer *contenders, int n)
{
	bool granted[MAX_CONTENDERS];
	bool any = false;
	int	 i;
	int	 j;

	if (n == 0)
		return true;

	for (i = 0; i < n; i++)
	{
		granted[i] = blocker(contenders, n, contenders[i].sequence, contenders[i].mode) < 0;
		any = any || granted[i];
		for (j = 0; j < i; j++)
		{
			if (granted[i] && granted[j] && excludes(contenders[i].mode, contenders[j].mode))
				return false;
		}
	}
	if (!any)
		return false;

	for (i = 0; i < n; i++)
	{
		Peer rest[MAX_CONTENDERS];
		int	 m = 0;

		if (!granted[i])
			continue;
		for (j = 0; j < n; j++)
		{
			if (j != i)
				rest[m++] = contenders[j];
		}
		for (j = 0; j < n; j++)
		{
			if (j != i && granted[j] &&
				blocker(rest, m, contenders[j].sequence, contenders[j].mode) >= 0)
				return false;
		}
		if (!play(rest, m))
			return false;
	}
	return true;
}

static void
test_all_queues(void)
{
	int n;

	for (n = 1; n <= MAX_CONTENDERS; n++)
	{
		bool all = true;
		int	 modes;
		int	 i;

		for (modes = 0; modes < 1 << n; modes++)
		{
			Peer contenders[MAX_CONTENDERS];

			/* 5 is prime to 7, so that the sequences come in mixed order. */
			for (i = 0; i < n; i++)
			{
				contenders[i].sequence = (i + 1) * 5 % 7;
				contenders[i].mode = (modes >> i & 1) ? SH : EX;
			}
			all = play(contenders, n) && all;
		}
		ok(all, "every queue of %d is served to its end", n);
	}
}

int
main(void)
{
	test_conflict();
	test_blocker();
	test_equal_sequences();
	test_newcomer();
	test_joining();
	test_names();
	test_all_queues();
	return done_testing();
}
