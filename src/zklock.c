/*
 * zklock.c
 *		Entry point: settings, shared memory, hooks, the worker.
 *
 * Runs in: the postmaster while it loads shared_preload_libraries, from which all other
 * processes inherit the result.  In a backend that loads the library later, zk_fence()
 * works, and with it "zklock.allowed_paths"; all other functions raise an error that says
 * what is missing.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <limits.h>

#include "backend/guard.h"
#include "backend/lock.h"
#include "compat.h"
#include "fault.h"
#include "postmaster/bgworker.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "zk/zk_client.h"

#define RESTART_SECONDS 1 /* after which the worker is restarted, however it ended */

COMPAT_MODULE_MAGIC("zklock", "1.0");

PGDLLEXPORT void _PG_init(void);

static const struct config_enum_entry acl_options[] = {{"open", ZKLOCK_ACL_OPEN, false},
													   {"creator", ZKLOCK_ACL_CREATOR, false},
													   {NULL, 0, false}};

static const struct config_enum_entry commit_guard_options[] = {{"lease", COMMIT_GUARD_LEASE, false},
																{"quorum", COMMIT_GUARD_QUORUM, false},
																{"off", COMMIT_GUARD_OFF, false},
																{NULL, 0, false}};

static const struct config_enum_entry on_lock_loss_options[] = {{"abort", LOSS_ABORT, false},
																{"cancel", LOSS_CANCEL, false},
																{"terminate", LOSS_TERMINATE, false},
																{NULL, 0, false}};

static const struct config_enum_entry parent_nodes_options[] = {{"container", PARENTS_CONTAINER, false},
																{"persistent", PARENTS_PERSISTENT, false},
																{"existing", PARENTS_EXISTING, false},
																{NULL, 0, false}};

static bool
check_servers(char **newval, void **extra, GucSource source)
{
	const char *fault = strlen(*newval) < ZKLOCK_SERVERS_SIZE ? connect_string_fault(*newval)
															  : "The value is too long.";

	if (fault)
	{
		GUC_check_errdetail("%s", fault);
		GUC_check_errhint("The format is \"host:port,host:port/chroot\".");
	}
	return fault == NULL;
}

/* The description of each setting says how its default is derived. */
static bool
check_number_of_locks(int *newval, void **extra, GucSource source)
{
	if (*newval == 0)
		GUC_check_errdetail("It must be -1, for the default, or positive.");
	return *newval != 0;
}

#ifdef ZKLOCK_FAULTS
/* Logs that the worker has new faults; tests wait for that. */
static void
report_faults(const char *newval, void *extra)
{
	if (MyBackendType == B_BG_WORKER)
		ereport(LOG, (errmsg("faults are now \"%s\"", newval)));
}
#endif

static void
define_settings(void)
{
	DefineCustomEnumVariable("zklock.acl", "Sets who may access the nodes zklock creates.",
							 "\"open\" is everybody; \"creator\" is those with the credentials in zklock.auth_file.",
							 &zklock_acl, ZKLOCK_ACL_OPEN, acl_options, PGC_SIGHUP, 0, NULL,
							 NULL, NULL);
	DefineCustomStringVariable("zklock.advisory_path",
							   "Sets the path below which the keys of advisory locks are, for extension zklock_advisory.",
							   "If empty, it is \"/advisory/\" and the name of the database.",
							   &zklock_advisory_path, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.auth_file",
							   "Sets the file with the credentials shown to ZooKeeper.",
							   "It contains \"scheme:credentials\" and must be readable by its owner only.",
							   &zklock_auth_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL,
							   NULL, NULL);
	DefineCustomEnumVariable("zklock.commit_guard",
							 "Sets how a transaction makes sure at commit that it still holds its locks.",
							 "\"lease\" asks the lease, \"quorum\" also ZooKeeper, \"off\" nobody.",
							 &zklock_commit_guard, COMMIT_GUARD_LEASE, commit_guard_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.elections", "Sets the elections at which this server stands.",
							   "The format is \"/path, /path=names\"; names are curator_latch, zookeeper or lock.",
							   &zklock_elections, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   path_settings_check_elections, NULL, NULL);
	DefineCustomIntVariable("zklock.keep_idle",
							"Sets how long the node of a lock that this server takes again and again is kept after its release.",
							"A contender of another server or client has the node deleted at once. 0 means that none is kept.",
							&zklock_keep_idle, 100, 0, 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_hold_time",
							"Sets the time for which a lock or permit can be held, from its grant on.",
							"One that is held for longer counts as lost, and others get it. 0 means no limit.",
							&zklock_max_hold_time, 0, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_kept_locks",
							"Sets the maximum number of locks whose nodes are kept after their release.",
							"The one that has been kept for longest gives way to another. 0 means that none is kept.",
							&zklock_max_kept_locks, 1024, 0, KEPT_LOCKS_LIMIT, PGC_POSTMASTER,
							0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_locks",
							"Sets the maximum number of locks held and waited for at once.",
							"-1 means 64 for each of max_connections, at most 16384.",
							&zklock_max_locks, -1, -1, ZKLOCK_LOCKS_LIMIT, PGC_POSTMASTER, 0,
							check_number_of_locks, NULL, NULL);
	DefineCustomIntVariable("zklock.max_locks_per_session",
							"Sets the maximum number of locks one session holds and waits for at once.",
							"-1 means a quarter of zklock.max_locks. The bytes of paths are shared out in the same proportion.",
							&zklock_max_locks_per_session, -1, -1, ZKLOCK_LOCKS_LIMIT,
							PGC_SUSET, 0, check_number_of_locks, NULL, NULL);
	DefineCustomEnumVariable("zklock.on_lock_loss", "Sets what happens to a session that loses a lock.",
							 "With \"abort\" its transaction cannot commit; \"cancel\" also cancels its statement, \"terminate\" its connection.",
							 &zklock_on_lock_loss, LOSS_ABORT, on_lock_loss_options,
							 PGC_USERSET, 0, NULL, interrupt_set_policy, NULL);
	DefineCustomEnumVariable("zklock.parent_nodes",
							 "Sets what missing nodes above this session's locks are created as.",
							 "ZooKeeper removes a \"container\" some time after it has become empty; with \"existing\" none are created.",
							 &zklock_parent_nodes, PARENTS_CONTAINER, parent_nodes_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.path_dialects",
							   "Sets whose node names locks have, by their paths.",
							   "The format is \"/path=dialect, /prefix/*=dialect\"; the most specific item counts.",
							   &zklock_path_dialects, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   path_settings_check_dialects, NULL, NULL);
	DefineCustomStringVariable("zklock.server_name",
							   "Sets the name by which other servers see this one in ZooKeeper.",
							   "If empty, cluster_name is used, or else host name and port.",
							   &zklock_server_name, "", PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.servers", "Sets the ZooKeeper servers to connect to.",
							   "The format is \"host:port,host:port/chroot\".", &zklock_servers,
							   "localhost:2181", PGC_SIGHUP, 0, check_servers, NULL, NULL);
	DefineCustomBoolVariable("zklock.session_locks",
							 "Sets whether locks and permits can be held at session level.",
							 "Behind a pool of connections, what one client holds at session level another has.",
							 &zklock_session_locks, true, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Sets the time after which ZooKeeper frees the locks of a server that is gone.",
							"ZooKeeper may negotiate another value; zk_session shows it.",
							&zklock_session_timeout, 10000, 1000, 3600000, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.tick_time", "Sets the tickTime of the ZooKeeper servers.",
							"A longer time is safe and only makes the lease shorter.", &zklock_tick_time,
							2000, 1, 60000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.tls_ca_file",
							   "Sets the file with the authorities that sign the ZooKeeper servers' certificates.",
							   "If it is set, connections use TLS; ZooKeeper's client library must have been built with OpenSSL. Set both of the other two files or neither.",
							   &zklock_tls_ca_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL,
							   NULL, NULL);
	DefineCustomStringVariable("zklock.tls_cert_file",
							   "Sets the file with the certificate shown to ZooKeeper.", NULL,
							   &zklock_tls_cert_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL,
							   NULL, NULL);
	DefineCustomStringVariable("zklock.tls_key_file",
							   "Sets the file with the certificate's private key.",
							   "It must be readable by its owner only, and have no password.",
							   &zklock_tls_key_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL,
							   NULL, NULL);
#ifdef ZKLOCK_FAULTS
	DefineCustomStringVariable("zklock.faults", "Sets which faults happen, for tests.",
							   "A list of names, separated by commas without blanks.", &zklock_faults,
							   "", PGC_SUSET, GUC_NO_SHOW_ALL, NULL, report_faults, NULL);
	ereport(LOG, (errmsg("this zklock was built for tests, with faults that can be switched on"),
				  zklock_faults[0] != '\0' ? errdetail("Faults: %s", zklock_faults) : 0));
#endif
	MarkGUCPrefixReserved("zklock");
}

void
_PG_init(void)
{
	BackgroundWorker worker = {0};

	/* zk_fence() needs this setting even if the library was not loaded with the server. */
	DefineCustomStringVariable("zklock.allowed_paths", "Sets the paths that may be locked.",
							   "A list of paths; \"/prefix/*\" stands for all paths below /prefix.",
							   &zklock_allowed_paths, "/*", PGC_SUSET, GUC_LIST_INPUT,
							   path_settings_check_allowed, NULL, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;

	define_settings();
	zklock_shmem_install_hooks();
	backend_install_hooks();

	/* In pg_upgrade the settings may be those of a server that is to stay what it is. */
	if (IsBinaryUpgrade)
		return;
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = RESTART_SECONDS;
	strlcpy(worker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "zklock_worker_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "zklock worker", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "zklock worker", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
