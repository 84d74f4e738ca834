/*
 * own_record.h
 *		Deadlocks across servers: our own record.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_OWN_RECORD_H
#define ZKLOCK_OWN_RECORD_H

#include "worker/own_waits.h"
#include "zk/zk_call.h"

/* "<session id>-<number>", in hexadecimal digits */
#define RECORD_NAME_LENGTH 25

/* Names of all records */
extern char *worker_record_path(const char *name);
extern int64 worker_record_session(const char *name);

/* Ours, in the order of a round */
extern bool	 worker_own_record_begin(void);
extern void	 worker_own_record_listed(const ZkReply *reply);
extern bool	 worker_own_record_is_remains(const char *name);
extern bool	 worker_own_record_tells(const char *body);
extern int64 worker_own_record_seen(void);
extern void	 worker_own_record_write(const OwnWaits *own, int64 seen);
extern void	 worker_own_record_withdraw(void);
extern void	 worker_own_record_delete_remains(void);

#endif /* ZKLOCK_OWN_RECORD_H */
