/*-------------------------------------------------------------------------
 *
 * test_permit_recipe.c
 *	  Unit tests of recipe.c: names of leases, who has a permit.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

#include <stdlib.h>

#include "unit.h"

static const uint8_t uuid[ZKLOCK_UUID_BYTES] = {0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec,
												0x41, 0xd0, 0xa7, 0x65, 0x00, 0xa0,
												0xc9, 0x1e, 0x6b, 0xf6};

/* Whom the owner of lease "own", or a newcomer if that is -1, waits for */
static int
blocker(const RecipePeer *leases, int n, int own, int32_t permits, int32_t *others)
{
	RecipePeer	  peers[8];
	int			  index[8] = {0};
	int			  npeers = 0;
	RecipeRequest request = {.permits = permits};
	int			  found;

	for (int i = 0; i < n; i++)
	{
		if (i == own)
			continue;
		index[npeers] = i;
		peers[npeers++] = leases[i];
	}
	found = recipe_blocker(&permit_recipe, peers, npeers, own >= 0 ? &leases[own] : NULL,
						   &request, others);
	return found == RECIPE_NOBODY ? -1 : index[found];
}

#define LEASE(sequence_, permits_)                                       \
	{                                                                    \
		.sequence = (sequence_), .numbered = true, .permits = (permits_) \
	}

static void
test_names(void)
{
	static const struct
	{
		const char *name;
		bool		numbered;
		long long	sequence;
		long long	permits;
	} names[] = {{"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-of4-lease-0000000012", true, 12, 4},
				 {"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lease-0000000012", true, 12, 0},
				 {"lease-0000000000", true, 0, 0},
				 {"-of3-lease-2147483647", true, INT32_MAX, 3},
				 {"-of3-lease--2147483648", true, INT32_MIN, 3},
				 {"-of3-lease--000000005", true, -5, 3},
				 {"-of2147483647-lease-0000000001", true, 1, INT32_MAX},
				 {"-of2147483648-lease-0000000001", true, 1, 0},
				 {"-of0-lease-0000000001", true, 1, 0},
				 {"-of-lease-0000000001", true, 1, 0},
				 {"of4-lease-0000000001", true, 1, 0},
				 {"-of4lease-0000000001", true, 1, 0},
				 {"4-lease-0000000001", true, 1, 0},
				 {"-of99999999999999999999-lease-0000000001", true, 1, 0},
				 {"lease-7-lease-0000000001", true, 1, 0},
				 {"-of4-lease-", false, 0, 4},
				 {"-of4-lease-2147483648", false, 0, 4},
				 {"-of4-lease--", false, 0, 4},
				 {"-of4-lease-00000000001", false, 0, 4},
				 {"-of4-lease-1x", false, 0, 4},
				 {"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-0000000012", false, 0, 0},
				 {"", false, 0, 0}};
	char		  name[ZKLOCK_MAX_NODE_NAME + 1];
	RecipePeer	  lease;
	RecipeRequest request = {.permits = 4};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		ok(permit_recipe.read(names[i].name, &lease), "%s is a lease", names[i].name);
		is_int(lease.numbered, names[i].numbered, "numbered");
		is_int(lease.sequence, names[i].sequence, "sequence");
		is_int(lease.permits, names[i].permits, "permits");
	}

	permit_recipe.write(name, sizeof(name), &request, uuid);
	is_str(name, "_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-of4-lease-", "the name of a lease");
	request.permits = INT32_MAX;
	permit_recipe.write(name, sizeof(name), &request, uuid);
	ok(strlen(name) + 11 <= ZKLOCK_MAX_NODE_NAME, "the longest one leaves room for a sequence");
	strcat(name, "-2147483648");
	ok(permit_recipe.read(name, &lease) && lease.numbered, "and can be read");
	is_int(lease.permits, INT32_MAX, "with its permits");
	is_int(lease.sequence, INT32_MIN, "and its sequence");
}

static void
test_blocker(void)
{
	static const RecipePeer three[] = {LEASE(30, 0), LEASE(10, 0), LEASE(20, 0)};
	static const RecipePeer mixed[] = {LEASE(3, 2), LEASE(1, 4), LEASE(2, 0), LEASE(4, 1)};
	static const RecipePeer strange[] = {LEASE(5, 0), {.numbered = false}};
	static const RecipePeer circle[] = {LEASE(INT32_MIN, 0), LEASE(INT32_MAX, 0),
										LEASE(INT32_MIN + 1, 0)};
	static const RecipePeer twins[] = {LEASE(5, 0), LEASE(5, 0)};
	int32_t					others;

	is_int(blocker(NULL, 0, -1, 1, &others), -1, "nobody there: a permit is free");
	is_int(others, 0, "nobody says otherwise");

	is_int(blocker(three, 3, 0, 3, &others), -1, "the third of three gets the last permit");
	is_int(blocker(three, 3, 0, 2, &others), 1, "of two not, and the oldest is to blame");
	is_int(blocker(three, 3, 2, 2, &others), -1, "the second of two does");
	is_int(blocker(three, 3, 1, 1, &others), -1, "the first always does");
	is_int(blocker(three, 3, -1, 3, &others), 1, "a newcomer finds none of three");
	is_int(blocker(three, 3, -1, 4, &others), -1, "but one of four");

	is_int(blocker(mixed, 4, 0, 9, &others), -1, "an older one who says 4 leaves room for a third");
	is_int(others, 4, "and is heard");
	is_int(blocker(mixed, 4, 0, 2, &others), 1, "who says 2 keeps to it");
	is_int(blocker(mixed, 4, -1, 9, &others), 1, "the smallest number of all counts");
	is_int(others, 1, "which is 1");
	is_int(blocker(mixed, 4, 1, 1, &others), -1, "younger ones do not count");
	is_int(others, 0, "nor are they heard");

	is_int(blocker(strange, 2, 0, 1, &others), 1, "a child without sequence is older");
	is_int(blocker(strange, 2, 1, 1, &others), -1, "than all who have one");

	is_int(blocker(circle, 3, 1, 1, &others), -1, "the last sequence is older than the first again");
	is_int(blocker(circle, 3, 0, 1, &others), 1, "that one waits for it");
	is_int(blocker(circle, 3, 2, 2, &others), 1, "so does the third, for the oldest");
	is_int(blocker(circle, 3, 0, 2, &others), -1, "if it must");
	is_int(blocker(twins, 2, 0, 1, &others), 1, "equal sequences count");
}

/*
 * Clients of both rules come and go at random: the permits never run out.
 * Each looks at all there is at the moment, as a listing does.
 */
static void
test_rules_together(void)
{
	enum
	{
		PERMITS = 3,
		CLIENTS = 8
	};
	struct
	{
		bool exists;
		bool granted;
		bool curator;
		int	 sequence;
	} clients[CLIENTS] = {0};
	int32_t sequence = INT32_MAX - 20000;
	int		worst = 0;
	long	grants = 0;

	srandom(42);
	for (int step = 0; step < 200000; step++)
	{
		int		   chosen = (int) (random() % CLIENTS);
		RecipePeer leases[CLIENTS];
		int		   n = 0;
		int		   own = -1;
		int		   inside = 0;

		if (!clients[chosen].exists)
		{
			clients[chosen].exists = true;
			clients[chosen].granted = false;
			clients[chosen].curator = random() % 2;
			clients[chosen].sequence = sequence;
			sequence = (int32_t) ((uint32_t) sequence + 1);
			continue;
		}
		if (random() % 4 == 0)
		{
			clients[chosen].exists = false;
			continue;
		}
		for (int i = 0; i < CLIENTS; i++)
		{
			if (!clients[i].exists)
				continue;
			if (i == chosen)
				own = n;
			leases[n].numbered = true;
			leases[n].sequence = clients[i].sequence;
			leases[n].permits = clients[i].curator ? 0 : PERMITS;
			n++;
		}
		if (!clients[chosen].granted)
		{
			int32_t others;

			clients[chosen].granted = clients[chosen].curator
										  ? n <= PERMITS
										  : blocker(leases, n, own, PERMITS, &others) < 0;
			grants += clients[chosen].granted;
		}
		for (int i = 0; i < CLIENTS; i++)
			inside += clients[i].exists && clients[i].granted;
		if (inside > worst)
			worst = inside;
	}
	ok(grants > 1000, "%ld permits were granted", grants);
	is_int(worst, PERMITS, "never more than there are");
}

int
main(void)
{
	test_names();
	test_blocker();
	test_rules_together();
	return done_testing();
}
