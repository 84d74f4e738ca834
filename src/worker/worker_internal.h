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
 * session_former.c: the one that a server left behind
 * ------------------------------------------------------------------------
 */

/* The file from which the next server learns of the session */
extern void session_file_write(int64 id, const char *password);
extern void session_file_remove(void);

/* The end of the session in the file */
extern void		   session_former_find(void);
extern bool		   session_former_exists(void);
extern Credentials session_former_configure(ZkClientConfig *config);
extern bool		   session_former_close(void);
extern void		   session_former_is_over(void);

/* ------------------------------------------------------------------------
 * session_life.c: the life of the session
 * ------------------------------------------------------------------------
 */

extern void				session_life_start(void);
extern void				session_life_event(ZkSessionEvent event);
extern void				session_life_looked_up(uintptr_t question, const char *addresses);
pg_noreturn extern void session_life_stuck(const char *why);
extern void				session_life_end(const char *reason);
extern void				session_life_attend(void);
extern int64			session_life_next_wakeup(void);

/* ------------------------------------------------------------------------
 * lease.c: the proof that it lives, and with it our locks
 * ------------------------------------------------------------------------
 */

extern void	 lease_take_over(int timeout_ms);
extern void	 lease_begin(int64 opened_at_us, int timeout_ms);
extern void	 lease_set_timeout(int timeout_ms, int64 since_us);
extern int64 lease_base(void);
extern void	 lease_end(void);
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

extern void worker_calls_start(void);
extern void worker_calls_attend(void);
extern void worker_calls_connected(void);
extern void worker_calls_at_exit(void);
extern bool worker_calls_in_doubt(void);

/* ------------------------------------------------------------------------
 * question.c: the operations of a question, sent together
 * ------------------------------------------------------------------------
 */

typedef struct Question
{
	CallSlot *slot;
	MemoryContext context; /* has the operations and the answer; NULL: this worker has none under way */
	struct Operation *operations;
	StringInfoData	  answer;	/* as the session reads it: CallResults, and their texts */
	bool			  too_long; /* too long to be delivered; it is not complete */
	int				  pending;	/* calls that have not been answered */
	bool			  lost;		/* one of them never will be answered */
} Question;

extern void worker_question_send(Question *question, CallSlot *slot);

/* ------------------------------------------------------------------------
 * scratch.c: what calls leave in ZooKeeper for a while
 * ------------------------------------------------------------------------
 */

extern void	 worker_scratch_start(void);
extern void	 worker_scratch_sent(CallSlot *slot);
extern void	 worker_scratch_answered(CallSlot *slot, CallOutcome outcome);
extern bool	 worker_scratch_may_stay(CallSlot *slot);
extern int	 worker_scratch_forbidden(const CallSlot *slot);
extern void	 worker_scratch_unwanted(CallSlot *slot);
extern void	 worker_scratch_attend(CallSlot *slot);
extern void	 worker_scratch_created(CallSlot *slot, CallOpKind kind, const char *path,
									CallOutcome outcome);
extern void	 worker_scratch_attend_provisional(CallSlot *slot);
extern void	 worker_scratch_delete_again(void);
extern int64 worker_scratch_next_wakeup(void);

/* ------------------------------------------------------------------------
 * seeks.c: watches for sessions that look for elements of queues
 * ------------------------------------------------------------------------
 */

typedef enum WatchedKind
{
	WATCHED_QUEUE,
	WATCHED_CLAIM
} WatchedKind;

extern void worker_seeks_start(void);
extern void worker_seeks_attend(void);
extern bool worker_seeks_watch(const char *path, WatchedKind kind, const CallSlot *slot);
extern void worker_seeks_answered(const char *path, WatchedKind kind, const CallSlot *slot,
								  const ZkReply *reply);
extern void worker_seeks_event(const char *path);
extern void worker_seeks_connected(void);

/* ------------------------------------------------------------------------
 * candidacy.c: the elections at which this server stands
 * ------------------------------------------------------------------------
 */

extern void	 candidacy_reload(void);
extern void	 candidacy_attend(void);
extern void	 candidacy_withdraw_all(void);
extern int64 candidacy_next_wakeup(void);

#endif /* ZKLOCK_WORKER_INTERNAL_H */
