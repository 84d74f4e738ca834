/*
 * leadership.h
 *		The terms of leadership on which this session's transaction relies.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEADERSHIP_H
#define ZKLOCK_LEADERSHIP_H

#include "compat.h"
#include "shared/entry.h"
#include "shared/settings.h"

/* A term in which the transaction was told that this server leads */
typedef struct LeadershipTerm
{
	int			election;
	int64		token;
	CommitGuard taken_under; /* strictest zklock.commit_guard when it was told */
	uint32		check;		 /* by a quorum: number of the one asked for last */
} LeadershipTerm;

extern bool				leadership_rely(int election, int64 *token);
extern LeadershipTerm  *leadership_next(const LeadershipTerm *term);
extern bool				leadership_is_lost(const LeadershipTerm *term);
pg_noreturn extern void leadership_report_lost(const LeadershipTerm *term);

/* For the worker.  Cannot fail, does not wait. */
extern void leadership_set_stakes(uint8 which, uint8 stake);
extern void leadership_forget(void);

#endif /* ZKLOCK_LEADERSHIP_H */
