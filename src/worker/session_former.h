/*
 * session_former.h
 *		The ZooKeeper session that a server left behind, and its end.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_FORMER_H
#define ZKLOCK_SESSION_FORMER_H

#include "worker/session_settings.h"

/* What is to be done when the former session has been closed. */
typedef enum FormerStep
{
	FORMER_LOOK_NOW,   /* connect to it again, to see whether it is over */
	FORMER_LOOK_LATER, /* likewise, but not at once: it may not have been closed */
	FORMER_FORGOTTEN   /* nothing: it has been tried often enough */
} FormerStep;

extern void		   session_former_find(void);
extern bool		   session_former_exists(void);
extern Credentials session_former_configure(ZkClientConfig *config);
extern FormerStep  session_former_close(void);
extern void		   session_former_is_over(void);
extern void		   session_former_refused(void);

#endif /* ZKLOCK_SESSION_FORMER_H */
