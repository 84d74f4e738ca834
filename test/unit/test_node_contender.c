/*-------------------------------------------------------------------------
 *
 * test_node_contender.c
 *	  Unit tests of node_name.c and recipe.c: what nodes tell of their owners, and in
 *	  which order they stand.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/node_name.h"
#include "recipes/recipe.h"
#include "unit.h"

#define VERSION "{\"zklock\":\"1.0\""
#define PROCESS VERSION ",\"host\":\"h\",\"port\":5432,\"pid\":7"

/* Reads a copy of exactly that length, so that a sanitizer sees who reads more. */
static bool
read_text(const char *text, NodeContender *data)
{
	char *copy = strdup(text);
	bool  read;

	if (copy == NULL)
		abort();
	read = node_contender_read(copy, data);
	free(copy);
	return read;
}

static bool
tells(const char *text, const char *server, int pid, const char *user, const char *application)
{
	NodeContender data;

	return read_text(text, &data) && strcmp(data.server, server) == 0 && data.pid == pid &&
		   strcmp(data.user, user) == 0 && strcmp(data.application, application) == 0;
}

/* Nothing of the data is read, nor of any beginning of it. */
static bool
tells_nothing(const char *text)
{
	NodeContender data;

	return !read_text(text, &data) && data.pid == 0 && data.server[0] == '\0';
}

static void
test_json(void)
{
	ok(tells(VERSION ",\"server\":\"a\",\"host\":\"h\",\"port\":5432,\"pid\":7,\"started\":\"x\","
					 "\"database\":\"d\",\"user\":\"u\",\"application_name\":\"p\"}",
			 "a", 7, "u", "p"),
	   "what zklock writes");
	ok(tells(PROCESS "}", "h:5432", 7, "", ""), "what it writes when that is too long");
	ok(tells(PROCESS ",\"user\":\",\\\"pid\\\":8\\\\\"}", "h:5432", 7, ",\"pid\":8\\", ""),
	   "a text is no member");
	ok(tells(PROCESS ",\"user\":\"a\\n\\u0001\"}", "h:5432", 7, "a\n\n0001", ""),
	   "what is escaped is not shown");
	ok(tells_nothing(""), "nothing");
	ok(tells_nothing("{}"), "an empty object");
	ok(tells_nothing("{\"host\":\"h\",\"port\":5432,\"pid\":7}"), "an object that somebody else writes");
	ok(tells_nothing(VERSION ",\"pid\":7}"), "no port");
	ok(tells_nothing(VERSION ",\"host\":\"h\",\"port\":5432,\"pid\":0}"), "no process id");
	ok(tells_nothing(VERSION ",\"host\":\"h\",\"port\":5432,\"pid\":2147483648}"), "too large a one");
	ok(tells_nothing(VERSION ",\"host\":\"h\",\"port\":5432,\"pid\":-7}"), "a negative one");
	ok(tells_nothing(VERSION ",\"host\":\"h\",\"port\":5432,\"pid\":[7]}"), "a nested value");
	ok(tells_nothing(PROCESS "}x"), "something behind it");
}

static void
test_hive(void)
{
	ok(tells("zklock-7:1:EXPLICIT:database d user u application p:a", "a", 7, "u", "p"),
	   "what zklock writes for Hive");
	ok(tells("zklock-7:1:EXPLICIT:zklock:", "", 7, "", ""), "when that is too long");
	ok(tells_nothing("zklock-:1:EXPLICIT:zklock:a"), "no process id");
	ok(tells_nothing("zklock-7:1:EXPLICIT:a"), "too few fields");
	ok(tells_nothing("zklock-7:1:EXPLICIT:a:b:c"), "too many fields");
	ok(tells_nothing("hive_7:1:EXPLICIT:select 1:10.0.0.1"), "what Hive writes");
}

/* Every beginning, and every change of one byte, is read without harm. */
static void
test_damaged(void)
{
	static const char *const texts[] = {PROCESS ",\"server\":\"a\\u00e9\\n\",\"user\":\"u\"}",
										"zklock-7:1:EXPLICIT:database d user u application p:a"};
	int						 beginnings = 0;

	for (int t = 0; t < 2; t++)
	{
		char		  text[128];
		NodeContender data;

		for (size_t len = 0; len < strlen(texts[t]); len++)
		{
			snprintf(text, sizeof(text), "%.*s", (int) len, texts[t]);
			beginnings += t == 0 && read_text(text, &data);
			for (int c = 1; c < 256; c++)
			{
				strcpy(text, texts[t]);
				text[len] = (char) c;
				(void) read_text(text, &data);
			}
		}
	}
	ok(beginnings == 0, "half an object is none");
}

static void
test_clipped(void)
{
	char		  text[1000] = PROCESS ",\"user\":\"";
	NodeContender data;

	for (int i = 0; i < 200; i++)
		strcat(text, "\xe3\x81\x82");
	strcat(text, "\"}");
	ok(read_text(text, &data), "a long name");
	ok(strlen(data.user) % 3 == 0 && strlen(data.user) >= 252, "ends with a whole character");
	strcpy(text, PROCESS ",\"user\":\"x");
	for (int i = 0; i < 200; i++)
		strcat(text, "\xe3\x81\x82");
	strcat(text, "\"}");
	ok(read_text(text, &data) && strlen(data.user) == 253, "also if that is before the end of the room");
}

static void
test_order(void)
{
	char *locks[] = {"x-lock-0000000003", "leases", "x-__READ__0000000001", "x-lock-0000000001", "y"};
	char *leases[] = {"x-lease--2147483647", "x-lease-2147483646", "x", "x-lease--2147483648"};
	RecipeQueued queue[5];

	ok(recipe_queue(&lock_recipe, locks, 5, queue) == 3, "only contenders");
	ok(queue[0].name == locks[3] && queue[1].name == locks[2] && queue[2].name == locks[0],
	   "by number, and an exclusive one before its downgraded node");
	ok(recipe_queue(&permit_recipe, leases, 4, queue) == 4, "every child is a lease");
	ok(queue[0].name == leases[2] && queue[1].name == leases[1] &&
		   queue[2].name == leases[3] && queue[3].name == leases[0],
	   "what has no number comes first, and numbers run over");
	ok(recipe_queue(&lock_recipe, locks, 0, queue) == 0, "nobody");
}

/* The same as if the recipe were asked about each contender */
static bool
holders_agree(const Recipe *recipe, const RecipePeer *peers, int n, int32_t permits)
{
	bool	holds[100];
	int32_t others_permits;

	recipe_holders(recipe, peers, n, permits, holds);
	for (int i = 0; i < n; i++)
	{
		RecipeRequest request = {.mode = peers[i].mode,
								 .permits = peers[i].permits > 0 ? peers[i].permits : permits};

		if (holds[i] != (recipe_blocker(recipe, peers, i, &peers[i], &request, &others_permits) ==
						 RECIPE_NOBODY))
			return false;
	}
	return true;
}

static void
test_holders(void)
{
	RecipePeer peers[100];
	int		   wrong = 0;

	srandom(1);
	for (int round = 0; round < 2000; round++)
	{
		int n = (int) (random() % 100);
		int writers = (int) (1 + random() % 40);
		int opinions = (int) (random() % 8);

		for (int i = 0; i < n; i++)
			peers[i] = (RecipePeer){.sequence = i,
									.numbered = true,
									.mode = random() % writers == 0 ? LOCK_MODE_EXCLUSIVE
																	: LOCK_MODE_SHARED};
		wrong += !holders_agree(&lock_recipe, peers, n, 0);
		for (int i = 0; i < n; i++)
		{
			peers[i].mode = LOCK_MODE_EXCLUSIVE;
			peers[i].permits = opinions > 0 ? (int32_t) (random() % (3 * opinions)) : 0;
		}
		wrong += !holders_agree(&permit_recipe, peers, n, 1);
	}
	ok(wrong == 0, "who holds is found without asking for each");
}

/* A recipe that counts how many peers it is asked about */
static int64_t judged;

static bool
counting_excludes(const RecipePeer *peer, const RecipeRequest *request)
{
	judged++;
	return lock_recipe.excludes(peer, request);
}

/* Many contenders take time in proportion to their number. */
static void
test_many_holders(void)
{
	enum
	{
		MANY = 40000
	};
	static RecipePeer peers[MANY];
	static bool		  holds[MANY];
	Recipe			  counting = {.excludes = counting_excludes};
	int				  n = 0;

	for (int i = 0; i < MANY; i++)
		peers[i] = (RecipePeer){.sequence = i, .numbered = true, .mode = LOCK_MODE_SHARED};
	peers[MANY - 100].mode = LOCK_MODE_EXCLUSIVE;
	judged = 0;
	recipe_holders(&counting, peers, MANY, 0, holds);
	for (int i = 0; i < MANY; i++)
		n += holds[i];
	is_int(n, MANY - 100, "all readers ahead of a writer hold");
	ok(judged <= 3 * MANY, "each is judged by a few others, %lld of %d", (long long) judged, MANY);

	/* Each names another number of permits. */
	for (int i = 0; i < MANY; i++)
	{
		peers[i].mode = LOCK_MODE_EXCLUSIVE;
		peers[i].permits = MANY - i / 2;
	}
	counting = (Recipe){.blocker = permit_recipe.blocker};
	recipe_holders(&counting, peers, MANY, 0, holds);
	n = 0;
	for (int i = 0; i < MANY; i++)
		n += holds[i];
	ok(n >= MANY / 2 && holds[MANY / 2] && !holds[MANY - 1],
	   "the least number that those before name counts, %d hold", n);
}

static void
test_version(void)
{
	ok(node_contender_has_version("{\"zklock\":\"1.0\",\"pid\":1}", 24), "the version comes first");
	ok(node_contender_has_version("{\"zklock\":\"2", 12), "any version, and no more than that");
	ok(!node_contender_has_version("{\"zklock\":\"2", 11), "but not less");
	ok(!node_contender_has_version("{\"zklock\":\"\"}", 13), "nor none");
	ok(!node_contender_has_version("{\"server\":\"\\\"zklock\\\":\\\"1.0\"}", 30),
	   "a name is no version");
	ok(!node_contender_has_version("10.0.0.5", 8), "other clients tell none");
	ok(!node_contender_has_version("", 0) && !node_contender_has_version(NULL, 0), "nor does no data");
}

int
main(void)
{
	test_version();
	test_holders();
	test_many_holders();
	test_json();
	test_hive();
	test_damaged();
	test_clipped();
	test_order();
	return done_testing();
}
