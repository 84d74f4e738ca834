/*
 * zk_handle.c
 *		Handles of the client library: how they begin and end.
 *
 * A handle runs two threads of the library, in which signals are blocked (trap
 * 9).  It is given numeric addresses and never resolves names (trap 1).
 *
 * To close a handle ends its session if it is connected, and takes up to a few
 * seconds with a server that hangs.  Where the main loop cannot wait for that, a
 * thread of our own does; EVENT_CLOSED tells when it is done.
 *
 * With TLS there are traps of its own.  The library logs to a stream until it is
 * given a function, which is possible only once the handle is there.  And its
 * thread waits for the answer to TLS's handshake for as long as the connection
 * stands, and nobody can close the handle meanwhile: so the connection is shut
 * down from outside (zk_handle_break_handshake).
 *
 * Runs in: the worker; the main thread unless a function says otherwise.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "shared/clock.h"
#include "zk/zk_callback.h"
#include "zk/zk_event.h"
#include "zk/zk_handle.h"
#include "zk/zk_thread.h"
#include "zk/zk_tls_library.h"

#ifndef ZOO_NO_LOG_CLIENTENV /* as in 3.4, which Ubuntu 22.04 has */
#error "zklock needs the C client library of ZooKeeper 3.7 or later"
#endif

#define CLOSE_WAIT_MS 1500 /* the library's, for the answer to a close */

StaticAssertDecl(ZKLOCK_PASSWORD_SIZE == sizeof(((clientid_t *) 0)->passwd),
				 "size of a ZooKeeper session's password");

/* What the closing thread is given. */
typedef struct Closing
{
	zhandle_t *handle;
	uintptr_t  number;
} Closing;

/* As zookeeper_init2(), with TLS */
static zhandle_t *
open_with_tls(const ZkHandleOptions *options, const clientid_t *session)
{
	static FILE *nowhere;

	const ZkClientConfig *config = options->config;
	zhandle_t			 *handle;

	if (nowhere == NULL)
		nowhere = fopen("/dev/null", "w");
	zoo_set_log_stream(nowhere);
	handle = zk_tls_library()->init(options->servers, zk_tls_paths(config->tls),
									zk_callback_event, config->session_timeout, session,
									(void *) options->number, ZOO_NO_LOG_CLIENTENV);
	if (handle)
		zoo_set_log_callback(handle, options->log);
	return handle;
}

/*
 * Makes a handle, which begins to connect: for the session of the configuration,
 * or a new one.  Returns NULL, with errno set, if it cannot.
 */
zhandle_t *
zk_handle_open(const ZkHandleOptions *options)
{
	const ZkClientConfig *config = options->config;
	clientid_t			  session = {.client_id = config->session_id};
	zhandle_t			 *handle;
	sigset_t			  former;
	int					  saved_errno;

	memcpy(session.passwd, config->session_password, sizeof(session.passwd));
	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	zk_thread_block_signals(&former);
	if (config->tls != ZK_TLS_OFF)
		handle = open_with_tls(options, config->session_id != 0 ? &session : NULL);
	else
		handle = zookeeper_init2(options->servers, zk_callback_event, config->session_timeout,
								 config->session_id != 0 ? &session : NULL,
								 (void *) options->number, ZOO_NO_LOG_CLIENTENV, options->log);
	saved_errno = errno;
	zk_thread_restore_signals(&former);
	explicit_bzero(&session, sizeof(session));
	if (handle)
		zoo_set_servers_resolution_delay(handle, -1);
	errno = saved_errno;
	return handle;
}

/* Is a handle in the middle of TLS's handshake, or about to begin one? */
bool
zk_handle_is_shaking_hands(zhandle_t *handle)
{
	return zk_tls_library() && zoo_state(handle) == *zk_tls_library()->shaking_hands;
}

/*
 * Has a handle give TLS's handshake up, if it is in one, and go on to the next
 * server.  The library does not tell its socket, so all connections of this process
 * are shut down.  There are none besides, but for questions (zk_ask.c) and a trial,
 * which get no answer then.
 */
void
zk_handle_break_handshake(zhandle_t *handle)
{
	if (!zk_handle_is_shaking_hands(handle))
		return;
	for (int fd = 0; fd < FD_SETSIZE; fd++)
	{
		struct sockaddr_storage peer;
		socklen_t				len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *) &peer, &len) == 0 &&
			(peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
			(void) shutdown(fd, SHUT_RDWR);
	}
}

/*
 * Closes a handle, and waits for that.
 *
 * Returns true if its session was ended, as far as can be told.  The library
 * does not tell, but it waits until the server has closed the connection, unless
 * a signal arrives, or the answer to an earlier call.
 */
bool
zk_handle_close(zhandle_t *handle)
{
	int64	 start = zklock_now_ms();
	bool	 connected = zoo_state(handle) == ZOO_CONNECTED_STATE;
	sigset_t most;
	sigset_t former;
	bool	 closed;

	zk_handle_break_handshake(handle);

	/* An immediate shutdown need not wait for it. */
	sigfillset(&most);
	sigdelset(&most, SIGQUIT);
	pthread_sigmask(SIG_SETMASK, &most, &former);
	closed = zookeeper_close(handle) == ZOK && zklock_now_ms() - start < CLOSE_WAIT_MS;
	zk_thread_restore_signals(&former);
	return connected && closed;
}

/* A thread of its own, which ends with it */
static void *
closer_main(void *arg)
{
	Closing *closing = arg;
	Event	 event = {.kind = EVENT_CLOSED, .number = closing->number};

	(void) zookeeper_close(closing->handle);
	free(closing);
	zk_event_push(&event, EVENT_AT_ONCE);
	return NULL;
}

/*
 * Closes a handle in a thread of its own, and with it its session if it is
 * connected.  EVENT_CLOSED with the handle's number follows.  Nobody may use the
 * handle any more.
 */
void
zk_handle_close_apart(zhandle_t *handle, uintptr_t number)
{
	Closing *closing = malloc(sizeof(Closing));

	if (closing)
	{
		*closing = (Closing){.handle = handle, .number = number};
		if (zk_thread_start(closer_main, closing))
			return;
		free(closing);
	}

	/* Rather wait than leave a session behind. */
	(void) zk_handle_close(handle);
	zk_event_push(&(Event){.kind = EVENT_CLOSED, .number = number}, EVENT_AT_ONCE);
}

/*
 * Shows the credentials of the configuration, if there are any, and wipes them:
 * the library repeats them on each later connection.  It refuses to take them
 * while it is between two attempts to connect, so this is done when a connection
 * stands, ahead of all calls.
 *
 * Returns false if the library did not take them; it will next time.
 */
bool
zk_handle_show_credentials(zhandle_t *handle, ZkClientConfig *config)
{
	if (config->auth_scheme[0] == '\0')
		return true;
	if (zoo_add_auth(handle, config->auth_scheme, config->auth_credentials,
					 strlen(config->auth_credentials), NULL, NULL) != ZOK)
		return false;
	explicit_bzero(config->auth_scheme, sizeof(config->auth_scheme));
	explicit_bzero(config->auth_credentials, sizeof(config->auth_credentials));
	return true;
}

/* Fills in what only the library knows of a handle's session. */
void
zk_handle_session(zhandle_t *handle, ZkSession *session)
{
	const clientid_t	   *id = zoo_client_id(handle);
	struct sockaddr_storage address;
	socklen_t				len = sizeof(address);
	char					host[INET6_ADDRSTRLEN] = "";

	session->id = id->client_id;
	memcpy(session->password, id->passwd, sizeof(session->password));
	session->negotiated_timeout = zoo_recv_timeout(handle);
	session->server[0] = '\0';
	if (zookeeper_get_connected_host(handle, (struct sockaddr *) &address, &len) == NULL)
		return;
	if (address.ss_family == AF_INET)
	{
		struct sockaddr_in *v4 = (struct sockaddr_in *) &address;

		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(session->server, sizeof(session->server), "%s:%d", host, ntohs(v4->sin_port));
	}
	else
	{
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &address;

		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(session->server, sizeof(session->server), "[%s]:%d", host, ntohs(v6->sin6_port));
	}
}
