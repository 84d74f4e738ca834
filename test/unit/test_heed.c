/*-------------------------------------------------------------------------
 *
 * test_heed.c
 *	  Unit tests of recipe.c: which clients wait for the names that we write.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"
#include "unit.h"

#define UUID "12345678-1234-4234-8234-123456789abc"
#define HEX "12345678123442348234123456789abc"
#define N "0000000007"

/*
 * A client, its node's name, and what it does with ours: for each dialect in
 * their order, exclusive and shared; y waits or need not, n does not, ? unknown.
 */
static const struct
{
	const char *client;
	const char *name;
	const char *heeds;
} clients[] = {{"Curator's mutex", "_c_" UUID "-lock-" N, "y? nn nn nn nn"},
			   {"the documented recipe", UUID "-lock-" N, "y? nn nn nn nn"},
			   {".NET's DistributedLock, and others", "lock-" N, "?? nn nn nn nn"},
			   {"go-zk", "_c_" HEX "-lock-" N, "yy yy yy yy yy"},
			   {"Curator's write lock", "_c_" UUID "-__WRIT__" N, "ny yy nn nn nn"},
			   {"Curator's read lock", "_c_" UUID "-__READ__" N, "?y yy ny ny ny"},
			   {"kazoo's Lock and WriteLock", HEX "__lock__" N, "nn nn y? nn nn"},
			   {"kazoo's ReadLock", HEX "__rlock__" N, "ny ny yy ny ny"},
			   {"ZooKeeper's recipe in Java", "x-72057594037927936-" N, "yn nn nn yy yy"},
			   {"ZooKeeper's recipe in C", "x-0100000000000000-" N, "yn nn nn yy yy"},
			   {"a reader of the documented recipe", UUID "-read-" N, "ny ny ny ?y ny"},
			   {"Hive, exclusive", "LOCK-EXCLUSIVE-" N, "nn nn nn nn yy"},
			   {"Hive, shared", "LOCK-SHARED-" N, "ny ny ny ny yy"},
			   {"Hive, semi-shared", "LOCK-SEMI_SHARED-" N, "ny ny ny ny yy"},
			   {"no contender", "something-else", "?? ?? ?? ?? ??"}};

/* Our names are those of clients that wait for them: each dialect suits somebody. */
static void
test_own_names(void)
{
	static const uint8_t uuid[ZKLOCK_UUID_BYTES] = {0x12, 0x34};

	for (int dialect = DIALECT_CURATOR; dialect <= DIALECT_HIVE; dialect++)
	{
		for (int mode = 0; mode < 2; mode++)
		{
			for (int other = 0; other < 2; other++)
			{
				char name[ZKLOCK_MAX_NODE_NAME + 1];

				node_name_prefix(name, sizeof(name),
								 &(RecipeRequest){.mode = other, .dialect = dialect}, uuid);
				strcat(name, N);
				ok(heed_expected(dialect, mode, name) != HEED_NO,
				   "%s: no alarm about zklock elsewhere", node_dialect_names[dialect]);
			}
		}
	}
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++)
	{
		char  heeds[] = "-- -- -- -- --";
		char *cell = heeds;

		for (int dialect = DIALECT_CURATOR; dialect <= DIALECT_HIVE; dialect++, cell += 3)
		{
			cell[0] = "yn?"[heed_expected(dialect, LOCK_MODE_EXCLUSIVE, clients[i].name)];
			cell[1] = "yn?"[heed_expected(dialect, LOCK_MODE_SHARED, clients[i].name)];
		}
		is_str(heeds, clients[i].heeds, clients[i].client);
	}
	test_own_names();
	return done_testing();
}
