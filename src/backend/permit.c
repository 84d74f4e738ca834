/*
 * permit.c
 *		The permits of semaphores that a session holds.
 *
 * A session gets a permit in two steps, as with Curator's
 * InterProcessSemaphoreV2.  First comes the turn: the exclusive lock on
 * <path>/locks, for which the sessions of this server queue like for any other.
 * The session whose turn it is asks for a node in <path>/leases, waits there
 * until the node is a permit, and then gives the turn up.  So permits are given
 * out in the order in which sessions ask for them, and only one client in all
 * watches the permits' nodes.
 *
 * The turn brings order, not safety (see permit_recipe.c).  Therefore a session
 * that has lost it goes on waiting for the permit, and a call that does not wait
 * asks for no turn: while somebody waits, the nodes show that no permit is free.
 *
 * Turn and permit are a hold each, known to hold.c before anything can fail or
 * interrupt.  A session may hold several permits of one semaphore.  Each is held
 * at session level, or by a subtransaction, with which it goes.
 *
 * Runs in: backends.  The list is private; entries are changed under their
 * spinlocks, along the arrows drawn in shmem.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/hold.h"
#include "backend/permit.h"
#include "backend/request.h"
#include "shared/lease_state.h"
#include "shared/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct Permit
{
	dlist_node		 link; /* in permits */
	Hold			 turn; /* while the permit is waited for */
	Hold			 hold; /* the permit itself */
	LockScope		 scope;
	SubTransactionId subid;						  /* transaction level: whose it is */
	char			 path[FLEXIBLE_ARRAY_MEMBER]; /* of the semaphore */
} Permit;

static dlist_head permits = DLIST_STATIC_INIT(permits); /* oldest first */

/* Puts a permit into the list, with nothing yet. */
static Permit *
permit_new(const char *path, LockScope scope)
{
	Size	len = strlen(path) + 1;
	Permit *permit = MemoryContextAlloc(TopMemoryContext, offsetof(Permit, path) + len);

	memcpy(permit->path, path, len);
	permit->scope = scope;
	permit->subid = GetCurrentSubTransactionId();
	hold_init(&permit->turn, permit->path, STATS_SEMAPHORE);
	hold_init(&permit->hold, permit->path, STATS_SEMAPHORE);
	dlist_push_tail(&permits, &permit->link);
	return permit;
}

/*
 * Gives up all that a permit has, and the permit.  Cannot fail, does not wait;
 * "awaited" is as for hold_release().
 */
static void
permit_drop(Permit *permit, HandoverList *awaited)
{
	hold_release(&permit->turn, NULL);
	hold_release(&permit->hold, awaited);
	dlist_delete(&permit->link);
	pfree(permit);
}

/* Likewise, a permit that is held. */
static void
permit_give_up(Permit *permit, HandoverList *awaited)
{
	guard_released(permit->hold.taken_under, guard_proof(permit->hold.entry));
	permit_drop(permit, awaited);
}

/* Asks the worker, first for the turn, and waits for its answers. */
static bool
permit_request(Permit *permit, int number, Wait *wait)
{
	char			 path[ZKLOCK_MAX_PATH + 1];
	ContenderRequest request = {.path = path,
								.mode = LOCK_MODE_EXCLUSIVE,
								.scope = permit->scope,
								.since = GetCurrentTimestamp()};

	if (wait->timeout_ms != LOCK_NO_WAIT)
	{
		snprintf(path, sizeof(path), "%s" PERMIT_TURNS, permit->path);
		request.kind = CONTENDER_TURN;
		if (!hold_acquire(&permit->turn, &request, wait))
			return false;
	}

	snprintf(path, sizeof(path), "%s" PERMIT_LEASES, permit->path);
	request.kind = CONTENDER_PERMIT;
	request.permits = number;
	request.nowait = wait->timeout_ms == LOCK_NO_WAIT;
	if (!hold_acquire(&permit->hold, &request, wait))
		return false;
	wait_end(wait);
	return true;
}

/* Tells the user when others have another idea of the number of permits. */
static void
report_disagreement(const Permit *permit, int number)
{
	int others;

	if (permit->hold.entry == ENTRY_NONE)
		return;
	others = entry_status(permit->hold.entry).others_permits;
	if (others == 0 || others == number)
		return;
	ereport(NOTICE, (errmsg("semaphore \"%s\" is in use with another number of permits",
							display_path(permit->path)),
					 errdetail("This call asked for one of %d permits, a holder for one of %d; the smaller number counts.",
							   number, others)));
}

/*
 * Acquires one more permit of a semaphore with the given number of them, after
 * transaction_start_session().
 *
 *	path		UTF-8, checked
 *	scope		transaction level: until the transaction ends, or is rolled back to
 *				an earlier savepoint
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *
 * Returns false if there was none in that time.  Errors leave nothing behind.
 */
bool
permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms)
{
	Permit				*permit;
	Wait				 wait;
	volatile bool		 held = false;
	ErrorContextCallback context;

	interrupt_context_begin(&context);
	permit = permit_new(path, scope);
	PG_TRY();
	{
		bool granted;

		wait_begin(&wait, path, "SemaphorePermit", timeout_ms);
		granted = permit_request(permit, number, &wait);
		report_disagreement(permit, number);
		held = granted;
	}
	PG_FINALLY();
	{
		if (!held)
			permit_drop(permit, NULL);
	}
	PG_END_TRY();
	interrupt_context_end(&context);

	if (held)
	{
		hold_release(&permit->turn, NULL);
		hold_count(&permit->hold, permit->scope);
	}
	return held;
}

static bool
permit_is_lost(const Permit *permit)
{
	return entry_is_lost(permit->hold.entry);
}

static void
warn_lost(const Permit *permit)
{
	ereport(WARNING, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					  errmsg("permit of semaphore \"%s\" was lost before it was released",
							 display_path(permit->path))));
}

/*
 * Releases one permit of a semaphore that is held at session level, and waits until
 * others can have it.  A lost one goes first, so that those left are good; else the youngest.
 *
 * Returns false, with a warning, if the session held none.
 */
bool
permit_release(const char *path)
{
	Permit		*chosen = NULL;
	dlist_iter	 iter;
	bool		 lost = false;
	HandoverList awaited;

	dlist_foreach (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, link, iter.cur);

		if (lost || permit->scope != LOCK_SCOPE_SESSION || strcmp(permit->path, path) != 0)
			continue;
		chosen = permit;
		lost = permit_is_lost(permit);
	}
	if (chosen == NULL)
	{
		ereport(WARNING, (errmsg("you don't own a session-level permit of semaphore \"%s\"",
								 display_path(path))));
		return false;
	}
	handover_list_init(&awaited, 1);
	if (lost)
		warn_lost(chosen);
	permit_give_up(chosen, lost ? NULL : &awaited);
	handover_list_wait(&awaited);
	return !lost;
}

/*
 * Releases all permits at session level, without waiting.  "awaited" gets what is still to be
 * done, and has room for hold_number() more.
 */
void
permit_release_all(HandoverList *awaited)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, link, iter.cur);

		if (permit->scope != LOCK_SCOPE_SESSION)
			continue;
		if (permit_is_lost(permit))
			warn_lost(permit);
		permit_give_up(permit, awaited);
	}
}

/* Does the transaction hold permits that end with it? */
bool
permit_has_transaction_permits(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &permits)
	{
		if (dlist_container(Permit, link, iter.cur)->scope == LOCK_SCOPE_TRANSACTION)
			return true;
	}
	return false;
}

/* The transaction ends, and so do its permits.  Cannot fail, does not wait. */
void
permit_end_transaction(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, link, iter.cur);

		if (permit->scope == LOCK_SCOPE_TRANSACTION)
			permit_drop(permit, NULL);
	}
}

/* A subtransaction ends: its permits become its parent's, or go.  Cannot fail, does not wait. */
void
permit_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &permits)
	{
		Permit *permit = dlist_container(Permit, link, iter.cur);

		if (permit->scope != LOCK_SCOPE_TRANSACTION || permit->subid != subid)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			permit->subid = parent;
		else if (event == SUBXACT_EVENT_ABORT_SUB)
			permit_drop(permit, NULL);
	}
}
