/*
 * wait_log.c
 *		What the server log says about a session that waits.
 *
 * With log_lock_waits, a wait that has lasted for deadlock_timeout is logged as PostgreSQL
 * does for its own locks: who holds and who waits.  Shared memory has the sessions of this
 * server.  ZooKeeper knows the other clients, so the session asks it, unless the wait ends
 * meanwhile.  While ZooKeeper cannot be reached, the log says so, and names the sessions in
 * shared memory.
 *
 * A session that waits for a permit of a semaphore has to wait for its turn first.  In either
 * case the log names the holders of permits, then the sessions that wait for a permit, then
 * those that wait for the turn.
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

/* Number of contenders whose data are read, and of names in each list */
#define MAX_NAMED 20

/* How long a session waits for ZooKeeper's answer, ms */
#define PATIENCE_MS 10000

/* Contenders by name, with commas between them */
typedef struct Names
{
	StringInfoData text;
	int			   n; /* number of contenders, named or not */
} Names;

static void
add_name(Names *names, const char *name)
{
	if (names->text.data == NULL)
		initStringInfo(&names->text);
	if (names->n++ < MAX_NAMED)
		appendStringInfo(&names->text, "%s%s", names->n > 1 ? ", " : "", name);
}

/* Returns the names as the log has them. */
static const char *
names_text(Names *names)
{
	if (names->n > MAX_NAMED)
		appendStringInfo(&names->text, " and %d more", names->n - MAX_NAMED);
	return names->n > 0 ? names->text.data : "";
}

/* ------------------------------------------------------------------------
 * Holders and waiters
 * ------------------------------------------------------------------------
 */

static void
add_session(Names *holders, Names *waiters, const EntryCopy *entry)
{
	EntryState state = entry->status.state;

	if (state == ENTRY_GRANTED || state == ENTRY_QUEUED || state == ENTRY_REQUESTED)
		add_name(state == ENTRY_GRANTED ? holders : waiters,
				 entry->status.reserved ? "a reservation" : psprintf("%d", entry->request.pid));
}

/* Adds another client; a session of zklock is named as PostgreSQL would name it. */
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
 * Adds the contenders on a path: those that ZooKeeper lists, in the order of the queue, then
 * the other sessions of this server.
 *
 *	call	to ask ZooKeeper; or NULL
 */
static void
add_contenders(Names *holders, Names *waiters, const char *path, const Recipe *recipe, Caller *call)
{
	Contenders listed = {.path = path, .recipe = recipe};
	LockView   ours;
	bool	  *added;

	if (call && zklock_connected())
		(void) contenders_read(&listed, call, MAX_NAMED, CALL_AFTER_SYNC);
	ours = lock_view_of_path(path);
	added = palloc0(Max(ours.n, 1) * sizeof(bool));
	for (int i = 0; i < listed.n; i++)
	{
		bool is_ours = false;

		for (int k = 0; k < ours.n; k++)
		{
			if (strcmp(ours.entries[k]->node.name, listed.nodes[i].name) != 0)
				continue;
			add_session(holders, waiters, ours.entries[k]);
			is_ours = added[k] = true;
		}
		if (!is_ours)
			add_client(holders, waiters, &listed.nodes[i]);
	}
	for (int k = 0; k < ours.n; k++)
	{
		if (!added[k])
			add_session(holders, waiters, ours.entries[k]);
	}
}

/*
 * Returns the holders and waiters as the DETAIL of a message, or NULL if they are not known.
 *
 *	call	to ask ZooKeeper; or NULL, to use only shared memory
 */
static const char *
describe_parties(const Wait *wait, Caller *call)
{
	Names holders = {0};
	Names waiters = {0};
	Names turn = {0}; /* its holder also has a node for a permit */

	if (wait->entry == ENTRY_NONE)
		return NULL;
	if (entry_at(wait->entry)->request.kind == REQUEST_LOCK)
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

/* Logs a message; "what" is what the process does. */
static void
log_wait(const Wait *wait, const char *what, const char *detail)
{
	int64 us = zklock_now_us() - wait->counted.start_us;

	ereport(LOG,
			(errmsg("process %d %s %s on ZooKeeper path \"%s\" after %ld.%03d ms", MyProcPid, what,
					wait->what, display_path(wait->path), (long) (us / 1000), (int) (us % 1000)),
			 detail ? errdetail_log("%s", detail) : 0));
}

/* Logs a message with the holders and waiters, and says if ZooKeeper cannot be reached. */
static void
log_parties(const Wait *wait, const char *what, const char *parties)
{
	const char *outage = display_outage();

	if (outage)
		parties = psprintf("%s%s%s.", parties ? parties : "", parties ? " " : "", outage);
	log_wait(wait, what, parties);
}

/* Returns true if the worker has decided about the entry that the session waits for. */
static bool
is_decided(const Wait *wait)
{
	EntryState state;

	if (wait->entry == ENTRY_NONE)
		return false;
	state = entry_status(wait->entry).state;
	return state != ENTRY_REQUESTED && state != ENTRY_QUEUED;
}

static bool
is_called_away_from_log(void *arg)
{
	return InterruptPending || !zklock_connected() || is_decided(arg);
}

/*
 * Logs that the wait has lasted for deadlock_timeout.  If the wait ends while ZooKeeper is
 * asked for the contenders, only its end is logged.  The caller frees the memory.
 *
 *	until	the session has something else to do then, ms
 */
void
wait_log_lasting(Wait *wait, int64 until)
{
	Caller		call = {.until = Min(until, zklock_now_ms() + PATIENCE_MS),
						.is_called_away = is_called_away_from_log,
						.away_arg = wait};
	const char *parties = describe_parties(wait, &call);

	/* After an interrupt that does not end the wait, this is called again. */
	wait->is_logged = !InterruptPending;
	if (wait->is_logged && !is_decided(wait))
		log_parties(wait, "still waiting for", parties);

	/* The latch may have been set for what the session waits for. */
	SetLatch(MyLatch);
}

/* Logs that the lock was acquired, if the wait has lasted for deadlock_timeout. */
void
wait_log_granted(const Wait *wait)
{
	if (wait->is_logged)
		log_wait(wait, "acquired", NULL);
}

/*
 * Logs that a call that does not wait has found the lock taken, if log_lock_failures is set.
 */
void
wait_log_refused(const Wait *wait)
{
	if (compat_log_lock_failures())
		log_parties(wait, "could not obtain", describe_parties(wait, NULL));
}
