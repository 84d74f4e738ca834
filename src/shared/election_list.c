/*
 * election_list.c
 *		The elections at which this server stands: zklock.elections.
 *
 * The list is checked when it is set; the worker reads it when it starts and
 * after each reload.
 *
 * Runs in: the worker; the check in all processes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "shared/election_list.h"
#include "shared/settings.h"

/* An item is shown up to this length, in bytes. */
#define SHOWN_ITEM 100

/* What an item's value names */
static const struct
{
	const char	  *name;
	ElectionFamily family;
} families[] = {{"curator_latch", ELECTION_LATCH},
				{"zookeeper", ELECTION_SUPPORT},
				{"lock", ELECTION_LOCK}};

/* What zklock.elections calls a family */
const char *
election_family_name(ElectionFamily family)
{
	int i = 0;

	while (families[i].family != family)
		i++;
	return families[i].name;
}

/* The family that an item names; false if it names none that exists. */
static bool
item_family(const PathListItem *item, ElectionFamily *family)
{
	*family = ELECTION_LATCH;
	if (item->value == NULL)
		return true;
	for (int i = 0; i < (int) lengthof(families); i++)
	{
		if (strlen(families[i].name) == item->value_len &&
			pg_strncasecmp(families[i].name, item->value, item->value_len) == 0)
		{
			*family = families[i].family;
			return true;
		}
	}
	return false;
}

/* Is a list's item for a path below one whose candidates bear no other child? */
static bool
is_below_support(const char *list, const PathListItem *item)
{
	PathListReader reader;
	PathListItem   other;
	ElectionFamily family;

	path_list_begin(&reader, list, PATH_LIST_VALUES);
	while (path_list_next(&reader, &other))
	{
		if (item_family(&other, &family) && family == ELECTION_SUPPORT &&
			other.path_len < item->path_len && item->path[other.path_len] == '/' &&
			memcmp(item->path, other.path, other.path_len) == 0)
			return true;
	}
	return false;
}

/* The rule that an item breaks, or NULL */
static const char *
item_fault(const char *list, const PathListItem *item)
{
	ElectionFamily family;

	if (item->fault)
		return item->fault;
	if (item->scope != PATH_LIST_ITSELF)
		return "An election has one path.";
	if (!item_family(item, &family))
		return "What follows the equals sign must be curator_latch, zookeeper or lock.";
	if (path_list_repeats(list, item))
		return "Another item is for the same path.";
	if (is_below_support(list, item))
		return "It lies below an election with names of \"zookeeper\", whose clients bear no other node there.";
	return NULL;
}

/* The check of zklock.elections: all items must be right, and not too many. */
bool
election_list_check(char **newval, void **extra, GucSource source)
{
	PathListReader reader;
	PathListItem   item;
	int			   n = 0;

	path_list_begin(&reader, *newval, PATH_LIST_VALUES);
	while (path_list_next(&reader, &item))
	{
		const char *fault = item_fault(*newval, &item);

		if (fault)
		{
			int shown = pg_mbcliplen(item.text, item.text_len, SHOWN_ITEM);

			GUC_check_errdetail("Item \"%.*s%s\" is not valid. %s", shown, item.text,
								shown < (int) item.text_len ? "..." : "", fault);
			GUC_check_errhint("Items are \"path\" or \"path=names\", with commas between them.");
			return false;
		}
		if (++n > ELECTIONS_LIMIT)
		{
			GUC_check_errdetail("A server can stand at %d elections.", ELECTIONS_LIMIT);
			return false;
		}
	}
	return true;
}

/* Begins to read the list that is in force. */
void
election_list_begin(PathListReader *reader)
{
	path_list_begin(reader, zklock_elections, PATH_LIST_VALUES);
}

/* Reads the next item; returns false at the end. */
bool
election_list_next(PathListReader *reader, ElectionItem *item)
{
	PathListItem next;

	if (!path_list_next(reader, &next))
		return false;
	snprintf(item->path, sizeof(item->path), "%.*s", (int) next.path_len, next.path);
	(void) item_family(&next, &item->family);
	return true;
}
