/*
 * release.c
 *		Releasing what is held at session level.
 *
 * A call gives up what it is to release, by steps that cannot fail and do not wait.
 * Only then it warns, and waits until others can have it: both look at interrupts,
 * and a cancellation finds all of it released.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/hold.h"
#include "miscadmin.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/latch.h"

static void
warn_lost(const Hold *hold)
{
	const char *shown = display_path(hold->path);

	ereport(WARNING,
			(hold->kind == CONTENDER_LOCK
				 ? errmsg("lock on ZooKeeper path \"%s\" was lost before it was released", shown)
				 : errmsg("permit of semaphore \"%s\" was lost before it was released", shown)));
}

static void
warn_not_held(const LockTarget *target)
{
	const char *shown = display_path(target->path);
	const Hold *hold = hold_of_lock(target->path, target->mode);

	ereport(WARNING,
			(target->mode == LOCK_MODE_EXCLUSIVE
				 ? errmsg("you don't own a session-level exclusive lock on ZooKeeper path \"%s\"", shown)
				 : errmsg("you don't own a session-level shared lock on ZooKeeper path \"%s\"", shown),
			 hold && hold->acquired[target->mode][LOCK_SCOPE_TRANSACTION] > 0
				 ? errhint("The transaction owns the lock, and releases it at its end.")
				 : 0));
}

/*
 * Waits until the worker is done with what the call gave up, but not for ZooKeeper to
 * come back.  A cancellation ends the wait only.
 */
static void
wait_until_gone(void)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (hold_departures_are_done() || !zklock_connected())
			return;
		CHECK_FOR_INTERRUPTS();

		/* No latch is set when a lease ends while the worker is stopped. */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
						 zklock_wait_event(ZKLOCK_WAIT_UNLOCK));
	}
}

/*
 * Undoes one session-level acquisition of each of these that is held, the last first.
 *
 * Returns false, with a warning, if one was lost.
 */
static bool
release(LockTarget *targets, int n)
{
	bool *lost = palloc0(n * sizeof(bool));
	bool  good = true;

	for (int i = n - 1; i >= 0; i--)
	{
		Hold *hold = targets[i].hold;

		if (hold == NULL)
			continue;
		lost[i] = hold_is_lost(hold);
		guard_release(hold, targets[i].mode, 1);
	}
	for (int i = n - 1; i >= 0; i--)
	{
		if (lost[i])
			warn_lost(targets[i].hold);
		good &= !lost[i];
	}
	return good;
}

/* A lock that is held at session level; NULL if it is not. */
static Hold *
find_held(const LockTarget *target)
{
	Hold *hold = hold_of_lock(target->path, target->mode);

	return hold && hold->acquired[target->mode][LOCK_SCOPE_SESSION] > 0 ? hold : NULL;
}

/*
 * Undoes one session-level acquisition of each lock of a set.  Then waits until those
 * that are not acquired any more are free for everyone, or free to share if
 * downgraded.
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
lock_release(const LockSet *set)
{
	bool held = true;
	bool good = true;

	hold_begin_call();
	for (int i = 0; i < set->n; i++)
	{
		set->targets[i].hold = find_held(&set->targets[i]);
		held &= set->targets[i].hold != NULL;
	}
	if (held || !set->whole)
		good = release(set->targets, set->n);
	for (int i = set->n - 1; i >= 0; i--)
	{
		if (set->targets[i].hold == NULL)
			warn_not_held(&set->targets[i]);
	}
	wait_until_gone();
	return good && held;
}

/*
 * Undoes all acquisitions of this session at session level, permits included, and
 * waits until the worker is done with them.
 */
void
lock_release_all(void)
{
	Hold **lost;
	int	   nlost = 0;
	int	   n = 0;
	Hold  *next;

	for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		n++;
	lost = palloc(n * sizeof(Hold *));
	hold_begin_call();
	for (Hold *hold = hold_next(NULL); hold != NULL; hold = next)
	{
		next = hold_next(hold);
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION))
			continue;
		if (hold_is_lost(hold))
			lost[nlost++] = hold;

		/* The exclusive lock goes last, so it need not be downgraded on the way. */
		for (int mode = lengthof(hold->acquired) - 1; mode >= 0; mode--)
		{
			if (hold->acquired[mode][LOCK_SCOPE_SESSION] > 0)
				guard_release(hold, mode, hold->acquired[mode][LOCK_SCOPE_SESSION]);
		}
	}
	for (int i = 0; i < nlost; i++)
		warn_lost(lost[i]);
	wait_until_gone();
}

/*
 * Releases one permit of a semaphore that is held at session level, and waits until
 * others can have it.  A lost one goes first, so that those left are good; else the
 * youngest.
 *
 * Returns false, with a warning, if the session held none or if it was lost.
 */
bool
permit_release(const char *path)
{
	LockTarget chosen = {.path = path, .mode = LOCK_MODE_EXCLUSIVE};
	bool	   lost = false;
	bool	   in_transaction = false;
	bool	   good;

	for (Hold *hold = hold_next(NULL); hold != NULL && !lost; hold = hold_next(hold))
	{
		if (hold->kind != CONTENDER_PERMIT || strcmp(hold->path, path) != 0)
			continue;
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION))
		{
			in_transaction = true;
			continue;
		}
		chosen.hold = hold;
		lost = hold_is_lost(hold);
	}
	if (chosen.hold == NULL)
	{
		ereport(WARNING,
				(errmsg("you don't own a session-level permit of semaphore \"%s\"", display_path(path)),
				 in_transaction ? errhint("The transaction owns its permits, and releases them at its end.")
								: 0));
		return false;
	}
	hold_begin_call();
	good = release(&chosen, 1);
	wait_until_gone();
	return good;
}
