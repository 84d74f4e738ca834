/*
 * reliance.c
 *		The reservations on which this session's transaction relies.
 *
 * A transaction relies on a reservation from the moment when it has named the token until it
 * ends, even if the subtransaction that did so is rolled back.  The commit guard looks whether
 * the reservation is still there; that it was renewed meanwhile makes no difference.
 *
 * The first reliance of a transaction is counted in shared memory, and its end: a server that
 * stops does not end reservations before.
 *
 * Runs in: backends.  The list is private, in memory of the transaction.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/reliance.h"
#include "backend/transaction.h"
#include "shared/session_info.h"
#include "utils/memutils.h"

static ReliedReservation *first_relied = NULL;

/* This session's transaction is counted. */
static bool counted = false;

/* Raises the error for a reservation that is over. */
void
reliance_report_over(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("reservation of ZooKeeper path \"%s\" is over", display_path(path)),
			 errdetail("It has ended, or was lost, or there is none with that fencing token."),
			 errhint("Others may have held the lock meanwhile. Reserve the path again and retry the work.")));
}

/*
 * Has the transaction rely on a reservation from now on.  Raises an error if that is over.  The
 * caller has begun a call (transaction.c), so the end of the transaction is noticed.
 */
void
reliance_add(const char *path, const Reservation *reservation)
{
	ReliedReservation *relied = first_relied;
	EntryStatus		   status;

	/* Count first: the server does not stop between that and the look. */
	if (!counted && !reservation_begin_reliance())
		reliance_report_over(path);
	counted = true;
	if (lease_state() == LEASE_OVER || !reservation_status(reservation, &status))
		reliance_report_over(path);
	while (relied && (relied->reservation.index != reservation->index ||
					  relied->reservation.generation != reservation->generation))
		relied = relied->next;
	if (relied == NULL)
	{
		Size len = strlen(path) + 1;

		relied =
			MemoryContextAllocZero(TopTransactionContext, offsetof(ReliedReservation, path) + len);
		relied->reservation = *reservation;
		memcpy(relied->path, path, len);
		relied->next = first_relied;
		first_relied = relied;
	}
	relied->taken_under = Max(relied->taken_under, (CommitGuard) zklock_commit_guard);
}

/* Returns the reservation after another one, or the first one after NULL; NULL at the end. */
ReliedReservation *
reliance_next(const ReliedReservation *relied)
{
	return relied ? relied->next : first_relied;
}

/* Ends the reliance, as the transaction has ended.  Cannot fail. */
void
reliance_forget(void)
{
	first_relied = NULL;
	if (counted)
		reservation_end_reliance();
	counted = false;
}
