/*
 * lease_state.c
 *		Does the ZooKeeper session live?  What every process can tell.
 *
 * The worker proves that it does, and publishes until when (worker/lease.c).
 * This is a time on a clock that runs on while the machine sleeps, so it passes
 * by itself, whatever becomes of the worker.  A second time says when locks held
 * under that lease count as lost.
 *
 * The two times are read without a lock.  Therefore a later end of the lease is
 * written after the time that goes with it, and read before: nobody sees the
 * former without the latter.  A barrier stands between the two on either side.
 *
 * The lease and an entry's state are not of one moment either.  A process that
 * must know that a lock is held reads the lease first: if that holds, it is the
 * lease under which the lock was granted, or else the state that is read
 * afterwards tells of the loss, for the worker writes that before it begins
 * another lease.
 *
 * Runs in: any process, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/lease_state.h"

LeaseTimes *lease_times = NULL;

/* Initialises new memory. */
void
lease_times_init(LeaseTimes *times)
{
	pg_atomic_init_u64(&times->until, 0);
	pg_atomic_init_u64(&times->over, 0);
}

/* When the lease ends, us; 0 for none. */
int64
lease_until(void)
{
	return (int64) pg_atomic_read_u64(&lease_times->until);
}

/* When locks held under the lease count as lost, us; 0 for none. */
int64
lease_over(void)
{
	return (int64) pg_atomic_read_u64(&lease_times->over);
}

/*
 * The state of the lease at this moment.  What is read after the call is no
 * older.
 *
 * The deadline is compared with a time after it was read, the end with one
 * before: so after OVER, the worker cannot have renewed it.
 */
LeaseState
lease_state(void)
{
	int64 before = zklock_now_us();
	int64 until;
	int64 over;

	until = lease_until();
	pg_read_barrier();
	over = lease_over();
	pg_read_barrier();
	if (zklock_now_us() < until)
		return LEASE_HOLDS;
	return over != 0 && before >= over ? LEASE_OVER : LEASE_SUSPENDED;
}

/* How long the lease still holds, us; 0 if it does not.  Needs one time only, so no barrier. */
int64
lease_remaining_us(void)
{
	return Max(lease_until() - zklock_now_us(), 0);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/*
 * The lease holds until then, and is over at that time.  The first barrier also
 * stands between this and what the worker has written of losses.
 */
void
lease_extend(int64 until, int64 over)
{
	pg_atomic_write_u64(&lease_times->over, (uint64) over);
	pg_write_barrier();
	pg_atomic_write_u64(&lease_times->until, (uint64) until);
}

/* The lease ends earlier than it was to.  Alone, so no barrier is needed. */
void
lease_cut(int64 until)
{
	pg_atomic_write_u64(&lease_times->until, (uint64) until);
}

/*
 * There is no lease any more, and those that held a lock under it have been told.
 * A process that sees the one time and not yet the other finds the lease over,
 * or suspended.
 */
void
lease_void(void)
{
	pg_atomic_write_u64(&lease_times->until, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&lease_times->over, 0);
}
