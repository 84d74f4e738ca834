/*
 * main.c
 *		The world: chance, steps, and what is told of them.
 *
 * This is loaded into the postgres program ahead of everything else, and takes its place:
 * so palloc and the like are at hand, and nothing of PostgreSQL runs (README).
 *
 * A run is a seed and a number of steps.  It goes through seasons, each with chances of its
 * own: turmoil, then calm, then everybody gives back what he has.  Each step, one of
 * those who can do something does it, by chance; if nobody can, time passes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "model.h"
#include "postmaster/postmaster.h"
#include "utils/memutils.h"

#define MAX_ACTORS 256
#define TOLD_STEPS 4000 /* of the history before a violation */
#define CALM_STEPS 400000

SimRates sim_rates;
bool	 sim_tells;
bool	 sim_changed;
SimPath	 sim_paths[SIM_PATHS];
int		 sim_npaths;
int		 sim_pace = 1;
int		 sim_keep_idle;
SimPhase sim_phase;

static uint64_t step;
static uint64_t tell_from = UINT64_MAX;
static uint64_t seed;
static int64_t	tick_ms;
static int64_t	timeout_ms;
static int64_t	cut_off_until[MODEL_SERVERS];
static int64_t	no_leader_until;

/* ------------------------------------------------------------------------
 * Time and words
 * ------------------------------------------------------------------------
 */

int64_t
sim_now(void)
{
	return model_now;
}

/* Does a line of the history name no other path than the one that matters? */
static bool
is_of_interest(const char *line)
{
	const char *wanted = getenv("SIM_TELL_PATH");

	for (int i = 0; wanted && *wanted && i < sim_npaths; i++)
	{
		const char *path = sim_paths[i].path;
		const char *found = strstr(line, path);

		if (found && strncmp(wanted, path, strlen(path)) != 0 && strchr(" \"", found[-1]) &&
			strchr("/ \"", found[strlen(path)]))
			return false;
	}
	return true;
}

void
sim_tell(const char *format, ...)
{
	va_list args;
	char	line[1024];

	if (!sim_tells)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (is_of_interest(line))
		printf("%8llu %12.3f ms  %s\n", (unsigned long long) step, model_now / 1000.0, line);
}

/* Tells what is wrong, and with a second run how it came to that. */
void
sim_violation(const char *path, const char *format, ...)
{
	va_list args;
	char	from[32];

	if (!sim_tells)
	{
		snprintf(from, sizeof(from), "%llu",
				 (unsigned long long) (step > TOLD_STEPS ? step - TOLD_STEPS : 1));
		setenv("SIM_TELL_FROM", from, 1);
		setenv("SIM_TELL_PATH", path ? path : "", 1);
		fflush(stdout);
		execl("/proc/self/exe", "postgres", (char *) NULL);
	}
	va_start(args, format);
	printf("\nVIOLATION in step %llu of seed %llu%s%s: ", (unsigned long long) step,
		   (unsigned long long) seed, path ? ", path " : "", path ? path : "");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	_exit(1);
}

/* What PostgreSQL's log would have */
static void
on_log(ErrorData *error)
{
	if (sim_tells)
		sim_tell("server %d: log: %s%s%s", sim_current, error->message,
				 error->detail ? " | " : "", error->detail ? error->detail : "");
	error->output_to_server = false;
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */

static ModelConnection *
some_connection(void)
{
	int				 n = 0;
	ModelConnection *chosen = NULL;

	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (!c->broken && sim_below(++n) == 0)
			chosen = c;
	}
	return chosen;
}

static int64_t
some_time(void)
{
	return sim_now() + (sim_one_in(3) ? sim_below(2 * timeout_ms * MS) : sim_below(100 * MS));
}

static void
cut_off(int server)
{
	if (server == model_leader)
		return;
	model_cut_off[server] = true;
	cut_off_until[server] =
		sim_now() + (sim_one_in(2) ? sim_below(6 * tick_ms * MS) : sim_below(20 * MS));
	sim_tell("fault: ZooKeeper server %d is cut off from the leader", server);
}

/* A server that has heard nothing of the leader for long gives its clients up. */
static void
attend_cut_off(void)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (!model_cut_off[i] || (sim_phase == PHASE_TURMOIL && sim_now() < cut_off_until[i]))
			continue;
		model_cut_off[i] = false;
		if (i == model_deposed)
			model_reset_server(i);
		else if (sim_one_in(2))
			model_stop_server(i);
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_down[i] = i != model_deposed && sim_now() < no_leader_until;
}

/* The session of a foreign client ends.  That of a server ends of itself alone. */
static void
expire_foreign(void)
{
	zhandle_t *handles[64];
	int		   n = library_handles(handles, lengthof(handles));
	zhandle_t *handle = n > 0 ? handles[sim_below(n)] : NULL;

	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		if (handle && library_owner(handle) == FOREIGN && s->id == library_session(handle) && !s->closing)
		{
			model_expire(s);
			return;
		}
	}
}

/* Another ZooKeeper server leads; the former leader may not hear of it for a while. */
static void
depose(void)
{
	int former = model_leader;

	model_new_leader(sim_below(MODEL_SERVERS));
	sim_tell("fault: ZooKeeper server %d leads, no longer server %d", model_leader, former);
	no_leader_until = sim_now() + sim_below(tick_ms * MS);
	if (sim_one_in(2))
		cut_off(former);
	model_deposed = model_cut_off[former] ? former : -1;
}

static void
interrupt(const SimProcess *process, int signal)
{
	sim_tell("fault: %s is %s", process->name, signal == SIGINT ? "cancelled" : "terminated");
	process_signal(process, signal);
}

static void
happen(void)
{
	ModelConnection *connection;
	int				 server = sim_below(sim_nservers);
	SimProcess		*process =
		 sim_one_in(2) ? server_worker(server) : &sim_processes[sim_below(sim_nprocesses)];

	if (sim_one_in(sim_rates.break_connection) && (connection = some_connection()) != NULL)
	{
		sim_tell("fault: a connection of session 0x%llx breaks",
				 connection->session ? (long long) connection->session->id : 0LL);
		model_break(connection);
	}
	if (sim_one_in(sim_rates.stall_connection) && (connection = some_connection()) != NULL)
	{
		connection->stalled_until = some_time();
		sim_tell("fault: a connection of session 0x%llx stalls for %lld ms",
				 connection->session ? (long long) connection->session->id : 0LL,
				 (long long) (connection->stalled_until - sim_now()) / 1000);
	}
	if (sim_one_in(sim_rates.cut_off))
		cut_off(sim_below(MODEL_SERVERS));
	if (sim_one_in(sim_rates.new_leader))
		depose();
	if (sim_one_in(sim_rates.kill_worker) && server_worker(server)->state != PROCESS_DEAD)
		server_worker(server)->doomed = true;
	if (sim_one_in(sim_rates.freeze))
	{
		process->frozen_until = some_time();
		sim_tell("fault: %s is stopped for %lld ms", process->name,
				 (long long) (process->frozen_until - sim_now()) / 1000);
	}
	if (sim_one_in(sim_rates.cancel) && process->number != SIM_WORKER)
		interrupt(process, SIGINT);
	if (sim_one_in(sim_rates.terminate) && process->number != SIM_WORKER)
		interrupt(process, SIGTERM);
	if (sim_one_in(sim_rates.crash))
	{
		sim_tell("fault: server %d crashes", server);
		server_crash(server);
	}
	if (sim_one_in(sim_rates.expire) && foreign_count() > 0)
		expire_foreign();
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

/* Somebody who can do something */
typedef struct Actor
{
	void (*act)(void *);
	void *what;
} Actor;

static Actor actors[MAX_ACTORS];
static int	 nactors;

static void
add_actor(bool can_act, void (*act)(void *), void *what)
{
	if (can_act && nactors < MAX_ACTORS)
		actors[nactors++] = (Actor){act, what};
}

static void
run_process(void *process)
{
	sim_changed |= ((SimProcess *) process)->number == SIM_WORKER;
	process_run(process);
}

static void
run_connection(void *connection)
{
	model_step_connection(connection);
}

static void
run_forward(void *server)
{
	model_step_forward((intptr_t) server);
}

static void
run_apply(void *server)
{
	model_step_apply((intptr_t) server);
}

static void
run_library(void *handle)
{
	library_step(handle);
}

static void
run_foreign(void *client)
{
	foreign_run((intptr_t) client);
}

/* Finds who can do something.  Returns when more of them can. */
static int64_t
find_actors(void)
{
	zhandle_t *handles[64];
	int		   n = library_handles(handles, lengthof(handles));
	int64_t	   next = Min(model_next_timer(), library_next_timer());

	nactors = 0;
	for (int i = 0; i < sim_nprocesses; i++)
	{
		add_actor(process_can_run(&sim_processes[i]), run_process, &sim_processes[i]);
		next = Min(next, process_next_timer(&sim_processes[i]));
	}
	for (ModelConnection *c = model_connections; c; c = c->next)
		add_actor(model_can_step_connection(c), run_connection, c);
	for (intptr_t i = 0; i < MODEL_SERVERS; i++)
	{
		add_actor(model_can_forward(i), run_forward, (void *) i);
		add_actor(model_can_apply(i), run_apply, (void *) i);
		next = Min(next, model_cut_off[i] ? cut_off_until[i] : SIM_NEVER);
	}
	for (int i = 0; i < n; i++)
		add_actor(library_can_step(handles[i]), run_library, handles[i]);
	for (intptr_t i = 0; i < foreign_count(); i++)
	{
		add_actor(foreign_can_run(i), run_foreign, (void *) i);
		next = Min(next, foreign_next_timer(i));
	}
	return next;
}

static void
make_step(void)
{
	int64_t next;

	step++;
	sim_tells = step >= tell_from;
	if (sim_phase == PHASE_TURMOIL)
		happen();
	attend_cut_off();
	library_attend_connections();
	if (sim_one_in(500) && model_step_reap())
		return;
	next = find_actors();
	if (nactors > 0)
	{
		const Actor *actor = &actors[sim_below(nactors)];

		actor->act(actor->what);
		model_advance(model_now + sim_below(40));
		if (sim_one_in(sim_rates.long_pause))
			model_advance(model_now + sim_below(timeout_ms * MS / 4));
	}
	else
		model_advance(Max(next, model_now + 1));
	if (sim_changed)
		check_step();
	sim_changed = false;
}

/* ------------------------------------------------------------------------
 * Seasons
 * ------------------------------------------------------------------------
 */

/* What SIM_WITHOUT names does not happen. */
static void
leave_out_faults(void)
{
	static const struct
	{
		const char *name;
		int		   *rate;
	} faults[] = {{"break_connection", &sim_rates.break_connection},
				  {"stall_connection", &sim_rates.stall_connection},
				  {"cut_off", &sim_rates.cut_off},
				  {"new_leader", &sim_rates.new_leader},
				  {"expire", &sim_rates.expire},
				  {"kill_worker", &sim_rates.kill_worker},
				  {"freeze", &sim_rates.freeze},
				  {"crash", &sim_rates.crash},
				  {"yield", &sim_rates.yield},
				  {"long_pause", &sim_rates.long_pause},
				  {"away", &sim_rates.away},
				  {"silent", &sim_rates.silent},
				  {"delete_node", &sim_rates.delete_node},
				  {"abandon", &sim_rates.abandon}};
	const char *without = getenv("SIM_WITHOUT");

	for (int i = 0; without && i < (int) lengthof(faults); i++)
	{
		if (strstr(without, faults[i].name))
			*faults[i].rate = 0;
	}
}

/* One in so many steps, or never; in a bad season, everything happens. */
static int
some_rate(int usual, bool bad)
{
	if (!bad && sim_one_in(2))
		return 0;
	return sim_one_in(4) ? usual / 10 + 1 : usual / 4 + 1 + (int) sim_below(2 * usual);
}

static void
begin_turmoil(void)
{
	bool bad = sim_one_in(4);
	bool split = sim_one_in(3); /* ZooKeeper's servers lose touch, and little else happens */

	sim_phase = PHASE_TURMOIL;
	sim_rates = (SimRates){.break_connection = some_rate(400, bad),
						   .stall_connection = some_rate(1000, bad),
						   .cut_off = some_rate(2000, bad),
						   .new_leader = some_rate(5000, bad),
						   .expire = some_rate(4000, bad),
						   .kill_worker = some_rate(1500, bad),
						   .freeze = some_rate(1000, bad),
						   .cancel = some_rate(300, bad),
						   .terminate = some_rate(1000, bad),
						   .crash = some_rate(20000, bad),
						   .yield = some_rate(60, bad),
						   .long_pause = some_rate(2000, bad),
						   .away = some_rate(6, bad),
						   .silent = some_rate(8, bad),
						   .delete_node = some_rate(8, bad),
						   .abandon = some_rate(200, bad)};
	if (split)
		sim_rates =
			(SimRates){.cut_off = 100, .yield = some_rate(60, false), .freeze = some_rate(1000, false)};
	leave_out_faults();
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_lag[i] = sim_one_in(3) ? sim_below(sim_one_in(2) ? 5 * MS : tick_ms * MS / 4) : 0;
	sim_pace = split ? 100 : sim_one_in(2) ? 1 : sim_one_in(2) ? 10 : 100;

	/* What is kept for an hour is still there in calm. */
	sim_keep_idle = sim_one_in(4) ? 0 : sim_one_in(2) ? 100 : 3600 * 1000;
}

static void
describe(void)
{
	for (int i = 0; i < sim_nprocesses; i++)
	{
		static const char *const states[] = {"is dead", "runs", "sleeps"};

		printf("  %s %s, doing %s\n", sim_processes[i].name, states[sim_processes[i].state],
			   sim_processes[i].doing ? sim_processes[i].doing : "nothing");
	}
	printf("  %d can do something\n", nactors);
	for (int i = 0; i < foreign_count(); i++)
		foreign_describe(i);
}

/* Everybody has what he can have, and the session of each server is proved to live. */
static bool
is_quiet(void)
{
	if (!model_is_idle())
		return false;
	for (int i = 0; i < sim_nservers; i++)
	{
		bool holds;

		if (server_worker(i)->state != PROCESS_ASLEEP || process_can_run(server_worker(i)))
			return false;
		holds = server_enter(i)->lease_state() == LEASE_HOLDS;
		server_leave();
		if (!holds)
			return false;
	}
	for (int i = 0; i < foreign_count() && sim_phase == PHASE_DRAIN; i++)
	{
		if (!foreign_is_done(i))
			return false;
	}
	return true;
}

/* Has everybody given back what he has?  Who waits for what need not come is helped. */
static bool
all_done(void)
{
	bool done = true;

	for (int i = 0; i < sim_nprocesses; i++)
	{
		SimProcess *process = &sim_processes[i];

		if (process->number == SIM_WORKER || process->is_done)
			continue;
		done = false;
		if (process->is_stuck && sim_one_in(1000))
			interrupt(process, SIGINT);
	}
	return done;
}

/* No faults any more: all that has happened comes to be known. */
static void
calm_down(void)
{
	int64_t until;

	sim_phase = PHASE_CALM;
	sim_rates = (SimRates){0};
	no_leader_until = 0;
	memset(model_lag, 0, sizeof(model_lag));
	for (int i = 0; i < sim_nprocesses; i++)
		sim_processes[i].frozen_until = 0;
	for (ModelConnection *c = model_connections; c; c = c->next)
		c->stalled_until = 0;
	until = sim_now() + 3 * timeout_ms * MS + 10000 * MS;
	for (uint64_t end = step + CALM_STEPS; (sim_now() < until || !is_quiet());)
	{
		make_step();
		if (step < end)
			continue;
		describe();
		sim_violation(NULL, "there is no rest");
	}
	check_calm();
}

/* Who has something gives it back, who waits gets it, and then nothing is left. */
static void
drain(void)
{
	int64_t	 until;
	uint64_t end = step + CALM_STEPS;

	sim_phase = PHASE_DRAIN;
	sim_keep_idle = 0;
	while (!all_done() || !is_quiet())
	{
		make_step();
		if (step < end)
			continue;
		describe();
		sim_violation(NULL, "somebody waits in vain");
	}
	until = sim_now() + 12000 * MS;
	while (sim_now() < until || !is_quiet())
		make_step();
	check_drained();
}

/* ------------------------------------------------------------------------
 * The beginning
 * ------------------------------------------------------------------------
 */

static uint64_t
number_of(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

/* Chooses paths by chance, or those that are named.  They are in the order of their bytes. */
static void
choose_paths(const char *only)
{
	static const SimPath known[] = {{"/a", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/c", USE_CLAIM},
									{"/deep/er/b", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/e", USE_ELECTION, .family = ELECTION_LATCH},
									{"/ez", USE_ELECTION, .family = ELECTION_SUPPORT},
									{"/hive", USE_LOCK, .dialect = DIALECT_HIVE},
									{"/kazoo", USE_LOCK, .dialect = DIALECT_KAZOO},
									{"/q", USE_QUEUE},
									{"/recipe", USE_LOCK, .dialect = DIALECT_ZOOKEEPER},
									{"/rw", USE_LOCK, .dialect = DIALECT_CURATOR_RW},
									{"/s", USE_SEMAPHORE, .permits = 2}};
	int					 wanted = 1 + sim_below(sim_one_in(3) ? SIM_PATHS : 3);

	for (int i = 0; i < (int) lengthof(known) && sim_npaths < SIM_PATHS; i++)
	{
		const char *found = only ? strstr(only, known[i].path) : NULL;
		bool chosen = found && strchr(" /", found[strlen(known[i].path)]); /* or at the end */

		if (only ? chosen : (int) sim_below(lengthof(known) - i) < wanted - sim_npaths)
			sim_paths[sim_npaths++] = known[i];
	}
}

static void
begin(void)
{
	static char names[SIM_SERVERS][8];
	char		elections[256] = "";
	int			nbackends;

	seed = number_of("SIM_SEED", 1);
	sim_seed(seed);
	tell_from = number_of("SIM_TELL_FROM", UINT64_MAX);
	sim_nservers = number_of("SIM_SERVERS", 1 + sim_below(SIM_SERVERS));
	tick_ms = sim_one_in(2) ? 2000 : 500;
	timeout_ms = tick_ms * (3 + sim_below(4));
	check_start(tick_ms * MS);
	choose_paths(getenv("SIM_PATHS"));
	for (int i = 0; i < sim_npaths; i++)
	{
		if (sim_paths[i].use == USE_ELECTION)
			snprintf(elections + strlen(elections), sizeof(elections) - strlen(elections),
					 "%s%s%s", elections[0] ? ", " : "", sim_paths[i].path,
					 sim_paths[i].family == ELECTION_SUPPORT ? "=zookeeper" : "");
	}
	nbackends = number_of("SIM_SESSIONS", 1 + sim_below(SIM_PROCS - 1));
	for (int i = 0; i < sim_nservers; i++)
	{
		SimSettings settings = {.session_timeout = timeout_ms,
								.tick_time = tick_ms,
								.name = names[i],
								.elections = elections,
								.faults = getenv("SIM_MUTANT") ? getenv("SIM_MUTANT") : ""};

		snprintf(names[i], sizeof(names[i]), "db%d", i);
		server_load(i, 1 + nbackends, &settings);
	}
	foreign_start(number_of("SIM_CLIENTS", sim_below(6)));
}

static void __attribute__((constructor)) simulate(void)
{
	uint64_t steps;
	uint64_t seasons = 0;

	if (getenv("SIM_DIR") == NULL)
		return;
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	steps = number_of("SIM_STEPS", 100000);
	MaxBackends = SIM_PROCS;
	MyProcPid = getpid();
	PostPortNumber = 5432; /* claims without one are not ours */
	MemoryContextInit();
	emit_log_hook = on_log;
	log_min_messages = number_of("SIM_TELL_FROM", 0) ? LOG : PANIC;
	begin();
	while (step < steps)
	{
		uint64_t until = step + 500 + sim_below(8000);

		seasons++;
		begin_turmoil();
		while (step < until)
			make_step();
		calm_down();
		drain();
	}
	printf("seed %llu: %llu steps, %llu seasons, %.0f s of simulated time, %d servers\n",
		   (unsigned long long) seed, (unsigned long long) step, (unsigned long long) seasons,
		   model_now / 1e6, sim_nservers);
	fflush(stdout);
	_exit(0);
}
