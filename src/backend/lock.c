/*
 * lock.c
 *		Locking paths, one or several together; permits of semaphores; and reservations.
 *
 * The first acquisition of a lock adds an entry to shared memory, and a hold to the session's
 * own list (hold_ask()).  It waits on the session's latch until the worker has granted or
 * refused the request (wait_for_hold()).  Further acquisitions only count.
 *
 * A call that must not wait for others has the worker look at the path before it creates a
 * node there; a call that waits does not, as the look would find most paths free.
 *
 * A session whose call fails holds what it held before, as often as before (transaction.c, which
 * has the releases, too).
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "backend/wait.h"

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
	if (held && hold_is_lost(held))
		hold_report_lost(held);
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

/* What is waited for, for messages; by LockMode */
static const char *const mode_texts[] = {
	[LOCK_MODE_EXCLUSIVE] = "ExclusiveLock",
	[LOCK_MODE_SHARED] = "ShareLock",
};

/*
 * Waits until a lock that was asked for is granted, and counts it.  Returns false if it is
 * not.
 */
static bool
take_lock(LockTarget *target, LockScope scope, int64 timeout_ms)
{
	if (!hold_is_acquired(target->hold))
	{
		const Hold *shared = hold_of_lock(target->path, LOCK_MODE_SHARED);
		Wait		wait;
		bool		granted;

		wait_begin(&wait, target->path, mode_texts[target->mode],
				   stats_kind(REQUEST_LOCK, target->mode), timeout_ms);

		/*
		 * Two sessions that hold the shared lock and want the exclusive one wait for each other
		 * at once: look for a deadlock now.
		 */
		if (target->mode == LOCK_MODE_EXCLUSIVE && shared && shared->mode == LOCK_MODE_SHARED)
			wait.deadlock_check_at = 0;
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
	bool  is_try = timeout_ms == LOCK_NO_WAIT;
	int	  most = set.n; /* most locks that are asked for together */
	int	  acquired = 0;

	transaction_begin_call();
	while (acquired < set.n)
	{
		LockTarget *next = &set.targets[acquired];
		int			n = Min(most, set.n - acquired);
		int			given_back = 0;

		/* The first whose path lies below another one cannot be asked for together with that. */
		for (int i = 1; i < n; i++)
		{
			char *above = pstrdup(next[i].path);
			char *slash;

			while (i < n && (slash = strrchr(above, '/')) != NULL)
			{
				*slash = '\0';
				if (bsearch(&above, next, i, sizeof(LockTarget), pg_qsort_strcmp) != NULL)
					n = i;
			}
			pfree(above);
		}

		/*
		 * Together: all before the first that is not free, or for which no time is left, are
		 * acquired; the rest is given back.
		 */
		if (n > 1)
		{
			int free = 0;

			for (int i = 0; i < n; i++)
				ask_for_lock(&next[i], scope, is_try ? ASK_AND_LOOK : ASK_AND_GRAB);
			while (free < n && take_lock(&next[free], scope, time_left(timeout_ms, start_us)))
				free++;
			hold_drop_unacquired(ENTRY_NOTICE);
			acquired += free;
			if (free == n)
			{
				most = Min(2 * most, set.n);
				continue;
			}
			if (is_try)
				break;
			most = Max(free, 2);
			given_back = n - free;
			next += free;
		}

		/*
		 * Alone, when the worker is done with those that were given back: they count among the
		 * session's share until then, and the session's own node of the same path must be out of
		 * its way.  That depends on ZooKeeper, not on other holders.
		 */
		if (given_back > 0)
		{
			Wait wait;
			int	 settled = 0;

			wait_begin(&wait, next->path, mode_texts[next->mode],
					   stats_kind(REQUEST_LOCK, next->mode), time_left(timeout_ms, start_us));
			while (settled < given_back &&
				   wait_for_release(&wait, next->path, next[settled].hold->entry,
									next[settled].hold->generation))
				settled++;
			if (settled < given_back)
			{
				wait_end(&wait, false);
				break;
			}
		}
		ask_for_lock(next, scope, is_try ? ASK_AND_LOOK : ASK_AND_WAIT);
		if (!take_lock(next, scope, time_left(timeout_ms, start_us)))
			break;
		acquired++;
	}

	/* One lock may have been lost during the wait for others. */
	for (int i = 0; acquired == set.n && i < set.n; i++)
	{
		if (hold_is_lost(set.targets[i].hold))
			hold_report_lost(set.targets[i].hold);
	}
	transaction_end_call(acquired == set.n);
	return acquired == set.n;
}

/* ------------------------------------------------------------------------
 * Permits of semaphores
 *
 * A session gets a permit in two steps, as with Curator's InterProcessSemaphoreV2.  First
 * comes the turn: the exclusive lock on <path>/locks, for which the sessions of this server
 * queue as for any other lock.  The session whose turn it is asks for a node in
 * <path>/leases, waits until the node is a permit, and then gives the turn up.  So sessions
 * get permits in the order in which they ask for them, and only one client in all watches the
 * permits' nodes.
 *
 * The turn brings order, not safety (see recipe.c).  Therefore a session that has lost
 * its turn goes on waiting for the permit, and a call that does not wait asks for no turn:
 * while somebody waits, the nodes show that no permit is free.
 *
 * Turn and permit are a hold each (hold.c).  A session may hold several permits of one
 * semaphore.
 * ------------------------------------------------------------------------
 */

/*
 * Acquires one more permit of a semaphore that has "number" of them.
 *
 *	path		UTF-8, checked
 *	scope		transaction level: until the transaction ends, or is rolled back to
 *				an earlier savepoint
 *	timeout_ms	LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *
 * Returns false if none was free in that time.
 */
bool
permit_acquire(const char *path, int number, LockScope scope, int64 timeout_ms)
{
	EntryRequest request = {.terms = {.mode = LOCK_MODE_EXCLUSIVE, .permits = number}, .scope = scope};
	bool		 is_try = timeout_ms == LOCK_NO_WAIT;
	bool		 granted;
	Hold *asked;
	Wait  wait;

	transaction_begin_call();
	request.kind = is_try ? REQUEST_PERMIT : REQUEST_TURN;
	request.manner = is_try ? ASK_AND_LOOK : ASK_AND_WAIT;
	asked = hold_ask(&request, path);
	wait_begin(&wait, path, "SemaphorePermit", STATS_SEMAPHORE, timeout_ms);
	granted = wait_for_hold(&wait, asked);
	if (granted && asked->kind == REQUEST_TURN)
	{
		request.kind = REQUEST_PERMIT;
		asked = hold_ask(&request, path);
		granted = wait_for_hold(&wait, asked);
	}
	wait_end(&wait, granted);
	if (granted)
		transaction_acquired(asked, LOCK_MODE_EXCLUSIVE, scope);
	if (asked->kind == REQUEST_PERMIT)
	{
		int others = entry_status(asked->entry).others_permits;

		if (others != 0 && others != number)
			ereport(NOTICE, (errmsg("semaphore \"%s\" is in use with another number of permits",
									display_path(path)),
							 errdetail("This call asked for one of %d permits, a holder for one of %d; the smaller number counts.",
									   number, others)));
	}
	transaction_end_call(granted);
	return granted;
}

/* ------------------------------------------------------------------------
 * Reservations
 *
 * A session that reserves a path waits for the lock like any other (lock.c), and hands it over
 * to the server when it is granted; shared/entry.c has what follows.
 *
 * Reservations stay when their sessions end, so a session's share does not bound them.  All
 * those of a role together have as many entries as one session may, and all roles together
 * half of them.  A request counts itself when it is there for others to count, so requests at
 * the same time do not exceed that.
 * ------------------------------------------------------------------------
 */

/*
 * Reserves a path.  Returns false if it was not granted in time.
 *
 *	duration_ms		how long the reservation lasts unless it is renewed
 *	timeout_ms		LOCK_WAIT_FOREVER, LOCK_NO_WAIT or milliseconds
 *	token			is set to its fencing token
 */
bool
reserve_acquire(const char *path, int duration_ms, int64 timeout_ms, int64 *token)
{
	EntryRequest request = {.kind = REQUEST_LOCK,
							.terms = {.mode = LOCK_MODE_EXCLUSIVE},
							.scope = LOCK_SCOPE_RESERVATION,
							.max_hold_ms = duration_ms,
							.manner = timeout_ms == LOCK_NO_WAIT ? ASK_AND_LOOK : ASK_AND_WAIT};
	Hold		*hold;
	Wait		 wait;
	bool		 granted;
	int			 share = share_of_entries(zklock_max_locks_per_session, entry_pool->limit);
	int			 half = Max(entry_pool->limit / 2, 1);
	int			 of_role = 0;
	int			 all = 0;

	transaction_begin_call();

	/* It would wait for itself. */
	if (hold_of_lock(path, LOCK_MODE_SHARED) != NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot reserve ZooKeeper path \"%s\": this session owns a lock there",
							   display_path(path)),
						errhint("Release the lock first.")));
	hold = hold_ask(&request, path);

	/* Are there too many, this one included, and others that are asked for? */
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		Entry *entry = entry_at(i);

		SpinLockAcquire(&entry->mutex);
		if (entry->status.state != ENTRY_FREE && !entry->status.kept &&
			entry->request.scope == LOCK_SCOPE_RESERVATION)
		{
			all++;
			of_role += entry->request.role == request.role;
		}
		SpinLockRelease(&entry->mutex);
	}
	if (of_role > share || (all > half && !superuser()))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper reservations"),
				 of_role > share ? errdetail("Role \"%s\" may have %d.",
											 GetUserNameFromId(GetUserId(), false), share)
								 : errdetail("All roles together may have %d.", half),
				 errhint("End reservations, or ask an administrator to increase \"zklock.max_locks_per_session\" or \"zklock.max_locks\".")));
	wait_begin(&wait, path, mode_texts[LOCK_MODE_EXCLUSIVE], STATS_LOCK_EXCLUSIVE, timeout_ms);
	granted = wait_for_hold(&wait, hold);
	wait_end(&wait, granted);
	if (!granted)
	{
		transaction_end_call(false);
		return false;
	}
	*token = entry_status(hold->entry).token;

	/* A later cancellation would find a reservation whose token nobody knows. */
	interrupt_check_client();
	if (!hold_hand_over(hold))
		hold_report_lost(hold);
	return true;
}
