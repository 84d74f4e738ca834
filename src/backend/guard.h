/*
 * guard.h
 *		What a loss does to a session and its transaction: what the transaction relies on,
 *		interrupts, and the commit guard.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_GUARD_H
#define ZKLOCK_GUARD_H

#include "backend/hold.h"
#include "shared/election.h"

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

/* On what the transaction relies, and relied, besides what it holds */
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

extern int64			leadership_rely(int election);
extern void				reliance_add(const char *path, const Reservation *reservation);
pg_noreturn extern void reliance_report_over(const char *path);

/* Error contexts for what looks at interrupts itself, as each message does */
typedef struct InterruptContext
{
	ErrorContextCallback lost;
	ErrorContextCallback doing;
} InterruptContext;

extern void interrupt_set_policy(int policy, void *extra);
extern void interrupt_defer(void);
extern void interrupt_context_begin(InterruptContext *context, void (*describe)(void *), void *arg);
extern void interrupt_check(void (*describe)(void *), void *arg);
extern void interrupt_check_client(void);

/* When the commit guard checks the locks */
typedef enum GuardMoment
{
	GUARD_COMMAND, /* before a command whose effects a rollback may not undo */
	GUARD_EARLY,   /* at the command COMMIT, before callbacks that may commit elsewhere */
	GUARD_FINAL	   /* before the commit here */
} GuardMoment;

extern void guard_check(GuardMoment moment);
extern void guard_release(Hold *hold, LockMode mode, int n);
extern void guard_end_transaction(void);

#endif /* ZKLOCK_GUARD_H */
