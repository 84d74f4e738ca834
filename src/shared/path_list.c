/*
 * path_list.c
 *		Lists of paths in settings.
 *
 * A path in a list obeys the rules of path_check(), so a list has no item that no lock can
 * have.  The list may be in any encoding that a server can have: in all of them, bytes of
 * ASCII stand for themselves, and only those are looked at.
 *
 * ZooKeeper allows asterisks in paths.  A list allows only the one at the end: a user who
 * writes "/a*" means more than a path of that name.
 *
 * Runs in: all processes; see the header.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "shared/path_list.h"

#include <string.h>
#include <strings.h>

#include "recipes/recipe.h"

/* Removes blanks from both ends. */
static void
trim(const char **text, size_t *len)
{
	while (*len > 0 && **text == ' ')
		(*text)++, (*len)--;
	while (*len > 0 && (*text)[*len - 1] == ' ')
		(*len)--;
}

/* Returns the rule that a path breaks, or NULL. */
static const char *
item_fault(const char *path, size_t len)
{
	char ascii[ZKLOCK_MAX_PATH + 1] = {0};

	if (len > ZKLOCK_MAX_PATH)
		return PATH_TOO_LONG;
	if (memchr(path, '*', len) != NULL)
		return "An asterisk can only stand at the end, behind a slash, for all paths below a path.";
	for (size_t i = 0; i < len; i++)
	{
		/* A forgotten comma would make one path of two. */
		if (path[i] == ' ' && (i + 1 == len || path[i + 1] == '/'))
			return "A slash follows a blank. Items are separated by commas.";
		ascii[i] = (unsigned char) path[i] < 0x80 ? path[i] : '?';
	}
	return path_check(ascii, len);
}

/*
 * Takes the priority off the end of an item.  The last "priority" that is a word counts, so a
 * path can have another one.  Returns false if no number follows that a priority can be.
 */
static bool
item_take_priority(PathListItem *item, size_t *len)
{
	static const char word[] = " priority";

	size_t	at = *len;
	size_t	number;
	int64_t priority;

	do
	{
		if (at-- == 0)
			return true;
		number = at + strlen(word);
	} while (number > *len || strncasecmp(item->text + at, word, strlen(word)) != 0 ||
			 (number < *len && item->text[number] != ' '));
	while (number < *len && item->text[number] == ' ')
		number++;
	if (!node_name_read_number(item->text + number, *len - number, &priority) ||
		priority < 0 || priority > ELECTION_PRIORITY_MAX)
		return false;
	item->priority = (int) priority;
	*len = at;
	return true;
}

/*
 * Reads the next item.  Returns false if there is none.
 *
 * An empty or blank list has no items; in any other, each comma stands between two.  If an
 * item has a fault, only its text is valid.
 */
bool
path_list_next(PathListReader *reader, PathListItem *item)
{
	const char *start = reader->rest;
	size_t		len;
	bool		ranked = true;

	if (start == NULL || (reader->nread == 0 && start[strspn(start, " ")] == '\0'))
		return false;
	len = strcspn(start, ",");
	reader->rest = start[len] == ',' ? start + len + 1 : NULL;
	trim(&start, &len);

	memset(item, 0, sizeof(*item));
	item->index = reader->nread++;
	item->text = item->path = start;
	item->text_len = len;
	if (reader->syntax == PATH_LIST_ELECTIONS)
		ranked = item_take_priority(item, &len);
	trim(&start, &len);
	item->path_len = len;

	/* The last equals sign separates path and value. */
	for (size_t i = len; reader->syntax != PATH_LIST_PATHS && i-- > 0;)
	{
		if (start[i] != '=')
			continue;
		item->value = start + i + 1;
		item->value_len = len - i - 1;
		item->path_len = i;
		trim(&item->value, &item->value_len);
		trim(&item->path, &item->path_len);
		break;
	}
	item->below = item->path_len >= 2 && memcmp(item->path + item->path_len - 2, "/*", 2) == 0;
	if (item->below)
		item->path_len -= 2;
	if (!item->below || item->path_len > 0)
		item->fault = item_fault(item->path, item->path_len);
	if (!ranked)
		item->fault = "What follows \"priority\" must be a whole number from 0 to 1000.";
	return true;
}

/* Returns true if an item stands for a path, which must be valid. */
bool
path_list_covers(const PathListItem *item, const char *path)
{
	char end = item->below ? '/' : '\0';

	return strncmp(path, item->path, item->path_len) == 0 && path[item->path_len] == end;
}

/*
 * Returns true if a list with values has another item for the same paths before this item
 * of it.
 */
bool
path_list_repeats(const char *list, PathListSyntax syntax, const PathListItem *item)
{
	PathListReader reader = {.syntax = syntax, .rest = list};
	PathListItem   other;

	while (path_list_next(&reader, &other) && other.index < item->index)
	{
		if (other.below == item->below && other.path_len == item->path_len &&
			memcmp(other.path, item->path, item->path_len) == 0)
			return true;
	}
	return false;
}
