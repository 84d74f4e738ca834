/*
 * zk_handle.c
 *		Opens and closes handles of the client library.
 *
 * A handle runs two threads of the library.  It gets numeric addresses and never resolves
 * names (trap 1).  A thread of our own looks the names up, because that may take long.
 *
 * The library cannot be asked to leave a connection and keep the session (trap 16):
 * zookeeper_close() ends the session, and zoo_set_servers() frees what the library's thread
 * uses.  But it takes a connection whose socket was shut down for one that is lost, and tries
 * the next address, in whatever state it is: connecting, in TLS's handshake or ZooKeeper's,
 * or connected (zk_client.c, leave_silent_server).
 *
 * PostgreSQL's signal handlers must run in the main thread only.  A thread inherits the
 * signal mask of its creator, so all signals are blocked while we or the client library
 * create one (trap 9).
 *
 * Closing a handle ends its session if it is connected, and takes up to a few seconds
 * with a server that hangs.  Where the main loop cannot wait for that, a thread of our own
 * closes the handle.
 *
 * Runs in: the worker; the main thread unless a function says otherwise.  Other
 * threads call nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "shared/common.h"
#include "storage/fd.h"
#include "zk/zk_internal.h"

#ifndef ZOO_NO_LOG_CLIENTENV /* as in 3.4, which Ubuntu 22.04 has */
#error "zklock needs the C client library of ZooKeeper 3.7 or later"
#endif

#define CLOSE_WAIT_MS 1500 /* the library's, for the answer to a close */

StaticAssertDecl(ZKLOCK_PASSWORD_SIZE == sizeof(((clientid_t *) 0)->passwd),
				 "size of a ZooKeeper session's password");

/* ------------------------------------------------------------------------
 * Threads of our own
 * ------------------------------------------------------------------------
 */

/* Blocks all signals but one, or all if that is 0.  Stores the former mask. */
static void
block_signals(int spared, sigset_t *former)
{
	sigset_t blocked;

	sigfillset(&blocked);
	if (spared != 0)
		sigdelset(&blocked, spared);
	pthread_sigmask(SIG_SETMASK, &blocked, former);
}

/*
 * Starts a detached thread, which then owns "arg".  Returns false if that fails; the
 * caller still owns "arg" then.
 */
static bool
start_thread(void *(*cohort)(void *arg), void *arg)
{
	pthread_t thread;
	sigset_t  former;
	bool	  started;

	block_signals(0, &former);
	started = pthread_create(&thread, NULL, cohort, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	if (started)
		pthread_detach(thread);
	return started;
}

/* The argument of the thread that looks up names */
typedef struct Lookup
{
	uintptr_t number;
	char	  servers[ZKLOCK_SERVERS_SIZE];
} Lookup;

/* The main function of the thread that looks up names */
static void *
lookup_main(void *arg)
{
	Lookup *lookup = arg;
	Event	event = {.kind = EVENT_LOOKED_UP, .number = lookup->number};
	char	addresses[ZKLOCK_ADDRESSES_SIZE];

	if (connect_string_resolve(lookup->servers, addresses, sizeof(addresses)))
		event.text = strdup(addresses);
	zk_event_push(&event);
	free(lookup);
	return NULL;
}

/*
 * Looks up the addresses of servers, for zk_client_open().  Returns the number of this
 * look-up.  The callback gets that number, and the addresses, or NULL if no name could be
 * resolved.
 */
uintptr_t
zk_client_look_up(const char *servers)
{
	static uintptr_t last_lookup;

	Event	unknown = {.kind = EVENT_LOOKED_UP, .number = ++last_lookup};
	Lookup *lookup = malloc(sizeof(Lookup));

	if (lookup == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	lookup->number = last_lookup;
	strlcpy(lookup->servers, servers, sizeof(lookup->servers));
	if (!start_thread(lookup_main, lookup))
	{
		zk_event_push(&unknown);
		free(lookup);
	}
	return last_lookup;
}

/* ------------------------------------------------------------------------
 * Handles
 * ------------------------------------------------------------------------
 */

/*
 * The library's threads: makes an event of a line of the library's log.  The line contains
 * its level between the process and the function: "...:ZOO_WARN@function@line: message".
 */
static void
on_log(const char *message)
{
	Event		event = {.kind = EVENT_LOG};
	const char *level = strstr(message, ":ZOO_");
	const char *text = level ? strstr(level, ": ") : NULL;

	event.code = level && strncmp(level, ":ZOO_ERROR@", strlen(":ZOO_ERROR@")) == 0;
	event.text = strdup(text ? text + 2 : message);
	if (event.text)
		zk_event_push(&event);
}

/*
 * Creates a handle, which begins to connect, for the session of the configuration or a new
 * one.  Returns NULL, with errno set, if it cannot.
 *
 * The library tries the addresses in random order, so that clients are spread over the servers.
 *
 *	addresses	as connect_string_resolve() makes them
 */
zhandle_t *
zk_handle_open(const char *addresses, const ZkClientConfig *config)
{
	char			  hosts[ZKLOCK_ADDRESSES_SIZE + sizeof(CONNECT_STRING_NOWHERE)];
	clientid_t		  id = {.client_id = config->session_id};
	const clientid_t *session = config->session_id != 0 ? &id : NULL;
	zhandle_t		 *handle;
	sigset_t		  former;
	int				  saved_errno;

	memcpy(id.passwd, config->session_password, sizeof(id.passwd));
	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	connect_string_for_library(addresses, hosts, sizeof(hosts));
	block_signals(0, &former);
	if (config->tls)
		handle = zk_tls_open(hosts, config->session_timeout, session, on_log);
	else if (config->sasl)
		handle = zk_sasl_open(hosts, config->session_timeout, session, on_log);
	else
		handle = zookeeper_init2(hosts, zk_library_event, config->session_timeout, session,
								 (void *) zk_handle_number, ZOO_NO_LOG_CLIENTENV, on_log);
	saved_errno = errno;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	explicit_bzero(&id, sizeof(id));
	if (handle)
		zoo_set_servers_resolution_delay(handle, -1);
	errno = saved_errno;
	return handle;
}

/* The main function of the thread that closes a handle */
static void *
closer_main(void *arg)
{
	(void) zookeeper_close(arg);
	return NULL;
}

/*
 * Closes a handle in a thread of its own, and ends its session if it is connected.  The
 * caller must not use the handle any more.
 */
void
zk_handle_close_apart(zhandle_t *handle)
{
	/* Waiting is better than leaving a session behind. */
	if (!start_thread(closer_main, handle))
		(void) zookeeper_close(handle);
}

/*
 * Closes a handle.  Waits for that only if it is connected: TLS's handshake may last for
 * ever.
 *
 * Returns true if its session was ended, as far as we can know.  The library does not
 * report that, but it waits until the server has closed the connection, unless a signal,
 * or the answer to an earlier call, arrives.
 */
bool
zk_handle_close(zhandle_t *handle)
{
	int64	 start = zklock_now_ms();
	sigset_t former;
	bool	 closed;

	if (zoo_state(handle) != ZOO_CONNECTED_STATE)
	{
		zk_handle_close_apart(handle);
		return false;
	}
	block_signals(SIGQUIT, &former); /* an immediate shutdown need not wait for it */
	closed = zookeeper_close(handle) == ZOK && zklock_now_ms() - start < CLOSE_WAIT_MS;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	return closed;
}

/*
 * Passes the credentials of the configuration, if there are any, to the library, and wipes
 * them: the library repeats them on each later connection.  It refuses them between two
 * attempts to connect, so this is called when a connection stands, ahead of all calls.  If
 * the library refuses them, they are kept for the next connection.  SASL's have served
 * already.
 */
void
zk_handle_show_credentials(zhandle_t *handle, ZkClientConfig *config)
{
	if (config->auth_scheme[0] == '\0')
		return;
	if (!config->sasl && zoo_add_auth(handle, config->auth_scheme, config->auth_credentials,
									  strlen(config->auth_credentials), NULL, NULL) != ZOK)
		return;
	explicit_bzero(config->auth_scheme, sizeof(config->auth_scheme));
	explicit_bzero(config->auth_credentials, sizeof(config->auth_credentials));
}

/*
 * Finds the socket with which the library is connected, or tries to connect, to one of the
 * addresses.  The library does not show it, but no other TCP socket of the worker leads to one
 * of their ports; its address may differ, as with 0.0.0.0.  While it connects it leads nowhere
 * yet, so one that belongs to a name service may be taken for it.
 *
 * Returns its inode, which no other socket has, or 0 if there is none.
 */
uint64
zk_handle_socket(const char *addresses, int *fd)
{
	static const char name[] = "/proc/self/fd";

	DIR			  *directory = AllocateDir(name);
	uint64		   inode = 0;
	struct dirent *entry;

	while ((entry = ReadDirExtended(directory, name, LOG)) != NULL)
	{
		int						which = atoi(entry->d_name);
		struct sockaddr_storage peer;
		socklen_t				len = sizeof(int);
		struct stat				st;
		int						protocol;
		char					port[NI_MAXSERV + 1] = ":";

		if (getsockopt(which, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) != 0 ||
			protocol != IPPROTO_TCP || fstat(which, &st) != 0)
			continue;
		len = sizeof(peer);
		if (getpeername(which, (struct sockaddr *) &peer, &len) == 0 &&
			getnameinfo((struct sockaddr *) &peer, len, NULL, 0, port + 1, sizeof(port) - 1,
						NI_NUMERICSERV) == 0 &&
			!connect_string_has_port(addresses, port))
			continue;
		*fd = which;
		inode = st.st_ino;
	}
	FreeDir(directory);
	return inode;
}

/* Copies what only the library knows of a handle's session. */
void
zk_handle_session(zhandle_t *handle, ZkSession *session)
{
	const clientid_t	   *id = zoo_client_id(handle);
	struct sockaddr_storage address;
	socklen_t				len = sizeof(address);
	char					host[NI_MAXHOST];
	char					port[NI_MAXSERV];

	session->id = id->client_id;
	memcpy(session->password, id->passwd, sizeof(session->password));
	session->negotiated_timeout = zoo_recv_timeout(handle);

	/* If the server has hung up again, the library has no address. */
	strlcpy(session->server, "(unknown)", sizeof(session->server));
	if (zookeeper_get_connected_host(handle, (struct sockaddr *) &address, &len) &&
		getnameinfo((struct sockaddr *) &address, len, host, sizeof(host), port, sizeof(port),
					NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(session->server, sizeof(session->server),
				 address.ss_family == AF_INET ? "%s:%s" : "[%s]:%s", host, port);
}
