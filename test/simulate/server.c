/*
 * server.c
 *		The seam between the extension and PostgreSQL, in each copy of the extension.
 *
 * The extension's objects are linked with this file into a library, of which each process
 * of a simulated server has a copy.  palloc, ereport, dynahash and the like are the real
 * ones, of the postgres program that the simulation runs in.  What a process asks of the
 * system, of shared memory or of others comes here instead, by the linker's --wrap, or is
 * asked of the world: the clock, the client library (process.c, library.c).
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/deadlock_search.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "storage/procarray.h"
#include "utils/dsa.h"
#include "utils/timeout.h"

#define EVENT_FD 1000
#define MAX_EXITS 16

extern PGDLLEXPORT const SimServerApi sim_server_api;
extern void							  zklock_worker_main(Datum arg);

/* ------------------------------------------------------------------------
 * What is not needed: nobody runs between a lock's acquisition and its release, there are
 * no files, no waits but the extension's, and no processes but the world's
 * ------------------------------------------------------------------------
 */

/* clang-format off: the Makefile reads the names */
#define NOTHING(name, ...)           \
	void __wrap_##name(__VA_ARGS__); \
	void __wrap_##name(__VA_ARGS__)  \
	{                                \
	}
#define ALWAYS(name, value, type, ...) \
	type __wrap_##name(__VA_ARGS__);   \
	type __wrap_##name(__VA_ARGS__)    \
	{                                  \
		return value;                  \
	}

NOTHING(dsa_pin, dsa_area *area)
NOTHING(dsa_pin_mapping, dsa_area *area)
NOTHING(dsa_detach, dsa_area *area)
NOTHING(dsa_set_size_limit, dsa_area *area, Size limit)
NOTHING(BackgroundWorkerInitializeConnection, const char *database, const char *user, uint32 flags)
NOTHING(BackgroundWorkerUnblockSignals, void)
NOTHING(on_proc_exit, pg_on_exit_callback call, Datum arg)
NOTHING(ProcessConfigFile, GucContext context)
NOTHING(ConditionVariableInit, ConditionVariable *cv)
NOTHING(SendPostmasterSignal, PMSignalReason reason)
NOTHING(ForceSyncCommit, void)
ALWAYS(dsa_create_in_place, place, dsa_area *, void *place, Size size, int tranche, dsm_segment *segment)
ALWAYS(dsa_attach_in_place, place, dsa_area *, void *place, dsm_segment *segment)
ALWAYS(madvise, 0, int, void *addr, size_t length, int advice)
ALWAYS(CreateWaitEventSet, NULL, WaitEventSet *, MemoryContext context, int nevents)
ALWAYS(AddWaitEventToSet, 0, int, WaitEventSet *set, uint32 events, pgsocket fd, Latch *latch,
	   void *arg)
ALWAYS(pqsignal, handler, pqsigfunc, int signal, pqsigfunc handler)
ALWAYS(RecoveryInProgress, false, bool, void)
ALWAYS(eventfd, EVENT_FD, int, unsigned int count, int flags)
ALWAYS(read, length, ssize_t, int fd, void *data, size_t length)
ALWAYS(pthread_detach, 0, int, pthread_t thread)
ALWAYS(pthread_sigmask, 0, int, int how, const sigset_t *set, sigset_t *former)
ALWAYS(prctl, 0, int, int option, ...)
ALWAYS(OpenTransientFile, (errno = ENOENT, -1), int, const char *name, int flags)
ALWAYS(OpenTransientFilePerm, (errno = EROFS, -1), int, const char *name, int flags, mode_t mode)
ALWAYS(AllocateFile, (errno = ENOENT, NULL), FILE *, const char *name, const char *mode)
ALWAYS(unlink, (errno = ENOENT, -1), int, const char *name)
ALWAYS(BackendPidGetProc, NULL, PGPROC *, int pid)
ALWAYS(superuser, sim_process->number % 2 == 0, bool, void)
ALWAYS(GetSessionUserId, 10 + sim_process->number % 2, Oid, void)
ALWAYS(GetUserId, 10 + sim_process->number % 2, Oid, void)
ALWAYS(GetUserNameFromId, pstrdup("role"), char *, Oid role, bool may_be_missing)
ALWAYS(get_database_name, pstrdup("database"), char *, Oid database)
ALWAYS(JsonEncodeDateTime, strcpy(text, "2026"), char *, char *text, Datum value, Oid type,
	   const int *zone)
ALWAYS(timestamptz_to_str, "2026", const char *, TimestampTz time)
ALWAYS(pgstat_get_backend_current_activity, "", const char *, int pid, bool check_user)
ALWAYS(gethostname, (*name = '\0', 0), int, char *name, size_t size)
ALWAYS(zoo_add_auth, 0, int, zhandle_t *handle, const char *scheme, const char *credentials,
	   int length, void_completion_t completion, const void *context)
ALWAYS(zoo_set_servers_resolution_delay, 0, int, zhandle_t *handle, int delay)
ALWAYS(zookeeper_get_connected_host, NULL, struct sockaddr *, zhandle_t *handle,
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

static void
count_locks(int n)
{
	if (sim_process)
		sim_process->locks += n;
}

bool
__wrap_LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	count_locks(1);
	return true;
}

void
__wrap_LWLockRelease(LWLock *lock)
{
	count_locks(-1);
}

void
__wrap_LWLockReleaseAll(void)
{
	sim_process->locks = 0;
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
 * Latches and sleep
 * ------------------------------------------------------------------------
 */

extern void __real_ResetLatch(Latch *latch);

void
__wrap_ResetLatch(Latch *latch)
{
	zklock_keep_idle = sim_keep_idle;
	sim_round();
	__real_ResetLatch(latch);
}

int
__wrap_WaitLatch(Latch *latch, int events, long timeout, uint32 info)
{
	return sim_sleep(events & WL_TIMEOUT ? timeout : -1) ? WL_LATCH_SET : WL_TIMEOUT;
}

int
__wrap_WaitEventSetWait(WaitEventSet *set, long timeout, WaitEvent *occurred, int nevents, uint32 info)
{
	int n = 0;

	if (sim_sleep(timeout))
		occurred[n++] = (WaitEvent){.events = WL_LATCH_SET};
	if (sim_process->woken)
		occurred[n++] = (WaitEvent){.events = WL_SOCKET_READABLE};
	sim_process->woken = false;
	return n;
}

void
__wrap_ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
	sim_process->awaits = cv;
}

void
__wrap_ConditionVariableCancelSleep(void)
{
	sim_process->awaits = NULL;
}

void
__wrap_ConditionVariableBroadcast(ConditionVariable *cv)
{
	sim_broadcast(cv);
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

bool
__wrap_pg_strong_random(void *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((char *) data)[i] = (char) sim_random();
	return true;
}

/* ------------------------------------------------------------------------
 * The end of a process: what is to be called then, the last first
 * ------------------------------------------------------------------------
 */

typedef struct Exits
{
	int n;
	struct
	{
		pg_on_exit_callback call;
		Datum				arg;
	} exits[MAX_EXITS];
} Exits;

static Exits before_exit;
static Exits at_exit;

static void
remember_exit(Exits *exits, pg_on_exit_callback call, Datum arg)
{
	Assert(exits->n < MAX_EXITS);
	exits->exits[exits->n].call = call;
	exits->exits[exits->n++].arg = arg;
}

static void
call_exits(Exits *exits, int code)
{
	while (exits->n > 0)
	{
		exits->n--;
		exits->exits[exits->n].call(code, exits->exits[exits->n].arg);
	}
}

void
__wrap_before_shmem_exit(pg_on_exit_callback call, Datum arg)
{
	remember_exit(&before_exit, call, arg);
}

void
__wrap_cancel_before_shmem_exit(pg_on_exit_callback call, Datum arg)
{
	before_exit.n--;
}

void
__wrap_on_shmem_exit(pg_on_exit_callback call, Datum arg)
{
	remember_exit(&at_exit, call, arg);
}

void
__wrap_proc_exit(int code)
{
	sim_process->exiting = true;
	proc_exit_inprogress = true;
	call_exits(&before_exit, code);
	sim_process->locks = 0;
	call_exits(&at_exit, code);
	sim_end();
}

/* ------------------------------------------------------------------------
 * Interrupts and errors
 * ------------------------------------------------------------------------
 */

extern bool __real_errstart(int level, const char *domain);
extern bool __real_errstart_cold(int level, const char *domain);
extern void __real_errfinish(const char *file, int line, const char *function);
extern void __real_FlushErrorState(void);

int
__wrap_kill(pid_t pid, int signal)
{
	sim_signal(pid, signal);
	return 0;
}

void
__wrap_enable_timeout_after(TimeoutId id, int delay_ms)
{
	sim_process->timeout_at = sim_now() + delay_ms * MS;
	sim_process->timed_out = false;
}

void
__wrap_disable_timeout(TimeoutId id, bool keep_indicator)
{
	sim_process->timeout_at = SIM_NEVER;
}

void
__wrap_ProcessInterrupts(void)
{
	bool by_timeout = sim_process->timed_out;

	if (InterruptHoldoffCount > 0 || sim_process->exiting)
		return;
	InterruptPending = false;
	if (sim_process->terminated)
	{
		sim_tell("%s: is terminated", sim_process->name);
		__wrap_proc_exit(1);
	}
	if (!sim_process->cancelled)
		return;
	sim_process->cancelled = sim_process->timed_out = false;
	ereport(ERROR,
			(errcode(by_timeout ? ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_QUERY_CANCELED),
			 errmsg("canceling statement due to %s", by_timeout ? "lock timeout" : "user request")));
}

/* A message that is sent looks for interrupts; here, so does one that is not. */
bool
__wrap_errstart(int level, const char *domain)
{
	bool sent = __real_errstart(level, domain);

	if (sim_process == NULL)
		return sent;
	sim_process->reports = sent;
	if (!sent && level >= LOG)
		CHECK_FOR_INTERRUPTS();
	return sent;
}

bool
__wrap_errstart_cold(int level, const char *domain)
{
	if (sim_process)
		sim_process->reports = true;
	return __real_errstart_cold(level, domain);
}

/* If this returns, a message has been sent; what errfinish() would ask of PostgreSQL is asked here. */
void
__wrap_errfinish(const char *file, int line, const char *function)
{
	InterruptPending = false;
	__real_errfinish(file, line, function);
	if (sim_process == NULL)
		return;
	sim_process->reports = false;
	InterruptPending = sim_process->cancelled || sim_process->terminated;
	CHECK_FOR_INTERRUPTS();
}

void
__wrap_FlushErrorState(void)
{
	__real_FlushErrorState();
	sim_process->reports = false;
	InterruptPending = sim_process->cancelled || sim_process->terminated;
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

static void
process_main(void)
{
	sigjmp_buf handler;

	if (sigsetjmp(handler, 0) != 0)
	{
		error_context_stack = NULL;
		EmitErrorReport();
		FlushErrorState();
		__wrap_proc_exit(1);
	}
	PG_exception_stack = &handler;
	if (sim_process->number == SIM_WORKER)
		zklock_worker_main((Datum) 0);
	session_main();
	__wrap_proc_exit(0);
}

static size_t
engine_paths(void)
{
	return engine.paths ? hash_get_num_entries(engine.paths) : 0;
}

static size_t
engine_bytes(void)
{
	return engine.watch_bytes + engine.node_bytes + engine.kept_bytes;
}

static int
calls_in_use(void)
{
	int n = 0;

	for (int i = 0; i < SIM_PROCS; i++)
	{
		const CallSlot *slot = &call_pool->slots[i];

		n += slot->state != CALL_FREE || slot->scratch[0] != '\0' ||
			 slot->provisional[0] != '\0' || slot->question_room.size + slot->answer_room.size > 0;
	}
	return n;
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

/* The global variables of a copy, from the first on (crtbegin.o) */
extern void *__dso_handle __attribute__((visibility("hidden")));
extern char	 _end[] __attribute__((visibility("hidden")));

const SimServerApi sim_server_api = {
	.data = (char *) &__dso_handle,
	.data_end = _end,
	.configure = configure,
	.attach = zklock_shmem_startup,
	.main = process_main,
	.entry_is_overrun = entry_is_overrun,
	.entries_in_use = entries_in_use,
	.calls_in_use = calls_in_use,
	.lease_state = lease_state,
	.lease_until = lease_until,
	.election_leadership = election_leadership,
	.election_find = election_find,
	.session_id = session_id,
	.pool = pool,
	.engine_paths = engine_paths,
	.engine_bytes = engine_bytes,
};
