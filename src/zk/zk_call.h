/*
 * zk_call.h
 *		Making calls to ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALL_H
#define ZKLOCK_ZK_CALL_H

#include "lib/ilist.h"
#include "zk/zk_error.h"

/* A reply.  What it points to is gone when the handler returns. */
typedef struct ZkReply
{
	ZkOutcome	outcome;
	int			code;			 /* ZooKeeper's, for zk_error_name() */
	bool		watching;		 /* get, list: the watch asked for is set, even if
								  * the outcome is ZK_UNKNOWN */
	const char *path;			 /* create, append: the new node's path */
	int64		czxid;			 /* create, set, get, look, read, fetch */
	int64		mzxid;			 /* likewise */
	int64		ephemeral_owner; /* create, get, look: a session's id, 0 if none */
	int64		ctime;			 /* look: ms since 1970, by the server's clock */
	int64		mtime;			 /* look, read: when the data were written, likewise */
	int32		version;		 /* look, read: of the data */
	int			child_count;	 /* look, read, fetch */
	int			child_changes;	 /* look: children created and deleted so far */
	int data_length;  /* look, list: all there are; get, read, fetch: in "data", bytes */
	const char *data; /* get, read: the beginning, ZK_DATA_MAX bytes at most; fetch: all */
	int			nchildren; /* list */
	char	  **children;
} ZkReply;

#define ZK_ANY_VERSION (-1)

typedef void (*ZkReplyHandler)(void *arg, const ZkReply *reply);

typedef enum ZkNodeKind
{
	ZK_EPHEMERAL_SEQUENTIAL,
	ZK_EPHEMERAL,
	ZK_CONTAINER,
	ZK_PERSISTENT
} ZkNodeKind;

/* Do watches of a node that is replaced tell of more than its deletion? */
typedef enum ZkNotice
{
	ZK_UNNOTICED,
	ZK_NOTICED
} ZkNotice;

/* Is a read to set a watch as well? */
typedef enum ZkWatching
{
	ZK_UNWATCHED,
	ZK_WATCHED
} ZkWatching;

/*
 * Each call is answered by exactly one call of its handler.  The owner is the
 * session that it is made for: its process id, so that each role, and of it each
 * session, gets its share of what can be under way.
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
extern void zk_remove(int owner, const char *path, int32 version, const char *receipt,
					  ZkReplyHandler handler, void *arg);
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
