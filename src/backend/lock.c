/*
 * lock.c
 *		Locking paths: one, or several together.
 *
 * The first acquisition of a lock adds an entry to shared memory, and a hold to the session's
 * own list (hold_ask()).  It waits on the session's latch until the worker has granted or
 * refused the request (wait_for_hold()).  Further acquisitions only count.  lock_acquire()
 * calls ask_for_lock() and take_lock() for one lock, and acquires several all or none.
 *
 * A call that must not wait for others has the worker look at the path before it creates a
 * node there; a call that waits does not, as the look would find most paths free.
 *
 * A session whose call fails holds what it held before, as often as before (transaction.c).
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
#include "shared/session_info.h"

/* Compares paths by the order in which everybody locks them, for qsort() and bsearch(). */
int
lock_compare_targets(const void *a, const void *b)
{
	return strcmp(((const LockTarget *) a)->path, ((const LockTarget *) b)->path);
}

/* ------------------------------------------------------------------------
 * One lock
 * ------------------------------------------------------------------------
 */

/* Asks for a lock, unless the session has it, or the exclusive lock that includes it. */
static void
ask_for_lock(LockTarget *target, LockScope scope, AskManner manner)
{
	Hold *hold = hold_of_lock(target->path, target->mode);
	Hold *held = hold ? hold : hold_of_lock(target->path, LOCK_MODE_SHARED);

	/* A lost lock is neither acquired again nor upgraded. */
	if (held)
		hold_check(held);
	if (hold && hold->acquired[target->mode][scope] == PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("lock on ZooKeeper path \"%s\" has been acquired too often",
							   display_path(hold->path))));
	if (hold == NULL)
		hold = hold_ask(&(EntryRequest){.kind = REQUEST_LOCK,
										.terms = {.mode = target->mode},
										.scope = scope,
										.manner = manner},
						target->path);
	target->hold = hold;
}

static void
begin_wait(Wait *wait, const LockTarget *target, int64 timeout_ms)
{
	const Hold *shared = hold_of_lock(target->path, LOCK_MODE_SHARED);

	wait_begin(wait, target->path, target->mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock",
			   stats_kind(REQUEST_LOCK, target->mode), timeout_ms);

	/*
	 * Two sessions that hold the shared lock and want the exclusive one wait for each other
	 * at once: look for a deadlock now.
	 */
	if (target->mode == LOCK_MODE_EXCLUSIVE && shared && shared->mode == LOCK_MODE_SHARED)
		wait->deadlock_check_at = 0;
}

/*
 * Waits until a lock that was asked for is granted, and counts it.  Returns false if it is
 * not.
 */
static bool
take_lock(LockTarget *target, LockScope scope, int64 timeout_ms)
{
	if (!hold_is_acquired(target->hold))
	{
		Wait wait;
		bool granted;

		begin_wait(&wait, target, timeout_ms);
		granted = wait_for_hold(&wait, target->hold);

		/* A request that did not look is made again, alone, and that one is counted. */
		if (granted || entry_at(target->hold->entry)->request.manner != ASK_AND_GRAB)
			wait_end(&wait, granted);
		if (!granted)
			return false;
	}
	transaction_acquired(target->hold, target->mode, scope);
	return true;
}

/*
 * Returns what is left of a timeout, ms: 1 at least, since 0 means not to wait.  A timeout
 * that is not positive stays as it is.
 */
static int64
time_left(int64 timeout_ms, int64 start_us)
{
	int64 left = timeout_ms - zklock_ms_since(start_us);

	return timeout_ms > 0 ? Max(left, 1) : timeout_ms;
}

/* ------------------------------------------------------------------------
 * Several locks
 *
 * A set of locks has an order, which is everybody's: that of the bytes of the paths.  A
 * session that waits for a lock while it holds only locks before it cannot be in a circle of
 * sessions that do the same.  But a session that asked for each lock after the grant of the
 * one before would need a round trip for each.  So it takes the free ones together:
 *
 *	together	It asks for all at once, and none of these requests waits for another
 *				holder: the worker grants each, or refuses it, when ZooKeeper has
 *				answered.  So a lock that has been granted keeps nobody waiting for
 *				longer than that takes, in whatever order.
 *	alone		It waits for the first that was refused, like for a single lock.
 *				Before it asks for that, it has given back all locks of the set behind
 *				it.  So while it waits for a lock of the set, it holds only those
 *				before it, and asks for no other.
 *	together	Then those behind it, but not more of them than were granted last time
 *				(two at least), and twice as many each time that all are granted.
 *
 * The last rule bounds the work for a set of which many locks are taken: but for the first
 * time, the session asks for no more than twice the locks that it has just got.
 *
 * A path below another one of the set is not asked for together with that, but when that is
 * granted: only its holder is trusted to have nodes created below it (parents.c).  So a tree
 * is locked step by step.
 *
 * A call that must not wait for others asks for all together and is done.
 * ------------------------------------------------------------------------
 */

/*
 * Acquires the first n locks of an array together, as far as they are free, and gives the
 * rest back.
 *
 * Returns how many were acquired: all before the first that was not free, or for which no
 * time was left.
 */
static int
acquire_together(LockTarget *targets, int n, LockScope scope, int64 timeout_ms)
{
	int64 start_us = zklock_now_us();
	int	  acquired = 0;

	for (int i = 0; i < n; i++)
		ask_for_lock(&targets[i], scope, timeout_ms == LOCK_NO_WAIT ? ASK_AND_LOOK : ASK_AND_GRAB);
	while (acquired < n && take_lock(&targets[acquired], scope, time_left(timeout_ms, start_us)))
		acquired++;
	hold_drop_unacquired(ENTRY_NOTICE);
	return acquired;
}

/*
 * Waits until the worker is done with the first n locks of an array, which were given back:
 * they count among the session's share until then, and the session's own node of the same
 * path must be out of its way.  That depends on ZooKeeper, not on other holders.
 *
 * Returns false if the timeout passes first.
 */
static bool
wait_for_given_back(const LockTarget *targets, int n, int64 timeout_ms)
{
	Wait wait;
	int	 settled = 0;

	begin_wait(&wait, targets, timeout_ms);
	while (settled < n && wait_until_settled(&wait, targets[settled].hold->entry,
											 targets[settled].hold->generation))
		settled++;
	if (settled < n)
		wait_end(&wait, false);
	return settled == n;
}

/*
 * Acquires the first lock of an array, when the worker is done with what was given back.
 *
 *	given_back	number of locks that were given back, from the first on
 */
static bool
acquire_alone(LockTarget *targets, int given_back, LockScope scope, int64 timeout_ms)
{
	int64 start_us = zklock_now_us();

	if (given_back > 0 && !wait_for_given_back(targets, given_back, timeout_ms))
		return false;
	ask_for_lock(targets, scope, timeout_ms == LOCK_NO_WAIT ? ASK_AND_LOOK : ASK_AND_WAIT);
	return take_lock(targets, scope, time_left(timeout_ms, start_us));
}

/* Returns true if a path lies below one of n others, which are in the order of their bytes. */
static bool
lies_below(const char *path, const LockTarget *targets, int n)
{
	char  above[ZKLOCK_MAX_PATH + 1];
	char *slash;

	strlcpy(above, path, sizeof(above));
	while ((slash = strrchr(above, '/')) != NULL)
	{
		LockTarget key = {.path = above};

		*slash = '\0';
		if (bsearch(&key, targets, n, sizeof(LockTarget), lock_compare_targets) != NULL)
			return true;
	}
	return false;
}

/* Returns how many of the first n locks of an array can be asked for together. */
static int
number_together(const LockTarget *targets, int n)
{
	for (int i = 1; i < n; i++)
	{
		if (lies_below(targets[i].path, targets, i))
			return i;
	}
	return n;
}

/*
 * Acquires all locks of a set, or none.
 *
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds, for all of them;
 *				PostgreSQL's lock_timeout is for each
 *
 * Returns false if the locks were not all granted in that time.
 */
bool
lock_acquire(LockSet set, LockScope scope, int64 timeout_ms)
{
	int64 start_us = zklock_now_us();
	int	  most = set.n; /* most locks that are asked for together */
	int	  acquired = 0;
	int	  mark;

	mark = transaction_begin_call();
	while (acquired < set.n)
	{
		LockTarget *next = &set.targets[acquired];
		int			n = number_together(next, Min(most, set.n - acquired));
		int			free = 0;

		if (n > 1)
			free = acquire_together(next, n, scope, time_left(timeout_ms, start_us));
		acquired += free;
		if (free == n)
		{
			most = Min(2 * most, set.n);
			continue;
		}
		if (n > 1 && timeout_ms == LOCK_NO_WAIT)
			break;
		if (n > 1)
			most = Max(free, 2);
		if (!acquire_alone(next + free, n > 1 ? n - free : 0, scope, time_left(timeout_ms, start_us)))
			break;
		acquired++;
	}

	/* One lock may have been lost during the wait for others. */
	for (int i = 0; acquired == set.n && i < set.n; i++)
		hold_check(set.targets[i].hold);
	transaction_end_call(mark, acquired == set.n);
	return acquired == set.n;
}

/* ------------------------------------------------------------------------
 * Fencing tokens
 * ------------------------------------------------------------------------
 */

/*
 * Returns the fencing token of the exclusive lock that this session holds on a path, else
 * that of its shared lock.  Raises an error if it holds none, or has lost it.
 */
int64
lock_fencing_token(const char *path)
{
	Hold *hold = hold_of_lock(path, LOCK_MODE_EXCLUSIVE);

	if (hold == NULL)
		hold = hold_of_lock(path, LOCK_MODE_SHARED);
	if (hold == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("you don't own a lock on ZooKeeper path \"%s\"", display_path(path)),
						errhint("Lock the path in this session first.")));
	hold_check(hold);
	return entry_status(hold->entry).token;
}

/*
 * Returns the fencing token of the exclusive lock that this session holds on a path for
 * certain; 0 if it holds none, or may have lost it.  Needs no preload.
 */
int64
lock_proved_token(const char *path)
{
	const Hold *hold = hold_of_lock(path, LOCK_MODE_EXCLUSIVE);
	EntryStatus status;

	/* Read the lease first: a lease that was seen before the lock is its own. */
	if (hold == NULL || lease_state() != LEASE_HOLDS || hold_entry(hold, &status) == ENTRY_NONE)
		return 0;
	return status.state == ENTRY_GRANTED ? status.token : 0;
}
