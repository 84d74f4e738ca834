/*
 * lease_state.c
 *		Does the ZooKeeper session live?  What every process can tell.
 *
 * The worker proves that it does, and publishes until when (lease.c).  This is
 * a time on a clock that runs on while the machine sleeps, so it passes by
 * itself, whatever becomes of the worker.
 *
 * Runs in: any process.  Takes no lock: the two times are atomics.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/lease_state.h"
#include "shared/shmem.h"

/*
 * The state of the lease at this moment.
 *
 * The deadline is compared with a time after it was read, the end with one
 * before: so whoever sees OVER knows that the worker cannot have renewed it.
 */
LeaseState
lease_state(void)
{
	int64 before = zklock_now_us();
	int64 until = (int64) pg_atomic_read_u64(&zklock_shared->lease_until);
	int64 over = (int64) pg_atomic_read_u64(&zklock_shared->lease_over);

	if (zklock_now_us() < until)
		return LEASE_HOLDS;
	return over != 0 && before >= over ? LEASE_OVER : LEASE_SUSPENDED;
}

/* How long the lease still holds, us; 0 if it does not. */
int64
lease_remaining_us(void)
{
	int64 until = (int64) pg_atomic_read_u64(&zklock_shared->lease_until);

	return Max(until - zklock_now_us(), 0);
}

/*
 * Is what was granted lost?  When the lease is over it is, even before the
 * worker has said so.
 */
bool
entry_is_lost(int index)
{
	bool		   over = lease_state() == LEASE_OVER;
	ContenderState state = entry_get_state(index);

	return state == CONTENDER_LOST || (state == CONTENDER_GRANTED && over);
}

/* Is a worker running, and in touch with a quorum of ZooKeeper's servers? */
bool
zklock_connected(void)
{
	bool connected;
	int	 worker_pid;

	zklock_get_session(NULL, &worker_pid);
	LWLockAcquire(zklock_session_lock, LW_SHARED);
	connected = zklock_shared->session.state == SESSION_CONNECTED;
	LWLockRelease(zklock_session_lock);
	return worker_pid != 0 && connected && lease_state() == LEASE_HOLDS;
}
