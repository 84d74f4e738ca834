/*
 * zk_connection.h
 *		The connection to ZooKeeper: its handle and its states.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CONNECTION_H
#define ZKLOCK_ZK_CONNECTION_H

#include "zk/zk_ask.h"
#include "zk/zk_call_record.h"
#include "zk/zk_session.h"

/* zk_connection.c draws them. */
typedef enum ZkConnectionState
{
	ZK_CONNECTION_NONE,
	ZK_CONNECTION_LOOKUP,
	ZK_CONNECTION_BEGINNING,
	ZK_CONNECTION_UNCONFIRMED,
	ZK_CONNECTION_CONNECTING,
	ZK_CONNECTION_GREETED,
	ZK_CONNECTION_CONNECTED,
	ZK_CONNECTION_DOUBTED
} ZkConnectionState;

/* The arrows */
extern void zk_connection_looking_up(const ZkClientConfig *config);
extern void zk_connection_unresolved(void);
extern bool zk_connection_opened(const ZkClientConfig *config, const char *addresses);
extern bool zk_connection_resolved(const char *addresses);
extern void zk_connection_greeted(void);
extern void zk_connection_answered(void);
extern void zk_connection_lost(void);
extern bool zk_connection_closed(void);
extern void zk_connection_left(void);
extern void zk_connection_doubted(void);
extern void zk_connection_settled(void);

/* What is known of it */
extern ZkConnectionState	 zk_connection_state(void);
extern const ZkClientConfig *zk_connection_config(void);
extern const char			*zk_connection_addresses(void);
extern bool					 zk_connection_has_handle(void);
extern bool					 zk_connection_stands(void);
extern bool					 zk_connection_is_shaking_hands(void);
extern bool					 zk_connection_session_exists(void);
extern bool					 zk_connection_is_mistaken(void);
extern void					 zk_connection_session(ZkSession *session);
extern const char			*zk_connection_session_fault(void);
extern void					 zk_connection_question(ZkSessionQuestion *question);
extern bool					 zk_connection_owns(const Event *event);

/* What is done with it */
extern int	zk_connection_send(const Call *call);
extern void zk_connection_set_acl(ZkAcl acl);
extern void zk_connection_show_credentials(void);
extern void zk_connection_break_handshake(void);

#endif /* ZKLOCK_ZK_CONNECTION_H */
