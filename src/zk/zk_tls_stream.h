/*
 * zk_tls_stream.h
 *		A connection with TLS, beside the client library.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_TLS_STREAM_H
#define ZKLOCK_ZK_TLS_STREAM_H

#include "zk/zk_session.h"

typedef struct TlsStream
{
	void *context;
	void *connection;
	int	  sock;
	int64 until;	  /* when all is to be done, ms */
	char  fault[256]; /* why it does not work: part of a sentence, or "" */
} TlsStream;

/* Any thread */
extern bool	   zk_tls_stream_open(TlsStream *stream, ZkTls set, int sock, int64 until);
extern bool	   zk_tls_stream_send(TlsStream *stream, const char *message, size_t len);
extern ssize_t zk_tls_stream_receive(TlsStream *stream, char *buffer, size_t size);
extern void	   zk_tls_stream_close(TlsStream *stream);

#endif /* ZKLOCK_ZK_TLS_STREAM_H */
