/*
 * wait_log.c
 *		What the log is told of a session that waits.
 *
 * With log_lock_waits, a wait that has lasted for deadlock_timeout is logged as
 * PostgreSQL does for its own locks: who holds and who waits.  Sessions of this
 * server are in shared memory.  Of others ZooKeeper knows, so the worker is asked,
 * while the session goes on waiting:
 *
 *		NOTHING -> ASKED			after deadlock_timeout
 *		NOTHING -> TOLD				likewise, if there is nobody to ask
 *		ASKED -> ASKED				the answer has come, and there is more to ask:
 *									first who is there, then who they are
 *		ASKED -> TOLD				the answer has come; or what was waited for
 *		ASKED -> NOTHING			the wait has failed meanwhile
 *
 * While ZooKeeper is away, the log is told that, and what shared memory knows.
 *
 * A session that waits for a permit of a semaphore has to wait for its turn first.  The log
 * tells of the permits' holders in either case, and of those who wait: for a permit,
 * then for the turn.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock_view.h"
#include "backend/wait.h"
#include "compat.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/session_info.h"

/* Contenders by name, with commas between them */
typedef struct Names
{
	StringInfoData text;
	int			   n; /* of them, named or not */
} Names;

/* Who holds, and who waits */
typedef struct Parties
{
	Names holders;
	Names waiters;
} Parties;

static void
add_name(Names *names, const char *name)
{
	if (names->n++ >= WAIT_LOG_NAMED)
		return;
	appendStringInfo(&names->text, "%s%s", names->n > 1 ? ", " : "", name);
}

/* The names, as the log has them. */
static const char *
names_text(Names *names)
{
	if (names->n > WAIT_LOG_NAMED)
		appendStringInfo(&names->text, _(" and %d more"), names->n - WAIT_LOG_NAMED);
	return names->text.data;
}

/* ------------------------------------------------------------------------
 * Who is in the way
 * ------------------------------------------------------------------------
 */

static int
compare_tickets(const void *a, const void *b)
{
	uint64 x = (*(const EntryCopy *const *) a)->status.ticket;
	uint64 y = (*(const EntryCopy *const *) b)->status.ticket;

	return x < y ? -1 : x > y ? 1 : 0;
}

/*
 * Adds the sessions of this server that contend on a path: those behind a node,
 * or, for NULL, all that have not been added yet.  What is added is marked by its
 * run, which nobody needs any more.
 */
static void
add_sessions(Parties *parties, EntryCopy **entries, int n, const char *path, const char *node)
{
	for (int i = 0; i < n; i++)
	{
		EntryCopy  *entry = entries[i];
		const char *name;

		if (entry->status.run_id == PG_UINT64_MAX || strcmp(entry->request.path, path) != 0 ||
			(node && strcmp(entry->node.name, node) != 0))
			continue;
		entry->status.run_id = PG_UINT64_MAX;
		name = psprintf("%d", entry->request.pid);
		if (entry->status.state == CONTENDER_GRANTED)
			add_name(&parties->holders, name);
		else if (entry->status.state == CONTENDER_QUEUED || entry->status.state == CONTENDER_REQUESTED)
			add_name(&parties->waiters, name);
	}
}

/* How another client is called: sessions of zklock as PostgreSQL would call them. */
static const char *
client_name(const ContenderNode *node)
{
	static const char process[] = "process ";

	const char *text = contenders_describe(node);

	return strncmp(text, process, strlen(process)) == 0 ? text + strlen(process) : text;
}

/*
 * Adds what ZooKeeper knows of a place, in the order of the queue.  Who has the turn
 * is left out: it has a node for a permit.
 */
static void
add_contenders(Parties *parties, const WaitLog *log, int place, EntryCopy **entries, int n)
{
	const Contenders *contenders = &log->places[place].contenders;

	for (int i = 0; i < contenders->n; i++)
	{
		const ContenderNode *node = &contenders->nodes[i];
		int					 named = parties->holders.n + parties->waiters.n;

		add_sessions(parties, entries, n, contenders->path, node->name);
		if (place > 0 && node->holds)
			continue;
		if (parties->holders.n + parties->waiters.n == named)
			add_name(node->holds ? &parties->holders : &parties->waiters, client_name(node));
	}
}

/* Is an entry of one who is to be named?  The session that has the turn has a node for a permit. */
static bool
is_party(const WaitLog *log, const EntryCopy *entry)
{
	for (int i = 0; i < log->nplaces; i++)
	{
		if (strcmp(entry->request.path, log->places[i].path) == 0)
			return i == 0 || entry->status.state != CONTENDER_GRANTED;
	}
	return false;
}

/*
 * The holders and waiters, as the DETAIL of a message; NULL if that is not known.
 * What ZooKeeper has not told is from shared memory.
 */
static const char *
describe_parties(const WaitLog *log)
{
	Parties		parties = {0};
	LockView	view;
	EntryCopy **entries;
	int			n = 0;

	initStringInfo(&parties.holders.text);
	initStringInfo(&parties.waiters.text);
	lock_view_take(&view);
	entries = palloc(Max(view.n, 1) * sizeof(EntryCopy *));
	for (int i = 0; i < view.n; i++)
	{
		if (is_party(log, &view.entries[i]))
			entries[n++] = &view.entries[i];
	}
	qsort(entries, n, sizeof(EntryCopy *), compare_tickets);
	for (int i = 0; i < log->nplaces; i++)
	{
		if (log->places[i].is_listed)
			add_contenders(&parties, log, i, entries, n);
		add_sessions(&parties, entries, n, log->places[i].path, NULL);
	}
	lock_view_drop(&view);
	if (parties.holders.n == 0)
		return NULL;
	return psprintf(parties.holders.n == 1 ? _("Process holding the lock: %s. Wait queue: %s.")
										   : _("Processes holding the lock: %s. Wait queue: %s."),
					names_text(&parties.holders), names_text(&parties.waiters));
}

/* ------------------------------------------------------------------------
 * Messages
 * ------------------------------------------------------------------------
 */

static void
add_place(WaitLog *log, RecipeId recipe, const char *below)
{
	WaitLogPlace *place = &log->places[log->nplaces++];

	snprintf(place->path, sizeof(place->path), "%s%s", log->path, below);
	place->recipe = recipe;
	place->is_listed = false;
}

/* Where the contenders are among whom an entry waits. */
static void
set_places(WaitLog *log, int index)
{
	log->nplaces = 0;
	log->place = 0;
	if (entry_at(index)->request.kind == CONTENDER_LOCK)
		add_place(log, RECIPE_LOCK, "");
	else
	{
		add_place(log, RECIPE_PERMIT, PERMIT_LEASES);
		add_place(log, RECIPE_LOCK, PERMIT_TURNS);
	}
}

static bool
begin(WaitLog *log, CallSight sight)
{
	return zklock_connected() && call_begin(&log->call, log->steps, log->nsteps, sight);
}

/* Asks who is in the next place.  Returns false if there is none, or nobody to ask. */
static bool
ask_who_is_there(WaitLog *log)
{
	if (log->place >= log->nplaces)
		return false;
	log->steps[0] = (CallStep){.kind = OP_LIST, .path = log->places[log->place].path};
	log->nsteps = 1;
	return begin(log, CALL_AFTER_SYNC);
}

/* Asks whose the first nodes of a place are, as many as a question has room for. */
static bool
ask_who_they_are(WaitLog *log)
{
	for (int most = WAIT_LOG_NAMED; most > 0; most /= 2)
	{
		log->nsteps = contenders_ask(&log->places[log->place].contenders, 0, log->steps, most);
		if (log->nsteps == 0 || begin(log, CALL_AS_KNOWN))
			break;
		log->nsteps = 0;
	}
	return log->nsteps > 0;
}

/* Takes an answer, and asks what comes next.  Returns false if nothing does. */
static bool
go_on(WaitLog *log)
{
	WaitLogPlace *place = &log->places[log->place];

	call_take(&log->call, log->steps, log->nsteps);
	if (place->is_listed)
		contenders_take(&place->contenders, 0, log->steps, log->nsteps);
	else if (log->steps[0].result.outcome == CALL_OK)
	{
		place->is_listed = true;
		contenders_take_list(&place->contenders, place->path, place->recipe, &log->steps[0]);
		if (ask_who_they_are(log))
			return true;
	}
	if (place->is_listed)
		contenders_judge(&place->contenders);
	log->place++;
	return ask_who_is_there(log);
}

/* Writes a message; "what" is what the process does. */
static void
tell(const WaitLog *log, const char *what, const char *detail)
{
	int64 us = zklock_now_us() - log->start_us;

	ereport(LOG,
			(errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld.%03d ms", MyProcPid, what,
					log->what, display_path(log->path), (long) (us / 1000), (int) (us % 1000)),
			 detail ? errdetail_log("%s", detail) : 0));
}

/* Says who is in the way, and whether ZooKeeper is away. */
static void
tell_parties(WaitLog *log, const char *what)
{
	const char	 *outage = display_outage();
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "zklock wait log", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	const char	 *parties = log->nplaces > 0 ? describe_parties(log) : NULL;

	if (outage)
		parties = psprintf("%s%s%s.", parties ? parties : "", parties ? " " : "", outage);
	tell(log, what, parties);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static void
tell_waiting(WaitLog *log)
{
	tell_parties(log, "still waiting for");
	log->state = WAIT_LOG_TOLD;
}

/* ------------------------------------------------------------------------
 * A wait
 * ------------------------------------------------------------------------
 */

void
wait_log_begin(WaitLog *log, const char *path, const char *what, int64 start_us)
{
	log->state = WAIT_LOG_NOTHING;
	log->path = path;
	log->what = what;
	log->start_us = start_us;
	log->nplaces = 0;
	log->place = 0;
	log->call = (Call){.patience = CALL_IMPATIENT};
}

/*
 * The wait has lasted for deadlock_timeout, or goes on after that.
 *
 *	index	the entry that waits, or ENTRY_NONE
 */
void
wait_log_attend(WaitLog *log, int index)
{
	if (log->state == WAIT_LOG_NOTHING)
	{
		if (index != ENTRY_NONE)
			set_places(log, index);
		if (ask_who_is_there(log))
			log->state = WAIT_LOG_ASKED;
		else
			tell_waiting(log);
	}
	else if (log->state == WAIT_LOG_ASKED && call_is_answered(&log->call) && !go_on(log))
		tell_waiting(log);
}

/* The wait is over. */
void
wait_log_granted(WaitLog *log)
{
	if (log->state == WAIT_LOG_ASKED)
	{
		call_drop(&log->call);
		log->state = WAIT_LOG_TOLD;
	}
	if (log->state == WAIT_LOG_TOLD)
		tell(log, "acquired", NULL);
}

/* A call that does not wait has found it taken; log_lock_failures wants to know that. */
void
wait_log_refused(WaitLog *log, int index)
{
	if (!compat_log_lock_failures())
		return;
	set_places(log, index);
	tell_parties(log, "could not obtain");
}

/* The wait has ended in any other way.  Cannot fail. */
void
wait_log_give_up(WaitLog *log)
{
	if (log->state != WAIT_LOG_ASKED)
		return;
	call_drop(&log->call);
	log->state = WAIT_LOG_NOTHING;
}
