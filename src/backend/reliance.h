/*
 * reliance.h
 *		What a transaction relies on besides what it holds: terms of leadership, and
 *		reservations; and asking for these and ending them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RELIANCE_H
#define ZKLOCK_RELIANCE_H

#include "compat.h"
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

/* reserve.c */
extern bool reserve_acquire(const char *path, int duration_ms, int64 timeout_ms, int64 *token);
extern bool reserve_end(const char *path, const Reservation *reservation);

/* reliance.c: leadership */
extern bool				leadership_rely(int election, int64 *token);
extern LeadershipTerm  *leadership_next(const LeadershipTerm *term);
pg_noreturn extern void leadership_report_lost(const LeadershipTerm *term);

/* What the worker reads.  Cannot fail, does not wait. */
extern void leadership_set_stakes(uint8 which, uint8 stake);

/* reliance.c: reservations, and the end of the transaction */
extern void				  reliance_add(const char *path, const Reservation *reservation);
extern ReliedReservation *reliance_next(const ReliedReservation *relied);
pg_noreturn extern void	  reliance_report_over(const char *path);
extern void				  reliance_forget(void);

#endif /* ZKLOCK_RELIANCE_H */
