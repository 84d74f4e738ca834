/*
 * zk_session.h
 *		A ZooKeeper session: how it is asked for, and what it turns out to be.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_SESSION_H
#define ZKLOCK_ZK_SESSION_H

#include "shared/limits.h"
#include "zk/connect_string.h"

#define ZK_AUTH_SIZE 512
#define ZK_SERVER_SIZE 128

/* The rights of others to the nodes that we create. */
typedef enum ZkAcl
{
	ZK_ACL_OPEN,   /* anybody anything */
	ZK_ACL_CREATOR /* everything, for clients with our credentials alone */
} ZkAcl;

/* What a connection is for. */
typedef enum ZkPurpose
{
	ZK_PURPOSE_USE, /* calls */
	ZK_PURPOSE_END	/* to end the session */
} ZkPurpose;

typedef struct ZkClientConfig
{
	ConnectString servers;
	bool		  tls;			   /* with the files that zk_tls_load() has read */
	int			  session_timeout; /* ms, asked for */
	int64		  session_id;	   /* to resume, or 0 */
	char		  session_password[ZKLOCK_PASSWORD_SIZE];
	char		  auth_scheme[ZK_AUTH_SIZE]; /* "" for none */
	char		  auth_credentials[ZK_AUTH_SIZE];
	ZkAcl		  acl;
	ZkPurpose	  purpose;
} ZkClientConfig;

/* What the library knows of the session that it is connected for. */
typedef struct ZkSession
{
	int64 id;
	char  password[ZKLOCK_PASSWORD_SIZE];
	int	  negotiated_timeout;	  /* ms */
	char  server[ZK_SERVER_SIZE]; /* "address:port" */
} ZkSession;

#endif /* ZKLOCK_ZK_SESSION_H */
