/*
 * break_funcs.c
 *		SQL functions that take a lock from its holders, or a waiter out of its queue.
 *
 * zk_break_lock() deletes the nodes of living contenders of any client, for emergencies:
 * those that hold now, or the node that the caller names, as zk_contenders() shows it.  It
 * deletes a node only if the recipe takes it for a contender's, and only if it still is the
 * node that was read, because names are used again when a path is created again.  ZooKeeper
 * deletes by name, so a moment remains between that check and the deletion
 * (doc/guarantees.md).
 *
 * A session of zklock that holds the lock learns of the loss, as when anybody else deletes
 * the node; most other clients do not.  The node's data are marked first, and in shared
 * memory the entries of a node of this server, so that the session's error can say who
 * did it.  The log says who deleted whose node.
 *
 * If the answer to the deletion is lost, the node is read again to see what became of it.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "catalog/pg_authid.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "recipes/recipe.h"
#include "shared/entry.h"
#include "shared/settings.h"
#include "sql/arguments.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/json.h"

COMPAT_FUNCTION_INFO_V1(zk_break_lock);
COMPAT_FUNCTION_INFO_V1(zk_break_lock_node);

/*
 * Where the contenders of a path are, as zk_contenders() shows them.  The recipe of
 * elections recognizes the names of locks too.
 */
static const struct
{
	const char	 *below; /* what follows the path */
	const Recipe *recipe;
} places[] = {{"", &election_recipe}, {PERMIT_LEASES, &permit_recipe}, {PERMIT_TURNS, &lock_recipe}};

/* A node that is being deleted */
typedef struct Breaking
{
	const char	 *path;		/* the node's */
	ContenderNode node;		/* as it was read first */
	uint64		  cohort;	/* its cohort, if it is a node of this server; else 0 */
	bool		  in_doubt; /* the deletion was sent, and its answer has not come */
	Caller		  call;

	/* For messages: composed beforehand, as an error's context must not compose them */
	const char *role;  /* who deletes it */
	const char *shown; /* path */
	const char *owner;
} Breaking;

/* ------------------------------------------------------------------------
 * The node that is meant
 * ------------------------------------------------------------------------
 */

/* Returns true if the name can be that of a contender's node.  Clients number all of these. */
static bool
is_contender(const Recipe *recipe, const char *name)
{
	RecipePeer peer;

	return recipe->read(name, &peer) && peer.numbered;
}

/* Returns the argument "node" in UTF-8.  Raises an error unless it can be a contender's. */
static char *
node_argument(text *arg)
{
	char *shown = text_to_cstring(arg);
	char *name = pg_server_to_any(shown, strlen(shown), PG_UTF8);
	char *child = psprintf("/%s", name);
	bool  known = is_contender(&election_recipe, name) || is_contender(&permit_recipe, name);

	if (!known || strchr(name, '/') != NULL || path_check_node(child, strlen(child)) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not the name of a contender's node",
						zklock_shown(shown, strlen(shown))),
				 errdetail("It must be the name, without its path, as zk_contenders() shows it.")));
	return name;
}

/* ------------------------------------------------------------------------
 * Marks
 * ------------------------------------------------------------------------
 */

/* Marks the node, before it is deleted, in its data and in the entries that it stands for. */
static void
mark(Breaking *breaking)
{
	char		  *by;
	StringInfoData member;
	char		  *data;
	CallStep	   set = {.asked = {.kind = ZK_SET_DATA,
									.path = breaking->path,
									.version = breaking->node.answer.stat.version}};

	entries_expect_deletion(breaking->cohort, LOSS_BROKEN);

	by = psprintf("role %s, process %d of server %s", breaking->role, MyProcPid, zklock_own_name());
	initStringInfo(&member);
	escape_json(&member, pg_server_to_any(by, strlen(by), PG_UTF8));
	data = palloc(breaking->node.answer.text_length + member.len + NODE_CONTENDER_BROKEN_SIZE);
	if (!node_contender_write_broken(data, breaking->node.data, member.data))
		return;

	/* The node is deleted even if this fails. */
	set.asked.data = data;
	call_batch(&breaking->call, &set, 1, CALL_AS_KNOWN);
}

/* ------------------------------------------------------------------------
 * Deleting
 * ------------------------------------------------------------------------
 */

/* Returns true if the owner of a node is a session, false for containers and TTL nodes. */
static bool
is_session(int64 owner)
{
	return owner != 0 && owner != PG_INT64_MIN && ((uint64) owner >> 56) != 0xff;
}

/* Adds to an error, such as a cancellation, what may have been done by then. */
static void
breaking_context(void *arg)
{
	const Breaking *breaking = arg;

	if (breaking->in_doubt)
		errcontext("while role \"%s\", process %d, was deleting node \"%s\" of %s by zk_break_lock(), which may have been done",
				   breaking->role, MyProcPid, breaking->shown, breaking->owner);
}

/*
 * Logs who has deleted a node, and whose it was.  The caller gets a NOTICE if it was not
 * ephemeral: such a node would have outlived its client.
 */
static void
report_broken(const Breaking *breaking)
{
	int64 session = breaking->node.answer.stat.ephemeral_owner;

	ereport(LOG, (errmsg("role \"%s\", process %d, deleted node \"%s\" by zk_break_lock()",
						 breaking->role, MyProcPid, breaking->shown),
				  is_session(session)
					  ? errdetail_log("It was that of %s, in ZooKeeper session 0x%llx.",
									  breaking->owner, (unsigned long long) session)
					  : errdetail_log("It was that of %s, and not ephemeral.", breaking->owner)));
	if (!is_session(session))
		ereport(NOTICE,
				(errmsg("node \"%s\" was not ephemeral", breaking->shown),
				 errdetail("It belonged to no ZooKeeper session, so ZooKeeper would not have deleted it.")));
}

/* Takes the mark off the entries, because this process does not delete the node. */
static void
withdraw_mark(int code, Datum arg)
{
	entries_expect_deletion(DatumGetUInt64(arg), LOSS_DELETED);
}

/* Deletes the node that was read, and reports that.  Returns false if another client did. */
static bool
break_read_node(Breaking *breaking)
{
	ErrorContextCallback context = {.callback = breaking_context,
									.arg = breaking,
									.previous = error_context_stack};
	bool				 broken;

	error_context_stack = &context;
	PG_ENSURE_ERROR_CLEANUP(withdraw_mark, UInt64GetDatum(breaking->cohort));
	{
		mark(breaking);
		broken = call_delete_node(&breaking->call, breaking->path, &breaking->node.answer.stat,
								  &breaking->in_doubt);
	}
	PG_END_ENSURE_ERROR_CLEANUP(withdraw_mark, UInt64GetDatum(breaking->cohort));
	error_context_stack = context.previous;
	if (broken)
		report_broken(breaking);
	else
		withdraw_mark(0, UInt64GetDatum(breaking->cohort));
	return broken;
}

/* Deletes a contender's node, below a path.  Returns false if there is none. */
static bool
break_node(const char *path, const char *name)
{
	Breaking breaking = {.path = psprintf("%s/%s", path, name), .node.name = name};
	CallStep read = {.asked = {.kind = ZK_GET_DATA, .path = breaking.path, .most = CONTENDERS_MAX_DATA}};
	LockView		 ours;
	const EntryCopy *entry;

	call_batch(&breaking.call, &read, 1, CALL_AFTER_SYNC);
	contenders_take_node(&breaking.node, &read);
	if (read.result.stat.czxid == 0)
	{
		call_report(&read);
		return false;
	}
	ours = lock_view_take(path);
	entry = lock_view_of_node(&ours, &breaking.node);
	breaking.cohort = entry ? entry->node.cohort_id : 0;
	breaking.role = GetUserNameFromId(GetUserId(), false);
	breaking.shown = display_path(breaking.path);
	breaking.owner = contenders_describe(&breaking.node);
	return break_read_node(&breaking);
}

/* Reads the contenders in a place. */
static Contenders
read_contenders(const char *path, const Recipe *recipe)
{
	Contenders contenders = {.path = path, .recipe = recipe};
	Caller	   call = {0};
	CallStep   listed = contenders_read(&contenders, &call, 0, CALL_AFTER_SYNC);

	call_report(&listed);
	return contenders;
}

/* Deletes the nodes of the holders in a place.  Returns false if there was none. */
static bool
break_holders(const Contenders *contenders)
{
	bool broken = false;

	if (contenders->permits_unknown && contenders->n > 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("it is not known who holds permits of \"%s\"",
							   display_path(contenders->path)),
						errdetail("No node tells how many permits there are."),
						errhint("Name a node, as zk_contenders() shows it.")));
	for (int i = 0; i < contenders->n; i++)
	{
		if (contenders->nodes[i].holds)
			broken |= break_node(contenders->path, contenders->nodes[i].name);
	}
	return broken;
}

/* Deletes the nodes of all holders at a path.  Returns false if there was none. */
static bool
break_all_holders(const char *path)
{
	Contenders contenders = read_contenders(path, &lock_recipe);
	bool	   broken;

	if (contenders.n == 0)
		contenders = read_contenders(path, &election_recipe);
	broken = break_holders(&contenders);
	contenders = read_contenders(psprintf("%s" PERMIT_LEASES, path), &permit_recipe);
	return break_holders(&contenders) || broken;
}

/*
 * zk_break_lock(path text) returns boolean
 *
 * Deletes the nodes of those that hold a lock, an election or permits of a semaphore.
 * Returns false if there is no such node.
 */
Datum
zk_break_lock(PG_FUNCTION_ARGS)
{
	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "break locks");
	PG_RETURN_BOOL(break_all_holders(argument_path(fcinfo, ALLOWED_PATHS_ONLY)));
}

/*
 * zk_break_lock(path text, node text) returns boolean
 *
 * Deletes a contender's node.  Returns false if there is no such node.
 */
Datum
zk_break_lock_node(PG_FUNCTION_ARGS)
{
	char *path;
	char *name;

	argument_require_administrator(ROLE_PG_SIGNAL_BACKEND, "break locks");
	path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	argument_refuse_null(fcinfo, 1, "node");
	name = node_argument(PG_GETARG_TEXT_PP(1));
	for (int i = 0; i < (int) lengthof(places); i++)
	{
		char *place = psprintf("%s%s", path, places[i].below);

		if (is_contender(places[i].recipe, name) && break_node(place, name))
			PG_RETURN_BOOL(true);
	}
	PG_RETURN_BOOL(false);
}
