/*
 * arguments.c
 *		What SQL functions check in their arguments.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "arguments.h"
#include "mb/pg_wchar.h"
#include "node_name.h"
#include "utils/builtins.h"
#include "zklock.h"

/* Is a path in zklock.allowed_paths?  Both are in the server's encoding. */
static bool
path_is_allowed(const char *path)
{
	const char *item = zklock_allowed_paths;

	while (*item != '\0')
	{
		size_t		len = strcspn(item, ",");
		const char *next = item + len + (item[len] == ',');

		while (len > 0 && *item == ' ')
			item++, len--;
		while (len > 0 && item[len - 1] == ' ')
			len--;
		if (len >= 2 && strncmp(item + len - 2, "/*", 2) == 0)
		{
			/* "/prefix/" must lead to something more. */
			if (strncmp(path, item, len - 1) == 0 && path[len - 1] != '\0')
				return true;
		}
		else if (len == strlen(path) && strncmp(path, item, len) == 0)
			return true;
		item = next;
	}
	return false;
}

/*
 * Checks a path and returns it in UTF-8.  What is to be unlocked need not be
 * allowed any more.
 */
char *
check_path(text *arg, bool to_lock)
{
	char	 *path = text_to_cstring(arg);
	char	 *utf8 = pg_server_to_any(path, strlen(path), PG_UTF8);
	PathFault fault = path_check(utf8, strlen(utf8));

	if (fault != PATH_OK)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid ZooKeeper path: \"%s\"", path),
						errdetail_internal("%s", path_fault_detail(fault))));
	if (to_lock && !path_is_allowed(path))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied for ZooKeeper path \"%s\"", path),
						errdetail("The path is not in \"zklock.allowed_paths\".")));
	return utf8;
}
