/*
 * zk_client.c
 *		The connection to ZooKeeper, and what happens to it.
 *
 * The files of this folder, from the lowest layer to the highest:
 *
 *		connect_string.c	servers and their addresses
 *		zk_answer.c			checks of answers, and the meaning of error codes
 *		zk_security.c		what TLS and SASL need
 *		zk_library.c		the client library: handles, threads, and what these hand over to
 *							the main loop; calls and answers in its terms
 *		zk_flow.c			calls until they are answered: which is sent and when
 *		zk_client.c			the connection, and what follows from events
 *
 * The library has traps.  Comments refer to them by the numbers of the table in
 * doc/internals.md, which says what is done about each.  This file deals with these:
 *
 *	 - The library may reconnect at any time without reporting the loss (trap 7).
 *	 - It presents the password that the last handshake has brought, whatever that was
 *	   (trap 17).  The password must be the session's (zk_answer_session_fault).
 *	 - If a server marks watch events as session events, the library takes them for its
 *	   own.  An end of the session that the handle does not know of is ignored
 *	   (zk_library.c, on_event); a lost connection that was not lost is noticed
 *	   (zk_client_look_again).
 *	 - It reconnects at once, up to ten times a second, to a server that always hangs up
 *	   (trap 15).  Such a handle cannot be given up, so the worker ends.  The next one begins
 *	   a second later, or more if that happens again (connection_changed).
 *	 - It leaves a silent server too late: after two thirds of the session timeout, or in
 *	   TLS's handshake never (leave_silent_server).
 *	 - The library cannot be asked to leave a connection and keep the session (trap 16):
 *	   zookeeper_close() ends the session, and zoo_set_servers() frees what the library's thread
 *	   uses.  But it takes a connection whose socket was shut down for one that is lost, and
 *	   tries the next address, in whatever state it is: connecting, in TLS's handshake or
 *	   ZooKeeper's, or connected (leave_silent_server).
 *	 - That SASL has failed is a state of the handle, but no event (trap 22).  It is looked
 *	   at (zk_client_dispatch).
 *
 * Servers are believed: if one says that the session is over, it is over (trap 14).
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "shared/common.h"
#include "storage/fd.h"
#include "zk/zk_internal.h"

#define LOOK_MS 250		 /* how often we look for a silent server */
#define STILL_MS 1000	 /* if we look so much later, the process has stood still */
#define MAX_UNANSWERED 3 /* connections in a row */

#define SASL_EPILOGUE "SASL authentication failed" /* follows each complaint about SASL */

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_UNIMPLEMENTED == ZUNIMPLEMENTED &&
					 ZK_API_ERROR == ZAPIERROR && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_INVALID_ACL == ZINVALIDACL && ZK_AUTH_FAILED == ZAUTHFAILED &&
					 ZK_CLOSING == ZCLOSING && ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

/*
 * The library connects, and reconnects, by itself while there is a handle:
 *
 *                 zk_client_open                connected              answer
 *      NO_HANDLE ----------------> CONNECTING -----------> CONNECTED --------> ANSWERED
 *         ^  ^                     |    ^                    |  |               |  |
 *         |  '---------------------'    '--------------------+------------------'  |
 *         |       leave_handle                any state         |                  |
 *         '-----------------------------------------------------+------------------'
 *                   leave_handle, zk_client_close
 *
 * connection_changed() takes the steps that the library reports.  A handle that is connected
 * cannot be given up without ending its session.
 */
static ZkClientConfig config;	  /* with the id of the session, once there is one */
static bool			  complained; /* since a server has answered */
static bool			  sasl_fault; /* the library itself has given up SASL with this handle */

static char addresses[ZKLOCK_ADDRESSES_SIZE]; /* the handle's */

static int unanswered; /* connections in a row that ended without an answer */

/* Silence */
static int64  look_at;	  /* when to look for it next, ms */
static uint64 attempt;	  /* the inode of the socket that tries to connect; 0: none */
static int64  attempt_at; /* when it was seen first, ms */
static int	  nleft;	  /* machines left, since one has answered in time */
static uint32 to_skip;	  /* a bit for each machine that is left at once if it comes again */
static bool	  silent;	  /* the next complaint is about a server that we have left */

/* ------------------------------------------------------------------------
 * Complaints
 * ------------------------------------------------------------------------
 */

/* Reports a complaint, a sentence without its period.  Logs only the first of an outage. */
static void
complain(const char *message)
{
	zk_callbacks.complaint(message);
	if (!complained)
		ereport(LOG, (errmsg_internal("%s", message)));
	complained = true;
}

/*
 * Returns a complaint of the client library about a server,
 * "Socket address:port zk retcode=..., errno=...(...): ...", as a sentence without its
 * period, palloc'd.  Returns a copy of any other complaint.
 */
static char *
sentence_of(const char *complaint)
{
	bool is_in_use = zk_connection == ZK_ANSWERED; /* the connection that it is about */
	char server[128];
	int	 code;
	int	 error;
	bool closed;

	/* Cyrus SASL's complaint about the empty answer of a server that cannot go on with it */
	if (strstr(complaint, "SASL negotiation: invalid parameter"))
		return pstrdup("SASL with ZooKeeper fails: its servers may not have it");
	if (sscanf(complaint, "Socket %127s zk retcode=%d, errno=%d(", server, &code, &error) != 3)
		return pstrdup(complaint);

	/* The library's word for the end of a connection is EHOSTDOWN. */
	closed = error == EHOSTDOWN || error == ECONNRESET || error == EPIPE;
	if (silent || error == ETIMEDOUT)
		return psprintf("ZooKeeper server %s does not answer", server);
	if (code == ZSSLCONNECTIONERROR)
		return psprintf("TLS with ZooKeeper server %s fails", server);
	if (closed && is_in_use)
		return psprintf("ZooKeeper server %s closed the connection", server);
	if (closed)
		return psprintf("ZooKeeper server %s closes new connections at once; it may have no quorum, lack data that we have seen (wiped or restored), demand TLS or refuse the certificate, or have reached its limit of connections per client (maxClientCnxns)",
						server);
	if (code == ZSESSIONEXPIRED)
		return psprintf("server %s says that the session is over", server);
	if (is_in_use)
		return psprintf("lost the connection to ZooKeeper server %s: %s", server, strerror(error));
	return psprintf("could not connect to ZooKeeper server %s: %s", server, strerror(error));
}

/* ------------------------------------------------------------------------
 * The connection
 * ------------------------------------------------------------------------
 */

/*
 * Begins to connect.  There must be no handle.  The session callback reports what happens.
 * The configuration is copied; the copy's credentials are wiped when the library has them.
 *
 *	addresses	as zk_client_look_up() finds them
 *
 * Returns false if the library could not create a handle.
 */
bool
zk_client_open(const char *addresses_, const ZkClientConfig *config_)
{
	Assert(zk_handle == NULL);
	config = *config_;
	strlcpy(addresses, addresses_, sizeof(addresses));
	nleft = 0;
	to_skip = 0;
	sasl_fault = false;
	if (zk_handle_open(addresses, &config))
	{
		zk_connection = ZK_CONNECTING;
		return true;
	}
	ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
	return false;
}

/*
 * Gives up the handle, and all calls with it.  If connected, this ends the session, which
 * takes up to a few seconds with a server that hangs.
 *
 * Returns true if ZooKeeper has ended the session, as far as we can know.
 */
bool
zk_client_close(void)
{
	bool idle = zk_flow_idle();
	bool ended = zk_handle && zk_handle_close(true) && idle;

	zk_flow_disconnected(true);
	return ended;
}

/* Gives up the handle, and all calls with it, without waiting, and reports the event. */
static void
leave_handle(ZkSessionEvent event)
{
	(void) zk_handle_close(false);
	zk_flow_disconnected(true);
	zk_callbacks.session(event, NULL);
}

/* Takes the step to a state that the library reports: the arrows in the drawing above. */
static void
connection_changed(int state)
{
	ZkSession	session;
	const char *fault = NULL;
	char	   *sentence;

	if (state == ZOO_AUTH_FAILED_STATE)
	{
		leave_handle(ZK_SESSION_AUTH_FAILED);
		return;
	}
	if (state == ZOO_EXPIRED_SESSION_STATE)
	{
		leave_handle(config.session_id != 0 ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
		return;
	}

	/*
	 * Whatever it is, the connection before is lost, or has been replaced already: there are
	 * reconnects that the library does not announce (trap 7).  The library does not wait between
	 * two connections, so after MAX_UNANSWERED in a row on which no server has answered, the
	 * library is stuck.
	 */
	if (zk_connection >= ZK_CONNECTED)
	{
		unanswered = zk_connection == ZK_ANSWERED ? 0 : unanswered + 1;
		zk_flow_disconnected(false);
		zk_callbacks.session(ZK_SESSION_DISCONNECTED, NULL);
		if (unanswered >= MAX_UNANSWERED)
			zk_callbacks.stuck(
				"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
	}
	if (state != ZOO_CONNECTED_STATE && state != ZOO_READONLY_STATE)
		return;

	/*
	 * A server has accepted the session, which so exists.  If it is malformed, nothing that comes
	 * on this connection can be relied on, so the connection is given up.  If we have no session
	 * yet, the handle goes with it.  The library cannot give up a connection and keep a session
	 * (trap 16); the worker can, by starting again.
	 */
	zk_library_session(&session);
	fault = state == ZOO_READONLY_STATE ? "The session is read-only."
										: zk_answer_session_fault(&session, &config);
	if (fault && config.session_id != 0)
		zk_callbacks.malformed(fault);
	else if (fault)
	{
		sentence = psprintf("malformed answer of ZooKeeper server %s: %s", session.server, fault);
		complain(sentence);
		pfree(sentence);
		leave_handle(ZK_SESSION_IN_DOUBT);
	}
	else
	{
		/*
		 * Passes the credentials to the library, ahead of all calls, and wipes them: the library
		 * repeats them on each later connection.  It refuses them between two attempts to
		 * connect; then they are kept for the next connection.  SASL's have served already.
		 */
		if (config.auth_scheme[0] != '\0' &&
			(config.sasl || zoo_add_auth(zk_handle, config.auth_scheme, config.auth_credentials,
										 strlen(config.auth_credentials), NULL, NULL) == ZOK))
		{
			explicit_bzero(config.auth_scheme, sizeof(config.auth_scheme));
			explicit_bzero(config.auth_credentials, sizeof(config.auth_credentials));
		}
		config.session_id = session.id;
		memcpy(config.session_password, session.password, sizeof(config.session_password));
		zk_flow_connected(session.id);
		zk_callbacks.session(ZK_SESSION_CONNECTED, &session);
	}
	explicit_bzero(&session, sizeof(session));
}

/*
 * Called when an outage has lasted.  If the library is connected all the same, a server
 * had sent the loss of the connection as an event: uses the connection again.
 */
void
zk_client_look_again(void)
{
	if (zk_handle && zk_connection < ZK_CONNECTED && zoo_state(zk_handle) == ZOO_CONNECTED_STATE)
		connection_changed(ZOO_CONNECTED_STATE);
}

/* ------------------------------------------------------------------------
 * Silent servers
 * ------------------------------------------------------------------------
 */

/*
 * Returns a third of the session timeout, ms: so long may a server be silent, and the session
 * outlives two of them.
 */
static int
third_ms(void)
{
	return Min(config.session_timeout, zoo_recv_timeout(zk_handle)) / 3;
}

/*
 * Finds the socket with which the library is connected, or tries to connect, to one of the
 * addresses.  The library does not show it, but no other TCP socket of the worker leads to one
 * of their ports; its address may differ, as with 0.0.0.0.  While it connects it leads nowhere
 * yet, so one that belongs to a name service may be taken for it.
 *
 * Returns its inode, which no other socket has, or 0 if there is none.
 */
static uint64
find_socket(int *fd)
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

/*
 * Leaves a server that is silent for a third of the session timeout, so that the session
 * outlives two of them, while we connect or wait for an answer, which is at least that to a
 * heartbeat.  The library then tries the next one; if that is on a machine which was left
 * already, it is left at once, but not twice.
 *
 * If that has happened to as many machines as there are, and none has answered in time, the
 * servers are slow rather than dead.  They may take twice as long until one is in time again:
 * if they were left for ever before they answer, the session would end.
 */
static void
leave_silent_server(void)
{
	int64  now = zklock_now_ms();
	bool   stood_still = now > look_at + STILL_MS; /* and answers have not been read */
	int64  since = zk_flow_waits_since();
	int64  patience;
	int	   machine;
	uint32 its_bit;
	int	   fd = -1;
	uint64 socket;
	char   address[ZK_SERVER_SIZE];
	int	   len = 0;

	if (zk_handle == NULL || now < look_at)
		return;
	look_at = now + LOOK_MS;
	socket = zk_connection >= ZK_CONNECTED ? 0 : find_socket(&fd);
	if (socket != attempt)
		attempt_at = now;
	attempt = socket;
	if (socket != 0)
		since = attempt_at;
	else if (since == NEVER)
		return;

	/* IPv6 comes in brackets.  The library's thread may write this anew meanwhile. */
	for (const char *c = zoo_get_current_server(zk_handle); *c != '\0' && len < ZK_SERVER_SIZE; c++)
	{
		if (*c != '[' && *c != ']')
			address[len++] = *c;
	}
	machine = connect_string_machine(addresses, address, len);
	its_bit = machine < 0 ? 0 : UINT32_C(1) << machine;
	patience = third_ms();
	if (nleft >= connect_string_machine(addresses, "", 0))
		patience *= 2;
	else if (socket != 0 && (to_skip & its_bit) != 0)
		patience = 0;
	if (stood_still || now - since < patience)
		return;
	if (socket == 0 && find_socket(&fd) == 0)
		return;
	(void) shutdown(fd, SHUT_RDWR);
	silent = true;
	attempt_at = now;
	unanswered = -1; /* it is we who hang up */
	to_skip &= ~its_bit;
	if (patience > 0)
	{
		to_skip |= its_bit;
		nleft++;
	}
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

/* Returns when zk_client_dispatch() must run next at the latest, ms. */
int64
zk_client_next_wakeup(void)
{
	bool waits = zk_handle && (zk_connection < ZK_CONNECTED || zk_flow_waits_since() != NEVER);

	return waits ? look_at : NEVER;
}

/*
 * Handles all events since the last call, which threads have handed over, in their order: runs
 * reply handlers and callbacks.
 */
void
zk_client_dispatch(void)
{
	/* Whether SASL has failed is asked first: then the reason is among the events. */
	bool sasl_failed = zk_handle && config.sasl && zoo_state(zk_handle) == ZOO_AUTH_FAILED_STATE;
	uintptr_t number = zk_handle_number;
	Event	 *event = zk_event_take_all();

	while (event)
	{
		bool is_ours = zk_handle && event->number == zk_handle_number; /* of SESSION and WATCH */
		Event *next = event->next;
		char  *sentence;

		switch (event->kind)
		{
			case EVENT_REPLY:
				/* A server that requires credentials answers one call with this code, and hangs up. */
				if (zk_handle && event->reply.code == ZK_REQUIRES_AUTH)
				{
					leave_handle(ZK_SESSION_AUTH_FAILED);
					break;
				}
				if (zk_connection >= ZK_CONNECTED && zk_error(event->reply.code).outcome != CALL_UNKNOWN)
				{
					if (zklock_now_ms() - zk_flow_waits_since() < third_ms())
						nleft = to_skip = 0;
					zk_connection = ZK_ANSWERED;
					unanswered = 0;
					complained = false;
				}
				zk_flow_answer(event);
				break;
			case EVENT_SESSION:
				if (is_ours)
					connection_changed(event->code);
				break;
			case EVENT_WATCH:
				if (!is_ours)
					break;

				/* Nothing else would notice the loss of an event, so the worker starts again. */
				if (event->fault)
					zk_callbacks.malformed(event->fault);
				else if (event->text == NULL)
					ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
				else if (event->code == ZOO_DELETED_EVENT)
					zk_callbacks.watch(ZK_WATCH_DELETED, event->text);
				else if (event->code == ZOO_CHANGED_EVENT)
					zk_callbacks.watch(ZK_WATCH_CHANGED, event->text);
				else if (event->code == ZOO_CHILD_EVENT)
					zk_callbacks.watch(ZK_WATCH_CHILDREN, event->text);
				break;
			case EVENT_LOG:
				ereport(event->code ? DEBUG1 : DEBUG2,
						(errmsg_internal("ZooKeeper client: %s", event->text)));

				/*
				 * A complaint that comes after the handle was given up would hide the reason for
				 * that; so would the second one of SASL, which says less.
				 */
				if (!event->code || zk_handle == NULL || strstr(event->text, CONNECT_STRING_NOWHERE) ||
					strncmp(event->text, SASL_EPILOGUE, strlen(SASL_EPILOGUE)) == 0)
					break;
				if (config.sasl && strstr(event->text, "SASL"))
					sasl_fault = true;
				sentence = sentence_of(event->text);
				silent = false;
				complain(sentence);
				pfree(sentence);
				break;
			case EVENT_LOOKED_UP:
				zk_callbacks.looked_up(event->number, event->text);
				break;
		}
		free(event->text);
		free(event->reply.children);
		free(event);
		event = next;
	}
	leave_silent_server();
	if (sasl_failed && zk_handle && zk_handle_number == number)
		leave_handle(sasl_fault ? ZK_SESSION_SASL_FAILED : ZK_SESSION_AUTH_FAILED);
}
