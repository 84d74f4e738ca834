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
 * session_settings.c: the settings of the session, and how changed ones are taken up
 * ------------------------------------------------------------------------
 */

/* Whether the credentials, if any are set, are shown to ZooKeeper */
typedef enum Credentials
{
	CREDENTIALS_SHOWN,
	CREDENTIALS_WITHHELD
} Credentials;

extern bool session_settings_configure(ZkClientConfig *config, Credentials credentials);
extern void session_settings_read_files(void);

/* Taking up changed ones */
extern void	 session_settings_start(void);
extern void	 session_settings_reload(void);
extern char *session_settings_list_changes(void);
extern bool	 session_settings_change_chroot(void);
extern void	 session_settings_take_up(void);
extern bool	 session_settings_due(void);
extern int64 session_settings_next_wakeup(void);

/* ------------------------------------------------------------------------
 * leftover_session.c: the one that a server left behind
 * ------------------------------------------------------------------------
 */

/* The file from which the next server learns of the session */
extern void session_file_write(int64 id, const char *password);
extern void session_file_remove(void);

/* Crashes while a session is opened */
#define OPENING_MAX_CRASHES 2 /* in a row */

extern int	worker_opening_begins(void);
extern void worker_opening_over(void);
extern void worker_opening_interrupted(SIGNAL_ARGS);

/* The end of the session in the file */
extern void		   leftover_session_find(void);
extern bool		   leftover_session_exists(void);
extern Credentials leftover_session_configure(ZkClientConfig *config);
extern bool		   leftover_session_close(void);
extern void		   leftover_session_forget(void);
extern void		   leftover_session_is_over(void);

/* ------------------------------------------------------------------------
 * worker_session.c: the life of the session
 * ------------------------------------------------------------------------
 */

extern void				worker_session_start(void);
extern void				worker_session_reload(void);
extern void				worker_session_event(ZkSessionEvent event);
extern void				worker_session_looked_up(uintptr_t lookup, const char *addresses);
pg_noreturn extern void worker_session_stuck(const char *why);
extern void				worker_session_end(const char *reason);
extern void				worker_session_attend(void);
extern int64			worker_session_next_wakeup(void);

/* ------------------------------------------------------------------------
 * lease.c: the proof that it lives, and with it our locks
 * ------------------------------------------------------------------------
 */

extern void	 lease_take_over(int timeout_ms);
extern void	 lease_begin(int64 opened_at_us, int timeout_ms);
extern void	 lease_set_timeout(int timeout_ms, int64 since_us);
extern int64 lease_base(void);
extern void	 lease_end(void);
extern bool	 lease_has_run_out(void);
extern bool	 lease_is_possible(void);
extern bool	 lease_is_possible_with(int timeout_ms, int tick_ms);
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
extern void	 candidacy_attend(void);
extern void	 candidacy_withdraw_all(void);
extern int64 candidacy_next_wakeup(void);

#endif /* ZKLOCK_WORKER_INTERNAL_H */
