/*
 * test_path_list.c
 *		Unit tests of path_list.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "recipes/node_name.h"
#include "shared/path_list.h"
#include "unit.h"

/* What a list is read as: "path", "path/..." for what is below, "path:value", or "!text". */
static const char *
read_list(const char *list, PathListSyntax syntax)
{
	static char	   text[4096];
	PathListReader reader = {.syntax = syntax, .rest = list};
	PathListItem   item;
	size_t		   len = 0;

	text[0] = '\0';
	while (path_list_next(&reader, &item))
	{
		if (item.fault)
			len += snprintf(text + len, sizeof(text) - len, "[!%.*s]", (int) item.text_len, item.text);
		else
			len += snprintf(text + len, sizeof(text) - len, "[%.*s%s%s%.*s]", (int) item.path_len,
							item.path, item.below ? "/..." : "", item.value ? ":" : "",
							(int) item.value_len, item.value ? item.value : "");
	}
	return text;
}

static void
reads(const char *list, PathListSyntax syntax, const char *expected)
{
	char name[256];

	snprintf(name, sizeof(name), "\"%s\" is read as %s", list, expected);
	is_str(read_list(list, syntax), expected, name);
}

static void
refuses(const char *list, const char *why)
{
	PathListReader reader = {.syntax = PATH_LIST_PATHS, .rest = list};
	PathListItem   item = {0};

	while (path_list_next(&reader, &item) && item.fault == NULL)
		;
	ok(item.fault && strstr(item.fault, why), "\"%.40s\" is refused: %s", list,
	   item.fault ? item.fault : "(accepted)");
}

static PathListItem
only_item(const char *list)
{
	PathListReader reader = {.syntax = PATH_LIST_PATHS, .rest = list};
	PathListItem   item;

	path_list_next(&reader, &item);
	return item;
}

static void
covers(const char *list, const char *path, bool expected)
{
	PathListItem item = only_item(list);

	ok(path_list_covers(&item, path) == expected, "\"%s\" %s \"%s\"", list,
	   expected ? "covers" : "does not cover", path);
}

/* What the only item of a list of elections says; -1: its priority is none that there can be */
static void
ranks(const char *list, const char *path, const char *value, int priority)
{
	PathListReader reader = {.syntax = PATH_LIST_ELECTIONS, .rest = list};
	PathListItem   item;

	ok(path_list_next(&reader, &item), "\"%s\" has an item", list);
	if (priority < 0)
	{
		ok(item.fault && strstr(item.fault, "whole number from 0 to 1000"), "\"%s\" is refused", list);
		return;
	}
	ok(item.fault == NULL, "\"%s\" is accepted", list);
	is_int(item.priority, priority, "its priority");
	ok(item.path_len == strlen(path) && memcmp(item.path, path, item.path_len) == 0,
	   "its path is \"%s\"", path);
	ok(value ? item.value && item.value_len == strlen(value) &&
				   memcmp(item.value, value, item.value_len) == 0
			 : item.value == NULL,
	   "its value is \"%s\"", value ? value : "none");
}

/* The first item of a list that is for the same paths as one before it; -1: there is none */
static int
first_repeated(const char *list)
{
	PathListReader reader = {.syntax = PATH_LIST_VALUES, .rest = list};
	PathListItem   item;
	int			   n = 0;

	for (; path_list_next(&reader, &item); n++)
	{
		if (path_list_repeats(list, PATH_LIST_VALUES, &item))
			return n;
	}
	return -1;
}

int
main(void)
{
	char longest[ZKLOCK_MAX_PATH + 3];
	char too_long[ZKLOCK_MAX_PATH + 4];

	reads("", PATH_LIST_PATHS, "");
	reads("   ", PATH_LIST_PATHS, "");
	reads("/a", PATH_LIST_PATHS, "[/a]");
	reads("/*", PATH_LIST_PATHS, "[/...]");
	reads("/a,/b/*", PATH_LIST_PATHS, "[/a][/b/...]");
	reads(" /a , /b/c/* ", PATH_LIST_PATHS, "[/a][/b/c/...]");
	reads("/a b", PATH_LIST_PATHS, "[/a b]");
	reads("/\xc3\xa4/\xe4", PATH_LIST_PATHS, "[/\xc3\xa4/\xe4]");
	reads("/a=b", PATH_LIST_PATHS, "[/a=b]");
	reads("/a=b", PATH_LIST_VALUES, "[/a:b]");
	reads("/a/* = b , /c=d=e", PATH_LIST_VALUES, "[/a/...:b][/c=d:e]");
	reads("/a =b, /c d = e", PATH_LIST_VALUES, "[/a:b][/c d:e]");
	reads("/a=", PATH_LIST_VALUES, "[/a:]");
	reads("/a, /b=c", PATH_LIST_VALUES, "[/a][/b:c]");
	reads("/*=b", PATH_LIST_VALUES, "[/...:b]");
	reads("=b", PATH_LIST_VALUES, "[!=b]");
	reads("/a,b*,/c", PATH_LIST_PATHS, "[/a][!b*][/c]");
	reads("/a,,/b", PATH_LIST_PATHS, "[/a][!][/b]");
	reads("/a,", PATH_LIST_PATHS, "[/a][!]");
	reads(",", PATH_LIST_PATHS, "[!][!]");

	ranks("/a", "/a", NULL, 0);
	ranks("/a priority 2", "/a", NULL, 2);
	ranks(" /a=zookeeper   PRIORITY  1000 ", "/a", "zookeeper", 1000);
	ranks("/a b = lock priority 0", "/a b", "lock", 0);
	ranks("/a priority 1 priority 2", "/a priority 1", NULL, 2);
	ranks("/priority", "/priority", NULL, 0);
	ranks("/a/priority 7", "/a/priority 7", NULL, 0);
	ranks("/a priorities", "/a priorities", NULL, 0);
	ranks("/a priority", NULL, NULL, -1);
	ranks("/a priority 1001", NULL, NULL, -1);
	ranks("/a priority -1", NULL, NULL, -1);
	ranks("/a priority 2.5", NULL, NULL, -1);
	ranks("/a priority 2 3", NULL, NULL, -1);
	ranks("/a priority two", NULL, NULL, -1);
	ranks("/a priority 99999999999", NULL, NULL, -1);
	ranks("/a priority 2 =lock", NULL, NULL, -1);

	refuses("a", "start with");
	refuses("*", "asterisk");
	refuses("/a*", "asterisk");
	refuses("/a/*/b", "asterisk");
	refuses("/*/b", "asterisk");
	refuses("/a/**", "asterisk");
	refuses("/a/*/*", "asterisk");
	refuses("/a/", "end with");
	refuses("/", "root");
	refuses("/a//b", "\"//\"");
	refuses("//*", "root");
	refuses("/a//*", "end with");
	refuses("/a/./b", "component");
	refuses("/a/../*", "component");
	refuses("/pay/lock /x", "blank");
	refuses("/a /*", "blank");
	refuses("/a /b/*", "blank");
	refuses("/a\tb", "control");
	refuses("/a\n", "control");
	refuses("/a\x7f", "control");
	refuses("/zookeeper/*", "reserved");
	refuses("/a/lock-0000000001", "looks like");
	refuses("/a,,/b", "empty");
	refuses("/a, ", "empty");
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	strcpy(longest + ZKLOCK_MAX_PATH, "/*");
	ok(only_item(longest).fault == NULL, "the longest path is accepted");
	memset(too_long, 'x', sizeof(too_long));
	too_long[0] = '/';
	strcpy(too_long + ZKLOCK_MAX_PATH + 1, "/*");
	refuses(too_long, "at most 1023 bytes");

	covers("/a", "/a", true);
	covers("/a", "/a/b", false);
	covers("/a", "/ab", false);
	covers("/a/*", "/a/b", true);
	covers("/a/*", "/a/b/c", true);
	covers("/a/*", "/a", false);
	covers("/a/*", "/ab", false);
	covers("/a/*", "/ab/c", false);
	covers("/*", "/a", true);
	covers("/*", "/a/b", true);

	/* The more specific one of two items for a path has the longer path. */
	ok(only_item("/a/b").path_len > only_item("/a/*").path_len,
	   "\"/a/b\" is more specific than \"/a/*\"");
	ok(only_item("/a/b").path_len > only_item("/*").path_len, "\"/a/b\" is more specific than \"/*\"");
	ok(only_item("/a/b/*").path_len > only_item("/a/*").path_len,
	   "\"/a/b/*\" is more specific than \"/a/*\"");
	ok(only_item("/a/*").path_len > only_item("/*").path_len, "\"/a/*\" is more specific than \"/*\"");

	is_int(first_repeated("/a=x, /a =y"), 1, "the same path is the same");
	is_int(first_repeated("/a=x, /b=y, /a=z"), 2, "an item for a path that another was for");
	is_int(first_repeated("/a/*=x, /a/*=x"), 1, "or for all paths below one");
	is_int(first_repeated("/a=x, /a/*=x, /ab=x, /*=x"), -1, "paths that are not the same");
	return done_testing();
}
