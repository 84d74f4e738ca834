/*
 * arguments.h
 *		Checks of arguments, and rows of results, for the SQL functions, and what nearly all of
 *		them use.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ARGUMENTS_H
#define ZKLOCK_ARGUMENTS_H

#include "backend/display.h"
#include "backend/view.h"
#include "backend/wait.h"
#include "compat.h"
#include "funcapi.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "utils/acl.h"
#include "utils/builtins.h"

/* An SQL function that another function serves, which has more arguments */
#define SQL_FUNCTION(symbol, function, ...)   \
	COMPAT_FUNCTION_INFO_V1(symbol);          \
	Datum symbol(PG_FUNCTION_ARGS)            \
	{                                         \
		return function(fcinfo, __VA_ARGS__); \
	}                                         \
	extern int no_such_variable

/* Which paths a function accepts */
typedef enum PathRule
{
	ALLOWED_PATHS_ONLY, /* those in zklock.allowed_paths */
	ANY_PATH			/* all: a path may be unlocked that is no longer allowed */
} PathRule;

extern char *argument_to_path(char *path, PathRule rule);
extern void	 argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *what);
extern void	 argument_refuse_restricted(const char *what);
extern void	 argument_require_holder(void);
extern char *argument_path(FunctionCallInfo fcinfo, PathRule rule);
extern char *argument_path_above(FunctionCallInfo fcinfo, PathRule rule, const char *what, int longest);
extern void	 argument_require_administrator(Oid role, const char *what);
extern int64 argument_timeout(FunctionCallInfo fcinfo, int n);
extern int	 argument_duration(FunctionCallInfo fcinfo, int n);

#define ROW_COLUMNS 24

/* A row of a result, whose columns are added one after the other */
typedef struct Row
{
	int	  n;
	Datum values[ROW_COLUMNS];
	bool  nulls[ROW_COLUMNS];
} Row;

/* NULL if the value is not known */
static inline void
row_add_if(Row *row, bool known, Datum value)
{
	Assert(row->n < ROW_COLUMNS);
	row->values[row->n] = known ? value : (Datum) 0;
	row->nulls[row->n] = !known;
	row->n++;
}

static inline void
row_add(Row *row, Datum value)
{
	row_add_if(row, true, value);
}

/* A time, or NULL if it is 0 */
static inline void
row_add_time(Row *row, TimestampTz time)
{
	row_add_if(row, time != 0, TimestampTzGetDatum(time));
}

extern void	 row_add_text(Row *row, const char *text);
extern void	 row_add_owner(Row *row, const ContenderOwner *owner);
extern void	 row_add_zk_time(Row *row, int64 ms);
extern Datum row_return(FunctionCallInfo fcinfo, Row *row);
extern void	 row_store(FunctionCallInfo fcinfo, Row *row);

/* The id of a ZooKeeper session, as ZooKeeper's tools show it; NULL if it is 0 */
static inline void
row_add_session(Row *row, int64 id)
{
	row_add_text(row, id != 0 ? psprintf("0x%llx", (unsigned long long) id) : NULL);
}

#endif /* ZKLOCK_ARGUMENTS_H */
