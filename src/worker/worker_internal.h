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

#include "lib/stringinfo.h"
#include "shared/call.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* ------------------------------------------------------------------------
 * worker_session.c: the session, and the settings that it runs with
 * ------------------------------------------------------------------------
 */

extern void				worker_session_start(void);
extern void				worker_session_reload(void);
extern void				worker_session_event(ZkSessionEvent event);
extern void				worker_session_looked_up(uintptr_t lookup, const char *addresses);
pg_noreturn extern void worker_session_stuck(const char *why);
extern void				worker_session_attend(void);
extern void				worker_session_take_settings_up(void);
extern void				worker_session_give_way(void);
extern int64			worker_session_next_wakeup(void);
extern void				worker_session_file_remove(void);
extern void				worker_opening_over(void);
extern void				worker_opening_interrupted(SIGNAL_ARGS);

/* ------------------------------------------------------------------------
 * lease.c: the proof that it lives, and with it our locks
 * ------------------------------------------------------------------------
 */

extern void	 lease_take_over(int timeout_ms);
extern void	 lease_begin(int64 opened_at_us, int timeout_ms);
extern void	 lease_set_timeout(int timeout_ms, int64 since_us);
extern void	 lease_end(void);
extern bool	 lease_has_run_out(void);
extern bool	 lease_is_possible(void);
extern void	 lease_check_timeout(void);
extern void	 lease_attend(void);
extern void	 lease_attend_obstacle(void);
extern int64 lease_next_wakeup(void);

/* ------------------------------------------------------------------------
 * calls.c: sessions' calls to ZooKeeper
 * ------------------------------------------------------------------------
 */

/* The work for a slot: what only this worker needs to know */
typedef struct CallWork
{
	CallSlot *slot;
	uint64	  asked; /* order of the batches that wait or were sent; 0: not seen */

	/* Its batch that was sent; call_batch.c */
	uint64			  connection; /* on which it was sent */
	MemoryContext	  context; /* has the operations and the answer; NULL: this worker has none
								* under way */
	struct Operation *operations;
	StringInfoData	  answer;	 /* as the session reads it: CallResults, and their texts */
	bool			  too_long;	 /* too long to be delivered; it is not complete */
	int				  pending;	 /* calls that have not been answered */
	int				  sync_code; /* ZooKeeper's, if it has refused the sync before them */
	bool			  lost;		 /* one of them never will be answered */
} CallWork;

extern void worker_calls_start(void);
extern void worker_calls_attend(void);
extern void worker_calls_connected(void);
extern void worker_calls_at_exit(void);
extern bool worker_calls_in_doubt(void);
extern bool worker_calls_leave_nodes(void);

/* call_batch.c: the operations of a batch, sent together */
extern void worker_batch_send(CallWork *work);

/* ------------------------------------------------------------------------
 * marker.c: what calls leave in ZooKeeper for a while
 * ------------------------------------------------------------------------
 */

extern void	 worker_marker_start(void);
extern void	 worker_marker_sent(CallSlot *slot);
extern void	 worker_marker_answered(CallSlot *slot, CallOutcome outcome);
extern bool	 worker_marker_may_stay(CallSlot *slot);
extern int	 worker_marker_forbidden(const CallSlot *slot);
extern void	 worker_marker_unwanted(CallSlot *slot);
extern void	 worker_marker_attend(CallSlot *slot);
extern void	 worker_marker_created(CallSlot *slot, const ZkCall *asked, const ZkReply *reply);
extern void	 worker_marker_attend_provisional(CallSlot *slot);
extern bool	 worker_marker_provisional_may_stay(CallSlot *slot);
extern void	 worker_marker_delete_again(void);
extern int64 worker_marker_next_wakeup(void);

/* ------------------------------------------------------------------------
 * queue_waits.c: watches for sessions that look for elements of queues
 * ------------------------------------------------------------------------
 */

typedef enum WatchedKind
{
	WATCHED_QUEUE,
	WATCHED_CLAIM
} WatchedKind;

extern void worker_queue_waits_start(void);
extern void worker_queue_waits_attend(void);
extern bool worker_queue_waits_watch(const char *path, WatchedKind kind, const CallSlot *slot);
extern void worker_queue_waits_answered(const char *path, WatchedKind kind,
										const CallSlot *slot, const ZkReply *reply);
extern void worker_queue_waits_event(const char *path);
extern void worker_queue_waits_connected(void);

/* ------------------------------------------------------------------------
 * candidacy.c: the elections at which this server stands
 * ------------------------------------------------------------------------
 */

extern void	 candidacy_reload(void);
extern int64 candidacy_attend(bool stopping);

#endif /* ZKLOCK_WORKER_INTERNAL_H */
