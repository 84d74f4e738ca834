/*
 * lease_state.h
 *		Does the ZooKeeper session live?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEASE_STATE_H
#define ZKLOCK_LEASE_STATE_H

/* What can be said about the session, and so about the locks held in it. */
typedef enum LeaseState
{
	LEASE_HOLDS,	 /* the session lives */
	LEASE_SUSPENDED, /* it may have ended without our knowing */
	LEASE_OVER		 /* it counts as ended */
} LeaseState;

extern LeaseState lease_state(void);
extern int64	  lease_remaining_us(void);
extern bool		  entry_is_lost(int index);
extern bool		  zklock_connected(void);

#endif /* ZKLOCK_LEASE_STATE_H */
