/*
 * compat.h
 *		The differences between the supported PostgreSQL versions, 15 to 19.
 *
 * Every conditional on PG_VERSION_NUM lives here; the other files use only
 * what this header defines.  Each entry names the first version with the
 * modern form.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/origin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150001 || PG_VERSION_NUM >= 200000
#error "zklock supports PostgreSQL 15.1 to 19"
#endif

/* 18: a module has a name and a version. */
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#define COMPAT_MODULE_MAGIC(name_, version_) \
	PG_MODULE_MAGIC_EXT(.name = name_, .version = version_)
#else
#define COMPAT_MODULE_MAGIC(name_, version_) PG_MODULE_MAGIC
#endif

/* 18: PostgreSQL's attribute of a function that does not return */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

/* 19: how one case of a switch goes on into the next */
#if PG_VERSION_NUM < 190000
#define pg_fallthrough __attribute__((fallthrough))
#endif

/* 19: get_database_name() has moved. */
#if PG_VERSION_NUM >= 190000
#include "utils/lsyscache.h"
#else
#include "commands/dbcommands.h"
#endif

/*
 * 16: PG_FUNCTION_INFO_V1 exports the function, too.  Before 16, PGDLLEXPORT exports
 * nothing by itself, and the Makefile defines it.
 */
#define COMPAT_FUNCTION_INFO_V1(name)                \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(name)

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

/* 17: extensions name their wait events, once shared memory is up. */
static inline uint32
compat_wait_event(const char *name, uint32 before_17)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return before_17;
#endif
}

/* 18: a session can log calls that do not wait and find a lock taken. */
static inline bool
compat_log_lock_failures(void)
{
#if PG_VERSION_NUM >= 180000
	return log_lock_failures;
#else
	return false;
#endif
}

/* 19: what a transaction that is replayed comes from is in a struct. */
static inline bool
compat_replays_from_origin(void)
{
#if PG_VERSION_NUM >= 190000
	return replorigin_xact_state.origin != InvalidReplOriginId;
#else
	return replorigin_session_origin != InvalidRepOriginId;
#endif
}

#endif /* ZKLOCK_COMPAT_H */
