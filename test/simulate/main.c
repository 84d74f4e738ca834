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

#include "postmaster/postmaster.h"
#include "utils/memutils.h"

#define MAX_ACTORS 256
#define TOLD_STEPS 4000 /* of the history before a violation */
#define CALM_STEPS 400000

SimRates sim_rates;
bool	 sim_changed;
SimPath	 sim_paths[SIM_PATHS];
int		 sim_npaths;
int		 sim_pace = 1;
int		 sim_writers = 2;
int		 sim_tick_ms;
int		 sim_timeout_ms;
int		 sim_keep_idle;
int		 sim_max_kept;
SimPhase sim_phase;

static uint64_t step;
static uint64_t tell_from = UINT64_MAX;
static bool		tells;
static uint64_t seed;
static int64_t	no_leader_until;

/* ------------------------------------------------------------------------
 * Time and words
 * ------------------------------------------------------------------------
 */

/* The number of the path that this is, or is below; -1 if there is none */
int
sim_path_of(const char *path)
{
	for (int i = 0; i < sim_npaths; i++)
	{
		size_t length = strlen(sim_paths[i].path);

		if (strncmp(path, sim_paths[i].path, length) == 0 && strchr("/", path[length]))
			return i;
	}
	return -1;
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

	if (!tells)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (is_of_interest(line))
		printf("%8llu %12.3f ms  %s%s%s\n", (unsigned long long) step, model_now / 1000.0,
			   sim_process ? sim_process->name : "", sim_process ? ": " : "", line);
}

/* Tells what is wrong, and with a second run how it came to that. */
void
sim_violation(const char *path, const char *format, ...)
{
	va_list args;
	char	from[32];

	if (!tells)
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
	sim_tell("log: %s%s%s", error->message, error->detail ? " | " : "",
			 error->detail ? error->detail : "");
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
	return model_now + (sim_one_in(3) ? sim_below(2 * sim_timeout_ms * MS) : sim_below(100 * MS));
}

static void
cut_off(ModelServer *server)
{
	if (server == model_leader)
		return;
	server->cut_off_until =
		model_now + (sim_one_in(2) ? sim_below(6 * sim_tick_ms * MS) : sim_below(20 * MS));
	sim_tell("fault: ZooKeeper server %d is cut off from the leader", (int) (server - model_servers));
}

/* A server that has heard nothing of the leader for long gives its clients up. */
static void
attend_cut_off(void)
{
	for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
	{
		bool is_over = s->cut_off_until != 0 &&
					   (sim_phase != PHASE_TURMOIL || model_now >= s->cut_off_until);

		if (is_over)
			s->cut_off_until = 0;
		if (is_over && s == model_deposed)
			model_reset_server(s);
		else if (is_over && sim_one_in(2))
			model_stop_server(s);
		s->down = s != model_deposed && model_now < no_leader_until;
	}
}

/* The session of a foreign client ends.  That of a server ends of itself alone. */
static void
expire_foreign(void)
{
	const Foreign *client = &foreign_clients[sim_below(foreign_count)];
	ModelSession  *session = model_session(client->handle->id.client_id);

	if (session)
		model_expire(session);
}

/* Another ZooKeeper server leads; the former leader may not hear of it for a while. */
static void
depose(void)
{
	ModelServer *former = model_leader;

	model_new_leader(&model_servers[sim_below(MODEL_SERVERS)]);
	sim_tell("fault: ZooKeeper server %d leads, no longer server %d",
			 (int) (model_leader - model_servers), (int) (former - model_servers));
	no_leader_until = model_now + sim_below(sim_tick_ms * MS);
	if (sim_one_in(2))
		cut_off(former);
	model_deposed = former->cut_off_until != 0 ? former : NULL;
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
				 (long long) (connection->stalled_until - model_now) / 1000);
	}
	if (sim_one_in(sim_rates.cut_off))
		cut_off(&model_servers[sim_below(MODEL_SERVERS)]);
	if (sim_one_in(sim_rates.new_leader))
		depose();
	if (sim_one_in(sim_rates.kill_worker) && server_worker(server)->state != PROCESS_DEAD)
		server_worker(server)->doomed = true;
	if (sim_one_in(sim_rates.freeze))
	{
		process->frozen_until = some_time();
		sim_tell("fault: %s is stopped for %lld ms", process->name,
				 (long long) (process->frozen_until - model_now) / 1000);
	}
	if (sim_one_in(sim_rates.cancel) && process->number != SIM_WORKER)
		process_signal(process, SIGINT);
	if (sim_one_in(sim_rates.terminate) && process->number != SIM_WORKER)
		process_signal(process, SIGTERM);
	if (sim_one_in(sim_rates.crash))
	{
		sim_tell("fault: server %d crashes", server);
		server_crash(server);
	}
	if (sim_one_in(sim_rates.expire) && foreign_count > 0)
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

static Actor   actors[MAX_ACTORS];
static int	   nactors;
static int64_t next_time; /* us: when there are more */

/* Adds somebody who can do something from that time on. */
static void
add_actor(int64_t time, void (*act)(void *), void *what)
{
	if (time > model_now)
		next_time = Min(next_time, time);
	else if (nactors < MAX_ACTORS)
		actors[nactors++] = (Actor){act, what};
}

static void
find_actors(void)
{
	nactors = 0;
	next_time = model_next_timer();
	for (SimProcess *p = sim_processes; p < sim_processes + sim_nprocesses; p++)
		add_actor(process_next_step(p), process_run, p);
	for (ModelConnection *c = model_connections; c; c = c->next)
		add_actor(model_can_step_connection(c) ? 0 : SIM_NEVER, model_step_connection, c);
	for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
	{
		add_actor(model_can_forward(s) ? 0 : SIM_NEVER, model_step_forward, s);
		add_actor(model_apply_at(s), model_step_apply, s);
		if (s->cut_off_until != 0)
			next_time = Min(next_time, s->cut_off_until);
	}
	for (zhandle_t *h = library_handles; h; h = h->next)
		add_actor(library_next_step(h), library_step, h);
	for (Foreign *f = foreign_clients; f < foreign_clients + foreign_count; f++)
		add_actor(foreign_next_step(f), foreign_run, f);
}

static void
make_step(void)
{
	step++;
	tells = step >= tell_from;
	if (sim_phase == PHASE_TURMOIL)
		happen();
	attend_cut_off();
	library_attend_connections();
	if (sim_one_in(500) && model_step_reap())
		return;
	find_actors();
	if (nactors > 0)
	{
		const Actor *actor = &actors[sim_below(nactors)];

		actor->act(actor->what);
		model_advance(model_now + sim_below(40));
		if (sim_one_in(sim_rates.long_pause))
			model_advance(model_now + sim_below(sim_timeout_ms * MS / 4));
	}
	else
		model_advance(Max(next_time, model_now + 1));
	if (sim_changed)
		check_step();
	sim_changed = false;
}

/* ------------------------------------------------------------------------
 * Seasons
 * ------------------------------------------------------------------------
 */

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
	static const struct
	{
		const char *name; /* in WITHOUT */
		int		   *rate;
		int			usual;
	} faults[] = {
#define FAULT(name, usual) {#name, &sim_rates.name, usual},
		SIM_FAULTS(FAULT)
#undef FAULT
	};

	const char *without = getenv("SIM_WITHOUT");
	bool		bad = sim_one_in(4);
	bool split = sim_one_in(3); /* ZooKeeper's servers lose touch, and little else happens */

	sim_phase = PHASE_TURMOIL;
	for (int i = 0; i < (int) lengthof(faults); i++)
		*faults[i].rate = some_rate(faults[i].usual, bad);
	if (split)
		sim_rates = (SimRates){.cut_off = 100,
							   .yield = some_rate(60, false),
							   .freeze = some_rate(1000, false),
							   .delete_node = some_rate(8, false)};
	if (sim_one_in(6)) /* paths are deleted while requests are on their way */
	{
		sim_rates.delete_node = 1;
		sim_rates.stall_connection = 100;
		sim_rates.freeze = 100;
	}
	if (sim_one_in(6)) /* sessions are cancelled at nearly any moment */
	{
		sim_rates.cancel = 30;
		sim_rates.yield = 5;
		sim_rates.delete_node = 3;
	}
	if (sim_one_in(6)) /* leaders change, and connections are short */
	{
		sim_rates.new_leader = 300;
		sim_rates.break_connection = 20;
	}
	sim_writers = sim_one_in(6) ? 8 : 2;
	if (sim_writers > 2) /* most share, and workers end again and again */
		sim_rates.kill_worker = 300;
	for (int i = 0; without && i < (int) lengthof(faults); i++)
	{
		if (strstr(without, faults[i].name))
			*faults[i].rate = 0;
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_servers[i].lag =
			sim_one_in(3) ? sim_below(sim_one_in(2) ? 5 * MS : sim_tick_ms * MS / 4) : 0;
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
	for (const Foreign *f = foreign_clients; f < foreign_clients + foreign_count; f++)
	{
		if (f->kind)
			printf("  foreign %d is at %s, its last node %s, its last answer %d\n", f->number,
				   sim_paths[f->path].path, f->node, f->code);
	}
}

/* Everybody has what he can have, and the session of each server is proved to live. */
static bool
is_quiet(void)
{
	if (!model_is_idle())
		return false;
	for (int i = 0; i < sim_nservers; i++)
	{
		if (server_worker(i)->state != PROCESS_ASLEEP ||
			process_next_step(server_worker(i)) <= model_now ||
			server_worker(i)->api->lease_state() != LEASE_HOLDS)
			return false;
	}
	for (int i = 0; i < foreign_count && sim_phase == PHASE_DRAIN; i++)
	{
		if (!foreign_is_done(&foreign_clients[i]))
			return false;
	}
	return true;
}

/* Has everybody given back what he has?  Who waits for what need not come is helped. */
static bool
is_drained(void)
{
	bool done = true;
	bool locked = false; /* by nobody who could be waited for */

	for (int i = 0; i < sim_npaths; i++)
		locked |= check_unlocks_persistently(i) != 0;
	for (int i = 0; i < sim_nprocesses; i++)
	{
		SimProcess *process = &sim_processes[i];

		if (process->number == SIM_WORKER || process->is_done)
			continue;
		done = false;
		if ((process->is_stuck || locked) && sim_one_in(1000))
			process_signal(process, SIGINT);
	}
	return done && is_quiet();
}

/* Goes on until that time, and until something is so, which it must be soon. */
static void
go_on(int64_t until, bool (*is_so)(void), const char *if_not)
{
	uint64_t end = step + CALM_STEPS;

	while (model_now < until || !is_so())
	{
		make_step();
		if (step < end)
			continue;
		describe();
		sim_violation(NULL, "%s", if_not);
	}
}

/* No faults any more: all that has happened comes to be known. */
static void
calm_down(void)
{
	sim_phase = PHASE_CALM;
	sim_rates = (SimRates){0};
	no_leader_until = 0;
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_servers[i].lag = 0;
	for (int i = 0; i < sim_nprocesses; i++)
		sim_processes[i].frozen_until = 0;
	for (ModelConnection *c = model_connections; c; c = c->next)
		c->stalled_until = 0;
	go_on(model_now + 3 * sim_timeout_ms * MS + 10000 * MS, is_quiet, "there is no rest");
	check_calm();
}

/* Who has something gives it back, who waits gets it, and then nothing is left. */
static void
drain(void)
{
	sim_phase = PHASE_DRAIN;
	sim_keep_idle = 0;
	go_on(0, is_drained, "somebody waits in vain");
	go_on(model_now + 12000 * MS, is_quiet, "there is no rest");
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
									{"/m/0", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/m/1", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/m/2", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/m/3", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/m/4", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/m/5", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/q", USE_QUEUE},
									{"/recipe", USE_LOCK, .dialect = DIALECT_ZOOKEEPER},
									{"/rw", USE_LOCK, .dialect = DIALECT_CURATOR_RW},
									{"/s", USE_SEMAPHORE, .permits = 2}};
	int					 wanted = 1 + sim_below(sim_one_in(3) ? 6 : 3);
	bool many = only == NULL && sim_one_in(6); /* locks that are kept, and nothing else */
	int	 left = lengthof(known) - 6;

	for (int i = 0; i < (int) lengthof(known) && sim_npaths < SIM_PATHS; i++)
	{
		const char *found = only ? strstr(only, known[i].path) : NULL;
		bool chosen = found && strchr(" /", found[strlen(known[i].path)]); /* or at the end */
		bool of_many = strncmp(known[i].path, "/m/", 3) == 0;

		if (!only && many != of_many)
			continue;
		if (only ? chosen : many || (int) sim_below(left--) < wanted - sim_npaths)
			sim_paths[sim_npaths++] = known[i];
	}
}

/* By the seed alone: a third of all pairs of servers have the same */
int
sim_rank(int server)
{
	return (int) ((((uint32_t) seed + 1) * 2654435761u >> (8 + 4 * server)) % 3);
}

static void
begin(void)
{
	int nbackends;

	seed = number_of("SIM_SEED", 1);
	sim_seed(seed);
	tell_from = number_of("SIM_TELL_FROM", UINT64_MAX);
	sim_nservers = number_of("SIM_SERVERS", 1 + sim_below(SIM_SERVERS));
	sim_tick_ms = sim_one_in(2) ? 2000 : 500;
	sim_timeout_ms = sim_tick_ms * (3 + sim_below(4));
	model_start(sim_tick_ms * MS);
	choose_paths(getenv("SIM_PATHS"));
	sim_max_kept = sim_one_in(2) ? SIM_KEPT : 1 + sim_below(3);
	nbackends = number_of("SIM_SESSIONS", 1 + sim_below(SIM_PROCS - 1));
	for (int i = 0; i < sim_nservers; i++)
		server_load(i, 1 + nbackends);
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
