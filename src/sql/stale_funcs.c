/*
 * stale_funcs.c
 *		SQL function that removes a lock node whose session is dead.
 *
 * ZooKeeper deletes a session's ephemeral nodes when the session ends.  Through
 * bugs (ZOOKEEPER-4837, -5010) one may survive: a lock that nobody holds and
 * nobody can release.  zk_remove_stale_node() deletes such a node, and must
 * never delete one that is not.  It is sure that the session is dead if the
 * server that decides on sessions, the leader or one that is alone, does not
 * know it.  The ensemble's servers are asked by four-letter commands.
 *
 * A leader that has been cut off from the others goes on calling itself so for
 * a while, and takes sessions for dead that live.  So it is asked, then the
 * worker has a quorum commit something, and then it is asked again: it must
 * have gone on to a later transaction in the same epoch, which only the one
 * true leader of that epoch does.  It must not know the session either time.
 *
 * A session that has died does not come back, so what is found holds until the
 * deletion.  That compares the node's czxid and owner once more.  Between this
 * and the deletion the node would have to be deleted and created again under
 * the same name, which recipes only do when the path has been deleted as well.
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
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "zk/connect_string.h"
#include "zk/four_letter.h"

PG_FUNCTION_INFO_V1(zk_remove_stale_node);

/* A list may have missed a session that moved: see four_letter.c. */
#define MAX_LISTS 10

#define ZXID_EPOCH(zxid) ((zxid) >> 32)

/* What is not a session's id in a node's owner: container, and TTL with its time. */
#define OWNER_CONTAINER PG_INT64_MIN
#define OWNER_IS_TTL(owner) (((uint64) (owner) >> 56) == 0xff)

/* The node the arguments mean. */
static void
node_arguments(FunctionCallInfo fcinfo, Question *node)
{
	char	*path;
	char	*name;
	char	*utf8;
	NodeName parsed;

	zklock_require_preload();
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("path and node must not be null")));
	path = argument_to_path(PG_GETARG_TEXT_PP(0), ANY_PATH);
	name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	utf8 = pg_server_to_any(name, strlen(name), PG_UTF8);
	memset(node, 0, sizeof(*node));
	node->path = psprintf("%s/%s", path, utf8);
	if (strchr(utf8, '/') != NULL || !node_name_parse(utf8, &parsed) ||
		strlen(node->path) >= ERRAND_PATH_SIZE ||
		path_check(node->path + strlen(path), strlen(utf8) + 1) != PATH_LOCK_NODE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not the name of a lock node", argument_shown(name)),
				 errdetail("It must be the name, without its path, of a child of a lock path.")));
}

static ErrandOutcome
ask_worker(ErrandKind kind, Question *node)
{
	node->kind = kind;
	return backend_ask(node);
}

/* Asks a server until its list of sessions is complete. */
static void
view_server(const char *address, int64 session, ServerView *view)
{
	for (int i = 0; i < MAX_LISTS; i++)
	{
		four_letter_view(address, session, view);
		if (!view->decides || !view->may_dump || view->complete)
			break;
	}
}

static void
report_no_leader(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR), errmsg("could not ask the ZooKeeper leader"),
			 errdetail_internal("%s", detail),
			 zklock_tls
				 ? errhint("ZooKeeper is asked without TLS, which a port that demands TLS does not answer. Make sure by other means that the session is dead, and use zk_break_lock().")
				 : errhint("\"zklock.servers\" must name all servers of the ensemble, and they must allow the commands \"srvr\" and \"dump\" in \"4lw.commands.whitelist\".")));
}

/*
 * Finds the server that decides on sessions, and asks it about one.  Returns
 * its address.
 */
static char *
find_leader(int64 session, ServerView *leader)
{
	ConnectString servers;
	char		  addresses[CONNECT_STRING_RESOLVED_SIZE];
	char		 *rest = NULL;
	char		 *found = NULL;
	int			  nanswers = 0;

	(void) connect_string_parse(zklock_servers, &servers); /* checked when set */
	servers.chroot[0] = '\0';
	memset(leader, 0, sizeof(*leader));

	/* Name services are asked here, and cannot be interrupted. */
	if (!connect_string_resolve(&servers, CONNECT_RESOLVE_NAMES, addresses, sizeof(addresses)))
		report_no_leader("No name in \"zklock.servers\" could be resolved.");
	for (char *address = strtok_r(addresses, ",", &rest); address;
		 address = strtok_r(NULL, ",", &rest))
	{
		ServerView view;

		view_server(address, session, &view);
		nanswers += view.answers;
		if (view.decides && (found == NULL || view.zxid > leader->zxid))
		{
			*leader = view;
			found = pstrdup(address);
		}
	}
	if (found == NULL)
		report_no_leader(nanswers > 0 ? _("None of the servers that answer is the leader.")
									  : _("No server answers."));
	return found;
}

/* Raises an error unless a server was able to say that a session is dead. */
static void
require_dead(const Question *node, const char *address, const ServerView *view)
{
	if (view->has_session)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("node \"%s\" is not stale", display_path(node->path)),
						errdetail("Its ZooKeeper session 0x%llx lives.",
								  (unsigned long long) node->owner)));
	if (view->decides && !view->may_dump)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("ZooKeeper server %s does not tell which sessions live", address),
				 errhint("Add \"dump\" to \"4lw.commands.whitelist\" in the configuration of all ZooKeeper servers.")));
	if (!view->decides || !view->complete)
		report_no_leader(psprintf(_("Server %s did not answer, or not completely."), address));
}

/*
 * Deletes a lock's node whose session is dead.  Returns false if there is no
 * such node.  See the head of the file.
 */
Datum
zk_remove_stale_node(PG_FUNCTION_ARGS)
{
	Question	  node;
	ServerView	  before;
	ServerView	  after;
	char		 *address;
	ErrandOutcome outcome;

	node_arguments(fcinfo, &node);
	if (ask_worker(ERRAND_READ, &node) == ERRAND_NO_NODE)
		PG_RETURN_BOOL(false);
	if (node.owner == 0 || node.owner == OWNER_CONTAINER || OWNER_IS_TTL(node.owner))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("node \"%s\" is not ephemeral", display_path(node.path)),
						errdetail("It does not belong to a ZooKeeper session.")));

	address = find_leader(node.owner, &before);
	require_dead(&node, address, &before);
	if (ask_worker(ERRAND_CHECK, &node) == ERRAND_NO_NODE)
		PG_RETURN_BOOL(false);
	view_server(address, node.owner, &after);
	require_dead(&node, address, &after);
	if (ZXID_EPOCH(after.zxid) != ZXID_EPOCH(before.zxid) || after.zxid <= before.zxid)
		report_no_leader(psprintf(_("Server %s is not the leader any more."), address));

	outcome = ask_worker(ERRAND_DELETE, &node);
	if (outcome == ERRAND_OK)
		ereport(LOG, (errmsg("removed node \"%s\" of dead ZooKeeper session 0x%llx",
							 display_path(node.path), (unsigned long long) node.owner)));
	PG_RETURN_BOOL(outcome == ERRAND_OK);
}
