/*
 * compat.h
 *		The differences between the supported PostgreSQL versions, 13 to 18.
 *
 * Every conditional on PG_VERSION_NUM lives here; the other files use only
 * what this header defines.  Each entry names the first version with the
 * modern form.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "replication/walsender.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#if PG_VERSION_NUM < 130000 || PG_VERSION_NUM >= 190000
#error "zklock supports PostgreSQL 13 to 18"
#endif

/* 18: the module can tell its name and version. */
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#define COMPAT_MODULE_MAGIC(name_, version_) \
	PG_MODULE_MAGIC_EXT(.name = name_, .version = version_)
#else
#define COMPAT_MODULE_MAGIC(name_, version_) PG_MODULE_MAGIC
#endif

/*
 * 16: modules are built with -fvisibility=hidden, and these macros export what
 * the server looks up.  Before, they leave that to the linker, which exports
 * everything; the Makefile hides it there as well.
 */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(name)                                     \
	extern PGDLLEXPORT Datum				  name(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *pg_finfo_##name(void);  \
	const Pg_finfo_record					 *pg_finfo_##name(void)   \
	{                                                                 \
		static const Pg_finfo_record record = {1};                    \
		return &record;                                               \
	}                                                                 \
	extern int no_such_variable
#endif

/* 17: processes are numbered by MyProcNumber, not through MyProc. */
static inline int
compat_my_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/*
 * 15: how many backends there can be is known when shared memory is requested;
 * before, it follows from the same settings.  Processes are numbered below this.
 */
static inline int
compat_max_processes(void)
{
#if PG_VERSION_NUM >= 150000
	return MaxBackends + NUM_AUXILIARY_PROCS;
#else
	return MaxConnections + autovacuum_max_workers + 1 + max_worker_processes +
		   max_wal_senders + NUM_AUXILIARY_PROCS;
#endif
}

/* 17: a WaitEventSet belongs to a resource owner, NULL for the process. */
static inline WaitEventSet *
compat_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* 17: extensions name their wait events; allowed once shared memory is up. */
static inline uint32
compat_wait_event(const char *name, uint32 before_17)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return before_17;
#endif
}

/* 18: a session can have calls logged that do not wait and find a lock taken. */
static inline bool
compat_log_lock_failures(void)
{
#if PG_VERSION_NUM >= 180000
	return log_lock_failures;
#else
	return false;
#endif
}

/* 14: a hash table's string keys are announced as such. */
#if PG_VERSION_NUM >= 140000
#define COMPAT_HASH_STRINGS HASH_STRINGS
#else
#define COMPAT_HASH_STRINGS 0
#endif

/* 15: shared memory is requested from a hook, not from _PG_init(). */
#if PG_VERSION_NUM >= 150000
#define COMPAT_HAVE_SHMEM_REQUEST_HOOK 1
#endif

/* 15: the prefix of an extension's settings is reserved under this name. */
#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#endif

/* 14: predefined roles are called so. */
#if PG_VERSION_NUM >= 140000
#define COMPAT_ROLE_MONITOR ROLE_PG_MONITOR
#else
#define COMPAT_ROLE_MONITOR DEFAULT_ROLE_MONITOR
#endif
/* 15: the privilege to set a parameter can be granted. */
static inline bool
compat_may_set(const char *parameter)
{
#if PG_VERSION_NUM >= 150000
	return pg_parameter_aclcheck(parameter, GetUserId(), ACL_SET) == ACLCHECK_OK;
#else
	return superuser();
#endif
}

/* 16: settings are in a hash table, and can be found by name. */
static inline struct config_generic *
compat_find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, false, ERROR);
#else
	struct config_generic **settings = get_guc_variables();
	int						i = 0;

	while (strcmp(settings[i]->name, name) != 0)
		i++;
	return settings[i];
#endif
}

/* 14: a process's flags are its own; before, they are in an array of their own. */
static inline bool
compat_is_autovacuum(const PGPROC *proc)
{
#if PG_VERSION_NUM >= 140000
	return (proc->statusFlags & PROC_IS_AUTOVACUUM) != 0;
#else
	return (ProcGlobal->allPgXact[proc->pgprocno].vacuumFlags & PROC_IS_AUTOVACUUM) != 0;
#endif
}

/*
 * Tells one wait for a lock from the next of the same process.  14: by when it
 * began, which the process tells, as GetBlockerStatusData() does not fill in
 * LockInstanceData.waitStart; before, by the transaction, in which a process hardly
 * waits twice for the same lock.
 */
static inline uint64
compat_lock_wait_start(const LockInstanceData *waiting)
{
#if PG_VERSION_NUM >= 140000
	PGPROC *proc = BackendPidGetProc(waiting->pid);

	return proc ? pg_atomic_read_u64(&proc->waitStart) : 0;
#else
	return waiting->lxid;
#endif
}

/* 14: ProcessUtility_hook learnt readOnlyTree. */
#if PG_VERSION_NUM >= 140000
#define COMPAT_UTILITY_PARAMS                                                            \
	PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,                      \
		ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv, \
		DestReceiver *dest, QueryCompletion *qc
#define COMPAT_UTILITY_ARGS \
	pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc
#else
#define COMPAT_UTILITY_PARAMS                                                   \
	PlannedStmt *pstmt, const char *queryString, ProcessUtilityContext context, \
		ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc
#define COMPAT_UTILITY_ARGS pstmt, queryString, context, params, queryEnv, dest, qc
#endif

/* 15.1: one call prepares a set-returning function's tuplestore. */
static inline void
compat_init_materialized_srf(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM >= 150001
	InitMaterializedSRF(fcinfo, 0);
#else
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext  old;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) || (rsinfo->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("set-valued function called in context that cannot accept a set")));
	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &rsinfo->setDesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rsinfo->setDesc = BlessTupleDesc(rsinfo->setDesc);
	rsinfo->setResult =
		tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	rsinfo->returnMode = SFRM_Materialize;
	MemoryContextSwitchTo(old);
#endif
}

#endif /* ZKLOCK_COMPAT_H */
