/*
 * session.c
 *		Sessions of PostgreSQL, as far as the worker can tell: they fill entries, look at
 *		them when their latch is set or time has passed, and give them up.
 *
 * A session has up to four holds.  Each step it looks at them, and then does one of the
 * things that a session might do now, by chance.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include "model.h"

#include "shared/settings.h"

#define MAX_SESSIONS (SIM_SERVERS * (SIM_PROCS - 1))
#define MAX_HOLDS 4

typedef enum HoldState
{
	HOLD_NONE,
	HOLD_ASKED,
	HOLD_HELD,
	HOLD_DEPARTED /* given up; the worker is not done with it, as far as is known */
} HoldState;

typedef struct Hold
{
	HoldState state;
	int		  path;
	EntryKind kind;
	LockMode  mode;
	AskManner manner;
	int		  entry;
	uint32	  generation;
	char	  element[32]; /* its name */
	int64_t	  czxid;	   /* its czxid, once it is taken */
	int64_t	  until;	   /* ASKED: then it gives up; HELD: then it gives back */
} Hold;

typedef struct Session
{
	int		server;
	int		process;
	Hold	holds[MAX_HOLDS];
	int64_t next_at;
} Session;

static Session sessions[MAX_SESSIONS];
static int	   nsessions;

static const char *const mode_names[] = {"exclusive", "shared"};

void
session_start(int server, int process)
{
	sessions[nsessions++] = (Session){.server = server, .process = process};
}

int
session_count(void)
{
	return nsessions;
}

static Hold *
hold_in_state(Session *session, HoldState state)
{
	for (int i = 0; i < MAX_HOLDS; i++)
	{
		if (session->holds[i].state == state)
			return &session->holds[i];
	}
	return NULL;
}

static Hold *
hold_on_path(Session *session, int path, EntryKind kind, HoldState state)
{
	for (int i = 0; i < MAX_HOLDS; i++)
	{
		Hold *hold = &session->holds[i];

		if (hold->state == state && hold->path == path && hold->kind == kind)
			return hold;
	}
	return NULL;
}

static int
count_held(const Session *session, int path)
{
	int n = 0;

	for (int i = 0; i < MAX_HOLDS; i++)
		n += session->holds[i].state == HOLD_HELD && session->holds[i].path == path;
	return n;
}

static const char *
place_of(const Hold *hold)
{
	static char place[128];

	snprintf(place, sizeof(place), "%s%s%s", sim_paths[hold->path].path, hold->element[0] ? "/" : "",
			 hold->kind == CONTENDER_ELEMENT  ? hold->element
			 : hold->kind == CONTENDER_TURN	  ? PERMIT_TURNS
			 : hold->kind == CONTENDER_PERMIT ? PERMIT_LEASES
											  : "");
	return place;
}

static int64_t
czxid_of(const char *path)
{
	const ModelNode *node = model_node(path);

	return node ? node->stat.czxid : 0;
}

static void
tell(const Session *session, const Hold *hold, const char *what)
{
	if (sim_tells)
		sim_tell("session %d.%d: %s %s %s (entry %d)", session->server, session->process, what,
				 mode_names[hold->mode], place_of(hold), hold->entry);
}

/* ------------------------------------------------------------------------
 * What a session can do
 * ------------------------------------------------------------------------
 */

static void
ask(Session *session, const SimServerApi *api, Hold *hold, EntryKind kind, int path,
	LockMode mode, AskManner manner)
{
	EntryRequest request = {.proc_number = session->process,
							.pid = MyProcPid,
							.role = 10 + session->process % 2,
							.kind = kind,
							.terms = {.mode = mode,
									  .dialect = kind == CONTENDER_LOCK ? sim_paths[path].dialect
																		: DIALECT_CURATOR,
									  .permits = sim_paths[path].permits},
							.max_hold_ms = sim_one_in(16) ? 1 + sim_below(50) : 0,
							.parent_nodes = sim_one_in(4) ? PARENTS_PERSISTENT : PARENTS_CONTAINER,
							.share = SIM_ENTRIES,
							.reserve = RESERVE_OPEN,
							.manner = manner,
							.replaces = ENTRY_NONE};

	hold->path = path;
	hold->kind = kind;
	hold->mode = mode;
	hold->manner = manner;
	if (kind == CONTENDER_ELEMENT)
	{
		request.parent_nodes = PARENTS_EXISTING;
		request.max_hold_ms = 0;
	}
	else
		hold->element[0] = '\0';
	strlcpy(request.path, place_of(hold), sizeof(request.path));
	hold->entry = api->entry_ask(&request, "{\"zklock\":\"1.0\"}", LOSS_ABORT, 0);
	if (hold->entry == ENTRY_NONE)
		return;
	hold->generation = api->entry_generation(hold->entry);
	hold->state = HOLD_ASKED;
	hold->until = sim_now() + (sim_one_in(3) ? sim_below(20 * MS) : sim_below(3000 * MS));
	tell(session, hold,
		 manner == ASK_AND_WAIT	  ? "asks for"
		 : manner == ASK_AND_LOOK ? "tries"
								  : "grabs");
}

static void
give_up(Session *session, const SimServerApi *api, Hold *hold, const char *why)
{
	tell(session, hold, why);
	api->entry_give_up(hold->entry, sim_one_in(2) ? ENTRY_NOTICE : ENTRY_NO_NOTICE);
	hold->state = HOLD_DEPARTED;
	sim_changed = true;
}

/* Until when is something kept that was granted, or downgraded, now? */
static int64_t
end_of_hold(void)
{
	return sim_now() + (sim_one_in(sim_rates.long_hold) ? sim_below(2000 * MS)
														: sim_below(5 * MS * sim_pace));
}

/* Looks at what was asked for. */
static void
look_at_asked(Session *session, const SimServerApi *api, Hold *hold)
{
	EntryStatus status = api->entry_status(hold->entry);

	if (status.state == CONTENDER_GRANTED && !api->entry_is_overrun(status.expires_us))
	{
		/* In this order: a lease that was seen before is the lock's own. */
		if (api->lease_state() != LEASE_HOLDS)
			return;
		hold->state = HOLD_HELD;
		if (hold->kind == CONTENDER_ELEMENT)
			hold->czxid = czxid_of(place_of(hold));
		hold->until = end_of_hold();
		tell(session, hold, "has");
	}
	else if (status.state == CONTENDER_FAILED)
		give_up(session, api, hold, "is refused");
	else if (status.state == CONTENDER_LOST || status.state == CONTENDER_GRANTED)
		give_up(session, api, hold, "has lost at once");
	else if (sim_phase == PHASE_TURMOIL && sim_now() >= hold->until)
		give_up(session, api, hold, "waits no longer for");
}

/* The turn at a semaphore is for its lease alone. */
static void
go_on_with_turn(Session *session, const SimServerApi *api, Hold *turn)
{
	Hold *permit = hold_on_path(session, turn->path, CONTENDER_PERMIT, HOLD_ASKED);
	Hold *room = hold_in_state(session, HOLD_NONE);

	if (permit)
		return;
	if (sim_phase == PHASE_CALM)
		return;
	if (hold_on_path(session, turn->path, CONTENDER_PERMIT, HOLD_HELD) || room == NULL ||
		sim_phase == PHASE_DRAIN)
		give_up(session, api, turn, "gives back");
	else
		ask(session, api, room, CONTENDER_PERMIT, turn->path, LOCK_MODE_SHARED, ASK_AND_WAIT);
}

static void
look_at_held(Session *session, const SimServerApi *api, Hold *hold)
{
	EntryStatus status = api->entry_status(hold->entry);

	if (status.state == CONTENDER_LOST || api->entry_is_overrun(status.expires_us))
	{
		give_up(session, api, hold, "has lost");
		return;
	}
	if (hold->kind == CONTENDER_TURN)
	{
		go_on_with_turn(session, api, hold);
		return;
	}
	if (sim_phase == PHASE_CALM || (sim_phase == PHASE_TURMOIL && sim_now() < hold->until))
		return;
	if (hold->kind == CONTENDER_ELEMENT && sim_one_in(2))
	{
		/* Its transaction commits, as the guard has nothing against it. */
		if (api->lease_state() != LEASE_HOLDS)
			return;
		status = api->entry_status(hold->entry);
		if (status.state == CONTENDER_GRANTED)
		{
			api->entry_consume(hold->entry);
			check_consumed(api->session_id(), hold->path, hold->czxid);
		}
		give_up(session, api, hold, "commits the take of");
		return;
	}
	if (sim_phase == PHASE_TURMOIL && hold->kind == CONTENDER_LOCK &&
		hold->mode == LOCK_MODE_EXCLUSIVE && count_held(session, hold->path) == 1 && sim_one_in(3))
	{
		tell(session, hold, "downgrades");
		api->entry_keep_shared(hold->entry);
		hold->mode = LOCK_MODE_SHARED;
		hold->until = end_of_hold();
		sim_changed = true;
	}
	else
		give_up(session, api, hold, "gives back");
}

/* Asks ZooKeeper whether what is held is still there, as a commit does. */
static void
ask_for_check(Session *session, const SimServerApi *api, Hold *hold)
{
	ContenderEntry *entry = &server_entries(session->server)->entries[hold->entry];

	entry->status.check_wanted++;
	api->entry_mark_dirty(hold->entry);
	tell(session, hold, "checks");
}

/* Chooses one of a queue's elements, as a listing might show them.  Returns false if there is none. */
static bool
choose_element(Hold *hold, int path)
{
	const ModelNode *queue = model_node(sim_paths[path].path);
	int				 n = 0;

	for (const ModelNode *child = queue ? queue->children : NULL; child; child = child->behind)
	{
		if (sim_below(++n) == 0)
			strlcpy(hold->element, strrchr(child->path, '/') + 1, sizeof(hold->element));
	}
	return n > 0;
}

/* Has this server give leadership up, if it leads. */
static void
resign_by_chance(Session *session, const SimServerApi *api, int path)
{
	int	  election = api->election_find(sim_paths[path].path);
	int64 term;

	if (election < 0 || !sim_one_in(4) || api->election_leadership(election, &term) != LEADERSHIP_PROVED)
		return;
	sim_tell("session %d.%d: has its server resign from %s", session->server, session->process,
			 sim_paths[path].path);
	api->election_want_resign(election, term);
}

/* Asks for something, unless it is waiting, or has something on that path. */
static void
ask_by_chance(Session *session, const SimServerApi *api)
{
	Hold	 *room = hold_in_state(session, HOLD_NONE);
	int		  path = sim_below(sim_npaths);
	LockMode  mode = sim_one_in(2) ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE;
	AskManner manner = sim_one_in(3)   ? ASK_AND_LOOK
					   : sim_one_in(6) ? ASK_AND_GRAB
									   : ASK_AND_WAIT;

	if (sim_paths[path].use == USE_ELECTION)
	{
		resign_by_chance(session, api, path);
		return;
	}
	if (room == NULL || hold_in_state(session, HOLD_ASKED))
		return;
	if (sim_paths[path].use == USE_QUEUE)
	{
		if (choose_element(room, path))
			ask(session, api, room, CONTENDER_ELEMENT, path, LOCK_MODE_EXCLUSIVE,
				sim_one_in(2) ? ASK_AND_GRAB : ASK_AND_WAIT);
		return;
	}
	if (sim_paths[path].use == USE_SEMAPHORE)
	{
		if (!hold_on_path(session, path, CONTENDER_TURN, HOLD_HELD) &&
			!hold_on_path(session, path, CONTENDER_TURN, HOLD_DEPARTED) &&
			!hold_on_path(session, path, CONTENDER_PERMIT, HOLD_DEPARTED))
			ask(session, api, room, CONTENDER_TURN, path, LOCK_MODE_EXCLUSIVE, ASK_AND_WAIT);
		return;
	}
	if (manner == ASK_AND_WAIT && hold_in_state(session, HOLD_DEPARTED))
		return;

	/* An exclusive lock includes the shared one; who has that, may want more. */
	if (count_held(session, path) == 0 ||
		(mode == LOCK_MODE_EXCLUSIVE && count_held(session, path) == 1 &&
		 hold_on_path(session, path, CONTENDER_LOCK, HOLD_HELD)->mode == LOCK_MODE_SHARED))
		ask(session, api, room, CONTENDER_LOCK, path, mode, manner);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

bool
session_can_run(int i)
{
	Session *session = &sessions[i];

	if (latch_is_set(session->server, session->process))
		session->next_at = 0;
	return sim_now() >= session->next_at;
}

int64_t
session_next_timer(int i)
{
	return sessions[i].next_at;
}

void
session_run(int i)
{
	Session			   *session = &sessions[i];
	const SimServerApi *api = server_enter(session->server, session->process);

	for (int h = 0; h < MAX_HOLDS; h++)
	{
		Hold *hold = &session->holds[h];

		if (hold->state == HOLD_ASKED)
			look_at_asked(session, api, hold);
		else if (hold->state == HOLD_HELD)
			look_at_held(session, api, hold);
		if (hold->state == HOLD_DEPARTED && api->entry_is_settled(hold->entry, hold->generation))
			hold->state = HOLD_NONE;
	}
	if (sim_phase == PHASE_TURMOIL)
	{
		Hold *held = hold_in_state(session, HOLD_HELD);

		if (sim_one_in(100)) /* it ends */
		{
			for (int h = 0; h < MAX_HOLDS; h++)
			{
				Hold *hold = &session->holds[h];

				if (hold->state == HOLD_ASKED || hold->state == HOLD_HELD)
					give_up(session, api, hold, "ends and leaves");
			}
		}
		else if (held && sim_one_in(10))
			ask_for_check(session, api, held);
		else
			ask_by_chance(session, api);
	}
	session->next_at = sim_now() + (sim_phase != PHASE_TURMOIL ? sim_below(4000 * MS)
									: sim_one_in(4)			   ? sim_below(40 * MS * sim_pace)
															   : sim_below(3 * MS * sim_pace));
	server_leave();
}

/* Has it nothing, and waits for nothing? */
bool
session_is_done(int i)
{
	for (int h = 0; h < MAX_HOLDS; h++)
	{
		if (sessions[i].holds[h].state != HOLD_NONE)
			return false;
	}
	return true;
}

/* Its server has crashed; other sessions come. */
void
session_crashed(int server)
{
	for (int i = 0; i < nsessions; i++)
	{
		if (sessions[i].server == server)
			memset(sessions[i].holds, 0, sizeof(sessions[i].holds));
	}
}

void
session_describe(int i)
{
	static const char *const states[] = {"nothing", "waits for", "has", "has given up"};

	for (int h = 0; h < MAX_HOLDS; h++)
	{
		const Hold *hold = &sessions[i].holds[h];

		if (hold->state != HOLD_NONE)
			printf("  session %d.%d %s %s %s (entry %d)\n", sessions[i].server, sessions[i].process,
				   states[hold->state], mode_names[hold->mode], place_of(hold), hold->entry);
	}
}
