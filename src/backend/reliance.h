/*
 * reliance.h
 *		What a transaction relies on besides what it holds: terms of leadership,
 *		reservations, and locks that it has released.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RELIANCE_H
#define ZKLOCK_RELIANCE_H

#include "compat.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/settings.h"

/* A term of this server's leadership that the transaction has seen */
typedef struct LeadershipTerm
{
	int			election;
	int64		token;
	CommitGuard taken_under; /* strictest zklock.commit_guard under which it was seen */
	uint32		check;		 /* number of the check by a quorum that was asked for last */
} LeadershipTerm;

/* A reservation on which the transaction relies */
typedef struct ReliedReservation
{
	struct ReliedReservation *next;
	Reservation				  reservation;
	CommitGuard taken_under; /* strictest zklock.commit_guard under which it was named */
	uint32		check;		 /* number of the check by a quorum that was asked for last */
	char		path[FLEXIBLE_ARRAY_MEMBER]; /* UTF-8 */
} ReliedReservation;

/* On what the transaction relies, and relied */
typedef struct Reliance
{
	LeadershipTerm terms[ELECTION_SLOTS]; /* one for each election at most, so there is room */
	int			   nterms;
	ReliedReservation *reservations; /* in memory of the transaction; the last one first */
	bool counted; /* the transaction is counted in shared memory, as it relies on reservations */

	/* It has released a lock that it relied on and that may have been lost before. */
	bool		released_unproved;
	CommitGuard released_under; /* the strictest guard of these */
} Reliance;

/* That of this session's transaction */
extern Reliance transaction_reliance;

extern bool				leadership_rely(int election, int64 *token);
extern void				leadership_set_stakes(uint8 which, uint8 stake);
extern void				reliance_add(const char *path, const Reservation *reservation);
pg_noreturn extern void reliance_report_over(const char *path);
extern void				reliance_forget(void);

#endif /* ZKLOCK_RELIANCE_H */
