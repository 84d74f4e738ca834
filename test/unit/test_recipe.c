/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *	  Unit tests of recipe.c: who waits for whom.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"
#include "unit.h"

#define EX LOCK_MODE_EXCLUSIVE
#define SH LOCK_MODE_SHARED

#define MAX_CONTENDERS 6

static void
test_conflict(void)
{
	ok(recipe_conflict(EX, EX), "exclusive excludes exclusive");
	ok(recipe_conflict(EX, SH), "exclusive excludes shared");
	ok(recipe_conflict(SH, EX), "shared excludes exclusive");
	ok(!recipe_conflict(SH, SH), "shared admits shared");
}

static void
test_blocker(void)
{
	/* In order of arrival: S10 X20 S30 S40 X50, listed in another order. */
	static const RecipeContender queue[] = {{40, SH}, {10, SH}, {50, EX}, {20, EX}, {30, SH}};
	static const RecipeContender readers[] = {{3, SH}, {1, SH}, {2, SH}};
	static const RecipeContender edges[] = {{INT32_MAX, EX}, {INT32_MIN, EX}, {0, EX}};

	is_int(recipe_blocker(NULL, 0, 5, EX), -1, "nobody there, exclusive");
	is_int(recipe_blocker(NULL, 0, 5, SH), -1, "nobody there, shared");

	is_int(recipe_blocker(queue, 5, 10, SH), -1, "the first waits for none");
	is_int(recipe_blocker(queue, 5, 20, EX), 1, "writer waits for the reader");
	is_int(recipe_blocker(queue, 5, 30, SH), 3, "reader waits for the writer");
	is_int(recipe_blocker(queue, 5, 40, SH), 3, "reader waits for the writer past another reader");
	is_int(recipe_blocker(queue, 5, 50, EX), 0, "writer waits for the nearest reader");
	is_int(recipe_blocker(queue, 5, 60, EX), 2, "newcomer waits for the last writer");
	is_int(recipe_blocker(queue, 5, 60, SH), 2, "so does a reader that comes new");
	is_int(recipe_blocker(queue, 5, 45, SH), 3, "younger ones do not count");
	is_int(recipe_blocker(queue, 5, 5, EX), -1, "the oldest writer is free");
	is_int(recipe_blocker(queue, 2, 50, EX), 0, "no more than n are looked at");

	is_int(recipe_blocker(readers, 3, 4, SH), -1, "readers share");
	is_int(recipe_blocker(readers, 3, 4, EX), 0, "writer waits for readers");
	is_int(recipe_blocker(readers, 3, 2, SH), -1, "reader among readers");

	is_int(recipe_blocker(edges, 3, INT32_MIN, EX), -1, "smallest sequence");
	is_int(recipe_blocker(edges, 3, 0, EX), 1, "negative ones are older");
	is_int(recipe_blocker(edges, 3, INT32_MAX, EX), 2, "largest sequence");
	is_int(recipe_blocker(edges, 3, (int64_t) INT32_MAX + 1, EX), 0, "beyond the largest sequence");
}

/* A holder's read node may carry the sequence of its own write node. */
static void
test_equal_sequences(void)
{
	static const RecipeContender twins[] = {{7, SH}, {7, EX}};
	static const RecipeContender left[] = {{7, SH}};
	int							 blocker;

	is_int(recipe_blocker(twins, 2, 7, EX), -1, "a twin never blocks a writer");
	is_int(recipe_blocker(twins, 2, 7, SH), -1, "a twin never blocks a reader");
	is_int(recipe_blocker(twins, 2, 8, SH), 1, "reader waits for the write node");
	blocker = recipe_blocker(twins, 2, 8, EX);
	ok(blocker == 0 || blocker == 1, "writer waits for either");
	is_int(recipe_blocker(left, 1, 8, EX), 0, "and then for the one left");
}

static void
test_newer(void)
{
	static const RecipeContender queue[] = {{4, SH}, {9, EX}, {-3, EX}};

	ok(!recipe_newer_exists(NULL, 0, 0, EX), "nobody there");
	ok(recipe_newer_exists(queue, 3, 8, EX), "one is newer");
	ok(!recipe_newer_exists(queue, 3, 9, EX), "an equal one is not newer");
	ok(!recipe_newer_exists(queue, 3, 10, EX), "none is newer");
	ok(recipe_newer_exists(queue, 3, -4, EX), "all are newer");
	ok(recipe_newer_exists(queue, 1, 3, EX), "a shared one counts for an exclusive one");
	ok(!recipe_newer_exists(queue, 1, 3, SH), "but not for a shared one");
	ok(recipe_newer_exists(queue, 2, 3, SH), "for which an exclusive one does");
	ok(!recipe_newer_exists(queue, 1, 8, EX), "no more than n are looked at");
}

/*
 * Play every queue of up to six contenders to its end, with one leaving at a
 * time in each possible choice of holder.  At no time may conflicting
 * contenders be granted together, someone must always be granted, and nobody
 * who is granted may lose that through another's leaving.
 */
static bool
play(const RecipeContender *contenders, int n)
{
	bool granted[MAX_CONTENDERS];
	bool any = false;
	int	 i;
	int	 j;

	if (n == 0)
		return true;

	for (i = 0; i < n; i++)
	{
		granted[i] = recipe_blocker(contenders, n, contenders[i].sequence, contenders[i].mode) < 0;
		any = any || granted[i];
		for (j = 0; j < i; j++)
		{
			if (granted[i] && granted[j] && recipe_conflict(contenders[i].mode, contenders[j].mode))
				return false;
		}
	}
	if (!any)
		return false;

	for (i = 0; i < n; i++)
	{
		RecipeContender rest[MAX_CONTENDERS];
		int				m = 0;

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
				recipe_blocker(rest, m, contenders[j].sequence, contenders[j].mode) >= 0)
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
			RecipeContender contenders[MAX_CONTENDERS];

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
	test_newer();
	test_all_queues();
	return done_testing();
}
