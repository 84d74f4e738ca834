/*
 * zk_send.h
 *		Handing a call to the client library.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_SEND_H
#define ZKLOCK_ZK_SEND_H

#include <zookeeper/zookeeper.h>

#include "zk/zk_call_record.h"
#include "zk/zk_session.h"

extern int zk_send(zhandle_t *handle, uintptr_t handle_number, ZkAcl acl, const Call *call);

#endif /* ZKLOCK_ZK_SEND_H */
