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
	ZK_SESSION_CONNECTED,	 /* a server has accepted it */
	ZK_SESSION_DISCONNECTED, /* the library goes on trying by itself */
	ZK_SESSION_EXPIRED,		 /* there is no handle any more */
	ZK_SESSION_AUTH_FAILED,	 /* likewise */
	ZK_SESSION_IN_DOUBT,	 /* likewise: what answers need not be ZooKeeper */
	ZK_SESSION_UNRESOLVED	 /* likewise: no server name could be resolved */
} ZkSessionEvent;

/* Has the same outage been complained of before? */
typedef enum ZkComplaint
{
	ZK_COMPLAINT_FIRST, /* since a server has answered */
	ZK_COMPLAINT_REPEATED
} ZkComplaint;

typedef struct ZkClientCallbacks
{
	void (*session)(ZkSessionEvent event);
	void (*watch)(ZkWatchEvent event, const char *path);

	/* An answer makes no sense; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/* The library does not get on: another process has to.  "why" is part of a sentence. */
	void (*stuck)(const char *why);

	/* A call that was sent has been answered, or given up, after so long, us. */
	void (*answered)(ZkOutcome outcome, int64 us);

	/* The role of the session that owns calls; roles take turns. */
	uint32 (*role_of)(int owner);

	/* A complaint about a server: a sentence without its period. */
	void (*complaint)(const char *message, ZkComplaint complaint);
} ZkClientCallbacks;

extern int	zk_client_start(const ZkClientCallbacks *callbacks);
extern bool zk_client_open(const ZkClientConfig *config);
extern bool zk_client_close(void);
extern void zk_client_leave(void);
extern void zk_client_set_acl(ZkAcl acl);
extern void zk_client_session(ZkSession *session);
extern bool zk_client_connected(void);

/* Names of servers.  "found" is given addresses, "address:port,...", or NULL. */
extern void zk_client_look_up(const ConnectString *servers, void (*found)(const char *addresses));
extern void zk_client_check_addresses(void);
extern bool zk_client_addresses_changed(void);

/* The main loop */
extern int64 zk_client_next_wakeup(void);
extern bool	 zk_client_may_sleep(void);
extern void	 zk_client_woken(void);
extern void	 zk_client_dispatch(void);
extern void	 zk_client_send(void);

/* Calls as a whole; see zk_flow.c */
extern int64	   zk_flow_next_wakeup(void);
extern bool		   zk_flow_idle(void);
extern const char *zk_flow_answering(int *owner);

#endif /* ZKLOCK_ZK_CLIENT_H */
