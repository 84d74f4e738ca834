/*
 * persistent_funcs.c
 *		SQL functions for locks that no session holds: persistent nodes, as Hive's LOCK TABLE
 *		creates them.
 *
 * The node of such a lock is a contender's, in the dialect of its path, so that all clients
 * that respect such names respect it, but it belongs to no ZooKeeper session.  It stays until
 * somebody deletes it.  No entry in shared memory stands for it; a session of any server
 * unlocks it by its fencing token, which has its czxid.
 *
 * A call does not wait: it looks whether somebody is in the way, creates the node, looks once
 * more, and deletes the node if somebody is in front of it.  Until then the node is the call
 * slot's provisional node, which the worker deletes if the call fails or its process ends.
 *
 * If the answer to the creation is lost, the node is found by its name and data, which name
 * the attempt.  If the call is cancelled before, nobody knows, and the error says so.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/request.h"
#include "backend/view.h"
#include "backend/wait.h"
#include "miscadmin.h"
#include "recipes/recipe.h"
#include "shared/settings.h"
#include "sql/arguments.h"

COMPAT_FUNCTION_INFO_V1(zk_lock_persistent);
COMPAT_FUNCTION_INFO_V1(zk_lock_persistent_shared);
COMPAT_FUNCTION_INFO_V1(zk_unlock_persistent);

/* A lock that is being taken or released */
typedef struct Persistent
{
	const char	 *path;
	RecipeRequest request;
	char		  prefix[ZKLOCK_MAX_NODE_NAME + 1]; /* of the node's name */
	const char	 *data;
	const char	 *name; /* the node's; NULL until it is known */
	NodeStat	  stat;
	bool		  in_doubt; /* the creation or deletion may have been done */
	bool		  unlocks;
	Caller		  call;
} Persistent;

/* ------------------------------------------------------------------------
 * Looking
 * ------------------------------------------------------------------------
 */

/* Adds to an error, such as a cancellation, what may have been done by then. */
static void
persistent_context(void *arg)
{
	const Persistent *lock = arg;
	const char		 *path = display_utf8(lock->path);

	if (lock->unlocks)
		errcontext("while unlocking persistent lock \"%s\"%s", path,
				   lock->in_doubt ? ", which may have been done" : "");
	else
		errcontext("while locking \"%s\" persistently%s", path,
				   lock->in_doubt ? "; its node may exist, as zk_contenders() shows" : "");
}

/* Raises an error if the path is used for something else. */
static void
persistent_refuse_other_use(Persistent *lock, const CallStep *list)
{
	int64_t number;

	for (int i = 0; i < list->result.nchildren; i++)
	{
		if (!lock_recipe.read(list->children[i], &(RecipePeer){0}) &&
			element_name_read(list->children[i], &number))
			request_report_failure(ENTRY_NONE, lock->path, FAILURE_IS_QUEUE, 0);
	}
	call_refuse_claims(&lock->call, lock->path, &list->result.stat);
}

/* Reads the contenders, as they are now, and the nodes of the first "most" of them. */
static Contenders
persistent_read(Persistent *lock, int most)
{
	Contenders contenders = {.path = lock->path, .recipe = &lock_recipe};
	CallStep   list = contenders_read(&contenders, &lock->call, most, CALL_AFTER_SYNC);

	call_report(&list);
	if (list.result.outcome == CALL_OK)
		persistent_refuse_other_use(lock, &list);
	return contenders;
}

/*
 * Returns true if nobody is in the way of the lock's node, or, if there is none yet, of one
 * that is created now:  then a node that may be kept for nobody goes.  A node that is gone is
 * in its own way.
 */
static bool
persistent_is_free(Persistent *lock)
{
	Contenders contenders = persistent_read(lock, 0);

	for (int i = 0; i < contenders.n; i++)
	{
		const ContenderNode *node = &contenders.nodes[i];

		if (lock->name && strcmp(node->name, lock->name) == 0)
			return true;
		if (lock_recipe.excludes(&node->peer, &lock->request) && (lock->name || !node->peer.may_be_kept))
			return false;
	}
	return lock->name == NULL;
}

static const char *
node_path(const Persistent *lock, const char *name)
{
	return psprintf("%s/%s", lock->path, name);
}

/* ------------------------------------------------------------------------
 * Locking
 * ------------------------------------------------------------------------
 */

/* Returns true if the creation whose answer was lost has been made. */
static bool
find_node(Persistent *lock)
{
	Contenders contenders = persistent_read(lock, PG_INT32_MAX);

	for (int i = 0; i < contenders.n && lock->name == NULL; i++)
	{
		const ContenderNode *node = &contenders.nodes[i];

		if (strncmp(node->name, lock->prefix, strlen(lock->prefix)) != 0 ||
			strcmp(node->data, lock->data) != 0)
			continue;
		lock->name = node->name;
		lock->stat = node->answer.stat;
	}
	return lock->name != NULL;
}

/* Creates the node. */
static void
create_node(Persistent *lock)
{
	uint8 uuid[ZKLOCK_UUID_BYTES];
	char *attempt = node_data_unique(uuid);

	lock_recipe.write(lock->prefix, sizeof(lock->prefix), &lock->request, uuid);
	lock->data = node_data_compose(lock->request.dialect, LOCK_SCOPE_SESSION, attempt);
	do
	{
		const CallStep *made;

		lock->in_doubt = true;
		made = call_create_path(&lock->call, lock->path,
								(ZkCall){.kind = ZK_CREATE,
										 .node_kind = ZK_PERSISTENT_SEQUENTIAL,
										 .path = node_path(lock, lock->prefix),
										 .data = lock->data});
		lock->in_doubt = made->result.outcome == CALL_OK || made->result.outcome == CALL_UNKNOWN;
		call_report(&(CallStep){.asked.path = lock->path, .result = made->result});
		if (made->result.outcome == CALL_OK)
		{
			lock->name = made->read;
			lock->stat = made->result.stat;
		}

		/* A creation in doubt must be settled, however long that takes. */
		lock->call.patience = CALL_PATIENT;
	} while (lock->name == NULL && !find_node(lock));
}

/*
 * Takes the lock.  Returns false if somebody is in its way.  The node of a reusable name
 * may be another client's by now, and is left alone.
 */
static bool
persistent_take(Persistent *lock)
{
	int64			until;
	bool			taken;
	const char	   *path;
	const CallStep *look;

	if (!persistent_is_free(lock))
		return false;

	/* A cancellation that has come already is handled before anything is sent. */
	interrupt_check_client();
	create_node(lock);
	path = node_path(lock, lock->name);
	until = zklock_now_ms() + KEPT_PATIENCE_MS;
	do
	{
		taken = persistent_is_free(lock);
	} while (!taken && zklock_now_ms() < until);
	if (taken)
	{
		look = call_make(&lock->call, (ZkCall){.kind = ZK_EXISTS, .path = path}, CALL_AS_KNOWN);
		if (look->result.outcome == CALL_OK && look->result.stat.czxid == lock->stat.czxid)
		{
			/* A later cancellation would find a lock whose token nobody knows. */
			interrupt_check_client();
			call_slot_keep_node(call_slot_own());
			return true;
		}
	}
	(void) call_delete_node(&lock->call, path, &lock->stat, &lock->in_doubt);
	call_slot_keep_node(call_slot_own());
	return false;
}

/* The functions that lock; returns the token, or NULL. */
static Datum
lock_persistently(FunctionCallInfo fcinfo, LockMode mode)
{
	Persistent			 lock = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY)};
	ErrorContextCallback context = {.callback = persistent_context,
									.arg = &lock,
									.previous = error_context_stack};
	volatile bool		 taken = false;

	lock.request = (RecipeRequest){.mode = mode, .dialect = dialect_of_path(lock.path)};
	request_refuse_election(lock.path);
	error_context_stack = &context;
	PG_TRY();
	{
		taken = persistent_take(&lock);
	}
	PG_CATCH();
	{
		call_slot_leave_path(call_slot_own());
		PG_RE_THROW();
	}
	PG_END_TRY();
	error_context_stack = context.previous;
	if (!taken)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token_of_grant(lock.stat.czxid, 1));
}

/*
 * zk_lock_persistent(path text) returns bigint
 *
 * Takes the exclusive lock for nobody in particular, until zk_unlock_persistent().  Returns
 * its fencing token, or NULL if another client has the lock or waits for it.
 */
Datum
zk_lock_persistent(PG_FUNCTION_ARGS)
{
	return lock_persistently(fcinfo, LOCK_MODE_EXCLUSIVE);
}

/*
 * zk_lock_persistent_shared(path text) returns bigint
 *
 * The same for a shared lock, in whose way are exclusive ones alone.
 */
Datum
zk_lock_persistent_shared(PG_FUNCTION_ARGS)
{
	return lock_persistently(fcinfo, LOCK_MODE_SHARED);
}

/* ------------------------------------------------------------------------
 * Unlocking
 * ------------------------------------------------------------------------
 */

/* Finds the node of a token.  Returns false if there is none that is persistent. */
static bool
find_token(Persistent *lock, int64 token)
{
	Contenders contenders = persistent_read(lock, PG_INT32_MAX);

	for (int i = 0; i < contenders.n; i++)
	{
		lock->name = contenders.nodes[i].name;
		lock->stat = contenders.nodes[i].answer.stat;
		if (lock->stat.czxid != 0 && lock->stat.ephemeral_owner == 0 &&
			token_of_grant(lock->stat.czxid, 1) == token)
			return true;
	}
	return false;
}

/*
 * zk_unlock_persistent(path text, token bigint) returns boolean
 *
 * Releases a persistent lock.  Returns false, with a warning, if there is none of that token.
 */
Datum
zk_unlock_persistent(PG_FUNCTION_ARGS)
{
	Persistent lock = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY), .unlocks = true};
	ErrorContextCallback context = {.callback = persistent_context,
									.arg = &lock,
									.previous = error_context_stack};
	int64				 token;
	bool				 unlocked;

	argument_refuse_null(fcinfo, 1, "token");
	token = PG_GETARG_INT64(1);
	error_context_stack = &context;
	unlocked = find_token(&lock, token) &&
			   call_delete_node(&lock.call, node_path(&lock, lock.name), &lock.stat, &lock.in_doubt);
	error_context_stack = context.previous;
	if (!unlocked)
		ereport(WARNING, (errmsg("there is no persistent lock \"%s\" with fencing token " INT64_FORMAT,
								 display_path(lock.path), token)));
	PG_RETURN_BOOL(unlocked);
}
