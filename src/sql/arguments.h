/*
 * arguments.h
 *		What SQL functions check in their arguments.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ARGUMENTS_H
#define ZKLOCK_ARGUMENTS_H

#include "fmgr.h"

extern char *shown_argument(const char *value);
extern char *check_path(text *arg, bool to_lock);
extern void	 refuse_restricted_operation(const char *what);
extern void	 require_lock_holder(void);
extern char *path_argument(FunctionCallInfo fcinfo, bool to_lock);
extern int64 interval_argument(FunctionCallInfo fcinfo, int n);

#endif /* ZKLOCK_ARGUMENTS_H */
