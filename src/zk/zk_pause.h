/*
 * zk_pause.h
 *		Pauses between connections that end without an answer.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_PAUSE_H
#define ZKLOCK_ZK_PAUSE_H

extern void zk_pause_hold(const char *log_message);
extern void zk_pause_connected(void);
extern void zk_pause_answered(void);
extern void zk_pause_hung_up(int session_timeout_ms);
extern void zk_pause_refused(void);
extern void zk_pause_end(void);
extern bool zk_pause_is_due(void);

#endif /* ZKLOCK_ZK_PAUSE_H */
