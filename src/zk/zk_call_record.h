/*
 * zk_call_record.h
 *		A call to ZooKeeper, and the reply to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALL_RECORD_H
#define ZKLOCK_ZK_CALL_RECORD_H

#include "lib/ilist.h"
#include "zk/zk_error.h"
#include "zk/zk_event.h"

/* ------------------------------------------------------------------------
 * For callers
 * ------------------------------------------------------------------------
 */

/* A reply.  What it points to is gone when the handler returns. */
typedef struct ZkReply
{
	ZkOutcome	outcome;
	int			code;			 /* ZooKeeper's, for zk_error_name() */
	bool		watching;		 /* get, list: the watch asked for is set, even if
								  * the outcome is ZK_UNKNOWN */
	const char *path;			 /* create, append: the new node's path */
	int64		czxid;			 /* create, set, get, look, read, fetch */
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

/* ------------------------------------------------------------------------
 * Private to src/zk
 * ------------------------------------------------------------------------
 */

typedef enum CallKind
{
	CALL_CREATE,
	CALL_EXCHANGE,
	CALL_APPEND,
	CALL_SET,
	CALL_DELETE,
	CALL_DELETE_BOTH,
	CALL_GET,
	CALL_LOOK,
	CALL_READ,
	CALL_FETCH,
	CALL_LIST,
	CALL_CHECK,
	CALL_BEAT,
	CALL_SYNC,
	CALL_NUDGE, /* a read that changes and watches nothing */
	CALL_UNWATCH_DATA,
	CALL_UNWATCH_CHILDREN
} CallKind;

typedef struct Call
{
	dlist_node	   link;   /* in a list of zk_flow.c, zk_turn.c or zk_unwatch.c */
	uintptr_t	   number; /* of its reply; later calls have higher ones */
	CallKind	   kind;
	int			   owner; /* whose it is, or ZK_WORKER */
	ZkNodeKind	   node_kind;
	bool		   watch;
	bool		   followed;   /* its owner's next call goes out right behind it */
	bool		   patient;	   /* DELETE: may wait for others, and go out with them */
	int64		   sent_at;	   /* us */
	int			   ahead;	   /* calls under way when it was sent */
	uint64		   connection; /* it was sent on */
	ZkReplyHandler handler;	   /* NULL if nobody cares */
	void		  *arg;
	char		  *path;
	char		  *data;		/* may be NULL */
	int			   data_length; /* bytes, which may be NUL */
	char		  *other;		/* EXCHANGE, DELETE_BOTH: node to delete; APPEND: to create */
	int32		   version;		/* SET: of the data to be replaced */
	ZkNotice	   notice;		/* EXCHANGE */
	struct Call	  *next;		/* DELETE: goes out in the same request; NULL at the end */
} Call;

extern Call *zk_call_new(CallKind kind, int owner, const char *path, const char *data, int length);
extern void		   zk_call_renumber(Call *call);
extern void		   zk_call_free(Call *call);
extern bool		   zk_call_is_write(const Call *call);
extern bool		   zk_call_is_read(const Call *call);
extern bool		   zk_call_is_urgent(const Call *call);
extern bool		   zk_call_is_unwatch(const Call *call);
extern bool		   zk_call_same_watch(const Call *a, const Call *b);
extern const char *zk_call_fault(const Call *call, const Event *answer, int64 session);

#endif /* ZKLOCK_ZK_CALL_RECORD_H */
