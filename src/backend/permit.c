/*
 * permit.c
 *		The permits of semaphores that a session holds.
 *
 * A permit is had in two steps, as by Curator's InterProcessSemaphoreV2.
 * First comes the turn: the exclusive lock on <path>/locks, for which the
 * sessions of this server queue like for any other.  Whose turn it is asks for
 * a lease on <path>/leases, waits there until it is a permit, and then gives
 * the turn up.  So permits are given out in the order in which they were asked
 * for, and only one client in all watches the leases.
 *
 * The turn brings order, not safety (see permit_recipe.c).  Therefore who has
 * lost it goes on waiting for the lease, and a call that does not wait asks
 * for no turn: while somebody waits, the leases show that no permit is free.
 *
 * Turn and lease have an entry each, in "permits" before anything can fail or
 * interrupt.  A permit held has one entry.  A session may hold several of one
 * semaphore; they belong to the session, not to a transaction.
 *
 * Runs in: backends.  The list is private; entries are changed under their
 * spinlocks, along the arrows drawn in shared/entry.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/permit.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "lib/ilist.h"
#include "shared/lease_state.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

typedef struct Permit
{
	dlist_node	node; /* in permits */
	int			turn; /* entries; NO_ENTRY if none */
	int			lease;
	CommitGuard taken_under;				 /* zklock.commit_guard */
	char		path[FLEXIBLE_ARRAY_MEMBER]; /* of the semaphore */
} Permit;

static dlist_head permits = DLIST_STATIC_INIT(permits); /* oldest first */
static int		  npermits = 0;

/* Gives back everything; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	dlist_iter iter;

	(void) code;
	(void) arg;
	dlist_foreach (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, node, iter.cur);

		if (permit->turn != NO_ENTRY)
			(void) entry_release(permit->turn, false);
		if (permit->lease != NO_ENTRY)
			(void) entry_release(permit->lease, false);
	}
	dlist_init(&permits);
}

/* Puts a permit into the list, with nothing yet. */
static Permit *
permit_new(const char *path)
{
	static bool registered = false;
	Size		len = strlen(path) + 1;
	Permit	   *permit = MemoryContextAlloc(TopMemoryContext, offsetof(Permit, path) + len);

	if (!registered)
		on_shmem_exit(release_at_exit, 0);
	registered = true;

	permit->turn = NO_ENTRY;
	permit->lease = NO_ENTRY;
	permit->taken_under = zklock_commit_guard;
	memcpy(permit->path, path, len);
	dlist_push_tail(&permits, &permit->node);
	npermits++;
	return permit;
}

/* It is no longer this one's turn.  Cannot fail, does not wait. */
static void
permit_end_turn(Permit *permit)
{
	if (permit->turn != NO_ENTRY)
		(void) entry_release(permit->turn, false);
	permit->turn = NO_ENTRY;
}

/* Gives up all that a permit has, and the permit.  Cannot fail, does not wait. */
static void
permit_drop(Permit *permit)
{
	permit_end_turn(permit);
	if (permit->lease != NO_ENTRY)
		(void) entry_release(permit->lease, false);
	dlist_delete(&permit->node);
	npermits--;
	pfree(permit);
}

/* The same for a permit that is held, when somebody waits for its end. */
static Handover
permit_hand_over(Permit *permit)
{
	bool	 proved = lease_state() == LEASE_HOLDS;
	Handover handover;

	guard_released(permit->taken_under, proved && !entry_is_lost(permit->lease));
	handover = entry_release(permit->lease, true);

	permit->lease = NO_ENTRY;
	permit_drop(permit);
	return handover;
}

/* Asks the worker, and waits for its answer. */
static bool
permit_request(Permit *permit, int number, TimestampTz since, Wait *wait)
{
	char			 path[ZKLOCK_MAX_PATH + 1];
	ContenderRequest request = {.path = path, .mode = LOCK_MODE_EXCLUSIVE, .since = since};

	if (wait->timeout_ms != LOCK_NO_WAIT)
	{
		snprintf(path, sizeof(path), "%s" PERMIT_TURNS, permit->path);
		request.kind = CONTENDER_TURN;
		permit->turn = request_contender(&request);
		entry_mark_dirty(permit->turn);
		if (!wait_for_entry(wait, permit->turn))
			return false;
	}

	snprintf(path, sizeof(path), "%s" PERMIT_LEASES, permit->path);
	request.kind = CONTENDER_PERMIT;
	request.permits = number;
	request.nowait = wait->timeout_ms == LOCK_NO_WAIT;
	permit->lease = request_contender(&request);
	entry_mark_dirty(permit->lease);
	if (!wait_for_entry(wait, permit->lease))
		return false;
	wait_end(wait);
	return true;
}

/* Tells the user when others have another idea of the number of permits. */
static void
report_disagreement(const Permit *permit, int number)
{
	ContenderEntry *entry;
	int				others;

	if (permit->lease == NO_ENTRY)
		return;
	entry = entry_at(permit->lease);
	SpinLockAcquire(&entry->mutex);
	others = entry->status.others_permits;
	SpinLockRelease(&entry->mutex);
	if (others == 0 || others == number)
		return;
	ereport(NOTICE, (errmsg("semaphore \"%s\" is in use with another number of permits",
							display_path(permit->path)),
					 errdetail("This call asked for one of %d permits, a holder for one of %d; the smaller number counts.",
							   number, others)));
}

/*
 * Acquires one more permit of a semaphore with the given number of them.
 *
 *	path		UTF-8, checked
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *
 * Returns false if there was none in that time.  Errors leave nothing behind.
 */
bool
permit_acquire(const char *path, int number, int64 timeout_ms)
{
	Permit *permit;
	Wait	wait;
	bool	held;

	backend_start_session();
	permit = permit_new(path);
	PG_TRY();
	{
		wait_begin(&wait, path, "SemaphorePermit", timeout_ms);
		if (LockTimeout > 0)
			enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
		held = permit_request(permit, number, GetCurrentTimestamp(), &wait);
		if (LockTimeout > 0)
			disable_timeout(LOCK_TIMEOUT, true);
		report_disagreement(permit, number);
	}
	PG_CATCH();
	{
		/* Keep the indicator: an interrupt still to come may be the timeout's. */
		disable_timeout(LOCK_TIMEOUT, true);
		permit_drop(permit);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (held)
	{
		ContenderEntry *entry = entry_at(permit->lease);

		permit_end_turn(permit);
		SpinLockAcquire(&entry->mutex);
		entry->status.session_count = 1;
		SpinLockRelease(&entry->mutex);
	}
	else
		permit_drop(permit);
	return held;
}

static bool
permit_is_lost(const Permit *permit)
{
	return entry_is_lost(permit->lease);
}

static void
warn_lost(const Permit *permit)
{
	ereport(WARNING, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					  errmsg("permit of semaphore \"%s\" was lost before it was released",
							 display_path(permit->path))));
}

/*
 * Releases one permit of a semaphore, and waits until others can have it.  A
 * lost one goes first, so that those left are good; else the youngest.
 *
 * Returns false, with a warning, if the session held none.
 */
bool
permit_release(const char *path)
{
	Permit	  *chosen = NULL;
	dlist_iter iter;
	bool	   lost = false;
	Handover   handover;

	dlist_foreach (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, node, iter.cur);

		if (lost || strcmp(permit->path, path) != 0)
			continue;
		chosen = permit;
		lost = permit_is_lost(permit);
	}
	if (chosen == NULL)
	{
		ereport(WARNING, (errmsg("you don't own a permit of semaphore \"%s\"", display_path(path))));
		return false;
	}
	if (lost)
		warn_lost(chosen);
	handover = permit_hand_over(chosen);
	if (!lost)
		wait_for_handover(handover);
	return !lost;
}

/* How many permits the session has, lost ones included. */
int
permit_count(void)
{
	return npermits;
}

/*
 * Releases all permits, without waiting.  Stores what to wait for in an array
 * with room for permit_count() and returns how much that is.
 */
int
permit_release_all(Handover *handovers)
{
	dlist_mutable_iter iter;
	int				   n = 0;

	dlist_foreach_modify (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, node, iter.cur);

		if (permit_is_lost(permit))
			warn_lost(permit);
		handovers[n++] = permit_hand_over(permit);
	}
	return n;
}

/* Calls "visit" for each permit. */
void
permit_visit(HoldVisitor visit, void *arg)
{
	dlist_iter iter;

	dlist_foreach (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, node, iter.cur);

		if (permit->lease != NO_ENTRY)
			visit(permit->lease, permit->path, permit->taken_under, arg);
	}
}
