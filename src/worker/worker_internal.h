/*
 * worker_internal.h
 *		What the files of src/worker offer each other.
 *
 * Private to src/worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_INTERNAL_H
#define ZKLOCK_WORKER_INTERNAL_H

#include "shared/call.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* ------------------------------------------------------------------------
 * worker_session.c: the session, and the settings that it runs with
 * ------------------------------------------------------------------------
 */

extern int	 worker_session_start(void);
extern void	 worker_session_reload(void);
extern int64 worker_session_attend(void);
extern int64 worker_session_shut_down(bool with_server);

/* ------------------------------------------------------------------------
 * lease.c: the proof that it lives, and with it our locks
 * ------------------------------------------------------------------------
 */

extern void	 lease_begin(int64 opened_at_us, int timeout_ms);
extern void	 lease_set_timeout(int timeout_ms, int64 since_us);
extern void	 lease_end(void);
extern bool	 lease_is_possible(void);
extern void	 lease_attend(void);
extern int64 lease_attend_obstacle(void);

/* ------------------------------------------------------------------------
 * calls.c: sessions' calls to ZooKeeper
 * ------------------------------------------------------------------------
 */

/* What of sessions' calls must not be left as it is */
typedef enum Unsettled
{
	UNSETTLED_NODES,		   /* a node that goes if its session gives it up */
	UNSETTLED_NODES_AND_WRITES /* or a write that is under way, with unknown outcome */
} Unsettled;

extern void	 worker_calls_start(void);
extern int64 worker_calls_attend(void);
extern void	 worker_calls_connected(void);
extern void	 worker_calls_watch_event(ZkWatchEvent event, const char *path);
extern bool	 worker_calls_unsettled(Unsettled what);

/* ------------------------------------------------------------------------
 * candidacy.c: the elections at which this server stands
 * ------------------------------------------------------------------------
 */

extern void	 candidacy_reload(void);
extern int64 candidacy_attend(bool stopping);

#endif /* ZKLOCK_WORKER_INTERNAL_H */
