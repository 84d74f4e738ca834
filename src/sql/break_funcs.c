/*
 * break_funcs.c
 *		SQL function that takes a lock from its holder, or a waiter out of its queue.
 *
 * zk_break_lock() deletes the node of a living contender, whatever client it is:
 * the way out at 3 a.m.  It is told path and node as zk_contenders() shows them,
 * and looks where contenders of that path are (see places).  Only what the recipe
 * there takes for a contender is deleted, and only if it still is the node that
 * was read: names begin anew when a path does.
 *
 * If a session of zklock holds the lock it hears of the loss, as when anybody
 * else deletes the node; most other clients do not.  The log says who has done it
 * to whom.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/ask.h"
#include "backend/display.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "recipes/node_contender.h"
#include "recipes/permit_recipe.h"
#include "shared/errand_list.h"
#include "sql/arguments.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_break_lock);

/*
 * Where the contenders of a path are, as zk_contenders() shows them.  An election reads
 * names of locks too.
 */
static const struct
{
	const char *below; /* the path */
	RecipeId	recipe;
} places[] = {{"", RECIPE_ELECTION}, {PERMIT_LEASES, RECIPE_PERMIT}, {PERMIT_TURNS, RECIPE_LOCK}};

/* Could it be the node of a contender in that place?  Clients number all of theirs. */
static bool
is_contender(int place, const char *name)
{
	RecipePeer peer;

	return recipe_by_id(places[place].recipe)->read(name, &peer) && peer.numbered;
}

/* The argument "node", in UTF-8; raises an error unless it could be that of a contender. */
static char *
node_argument(text *arg)
{
	char *shown = text_to_cstring(arg);
	char *name = pg_server_to_any(shown, strlen(shown), PG_UTF8);
	char *child = psprintf("/%s", name);
	bool  known = false;

	for (int i = 0; i < (int) lengthof(places); i++)
		known |= is_contender(i, name);
	if (!known || strchr(name, '/') != NULL ||
		(path_check(child, strlen(child)) != PATH_OK && path_check(child, strlen(child)) != PATH_LOCK_NODE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not the name of a contender's node", argument_shown(shown)),
				 errdetail("It must be the name, without its path, as zk_contenders() shows it.")));
	return name;
}

/* Is it the node of a session?  Containers and nodes with a TTL have other owners. */
static bool
is_ephemeral(const Question *node)
{
	return node->owner != 0 && node->owner != PG_INT64_MIN && ((uint64) node->owner >> 56) != 0xff;
}

/*
 * Tells the log who has deleted a node, and whose it was; and both whether it was
 * ephemeral.  One that was not has outlived its client, or would have.
 */
static void
report_broken(const Question *node)
{
	const char *shown = display_path(node->path);
	char		owner[NODE_OWNER_TEXT];

	node_contender_describe(owner, node->answer, node->answer_length, node->owner);
	ereport(LOG, (errmsg("role \"%s\", process %d, deleted node \"%s\" by zk_break_lock()",
						 GetUserNameFromId(GetUserId(), false), MyProcPid, shown),
				  is_ephemeral(node)
					  ? errdetail_log("It was that of %s, in ZooKeeper session 0x%llx.",
									  display_utf8(owner), (unsigned long long) node->owner)
					  : errdetail_log("It was that of %s, and not ephemeral.", display_utf8(owner))));
	if (!is_ephemeral(node))
		ereport(NOTICE,
				(errmsg("node \"%s\" was not ephemeral", shown),
				 errdetail("It belonged to no ZooKeeper session, so ZooKeeper would not have deleted it.")));
}

/* Deletes a node if it exists.  Returns false if not. */
static bool
break_node(Question *node)
{
	node->kind = ERRAND_READ;
	node->answer_size = ERRAND_LIST_MAX_DATA;
	if (backend_ask(node) != ERRAND_OK)
		return false;
	{
		Question doomed = {.kind = ERRAND_DELETE,
						   .path = node->path,
						   .czxid = node->czxid,
						   .owner = node->owner};

		if (backend_ask(&doomed) != ERRAND_OK)
			return false;
	}
	report_broken(node);
	return true;
}

/*
 * zk_break_lock(path text, node text) returns boolean
 *
 * Deletes the node of a contender.  Returns false if there is no such node.
 */
Datum
zk_break_lock(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	char *name;

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("node must not be null")));
	name = node_argument(PG_GETARG_TEXT_PP(1));
	for (int i = 0; i < (int) lengthof(places); i++)
	{
		Question node = {.path = psprintf("%s%s/%s", path, places[i].below, name)};

		if (is_contender(i, name) && strlen(node.path) < ERRAND_PATH_SIZE && break_node(&node))
			PG_RETURN_BOOL(true);
	}
	PG_RETURN_BOOL(false);
}
