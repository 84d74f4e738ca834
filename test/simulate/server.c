/*
 * server.c
 *		The seam between the extension and PostgreSQL, in each copy of the extension.
 *
 * The extension's objects are linked with this file into a library, which is loaded once
 * for each database server.  palloc, ereport, dynahash and the like are the real ones, of
 * the postgres program that the simulation runs in.  What a process asks of the system, of
 * shared memory or of others comes here instead, by the linker's --wrap, or is asked of
 * the world: the clock, the client library (main.c, library.c).
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include "server.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "fault.h"
#include "queue/engine.h"
#include "shared/search.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

#define EVENT_FD 1000

extern PGDLLEXPORT const SimServerApi sim_server_api;
extern void							  zklock_worker_main(Datum arg);

/* ------------------------------------------------------------------------
 * What is not needed: nobody runs between a lock's acquisition and its release, there are no
 * signals, no files and no processes but the world's, and the end of one is not the world's
 * ------------------------------------------------------------------------
 */

/* clang-format off: the Makefile reads the names */
#define NOTHING(name, ...)           \
	void __wrap_##name(__VA_ARGS__); \
	void __wrap_##name(__VA_ARGS__)  \
	{                                \
	}
#define ALWAYS(value, type, name, ...) \
	type __wrap_##name(__VA_ARGS__);   \
	type __wrap_##name(__VA_ARGS__)    \
	{                                  \
		return value;                  \
	}

NOTHING(LWLockRelease, LWLock *lock)
NOTHING(LWLockReleaseAll, void)
NOTHING(dsa_pin, dsa_area *area)
NOTHING(dsa_pin_mapping, dsa_area *area)
NOTHING(dsa_detach, dsa_area *area)
NOTHING(dsa_set_size_limit, dsa_area *area, Size limit)
NOTHING(BackgroundWorkerInitializeConnection, const char *database, const char *user, uint32 flags)
NOTHING(BackgroundWorkerUnblockSignals, void)
NOTHING(on_proc_exit, pg_on_exit_callback call, Datum arg)
NOTHING(ProcessConfigFile, GucContext context)
NOTHING(ConditionVariableInit, ConditionVariable *cv)
NOTHING(ConditionVariableBroadcast, ConditionVariable *cv)
ALWAYS(true, bool, LWLockAcquire, LWLock *lock, LWLockMode mode)
ALWAYS(place, dsa_area *, dsa_create_in_place, void *place, Size size, int tranche, dsm_segment *segment)
ALWAYS(place, dsa_area *, dsa_attach_in_place, void *place, dsm_segment *segment)
ALWAYS(0, int, madvise, void *addr, size_t length, int advice)
ALWAYS(NULL, WaitEventSet *, CreateWaitEventSet, MemoryContext context, int nevents)
ALWAYS(0, int, AddWaitEventToSet, WaitEventSet *set, uint32 events, pgsocket fd, Latch *latch,
	   void *arg)
ALWAYS(handler, pqsigfunc, pqsignal, int signal, pqsigfunc handler)
ALWAYS(false, bool, RecoveryInProgress, void)
ALWAYS(0, int, kill, pid_t pid, int signal)
ALWAYS(EVENT_FD, int, eventfd, unsigned int count, int flags)
ALWAYS(length, ssize_t, read, int fd, void *data, size_t length)
ALWAYS(0, int, pthread_detach, pthread_t thread)
ALWAYS(0, int, pthread_sigmask, int how, const sigset_t *set, sigset_t *former)
ALWAYS(0, int, prctl, int option, ...)
ALWAYS(0, int, zoo_add_auth, zhandle_t *handle, const char *scheme, const char *credentials,
	   int length, void_completion_t completion, const void *context)
ALWAYS(0, int, zoo_set_servers_resolution_delay, zhandle_t *handle, int delay)
ALWAYS(NULL, struct sockaddr *, zookeeper_get_connected_host, zhandle_t *handle,
	   struct sockaddr *address, socklen_t *length)
NOTHING(zoo_set_log_callback, zhandle_t *handle, log_callback_fn on_log)
/* clang-format on */

/* ------------------------------------------------------------------------
 * Shared memory and locks
 * ------------------------------------------------------------------------
 */

void *
__wrap_ShmemInitStruct(const char *name, Size size, bool *found)
{
	return sim_shared(name, size, found);
}

LWLockPadded *
__wrap_GetNamedLWLockTranche(const char *name)
{
	static LWLockPadded locks[8];

	return locks;
}

dsa_pointer
__wrap_dsa_allocate_extended(dsa_area *area, Size size, int flags)
{
	return (dsa_pointer) (uintptr_t) malloc(size);
}

void
__wrap_dsa_free(dsa_area *area, dsa_pointer pointer)
{
	free((void *) (uintptr_t) pointer);
}

void *
__wrap_dsa_get_address(dsa_area *area, dsa_pointer pointer)
{
	return (void *) (uintptr_t) pointer;
}

/* ------------------------------------------------------------------------
 * Processes: latches, signals, exits
 * ------------------------------------------------------------------------
 */

static int
process_of(const Latch *latch)
{
	return ((const char *) latch - (const char *) ProcGlobal->allProcs) / sizeof(PGPROC);
}

void
__wrap_SetLatch(Latch *latch)
{
	sim_latch_set(process_of(latch));
}

void
__wrap_ResetLatch(Latch *latch)
{
	sim_latch_reset(process_of(latch));
}

int
__wrap_WaitEventSetWait(WaitEventSet *set, long timeout, WaitEvent *occurred, int nevents, uint32 info)
{
	int	 n = 0;
	bool woken;

	if (sim_sleep(timeout, &woken))
		occurred[n++] = (WaitEvent){.events = WL_LATCH_SET};
	if (woken)
		occurred[n++] = (WaitEvent){.events = WL_SOCKET_READABLE};
	return n;
}

void
__wrap_on_shmem_exit(pg_on_exit_callback call, Datum arg)
{
	sim_exits[sim_current][sim_nexits[sim_current]++] = (SimExit){call, arg};
}

void
__wrap_proc_exit(int code)
{
	sim_exit();
}

ssize_t
__wrap_write(int fd, const void *data, size_t length)
{
	if (fd == EVENT_FD)
		sim_wake();
	return length;
}

/* Threads of the extension itself: they do one thing, at once. */
int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
					  void *(*run)(void *), void			  *arg)
{
	*thread = 0;
	run(arg);
	return 0;
}

/* ------------------------------------------------------------------------
 * Files, of which there are none, and chance
 * ------------------------------------------------------------------------
 */

int
__wrap_OpenTransientFile(const char *name, int flags)
{
	errno = ENOENT;
	return -1;
}

int
__wrap_OpenTransientFilePerm(const char *name, int flags, mode_t mode)
{
	errno = EROFS;
	return -1;
}

FILE *
__wrap_AllocateFile(const char *name, const char *mode)
{
	errno = ENOENT;
	return NULL;
}

int
__wrap_unlink(const char *name)
{
	errno = ENOENT;
	return -1;
}

bool
__wrap_pg_strong_random(void *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((char *) data)[i] = (char) sim_random();
	return true;
}

/* ------------------------------------------------------------------------
 * For the world
 * ------------------------------------------------------------------------
 */

static void
configure(const SimSettings *settings)
{
	static char empty[] = "";

	zklock_servers = strdup("127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183");
	zklock_auth_file = zklock_tls_ca_file = zklock_tls_cert_file = zklock_tls_key_file = empty;
	zklock_path_dialects = strdup("/hive=hive, /kazoo=kazoo, /rw=curator_rw, /recipe=zookeeper");
	zklock_allowed_paths = strdup("/*");
	zklock_server_name = strdup(settings->name);
	zklock_elections = strdup(settings->elections);
	zklock_max_locks = SIM_ENTRIES;
	zklock_session_timeout = settings->session_timeout;
	zklock_tick_time = settings->tick_time;
#ifdef ZKLOCK_FAULTS
	zklock_faults = strdup(settings->faults);
#endif
}

static size_t
engine_paths(void)
{
	return engine.paths ? hash_get_num_entries(engine.paths) : 0;
}

static size_t
engine_bytes(void)
{
	return engine.watch_bytes + engine.node_bytes;
}

static int64
session_id(void)
{
	return zklock_session->info.id;
}

static EntryPool *
pool(void)
{
	return entry_pool;
}

const SimServerApi sim_server_api = {
	.configure = configure,
	.startup = zklock_shmem_startup,
	.worker_main = zklock_worker_main,
	.entry_ask = entry_ask,
	.entry_give_up = entry_give_up,
	.entry_keep_shared = entry_keep_shared,
	.entry_consume = entry_consume,
	.entry_is_settled = entry_is_settled,
	.entry_mark_dirty = entry_mark_dirty,
	.entry_status = entry_status,
	.entry_copy = entry_copy,
	.entry_generation = entry_generation,
	.entry_is_overrun = entry_is_overrun,
	.entries_in_use = entries_in_use,
	.lease_state = lease_state,
	.lease_until = lease_until,
	.election_leadership = election_leadership,
	.election_want_resign = election_want_resign,
	.election_find = election_find,
	.engine_paths = engine_paths,
	.engine_bytes = engine_bytes,
	.session_id = session_id,
	.pool = pool,
};
