/*
 * wait_log.h
 *		What the log is told of a session that waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_LOG_H
#define ZKLOCK_WAIT_LOG_H

#include "backend/contenders.h"

/* wait_log.c draws it. */
typedef enum WaitLogState
{
	WAIT_LOG_NOTHING, /* has been told */
	WAIT_LOG_ASKED,	  /* the worker is asked who is in the way */
	WAIT_LOG_TOLD	  /* that the session still waits */
} WaitLogState;

/* Contenders are in so many places at most: those for permits, and for turns. */
#define WAIT_LOG_PLACES 2

/* Of so many contenders data are read, and so many are named in each list. */
#define WAIT_LOG_NAMED 20

/* Where contenders are, and who these are */
typedef struct WaitLogPlace
{
	char	   path[ZKLOCK_MAX_PATH + 1];
	RecipeId   recipe;
	bool	   is_listed;
	Contenders contenders; /* if so */
} WaitLogPlace;

typedef struct WaitLog
{
	WaitLogState state;
	int64		 start_us; /* of the wait */
	const char	*path;	   /* for messages, UTF-8 */
	const char	*what;	   /* is waited for, likewise */
	WaitLogPlace places[WAIT_LOG_PLACES];
	int			 nplaces;
	int			 place; /* that is asked about */
	Call		 call;
	CallStep	 steps[WAIT_LOG_NAMED];
	int			 nsteps; /* under way */
} WaitLog;

extern void wait_log_begin(WaitLog *log, const char *path, const char *what, int64 start_us);
extern void wait_log_attend(WaitLog *log, int index);
extern void wait_log_granted(WaitLog *log);
extern void wait_log_refused(WaitLog *log, int index);
extern void wait_log_give_up(WaitLog *log);

#endif /* ZKLOCK_WAIT_LOG_H */
