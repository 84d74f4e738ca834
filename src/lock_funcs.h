/*
 * lock_funcs.h
 *		Arguments of the SQL functions, checked.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_FUNCS_H
#define ZKLOCK_LOCK_FUNCS_H

#include "fmgr.h"

extern void	 require_lock_holder(void);
extern int64 interval_argument(FunctionCallInfo fcinfo, int n);

#endif /* ZKLOCK_LOCK_FUNCS_H */
