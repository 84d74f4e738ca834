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

#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/dsa.h"
#include "utils/timeout.h"

#define EVENT_FD 1000
#define MAX_EXITS 16

extern PGDLLEXPORT const SimServerApi sim_server_api;
extern void							  zklock_worker_main(Datum arg);

/* ------------------------------------------------------------------------
 * What comes in the place of PostgreSQL's functions, and of the system's.  Nobody runs between a
 * lock's acquisition and its release, there are no files, no waits but the extension's, and no
 * processes but the world's.
 * ------------------------------------------------------------------------
 */

static LWLockPadded lwlocks[8];

static void
count_locks(int n)
{
	if (sim_process)
		sim_process->locks += n;
}

/* What is to be called at the end of a process, the last first */
typedef struct Exits
{
	int n;
	struct
	{
		pg_on_exit_callback call;
		Datum				arg;
	} exits[MAX_EXITS];
} Exits;

static Exits before_exit; /* of PG_ENSURE_ERROR_CLEANUP() */
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

/* A process that is held up at the clock has the spinlock: others run meanwhile. */
static int
wait_for_spinlock(volatile slock_t *lock)
{
	while (TAS(lock))
		usleep(1);
	return 0;
}

extern void __real_ResetLatch(Latch *latch);

/* clang-format off */
INSTEAD(s_lock, wait_for_spinlock(lock), int, volatile slock_t *lock, const char *file, int line, const char *function)
INSTEAD(dsa_pin, (void) 0, void, dsa_area *area)
INSTEAD(dsa_set_size_limit, (void) 0, void, dsa_area *area, Size limit)
INSTEAD(dsa_create_in_place, place, dsa_area *, void *place, Size size, int tranche, dsm_segment *segment)
INSTEAD(dsa_allocate_extended, (dsa_pointer) (uintptr_t) malloc(size), dsa_pointer, dsa_area *area, Size size, int flags)
INSTEAD(dsa_free, free((void *) (uintptr_t) pointer), void, dsa_area *area, dsa_pointer pointer)
INSTEAD(dsa_get_address, (void *) (uintptr_t) pointer, void *, dsa_area *area, dsa_pointer pointer)
INSTEAD(ShmemInitStruct, sim_shared(name, size, found), void *, const char *name, Size size, bool *found)

INSTEAD(GetNamedLWLockTranche, lwlocks, LWLockPadded *, const char *name)
INSTEAD(LWLockAcquire, (count_locks(1), true), bool, LWLock *lock, LWLockMode mode)
INSTEAD(LWLockConditionalAcquire, (count_locks(1), true), bool, LWLock *lock, LWLockMode mode)
INSTEAD(LWLockRelease, count_locks(-1), void, LWLock *lock)
INSTEAD(LWLockReleaseAll, (void) (sim_process->locks = 0), void, void)
INSTEAD(ConditionVariableInit, (void) 0, void, ConditionVariable *cv)
INSTEAD(ConditionVariablePrepareToSleep, (void) (sim_process->awaits = cv), void, ConditionVariable *cv)
INSTEAD(ConditionVariableCancelSleep, (void) (sim_process->awaits = NULL), void, void)
INSTEAD(ConditionVariableBroadcast, sim_broadcast(cv), void, ConditionVariable *cv)
INSTEAD(ResetLatch, (zklock_keep_idle = sim_keep_idle, sim_round(), __real_ResetLatch(latch)), void, Latch *latch)
INSTEAD(WaitLatch, sim_sleep(events & WL_TIMEOUT ? timeout : -1) ? WL_LATCH_SET : WL_TIMEOUT, int,
		Latch *latch, int events, long timeout, uint32 info)
INSTEAD(CreateWaitEventSet, NULL, WaitEventSet *, MemoryContext context, int nevents)
INSTEAD(AddWaitEventToSet, 0, int, WaitEventSet *set, uint32 events, pgsocket fd, Latch *latch, void *arg)

INSTEAD(BackgroundWorkerInitializeConnection, (void) 0, void, const char *database, const char *user, uint32 flags)
INSTEAD(BackgroundWorkerUnblockSignals, (void) 0, void, void)
INSTEAD(on_proc_exit, (void) 0, void, pg_on_exit_callback call, Datum arg)
INSTEAD(before_shmem_exit, remember_exit(&before_exit, call, arg), void, pg_on_exit_callback call, Datum arg)
INSTEAD(cancel_before_shmem_exit, (void) before_exit.n--, void, pg_on_exit_callback call, Datum arg)
INSTEAD(on_shmem_exit, remember_exit(&at_exit, call, arg), void, pg_on_exit_callback call, Datum arg)
INSTEAD(ProcessConfigFile, (void) 0, void, GucContext context)
INSTEAD(SendPostmasterSignal, (void) 0, void, PMSignalReason reason)
INSTEAD(pqsignal, handler, pqsigfunc, int signal, pqsigfunc handler)
INSTEAD(kill, (sim_signal(pid, signal), 0), int, pid_t pid, int signal)
INSTEAD(enable_timeout_after, (sim_process->timed_out = false, (void) (sim_process->timeout_at = model_now + delay_ms * MS)),
		void, TimeoutId id, int delay_ms)
INSTEAD(disable_timeout, (void) (sim_process->timeout_at = SIM_NEVER), void, TimeoutId id, bool keep_indicator)
INSTEAD(RecoveryInProgress, false, bool, void)
INSTEAD(ForceSyncCommit, (void) 0, void, void)

INSTEAD(BackendPidGetProc, NULL, PGPROC *, int pid)
INSTEAD(superuser, sim_process->number % 2 == 0, bool, void)
INSTEAD(GetSessionUserId, 10 + sim_process->number % 2, Oid, void)
INSTEAD(GetUserId, 10 + sim_process->number % 2, Oid, void)
INSTEAD(has_privs_of_role, sim_process->number % 2 == 0 || member == role, bool, Oid member, Oid role)
INSTEAD(GetUserNameFromId, pstrdup("role"), char *, Oid role, bool may_be_missing)
INSTEAD(get_database_name, pstrdup("database"), char *, Oid database)
INSTEAD(JsonEncodeDateTime, strcpy(text, "2026"), char *, char *text, Datum value, Oid type, const int *zone)
INSTEAD(timestamptz_to_str, "2026", const char *, TimestampTz time)
INSTEAD(pgstat_get_backend_current_activity, "", const char *, int pid, bool check_user)

INSTEAD(OpenTransientFile, (errno = ENOENT, -1), int, const char *name, int flags)
INSTEAD(OpenTransientFilePerm, (errno = EROFS, -1), int, const char *name, int flags, mode_t mode)
INSTEAD(AllocateFile, (errno = ENOENT, NULL), FILE *, const char *name, const char *mode)
INSTEAD(unlink, (errno = ENOENT, -1), int, const char *name)
INSTEAD(gethostname, (*name = '\0', 0), int, char *name, size_t size)
INSTEAD(madvise, 0, int, void *addr, size_t length, int advice)
INSTEAD(prctl, 0, int, int option, ...)
INSTEAD(eventfd, EVENT_FD, int, unsigned int count, int flags)
INSTEAD(read, (sim_process->woken &= fd != EVENT_FD, length), ssize_t, int fd, void *data, size_t length)
INSTEAD(write, (server_worker(sim_current)->woken |= fd == EVENT_FD, length), ssize_t, int fd, const void *data, size_t length)

/* Threads of the extension itself do one thing, at once. */
INSTEAD(pthread_create, (*thread = 0, run(arg), 0), int, pthread_t *thread, const pthread_attr_t *attributes,
		void *(*run)(void *), void *arg)
INSTEAD(pthread_detach, 0, int, pthread_t thread)
INSTEAD(pthread_sigmask, 0, int, int how, const sigset_t *set, sigset_t *former)

INSTEAD(zoo_add_auth, 0, int, zhandle_t *handle, const char *scheme, const char *credentials,
		int length, void_completion_t completion, const void *context)
INSTEAD(zoo_set_servers_resolution_delay, 0, int, zhandle_t *handle, int delay)
INSTEAD(zookeeper_get_connected_host, NULL, struct sockaddr *, zhandle_t *handle,
		struct sockaddr *address, socklen_t *length)
INSTEAD(zoo_set_log_callback, (void) 0, void, zhandle_t *handle, log_callback_fn on_log)
/* clang-format on */

int
__wrap_WaitEventSetWait(WaitEventSet *set, long timeout, WaitEvent *occurred, int nevents, uint32 info)
{
	int n = 0;

	if (sim_sleep(timeout))
		occurred[n++] = (WaitEvent){.events = WL_LATCH_SET};
	if (sim_process->woken)
		occurred[n++] = (WaitEvent){.events = WL_SOCKET_READABLE};
	return n;
}

bool
__wrap_pg_strong_random(void *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((char *) data)[i] = (char) sim_random();
	return true;
}

Datum
__wrap_gen_random_uuid(PG_FUNCTION_ARGS)
{
	void *uuid = palloc(ZKLOCK_UUID_BYTES);

	(void) __wrap_pg_strong_random(uuid, ZKLOCK_UUID_BYTES);
	return PointerGetDatum(uuid);
}

void
__wrap_proc_exit(int code)
{
	sim_process->exiting = true;
	proc_exit_inprogress = true;
	call_exits(&before_exit, code);
	xact_roll_back(0);
	call_exits(&at_exit, code);
	sim_end();
}

/* ------------------------------------------------------------------------
 * Interrupts and errors
 * ------------------------------------------------------------------------
 */

extern bool __real_errstart(int level, const char *domain);
extern void __real_errfinish(const char *file, int line, const char *function);
extern void __real_FlushErrorState(void);

void
__wrap_ProcessInterrupts(void)
{
	bool by_timeout = sim_process->timed_out;

	if (InterruptHoldoffCount > 0 || sim_process->exiting)
		return;
	InterruptPending = false;
	if (sim_process->terminated)
	{
		sim_tell("is terminated");
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

/* clang-format off */
INSTEAD(errstart_cold, __wrap_errstart(level, domain), bool, int level, const char *domain)
/* clang-format on */

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

/* Leadership is given away: see whom that concerns. */
extern bool __real_election_give_way(int election);

bool __wrap_election_give_way(int election);

bool
__wrap_election_give_way(int election)
{
	int64 term;
	bool  led = election_leadership(election, &term) != LEADERSHIP_NONE;
	bool  given = __real_election_give_way(election);

	if (given && led)
		check_given_away(sim_process->server, election, term);
	return given;
}

/* ------------------------------------------------------------------------
 * For the world
 * ------------------------------------------------------------------------
 */

static void
configure(void)
{
	static char empty[] = "";

	StringInfoData elections;

	initStringInfo(&elections);
	for (int i = 0; i < sim_npaths; i++)
	{
		if (sim_paths[i].use == USE_ELECTION)
			appendStringInfo(&elections, "%s%s%s priority %d", elections.len > 0 ? ", " : "",
							 sim_paths[i].path,
							 sim_paths[i].family == ELECTION_SUPPORT ? "=zookeeper" : "",
							 sim_rank(sim_current));
	}
	zklock_servers = pstrdup("127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183");
	zklock_auth_file = zklock_tls_ca_file = zklock_tls_cert_file = zklock_tls_key_file = empty;
	zklock_path_dialects = pstrdup("/hive=hive, /kazoo=kazoo, /rw=curator_rw, /recipe=zookeeper");
	zklock_allowed_paths = pstrdup("/*");
	zklock_server_name = psprintf("db%d", sim_current);
	zklock_elections = elections.data;
	zklock_max_kept_locks = sim_max_kept;
	zklock_max_locks = SIM_ENTRIES;
	zklock_session_timeout = sim_timeout_ms;
	zklock_tick_time = sim_tick_ms;
	zklock_faults = pstrdup(getenv("SIM_MUTANT") ? getenv("SIM_MUTANT") : "");
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

static int
calls_in_use(void)
{
	int n = 0;

	for (int i = 0; i < SIM_PROCS; i++)
	{
		const CallSlot *slot = &call_pool->slots[i];

		n += slot->state != CALL_FREE || slot->marker[0] != '\0' ||
			 slot->provisional[0] != '\0' || slot->batch_room.size + slot->answer_room.size > 0;
	}
	return n;
}

/* What the worker has, though nobody needs anything but his elections */
static void
check_rest(const char *name, int nelections)
{
	check_left(name, "entries", entries_in_use(), nelections);
	check_left(name, "entries that are kept", entry_pool->nkept, 0);
	check_left(name, "transactions that rely on reservations",
			   pg_atomic_read_u32(&entry_pool->reliances), 0);
	check_left(name, "paths", hash_get_num_entries(engine.paths), nelections);
	check_left(name, "bytes of paths",
			   engine.watch_bytes + engine.node_bytes + engine.kept_bytes + engine.kept_watch_bytes,
			   nelections * 1000);
	check_left(name, "slots for calls", calls_in_use(), 0);
}

static bool
is_overrun(int64 expires_us)
{
	return zklock_now_us() >= expires_us;
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
	.check_rest = check_rest,
	.session = &zklock_session,
	.pool = &entry_pool,
	.is_overrun = is_overrun,
	.lease_state = lease_state,
	.election_leadership = election_leadership,
	.election_find = election_find,
	.reliance = &transaction_reliance,
};
