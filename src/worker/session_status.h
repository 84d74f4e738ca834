/*
 * session_status.h
 *		The state of the ZooKeeper session, for all processes to see.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_STATUS_H
#define ZKLOCK_SESSION_STATUS_H

#include "shared/session_info.h"

/* Does the chroot in zklock.servers exist?  If there is none, it does. */
typedef enum ChrootState
{
	CHROOT_EXISTS,
	CHROOT_MISSING
} ChrootState;

extern void session_status_set_state(SessionState state);
extern void session_status_set_error(const char *message);
extern void session_status_set_obstacle(const char *text);
extern void session_status_set_chroot(ChrootState state);
extern void session_status_connected(const SessionInfo *session);
extern void session_status_expired(void);
extern void session_status_forget(void);

extern SessionState session_status_state(void);
extern int64		session_status_id(void);
extern int			session_status_shortest_timeout(void);
extern ChrootState	session_status_chroot(void);
extern uint64		session_status_errors(void);

#endif /* ZKLOCK_SESSION_STATUS_H */
