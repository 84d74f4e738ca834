/*
 * session.h
 *		What the session's life means for the engine.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "shared/session_info.h"

extern void queue_session_connected(const SessionInfo *session);
extern void queue_session_unreachable(void);
extern void queue_session_proved(void);
extern void queue_session_unproved(void);
extern void queue_session_ended(const char *reason);
extern void queue_session_refused(int code);

extern void queue_session_synchronize(void);

#endif /* ZKLOCK_SESSION_H */
