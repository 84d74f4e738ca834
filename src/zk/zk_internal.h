/*
 * zk_internal.h
 *		Declarations that are private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_INTERNAL_H
#define ZKLOCK_ZK_INTERNAL_H

#include <zookeeper/zookeeper.h>

#include "lib/ilist.h"
#include "zk/zk_client.h"

/* ------------------------------------------------------------------------
 * zk_library.c: events, from threads to the main loop
 * ------------------------------------------------------------------------
 */

typedef enum EventKind
{
	EVENT_REPLY,	/* to a call */
	EVENT_SESSION,	/* a handle's state has changed */
	EVENT_WATCH,	/* a watch has fired */
	EVENT_LOG,		/* the library has written a line */
	EVENT_LOOKED_UP /* names of servers */
} EventKind;

/*
 * An event carries the number of what it belongs to: a call (REPLY), a handle
 * (SESSION, WATCH), or a look-up (LOOKED_UP).
 */
typedef struct Event
{
	struct Event *next;
	EventKind	  kind;
	bool		  can_wait; /* for the next one, which follows at once */
	uintptr_t	  number;
	int			  code;	 /* SESSION: state; WATCH_DATA: type; LOG: 1 for a complaint, else 0 */
	const char	 *fault; /* REPLY, WATCH_DATA: what is wrong with it, or NULL */
	char		 *text; /* WATCH_DATA: a path; LOG: a message; LOOKED_UP: addresses; REPLY: the
						  * path or the data to which it points; or NULL */
	ZkReply		  reply; /* REPLY; the children are one block with their strings */
} Event;

extern ZkClientCallbacks zk_callbacks; /* constant once zk_client_start() has set it */

extern Event *zk_event_take_all(void);
extern void	  zk_event_expect_echo(const char *deleted, int change);

/* ------------------------------------------------------------------------
 * A call
 * ------------------------------------------------------------------------
 */

#define ZK_MULTI_MAX 32 /* calls in one request */

typedef enum ZkTurnKind
{
	ZK_TURN_RELEASE,
	ZK_TURN_WORK
} ZkTurnKind;

#define ZK_TURN_KINDS (ZK_TURN_WORK + 1)

typedef struct Call
{
	dlist_node		link;	  /* in a list of zk_client.c */
	dlist_node		watching; /* GET_DATA, GET_CHILDREN with a watch: in another one */
	uintptr_t		number;	  /* of its reply */
	ZkCall			asked;	  /* its strings are behind the struct */
	ZkReplyHandler	handler;  /* or NULL */
	void		   *arg;
	int64			sent_at; /* us */
	ZkTurnKind		turn;
	int				ahead;		/* calls under way when it was taken, but for urgent ones */
	uint64			connection; /* on which it was sent */
	struct ZkShare *share;		/* of which it is a part; see zk_client.c */
	struct Call	   *next; /* CREATE, DELETE: goes out in the same request; NULL at the end */
	struct Call	   *follower; /* of a CREATE: goes out right behind its request */
} Call;

/* ------------------------------------------------------------------------
 * zk_library.c: the handle, and calls in the library's terms
 * ------------------------------------------------------------------------
 */

extern zhandle_t *zk_handle;		/* the one that is used, or NULL */
extern uintptr_t  zk_handle_number; /* its events carry it: late ones of an earlier handle are
									 * ignored */

extern bool zk_handle_open(const char *addresses, const ZkClientConfig *config);
extern bool zk_handle_close(bool can_wait);
extern void zk_library_send(const Call *call);

/* ------------------------------------------------------------------------
 * zk_security.c
 * ------------------------------------------------------------------------
 */

extern zhandle_t *zk_security_open(const ZkClientConfig *config, const char *hosts,
								   watcher_fn watcher, const clientid_t *session,
								   void *context, log_callback_fn on_log);

#endif /* ZKLOCK_ZK_INTERNAL_H */
