/*
 * release.c
 *		Releasing locks and permits that are held at session level.
 *
 * A call first gives up all that it is to release, by steps that cannot fail and do not wait.
 * Only then it raises warnings, and waits until others can have the locks.  Both look at
 * interrupts, and a cancellation finds everything released.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "shared/common.h"

/* Raises a WARNING for each hold that was lost.  Returns true if there were any. */
static bool
warn_lost(Hold *const *released, int n)
{
	bool any = false;

	for (int i = 0; i < n; i++)
	{
		const Hold *hold = released[i];
		const char *shown;

		if (!hold->released_lost)
			continue;
		any = true;
		shown = display_path(hold->path);
		ereport(WARNING,
				(hold->kind == REQUEST_LOCK
					 ? errmsg("lock on ZooKeeper path \"%s\" was lost before it was released", shown)
					 : errmsg("permit of semaphore \"%s\" was lost before it was released", shown)));
	}
	return any;
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
 * Looks whether the worker is done with a hold.  The session does not wait for ZooKeeper to
 * come back, nor for it to do what it refuses.
 */
static WaitAnswer
look_whether_released(const Wait *wait, void *arg)
{
	const Hold *hold = arg;

	if (hold_is_settled(hold))
		return WAIT_OVER;
	return entry_will_settle(hold->entry) ? WAIT_POLLED : WAIT_REFUSED;
}

/*
 * Waits until others can have what the call has given up.  A cancellation ends only the wait.
 */
static void
wait_until_settled(Hold *const *released, int n)
{
	for (int i = 0; i < n; i++)
	{
		Wait wait;

		wait_begin(&wait, released[i]->path, "a release", WAIT_UNCOUNTED, LOCK_WAIT_FOREVER);
		wait.event = ZKLOCK_WAIT_UNLOCK;
		(void) wait_until(&wait, look_whether_released, released[i]);
	}
}

/* Returns a lock that is held at session level, or NULL if it is not. */
static Hold *
find_held(const LockTarget *target)
{
	Hold *hold = hold_of_lock(target->path, target->mode);

	return hold && hold->acquired[target->mode][LOCK_SCOPE_SESSION] > 0 ? hold : NULL;
}

/*
 * Undoes one session-level acquisition of each lock of a set.  Then waits until the locks
 * that are not acquired any more are free for everyone, or free to share if downgraded.
 *
 * Returns false, with a warning, if a lock was not held or was lost.
 */
bool
lock_release(LockSet set)
{
	Hold **released = palloc(set.n * sizeof(Hold *));
	int	   n = 0;
	bool   held = true;
	bool   lost;

	for (int i = 0; i < set.n; i++)
	{
		set.targets[i].hold = find_held(&set.targets[i]);
		held &= set.targets[i].hold != NULL;
	}
	for (int i = set.n - 1; i >= 0 && (held || !set.whole); i--)
	{
		if (set.targets[i].hold == NULL)
			continue;
		released[n++] = set.targets[i].hold;
		guard_release(set.targets[i].hold, set.targets[i].mode, 1);
	}
	lost = warn_lost(released, n);
	for (int i = set.n - 1; i >= 0; i--)
	{
		if (set.targets[i].hold == NULL)
			warn_not_held(&set.targets[i]);
	}
	wait_until_settled(released, n);
	return held && !lost;
}

/*
 * Undoes all acquisitions at session level of the holds for which a function returns true, or
 * of all if it is NULL, and waits until the worker is done with them.  The function must not
 * fail.
 */
void
lock_release_those(HoldChoice chosen, const void *arg)
{
	Hold **released;
	int	   n = 0;
	Hold  *next;

	for (Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		n++;
	released = palloc(n * sizeof(Hold *));
	n = 0;
	for (Hold *hold = hold_next(NULL); hold != NULL; hold = next)
	{
		next = hold_next(hold);
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION) || (chosen && !chosen(hold, arg)))
			continue;
		released[n++] = hold;

		/* The exclusive lock goes last, so it need not be downgraded on the way. */
		for (int mode = lengthof(hold->acquired) - 1; mode >= 0; mode--)
		{
			if (hold->acquired[mode][LOCK_SCOPE_SESSION] > 0)
				guard_release(hold, mode, hold->acquired[mode][LOCK_SCOPE_SESSION]);
		}
	}
	(void) warn_lost(released, n);
	wait_until_settled(released, n);
}

/* Does so with all that this session holds, permits included. */
void
lock_release_all(void)
{
	lock_release_those(NULL, NULL);
}

/*
 * Releases one permit of a semaphore that is held at session level, and waits until others
 * can have it.  It releases a lost permit first, so that the remaining ones are good, else
 * the youngest.
 *
 * Returns false, with a warning, if the session held none or if it was lost.
 */
bool
permit_release(const char *path)
{
	Hold *chosen = NULL;
	bool  lost = false;
	bool  in_transaction = false;

	for (Hold *hold = hold_next(NULL); hold != NULL && !lost; hold = hold_next(hold))
	{
		if (hold->kind != REQUEST_PERMIT || strcmp(hold->path, path) != 0)
			continue;
		if (!hold_is_acquired_at(hold, LOCK_SCOPE_SESSION))
		{
			in_transaction = true;
			continue;
		}
		chosen = hold;
		lost = hold_is_lost(hold);
	}
	if (chosen == NULL)
	{
		ereport(WARNING,
				(errmsg("you don't own a session-level permit of semaphore \"%s\"", display_path(path)),
				 in_transaction ? errhint("The transaction owns its permits, and releases them at its end.")
								: 0));
		return false;
	}
	guard_release(chosen, LOCK_MODE_EXCLUSIVE, 1);
	lost = warn_lost(&chosen, 1);
	wait_until_settled(&chosen, 1);
	return !lost;
}
