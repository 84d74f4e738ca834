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

#include <stdarg.h>
#include <unistd.h>

#include "model.h"
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
SimPhase sim_phase;

static uint64_t random_state;
static uint64_t step;
static uint64_t tell_from = UINT64_MAX;
static uint64_t seed;
static int64_t	tick_ms;
static int64_t	timeout_ms;
static int64_t	cut_off_until[MODEL_SERVERS];
static int64_t	no_leader_until;

/* ------------------------------------------------------------------------
 * Chance, time, and words
 * ------------------------------------------------------------------------
 */

uint64_t
sim_random(void)
{
	uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint64_t
sim_below(uint64_t n)
{
	return sim_random() % n;
}

bool
sim_one_in(uint64_t n)
{
	return n > 0 && sim_random() % n == 0;
}

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
		if (sim_one_in(2))
			model_stop_server(i);
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_down[i] = sim_now() < no_leader_until;
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

static void
happen(void)
{
	ModelConnection *connection;
	int				 server = sim_below(sim_nservers);

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
	{
		sim_tell("fault: another ZooKeeper server leads");
		model_new_leader(sim_below(MODEL_SERVERS));
		no_leader_until = sim_now() + sim_below(tick_ms * MS);
	}
	if (sim_one_in(sim_rates.kill_worker))
		worker_kill(server);
	if (sim_one_in(sim_rates.freeze_worker))
	{
		int64_t until = some_time();

		sim_tell("fault: worker %d is stopped for %lld ms", server,
				 (long long) (until - sim_now()) / 1000);
		worker_freeze(server, until);
	}
	if (sim_one_in(sim_rates.crash))
	{
		sim_tell("fault: server %d crashes", server);
		server_crash(server);
		session_crashed(server);
	}
	if (sim_one_in(sim_rates.expire) && foreign_count() > 0)
		expire_foreign();
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

typedef enum ActorKind
{
	ACTOR_WORKER,
	ACTOR_CONNECTION,
	ACTOR_FORWARD,
	ACTOR_APPLY,
	ACTOR_LIBRARY,
	ACTOR_SESSION,
	ACTOR_FOREIGN
} ActorKind;

typedef struct Actor
{
	ActorKind kind;
	int		  number;
	void	 *what;
} Actor;

static Actor actors[MAX_ACTORS];
static int	 nactors;

static void
add_actor(ActorKind kind, int number, void *what)
{
	if (nactors < MAX_ACTORS)
		actors[nactors++] = (Actor){kind, number, what};
}

static void
find_actors(void)
{
	zhandle_t *handles[64];
	int		   n = library_handles(handles, lengthof(handles));

	nactors = 0;
	for (int i = 0; i < sim_nservers; i++)
	{
		if (worker_can_run(i))
			add_actor(ACTOR_WORKER, i, NULL);
	}
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (model_can_step_connection(c))
			add_actor(ACTOR_CONNECTION, 0, c);
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (model_can_forward(i))
			add_actor(ACTOR_FORWARD, i, NULL);
		if (model_can_apply(i))
			add_actor(ACTOR_APPLY, i, NULL);
	}
	for (int i = 0; i < n; i++)
	{
		if (library_can_step(handles[i]))
			add_actor(ACTOR_LIBRARY, 0, handles[i]);
	}
	for (int i = 0; i < session_count(); i++)
	{
		if (session_can_run(i))
			add_actor(ACTOR_SESSION, i, NULL);
	}
	for (int i = 0; i < foreign_count(); i++)
	{
		if (foreign_can_run(i))
			add_actor(ACTOR_FOREIGN, i, NULL);
	}
}

/* Nobody can do anything before that. */
static int64_t
next_timer(void)
{
	int64_t next = Min(model_next_timer(), library_next_timer());

	for (int i = 0; i < sim_nservers; i++)
		next = Min(next, worker_next_timer(i));
	for (int i = 0; i < session_count(); i++)
		next = Min(next, session_next_timer(i));
	for (int i = 0; i < foreign_count(); i++)
		next = Min(next, foreign_next_timer(i));
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (model_cut_off[i])
			next = Min(next, cut_off_until[i]);
	}
	return next;
}

static void
act(const Actor *actor)
{
	switch (actor->kind)
	{
		case ACTOR_WORKER:
			sim_changed = true;
			worker_run(actor->number);
			break;
		case ACTOR_CONNECTION:
			(void) model_step_connection(actor->what);
			break;
		case ACTOR_FORWARD:
			(void) model_step_forward(actor->number);
			break;
		case ACTOR_APPLY:
			(void) model_step_apply(actor->number);
			break;
		case ACTOR_LIBRARY:
			library_step(actor->what);
			break;
		case ACTOR_SESSION:
			session_run(actor->number);
			break;
		case ACTOR_FOREIGN:
			foreign_run(actor->number);
			break;
	}
}

static void
make_step(void)
{
	step++;
	sim_tells = step >= tell_from;
	if (sim_phase == PHASE_TURMOIL)
		happen();
	attend_cut_off();
	library_attend_connections();
	if (sim_one_in(500) && model_step_reap())
		return;
	find_actors();
	if (nactors > 0)
	{
		act(&actors[sim_below(nactors)]);
		model_advance(model_now + sim_below(40));
		if (sim_one_in(sim_rates.long_pause))
			model_advance(model_now + sim_below(timeout_ms * MS / 4));
	}
	else
		model_advance(Max(next_timer(), model_now + 1));
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
				  {"freeze_worker", &sim_rates.freeze_worker},
				  {"crash", &sim_rates.crash},
				  {"yield", &sim_rates.yield},
				  {"long_pause", &sim_rates.long_pause},
				  {"away", &sim_rates.away},
				  {"silent", &sim_rates.silent},
				  {"delete_node", &sim_rates.delete_node},
				  {"long_hold", &sim_rates.long_hold}};
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
						   .freeze_worker = some_rate(2000, bad),
						   .crash = some_rate(20000, bad),
						   .yield = some_rate(60, bad),
						   .long_pause = some_rate(2000, bad),
						   .away = some_rate(6, bad),
						   .silent = some_rate(8, bad),
						   .delete_node = sim_one_in(5) ? 1 : some_rate(20, bad)};
	if (split)
		sim_rates = (SimRates){.cut_off = 100,
							   .yield = some_rate(60, false),
							   .freeze_worker = some_rate(2000, false)};
	sim_rates.long_hold = sim_one_in(4) ? 1 : 8;
	leave_out_faults();
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_lag[i] = sim_one_in(3) ? sim_below(sim_one_in(2) ? 5 * MS : tick_ms * MS / 4) : 0;
	sim_pace = split ? 100 : sim_one_in(2) ? 1 : sim_one_in(2) ? 10 : 100;
}

static void
describe(void)
{
	static const char *const kinds[] = {"worker",  "connection", "forward", "apply",
										"library", "session",	 "foreign"};

	for (int i = 0; i < sim_nservers; i++)
	{
		printf("  worker %d %s, lease %s\n", i,
			   !worker_lives(i)		 ? "is dead"
			   : worker_is_asleep(i) ? "sleeps"
									 : "runs",
			   server_enter(i, SIM_WORKER)->lease_state() == LEASE_HOLDS ? "holds" : "does not hold");
		server_leave();
	}
	for (int i = 0; i < nactors; i++)
		printf("  something to do: %s %d\n", kinds[actors[i].kind], actors[i].number);
	for (int i = 0; i < session_count(); i++)
		session_describe(i);
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
		const SimServerApi *api;
		bool				holds;

		if (!worker_lives(i) || !worker_is_asleep(i) || worker_can_run(i))
			return false;
		api = server_enter(i, SIM_WORKER);
		holds = api->lease_state() == LEASE_HOLDS;
		server_leave();
		if (!holds)
			return false;
	}
	for (int i = 0; i < foreign_count(); i++)
	{
		if (!foreign_is_done(i) && sim_phase == PHASE_DRAIN)
			return false;
	}
	return true;
}

static bool
all_done(void)
{
	for (int i = 0; i < session_count(); i++)
	{
		if (!session_is_done(i))
			return false;
	}
	return true;
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
	for (int i = 0; i < sim_nservers; i++)
		worker_freeze(i, 0);
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

static void
choose_paths(const char *only)
{
	static const SimPath known[] = {{"/a", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/deep/er/b", USE_LOCK, .dialect = DIALECT_CURATOR},
									{"/kazoo", USE_LOCK, .dialect = DIALECT_KAZOO},
									{"/rw", USE_LOCK, .dialect = DIALECT_CURATOR_RW},
									{"/recipe", USE_LOCK, .dialect = DIALECT_ZOOKEEPER},
									{"/s", USE_SEMAPHORE, .permits = 2},
									{"/e", USE_ELECTION, .family = ELECTION_LATCH},
									{"/q", USE_QUEUE},
									{"/hive", USE_LOCK, .dialect = DIALECT_HIVE},
									{"/ez", USE_ELECTION, .family = ELECTION_SUPPORT}};
	int					 wanted = 1 + sim_below(sim_one_in(3) ? SIM_PATHS : 3);

	for (int i = 0; i < (int) lengthof(known); i++)
	{
		const char *found = only ? strstr(only, known[i].path) : NULL;

		if (found && strchr(" /", found[strlen(known[i].path)])) /* or at the end */
			sim_paths[sim_npaths++] = known[i];
	}
	while (only == NULL && sim_npaths < wanted)
	{
		const SimPath *one = &known[sim_below(lengthof(known))];
		bool		   again = false;

		for (int i = 0; i < sim_npaths; i++)
			again |= sim_paths[i].path == one->path;

		if (!again)
			sim_paths[sim_npaths++] = *one;
	}
}

static void
begin(void)
{
	static char names[SIM_SERVERS][8];
	char		elections[256] = "";
	int			per_server;

	seed = number_of("SIM_SEED", 1);
	random_state = seed;
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
	per_server = number_of("SIM_SESSIONS", 1 + sim_below(6));
	for (int i = 0; i < sim_nservers; i++)
	{
		SimSettings settings = {.session_timeout = timeout_ms,
								.tick_time = tick_ms,
								.name = names[i],
								.elections = elections,
								.faults = getenv("SIM_MUTANT") ? getenv("SIM_MUTANT") : ""};
		char		library[1024];

		snprintf(names[i], sizeof(names[i]), "db%d", i);
		snprintf(library, sizeof(library), "%s/server%d.so", getenv("SIM_DIR"), i);
		server_load(i, library, &settings);
		for (int j = 0; j < per_server; j++)
			session_start(i, 1 + j);
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
