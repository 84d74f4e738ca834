/*-------------------------------------------------------------------------
 *
 * test_missing_path.c
 *	  Unit tests of node_name.c and recipe.c: which node of a missing path comes next, and which nodes
 *	  cannot be children together.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define UUID "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"

static void
test_locks(void)
{
	static const char *const harmful[] = {"0",			"00",
										  "007",		"0000000000",
										  "0000000005", "-1",
										  "-x",			".x",
										  "#",			"+1",
										  "lock-",		"clock-",
										  "lock-0",		"lock-x-lock-0",
										  "x__READ__",	"__WRIT__-1",
										  "latch-",		" "};
	static const char *const harmless[] = {"eu",	   "berlin",   "1",			"2026",
										   "order-17", "ds=1",	   "A",			"_c_",
										   "lock",	   "leases",   "locks",		"lock-x",
										   "x-0",	   "\xc3\xa9", "__READ__x", "~"};

	for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++)
		ok(neighbour_harm("/x", harmful[i]) == HARMS_LOCK, "\"%s\" sorts before sequences",
		   harmful[i]);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		ok(neighbour_harm("/x", harmless[i]) == 0, "\"%s\" does not", harmless[i]);
	ok(neighbour_harm("/x", "0lock-x") == HARMS_LOCK,
	   "nor does \"0lock-x\" for locks of another marker");

	ok(neighbour_is_harmed(HARMS_LOCK, "_c_" UUID "-lock-0000000012"), "Curator's mutex");
	ok(neighbour_is_harmed(HARMS_LOCK, "_c_" UUID "-__WRIT__0000000012"), "its writer");
	ok(neighbour_is_harmed(HARMS_LOCK, "_c_" UUID "-__READ__0000000012"), "its reader");
	ok(neighbour_is_harmed(HARMS_LOCK, "_c_" UUID "-latch-0000000012"), "its candidate for leadership");
	ok(!neighbour_is_harmed(HARMS_LOCK, "LOCK-SHARED-0000000012"), "Hive is not disturbed");
	ok(!neighbour_is_harmed(HARMS_LOCK, "f81d4fae7dec41d0a76500a0c91e6bf6__lock__0000000012"),
	   "nor is kazoo");
	ok(!neighbour_is_harmed(HARMS_LOCK, "0"), "nor another path");
	ok(!neighbour_is_harmed(HARMS_LOCK, "_c_x"), "whatever it is called");
}

static void
test_semaphores(void)
{
	ok(neighbour_harm("/batch/slots/leases", "eu") == HARMS_SEMAPHORE, "below leases everything counts");
	ok(neighbour_harm("/leases", "eu") == HARMS_SEMAPHORE, "wherever they are");
	ok(neighbour_harm("/batch/slots/locks", "eu") == 0, "below locks not");
	ok(neighbour_harm("/batch/releases", "eu") == 0, "nor where the name only ends so");
	ok(neighbour_harm("/leases/x", "eu") == 0, "nor further below");

	ok(neighbour_is_harmed(HARMS_SEMAPHORE, "_c_" UUID "-lease-0000000012"), "a lease of Curator's");
	ok(neighbour_is_harmed(HARMS_SEMAPHORE, "_c_" UUID "-of4-lease-0000000012"), "a lease of ours");
	ok(!neighbour_is_harmed(HARMS_SEMAPHORE, "car-17"), "something else");
}

/* Plays a walk; "answers" says for each node that is tried whether it exists then. */
static void
walk(const char *path, size_t end, const char *answers, MissingStep last, const char *tried)
{
	MissingPath walk = {.end = end, .length = end};
	MissingStep step = MISSING_LOOK;
	char		done[1000] = "";

	for (; step == MISSING_LOOK || step == MISSING_CREATE; answers++)
	{
		snprintf(done + strlen(done), sizeof(done) - strlen(done), "%s%.*s ",
				 step == MISSING_LOOK ? "?" : "", (int) walk.length, path);
		if (*answers == '\0')
			break;
		step = missing_path_next(&walk, path, *answers == 'y');
	}
	ok(step == last, "%s, %s: ends with %d", path, answers, step);
	ok(strcmp(done, tried) == 0, "%s: %s", path, done);
}

static void
test_walks(void)
{
	char deep[100] = "";

	walk("/a/b/c", 6, "y", MISSING_END, "?/a/b/c ");
	walk("/a/b/c", 6, "nyy", MISSING_END, "?/a/b/c ?/a/b /a/b/c ");
	walk("/a/b/c", 6, "nnyyy", MISSING_END, "?/a/b/c ?/a/b ?/a /a/b /a/b/c ");
	walk("/a/b/c", 6, "nnyn", MISSING_END, "?/a/b/c ?/a/b ?/a /a/b ");
	walk("/a/b/c", 6, "nnn", MISSING_NO_CHROOT, "?/a/b/c ?/a/b ?/a ");
	walk("/a/b/c", 4, "nyy", MISSING_END, "?/a/b ?/a /a/b ");
	for (int i = 0; i < 17; i++)
		strcat(deep, "/x");
	walk(deep, 34, "nnnnnnnnnnnnnnnn", MISSING_TOO_DEEP,
		 "?/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x "
		 "?/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x/x/x/x/x "
		 "?/x/x/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x/x/x "
		 "?/x/x/x/x/x/x/x/x ?/x/x/x/x/x/x/x ?/x/x/x/x/x/x ?/x/x/x/x/x ?/x/x/x/x ?/x/x/x ?/x/x ");
	ok(missing_path_above("/a/bc", 5) == 2, "the path above");
	ok(missing_path_above("/a", 2) == 0, "the root has no length");
}

int
main(void)
{
	test_walks();
	test_locks();
	test_semaphores();
	return done_testing();
}
