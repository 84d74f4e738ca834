/*
 * wait_log.h
 *		What the log is told of a session that waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_LOG_H
#define ZKLOCK_WAIT_LOG_H

#include "backend/ask.h"

/* wait_log.c draws it. */
typedef enum WaitLogState
{
	WAIT_LOG_NOTHING, /* has been told */
	WAIT_LOG_ASKED,	  /* the worker is asked who is in the way */
	WAIT_LOG_TOLD	  /* that the session still waits */
} WaitLogState;

/* Contenders are in so many places at most: those for permits, and for turns. */
#define WAIT_LOG_PLACES 2

typedef struct WaitLog
{
	WaitLogState  state;
	int64		  start_us;				   /* of the wait */
	const char	 *path;					   /* for messages, UTF-8 */
	const char	 *what;					   /* is waited for, likewise */
	AskedQuestion asked;				   /* the question after those that are answered */
	Question	  places[WAIT_LOG_PLACES]; /* the contenders in each */
	char		  paths[WAIT_LOG_PLACES][ZKLOCK_MAX_PATH + 1];
	int			  nplaces;
	int			  nanswered;
} WaitLog;

extern void wait_log_begin(WaitLog *log, const char *path, const char *what, int64 start_us);
extern void wait_log_attend(WaitLog *log, int index);
extern void wait_log_granted(WaitLog *log);
extern void wait_log_refused(WaitLog *log, int index);
extern void wait_log_give_up(WaitLog *log);
extern void wait_log_at_exit(WaitLog *log);

#endif /* ZKLOCK_WAIT_LOG_H */
