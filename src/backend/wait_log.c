/*
 * wait_log.c
 *		What the log is told of a session that waits.
 *
 * With log_lock_waits, a wait that has lasted for deadlock_timeout is logged as
 * PostgreSQL does for its own locks: who holds and who waits.  Sessions of this
 * server are in shared memory.  Of others ZooKeeper knows, so it is asked, unless the
 * wait ends meanwhile.  While ZooKeeper is away, the log is told that, and what shared
 * memory knows.
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

#include "backend/contenders.h"
#include "backend/display.h"
#include "backend/wait.h"
#include "compat.h"
#include "miscadmin.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/session_info.h"

/* Of so many contenders data are read, and so many are named in each list. */
#define MAX_NAMED 20

/* An answer is not waited for any longer, ms. */
#define PATIENCE_MS 10000

/* Contenders by name, with commas between them */
typedef struct Names
{
	StringInfoData text;
	int			   n; /* of them, named or not */
} Names;

static void
add_name(Names *names, const char *name)
{
	if (names->text.data == NULL)
		initStringInfo(&names->text);
	if (names->n++ < MAX_NAMED)
		appendStringInfo(&names->text, "%s%s", names->n > 1 ? ", " : "", name);
}

/* The names, as the log has them. */
static const char *
names_text(Names *names)
{
	if (names->n > MAX_NAMED)
		appendStringInfo(&names->text, " and %d more", names->n - MAX_NAMED);
	return names->n > 0 ? names->text.data : "";
}

/* ------------------------------------------------------------------------
 * Who is in the way
 * ------------------------------------------------------------------------
 */

static void
add_session(Names *holders, Names *waiters, const EntryCopy *entry)
{
	ContenderState state = entry->status.state;

	if (state == CONTENDER_GRANTED || state == CONTENDER_QUEUED || state == CONTENDER_REQUESTED)
		add_name(state == CONTENDER_GRANTED ? holders : waiters, psprintf("%d", entry->request.pid));
}

/* Another client; sessions of zklock are called as PostgreSQL would call them. */
static void
add_client(Names *holders, Names *waiters, const ContenderNode *node)
{
	static const char process[] = "process ";

	const char *name = contenders_describe(node);

	if (strncmp(name, process, strlen(process)) == 0)
		name += strlen(process);
	add_name(node->holds ? holders : waiters, name);
}

/*
 * Adds the contenders on a path: those whom ZooKeeper tells, in the order of the queue,
 * then the other sessions of this server.
 *
 *	call	to ask ZooKeeper; or NULL
 */
static void
add_contenders(Names *holders, Names *waiters, const char *path, const Recipe *recipe, Call *call)
{
	Contenders told = {.path = path, .recipe = recipe};
	LockView   ours;
	bool	  *added;

	if (call && zklock_connected())
		(void) contenders_read(&told, call, MAX_NAMED, CALL_AFTER_SYNC);
	ours = lock_view_of_path(path);
	added = palloc0(Max(ours.n, 1) * sizeof(bool));
	for (int i = 0; i < told.n; i++)
	{
		bool is_ours = false;

		for (int k = 0; k < ours.n; k++)
		{
			if (strcmp(ours.entries[k]->node.name, told.nodes[i].name) != 0)
				continue;
			add_session(holders, waiters, ours.entries[k]);
			is_ours = added[k] = true;
		}
		if (!is_ours)
			add_client(holders, waiters, &told.nodes[i]);
	}
	for (int k = 0; k < ours.n; k++)
	{
		if (!added[k])
			add_session(holders, waiters, ours.entries[k]);
	}
}

/*
 * The holders and those who wait, as the DETAIL of a message; NULL if they are not known.
 *
 *	call	to ask ZooKeeper; or NULL: what is in shared memory
 */
static const char *
describe_parties(const Wait *wait, Call *call)
{
	Names holders = {0};
	Names waiters = {0};
	Names turn = {0}; /* who has it has a node for a permit besides */

	if (wait->entry == ENTRY_NONE)
		return NULL;
	if (entry_at(wait->entry)->request.kind == CONTENDER_LOCK)
		add_contenders(&holders, &waiters, wait->path, &lock_recipe, call);
	else
	{
		add_contenders(&holders, &waiters, psprintf("%s" PERMIT_LEASES, wait->path),
					   &permit_recipe, call);
		add_contenders(&turn, &waiters, psprintf("%s" PERMIT_TURNS, wait->path), &lock_recipe, call);
	}
	if (holders.n == 0)
		return NULL;
	return psprintf(holders.n == 1 ? "Process holding the lock: %s. Wait queue: %s."
								   : "Processes holding the lock: %s. Wait queue: %s.",
					names_text(&holders), names_text(&waiters));
}

/* ------------------------------------------------------------------------
 * Messages
 * ------------------------------------------------------------------------
 */

/* Writes a message; "what" is what the process does. */
static void
tell(const Wait *wait, const char *what, const char *detail)
{
	int64 us = zklock_now_us() - wait->counted.start_us;

	ereport(LOG,
			(errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld.%03d ms", MyProcPid, what,
					wait->what, display_path(wait->path), (long) (us / 1000), (int) (us % 1000)),
			 detail ? errdetail_log("%s", detail) : 0));
}

/* Says who is in the way, and whether ZooKeeper is away. */
static void
tell_parties(const Wait *wait, const char *what, const char *parties)
{
	const char *outage = display_outage();

	if (outage)
		parties = psprintf("%s%s%s.", parties ? parties : "", parties ? " " : "", outage);
	tell(wait, what, parties);
}

/* Has the worker decided about what the session waits for? */
static bool
is_decided(const Wait *wait)
{
	ContenderState state;

	if (wait->entry == ENTRY_NONE)
		return false;
	state = entry_status(wait->entry).state;
	return state != CONTENDER_REQUESTED && state != CONTENDER_QUEUED;
}

static bool
is_called_away(void *arg)
{
	return InterruptPending || !zklock_connected() || is_decided(arg);
}

/*
 * The wait has lasted for deadlock_timeout.  If it ends while ZooKeeper is asked who is
 * in the way, the log hears of its end alone.  Memory is the caller's to free.
 *
 *	until	the session has something else to do then, ms
 */
void
wait_log_lasting(Wait *wait, int64 until)
{
	Call		call = {.until = Min(until, zklock_now_ms() + PATIENCE_MS),
						.is_called_away = is_called_away,
						.away_arg = wait};
	const char *parties = describe_parties(wait, &call);

	/* After an interrupt that does not end the wait, this is called again. */
	wait->is_logged = !InterruptPending;
	if (wait->is_logged && !is_decided(wait))
		tell_parties(wait, "still waiting for", parties);

	/* The latch may have been set for what the session waits for. */
	SetLatch(MyLatch);
}

/* The wait is over. */
void
wait_log_granted(const Wait *wait)
{
	if (wait->is_logged)
		tell(wait, "acquired", NULL);
}

/* A call that does not wait has found it taken; log_lock_failures wants to know that. */
void
wait_log_refused(const Wait *wait)
{
	if (compat_log_lock_failures())
		tell_parties(wait, "could not obtain", describe_parties(wait, NULL));
}
