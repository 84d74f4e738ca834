/*-------------------------------------------------------------------------
 *
 * test_election_recipe.c
 *	  Unit tests of recipe.c: names of candidates, who leads.
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

#define CANDIDATE(sequence_, family_)                                  \
	{                                                                  \
		.sequence = (sequence_), .numbered = true, .family = (family_) \
	}

/* What clients of all kinds write, and what they do not */
static void
test_names_read(void)
{
	static const struct
	{
		const char	  *name;
		bool		   candidate;
		ElectionFamily family;
		long long	   sequence;
	} names[] = {{"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-0000000012", true, ELECTION_LATCH, 12},
				 {"latch-0000000000", true, ELECTION_LATCH, 0},
				 {"latch-7-latch-0000000003", true, ELECTION_LATCH, 3},
				 {"latch-2147483647", true, ELECTION_LATCH, INT32_MAX},
				 {"latch--2147483648", true, ELECTION_LATCH, INT32_MIN},
				 {"n_0000000007", true, ELECTION_SUPPORT, 7},
				 {"n_7", true, ELECTION_SUPPORT, 7},
				 {"n_-000000005", true, ELECTION_SUPPORT, -5},
				 {"guid-n_0000000007", true, ELECTION_SUPPORT, 7},
				 {"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-0000000012", true, ELECTION_LOCK, 12},
				 {"f81d4fae7dec41d0a76500a0c91e6bf6__lock__0000000004", true, ELECTION_LOCK, 4},
				 {"latch-", false, 0, 0},
				 {"latch-2147483648", false, 0, 0},
				 {"latch-00000000001", false, 0, 0},
				 {"latch-1x", false, 0, 0},
				 {"latch--", false, 0, 0},
				 {"n_", false, 0, 0},
				 {"n_x", false, 0, 0},
				 {"qn-0000000005", false, 0, 0},
				 {"leases", false, 0, 0},
				 {"", false, 0, 0}};
	RecipePeer peer;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		is_int(election_recipe.read(names[i].name, &peer), names[i].candidate, names[i].name);
		if (!names[i].candidate)
			continue;
		is_int(peer.family, names[i].family, "its family");
		is_int(peer.sequence, names[i].sequence, "its sequence");
		ok(peer.numbered, "it has one");
	}
}

/* Of these, what shows that a path is an election's, and not a lock's or anything else's */
static void
test_names_that_show_an_election(void)
{
	static const char *const yes[] = {"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-0000000012",
									  "latch-0000000000", "n_0000000007"};
	static const char *const no[] = {"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-0000000012",
									 "f81d4fae7dec41d0a76500a0c91e6bf6__lock__0000000004",
									 "region_0000000001",
									 "latch-7",
									 "n_7",
									 "n_",
									 "qn-0000000005",
									 ""};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		ok(recipe_shows_election(yes[i]), "\"%s\" shows one", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		ok(!recipe_shows_election(no[i]), "\"%s\" shows none", no[i]);
}

/* What we write is what the peers write, and is read again. */
static void
test_names_written(void)
{
	static const struct
	{
		ElectionFamily family;
		NodeDialect	   dialect;
		const char	  *prefix;
		bool		   name_is_reusable;
	} names[] = {{ELECTION_LATCH, DIALECT_CURATOR,
				  "_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-", false},
				 {ELECTION_SUPPORT, DIALECT_CURATOR, "n_", true},
				 {ELECTION_LOCK, DIALECT_CURATOR, "_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-", false},
				 {ELECTION_LOCK, DIALECT_KAZOO, "f81d4fae7dec41d0a76500a0c91e6bf6__lock__", false},
				 {ELECTION_LOCK, DIALECT_HIVE, "LOCK-EXCLUSIVE-", true}};
	char	   name[ZKLOCK_MAX_NODE_NAME + 1];
	RecipePeer peer;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		RecipeRequest request = {.family = names[i].family, .dialect = names[i].dialect};

		election_recipe.write(name, sizeof(name), &request, uuid);
		is_str(name, names[i].prefix, "the name of a candidate");
		is_int(election_recipe.name_is_reusable(&request), names[i].name_is_reusable,
			   "may it be another's one day?");
		strcat(name, "0000000042");
		ok(election_recipe.read(name, &peer), "with its sequence it is one");
		is_int(peer.family, names[i].family, "of the same family");
		is_int(peer.sequence, 42, "in its place");
	}
}

static void
test_blocker(void)
{
	static const RecipePeer three[] = {CANDIDATE(30, ELECTION_LATCH), CANDIDATE(10, ELECTION_LATCH),
									   CANDIDATE(20, ELECTION_LATCH)};
	static const RecipePeer mixed[] = {CANDIDATE(3, ELECTION_LATCH), CANDIDATE(1, ELECTION_SUPPORT)};
	static const RecipePeer early = CANDIDATE(5, ELECTION_LATCH);
	static const RecipePeer late = CANDIDATE(25, ELECTION_LATCH);
	static const RecipePeer before_all = CANDIDATE(-5, ELECTION_LATCH);
	RecipeRequest			request = {.family = ELECTION_LATCH};
	int32_t					others_permits;

	is_int(recipe_blocker(&election_recipe, NULL, 0, &early, &request, &others_permits),
		   RECIPE_NOBODY, "alone, it leads");
	is_int(recipe_blocker(&election_recipe, three, 3, &early, &request, &others_permits),
		   RECIPE_NOBODY, "the oldest leads");
	is_int(recipe_blocker(&election_recipe, three, 3, &late, &request, &others_permits), 1,
		   "others wait for the oldest");
	is_int(recipe_blocker(&election_recipe, three, 3, NULL, &request, &others_permits), 1,
		   "so does a newcomer");
	is_int(recipe_blocker(&election_recipe, three, 3, &three[0], &request, &others_permits), 1,
		   "and the last");
	is_int(recipe_blocker(&election_recipe, mixed, 2, &early, &request, &others_permits), 1,
		   "one of another family counts");
	is_int(recipe_blocker(&election_recipe, three, 3, &before_all, &request, &others_permits),
		   RECIPE_NOBODY, "a negative number is older");
	is_int(others_permits, 0, "no permits are recorded");
}

/* A node of another family bars us from the path; one of ours does not. */
static void
test_bars(void)
{
	for (int ours = ELECTION_LATCH; ours <= ELECTION_LOCK; ours++)
	{
		for (int theirs = ELECTION_LATCH; theirs <= ELECTION_LOCK; theirs++)
		{
			RecipeRequest request = {.family = (ElectionFamily) ours};
			RecipePeer	  peer = CANDIDATE(1, (ElectionFamily) theirs);

			is_int(election_recipe.cannot_coexist(&peer, &request), ours != theirs,
				   "families do not mix");
		}
	}
	ok(election_recipe.cannot_coexist != NULL, "so we look before we write");
	ok(election_recipe.may_join == NULL, "a candidate stands for itself");
	ok(election_recipe.downgraded_name == NULL, "and has no downgraded node");
}

/* Candidates come, go and go to the end at random: never do two of them lead. */
static void
test_one_leads(void)
{
	enum
	{
		CLIENTS = 6
	};
	RecipePeer	  candidates[CLIENTS] = {0};
	bool		  stands[CLIENTS] = {0};
	RecipeRequest request = {.family = ELECTION_LATCH};
	int64_t		  sequence = 0;
	int			  most = 0;
	int			  fewest = CLIENTS;

	srandom(42);
	for (int step = 0; step < 100000; step++)
	{
		int chosen = (int) (random() % CLIENTS);
		int leaders = 0;
		int standing = 0;

		stands[chosen] = !stands[chosen] || random() % 2 == 0;
		candidates[chosen] = (RecipePeer) CANDIDATE(sequence, ELECTION_LATCH);
		sequence++;
		for (int i = 0; i < CLIENTS; i++)
		{
			RecipePeer others[CLIENTS];
			int		   n = 0;
			int32_t	   others_permits;

			if (!stands[i])
				continue;
			standing++;
			for (int j = 0; j < CLIENTS; j++)
			{
				if (j != i && stands[j])
					others[n++] = candidates[j];
			}
			leaders += recipe_blocker(&election_recipe, others, n, &candidates[i], &request,
									  &others_permits) == RECIPE_NOBODY;
		}
		most = leaders > most ? leaders : most;
		if (standing > 0)
			fewest = leaders < fewest ? leaders : fewest;
	}
	is_int(most, 1, "never more than one leads");
	is_int(fewest, 1, "nor fewer, if anybody stands");
}

/* What a candidate's node tells of its priority, whoever wrote it */
static void
test_priorities(void)
{
	static const struct
	{
		const char *data;
		const char *name;
		int			priority;
	} told[] = {{"alpha", "alpha", 0}, /* a server without priority, of an older version, another client */
				{"", "", 0},
				{"alpha priority 2", "alpha", 2},
				{" priority 1000", "", 1000},
				{"a priority 1 priority 2", "a priority 1", 2},
				{"alpha priority 0", "alpha", 0},
				{"alpha priority 1001", "alpha priority 1001", 0},
				{"alpha priority -1", "alpha priority -1", 0},
				{"alpha priority ", "alpha priority ", 0},
				{"alpha priority 2 ", "alpha priority 2 ", 0},
				{"alpha priority 00002", "alpha priority 00002", 0},
				{"priority 2", "priority 2", 0}};
	static const struct
	{
		const char *name;
		int			priority;
		const char *data;
	} written[] = {{"alpha", 0, "alpha"},
				   {"alpha", 2, "alpha priority 2"},
				   {"", 1000, " priority 1000"},
				   {"a priority 5", 0, "a priority 5 priority 0"},
				   {"a priority 5", 3, "a priority 5 priority 3"},
				   {"a name that is longer than the room for it", 7, "a name that is longer priority 7"}};
	size_t name_len;
	char   data[36];

	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
	{
		is_int(recipe_data_read(told[i].data, &name_len), told[i].priority, told[i].data);
		ok(name_len == strlen(told[i].name) && memcmp(told[i].data, told[i].name, name_len) == 0,
		   "its name is \"%s\"", told[i].name);
	}
	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
	{
		recipe_data_write(data, sizeof(data), written[i].name, written[i].priority);
		is_str(data, written[i].data, written[i].name);
		is_int(recipe_data_read(data, &name_len), written[i].priority, "it is read as it was written");
	}
}

int
main(void)
{
	test_names_read();
	test_names_that_show_an_election();
	test_names_written();
	test_blocker();
	test_bars();
	test_one_leads();
	test_priorities();
	return done_testing();
}
