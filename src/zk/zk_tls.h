/*
 * zk_tls.h
 *		TLS: what is needed for it, and whether that can be used.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TLS_H
#define ZKLOCK_ZK_TLS_H

#include "postgres.h"

#include <zookeeper/zookeeper.h>

/* Names of files in PEM format, as they are set */
typedef struct ZkTlsNames
{
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
} ZkTlsNames;

/* For the worker */
extern void	  zk_tls_start(void);
extern char	 *zk_tls_load(const ZkTlsNames *names, const char **culprit);
extern uint64 zk_tls_fingerprint(const ZkTlsNames *names);

/* Private to src/zk */
extern zhandle_t *zk_tls_init(const char *servers, watcher_fn watcher, int timeout,
							  const clientid_t *session, void *context, int flags);
extern bool		  zk_tls_is_shaking_hands(zhandle_t *handle);

#endif /* ZKLOCK_ZK_TLS_H */
