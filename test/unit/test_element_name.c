/*
 * test_element_name.c
 *		Unit tests of node_name.c and recipe.c: names of elements, their order, and
 *		what shows that a path is no queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "recipes/node_name.h"
#include "recipes/recipe.h"

#include "unit.h"

static void
test_names(void)
{
	static const struct
	{
		const char *name;
		int64_t		number;
	} elements[] = {{"qn-0000000000", 0},
					{"qn-0000000123", 123},
					{"qn-2147483647", 2147483647},
					{"qn--2147483648", -2147483648LL},
					{"qn-7", 7},
					{"qn-+7", 7},
					{"qn--0000000005", -5},
					{"qn-9223372036854775807", INT64_MAX},
					{"qn--9223372036854775808", INT64_MIN}};
	static const char *const others[] = {"",
										 "qn-",
										 "qn-x",
										 "qn-1x",
										 "qn- 1",
										 "qn-1 ",
										 "qn--",
										 "qn-+",
										 "qn-+-1",
										 "qn--+1",
										 "qn-0x10",
										 "qn-9223372036854775808",
										 "qn--9223372036854775809",
										 "qn-00000000000000000000000000001",
										 "Qn-0000000001",
										 "xqn-0000000001",
										 "queue-0000000001",
										 "zk-queue-0123456789abcdef0123456789012345-pin",
										 "entry-000-0000000001"};

	for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++)
	{
		int64_t number = 99;

		ok(element_name_read(elements[i].name, &number) && number == elements[i].number,
		   "\"%s\" is element %lld", elements[i].name, (long long) elements[i].number);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		int64_t number;

		ok(!element_name_read(others[i], &number), "\"%s\" is none", others[i]);
	}
}

static void
test_order(void)
{
	char					*children[] = {"qn-0000000010",	 "other",		  "qn-7",
										   "qn--0000000005", "qn-0000000007", "qn-10000000000",
										   "qn-0000000002",	 "qn-",			  "qn-2147483647"};
	static const char *const expected[] = {"qn--0000000005", "qn-0000000002", "qn-0000000007",
										   "qn-7",			 "qn-0000000010", "qn-2147483647",
										   "qn-10000000000"};
	ElementName				 elements[9];
	int						 n = element_name_sort(children, 9, elements);

	ok(n == 7, "what is no element is left out");
	for (int i = 0; i < n && i < 7; i++)
		ok(strcmp(elements[i].name, expected[i]) == 0, "%d: %s", i, expected[i]);
	ok(element_name_sort(children, 0, elements) == 0, "no children, no elements");
	children[0] = children[2];
	ok(element_name_sort(children, 3, elements) == 2 && elements[0].number == elements[1].number,
	   "an element is as old as itself");
}

/* Does a child show that its parent has such children, not elements? */
static bool
shows(const char *child, const char *what)
{
	const char *use = element_name_other_use(child);

	return use && strstr(use, what) != NULL;
}

static void
test_other_use(void)
{
	static const char *const others[] = {"_c_00000000-0000-0000-0000-000000000001-lock-0000000000",
										 "lock-0000000000",
										 "0123__lock__0000000000",
										 "0123__rlock__0000000000",
										 "_c_x-__WRIT__0000000000",
										 "x-72-0000000000",
										 "LOCK-EXCLUSIVE-0000000000",
										 "leases",
										 "locks"};
	static const char *const candidates[] = {"_c_00000000-0000-0000-0000-000000000001-latch-0000000000",
											 "latch-0000000007", "n_0000000000"};
	static const char *const queues[] = {"qn-0000000000",
										 "claim",
										 "zk-queue-0123456789abcdef0123456789012345-pin",
										 "anything",
										 "lease",
										 "locksmith",
										 "n_",
										 "n_7",
										 "n_000000000x",
										 "latch-",
										 "region_0000000001",
										 "n_latch"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ok(shows(others[i], "nodes of a lock or semaphore"), "\"%s\" is of another recipe",
		   others[i]);
	for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++)
		ok(shows(candidates[i], "candidates of an election"), "\"%s\" is a candidate's",
		   candidates[i]);
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++)
		ok(element_name_other_use(queues[i]) == NULL, "\"%s\" is not", queues[i]);
}

static void
test_claim(void)
{
	RecipeRequest request = {.mode = LOCK_MODE_EXCLUSIVE};
	RecipePeer	  peer;
	char		  name[ZKLOCK_MAX_NODE_NAME + 1];
	int32_t		  others_permits = 1;

	element_recipe.write(name, sizeof(name), &request, (const uint8_t[ZKLOCK_UUID_BYTES]){0});
	ok(strcmp(name, ELEMENT_CLAIM) == 0, "a claim has a fixed name");
	ok(element_recipe.read(name, &peer) && peer.numbered, "which is recognised");
	ok(!element_recipe.read("claim-0000000000", &peer), "another is not");
	ok(recipe_blocker(&element_recipe, &peer, 1, &peer, &request, &others_permits) == RECIPE_NOBODY &&
		   others_permits == 0,
	   "a claim that exists holds");
	ok(recipe_blocker(&element_recipe, &peer, 1, NULL, &request, &others_permits) == 0,
	   "a newcomer does not");
	ok(element_recipe.fixed_name && element_recipe.excludes(&peer, &request), "and keeps out others");
}

int
main(void)
{
	test_claim();
	test_names();
	test_order();
	test_other_use();
	return done_testing();
}
