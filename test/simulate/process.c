/*
 * process.c
 *		The processes of database servers, all in one process and thread.
 *
 * Each has a copy of the extension of its own, so it has its own global variables.  What
 * these are before the process attaches to its server's memory is remembered: when it
 * starts again it begins with that.  PostgreSQL's globals that differ from process to
 * process are exchanged when another one runs.
 *
 * A process runs on a stack of its own.  It stops where it would sleep and, now and then,
 * where it looks at the clock: others run meanwhile, time passes, or it fails there.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#define STACK_SIZE (256 * 1024)
#define NBLOCKS 8
#define RESTART_MS 1000
#define MAX_ROUNDS 3 /* without sleep and without others */

typedef struct Block
{
	const char *name;
	void	   *memory;
} Block;

typedef struct Server
{
	SimProcess *processes; /* the worker first */
	int			nprocesses;
	PROC_HDR	procs;
	PGPROC		proc[SIM_PROCS + NUM_AUXILIARY_PROCS + 64];
	int			last_pid;
	Block		blocks[NBLOCKS];
	int			nblocks;
} Server;

int			sim_nservers;
int			sim_nprocesses;
SimProcess	sim_processes[SIM_SERVERS * SIM_PROCS];
SimProcess *sim_process;
int			sim_current = FOREIGN;

static Server	  servers[SIM_SERVERS];
static ucontext_t world;

SimProcess *
server_worker(int server)
{
	return &servers[server].processes[SIM_WORKER];
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

/* PostgreSQL's globals are those of a process from now on. */
static void
enter(const SimProcess *process)
{
	sim_current = process->server;
	ProcGlobal = &servers[process->server].procs;
	MyProc = process->proc;
	MyLatch = &MyProc->procLatch;
	MyProcPid = MyProc->pid;
}

/* Shared memory of the server that runs */
void *
sim_shared(const char *name, Size size, bool *found)
{
	Server *at = &servers[sim_current];
	Block  *block = at->blocks;

	while (block < at->blocks + at->nblocks && strcmp(block->name, name) != 0)
		block++;
	*found = block < at->blocks + at->nblocks;
	if (!*found)
		at->blocks[at->nblocks++] = (Block){name, calloc(1, size)};
	return block->memory;
}

/* Loads a copy of the extension: to the loader each is another file. */
static const SimServerApi *
load(void)
{
	char  path[1024];
	void *loaded;
	int	  to = memfd_create("zklock", 0);
	int	  from;

	snprintf(path, sizeof(path), "%s/server.so", getenv("SIM_DIR"));
	from = open(path, O_RDONLY);
	while (sendfile(to, from, NULL, INT_MAX) > 0)
		;
	close(from);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	if ((loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL)) != NULL)
		return dlsym(loaded, "sim_server_api");
	fprintf(stderr, "%s\n", dlerror());
	exit(2);
}

static size_t
data_size(const SimServerApi *api)
{
	return api->data_end - api->data;
}

/* Its global variables are as in a process that has attached to shared memory. */
static void
reset(const SimProcess *process)
{
	memcpy(process->api->data, process->pristine, data_size(process->api));
	enter(process);
	process->api->attach();
}

void
server_load(int server, int nprocesses)
{
	Server *at = &servers[server];

	at->procs.allProcs = at->proc;
	at->processes = &sim_processes[sim_nprocesses];
	at->nprocesses = nprocesses;
	for (int i = 0; i < nprocesses; i++)
	{
		SimProcess *process = &sim_processes[sim_nprocesses++];

		process->server = server;
		process->number = i;
		snprintf(process->name, sizeof(process->name),
				 i == SIM_WORKER ? "worker %d" : "session %d.%d", server, i);
		process->is_done = true;
		process->proc = &at->proc[i];
		process->proc->pgprocno = i;
		process->api = load();
		process->stack = malloc(STACK_SIZE);
		process->pristine = malloc(data_size(process->api));
		enter(process);
		process->api->configure();
		memcpy(process->pristine, process->api->data, data_size(process->api));
	}
	reset(server_worker(server));
	sim_current = FOREIGN;
}

/* A process is no more. */
static void
bury(SimProcess *process)
{
	if (process->number == SIM_WORKER)
		library_abandon(process->server);
	else
		check_ended(process);
	MemoryContextDelete(process->memory);
	process->memory = NULL;
	process->proc->pid = 0;
	process->state = PROCESS_DEAD;
	process->start_at =
		model_now + (process->number == SIM_WORKER ? RESTART_MS * MS
												   : (int64_t) sim_below(20 * MS * sim_pace));
}

void
server_crash(int server)
{
	Server *at = &servers[server];

	at->nblocks = 0;
	reset(server_worker(server));
	for (int i = 0; i < at->nprocesses; i++)
	{
		if (at->processes[i].state != PROCESS_DEAD)
			bury(&at->processes[i]);
		at->processes[i].start_at = model_now + RESTART_MS * MS;
		at->processes[i].is_done = true;
	}
	sim_current = FOREIGN;
}

/* ------------------------------------------------------------------------
 * Who runs
 * ------------------------------------------------------------------------
 */

static void
swap_globals(Globals *with)
{
	const Globals former = {TopMemoryContext,		 CurrentMemoryContext,
							TopTransactionContext,	 PG_exception_stack,
							error_context_stack,	 InterruptHoldoffCount,
							QueryCancelHoldoffCount, proc_exit_inprogress};

	TopMemoryContext = with->top;
	CurrentMemoryContext = with->current;
	TopTransactionContext = with->transaction;
	PG_exception_stack = with->exceptions;
	error_context_stack = with->contexts;
	InterruptHoldoffCount = with->holdoff;
	QueryCancelHoldoffCount = with->cancel_holdoff;
	proc_exit_inprogress = with->exiting;
	*with = former;
}

static void
back_to_world(void)
{
	SimProcess *process = sim_process;

	swap_globals(&process->globals);
	sim_process = NULL;
	swapcontext(&process->context, &world);
}

/* Within a process: the world goes on meanwhile, and may end the process. */
static void
pause_here(void)
{
	back_to_world();
	if (!sim_process->doomed)
		return;
	sim_process->doomed = false;
	sim_process->reports = true;
	ereport(ERROR, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("the simulation ends the worker here")));
}

/* It may be held up where it is, but for a while in which that would have no meaning. */
static bool
may_pause(void)
{
	return sim_process && !sim_process->exiting && sim_process->locks == 0 &&
		   !sim_process->reports && !sim_process->commits;
}

bool
sim_sleep(int64_t timeout_ms)
{
	sim_process->rounds = 0;
	sim_process->state = PROCESS_ASLEEP;
	sim_process->wake_at = timeout_ms < 0 ? SIM_NEVER : model_now + timeout_ms * MS;
	pause_here();
	sim_process->zxid = 0;
	for (const zhandle_t *h = library_handles; h && sim_process->number == SIM_WORKER; h = h->next)
	{
		if (h->owner == sim_current && h->state == ZOO_CONNECTED_STATE)
			sim_process->zxid = h->zxid;
	}
	sim_process->state = PROCESS_RUNNABLE;
	return MyLatch->is_set;
}

/* A round begins.  A process that goes on and on without sleep takes time, too. */
void
sim_round(void)
{
	if (sim_process && ++sim_process->rounds > MAX_ROUNDS && may_pause())
		pause_here();
}

/* The process has done all that belongs to its end. */
void
sim_end(void)
{
	sim_tell("ends");
	sim_process->state = PROCESS_DEAD;
	back_to_world();
	abort();
}

/* A process gets a signal. */
void
sim_signal(int pid, int signal)
{
	Server *at = &servers[sim_current];

	for (int i = 0; i < at->nprocesses; i++)
	{
		SimProcess *process = &at->processes[i];

		if (process->proc->pid != pid || pid == 0)
			continue;
		process->cancelled |= signal == SIGINT;
		process->terminated |= signal == SIGTERM;
		InterruptPending |= process == sim_process;
		at->processes[i].proc->procLatch.is_set = true;
	}
}

void
process_signal(const SimProcess *process, int signal)
{
	sim_tell("fault: %s is %s", process->name, signal == SIGINT ? "cancelled" : "terminated");
	enter(process);
	sim_signal(MyProcPid, signal);
	sim_current = FOREIGN;
}

/* All that sleep on a condition variable. */
void
sim_broadcast(const void *variable)
{
	Server *at = &servers[sim_current];

	for (int i = 0; i < at->nprocesses; i++)
	{
		if (at->processes[i].awaits == variable)
			at->processes[i].proc->procLatch.is_set = true;
	}
}

static void
start(SimProcess *process)
{
	*process->proc =
		(PGPROC){.pgprocno = process->number,
				 .pid = 100000 * (process->server + 1) + ++servers[process->server].last_pid};
	memset(&process->state, 0, sizeof(SimProcess) - offsetof(SimProcess, state));
	process->state = PROCESS_RUNNABLE;
	process->timeout_at = SIM_NEVER;
	process->seeks = process->persists = -1;
	process->memory =
		AllocSetContextCreate(TopMemoryContext, "simulated process", ALLOCSET_DEFAULT_SIZES);
	process->globals = (Globals){.top = process->memory, .current = process->memory};
	getcontext(&process->context);
	process->context.uc_stack.ss_sp = process->stack;
	process->context.uc_stack.ss_size = STACK_SIZE;
	makecontext(&process->context, process->api->main, 0);
	reset(process);
	sim_tell("%s: starts", process->name);
}

/* When it goes on */
int64_t
process_next_step(const SimProcess *process)
{
	int64_t at = Min(process->wake_at, process->timeout_at);

	if (process->state == PROCESS_DEAD)
		at = process->start_at;
	else if (process->state == PROCESS_RUNNABLE || process->doomed || process->woken ||
			 process->proc->procLatch.is_set)
		at = model_now;
	return Max(at, process->frozen_until);
}

/* The process goes on until it sleeps, or is held up. */
void
process_run(void *which)
{
	SimProcess *process = which;

	sim_changed |= process->number == SIM_WORKER;
	if (process->state == PROCESS_DEAD)
		start(process);
	if (model_now >= process->timeout_at)
	{
		process->timeout_at = SIM_NEVER;
		process->cancelled = process->timed_out = true;
		process->proc->procLatch.is_set = true;
	}
	enter(process);
	sim_process = process;
	InterruptPending = process->cancelled || process->terminated;
	swap_globals(&process->globals);
	swapcontext(&world, &process->context);
	InterruptPending = false;
	sim_current = FOREIGN;
	if (process->state == PROCESS_DEAD)
		bury(process);
}

/* ------------------------------------------------------------------------
 * The clock
 * ------------------------------------------------------------------------
 */

extern int clock_gettime(clockid_t clock, struct timespec *now);
extern int gettimeofday(struct timeval *now, void *zone);
extern int usleep(useconds_t us);

/* A process that looks at the clock may be cancelled or held up there, or end. */
int
clock_gettime(clockid_t clock, struct timespec *now)
{
	if (may_pause())
	{
		if (sim_process->number != SIM_WORKER && sim_one_in(4 * sim_rates.cancel))
			sim_signal(MyProcPid, SIGINT);
		if (sim_one_in(sim_rates.yield))
			pause_here();
	}
	now->tv_sec = model_now / 1000000;
	now->tv_nsec = model_now % 1000000 * 1000;
	return 0;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	now->tv_sec = 1700000000 + model_now / 1000000;
	now->tv_usec = model_now % 1000000;
	return 0;
}

/* Of faults that are slow */
int
usleep(useconds_t us)
{
	if (sim_process)
	{
		sim_process->frozen_until = model_now + us;
		pause_here();
	}
	return 0;
}
