/*
 * session_former.h
 *		The ZooKeeper session that a server left behind, and its end.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_FORMER_H
#define ZKLOCK_SESSION_FORMER_H

#include "shared/session_info.h"
#include "worker/session_settings.h"

/* A session can be taken up, and ended, with these two. */
typedef struct SessionKey
{
	int64 id; /* 0 if there is no session */
	char  password[ZKLOCK_PASSWORD_SIZE];
} SessionKey;

/* What is to be done when the former session has been closed. */
typedef enum FormerStep
{
	FORMER_LOOK_NOW,   /* connect to it again, to see whether it is over */
	FORMER_LOOK_LATER, /* likewise, but not at once: it may not have been closed */
	FORMER_FORGOTTEN   /* nothing: it has been tried often enough */
} FormerStep;

/* The file that tells the next server */
extern void session_file_write(const SessionKey *key);
extern void session_file_remove(void);

/* The end of what it tells of */
extern void		   session_former_find(void);
extern bool		   session_former_exists(void);
extern Credentials session_former_configure(ZkClientConfig *config);
extern FormerStep  session_former_close(void);
extern void		   session_former_is_over(void);
extern void		   session_former_refused(void);

#endif /* ZKLOCK_SESSION_FORMER_H */
