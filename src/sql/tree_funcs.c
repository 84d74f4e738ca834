/*
 * tree_funcs.c
 *		SQL functions that lock a path in a tree.
 *
 * Who works on a part of something, say a partition of a table, must keep
 * others from taking the whole.  So the paths above the one asked for, up to
 * but not including the root of the tree, are locked as well, shared: many can
 * work on different parts, and nobody has the whole meanwhile.  Hive locks
 * databases, tables and partitions like this.
 *
 * Locks are taken from the top down, which is the order of their bytes too, so
 * that these calls and those with an array of paths cannot deadlock with each
 * other.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/backend.h"
#include "compat.h"
#include "shared/clock.h"
#include "sql/arguments.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_lock_tree);
PG_FUNCTION_INFO_V1(zk_lock_tree_shared);
PG_FUNCTION_INFO_V1(zk_xact_lock_tree);
PG_FUNCTION_INFO_V1(zk_xact_lock_tree_shared);
PG_FUNCTION_INFO_V1(zk_unlock_tree);
PG_FUNCTION_INFO_V1(zk_unlock_tree_shared);

/* The paths to lock, in UTF-8, from the top down; the last is the one asked for. */
typedef struct Branch
{
	char **paths;
	int	   npaths;
} Branch;

/* The path and root arguments of a function, checked. */
static Branch
branch_arguments(FunctionCallInfo fcinfo, bool to_lock)
{
	Branch branch = {NULL, 0};
	char  *path;
	char  *root;
	size_t root_len;

	require_lock_holder();
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("path must not be null")));
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("root must not be null")));
	(void) check_path(PG_GETARG_TEXT_PP(0), to_lock);
	path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	root = text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* The root of ZooKeeper ends in a slash, all others do not. */
	root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (root[0] != '/' || strncmp(path, root, root_len) != 0 || path[root_len] != '/')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path \"%s\" is not below root \"%s\"", path, shown_argument(root)),
						errhint("The root is not locked itself; it can be \"/\".")));

	branch.paths = palloc(strlen(path) * sizeof(char *));
	for (char *end = path + root_len; end != NULL;)
	{
		end = strchr(end + 1, '/');
		branch.paths[branch.npaths++] =
			check_path(end ? cstring_to_text_with_len(path, end - path) : cstring_to_text(path),
					   to_lock);
	}
	return branch;
}

static LockMode
branch_mode(const Branch *branch, int i, LockMode mode)
{
	return i == branch->npaths - 1 ? mode : LOCK_MODE_SHARED;
}

/* Locks all of a branch, or nothing if the timeout passes or an error occurs. */
static Datum
lock_branch(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	Branch		  branch = branch_arguments(fcinfo, true);
	int64		  timeout_ms = interval_argument(fcinfo, 2);
	int64		  start = zklock_now_ms();
	volatile int  locked = 0;
	volatile bool all = true;

	PG_TRY();
	{
		while (all && locked < branch.npaths)
		{
			int64 left = timeout_ms;

			/* The last wait may end a little late, but is not a try-lock. */
			if (timeout_ms > 0)
				left = Max(timeout_ms - (zklock_now_ms() - start), 1);
			all = backend_lock(branch.paths[locked], branch_mode(&branch, locked, mode), scope, left);
			if (all)
				locked++;
		}
	}
	PG_FINALLY();
	{
		if (locked < branch.npaths)
		{
			while (locked > 0)
			{
				locked--;
				backend_undo_lock(branch.paths[locked], branch_mode(&branch, locked, mode), scope);
			}
		}
	}
	PG_END_TRY();
	PG_RETURN_BOOL(all);
}

/* Undoes one lock of each path of a branch, or nothing if one is not held. */
static Datum
unlock_branch(FunctionCallInfo fcinfo, LockMode mode)
{
	Branch		branch = branch_arguments(fcinfo, false);
	LockTarget *targets = palloc(branch.npaths * sizeof(LockTarget));

	/* The innermost first */
	for (int i = 0; i < branch.npaths; i++)
	{
		int of = branch.npaths - 1 - i;

		targets[i].path = branch.paths[of];
		targets[i].mode = branch_mode(&branch, of, mode);
	}
	PG_RETURN_BOOL(backend_unlock_together(targets, branch.npaths));
}

/*
 * zk_lock_tree(path text, root text, timeout interval) returns boolean
 *
 * Acquires an exclusive lock on the path and shared ones on those above it,
 * below root, at session level: all or nothing.
 */
Datum
zk_lock_tree(PG_FUNCTION_ARGS)
{
	return lock_branch(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION);
}

/* zk_lock_tree_shared(path text, root text, timeout interval) returns boolean */
Datum
zk_lock_tree_shared(PG_FUNCTION_ARGS)
{
	return lock_branch(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION);
}

/* zk_xact_lock_tree(path text, root text, timeout interval) returns boolean */
Datum
zk_xact_lock_tree(PG_FUNCTION_ARGS)
{
	return lock_branch(fcinfo, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
}

/* zk_xact_lock_tree_shared(path text, root text, timeout interval) returns boolean */
Datum
zk_xact_lock_tree_shared(PG_FUNCTION_ARGS)
{
	return lock_branch(fcinfo, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION);
}

/*
 * zk_unlock_tree(path text, root text) returns boolean
 *
 * Undoes one zk_lock_tree() with these arguments.  If one of its locks is not
 * held, changes nothing and returns false, with a warning.  Also false, with a
 * warning, if all were held but one was lost.
 */
Datum
zk_unlock_tree(PG_FUNCTION_ARGS)
{
	return unlock_branch(fcinfo, LOCK_MODE_EXCLUSIVE);
}

/* zk_unlock_tree_shared(path text, root text) returns boolean */
Datum
zk_unlock_tree_shared(PG_FUNCTION_ARGS)
{
	return unlock_branch(fcinfo, LOCK_MODE_SHARED);
}
