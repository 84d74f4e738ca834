/*
 * process.c
 *		Database servers and their workers, in one process and thread.
 *
 * Each server has a copy of the extension of its own, so it has its own global
 * variables.  What these are when the postmaster has started is remembered: a new worker
 * begins with that, as after a fork.  PostgreSQL's globals that differ from process to
 * process are exchanged when another one runs.
 *
 * The worker runs zklock_worker_main(), on a stack of its own.  It stops where it would
 * sleep and, now and then, where it looks at the clock: others run meanwhile, time passes,
 * or the worker fails there.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include <dlfcn.h>
#include <link.h>
#include <ucontext.h>

#include "postmaster/interrupt.h"
#include "utils/memutils.h"

#define STACK_SIZE (512 * 1024)
#define NBLOCKS 8
#define RESTART_MS 1000
#define MAX_ROUNDS 3 /* without sleep and without others */

typedef enum WorkerState
{
	WORKER_DEAD,
	WORKER_RUNNABLE, /* within a round */
	WORKER_ASLEEP
} WorkerState;

typedef struct Block
{
	const char *name;
	void	   *memory;
	Size		size;
} Block;

/* PostgreSQL's globals of a process */
typedef struct Globals
{
	MemoryContext		  top;
	MemoryContext		  current;
	sigjmp_buf			 *exceptions;
	ErrorContextCallback *contexts;
} Globals;

typedef struct Server
{
	const SimServerApi *api;
	char			   *data; /* its global variables ... */
	size_t				size;
	char			   *pristine; /* ... as the postmaster leaves them */
	PROC_HDR			procs;
	PGPROC				proc[SIM_PROCS + NUM_AUXILIARY_PROCS + 64];
	bool				latches[SIM_PROCS];
	Block				blocks[NBLOCKS];
	int					nblocks;

	WorkerState	  state;
	ucontext_t	  context;
	char		 *stack;
	Globals		  globals;
	MemoryContext memory;
	int			  rounds; /* since it slept */
	int64_t		  zxid;	  /* seen when it slept last */
	bool		  exiting;
	bool		  doomed;	/* it fails when it runs next */
	bool		  woken;	/* by the client library */
	int64_t		  wake_at;	/* us; ASLEEP */
	int64_t		  start_at; /* us; DEAD */
	int64_t		  frozen_until;
} Server;

int sim_nservers;
int sim_current = FOREIGN;

SimExit sim_exits[SIM_SERVERS][SIM_EXITS];
int		sim_nexits[SIM_SERVERS];

static Server	  servers[SIM_SERVERS];
static ucontext_t world;
static Server	 *running; /* whose worker runs; or NULL */
static Globals	  own;

/* ------------------------------------------------------------------------
 * Who runs
 * ------------------------------------------------------------------------
 */

/* A process of a server runs from now on, until server_leave(). */
const SimServerApi *
server_enter(int server, int process)
{
	Server *at = &servers[server];

	sim_current = server;
	ProcGlobal = &at->procs;
	MyProc = &at->proc[process];
	MyLatch = &MyProc->procLatch;
	MyProcPid = MyProc->pid;
	return at->api;
}

void
server_leave(void)
{
	sim_current = FOREIGN;
}

EntryPool *
server_entries(int server)
{
	return servers[server].api->pool();
}

void
sim_latch_set(int process)
{
	servers[sim_current].latches[process] = true;
}

bool
latch_is_set(int server, int process)
{
	bool is_set = servers[server].latches[process];

	servers[server].latches[process] = false;
	return is_set;
}

void
sim_wake(void)
{
	servers[sim_current].woken = true;
}

void *
sim_shared(const char *name, Size size, bool *found)
{
	Server *at = &servers[sim_current];

	for (int i = 0; i < at->nblocks; i++)
	{
		if (strcmp(at->blocks[i].name, name) == 0)
		{
			*found = true;
			return at->blocks[i].memory;
		}
	}
	*found = false;
	at->blocks[at->nblocks] = (Block){name, calloc(1, size), size};
	return at->blocks[at->nblocks++].memory;
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

typedef struct Search
{
	const char *address;
	Server	   *server;
} Search;

/* Finds the segment with the library's global variables, less what the loader protects. */
static int
find_data(struct dl_phdr_info *info, size_t size, void *arg)
{
	Search *search = arg;
	bool	is_it = false;

	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const char *begin = (const char *) info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		is_it |= info->dlpi_phdr[i].p_type == PT_LOAD && search->address >= begin &&
				 search->address < begin + info->dlpi_phdr[i].p_memsz;
	}
	if (!is_it)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type == PT_LOAD && (header->p_flags & PF_W))
		{
			search->server->data = (char *) info->dlpi_addr + header->p_vaddr;
			search->server->size = header->p_memsz;
		}
	}
	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		char *end = (char *) info->dlpi_addr + header->p_vaddr + header->p_memsz;

		if (header->p_type != PT_GNU_RELRO)
			continue;
		search->server->size -= end - search->server->data;
		search->server->data = end;
	}
	return 1;
}

static void
start_postmaster(int server)
{
	Server *at = &servers[server];

	(void) server_enter(server, SIM_WORKER);
	at->api->startup();
	memcpy(at->pristine, at->data, at->size);
	server_leave();
}

void
server_load(int server, const char *library, const SimSettings *settings)
{
	Server *at = &servers[server];
	void   *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	Search	search;

	if (loaded == NULL)
	{
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	at->api = dlsym(loaded, "sim_server_api");
	search = (Search){(const char *) at->api, at};
	dl_iterate_phdr(find_data, &search);
	at->pristine = malloc(at->size);
	at->stack = malloc(STACK_SIZE);
	at->procs.allProcs = at->proc;
	for (int i = 0; i < SIM_PROCS; i++)
	{
		at->proc[i].pgprocno = i;
		at->proc[i].pid = 1000 * (server + 1) + i;
	}
	(void) server_enter(server, SIM_WORKER);
	at->api->configure(settings);
	start_postmaster(server);
}

void
server_crash(int server)
{
	Server *at = &servers[server];

	library_abandon(server);
	if (at->memory)
		MemoryContextDelete(at->memory);
	at->memory = NULL;
	at->state = WORKER_DEAD;
	at->start_at = sim_now() + RESTART_MS * MS;
	for (int i = 0; i < at->nblocks; i++)
		free(at->blocks[i].memory);
	at->nblocks = 0;
	memcpy(at->data, at->pristine, at->size);
	start_postmaster(server);
}

/* ------------------------------------------------------------------------
 * Workers
 * ------------------------------------------------------------------------
 */

static void
swap_globals(Globals *save, const Globals *load)
{
	*save = (Globals){TopMemoryContext, CurrentMemoryContext, PG_exception_stack, error_context_stack};
	TopMemoryContext = load->top;
	CurrentMemoryContext = load->current;
	PG_exception_stack = load->exceptions;
	error_context_stack = load->contexts;
}

static void
back_to_world(void)
{
	Server *at = running;

	swap_globals(&at->globals, &own);
	running = NULL;
	swapcontext(&at->context, &world);
}

/* The process ends: as proc_exit(1) does, but for the end. */
void
sim_exit(void)
{
	int server = sim_current;

	sim_tell("worker %d: ends", server);
	running->exiting = true;
	while (sim_nexits[server] > 0)
	{
		SimExit last = sim_exits[server][--sim_nexits[server]];

		last.call(1, last.arg);
	}
	running->state = WORKER_DEAD;
	back_to_world();
	abort();
}

/* Within the worker: the world goes on meanwhile, and may end the worker. */
static void
pause_worker(void)
{
	Server *at = running;

	back_to_world();
	if (at->doomed)
	{
		at->doomed = false;
		elog(ERROR, "the simulation ends the worker here");
	}
}

int
sim_sleep(int64_t timeout_ms, bool *woken)
{
	Server *at = running;
	bool	latch;

	at->rounds = 0;
	at->zxid = library_zxid(sim_current);
	at->state = WORKER_ASLEEP;
	at->wake_at = timeout_ms < 0 ? SIM_NEVER : sim_now() + timeout_ms * MS;
	pause_worker();
	at->state = WORKER_RUNNABLE;
	latch = at->latches[SIM_WORKER];
	*woken = at->woken;
	at->woken = false;
	return latch;
}

/* A round begins.  A worker that goes on and on without sleep takes time, too. */
void
sim_latch_reset(int process)
{
	if (++running->rounds > MAX_ROUNDS)
		pause_worker();
	running->latches[process] = false;
}

static void
worker_main(void)
{
	sigjmp_buf handler;

	if (sigsetjmp(handler, 0) != 0)
	{
		error_context_stack = NULL;
		EmitErrorReport();
		FlushErrorState();
		sim_exit();
	}
	PG_exception_stack = &handler;
	running->api->worker_main((Datum) 0);
}

static void
start_worker(int server)
{
	Server *at = &servers[server];

	memcpy(at->data, at->pristine, at->size);
	at->memory = AllocSetContextCreate(TopMemoryContext, "simulated worker", ALLOCSET_DEFAULT_SIZES);
	at->globals = (Globals){.top = at->memory, .current = at->memory};
	at->zxid = 0;
	at->exiting = at->doomed = at->woken = false;
	at->state = WORKER_RUNNABLE;
	sim_nexits[server] = 0;
	getcontext(&at->context);
	at->context.uc_stack.ss_sp = at->stack;
	at->context.uc_stack.ss_size = STACK_SIZE;
	at->context.uc_link = NULL;
	makecontext(&at->context, worker_main, 0);
	sim_tell("worker %d: starts", server);
}

bool
worker_lives(int server)
{
	return servers[server].state != WORKER_DEAD;
}

bool
worker_is_asleep(int server)
{
	return servers[server].state == WORKER_ASLEEP;
}

bool
worker_can_run(int server)
{
	const Server *at = &servers[server];

	if (sim_now() < at->frozen_until)
		return false;
	if (at->state == WORKER_DEAD)
		return sim_now() >= at->start_at;
	return at->state == WORKER_RUNNABLE || at->doomed || at->latches[SIM_WORKER] ||
		   at->woken || sim_now() >= at->wake_at;
}

int64_t
worker_next_timer(int server)
{
	const Server *at = &servers[server];
	int64_t		  next = at->state == WORKER_DEAD ? at->start_at : at->wake_at;

	return next > at->frozen_until ? next : at->frozen_until;
}

/* The worker goes on until it sleeps, or pauses. */
void
worker_run(int server)
{
	Server *at = &servers[server];

	if (at->state == WORKER_DEAD)
		start_worker(server);
	(void) server_enter(server, SIM_WORKER);
	running = at;
	swap_globals(&own, &at->globals);
	swapcontext(&world, &at->context);
	server_leave();
	if (at->state != WORKER_DEAD)
		return;
	library_abandon(server);
	MemoryContextDelete(at->memory);
	at->memory = NULL;
	at->start_at = sim_now() + RESTART_MS * MS;
}

/* The worker fails where it is. */
void
worker_kill(int server)
{
	if (servers[server].state != WORKER_DEAD)
		servers[server].doomed = true;
}

void
worker_freeze(int server, int64_t until)
{
	servers[server].frozen_until = until;
}

int64_t
worker_zxid(int server)
{
	return servers[server].zxid;
}

size_t
worker_memory(int server)
{
	return servers[server].memory ? MemoryContextMemAllocated(servers[server].memory, true) : 0;
}

/* ------------------------------------------------------------------------
 * The clock
 * ------------------------------------------------------------------------
 */

extern int clock_gettime(clockid_t clock, struct timespec *now);
extern int gettimeofday(struct timeval *now, void *zone);
extern int usleep(useconds_t us);

/* A worker that looks at the clock may be held up there, or end. */
int
clock_gettime(clockid_t clock, struct timespec *now)
{
	if (running && !running->exiting && sim_one_in(sim_rates.yield))
		pause_worker();
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
	if (running)
	{
		servers[sim_current].frozen_until = sim_now() + us;
		pause_worker();
	}
	return 0;
}
