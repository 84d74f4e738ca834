/*
 * zk_client.h
 *		The ZooKeeper client as the worker's main loop sees it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CLIENT_H
#define ZKLOCK_ZK_CLIENT_H

#include "shared/clock.h"
#include "shared/session_info.h"
#include "zk/connect_string.h"

/* What became of a call. */
typedef enum ZkOutcome
{
	ZK_OK,
	ZK_NO_NODE,
	ZK_NODE_EXISTS,
	ZK_NO_CHILDREN, /* the parent is ephemeral */
	ZK_UNKNOWN,		/* no answer: it may have happened or not */
	ZK_REFUSED		/* anything else; see "code" */
} ZkOutcome;

/* A reply.  What it points to is gone when the handler returns. */
typedef struct ZkReply
{
	ZkOutcome	outcome;
	int			code;			 /* ZooKeeper's, for zk_error_name() */
	bool		watching;		 /* get, list: the watch asked for is set, even if
								  * the outcome is ZK_UNKNOWN */
	const char *path;			 /* create: the new node's path */
	int64		czxid;			 /* create, get */
	int64		ephemeral_owner; /* create, get: a session's id, 0 if none */
	int			nchildren;		 /* list */
	char	  **children;
} ZkReply;

typedef void (*ZkReplyHandler)(void *arg, const ZkReply *reply);

typedef enum ZkNodeKind
{
	ZK_EPHEMERAL_SEQUENTIAL,
	ZK_CONTAINER,
	ZK_PERSISTENT
} ZkNodeKind;

/* Is a read to set a watch as well? */
typedef enum ZkWatching
{
	ZK_UNWATCHED,
	ZK_WATCHED
} ZkWatching;

typedef enum ZkWatchEvent
{
	ZK_WATCH_DELETED,
	ZK_WATCH_CHANGED, /* the node's data */
	ZK_WATCH_CHILDREN
} ZkWatchEvent;

/* What the session does; the worker acts on it. */
typedef enum ZkSessionEvent
{
	ZK_SESSION_GREETED,		 /* a server has accepted the session, but answered nothing */
	ZK_SESSION_CONNECTED,	 /* a server has answered */
	ZK_SESSION_DISCONNECTED, /* the library goes on trying by itself */
	ZK_SESSION_EXPIRED,		 /* ZooKeeper says so; the handle is of no more use */
	ZK_SESSION_AUTH_FAILED,	 /* the handle is of no more use */
	ZK_SESSION_IN_DOUBT,	 /* likewise, and whether the session lives is unknown */
	ZK_SESSION_UNRESOLVED	 /* no server name could be resolved */
} ZkSessionEvent;

typedef struct ZkClientCallbacks
{
	void (*session)(ZkSessionEvent event);
	void (*watch)(ZkWatchEvent event, const char *path);

	/* An answer that makes no sense; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/*
	 * A complaint about a server: a sentence without its period; "first" since we
	 * were connected last.
	 */
	void (*complaint)(const char *message, bool first);

	/* A server tells its tickTime, ms. */
	void (*tick_time)(const char *server, int tick_time);
} ZkClientCallbacks;

#define ZK_AUTH_SIZE 512

typedef struct ZkClientConfig
{
	ConnectString servers;
	int			  session_timeout; /* ms, asked for */
	int64		  session_id;	   /* to resume, or 0 */
	char		  session_password[ZKLOCK_PASSWORD_SIZE];
	char		  auth_scheme[ZK_AUTH_SIZE]; /* "" for none */
	char		  auth_credentials[ZK_AUTH_SIZE];
	bool		  creator_acl; /* nodes for their creator alone */
	bool		  closing;	   /* only to be closed: no answer is waited for */
} ZkClientConfig;

/* The session (zk_client.c) */
extern int	 zk_client_start(const ZkClientCallbacks *callbacks);
extern bool	 zk_client_open(const ZkClientConfig *config);
extern bool	 zk_client_close(void);
extern void	 zk_client_leave(void);
extern void	 zk_client_set_acl(bool creator);
extern int64 zk_client_next_wakeup(void);
extern void	 zk_client_dispatch(void);
extern int64 zk_calls_next_wakeup(void);
extern bool	 zk_calls_idle(void);
extern void	 zk_client_check_addresses(void);
extern bool	 zk_client_addresses_changed(void);
extern void	 zk_client_session(SessionInfo *info);
extern bool	 zk_client_connected(void);

/*
 * Calls (zk_call.c); each is answered by exactly one call of its handler.  The
 * owner is the session it is made for: its process id, so that each gets its
 * share of what can be under way.
 */
#define ZK_WORKER 0 /* nobody's in particular */
extern void zk_create(int owner, const char *path, const char *data, ZkNodeKind kind,
					  ZkReplyHandler handler, void *arg);
extern void zk_exchange(int owner, const char *path, const char *data, const char *replaced,
						ZkReplyHandler handler, void *arg);
extern void zk_delete(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_get(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
				   void *arg);
extern void zk_list(int owner, const char *path, ZkWatching watching, ZkReplyHandler handler,
					void *arg);
extern void zk_check(int owner, const char *path, ZkReplyHandler handler, void *arg);
extern void zk_beat(ZkReplyHandler handler, void *arg);
extern void zk_sync(ZkReplyHandler handler, void *arg);
extern void zk_unwatch_data(const char *path);
extern void zk_unwatch_children(const char *path);

/* Any process (zk_error.c).  ZooKeeper's codes that matter outside of it: */
#define ZK_CONNECTION_LOSS (-4)
#define ZK_NO_AUTH (-102)
#define ZK_AUTH_FAILED (-115)
#define ZK_CLOSING (-116)
#define ZK_NO_WATCHER (-121)
#define ZK_REQUIRES_AUTH (-124) /* ZSESSIONCLOSEDREQUIRESASLAUTH, since 3.7 */
extern ZkOutcome   zk_error_outcome(int code);
extern const char *zk_error_name(int code);
extern bool		   zk_error_is_permission(int code);
extern bool		   zk_error_is_breakdown(int code);
extern char		  *zk_error_sentence(const char *complaint, bool connected);

#endif /* ZKLOCK_ZK_CLIENT_H */
