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
#include <ucontext.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#define STACK_SIZE (256 * 1024)
#define NBLOCKS 8
#define RESTART_MS 1000
#define MAX_ROUNDS 3 /* without sleep and without others */

/* PostgreSQL's globals of a process */
typedef struct Globals
{
	MemoryContext		  top;
	MemoryContext		  current;
	sigjmp_buf			 *exceptions;
	ErrorContextCallback *contexts;
	uint32				  holdoff;
	uint32				  cancel_holdoff;
	bool				  exiting;
} Globals;

/* What nobody else needs to know of a process */
typedef struct Inside
{
	const SimServerApi *api;
	char			   *pristine; /* its global variables */
	ucontext_t			context;
	char			   *stack;
	Globals				globals;
	MemoryContext		memory; /* NULL if it is dead */
} Inside;

typedef struct Block
{
	char  name[32];
	void *memory;
	Size  size;
	bool  initialised;
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
static Inside	  insides[SIM_SERVERS * SIM_PROCS];
static ucontext_t world;
static Globals	  own;

static Inside *
inside_of(const SimProcess *process)
{
	return &insides[process - sim_processes];
}

static PGPROC *
proc_of(const SimProcess *process)
{
	return &servers[process->server].proc[process->number];
}

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
	MyProc = proc_of(process);
	MyLatch = &MyProc->procLatch;
	MyProcPid = MyProc->pid;
}

const SimServerApi *
server_api(int server)
{
	return inside_of(server_worker(server))->api;
}

/* Others look at a server, until server_leave(). */
const SimServerApi *
server_enter(int server)
{
	enter(server_worker(server));
	return server_api(server);
}

void
server_leave(void)
{
	sim_current = FOREIGN;
}

void *
sim_shared(const char *name, Size size, bool *found)
{
	Server *at = &servers[sim_current];
	Block  *block = at->blocks;

	while (block < at->blocks + at->nblocks && strcmp(block->name, name) != 0)
		block++;
	if (block == at->blocks + at->nblocks)
	{
		strlcpy(block->name, name, sizeof(block->name));
		block->memory = calloc(1, size);
		block->size = size;
		at->nblocks++;
	}
	*found = block->initialised;
	block->initialised = true;
	return block->memory;
}

/* Loads a copy of the extension: to the loader each is another file. */
static const SimServerApi *
load(void)
{
	static char	 *library = NULL;
	static size_t size;

	char  path[1024];
	void *loaded;
	int	  fd = memfd_create("zklock", 0);

	if (library == NULL)
	{
		int from;

		snprintf(path, sizeof(path), "%s/server.so", getenv("SIM_DIR"));
		from = open(path, O_RDONLY);
		size = lseek(from, 0, SEEK_END);
		library = mmap(NULL, size, PROT_READ, MAP_PRIVATE, from, 0);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write(fd, library, size) == (ssize_t) size && (loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
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
reset(SimProcess *process)
{
	Inside *inside = inside_of(process);

	memcpy(inside->api->data, inside->pristine, data_size(inside->api));
	enter(process);
	inside->api->attach();
}

void
server_load(int server, int nprocesses, const SimSettings *settings)
{
	Server *at = &servers[server];

	at->procs.allProcs = at->proc;
	at->processes = &sim_processes[sim_nprocesses];
	at->nprocesses = nprocesses;
	for (int i = 0; i < nprocesses; i++)
	{
		static char names[SIM_SERVERS * SIM_PROCS][16];
		SimProcess *process = &sim_processes[sim_nprocesses];
		Inside	   *inside = &insides[sim_nprocesses];

		snprintf(names[sim_nprocesses], sizeof(names[0]),
				 i == SIM_WORKER ? "worker %d" : "session %d.%d", server, i);
		*process =
			(SimProcess){.server = server, .number = i, .name = names[sim_nprocesses], .is_done = true};
		at->proc[i].pgprocno = i;
		inside->api = load();
		inside->stack = malloc(STACK_SIZE);
		inside->pristine = malloc(data_size(inside->api));
		enter(process);
		inside->api->configure(settings);
		memcpy(inside->pristine, inside->api->data, data_size(inside->api));
		sim_nprocesses++;
	}
	reset(server_worker(server));
	server_leave();
}

/* A process is no more. */
static void
bury(SimProcess *process)
{
	Inside *inside = inside_of(process);

	if (process->number == SIM_WORKER)
		library_abandon(process->server);
	else
		check_ended(process);
	MemoryContextDelete(inside->memory);
	inside->memory = NULL;
	proc_of(process)->pid = 0;
	process->state = PROCESS_DEAD;
	process->start_at =
		sim_now() + (process->number == SIM_WORKER ? RESTART_MS * MS
												   : (int64_t) sim_below(20 * MS * sim_pace));
}

void
server_crash(int server)
{
	Server *at = &servers[server];

	for (int i = 0; i < at->nblocks; i++)
	{
		memset(at->blocks[i].memory, 0, at->blocks[i].size);
		at->blocks[i].initialised = false;
	}
	reset(server_worker(server));
	for (int i = 0; i < at->nprocesses; i++)
	{
		if (at->processes[i].state != PROCESS_DEAD)
			bury(&at->processes[i]);
		at->processes[i].start_at = sim_now() + RESTART_MS * MS;
		at->processes[i].is_done = true;
	}
	server_leave();
}

/* ------------------------------------------------------------------------
 * Who runs
 * ------------------------------------------------------------------------
 */

static void
swap_globals(Globals *save, const Globals *load)
{
	*save = (Globals){TopMemoryContext,	   CurrentMemoryContext,  PG_exception_stack,
					  error_context_stack, InterruptHoldoffCount, QueryCancelHoldoffCount,
					  proc_exit_inprogress};
	TopMemoryContext = load->top;
	CurrentMemoryContext = load->current;
	PG_exception_stack = load->exceptions;
	error_context_stack = load->contexts;
	InterruptHoldoffCount = load->holdoff;
	QueryCancelHoldoffCount = load->cancel_holdoff;
	proc_exit_inprogress = load->exiting;
}

static void
switch_to(SimProcess *process)
{
	enter(process);
	sim_process = process;
	InterruptPending = process->cancelled || process->terminated;
	swap_globals(&own, &inside_of(process)->globals);
	swapcontext(&world, &inside_of(process)->context);
	InterruptPending = false;
	server_leave();
}

static void
back_to_world(void)
{
	Inside *inside = inside_of(sim_process);

	swap_globals(&inside->globals, &own);
	sim_process = NULL;
	swapcontext(&inside->context, &world);
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
	sim_process->wake_at = timeout_ms < 0 ? SIM_NEVER : sim_now() + timeout_ms * MS;
	pause_here();
	if (sim_process->number == SIM_WORKER)
		sim_process->zxid = library_zxid(sim_current);
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
	sim_tell("%s: ends", sim_process->name);
	sim_process->state = PROCESS_DEAD;
	back_to_world();
	abort();
}

void
sim_wake(void)
{
	server_worker(sim_current)->woken = true;
}

/* A process gets a signal. */
void
sim_signal(int pid, int signal)
{
	Server *at = &servers[sim_current];

	for (int i = 0; i < at->nprocesses; i++)
	{
		SimProcess *process = &at->processes[i];

		if (proc_of(process)->pid != pid || pid == 0)
			continue;
		process->cancelled |= signal == SIGINT;
		process->terminated |= signal == SIGTERM;
		InterruptPending |= process == sim_process;
		at->proc[i].procLatch.is_set = true;
	}
}

void
process_signal(const SimProcess *process, int signal)
{
	enter(process);
	sim_signal(MyProcPid, signal);
	server_leave();
}

/* All that sleep on a condition variable. */
void
sim_broadcast(const void *variable)
{
	Server *at = &servers[sim_current];

	for (int i = 0; i < at->nprocesses; i++)
	{
		if (at->processes[i].awaits == variable)
			at->proc[i].procLatch.is_set = true;
	}
}

static void
start(SimProcess *process)
{
	Inside *inside = inside_of(process);
	Server *at = &servers[process->server];

	*proc_of(process) = (PGPROC){.pgprocno = process->number,
								 .pid = 100000 * (process->server + 1) + ++at->last_pid};
	*process = (SimProcess){.server = process->server,
							.number = process->number,
							.name = process->name,
							.state = PROCESS_RUNNABLE,
							.frozen_until = process->frozen_until,
							.timeout_at = SIM_NEVER,
							.seeks = -1};
	inside->memory =
		AllocSetContextCreate(TopMemoryContext, "simulated process", ALLOCSET_DEFAULT_SIZES);
	inside->globals = (Globals){.top = inside->memory, .current = inside->memory};
	getcontext(&inside->context);
	inside->context.uc_stack.ss_sp = inside->stack;
	inside->context.uc_stack.ss_size = STACK_SIZE;
	inside->context.uc_link = NULL;
	makecontext(&inside->context, inside->api->main, 0);
	reset(process);
	sim_tell("%s: starts", process->name);
}

bool
process_can_run(const SimProcess *process)
{
	if (sim_now() < process->frozen_until)
		return false;
	if (process->state == PROCESS_DEAD)
		return sim_now() >= process->start_at;
	return process->state == PROCESS_RUNNABLE || process->doomed || process->woken ||
		   proc_of(process)->procLatch.is_set || sim_now() >= process->wake_at ||
		   sim_now() >= process->timeout_at;
}

int64_t
process_next_timer(const SimProcess *process)
{
	int64_t next = process->state == PROCESS_DEAD ? process->start_at
												  : Min(process->wake_at, process->timeout_at);

	return Max(next, process->frozen_until);
}

/* The process goes on until it sleeps, or is held up. */
void
process_run(SimProcess *process)
{
	if (process->state == PROCESS_DEAD)
		start(process);
	if (sim_now() >= process->timeout_at)
	{
		process->timeout_at = SIM_NEVER;
		process->cancelled = process->timed_out = true;
		proc_of(process)->procLatch.is_set = true;
	}
	switch_to(process);
	if (process->state == PROCESS_DEAD)
		bury(process);
}

int
process_pid(const SimProcess *process)
{
	return proc_of(process)->pid;
}

size_t
process_memory(const SimProcess *process)
{
	MemoryContext memory = inside_of(process)->memory;

	return memory ? MemoryContextMemAllocated(memory, true) : 0;
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
	now->tv_sec = sim_now() / 1000000;
	now->tv_nsec = sim_now() % 1000000 * 1000;
	return 0;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	now->tv_sec = 1700000000 + sim_now() / 1000000;
	now->tv_usec = sim_now() % 1000000;
	return 0;
}

/* Of faults that are slow */
int
usleep(useconds_t us)
{
	if (sim_process)
	{
		sim_process->frozen_until = sim_now() + us;
		pause_here();
	}
	return 0;
}
