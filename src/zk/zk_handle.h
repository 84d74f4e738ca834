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

/* What came of looking up the names of servers */
typedef enum ZkLookup
{
	ZK_LOOKUP_DONE,	 /* there was nothing to look up */
	ZK_LOOKUP_BEGUN, /* EVENT_LOOKED_UP will tell */
	ZK_LOOKUP_FAILED /* no thread could be started */
} ZkLookup;

extern ZkLookup zk_handle_look_up(const ConnectString *servers, uintptr_t number,
								  char *addresses, size_t size);
extern zhandle_t *zk_handle_open(const char *servers, const ZkClientConfig *config, uintptr_t number);
extern bool zk_handle_close(zhandle_t *handle);
extern void zk_handle_close_apart(zhandle_t *handle);
extern bool zk_handle_show_credentials(zhandle_t *handle, ZkClientConfig *config);
extern void zk_handle_session(zhandle_t *handle, ZkSession *session);

#endif /* ZKLOCK_ZK_HANDLE_H */
