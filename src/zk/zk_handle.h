/*
 * zk_handle.h
 *		Handles of the client library: how they begin and end.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_HANDLE_H
#define ZKLOCK_ZK_HANDLE_H

#include <zookeeper/zookeeper.h>

#include "zk/zk_session.h"

typedef struct ZkHandleOptions
{
	const char			 *servers; /* numeric addresses, an odd number, and the chroot */
	const ZkClientConfig *config;
	uintptr_t			  number; /* the handle's, in its events */
	log_callback_fn		  log;
} ZkHandleOptions;

extern zhandle_t *zk_handle_open(const ZkHandleOptions *options);
extern bool		  zk_handle_is_shaking_hands(zhandle_t *handle);
extern void		  zk_handle_break_handshake(zhandle_t *handle);
extern bool		  zk_handle_close(zhandle_t *handle);
extern void		  zk_handle_close_apart(zhandle_t *handle, uintptr_t number);
extern bool		  zk_handle_show_credentials(zhandle_t *handle, ZkClientConfig *config);
extern void		  zk_handle_session(zhandle_t *handle, ZkSession *session);

#endif /* ZKLOCK_ZK_HANDLE_H */
