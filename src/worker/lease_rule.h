/*
 * lease_rule.h
 *		How long a ZooKeeper session is sure to live, from what it answered.
 *
 * Pure C: no PostgreSQL, no ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEASE_RULE_H
#define ZKLOCK_LEASE_RULE_H

#include <stdint.h>

#define LEASE_HISTORY 128

/* A heartbeat that the leader has committed; times are of any clock that nobody sets */
typedef struct LeaseBeat
{
	int64_t sent;	  /* not later than it was sent */
	int64_t answered; /* not earlier than the answer came */
} LeaseBeat;

typedef struct LeaseHistory
{
	LeaseBeat beats[LEASE_HISTORY]; /* in order of sending and of answering */
	int		  n;					/* 0: the proof starts from nothing */
} LeaseHistory;

/* A proof that waits to be confirmed, after a lapse */
typedef struct LeaseRecovery
{
	int64_t until;		  /* the deadline that it gives; 0: there is no proof yet */
	int64_t confirm_from; /* a heartbeat that is sent then or later confirms it */
} LeaseRecovery;

extern int64_t lease_history_add(LeaseHistory *history, int64_t sent, int64_t answered, int64_t tick);
extern int64_t lease_recovery_add(LeaseRecovery *recovery, int64_t until, int64_t sent,
								  int64_t answered, int64_t tick);

#endif /* ZKLOCK_LEASE_RULE_H */
