/*
 * zk_trial.h
 *		Trying other servers and credentials beside the session that runs.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TRIAL_H
#define ZKLOCK_ZK_TRIAL_H

#include "zk/zk_call_record.h"
#include "zk/zk_session.h"

/* zk_trial.c draws them. */
typedef enum ZkTrialState
{
	ZK_TRIAL_NONE,
	ZK_TRIAL_RUNNING,
	ZK_TRIAL_STANDS, /* a server has answered, with these credentials */
	ZK_TRIAL_FAILED	 /* see zk_trial_fault() */
} ZkTrialState;

/* For the worker */
extern void			zk_trial_begin(const ZkClientConfig *config, int patience_ms);
extern ZkTrialState zk_trial_state(void);
extern const char  *zk_trial_fault(void);
extern bool			zk_trial_chroot_exists(void);
extern int			zk_trial_timeout(void);
extern void			zk_trial_get(const char *path, ZkReplyHandler handler);
extern void			zk_trial_end(void);
extern bool			zk_trial_closing(void);
extern int64		zk_trial_next_wakeup(void);

/* For zk_client.c */
extern void zk_trial_event(const Event *event);

#endif /* ZKLOCK_ZK_TRIAL_H */
