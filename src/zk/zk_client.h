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

#include "shared/common.h"
#include "zk/zk_error.h"

#define ZK_AUTH_SIZE 512
#define ZK_SERVER_SIZE 128

/* The rights of others to the nodes that we create. */
typedef enum ZkAcl
{
	ZK_ACL_OPEN,   /* anybody anything */
	ZK_ACL_CREATOR /* everything, for clients with our credentials alone */
} ZkAcl;

typedef struct ZkClientConfig
{
	bool  tls;			   /* with the files that zk_tls_load() has read */
	int	  session_timeout; /* ms, asked for */
	int64 session_id;	   /* to resume, or 0 */
	char  session_password[ZKLOCK_PASSWORD_SIZE];
	char  auth_scheme[ZK_AUTH_SIZE]; /* "" for none */
	char  auth_credentials[ZK_AUTH_SIZE];
} ZkClientConfig;

/* The session of the connection, as the library knows it */
typedef struct ZkSession
{
	int64 id;
	char  password[ZKLOCK_PASSWORD_SIZE];
	int	  negotiated_timeout;	  /* ms */
	char  server[ZK_SERVER_SIZE]; /* "address:port" */
} ZkSession;

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
	ZK_SESSION_IN_DOUBT		 /* likewise: what answers need not be ZooKeeper */
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

	/* The addresses that were asked for, or NULL; see zk_client_look_up(). */
	void (*looked_up)(uintptr_t question, const char *addresses);

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
extern bool zk_client_open(const char *addresses, const ZkClientConfig *config);
extern bool zk_client_close(void);
extern void zk_client_set_acl(ZkAcl acl);
extern void zk_client_session(ZkSession *session);
extern bool zk_client_is_open(void);
extern bool zk_client_connected(void);
extern bool zk_client_answered(void);
extern void zk_client_look_again(void);

/* zk_handle.c */
extern uintptr_t zk_client_look_up(const char *servers);

/* zk_tls.c: names of files in PEM format, as they are set */
typedef struct ZkTlsNames
{
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
} ZkTlsNames;

extern char	 *zk_tls_load(ZkTlsNames names);
extern uint64 zk_tls_fingerprint(ZkTlsNames names);

/* The main loop */
extern int64 zk_client_next_wakeup(void);
extern void	 zk_client_dispatch(void);

/* zk_event.c */
extern bool zk_event_may_sleep(void);
extern void zk_event_woken(void);

/* Calls as a whole; see zk_flow.c */
extern void		   zk_flow_send(void);
extern int64	   zk_flow_next_wakeup(void);
extern bool		   zk_flow_idle(void);
extern const char *zk_flow_answering(int *owner);

#endif /* ZKLOCK_ZK_CLIENT_H */
