/*
 * zk_ask.h
 *		Questions to ZooKeeper servers, beside the client library.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_ASK_H
#define ZKLOCK_ZK_ASK_H

#include "zk/zk_session.h"

/* What servers say of a session. */
typedef enum ZkSessionVerdict
{
	ZK_VERDICT_NONE, /* no ZooKeeper server has answered */
	ZK_VERDICT_LIVES,
	ZK_VERDICT_OVER
} ZkSessionVerdict;

typedef struct ZkSessionQuestion
{
	char  servers[CONNECT_STRING_RESOLVED_SIZE]; /* "address:port,...", numeric */
	ZkTls tls;
	int	  timeout; /* of the session, ms */
	int64 id;
	char  password[ZKLOCK_PASSWORD_SIZE];
} ZkSessionQuestion;

extern bool zk_ask_session(const ZkSessionQuestion *question, uintptr_t number);
extern bool zk_ask_tick_time(const char *server, ZkTls tls, uintptr_t number);
extern bool zk_ask_about_tls(const char *servers, ZkTls tls, uintptr_t number);

#endif /* ZKLOCK_ZK_ASK_H */
