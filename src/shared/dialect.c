/*
 * dialect.c
 *		In which dialect a path is locked, by zklock.path_dialects and zklock.dialect.
 *
 * The list is read anew each time: it is short, and nothing can get out of step
 * with what SHOW tells.  It is checked when it is set (backend/path_rules.c).
 *
 * Runs in: backends, and the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/dialect.h"
#include "shared/settings.h"

const struct config_enum_entry dialect_options[] = {{"curator", DIALECT_CURATOR, false},
													{"curator_rw", DIALECT_CURATOR_RW, false},
													{"kazoo", DIALECT_KAZOO, false},
													{"zookeeper", DIALECT_ZOOKEEPER, false},
													{"hive", DIALECT_HIVE, false},
													{NULL, 0, false}};

/* The dialect that an item names; false if it names none that exists. */
bool
dialect_of_item(const PathListItem *item, NodeDialect *dialect)
{
	for (const struct config_enum_entry *entry = dialect_options; entry->name; entry++)
	{
		if (strlen(entry->name) == item->value_len &&
			pg_strncasecmp(entry->name, item->value, item->value_len) == 0)
		{
			*dialect = entry->val;
			return true;
		}
	}
	return false;
}

/*
 * The dialect of a lock's node: what the most specific item for its path in
 * zklock.path_dialects names, or zklock.dialect.  Both are in UTF-8.
 */
NodeDialect
dialect_of_path(const char *path)
{
	PathListReader reader;
	PathListItem   item;
	PathListItem   best;
	bool		   found = false;
	NodeDialect	   dialect = zklock_dialect;

	path_list_begin(&reader, zklock_path_dialects, PATH_LIST_VALUES);
	while (path_list_next(&reader, &item))
	{
		if (path_list_covers(&item, path) && (!found || path_list_more_specific(&item, &best)) &&
			dialect_of_item(&item, &dialect))
		{
			best = item;
			found = true;
		}
	}
	return dialect;
}
