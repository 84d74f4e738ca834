/*
 * reserve.c
 *		Asking for reservations, and ending them.
 *
 * A session that reserves a path waits for the lock like any other (lock.c), and hands it over
 * to the server when it is granted; shared/entry.c has what follows.
 *
 * Reservations stay when their sessions end, so a session's share does not bound them.  All
 * those of a role together have as many entries as one session may, and all roles together
 * half of them.  A request counts itself when it is there for others to count, so requests at
 * the same time do not exceed that.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/hold.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "backend/wait.h"
#include "compat.h"
#include "miscadmin.h"
#include "shared/common.h"

/* Raises an error if there are too many reservations, that of the caller included. */
static void
refuse_crowd(void)
{
	int	 share = share_of_entries(zklock_max_locks_per_session, entries_limit());
	int	 half = Max(entries_limit() / 2, 1);
	int	 all;
	int	 n = reservation_count(GetUserId(), &all);
	bool too_many = n > share;

	if (too_many || (all > half && !superuser()))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper reservations"),
				 too_many ? errdetail("Role \"%s\" may have %d.",
									  GetUserNameFromId(GetUserId(), false), share)
						  : errdetail("All roles together may have %d.", half),
				 errhint("End reservations, or ask an administrator to increase \"zklock.max_locks_per_session\" or \"zklock.max_locks\".")));
}

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
	int			 mark = transaction_begin_call();
	Hold		*hold;
	Wait		 wait;
	bool		 granted;

	/* It would wait for itself. */
	if (hold_of_lock(path, LOCK_MODE_SHARED) != NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot reserve ZooKeeper path \"%s\": this session owns a lock there",
							   display_path(path)),
						errhint("Release the lock first.")));
	hold = hold_ask(&request, path);
	refuse_crowd();
	wait_begin(&wait, path, "ExclusiveLock", STATS_LOCK_EXCLUSIVE, timeout_ms);
	granted = wait_for_hold(&wait, hold);
	wait_end(&wait, granted);
	if (!granted)
	{
		transaction_end_call(mark, false);
		return false;
	}
	*token = entry_status(hold->entry).token;

	/* A later cancellation would find a reservation whose token nobody knows. */
	interrupt_check_client();
	if (!hold_hand_over(hold))
		hold_report_lost(hold);
	return true;
}

/*
 * Ends a reservation, and waits until others can have the lock; a cancellation ends only the
 * wait.  Returns false if it is over already.
 */
bool
reserve_end(const char *path, const Reservation *reservation)
{
	if (!reservation_end(reservation, compat_my_proc_number()))
		return false;
	wait_for_release(path, reservation->index, reservation->generation);
	return true;
}
