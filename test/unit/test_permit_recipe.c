/*-------------------------------------------------------------------------
 *
 * test_permit_recipe.c
 *	  Unit tests of permit_recipe.c: names of leases, who has a permit.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/permit_recipe.h"

#include <stdlib.h>

#include "unit.h"

#define MANY 12

static const uint8_t uuid[ZKLOCK_UUID_BYTES] = {0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec,
												0x41, 0xd0, 0xa7, 0x65, 0x00, 0xa0,
												0xc9, 0x1e, 0x6b, 0xf6};

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
	char		name[ZKLOCK_MAX_NODE_NAME + 1];
	PermitLease lease;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		is_int(lease_name_parse(names[i].name, &lease), names[i].numbered, names[i].name);
		is_int(lease.numbered, names[i].numbered, "numbered");
		is_int(lease.sequence, names[i].sequence, "sequence");
		is_int(lease.permits, names[i].permits, "permits");
	}

	lease_name_prefix(name, sizeof(name), 4, uuid);
	is_str(name, "_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-of4-lease-", "the name of a lease");
	lease_name_prefix(name, sizeof(name), INT32_MAX, uuid);
	ok(strlen(name) + 11 <= ZKLOCK_MAX_NODE_NAME, "the longest one leaves room for a sequence");
	strcat(name, "-2147483648");
	ok(lease_name_parse(name, &lease), "and can be read");
	is_int(lease.permits, INT32_MAX, "with its permits");
	is_int(lease.sequence, INT32_MIN, "and its sequence");
}

/* The question, asked of leases that are in no order yet */
static int
blocker(const PermitLease *leases, int n, int own, int32_t permits, int32_t *others)
{
	PermitPlace places[MANY];
	int			place = -1;

	permit_order(leases, n, places);
	for (int i = 0; i < n && own >= 0; i++)
	{
		if (places[i].lease == own)
			place = i;
	}
	return permit_blocker(leases, places, n, place, permits, others);
}

static void
test_blocker(void)
{
	static const PermitLease three[] = {{true, 30, 0}, {true, 10, 0}, {true, 20, 0}};
	static const PermitLease mixed[] = {{true, 3, 2}, {true, 1, 4}, {true, 2, 0}, {true, 4, 1}};
	static const PermitLease strange[] = {{true, 5, 0}, {false, 0, 0}};
	static const PermitLease circle[] = {{true, INT32_MIN, 0},
										 {true, INT32_MAX, 0},
										 {true, INT32_MIN + 1, 0}};
	static const PermitLease twins[] = {{true, 5, 0}, {true, 5, 0}};
	int32_t					 others;

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
 * The same by the definition, comparing each with each.
 */
static int64_t
age(const PermitLease *lease, const PermitLease *than)
{
	if (!lease->numbered || !than->numbered)
		return lease->numbered ? INT32_MIN : (int64_t) INT32_MAX + 1;
	return (int32_t) ((uint32_t) than->sequence - (uint32_t) lease->sequence);
}

static bool
is_blocked(const PermitLease *leases, int n, int own, int32_t permits, int32_t *others)
{
	int older = 0;

	*others = 0;
	for (int i = 0; i < n; i++)
	{
		if (i == own || (own >= 0 && age(&leases[i], &leases[own]) < 0))
			continue;
		older++;
		if (leases[i].permits > 0 && (*others == 0 || leases[i].permits < *others))
			*others = leases[i].permits;
	}
	if (*others > 0 && *others < permits)
		permits = *others;
	return older >= permits;
}

static void
test_definition(void)
{
	int differ = 0;

	srandom(7);
	for (int round = 0; round < 20000; round++)
	{
		PermitLease leases[MANY];
		int			n = 1 + (int) (random() % MANY);
		int			own = (int) (random() % (n + 1)) - 1;
		int32_t		permits = 1 + (int32_t) (random() % MANY);
		int32_t		others;
		int32_t		expected_others;
		bool		expected;
		int			found;

		/* Few sequences, so that there are twins, around the end of the circle */
		for (int i = 0; i < n; i++)
		{
			leases[i].numbered = i == own || random() % 8 != 0;
			leases[i].sequence = (int32_t) ((uint32_t) INT32_MAX - 4 + (uint32_t) (random() % 9));
			leases[i].permits = random() % 2 ? 0 : 1 + (int32_t) (random() % MANY);
		}
		expected = is_blocked(leases, n, own, permits, &expected_others);
		found = blocker(leases, n, own, permits, &others);
		differ += others != expected_others || (found >= 0) != expected ||
				  (found >= 0 && found == own);
		for (int i = 0; found >= 0 && i < n; i++)
			differ += i != own && leases[found].numbered && age(&leases[i], &leases[found]) > 0;
	}
	is_int(differ, 0, "places in the order tell what comparing each with each does");
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
		int			chosen = (int) (random() % CLIENTS);
		PermitLease leases[CLIENTS];
		int			n = 0;
		int			own = -1;
		int			inside = 0;

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
	test_definition();
	test_rules_together();
	return done_testing();
}
