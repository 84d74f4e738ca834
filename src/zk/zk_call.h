/*
 * zk_call.h
 *		Making calls to ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALL_H
#define ZKLOCK_ZK_CALL_H

#include "shared/common.h"
#include "zk/zk_error.h"

/* A reply.  What it points to is gone when the handler returns. */
typedef struct ZkReply
{
	const struct ZkCall *asked; /* the call that it answers */
	ZkOutcome			 outcome;
	int					 code;		  /* ZooKeeper's, for zk_error_name() */
	bool				 watching;	  /* READ, LIST: the watch asked for is set, even if
								  * the outcome is ZK_UNKNOWN */
	const char			*path;		  /* CREATE, APPEND: the new node's path */
	NodeStat			 stat;		  /* CREATE, SET, LOOK, READ, LIST */
	const char			*data;		  /* READ: all, or the beginning */
	int					 data_length; /* bytes of it */
	int					 nchildren;	  /* LIST */
	char			   **children;
} ZkReply;

/* Bytes of a node's data that a reply has, unless all are asked for */
#define ZK_DATA_MAX 1024

typedef void (*ZkReplyHandler)(void *arg, const ZkReply *reply);

typedef enum ZkCallKind
{
	/* These change nodes. */
	ZK_CREATE,	 /* with our ACL; ephemeral sequential: a sequence is appended to the path */
	ZK_EXCHANGE, /* create an ephemeral node, and delete another, both or none: ZK_NODE_EXISTS
				  * or ZK_NO_NODE tells of the first or second.  The sequence is not told. */
	ZK_APPEND,	 /* create a persistent sequential node, and an empty ephemeral one, its
				  * receipt, both or none.  Both have the same czxid. */
	ZK_SET,		 /* replace the data; if they have another version, ZK_BAD_VERSION */
	ZK_DELETE,	 /* a node, or two, both or none */

	/* These read what is there, or was a moment ago. */
	ZK_LOOK, /* the Stat, which ZooKeeper shows even where the ACL forbids to read the node */
	ZK_READ, /* Stat and data.  All of them are sent, however long: look first. */
	ZK_LIST, /* Stat and children */

	ZK_CHECK, /* has the leader look, as a write that a quorum commits, whether a node exists
			   * in a session that lives: ZK_OK, ZK_NO_NODE, or ZK_UNKNOWN if that was not
			   * committed */
	ZK_SYNC,  /* makes later reads see all that was committed before */

	/* These remove a watch that nobody wants any more, now or when we are connected. */
	ZK_UNWATCH_DATA,
	ZK_UNWATCH_CHILDREN
} ZkCallKind;

typedef enum ZkNodeKind
{
	ZK_EPHEMERAL_SEQUENTIAL,
	ZK_EPHEMERAL,
	ZK_CONTAINER,
	ZK_PERSISTENT
} ZkNodeKind;

#define ZK_ANY_VERSION (-1)
#define ZK_WORKER 0 /* an owner: nobody's in particular */

/*
 * A call.  Its owner is the session that it is made for, by its process id, so
 * that each role, and of it each session, gets its share of what can be under way.
 */
typedef struct ZkCall
{
	ZkCallKind	kind;
	int			owner;
	const char *path;
	const char *other;		 /* EXCHANGE, DELETE: to delete as well; APPEND: the receipt */
	const char *data;		 /* CREATE, EXCHANGE, APPEND, SET; NULL for none */
	int			data_length; /* bytes, which may be NUL; 0: it is a string */
	ZkNodeKind	node_kind;	 /* CREATE, EXCHANGE */
	int32		version;	 /* SET, EXCHANGE: of the data that are replaced, or deleted */
	bool		watch;		 /* READ, LIST: sets a watch as well, if the node exists */
	bool		whole;		 /* READ: all data, not ZK_DATA_MAX bytes at most */
	bool		notice;		 /* EXCHANGE: watches of the node to delete tell of a change of
							  * its data, not of its deletion */
	bool		followed;	 /* CREATE: the next call of this owner goes out right behind it */
	bool		patient;	 /* DELETE: nobody is known to wait for that, so it may go out
							  * together with others, when earlier ones have been answered */
	bool		urgent;		 /* goes out at once, ahead of all that waits */
} ZkCall;

/*
 * Makes a call.  It is sent when its turn comes, at the end of the main loop's round
 * at the earliest, unless it is urgent; zk_flow.c tells in which order.  It is answered
 * by exactly one call of the handler, in zk_client_dispatch(), never before this
 * returns.  What the call points to is copied.  Only removals of watches, which have no
 * handler, may be asked for while zk_client_connected() is false.
 */
extern void zk_call(ZkCall call, ZkReplyHandler handler, void *arg);

#endif /* ZKLOCK_ZK_CALL_H */
