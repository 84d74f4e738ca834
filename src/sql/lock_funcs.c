/*
 * lock_funcs.c
 *		SQL functions that lock and unlock: a path, several paths, or a path in a tree; that
 *		acquire permits of semaphores; that make and use reservations; that take persistent
 *		locks; and PostgreSQL's advisory lock functions over all servers.
 *
 * They check their arguments and call what backend/lock.h and shared/entry.h offer.
 *
 * A session that works on a part of something, such as a partition of a table, must keep
 * others from locking the whole.  So zk_lock_tree() also takes shared locks on the paths
 * above its own, up to but not including the root of the tree: many sessions can work on
 * different parts, and nobody has the whole meanwhile.  Hive locks databases, tables and
 * partitions like this.  The locks are taken from the top down, which is also the order of
 * the paths' bytes, so that these calls and those with an array of paths cannot deadlock
 * with each other.
 *
 * A reservation is a lock that the server holds for whoever knows its token; shared/entry.c
 * says more.  A user of its token also needs the privileges of the role that made it.  A
 * reservation is known to its server alone; if this one has none of the token, ZooKeeper shows
 * whether another server has.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/guard.h"
#include "backend/hold.h"
#include "backend/lock.h"
#include "catalog/pg_type.h"
#include "lib/qunique.h"
#include "mb/pg_wchar.h"
#include "parser/parse_func.h"
#include "shared/election.h"
#include "sql/arguments.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

COMPAT_FUNCTION_INFO_V1(zk_unlock_all);
COMPAT_FUNCTION_INFO_V1(zk_fencing_token);
COMPAT_FUNCTION_INFO_V1(zk_lease_remaining);
COMPAT_FUNCTION_INFO_V1(zk_semaphore_release);
COMPAT_FUNCTION_INFO_V1(zk_reserve);
COMPAT_FUNCTION_INFO_V1(zk_renew);
COMPAT_FUNCTION_INFO_V1(zk_rely);
COMPAT_FUNCTION_INFO_V1(zk_unreserve);
COMPAT_FUNCTION_INFO_V1(zk_unlock_persistent);
COMPAT_FUNCTION_INFO_V1(zk_advisory_unlock_all);

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/*
 * Raises an error if a function must not take anything at session level: behind a
 * connection pool, another client would have what one has taken.
 */
static void
refuse_session_level(FunctionCallInfo fcinfo, LockScope scope)
{
	const char *function;
	const char *noun;

	if (scope != LOCK_SCOPE_SESSION || zklock_session_locks)
		return;
	function = get_func_name(fcinfo->flinfo->fn_oid);
	if (function == NULL)
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	noun = strstr(function, "lock");
	if (noun == NULL)
		noun = strncmp(function, "zk_", strlen("zk_")) == 0 ? function + strlen("zk_") : function;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("cannot use %s(): \"zklock.session_locks\" is off", function),
					errhint("Use %.*sxact_%s(), whose locks end with the transaction.",
							(int) (noun - function), function, noun)));
}

/*
 * Returns the paths in the array argument, each once, in the order in which all sessions
 * lock several paths.
 */
static LockSet
paths_argument(FunctionCallInfo fcinfo, PathRule rule, LockMode mode)
{
	LockSet	   set = {0};
	ArrayType *array;
	Datum	  *elements;
	bool	  *nulls;
	int		   n;

	argument_require_holder();
	argument_refuse_null(fcinfo, 0, "path array");
	array = PG_GETARG_ARRAYTYPE_P(0);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("path array must be one-dimensional")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path array must not be empty")));

	set.targets = palloc(n * sizeof(LockTarget));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("path array must not contain nulls")));
		set.targets[i].path = argument_to_path(TextDatumGetCString(elements[i]), rule);
		set.targets[i].mode = mode;
	}
	qsort(set.targets, n, sizeof(LockTarget), pg_qsort_strcmp);
	set.n = qunique(set.targets, n, sizeof(LockTarget), pg_qsort_strcmp);
	return set;
}

/*
 * Returns the path argument, or, if the argument behind it is a root, the paths below the root
 * down to the path argument, which comes last.
 */
static LockSet
branch_arguments(FunctionCallInfo fcinfo, PathRule rule, LockMode mode, bool has_root)
{
	LockSet branch = {.whole = has_root};
	char   *utf8 = argument_path(fcinfo, rule);
	char   *path;
	char   *root;
	size_t	root_len;

	if (!has_root)
	{
		branch.targets = palloc(sizeof(LockTarget));
		branch.targets[branch.n++] = (LockTarget){.path = utf8, .mode = mode};
		return branch;
	}
	argument_refuse_null(fcinfo, 1, "root");
	path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	root = text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* The root of ZooKeeper ends in a slash; no other path does. */
	root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (root[0] != '/' || strncmp(path, root, root_len) != 0 || path[root_len] != '/')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("path \"%s\" is not below root \"%s\"", path,
							   zklock_shown(root, strlen(root))),
						errhint("The root is not locked itself; it can be \"/\".")));

	branch.targets = palloc(strlen(path) * sizeof(LockTarget));
	for (char *end = path + root_len; end != NULL;)
	{
		LockTarget *target = &branch.targets[branch.n++];

		end = strchr(end + 1, '/');
		target->path = argument_to_path(end ? pnstrdup(path, end - path) : path, rule);
		target->mode = end ? LOCK_MODE_SHARED : mode;
	}
	return branch;
}

/* ------------------------------------------------------------------------
 * Locking
 *
 * Each function returns true if all locks are held, and false if the timeout has passed.
 * A shared lock on a path that the session holds exclusively is granted at once.
 *
 * A C function serves the SQL functions of one mode and scope, which have other arguments:
 *
 *	zk_try_lock		(path text), which does not wait
 *	zk_lock			(path text, timeout interval)
 *	zk_lock_tree	(path text, root text, timeout interval)
 *
 * Those with an array, (paths text[], timeout interval), have one of their own.
 * ------------------------------------------------------------------------
 */

/* What the first argument of an SQL function is */
typedef enum PathArgument
{
	ONE_PATH,
	PATH_ARRAY
} PathArgument;

static Datum
acquire_locks(FunctionCallInfo fcinfo, LockMode mode, LockScope scope, PathArgument argument)
{
	LockSet set = argument == PATH_ARRAY
					  ? paths_argument(fcinfo, ALLOWED_PATHS_ONLY, mode)
					  : branch_arguments(fcinfo, ALLOWED_PATHS_ONLY, mode, PG_NARGS() == 3);

	refuse_session_level(fcinfo, scope);
	PG_RETURN_BOOL(lock_acquire(set, scope,
								PG_NARGS() == 1 ? LOCK_NO_WAIT
												: argument_timeout(fcinfo, PG_NARGS() - 1)));
}

SQL_FUNCTION(zk_lock, acquire_locks, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION, ONE_PATH);
SQL_FUNCTION(zk_xact_lock, acquire_locks, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION, ONE_PATH);
SQL_FUNCTION(zk_lock_shared, acquire_locks, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION, ONE_PATH);
SQL_FUNCTION(zk_xact_lock_shared, acquire_locks, LOCK_MODE_SHARED, LOCK_SCOPE_TRANSACTION, ONE_PATH);
SQL_FUNCTION(zk_lock_array, acquire_locks, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION, PATH_ARRAY);
SQL_FUNCTION(zk_xact_lock_array, acquire_locks, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION, PATH_ARRAY);
SQL_FUNCTION(zk_lock_shared_array, acquire_locks, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION, PATH_ARRAY);
SQL_FUNCTION(zk_xact_lock_shared_array, acquire_locks, LOCK_MODE_SHARED,
			 LOCK_SCOPE_TRANSACTION, PATH_ARRAY);

/* ------------------------------------------------------------------------
 * Unlocking
 *
 * Each function undoes one session-level acquisition of each path, and returns false, with
 * a warning, if one was not held or was lost.  With an array, it releases the locks that
 * are held; with a tree, all that zk_lock_tree() took, or none.
 *
 *	zk_unlock		(path text)
 *	zk_unlock_tree	(path text, root text)
 *	zk_unlock		(paths text[]), which is a C function of its own
 * ------------------------------------------------------------------------
 */

static Datum
release_locks(FunctionCallInfo fcinfo, LockMode mode, PathArgument argument)
{
	PG_RETURN_BOOL(lock_release(argument == PATH_ARRAY
									? paths_argument(fcinfo, ANY_PATH, mode)
									: branch_arguments(fcinfo, ANY_PATH, mode, PG_NARGS() == 2)));
}

SQL_FUNCTION(zk_unlock, release_locks, LOCK_MODE_EXCLUSIVE, ONE_PATH);
SQL_FUNCTION(zk_unlock_shared, release_locks, LOCK_MODE_SHARED, ONE_PATH);
SQL_FUNCTION(zk_unlock_array, release_locks, LOCK_MODE_EXCLUSIVE, PATH_ARRAY);
SQL_FUNCTION(zk_unlock_shared_array, release_locks, LOCK_MODE_SHARED, PATH_ARRAY);

/* zk_unlock_all() returns void: undoes all session-level acquisitions. */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	argument_require_holder();
	lock_release_those(NULL, NULL);
	PG_RETURN_VOID();
}

/*
 * zk_fencing_token(path text) returns bigint
 *
 * Returns a number that increases from one exclusive grant of the path to the next, for
 * ever and over all servers.  At an election's path it is the term in which this server
 * leads.
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ANY_PATH);
	int	  election = election_find(path);
	Hold *hold = hold_of_lock(path, LOCK_MODE_EXCLUSIVE);
	int64 term;

	/* The exclusive lock that the session holds, else the shared one */
	if (hold == NULL)
		hold = hold_of_lock(path, LOCK_MODE_SHARED);
	if (hold && hold_is_lost(hold))
		hold_report_lost(hold);
	if (hold)
		PG_RETURN_INT64(entry_status(hold->entry).token);
	if (election == ELECTION_NONE)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you don't own a lock on ZooKeeper path \"%s\"", display_path(path)),
						errhint("Lock the path in this session first.")));
	term = transaction_leads(election);
	if (term == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this server does not lead the election at ZooKeeper path \"%s\"",
							   display_path(path)),
						errhint("Use zk_leader() to see who leads.")));
	PG_RETURN_INT64(term);
}

/*
 * zk_lease_remaining(path text) returns interval
 *
 * Returns for how long this session is proved to hold all that it has at the path, locks or
 * permits: zero while these are suspended.  Without any, it is for how long this server is proved to
 * lead there.  Raises an error if one is lost, or there is none.
 */
Datum
zk_lease_remaining(PG_FUNCTION_ARGS)
{
	char	 *path = argument_path(fcinfo, ANY_PATH);
	int		  election = election_find(path);
	Interval *result = palloc0(sizeof(Interval));
	int64	  now = zklock_now_us();
	int64	  until;
	bool	  holds = false;

	/* The lease is read before the holds: then it is the lease of their grants. */
	until = lease_until();
	result->time = Max(until - now, 0);
	for (const Hold *hold = hold_next(NULL); hold; hold = hold_next(hold))
	{
		EntryStatus status;

		if (!hold_is_acquired(hold) || hold->kind == REQUEST_ELEMENT || strcmp(hold->path, path) != 0)
			continue;
		if (!hold_stands(hold, &status))
			hold_report_lost(hold);
		result->time = Min(result->time, Max(status.expires_us - now, 0));
		holds = true;
	}
	if (!holds && (election == ELECTION_NONE || transaction_leads(election) == 0))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you hold nothing at ZooKeeper path \"%s\"", display_path(path)),
						errhint("Lock the path in this session first.")));
	PG_RETURN_INTERVAL_P(result);
}

/* ------------------------------------------------------------------------
 * Semaphores
 * ------------------------------------------------------------------------
 */

static Datum
acquire_permit(FunctionCallInfo fcinfo, LockScope scope)
{
	char *path =
		argument_path_above(fcinfo, ALLOWED_PATHS_ONLY, "a semaphore", ZKLOCK_MAX_SEMAPHORE_PATH);

	argument_refuse_null(fcinfo, 1, "number of permits");
	if (PG_GETARG_INT32(1) < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("number of permits must be at least 1")));
	refuse_session_level(fcinfo, scope);
	PG_RETURN_BOOL(permit_acquire(path, PG_GETARG_INT32(1), scope, argument_timeout(fcinfo, 2)));
}

/*
 * zk_semaphore_acquire(path text, permits int, timeout interval) returns boolean
 *
 * Acquires one more permit of a semaphore that has "permits" of them.  With a timeout of
 * NULL it waits for ever, with '0' not at all.  Returns true if it holds one, and false if
 * the timeout has passed.
 */
SQL_FUNCTION(zk_semaphore_acquire, acquire_permit, LOCK_SCOPE_SESSION);

/*
 * zk_xact_semaphore_acquire(path text, permits int, timeout interval) returns boolean
 *
 * Acquires a permit that is released with the transaction.
 */
SQL_FUNCTION(zk_xact_semaphore_acquire, acquire_permit, LOCK_SCOPE_TRANSACTION);

/*
 * zk_semaphore_release(path text) returns boolean
 *
 * Releases one permit that is held at session level.  Returns false, with a warning, if the
 * session held none or the permit was lost.
 */
Datum
zk_semaphore_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(permit_release(
		argument_path_above(fcinfo, ANY_PATH, "a semaphore", ZKLOCK_MAX_SEMAPHORE_PATH)));
}

/* ------------------------------------------------------------------------
 * Reservations
 * ------------------------------------------------------------------------
 */

/*
 * Finds the reservation of a path that has the token in the second argument.  Returns false if
 * it is over.
 */
static bool
find_reservation(FunctionCallInfo fcinfo, const char *path, Reservation *reservation)
{
	Contenders	contenders;
	Caller		call = {0};
	LockView	ours;
	EntryStatus status;

	argument_refuse_null(fcinfo, 1, "token");
	ours = lock_view_take(path, false);
	for (int i = 0; i < ours.n; i++)
	{
		const EntryCopy *entry = ours.entries[i];

		*reservation = (Reservation){.index = entry->index, .generation = entry->generation};
		if (!entry->status.reserved || entry->status.token != PG_GETARG_INT64(1) ||
			lease_state() == LEASE_OVER || !reservation_status(reservation, &status))
			continue;
		if (!has_privs_of_role(GetUserId(), entry->request.role))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for the reservation of ZooKeeper path \"%s\"",
							display_path(path)),
					 errdetail("Only roles with privileges of the role that reserved the path may use the reservation.")));
		return true;
	}

	/* The node of the token may belong to another server. */
	contenders = contenders_read(path, &lock_recipe, &call, PG_INT32_MAX, CALL_AFTER_SYNC);
	call_report(&call, &contenders.answer);
	for (int i = 0; i < contenders.n; i++)
	{
		const NodeStat *stat = &contenders.nodes[i].answer.stat;

		if (stat->czxid != 0 && token_of_grant(stat->czxid, 1) == PG_GETARG_INT64(1) &&
			stat->ephemeral_owner != 0 && stat->ephemeral_owner != call.session)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the reservation of ZooKeeper path \"%s\" is not this server's",
							display_path(path)),
					 errhint("A reservation belongs to the server where it was made. Call the function there.")));
	}
	return false;
}

/*
 * zk_reserve(path text, duration interval, timeout interval) returns bigint
 *
 * Reserves the path, and returns the fencing token.  Returns NULL if the timeout has passed.
 */
Datum
zk_reserve(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int64 token;

	if (!reserve_acquire(path, argument_duration(fcinfo, 1), argument_timeout(fcinfo, 2), &token))
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

/*
 * zk_renew(path text, token bigint, duration interval) returns boolean
 *
 * Has a reservation end so long from now.  Returns false if it is over.
 */
Datum
zk_renew(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	int			duration_ms = argument_duration(fcinfo, 2);
	Reservation reservation;

	PG_RETURN_BOOL(find_reservation(fcinfo, path, &reservation) &&
				   reservation_renew(&reservation, duration_ms));
}

/*
 * zk_rely(path text, token bigint) returns void
 *
 * Has the transaction rely on a reservation.  Raises an error if it is over.
 */
Datum
zk_rely(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Reservation reservation;

	if (!find_reservation(fcinfo, path, &reservation))
		reliance_report_over(path);
	transaction_begin_call();
	reliance_add(path, &reservation);
	PG_RETURN_VOID();
}

/*
 * zk_unreserve(path text, token bigint) returns boolean
 *
 * Ends a reservation.  Returns false if it is over already.
 */
Datum
zk_unreserve(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ANY_PATH);
	Reservation reservation;

	if (!find_reservation(fcinfo, path, &reservation) ||
		!reservation_end(&reservation, compat_my_proc_number()))
		PG_RETURN_BOOL(false);

	/* Others can have the lock when the call returns; a cancellation ends only the wait. */
	(void) wait_for_release(NULL, path, reservation.index, reservation.generation);
	PG_RETURN_BOOL(true);
}

/* ------------------------------------------------------------------------
 * Persistent locks
 *
 * The node of a lock that no session holds is persistent, as those that Hive's LOCK TABLE
 * creates.  It is a contender's, in the dialect of its path, so that all clients that respect
 * such names respect it, but it belongs to no ZooKeeper session.  It stays until somebody
 * deletes it.  No entry in shared memory stands for it; a session of any server unlocks it by
 * its fencing token, which has its czxid.
 *
 * A call does not wait: it looks whether somebody is in the way, creates the node, looks once
 * more, and deletes the node if somebody is in front of it.  Until then the node is the call
 * slot's provisional node, which the worker deletes if the call fails or its process ends.
 *
 * If the answer to the creation is lost, the node is found by its name and data, which name
 * the attempt.  If the call is cancelled before, nobody knows, and the error says so.
 * ------------------------------------------------------------------------
 */

/* A lock that is being taken or released */
typedef struct Persistent
{
	const char	 *path;
	RecipeRequest request;
	const char	 *name; /* the node's; NULL until it is known */
	NodeStat	  stat;
	Caller		  call;
} Persistent;

/*
 * Reads the contenders, as they are now, and the nodes of the first "most" of them.  Raises an
 * error if the path is used for something else.
 */
static Contenders
persistent_read(Persistent *lock, int most)
{
	Contenders contenders =
		contenders_read(lock->path, &lock_recipe, &lock->call, most, CALL_AFTER_SYNC);
	const CallStep *list = &contenders.answer;
	int64_t			number;

	call_report(&lock->call, list);
	if (list->result.outcome != CALL_OK)
		return contenders;
	for (int i = 0; i < list->result.nchildren; i++)
	{
		if (!lock_recipe.read(list->children[i], &(RecipePeer){0}) &&
			element_name_read(list->children[i], &number))
			request_report_failure(ENTRY_NONE, lock->path, FAILURE_IS_QUEUE, 0);
	}
	call_refuse_claims(&lock->call, lock->path, &list->result.stat);
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

/*
 * Takes the lock.  Returns false if somebody is in its way.  The node of a reusable name
 * may be another client's by now, and is left alone.
 */
static bool
persistent_take(Persistent *lock)
{
	uint8			uuid[ZKLOCK_UUID_BYTES];
	char			prefix[ZKLOCK_MAX_NODE_NAME + 1]; /* of the node's name */
	const char	   *data;
	const char	   *path;
	int64			until;
	bool			taken;
	const CallStep *look;

	if (!persistent_is_free(lock))
		return false;

	/* A cancellation that has come already is handled before anything is sent. */
	interrupt_check_client();

	/* Create the node. */
	data = node_data_compose(lock->request.dialect, LOCK_SCOPE_SESSION, node_data_unique(uuid));
	lock_recipe.write(prefix, sizeof(prefix), &lock->request, uuid);
	while (lock->name == NULL)
	{
		Contenders		contenders;
		const CallStep *made;

		path = psprintf("%s/%s", lock->path, prefix);
		lock->call.in_doubt = true;
		made = call_create_path(&lock->call, lock->path,
								(ZkCall){.kind = ZK_CREATE,
										 .node_kind = ZK_PERSISTENT_SEQUENTIAL,
										 .path = path,
										 .data = data});
		lock->call.in_doubt = made->result.outcome == CALL_OK || made->result.outcome == CALL_UNKNOWN;
		call_report(&lock->call, &(CallStep){.asked.path = lock->path, .result = made->result});

		/* A creation in doubt must be settled, however long that takes. */
		lock->call.patience = CALL_PATIENT;
		if (made->result.outcome == CALL_OK)
		{
			lock->name = made->read;
			lock->stat = made->result.stat;
			break;
		}

		/* Look whether the creation whose answer was lost has been made; else create again. */
		contenders = persistent_read(lock, PG_INT32_MAX);
		for (int i = 0; i < contenders.n && lock->name == NULL; i++)
		{
			const ContenderNode *node = &contenders.nodes[i];

			if (strncmp(node->name, prefix, strlen(prefix)) != 0 || strcmp(node->data, data) != 0)
				continue;
			lock->name = node->name;
			lock->stat = node->answer.stat;
		}
	}

	/* Look once more whether somebody is in the way, and whether the node is still ours. */
	path = psprintf("%s/%s", lock->path, lock->name);
	until = zklock_now_ms() + KEPT_PATIENCE_MS;
	do
	{
		taken = persistent_is_free(lock);
	} while (!taken && zklock_now_ms() < until);
	if (taken)
	{
		look = call_make(&lock->call, (ZkCall){.kind = ZK_EXISTS, .path = path}, CALL_AS_KNOWN);
		taken = look->result.outcome == CALL_OK && look->result.stat.czxid == lock->stat.czxid;
	}

	/* A later cancellation would find a lock whose token nobody knows. */
	if (taken)
		interrupt_check_client();
	else
		(void) call_delete_node(&lock->call, path, &lock->stat);
	call_slot_settle_node(NODE_STAYS);
	return taken;
}

/* The functions that lock; returns the token, or NULL. */
static Datum
lock_persistently(FunctionCallInfo fcinfo, LockMode mode)
{
	Persistent	  lock = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY)};
	volatile bool taken = false;

	lock.request = (RecipeRequest){.mode = mode, .dialect = dialect_of_path(lock.path)};
	request_refuse_election(lock.path);
	call_tell(&lock.call, psprintf("while locking \"%s\" persistently", display_utf8(lock.path)),
			  "; its node may exist, as zk_contenders() shows");
	PG_TRY();
	{
		taken = persistent_take(&lock);
	}
	PG_CATCH();
	{
		call_slot_settle_node(NODE_GOES);
		PG_RE_THROW();
	}
	PG_END_TRY();
	error_context_stack = lock.call.context.previous;
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
SQL_FUNCTION(zk_lock_persistent, lock_persistently, LOCK_MODE_EXCLUSIVE);

/*
 * zk_lock_persistent_shared(path text) returns bigint
 *
 * The same for a shared lock, in whose way are exclusive ones alone.
 */
SQL_FUNCTION(zk_lock_persistent_shared, lock_persistently, LOCK_MODE_SHARED);

/*
 * zk_unlock_persistent(path text, token bigint) returns boolean
 *
 * Releases a persistent lock.  Returns false, with a warning, if there is none of that token.
 */
Datum
zk_unlock_persistent(PG_FUNCTION_ARGS)
{
	Persistent lock = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY)};
	Contenders contenders;
	int64	   token;
	bool	   unlocked = false;

	argument_refuse_null(fcinfo, 1, "token");
	token = PG_GETARG_INT64(1);
	call_tell(&lock.call,
			  psprintf("while unlocking persistent lock \"%s\"", display_utf8(lock.path)),
			  ", which may have been done");
	contenders = persistent_read(&lock, PG_INT32_MAX);
	for (int i = 0; i < contenders.n; i++)
	{
		const ContenderNode *node = &contenders.nodes[i];
		const NodeStat		*stat = &node->answer.stat;

		/* The node must be persistent. */
		if (stat->czxid == 0 || stat->ephemeral_owner != 0 || token_of_grant(stat->czxid, 1) != token)
			continue;
		unlocked = call_delete_node(&lock.call, psprintf("%s/%s", lock.path, node->name), stat);
		break;
	}
	error_context_stack = lock.call.context.previous;
	if (!unlocked)
		ereport(WARNING, (errmsg("there is no persistent lock \"%s\" with fencing token " INT64_FORMAT,
								 display_path(lock.path), token)));
	PG_RETURN_BOOL(unlocked);
}

/* ------------------------------------------------------------------------
 * PostgreSQL's advisory lock functions, over all servers: the extension zklock_advisory
 *
 * They have the names, arguments and results of PostgreSQL's, in a schema of their own, so
 * that a program that finds this before pg_catalog in its search_path locks over all servers
 * without being changed.
 *
 * A key is the path of its number, or of its two numbers with a comma between them, below
 * zklock.advisory_path; so the two kinds never meet, as in PostgreSQL.  The lock is like any
 * other on the path.
 *
 * The setting is checked with each path.  A value that is not valid must be an error at each
 * lock: PostgreSQL would ignore it where a session begins, and the lock would be elsewhere.
 * ------------------------------------------------------------------------
 */

/*
 * Returns the beginning of the paths of this database's keys, which is a path and a slash, in
 * the server's encoding.
 */
static char *
keys_prefix(void)
{
	if (zklock_advisory_path[0] != '\0')
		return psprintf("%s/", zklock_advisory_path);
	return psprintf("/advisory/%s/", get_database_name(MyDatabaseId));
}

/* Checks the path of the key in the arguments, (bigint) or (integer, integer). */
static char *
key_argument(FunctionCallInfo fcinfo, PathRule rule)
{
	char *path;

	argument_require_holder();
	path = PG_NARGS() == 1
			   ? psprintf("%s" INT64_FORMAT, keys_prefix(), PG_GETARG_INT64(0))
			   : psprintf("%s%d,%d", keys_prefix(), PG_GETARG_INT32(0), PG_GETARG_INT32(1));
	return argument_to_path(path, rule);
}

/*
 * Returns true if a hold is a lock on a path that a key can have, below the prefix in UTF-8.
 */
static bool
is_of_key(const Hold *hold, const void *prefix)
{
	size_t len = strlen(prefix);

	return hold->kind == REQUEST_LOCK && strncmp(hold->path, prefix, len) == 0 &&
		   hold->path[len + strspn(hold->path + len, "-,0123456789")] == '\0';
}

static bool						hooked = false;
static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/*
 * RESET ALL loses a search_path that the session has set itself, and other resets a role that
 * may use the schema.  A pool that then calls pg_advisory_unlock_all() gets PostgreSQL's, and
 * the next client would have the keys of the one before.  So the command fails, which undoes it.
 */
static void
utility_hook_of_keys(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
					 ProcessUtilityContext context, ParamListInfo params,
					 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	const VariableSetStmt *set = (const VariableSetStmt *) pstmt->utilityStmt;
	bool				   resets =
		IsA(set, VariableSetStmt) &&
		(set->kind == VAR_RESET_ALL || set->kind == VAR_RESET || set->kind == VAR_SET_DEFAULT);
	bool  holds_key = false;
	List *name = NIL;
	Oid	  found = InvalidOid;

	if (resets)
	{
		char *prefix = keys_prefix();

		prefix = pg_server_to_any(prefix, strlen(prefix), PG_UTF8);
		for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
			holds_key |= hold_is_acquired_at(hold, LOCK_SCOPE_SESSION) && is_of_key(hold, prefix);
	}
	if (holds_key)
	{
		/* What a program calls that names no schema */
		name = list_make1(makeString("pg_advisory_unlock_all"));
		found = LookupFuncName(name, 0, NULL, true);
	}
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (holds_key && LookupFuncName(name, 0, NULL, true) != found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot reset \"%s\" while the session holds advisory locks over all servers",
						set->kind == VAR_RESET_ALL ? "search_path" : set->name),
				 errdetail("Then pg_advisory_unlock_all() would be PostgreSQL's own, which does not release them."),
				 errhint("Call pg_advisory_unlock_all() first, or use DISCARD ALL, or set \"search_path\" with ALTER ROLE.")));
}

/*
 * Acquires the lock of a key.  The SQL functions that wait return void, so they must not return
 * without the lock.
 */
static Datum
acquire_key(FunctionCallInfo fcinfo, LockMode mode, LockScope scope, int64 timeout_ms)
{
	LockTarget target = {.path = key_argument(fcinfo, ALLOWED_PATHS_ONLY), .mode = mode};
	LockSet	   set = {.targets = &target, .n = 1};
	bool	   acquired;

	refuse_session_level(fcinfo, scope);

	/* A session that holds no key needs no hook. */
	if (!hooked)
	{
		prev_ProcessUtility_hook = ProcessUtility_hook;
		ProcessUtility_hook = utility_hook_of_keys;
		hooked = true;
	}
	acquired = lock_acquire(set, scope, timeout_ms);
	if (!acquired && timeout_ms != LOCK_NO_WAIT)
		elog(ERROR, "advisory lock has been waited for and not been acquired");
	PG_RETURN_BOOL(acquired);
}

/* Each serves both signatures of an SQL function. */
SQL_FUNCTION(zk_advisory_lock, acquire_key, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION, LOCK_WAIT_FOREVER);
SQL_FUNCTION(zk_advisory_lock_shared, acquire_key, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION,
			 LOCK_WAIT_FOREVER);
SQL_FUNCTION(zk_advisory_xact_lock, acquire_key, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION,
			 LOCK_WAIT_FOREVER);
SQL_FUNCTION(zk_advisory_xact_lock_shared, acquire_key, LOCK_MODE_SHARED,
			 LOCK_SCOPE_TRANSACTION, LOCK_WAIT_FOREVER);

SQL_FUNCTION(zk_try_advisory_lock, acquire_key, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION, LOCK_NO_WAIT);
SQL_FUNCTION(zk_try_advisory_lock_shared, acquire_key, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION,
			 LOCK_NO_WAIT);
SQL_FUNCTION(zk_try_advisory_xact_lock, acquire_key, LOCK_MODE_EXCLUSIVE,
			 LOCK_SCOPE_TRANSACTION, LOCK_NO_WAIT);
SQL_FUNCTION(zk_try_advisory_xact_lock_shared, acquire_key, LOCK_MODE_SHARED,
			 LOCK_SCOPE_TRANSACTION, LOCK_NO_WAIT);

/* The warning is PostgreSQL's. */
static Datum
release_key(FunctionCallInfo fcinfo, LockMode mode)
{
	LockTarget	target = {.path = key_argument(fcinfo, ANY_PATH), .mode = mode};
	LockSet		set = {.targets = &target, .n = 1};
	const Hold *hold = hold_of_lock(target.path, mode);

	if (hold == NULL || hold->acquired[mode][LOCK_SCOPE_SESSION] == 0)
	{
		ereport(WARNING, (errmsg("you don't own a lock of type %s",
								 mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock")));
		PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(lock_release(set));
}

SQL_FUNCTION(zk_advisory_unlock, release_key, LOCK_MODE_EXCLUSIVE);
SQL_FUNCTION(zk_advisory_unlock_shared, release_key, LOCK_MODE_SHARED);

/* pg_advisory_unlock_all() returns void: undoes all session-level acquisitions of keys. */
Datum
zk_advisory_unlock_all(PG_FUNCTION_ARGS)
{
	char *prefix;

	argument_require_holder();
	prefix = keys_prefix();
	lock_release_those(is_of_key, pg_server_to_any(prefix, strlen(prefix), PG_UTF8));
	PG_RETURN_VOID();
}
