/*
 * reservation.c
 *		Reservations: locks that the server holds for whoever knows their tokens.
 *
 * A reservation is an exclusive lock for a time, for work of many transactions that have no
 * session of their own.  It is an entry like that of any lock, but it changes hands:
 *
 *		asked for	REQUESTED, QUEUED and at first GRANTED, it is the asking backend's, which
 *					waits for it, and gives it up if the call fails or the session ends
 *		reserved	still GRANTED, it is marked as "reserved", which is the backend's last step:
 *					reservation_begin().  From then on it is nobody's session's.
 *		over		RELEASING: a backend whose user knows the token has ended it,
 *					reservation_end(), or the worker when it is lost, entry_lose()
 *
 * Each of these steps is made under the entry's spinlock, by whoever comes first; who comes
 * later finds it over.  A backend looks for interrupts for the last time before it marks the
 * entry: a cancellation that comes with the grant leaves nothing.
 *
 *	time		Its end is in the entry, from the grant on, as with zklock.max_hold_time
 *				(engine/round.c).  Any backend may move it, under the spinlock.  Both read the clock
 *				before the entry: so the worker never takes a reservation that was renewed in time,
 *				and who sees it over may see it renewed, but not the reverse.
 *	backend		If it ends, its reservations stay.
 *	worker		If it ends, they stay: the next one finds the entries.
 *	server		If it crashes, they are lost with shared memory.  If it stops, they end with the
 *				ZooKeeper session, which the worker closes when no transaction relies on one any
 *				more, and none can begin to: reservation_close().
 *
 * A reservation is a session of its own, to whose contenders it never belongs, even while it is
 * asked for.  Its node, too, is its own: the node's bytes are charged to its role (accounts.c).
 *
 * Runs in: all processes, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "shared/common.h"
#include "shared/reservation.h"
#include "shared/session_info.h"
#include "shared/stats.h"
#include "utils/timestamp.h"

/* In EntryPool.reliances: no transaction may begin to rely */
#define RELIANCES_CLOSED 0x80000000

/*
 * Returns how many a role has, with those that it asks for.
 *
 *	all		is set to the number of those of all roles
 */
int
reservation_count(Oid role, int *all)
{
	int n = 0;

	*all = 0;
	for (int i = 0; i < entries_max(); i++)
	{
		Entry *entry = entry_at(i);

		SpinLockAcquire(&entry->mutex);
		if (entry->status.state != ENTRY_FREE && !entry->status.kept &&
			entry->request.scope == LOCK_SCOPE_RESERVATION)
		{
			(*all)++;
			n += entry->request.role == role;
		}
		SpinLockRelease(&entry->mutex);
	}
	return n;
}

/*
 * Makes a lock that was granted to this backend a reservation.  Returns false if the lock is
 * lost.
 */
bool
reservation_begin(int index)
{
	Entry *entry = entry_at(index);
	bool   granted;

	SpinLockAcquire(&entry->mutex);
	granted = entry->status.state == ENTRY_GRANTED;
	if (granted)
	{
		entry->status.reserved = true;
		entry->status.latch = ENTRY_NO_LATCH;
		entry->status.on_loss = LOSS_ABORT;
	}
	SpinLockRelease(&entry->mutex);
	return granted;
}

/* Finds the reservation of a path that has a token.  Returns false if there is none. */
bool
reservation_find(const char *path, int64 token, Reservation *reservation)
{
	for (int i = 0; i < entries_max(); i++)
	{
		EntryStatus status = entry_status(i);
		EntryCopy	copy;

		if (status.state != ENTRY_GRANTED || !status.reserved || status.token != token ||
			!entry_copy(i, &copy) || copy.status.token != token ||
			strcmp(copy.request.path, path) != 0)
			continue;
		*reservation =
			(Reservation){.index = i, .generation = copy.generation, .role = copy.request.role};
		return lease_state() != LEASE_OVER && reservation_status(reservation, &status);
	}
	return false;
}

/*
 * Returns the entry of a reservation, with its spinlock, for the caller to release; or NULL,
 * without it, if the reservation is over.
 */
static Entry *
lock_valid(const Reservation *reservation, int64 *now_us)
{
	Entry *entry = entry_at(reservation->index);

	*now_us = zklock_now_us();
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state == ENTRY_GRANTED && entry->status.reserved &&
		*now_us < entry->status.expires_us &&
		entry_generation(reservation->index) == reservation->generation)
		return entry;
	SpinLockRelease(&entry->mutex);
	return NULL;
}

/*
 * Copies the status of a reservation.  Returns false if it is over.  A caller that relies on
 * the lease reads it first: then it is the lease of the grant.
 */
bool
reservation_status(const Reservation *reservation, EntryStatus *status)
{
	int64  now_us;
	Entry *entry = lock_valid(reservation, &now_us);

	if (entry == NULL)
		return false;
	*status = entry->status;
	SpinLockRelease(&entry->mutex);
	return true;
}

/* Has a reservation end so long from now.  Returns false if it is over. */
bool
reservation_renew(const Reservation *reservation, int duration_ms)
{
	TimestampTz expires_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), duration_ms);
	int64		now_us;
	Entry	   *entry = lock_valid(reservation, &now_us);

	if (entry == NULL)
		return false;
	entry->status.expires_us = now_us + INT64CONST(1000) * duration_ms;
	entry->status.expires_at = expires_at;
	SpinLockRelease(&entry->mutex);

	/* It may end sooner than the worker knows. */
	entry_mark_dirty(reservation->index);
	return true;
}

/*
 * Ends a reservation.  Returns false if it is over already.
 *
 *	latch	the process that is woken when others can have the lock
 */
bool
reservation_end(const Reservation *reservation, int latch)
{
	int64  held = GetCurrentTimestamp();
	int64  now_us;
	Entry *entry = lock_valid(reservation, &now_us);

	if (entry == NULL)
		return false;
	held -= entry->status.granted_at;
	entry->status.latch = latch;
	entry->status.notice = ENTRY_NOTICE;
	entry_step(entry, ENTRY_RELEASING, BY_BACKEND);
	SpinLockRelease(&entry->mutex);
	stats_add(STATS_LOCK_EXCLUSIVE, STATS_HOLD_US, Max(held, 0));
	entry_mark_dirty(reservation->index);
	return true;
}

/* ------------------------------------------------------------------------
 * Transactions that rely on reservations
 *
 * A backend that exits aborts its transaction first, which ends the reliance.  One that is killed
 * has the server start anew, with memory in which nobody relies.
 * ------------------------------------------------------------------------
 */

/*
 * Counts a transaction that begins to rely on reservations.  Returns false if the server is
 * shutting down, and none may.
 */
bool
reservation_begin_reliance(void)
{
	if ((pg_atomic_fetch_add_u32(&entry_pool->reliances, 1) & RELIANCES_CLOSED) == 0)
		return true;
	reservation_end_reliance();
	return false;
}

/* Counts the end of such a transaction.  Cannot fail. */
void
reservation_end_reliance(void)
{
	pg_atomic_fetch_sub_u32(&entry_pool->reliances, 1);
}

/*
 * Lets no other transaction begin to rely on reservations.  Returns true if none does, so that
 * they can end.
 */
bool
reservation_close(void)
{
	return (pg_atomic_fetch_or_u32(&entry_pool->reliances, RELIANCES_CLOSED) & ~RELIANCES_CLOSED) == 0;
}
