/*
 * leadership.h
 *		The terms of leadership on which this session's transaction relies.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEADERSHIP_H
#define ZKLOCK_LEADERSHIP_H

#include "compat.h"
#include "shared/settings.h"

/* A term of this server's leadership that the transaction has seen */
typedef struct LeadershipTerm
{
	int			election;
	int64		token;
	CommitGuard taken_under; /* strictest zklock.commit_guard under which it was seen */
	uint32		check;		 /* number of the check by a quorum that was asked for last */
} LeadershipTerm;

extern bool				leadership_rely(int election, int64 *token);
extern LeadershipTerm  *leadership_next(const LeadershipTerm *term);
extern bool				leadership_is_lost(const LeadershipTerm *term);
pg_noreturn extern void leadership_report_lost(const LeadershipTerm *term);

/* What the worker reads.  Cannot fail, does not wait. */
extern void leadership_set_stakes(uint8 which, uint8 stake);
extern void leadership_forget(void);

#endif /* ZKLOCK_LEADERSHIP_H */
