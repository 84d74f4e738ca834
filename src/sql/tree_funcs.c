/*
 * tree_funcs.c
 *		SQL functions that lock a path in a tree.
 *
 * A session that works on a part of something, say a partition of a table,
 * must keep others from taking the whole.  So the paths above the one asked for,
 * up to but not including the root of the tree, are locked as well, shared: many
 * can work on different parts, and nobody has the whole meanwhile.  Hive locks
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

#include "backend/lock.h"
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

/*
 * The path and root arguments of a function, checked, as the set of what is to
 * be locked: from the top down, and last the path that is asked for.
 */
static LockSet
branch_arguments(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockSet branch = {NULL, 0};
	char   *path;
	char   *root;
	size_t	root_len;

	argument_require_holder();
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("path must not be null")));
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("root must not be null")));
	(void) argument_to_path(PG_GETARG_TEXT_PP(0), rule);
	path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	root = text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* The root of ZooKeeper ends in a slash, all others do not. */
	root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (root[0] != '/' || strncmp(path, root, root_len) != 0 || path[root_len] != '/')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path \"%s\" is not below root \"%s\"", path, argument_shown(root)),
						errhint("The root is not locked itself; it can be \"/\".")));

	branch.targets = palloc(strlen(path) * sizeof(LockTarget));
	for (char *end = path + root_len; end != NULL;)
	{
		LockTarget *target = &branch.targets[branch.n++];

		end = strchr(end + 1, '/');
		target->path = argument_to_path(end ? cstring_to_text_with_len(path, end - path)
											: cstring_to_text(path),
										rule);
		target->mode = end ? LOCK_MODE_SHARED : mode;
	}
	return branch;
}

static Datum
lock_branch(FunctionCallInfo fcinfo, LockMode mode, LockScope scope)
{
	LockSet branch = branch_arguments(fcinfo, ALLOWED_PATHS_ONLY, mode);

	PG_RETURN_BOOL(lock_acquire(&branch, scope, argument_timeout(fcinfo, 2)));
}

/* Undoes one lock of each path of a branch, or nothing if one is not held. */
static Datum
unlock_branch(FunctionCallInfo fcinfo, LockMode mode)
{
	LockSet branch = branch_arguments(fcinfo, ANY_PATH, mode);

	PG_RETURN_BOOL(lock_release(&branch, RELEASE_ALL_OR_NONE));
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
