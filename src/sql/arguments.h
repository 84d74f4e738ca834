/*
 * arguments.h
 *		What SQL functions check in their arguments.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ARGUMENTS_H
#define ZKLOCK_ARGUMENTS_H

#include "fmgr.h"

/* Which paths a function takes */
typedef enum PathRule
{
	ALLOWED_PATHS_ONLY, /* those in zklock.allowed_paths */
	ANY_PATH			/* what is to be unlocked need not be allowed any more */
} PathRule;

extern char *argument_shown(const char *value);
extern char *argument_to_path(text *arg, PathRule rule);
extern void	 argument_refuse_restricted(const char *what);
extern void	 argument_require_holder(void);
extern char *argument_path(FunctionCallInfo fcinfo, PathRule rule);
extern int64 argument_timeout(FunctionCallInfo fcinfo, int n);

#endif /* ZKLOCK_ARGUMENTS_H */
