/*
 * zk_call.h
 *		Making calls to ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALL_H
#define ZKLOCK_ZK_CALL_H

#include "zk/zk_call_record.h"

/*
 * Each call is answered by exactly one call of its handler.  The owner is the
 * session that it is made for: its process id, so that each session gets its
 * share of what can be under way.
 */
#define ZK_WORKER 0 /* nobody's in particular */
extern void zk_create(int owner, const char *path, const char *data, ZkNodeKind kind,
					  ZkReplyHandler handler, void *arg);
extern void zk_create_followed(int owner, const char *path, const char *data, ZkNodeKind kind,
							   ZkReplyHandler handler, void *arg);
extern void zk_exchange(int owner, const char *path, const char *data, ZkNodeKind kind,
						const char *replaced, ZkNotice notice, ZkReplyHandler handler, void *arg);
extern void zk_append(int owner, const char *path, const char *data, int length,
					  const char *receipt, ZkReplyHandler handler, void *arg);
extern void zk_set(int owner, const char *path, const char *data, int32 version,
				   ZkReplyHandler handler, void *arg);
extern void zk_delete(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_delete_patiently(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_delete_both(int owner, const char *first, const char *second,
						   ZkReplyHandler handler, void *arg);
extern void zk_get(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
				   void *arg);
extern void zk_list(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
					void *arg);
extern void zk_look(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_read(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_fetch(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_check(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_beat(ZkReplyHandler handler, void *arg);
extern void zk_sync(ZkReplyHandler handler, void *arg);
extern void zk_unwatch_data(const char *path);
extern void zk_unwatch_children(const char *path);

#endif /* ZKLOCK_ZK_CALL_H */
