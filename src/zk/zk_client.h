/*
 * zk_client.h
 *		The ZooKeeper client as the worker's main loop sees it.
 *
 * Calls are made with zk_call.h.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CLIENT_H
#define ZKLOCK_ZK_CLIENT_H

#include "zk/zk_error.h"
#include "zk/zk_log.h"
#include "zk/zk_session.h"

typedef enum ZkWatchEvent
{
	ZK_WATCH_DELETED,
	ZK_WATCH_CHANGED, /* the node's data */
	ZK_WATCH_CHILDREN
} ZkWatchEvent;

/* What happens to the session; the worker acts on it. */
typedef enum ZkSessionEvent
{
	ZK_SESSION_GREETED,		 /* a server has accepted the session, but answered nothing */
	ZK_SESSION_CONNECTED,	 /* a server has answered; or the session is there to be ended */
	ZK_SESSION_DISCONNECTED, /* the library goes on trying by itself */
	ZK_SESSION_EXPIRED,		 /* ZooKeeper says so; there is no handle any more */
	ZK_SESSION_AUTH_FAILED,	 /* there is no handle any more */
	ZK_SESSION_IN_DOUBT,	 /* likewise, and whether the session lives is unknown */
	ZK_SESSION_UNRESOLVED	 /* likewise: no server name could be resolved */
} ZkSessionEvent;

typedef struct ZkClientCallbacks
{
	void (*session)(ZkSessionEvent event);
	void (*watch)(ZkWatchEvent event, const char *path);

	/* An answer makes no sense; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/* A call that was sent has been answered, or given up, after so long, us. */
	void (*answered)(ZkOutcome outcome, int64 us);

	/* A complaint about a server. */
	ZkComplaintHandler complaint;

	/* A server tells its tickTime, ms. */
	void (*tick_time)(const char *server, int tick_time);
} ZkClientCallbacks;

extern int	 zk_client_start(const ZkClientCallbacks *callbacks);
extern bool	 zk_client_open(const ZkClientConfig *config);
extern bool	 zk_client_close(void);
extern void	 zk_client_leave(void);
extern void	 zk_client_set_acl(ZkAcl acl);
extern int64 zk_client_next_wakeup(void);
extern bool	 zk_client_may_sleep(void);
extern void	 zk_client_woken(void);
extern void	 zk_client_dispatch(void);
extern void	 zk_client_send(void);
extern void	 zk_client_check_addresses(void);
extern bool	 zk_client_addresses_changed(void);
extern void	 zk_client_session(ZkSession *session);
extern bool	 zk_client_connected(void);

#endif /* ZKLOCK_ZK_CLIENT_H */
