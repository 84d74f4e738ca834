/*
 * leadership.h
 *		Does this server lead an election?  To ask, to wait for it, to give it up.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEADERSHIP_H
#define ZKLOCK_LEADERSHIP_H

#include "shared/election.h"
#include "shared/settings.h"

extern bool	 leadership_is_leader(const char *path);
extern int64 leadership_term(const char *path);
extern bool	 leadership_await(const char *path, int64 timeout_ms);
extern bool	 leadership_resign(const char *path);

/* reliance.c: the terms of leadership that the transaction relies on */
typedef struct ReliedTerm
{
	int			election;
	int64		term;
	CommitGuard taken_under; /* strictest zklock.commit_guard of its answers */
	bool		check_asked; /* of a quorum */
	uint32		check;		 /* its number */
} ReliedTerm;

typedef void (*RelianceVisitor)(ReliedTerm *relied, void *arg);

extern bool		   reliance_add(int election, int64 term);
extern bool		   reliance_exists(void);
extern void		   reliance_visit(RelianceVisitor visit, void *arg);
extern void		   reliance_commit(void);
extern void		   reliance_set_policy(LossPolicy policy);
extern const char *reliance_lost(void);
extern void		   reliance_end(void);

#endif /* ZKLOCK_LEADERSHIP_H */
