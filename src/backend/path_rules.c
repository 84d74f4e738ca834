/*
 * path_rules.c
 *		What settings say of a path: may it be locked, and in which dialect.
 *
 * The lists are checked when they are set, and read anew for each lock: they
 * are short, and nothing can get out of step with what SHOW tells.
 *
 * Runs in: backends; the checks in all processes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/parallel.h"
#include "backend/path_rules.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared/dialect.h"
#include "shared/settings.h"

/* An item is shown up to this length, in bytes. */
#define SHOWN_ITEM 100

#define LIST_HINT \
	"Items are paths, or \"/prefix/*\" for all paths below /prefix, with commas between them."
#define DIALECTS_HINT \
	"Items are \"path=dialect\" or \"/prefix/*=dialect\", with commas between them."

/* Explains what is wrong with an item. */
static void
refuse_item(const PathListItem *item, const char *why, const char *hint)
{
	int shown = pg_mbcliplen(item->text, item->text_len, SHOWN_ITEM);

	GUC_check_errdetail("Item \"%.*s%s\" is not valid. %s", shown, item->text,
						shown < (int) item->text_len ? "..." : "", why);
	GUC_check_errhint("%s", hint);
}

/*
 * zklock.allowed_paths: all items must be right.
 *
 * When the library is loaded, or a session begins, there is nobody to tell:
 * PostgreSQL would ignore a value that is refused then, and all paths be
 * allowed instead.  It may have been written while the library was not loaded,
 * or for an older version.  So it is taken, but wrong items allow nothing.
 */
bool
path_rules_check_allowed(char **newval, void **extra, GucSource source)
{
	PathListReader reader;
	PathListItem   item;
	bool stored = process_shared_preload_libraries_in_progress || source == PGC_S_GLOBAL ||
				  source == PGC_S_DATABASE || source == PGC_S_USER || source == PGC_S_DATABASE_USER;

	path_list_begin(&reader, *newval, PATH_LIST_PATHS);
	while (path_list_next(&reader, &item))
	{
		if (item.fault == NULL)
			continue;
		if (!stored)
		{
			refuse_item(&item, item.fault, LIST_HINT);
			return false;
		}
		if (!IsParallelWorker())
			ereport(WARNING,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("item \"%.*s\" of \"zklock.allowed_paths\" is not valid and allows no path",
							pg_mbcliplen(item.text, item.text_len, SHOWN_ITEM), item.text),
					 errdetail_internal("%s", item.fault), errhint(LIST_HINT)));
	}
	return true;
}

/* Is a path in zklock.allowed_paths?  Both are in the server's encoding. */
bool
path_rules_allow(const char *path)
{
	PathListReader reader;
	PathListItem   item;

	path_list_begin(&reader, zklock_allowed_paths, PATH_LIST_PATHS);
	while (path_list_next(&reader, &item))
	{
		if (item.fault == NULL && path_list_covers(&item, path))
			return true;
	}
	return false;
}

/*
 * zklock.path_dialects: all items must be right, and each path have one.
 *
 * When the library is loaded PostgreSQL would go on without a value that is
 * refused, with names that others on these paths may not heed.
 */
bool
path_rules_check_dialects(char **newval, void **extra, GucSource source)
{
	PathListReader reader;
	PathListItem   item;
	NodeDialect	   dialect;

	path_list_begin(&reader, *newval, PATH_LIST_VALUES);
	while (path_list_next(&reader, &item))
	{
		const char *fault = item.fault;

		if (fault == NULL && item.value == NULL)
			fault = "A dialect is missing.";
		if (fault == NULL && !dialect_of_item(&item, &dialect))
			fault = "The dialects are curator, curator_rw, kazoo, zookeeper and hive.";
		if (fault == NULL && path_list_repeats(*newval, &item))
			fault = "Another item is for the same paths.";
		if (fault != NULL && process_shared_preload_libraries_in_progress)
			ereport(FATAL,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for parameter \"zklock.path_dialects\": \"%s\"", *newval),
					 errdetail("Item \"%.*s\" is not valid. %s", (int) item.text_len, item.text, fault),
					 errhint(DIALECTS_HINT)));
		if (fault != NULL)
		{
			refuse_item(&item, fault, DIALECTS_HINT);
			return false;
		}
	}
	return true;
}
