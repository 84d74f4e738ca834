/*
 * lease_state.h
 *		Does the ZooKeeper session live?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEASE_STATE_H
#define ZKLOCK_LEASE_STATE_H

#include "port/atomics.h"
#include "shared/clock.h"

/* What can be said about the session, and so about the locks held in it. */
typedef enum LeaseState
{
	LEASE_HOLDS,	 /* the session lives */
	LEASE_SUSPENDED, /* it may have ended without our knowing */
	LEASE_OVER		 /* it counts as ended */
} LeaseState;

/*
 * Times by the clock of zklock_now_us(), 0 for none.  Written by the worker
 * alone, read by anyone; lease_state.c says in which order.
 */
typedef struct LeaseTimes
{
	pg_atomic_uint64 until; /* when the lease ends */
	pg_atomic_uint64 over;	/* when locks held under it count as lost */
} LeaseTimes;

/* In shared memory */
extern LeaseTimes *lease_times;

extern void lease_times_init(LeaseTimes *times);

/* Any process */
extern LeaseState lease_state(void);
extern int64	  lease_remaining_us(void);

/* The worker */
extern int64 lease_until(void);
extern int64 lease_over(void);
extern void	 lease_extend(int64 until, int64 over);
extern void	 lease_cut(int64 until);
extern void	 lease_void(void);

#endif /* ZKLOCK_LEASE_STATE_H */
