/*
 * request.c
 *		Asking the worker for a lock, and waiting for its answer.
 *
 * The requesting half of a backend: it fills an entry, hands it to the worker,
 * sleeps on its own latch until the worker has decided, and turns a refusal
 * into an error.  What becomes of the entry afterwards is backend.c's.
 *
 * Runs in: backends.  Entries are changed under their spinlocks, along the
 * arrows drawn in shmem.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <unistd.h>

#include "backend/claim.h"
#include "backend/lock_view.h"
#include "backend/path_rules.h"
#include "backend/request.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "fault.h"
#include "mb/pg_wchar.h"
#include "postmaster/postmaster.h"
#include "shared/lease_state.h"
#include "shared/settings.h"
#include "shared/share.h"
#include "storage/lock.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "zk/zk_client.h"

/* How long a call waits for a worker to appear. */
#define WORKER_ABSENT_MS 10000

/* A latch cannot wait longer at once: 24 days. */
#define MAX_SLEEP_MS (INT64CONST(24) * 24 * 60 * 60 * 1000)

/* A path in the server's encoding, as messages need it. */
char *
path_for_display(const char *path)
{
	return pg_any_to_server(path, strlen(path), PG_UTF8);
}

/*
 * Converts a string in the server's encoding.  Where that might fail,
 * non-ASCII characters are left out: this is for humans, and no reason to
 * refuse a lock.
 */
static char *
to_utf8(const char *value)
{
	int	  encoding = GetDatabaseEncoding();
	char *utf8;

	if (encoding == PG_LATIN1 ||
		(encoding == PG_UTF8 && pg_verify_mbstr(PG_UTF8, value, strlen(value), true)))
		return pg_server_to_any(value, strlen(value), PG_UTF8);
	utf8 = pstrdup(value);
	for (char *c = utf8; *c != '\0'; c++)
	{
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	}
	return utf8;
}

static void
append_member(StringInfo json, const char *name, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	appendStringInfo(json, "%s\"%s\":", json->len > 1 ? "," : "", name);
	escape_json(json, to_utf8(value));
}

static void
append_number(StringInfo json, const char *name, int value)
{
	appendStringInfo(json, "%s\"%s\":%d", json->len > 1 ? "," : "", name, value);
}

/* Adds words to one of Hive's fields, in which colons are not allowed. */
static void
append_words(StringInfo data, const char *words)
{
	for (const char *c = words ? to_utf8(words) : ""; *c != '\0'; c++)
	{
		if (*c != ':')
			appendStringInfoChar(data, *c);
	}
}

/*
 * Who we are, in the form that Hive reads and shows to its users: query id,
 * time in ms, whether somebody asked for the lock or it came with a query, the
 * query, and the client, parted by colons.
 */
static char *
hive_data(const char *server, bool transaction_level)
{
	StringInfoData data;
	int64		   now = GetCurrentTimestamp() / 1000 +
				(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000);

	initStringInfo(&data);
	appendStringInfo(&data, "zklock-%d:" INT64_FORMAT ":%s:database ", MyProcPid, now,
					 transaction_level ? "IMPLICIT" : "EXPLICIT");
	append_words(&data, get_database_name(MyDatabaseId));
	appendStringInfoString(&data, " user ");
	append_words(&data, GetUserNameFromId(GetUserId(), true));
	appendStringInfoString(&data, " application ");
	append_words(&data, application_name);
	appendStringInfoChar(&data, ':');
	append_words(&data, server);

	if (data.len >= ZKLOCK_NODE_DATA_SIZE)
	{
		resetStringInfo(&data);
		appendStringInfo(&data, "zklock-%d:" INT64_FORMAT ":EXPLICIT:zklock:", MyProcPid, now);
	}
	return data.data;
}

/* What must be told in any case: which process this is, and where. */
static void
append_process(StringInfo json, const char *host)
{
	append_member(json, "host", host);
	append_number(json, "port", PostPortNumber);
	append_number(json, "pid", MyProcPid);
}

/*
 * Who we are, for the node: JSON that tells a human, without secrets.  Host
 * and port tell servers apart that have the same name, like a standby made of
 * a copy of its primary.  Hive's nodes have a form of their own.
 */
static char *
node_data(NodeDialect dialect, bool transaction_level)
{
	StringInfoData json;
	StringInfoData server;
	char		   started[MAXDATELEN + 1];
	char		   host[100]; /* as long as always has room in the data */

	if (gethostname(host, sizeof(host)) != 0)
		host[0] = '\0';
	initStringInfo(&server);
	if (zklock_server_name[0] != '\0')
		appendStringInfoString(&server, zklock_server_name);
	else if (cluster_name[0] != '\0')
		appendStringInfoString(&server, cluster_name);
	else if (host[0] != '\0')
		appendStringInfo(&server, "%s:%d", host, PostPortNumber);

	if (node_data_form(dialect) == NODE_DATA_HIVE)
		return hive_data(server.data, transaction_level);

	JsonEncodeDateTime(started, TimestampTzGetDatum(GetCurrentTimestamp()), TIMESTAMPTZOID, NULL);

	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	append_member(&json, "server", server.data);
	append_process(&json, host);
	append_member(&json, "started", started);
	append_member(&json, "database", get_database_name(MyDatabaseId));
	append_member(&json, "user", GetUserNameFromId(GetUserId(), true));
	append_member(&json, "application_name", application_name);
	appendStringInfoChar(&json, '}');

	if (json.len >= ZKLOCK_NODE_DATA_SIZE)
	{
		resetStringInfo(&json);
		appendStringInfoChar(&json, '{');
		append_process(&json, host);
		appendStringInfoChar(&json, '}');
	}
	return json.data;
}

/*
 * Claims an entry and fills it with a request, which the worker sees once the
 * entry is marked dirty.  Returns its index; raises an error if there is none
 * left, or none for this session.
 */
int
request_contender(const ContenderRequest *request)
{
	NodeDialect dialect =
		request->kind == CONTENDER_LOCK ? path_rules_dialect(request->path) : DIALECT_CURATOR;
	char *data = node_data(dialect, request->transaction_level);
	int	  share = share_of_entries(zklock_max_locks_per_session, zklock_shared->max_entries);
	bool  may_use_reserve = superuser();
	int	  index = claim_entry(share, may_use_reserve);
	ContenderEntry *entry = entry_at(index);

	/* Nobody looks at these while the entry is FREE, and they are long. */
	strlcpy(entry->path, request->path, sizeof(entry->path));
	strlcpy(entry->data, data, sizeof(entry->data));

	SpinLockAcquire(&entry->mutex);
	entry->proc_number = compat_my_proc_number();
	entry->pid = MyProcPid;
	entry->database = MyDatabaseId;
	entry->role = GetSessionUserId();
	entry->kind = request->kind;
	entry->recipe = request->kind == CONTENDER_PERMIT ? RECIPE_PERMIT : RECIPE_LOCK;
	entry->mode = request->mode;
	entry->dialect = dialect;
	entry->parent_nodes = zklock_parent_nodes;
	entry->share = share;
	entry->may_use_reserve = may_use_reserve;
	entry->permits = request->permits;
	entry->transaction_level = request->transaction_level;
	entry->nowait = request->nowait;
	entry->ticket = pg_atomic_fetch_add_u64(&zklock_shared->next_ticket, 1);
	entry->requested_at = request->since;
	entry->session_count = 0;
	entry->transaction_count = 0;
	entry->shared_session_count = 0;
	entry->shared_transaction_count = 0;
	entry->downgrading = false;
	entry->notify_release = false;
	entry->on_loss = request->kind == CONTENDER_TURN ? LOSS_ABORT : zklock_on_lock_loss;
	entry->interrupt = 0;
	entry->run_id = 0;
	entry->node[0] = '\0';
	entry->czxid = 0;
	entry->run_grants = 0;
	entry->others_permits = 0;
	entry->token = 0;
	entry->granted_at = 0;
	entry->blocked_by_run = 0;
	entry->blocked_by_node[0] = '\0';
	entry->failure = FAILURE_NONE;
	entry->error_code = 0;
	entry->state = CONTENDER_REQUESTED;
	SpinLockRelease(&entry->mutex);
	pfree(data);
	return index;
}

/* The same for a lock. */
int
request_lock(const char *path, LockMode mode, bool transaction_level, bool nowait)
{
	ContenderRequest request = {.kind = CONTENDER_LOCK,
								.path = path,
								.mode = mode,
								.transaction_level = transaction_level,
								.nowait = nowait,
								.since = GetCurrentTimestamp()};

	return request_contender(&request);
}

/* Why a lost lock was lost, for a DETAIL. */
const char *
loss_detail(int index)
{
	ContenderEntry *entry = entry_at(index);
	LossReason		reason;

	SpinLockAcquire(&entry->mutex);
	reason = entry->state == CONTENDER_LOST ? entry->loss : LOSS_UNPROVED;
	SpinLockRelease(&entry->mutex);
	switch (reason)
	{
		case LOSS_EXPIRED:
			return _("The ZooKeeper session ended.");
		case LOSS_DELETED:
			return _("The lock's node was deleted by someone else.");
		case LOSS_UNPROVED:
			break;
	}
	return _("The ZooKeeper session was not proved to be alive for a session timeout.");
}

/* Raises an error for a lost lock. */
void
report_lost(int index, const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock on ZooKeeper path \"%s\" was lost", path_for_display(path)),
			 errdetail_internal("%s", loss_detail(index)),
			 errhint("Others may have held the lock meanwhile. Release it and retry the work.")));
}

/* Raises the error for who cannot wait until ZooKeeper can be reached. */
static void
report_unreachable(const char *path)
{
	SessionInfo session;
	int			worker_pid;
	bool		unproved;
	bool		no_lease;

	zklock_get_session(&session, &worker_pid);
	if (worker_pid == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errhint("See the server log; you might need to increase \"max_worker_processes\".")));
	unproved = session.state == SESSION_CONNECTED && lease_state() != LEASE_HOLDS;
	no_lease = unproved && session.shortest_timeout < 2 * zklock_tick_time;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("could not lock ZooKeeper path \"%s\": ZooKeeper cannot be reached",
					path_for_display(path)),
			 session.obstacle[0] != '\0'
				 ? errdetail_internal("%s", utf8_for_display(session.obstacle, false))
			 : unproved ? errdetail("The connection to ZooKeeper server %s stands, but the session is not proved to be alive.",
									session.server)
						: 0,
			 no_lease	? errhint("Set \"zklock.tick_time\" to the tickTime of the ZooKeeper servers; if it is that, raise \"zklock.session_timeout\" or their maxSessionTimeout.")
			 : unproved ? errhint("ZooKeeper may have no quorum or be slow, or the zklock worker may have been stopped.")
						: 0));
}

/*
 * Raises the error for a refused request, of a session with that share of the
 * entries.
 */
static void
report_failure(const char *path, ContenderFailure failure, int code, int share)
{
	char *name = path_for_display(path);

	switch (failure)
	{
		case FAILURE_UNREACHABLE:
			report_unreachable(path);
			break;
		case FAILURE_NO_CHILDREN:
			ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s. The path, or one above it, is an ephemeral node, which cannot have children.",
									  "ZNOCHILDRENFOREPHEMERALS")));
			break;
		case FAILURE_NO_CHROOT:
			ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s. The chroot in \"zklock.servers\" does not exist.",
									  "ZNONODE"),
							errhint("Create the chroot node.")));
			break;
		case FAILURE_NO_PATH:
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							errmsg("cannot lock ZooKeeper path \"%s\": it does not exist", name),
							errdetail("ZooKeeper refused: %s. Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\".",
									  "ZNONODE"),
							errhint("Ask an administrator to create the path in ZooKeeper.")));
			break;
		case FAILURE_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many levels of it are missing", name),
					 errdetail("No more than 16 nodes are created for a path: its own and those above it."),
					 errhint("Use a shorter path, or create the upper levels first.")));
			break;
		case FAILURE_HARMFUL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot lock ZooKeeper path \"%s\": it lies below a lock or semaphore in use",
							name),
					 errdetail("Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists."),
					 errhint("Lock a path that is not below another one.")));
			break;
		case FAILURE_SESSION_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many paths are locked", name),
					 errdetail("The paths of the nodes, or of the watches, of this server's ZooKeeper session must not exceed %d bytes, of which %d are reserved for superusers.",
							   PACKET_BUDGET, PACKET_RESERVE),
					 errhint("Lock fewer paths at a time, or use shorter ones.")));
			break;
		case FAILURE_SHARE_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot lock ZooKeeper path \"%s\": too many paths are locked in this session",
							name),
					 errdetail("The nodes for its locks must not exceed %zu bytes, its share of the %d that all sessions of this server have. Each takes the length of its path, that of the chroot, and %d bytes.",
							   share_of_bytes(share, zklock_shared->max_entries),
							   PACKET_BUDGET, SHARE_NODE_BYTES),
					 errhint("Lock fewer paths at a time, use shorter ones, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
			break;
		case FAILURE_WORN_OUT:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot lock ZooKeeper path \"%s\": its sequence numbers are used up", name),
					 errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
					 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));
			break;
		case FAILURE_OTHER_RECIPE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("ZooKeeper path \"%s\" is in use for something else", name),
					 errdetail("The nodes of a semaphore and those of a lock cannot have the same path.")));
			break;
		default:
			ereport(ERROR, (errcode(zk_error_is_permission(code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
																 : ERRCODE_SYSTEM_ERROR),
							errmsg("cannot lock ZooKeeper path \"%s\"", name),
							errdetail("ZooKeeper refused: %s.", zk_error_name(code)),
							zk_error_is_permission(code)
								? errhint("Check the ACL of the path and the settings \"zklock.auth_file\" and \"zklock.acl\".")
								: 0));
	}
}

/*
 * Why nothing can be had from ZooKeeper at the moment, without a full stop, or
 * NULL if there is no reason.  Does not raise errors.
 */
const char *
describe_outage(void)
{
	SessionInfo session;
	int			worker_pid;

	zklock_get_session(&session, &worker_pid);
	if (worker_pid == 0)
		return _("ZooKeeper cannot be reached, since the zklock worker is not running");
	if (session.state == SESSION_CONNECTED && lease_state() == LEASE_HOLDS)
		return NULL;
	if (session.state == SESSION_CONNECTED)
		return psprintf(_("ZooKeeper server %s is connected, but the session is not proved to be alive"),
						session.server);
	if (session.last_error[0] == '\0')
		return _("ZooKeeper cannot be reached");
	return psprintf(_("ZooKeeper cannot be reached; the last error, at %s, was: %s"),
					timestamptz_to_str(session.last_error_at),
					utf8_for_display(session.last_error, false));
}

/*
 * With log_lock_waits, tells of a wait that lasts, as for other locks.  "index"
 * is the entry that waits, to tell for whom, or negative.
 */
static void
log_wait(const Wait *wait, const char *what, int index)
{
	StringInfoData detail;

	initStringInfo(&detail);
	if (index >= 0)
	{
		ContenderEntry *entry = entry_at(index);
		const char	   *outage = describe_outage();
		LockView		view;
		uint64			run_id;
		int				pid;
		const char	   *node;

		SpinLockAcquire(&entry->mutex);
		run_id = entry->run_id;
		SpinLockRelease(&entry->mutex);
		lock_view_take(&view);
		lock_view_blocker(&view, run_id, MyProcPid, &pid, &node);
		if (pid != 0)
			appendStringInfo(&detail, _("Blocked by process %d."), pid);
		else if (node)
			appendStringInfo(&detail, _("Blocked by ZooKeeper node \"%s\"."),
							 utf8_for_display(node, false));
		if (outage)
			appendStringInfo(&detail, "%s%s.", detail.len > 0 ? " " : "", outage);
		lock_view_drop(&view);
	}
	ereport(LOG, (errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld ms", MyProcPid,
						 what, wait->what, path_for_display(wait->path),
						 (long) (zklock_now_ms() - wait->start)),
				  detail.len > 0 ? errdetail_log("%s", detail.data) : 0));
	pfree(detail.data);
}

/*
 * What an error says that ends a wait, such as a timeout.  The path's bytes may
 * be escaped: converting them could fail, which is not allowed here.
 */
static void
wait_context(void *arg)
{
	const Wait *wait = arg;
	const char *path = utf8_for_display(wait->path, false);
	const char *outage = describe_outage();

	if (outage)
		errcontext("while waiting for %s on ZooKeeper path \"%s\": %s", wait->what, path, outage);
	else
		errcontext("while waiting for %s on ZooKeeper path \"%s\"", wait->what, path);
}

/* Only errors from outside need this context: all others name the path. */
static void
check_for_interrupts(Wait *wait)
{
	ErrorContextCallback context = {.callback = wait_context, .arg = wait, .previous = error_context_stack};

	error_context_stack = &context;
	CHECK_FOR_INTERRUPTS();
	error_context_stack = context.previous;
}

/* Begins a wait, which may be for several entries one after the other. */
void
wait_begin(Wait *wait, const char *path, const char *what, int64 timeout_ms)
{
	wait->path = path;
	wait->what = what;
	wait->timeout_ms = timeout_ms;
	wait->start = zklock_now_ms();
	wait->logged = false;
}

/* What was waited for has been had. */
void
wait_end(const Wait *wait)
{
	if (wait->logged)
		log_wait(wait, "acquired", -1);
}

/*
 * Waits until the worker has decided about a lock.
 *
 * Returns true if it is granted, false if the timeout has passed; then the
 * caller releases the entry.  Anything else is an error.
 */
bool
wait_for_grant(int index, const char *path, LockMode mode, int64 timeout_ms)
{
	Wait wait;

	wait_begin(&wait, path, mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock", timeout_ms);
	if (!wait_for_entry(&wait, index))
		return false;
	wait_end(&wait);
	return true;
}

/* The same for an entry of any kind, as part of a wait. */
bool
wait_for_entry(Wait *wait, int index)
{
	ContenderEntry *entry = entry_at(index);
	const char	   *path = wait->path;
	int64			timeout_ms = wait->timeout_ms;
	int64			absent_since = -1;

	if (ZKLOCK_FAULT("fail-asked"))
		elog(ERROR, "fault: fail-asked");
	for (;;)
	{
		ContenderState	 state;
		ContenderFailure failure;
		int				 code;
		int				 worker_pid;
		int64			 waited;
		int64			 sleep = MAX_SLEEP_MS;
		bool			 lease_holds;

		ZKLOCK_SLOW("slow-backends", 120, 25);
		ResetLatch(MyLatch);

		/*
		 * What was granted under a lease that has lapsed may be gone by now.
		 * In this order: a lease that was seen before is the lock's own.
		 */
		lease_holds = lease_state() == LEASE_HOLDS;
		SpinLockAcquire(&entry->mutex);
		state = entry->state;
		failure = entry->failure;
		code = entry->error_code;
		SpinLockRelease(&entry->mutex);
		waited = zklock_now_ms() - wait->start;

		if (state == CONTENDER_GRANTED && entry->kind != CONTENDER_TURN && ZKLOCK_FAULT("fail-granted"))
			elog(ERROR, "fault: fail-granted");
		if (state == CONTENDER_GRANTED && lease_holds)
			return true;
		if (state == CONTENDER_LOST && entry->kind == CONTENDER_TURN)
			return true;
		if (state == CONTENDER_LOST)
			report_lost(index, path);
		if (state == CONTENDER_FAILED)
		{
			if (failure == FAILURE_BUSY)
				return false;
			report_failure(path, failure, code, entry->share);
		}
		check_for_interrupts(wait);

		/* A call that does not wait is answered by the worker, if it can. */
		if (timeout_ms == LOCK_NO_WAIT && !lease_holds)
			report_unreachable(path);
		if (timeout_ms > 0)
		{
			if (waited >= timeout_ms)
			{
				if (!zklock_connected())
					report_unreachable(path);
				return false;
			}
			sleep = Min(sleep, timeout_ms - waited);
		}

		zklock_get_session(NULL, &worker_pid);
		if (worker_pid != 0)
			absent_since = -1;
		else
		{
			if (absent_since < 0)
				absent_since = waited;
			if (waited - absent_since >= WORKER_ABSENT_MS)
				report_unreachable(path);
			sleep = Min(sleep, 1000);
		}

		if (state == CONTENDER_GRANTED || timeout_ms == LOCK_NO_WAIT)
			sleep = Min(sleep, 1000);

		if (log_lock_waits && !wait->logged)
		{
			if (waited >= DeadlockTimeout)
			{
				log_wait(wait, "still waiting for", index);
				wait->logged = true;
			}
			else
				sleep = Min(sleep, DeadlockTimeout - waited);
		}

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) sleep, PG_WAIT_LOCK | LOCKTAG_USERLOCK);
	}
}
