/*
 * zk_call.h
 *		Calls between the main loop, which makes them, and the client library.
 *
 * Private to zk_call.c and zk_client.c; zk_client.h is for all others.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALL_H
#define ZKLOCK_ZK_CALL_H

#include "lib/ilist.h"
#include "zk/zk_client.h"
#include "zk/zk_event.h"

typedef enum CallKind
{
	CALL_CREATE,
	CALL_EXCHANGE,
	CALL_DELETE,
	CALL_GET,
	CALL_LOOK,
	CALL_READ,
	CALL_LIST,
	CALL_CHECK,
	CALL_BEAT,
	CALL_SYNC,
	CALL_NUDGE,
	CALL_UNWATCH_DATA,
	CALL_UNWATCH_CHILDREN
} CallKind;

typedef struct Call
{
	dlist_node	   node; /* in one of zk_call.c's or zk_turn.c's lists */
	uint64		   number;
	CallKind	   kind;
	int			   owner; /* whose it is, or ZK_WORKER */
	ZkNodeKind	   node_kind;
	bool		   watch;
	bool		   followed;   /* its owner's next call goes out right behind it */
	int64		   sent_at;	   /* us */
	int			   ahead;	   /* calls under way when it was sent */
	uint64		   connection; /* it was sent on */
	ZkReplyHandler handler;	   /* NULL if nobody cares */
	void		  *arg;
	char		  *path;
	char		  *data;	 /* may be NULL */
	char		  *replaced; /* EXCHANGE: node to delete */
} Call;

/* Do two calls set or remove the same kind of watch on the same path? */
extern bool call_same_watch(const Call *a, const Call *b);

/* What the client tells of its connection and of answers (zk_call.c) */
extern void zk_calls_connected(void);
extern void zk_calls_disconnected(void);
extern void zk_calls_over(void);
extern void zk_calls_answer(const Event *event);
extern void zk_calls_send(void);

/* What the calls ask of it (zk_client.c) */
extern int	 zk_client_send(const Call *call);
extern int64 zk_client_session_id(void);
extern void	 zk_client_malformed(const char *fault);

#endif /* ZKLOCK_ZK_CALL_H */
