/*
 * zk_call.h
 *		Calls to ZooKeeper, from when they are made until they are answered.
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
extern void	 zk_delete_both(int owner, const char *first, const char *second,
							ZkReplyHandler handler, void *arg);
extern void	 zk_get(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
					void *arg);
extern void	 zk_list(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
					 void *arg);
extern void	 zk_look(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void	 zk_read(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void	 zk_fetch(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void	 zk_check(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void	 zk_beat(ZkReplyHandler handler, void *arg);
extern void	 zk_sync(ZkReplyHandler handler, void *arg);
extern void	 zk_unwatch_data(const char *path);
extern void	 zk_unwatch_children(const char *path);
extern int64 zk_calls_next_wakeup(void);
extern bool	 zk_calls_idle(void);
extern const char *zk_call_answering(int *owner);

/* Private to src/zk: how calls get to the library, and what becomes of it. */
typedef struct ZkCallsCallbacks
{
	/*
	 * Hands a call to the library.  Returns an error code of the library if it
	 * does not even try.
	 */
	int (*send)(const Call *call);

	/* An answer makes no sense; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/* A call that was sent has been answered, or given up, after so long, us. */
	void (*answered)(ZkOutcome outcome, int64 us);
} ZkCallsCallbacks;

extern void zk_calls_start(const ZkCallsCallbacks *callbacks);
extern void zk_calls_connected(int64 session);
extern void zk_calls_disconnected(void);
extern void zk_calls_over(void);
extern void zk_calls_answer(const Event *answer);
extern void zk_calls_send(void);

#endif /* ZKLOCK_ZK_CALL_H */
