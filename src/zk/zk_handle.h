/*
 * zk_handle.h
 *		Handles of the client library: how they begin and end.
 *
 * Private to zk_client.c and zk_trial.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_HANDLE_H
#define ZKLOCK_ZK_HANDLE_H

#include <zookeeper/zookeeper.h>

#include "zk/zk_event.h"

/* Marks the epochs of trial handles, so that events tell whose they are. */
#define ZK_TRIAL_EPOCH ((uintptr_t) 1 << (sizeof(uintptr_t) * 8 - 1))

typedef struct ZkHandleOptions
{
	const char		 *servers;		   /* numeric addresses, an odd number, and the chroot */
	int				  session_timeout; /* ms, asked for */
	const clientid_t *session;		   /* to resume, or NULL */
	uintptr_t		  epoch;		   /* the watcher's context */
	watcher_fn		  watcher;
	log_callback_fn	  log;
} ZkHandleOptions;

extern zhandle_t *zk_handle_open(const ZkHandleOptions *options);
extern void		  zk_handle_close_apart(zhandle_t *handle, uintptr_t epoch);
extern void		  zk_handle_set_pause(int ms);
extern void		  zk_handle_pause(const char *message);
extern void		  zk_handle_push_log(const char *message, uintptr_t epoch);

#endif /* ZKLOCK_ZK_HANDLE_H */
