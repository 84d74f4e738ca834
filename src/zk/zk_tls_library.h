/*
 * zk_tls_library.h
 *		What the client library and OpenSSL offer for TLS, if they are there.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TLS_LIBRARY_H
#define ZKLOCK_ZK_TLS_LIBRARY_H

#include <zookeeper/zookeeper.h>

#include "zk/zk_session.h"

/* OpenSSL's numbers, which are part of its interface */
#define TLS_FILETYPE_PEM 1
#define TLS_VERIFY_PEER 1
#define TLS_VERIFIED 0
#define TLS_WANT_READ 2
#define TLS_WANT_WRITE 3

/*
 * OpenSSL's functions.  Its header files are not needed, nor is the library
 * itself, unless the client library is one with TLS.  Its objects are pointers
 * to void here.
 */
typedef struct TlsLibrary
{
	/* ZooKeeper's client library */
	zhandle_t *(*init)(const char *hosts, const char *files, watcher_fn watcher, int timeout,
					   const clientid_t *session, void *context, int flags);
	const int *shaking_hands; /* a handle's state, which its header file does not have */

	/* A context, and what it is given */
	const void *(*method)(void);
	void *(*new_context)(const void *method);
	void (*free_context)(void *context);
	int (*use_ca_file)(void *context, const char *file, const char *directory);
	int (*use_cert_file)(void *context, const char *file);
	int (*use_key_file)(void *context, const char *file, int type);
	int (*check_key)(const void *context);
	void (*set_verify)(void *context, int mode, void *callback);
	void (*set_password_callback)(void *context, int (*callback)(char *, int, int, void *));

	/* Certificates */
	void *(*own_certificate)(const void *context);
	const void *(*not_before)(const void *certificate);
	const void *(*not_after)(const void *certificate);
	int (*compare_with_now)(const void *time);

	/* A connection */
	void *(*new_connection)(void *context);
	void (*free_connection)(void *connection);
	int (*set_socket)(void *connection, int sock);
	int (*connect)(void *connection);
	int (*read)(void *connection, void *buffer, int size);
	int (*write)(void *connection, const void *buffer, int size);
	int (*get_error)(const void *connection, int result);
	long (*verify_result)(const void *connection);
	const char *(*verify_text)(long result);

	/* Errors of this thread */
	void (*clear_errors)(void);
	unsigned long (*next_error)(void);
	const char *(*error_reason)(unsigned long error);
} TlsLibrary;

extern const TlsLibrary *zk_tls_library(void);
extern const char		*zk_tls_paths(ZkTls set);
extern void				*zk_tls_new_context(ZkTls set);

#endif /* ZKLOCK_ZK_TLS_LIBRARY_H */
