/*
 * reliance.c
 *		What this session's transaction relies on besides what it holds: terms of leadership,
 *		reservations, and locks that it has released.
 *
 * A transaction relies on a term from the moment when a call has returned that this server
 * leads, and on a reservation from the moment when it has named the token, until it ends, even
 * if the subtransaction that did so is rolled back.  The commit guard (guard.c) looks whether
 * they are still there.
 *
 *	term			The transaction relies on one term of an election, the first: once it has
 *					seen another one, its commit is refused in any case.  The entry of a term is
 *					the server's, not the session's.  What the session has at stake is in shared
 *					memory (shared/election.h), where the worker reads it before it gives
 *					leadership up.
 *	reservation		That it was renewed meanwhile makes no difference.  The first reliance of a
 *					transaction is counted in shared memory, and its end: a server that stops
 *					does not end reservations before.
 *	released lock	Only what was not proved when it was released matters: guard_release().
 *
 * Runs in: backends.  The lists are private, that of reservations in memory of the transaction;
 * each process writes its own stakes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/reliance.h"
#include "compat.h"
#include "shared/election.h"
#include "shared/session_info.h"
#include "utils/memutils.h"

Reliance transaction_reliance;

/* ------------------------------------------------------------------------
 * Terms of leadership
 * ------------------------------------------------------------------------
 */

/*
 * Stores what is at stake in an election.  The memory barrier orders this before the caller's
 * look at the candidate.
 *
 *	which	the stakes that are changed
 */
static void
set_stake(int election, uint8 which, uint8 stake)
{
	volatile uint8 *mine = election_stake(election, compat_my_proc_number());
	uint8			before = *mine;

	*mine = (before & ~which) | stake;
	pg_memory_barrier();

	/*
	 * The worker does not give leadership up while a commit relies on it: wake it when this
	 * one ends.
	 */
	if ((before & ~*mine & STAKE_COMMIT) != 0)
		zklock_wake_worker();
}

/*
 * Stores the stakes in all elections on which the transaction relies, for the worker.  Cannot
 * fail, does not wait.
 */
void
leadership_set_stakes(uint8 which, uint8 stake)
{
	for (int i = 0; i < transaction_reliance.nterms; i++)
		set_stake(transaction_reliance.terms[i].election, which, stake);
}

/*
 * Returns true if this server leads, provably.  Then the transaction relies on that from now
 * on.  Reads no more than shared memory.
 *
 *	token	is set to the fencing token of the term in which it leads
 */
bool
leadership_rely(int election, int64 *token)
{
	LeadershipTerm *term = transaction_reliance.terms;
	LeadershipTerm *end = &transaction_reliance.terms[transaction_reliance.nterms];
	int64			now;
	bool			giving_way;

	if (election_leadership(election, token) != LEADERSHIP_PROVED)
		return false;
	while (term < end && term->election != election)
		term++;
	if (term == end)
	{
		set_stake(election, STAKE_ON_LOSS | STAKE_RELY, zklock_on_lock_loss | STAKE_RELY);

		/*
		 * The term may have ended before the worker could see the stake, or be given away in this
		 * moment (election_give_way()).
		 */
		giving_way = election_at(election)->giving_way;
		pg_read_barrier();
		if (giving_way || election_leadership(election, &now) != LEADERSHIP_PROVED || now != *token)
		{
			set_stake(election, STAKE_ON_LOSS | STAKE_RELY, 0);
			return false;
		}
		*term = (LeadershipTerm){.election = election, .token = *token};
		transaction_reliance.nterms++;
	}
	if (term->token == *token)
		term->taken_under = Max(term->taken_under, (CommitGuard) zklock_commit_guard);
	return true;
}

/* ------------------------------------------------------------------------
 * Reservations
 * ------------------------------------------------------------------------
 */

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
	ReliedReservation *relied = transaction_reliance.reservations;
	EntryStatus		   status;

	/* Count first: the server does not stop between that and the look. */
	if (!transaction_reliance.counted)
	{
		if ((pg_atomic_fetch_add_u32(&entry_pool->reliances, 1) & RELIANCES_CLOSED) != 0)
		{
			/* It is shutting down. */
			pg_atomic_fetch_sub_u32(&entry_pool->reliances, 1);
			reliance_report_over(path);
		}
		transaction_reliance.counted = true;
	}
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
		relied->next = transaction_reliance.reservations;
		transaction_reliance.reservations = relied;
	}
	relied->taken_under = Max(relied->taken_under, (CommitGuard) zklock_commit_guard);
}

/* ------------------------------------------------------------------------
 * The end
 * ------------------------------------------------------------------------
 */

/*
 * Ends the reliance, as the transaction has ended: nothing is at stake any more.  Cannot fail.
 */
void
reliance_forget(void)
{
	leadership_set_stakes(STAKE_COMMIT | STAKE_ON_LOSS | STAKE_RELY, 0);
	if (transaction_reliance.counted)
		pg_atomic_fetch_sub_u32(&entry_pool->reliances, 1);
	transaction_reliance.nterms = 0;
	transaction_reliance.reservations = NULL;
	transaction_reliance.counted = false;
	transaction_reliance.released_unproved = false;
	transaction_reliance.released_under = COMMIT_GUARD_OFF;
}
