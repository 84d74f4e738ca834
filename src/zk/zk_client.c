/*
 * zk_client.c
 *		The connection to ZooKeeper, and what happens to it.
 *
 * The client library runs two threads of its own, which must not call PostgreSQL.  They
 * append events to a queue (zk_library.c, zk_event.c), and the worker's main loop handles
 * these in zk_client_dispatch().  Only the main loop calls the library.
 *
 * The files of this folder, from the lowest layer to the highest:
 *
 *		zk_event.c				events from threads for the main loop
 *		zk_answer.c, zk_error.c	checks of answers, and the meaning of error codes
 *		zk_tls.c, zk_sasl.c,
 *		zk_handle.c				what TLS and SASL need; the library's handles
 *		zk_library.c			calls in the library's terms
 *		zk_flow.c				calls until they are answered: which is sent and when
 *		zk_client.c				the handle in use; events, and what follows from them
 *
 * The library has traps.  Comments refer to them by the numbers of the table in
 * doc/internals.md, which says what is done about each.  This file deals with these:
 *
 *	 - The library may reconnect at any time without reporting the loss (trap 7).
 *	 - It presents the password that the last handshake has brought, whatever that was
 *	   (trap 17).  The password must be the session's (zk_answer_session_fault).
 *	 - If a server marks watch events as session events, the library takes them for its
 *	   own.  An end of the session that the handle does not know of is ignored
 *	   (zk_library_event); a lost connection that was not lost is noticed
 *	   (zk_client_look_again).
 *	 - It reconnects at once, up to ten times a second, to a server that always hangs up
 *	   (trap 15).  Such a handle cannot be given up, so the worker ends.  The next one begins
 *	   a second later, or more if that happens again (handle_hang_up).
 *	 - It leaves a silent server too late: after two thirds of the session timeout, or in
 *	   TLS's handshake never (leave_silent_server).
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

#include <sys/socket.h>

#include "shared/common.h"
#include "zk/zk_internal.h"

#define LOOK_MS 250		 /* how often we look for a silent server */
#define STILL_MS 1000	 /* if we look so much later, the process has stood still */
#define MAX_UNANSWERED 3 /* connections in a row */

#define SASL_EPILOGUE "SASL authentication failed" /* follows each complaint about SASL */

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_AUTH_FAILED == ZAUTHFAILED && ZK_CLOSING == ZCLOSING &&
					 ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

/*
 * The library connects, and reconnects, by itself while there is a handle.  Each arrow is
 * one function of this file:
 *
 *                 zk_client_open         handle_connected
 *      no handle ----------------> handle -----------> connected
 *         ^  ^                     |    ^                |  |
 *         |  '---------------------'    '----------------'  |
 *         |     without_handle          handle_hang_up      |
 *         '-------------------------------------------------'
 *
 * A handle that is connected cannot be given up without ending its session.
 */
static ZkClientConfig config;	  /* with the id of the session, once there is one */
static bool			  complained; /* since a server has answered */
static bool			  sasl_fault; /* the library itself has given up SASL with this handle */

static char addresses[ZKLOCK_ADDRESSES_SIZE]; /* the handle's */

/* Answers */
static bool answered;	/* a server has answered on the last connection */
static int	unanswered; /* connections in a row that ended without an answer */

/* Silence */
static int64  look_at;	  /* when to look for it next, ms */
static uint64 attempt;	  /* the inode of the socket that tries to connect; 0: none */
static int64  attempt_at; /* when it was seen first, ms */
static int	  nleft;	  /* machines left, since one has answered in time */
static uint32 to_skip;	  /* a bit for each machine that is left at once if it comes again */
static bool	  silent;	  /* the next complaint is about a server that we have left */

/* Reports a complaint, a sentence without its period.  Logs only the first of an outage. */
static void
complain(const char *message)
{
	zk_callbacks.complaint(message);
	if (!complained)
		ereport(LOG, (errmsg_internal("%s", message)));
	complained = true;
}

/* ------------------------------------------------------------------------
 * The arrows
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
	zk_handle_number++;
	zk_handle = zk_handle_open(addresses, &config);
	if (zk_handle == NULL)
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
	return zk_handle != NULL;
}

/* The handle, if there was one, is gone, and the calls with it. */
static void
without_handle(void)
{
	zk_handle = NULL;
	zk_flow_disconnected(true);
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
	bool ended = zk_handle && zk_handle_close(zk_handle) && idle;

	without_handle();
	return ended;
}

/* Gives up the handle, and all calls with it, without waiting, and reports the event. */
static void
leave_handle(ZkSessionEvent event)
{
	zk_handle_close_apart(zk_handle);
	without_handle();
	zk_callbacks.session(event);
}

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

/*
 * Prepares the client; called once per process.
 *
 * Returns a descriptor that wakes the main loop when it sleeps; see zk_event_may_sleep().
 */
int
zk_client_start(const ZkClientCallbacks *callbacks)
{
	zk_callbacks = *callbacks;
	zk_tls_start();
	return zk_event_queue_open();
}

/* Returns true if we are connected and the server has answered on this connection. */
bool
zk_client_answered(void)
{
	return zk_client_connected() && answered;
}

/* Returns true if there is a handle, which is connected or tries to connect. */
bool
zk_client_is_open(void)
{
	return zk_handle != NULL;
}

/* Copies what only the library knows of the session. */
void
zk_client_session(ZkSession *session)
{
	memset(session, 0, sizeof(*session));
	if (zk_handle)
		zk_handle_session(zk_handle, session);
}

/* ------------------------------------------------------------------------
 * What happens to the connection
 * ------------------------------------------------------------------------
 */

/*
 * A server offers a malformed session.  Nothing that comes on this connection can be
 * relied on, so the connection is given up.  If we have no session yet, the handle goes
 * with it.  The library cannot give up a connection and keep a session (trap 16); the
 * worker can, by starting again.
 */
static void
handle_malformed_session(const char *fault)
{
	ZkSession session;
	char	 *sentence;

	if (config.session_id != 0)
	{
		zk_callbacks.malformed(fault);
		return;
	}
	zk_client_session(&session);
	sentence = psprintf("malformed answer of ZooKeeper server %s: %s", session.server, fault);
	explicit_bzero(&session, sizeof(session));
	complain(sentence);
	pfree(sentence);
	leave_handle(ZK_SESSION_IN_DOUBT);
}

/*
 * The connection is lost, or has been replaced already.  The library does not wait between
 * two connections, so after MAX_UNANSWERED in a row on which no server has answered, the
 * library is stuck.
 */
static void
handle_hang_up(void)
{
	if (!zk_client_connected())
		return;
	unanswered = answered ? 0 : unanswered + 1;
	zk_flow_disconnected(false);
	zk_callbacks.session(ZK_SESSION_DISCONNECTED);
	if (unanswered >= MAX_UNANSWERED)
		zk_callbacks.stuck(
			"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
}

/* The library reports a connection: a server has accepted the session, which so exists. */
static void
handle_connected(void)
{
	ZkSession	session;
	const char *fault;

	zk_handle_session(zk_handle, &session);
	fault = zk_answer_session_fault(&session, &config);
	if (fault)
		handle_malformed_session(fault);
	else
	{
		/* There are reconnects that the library does not announce (trap 7). */
		handle_hang_up();
		zk_handle_show_credentials(zk_handle, &config); /* ahead of all calls */
		answered = false;
		config.session_id = session.id;
		memcpy(config.session_password, session.password, sizeof(config.session_password));
		zk_flow_connected(session.id);
		zk_callbacks.session(ZK_SESSION_CONNECTED);
	}
	explicit_bzero(&session, sizeof(session));
}

/* The library's state has changed. */
static void
handle_session(int library_state)
{
	if (library_state == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (library_state == ZOO_EXPIRED_SESSION_STATE)
		leave_handle(config.session_id != 0 ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
	else if (library_state == ZOO_AUTH_FAILED_STATE)
		leave_handle(ZK_SESSION_AUTH_FAILED);
	else
	{
		handle_hang_up();
		if (library_state == ZOO_READONLY_STATE)
			handle_malformed_session("The session is read-only.");
	}
}

/*
 * Returns a third of the session timeout, ms: so long may a server be silent, and the session
 * outlives two of them.
 */
static int
third_ms(void)
{
	return Min(config.session_timeout, zoo_recv_timeout(zk_handle)) / 3;
}

/* Returns the number of the machine that the library is connected to, or tries, or -1. */
static int
current_machine(void)
{
	char address[ZK_SERVER_SIZE];
	int	 len = 0;

	/* IPv6 comes in brackets.  The library's thread may write this anew meanwhile. */
	for (const char *c = zoo_get_current_server(zk_handle); *c != '\0' && len < ZK_SERVER_SIZE; c++)
	{
		if (*c != '[' && *c != ']')
			address[len++] = *c;
	}
	return connect_string_machine(addresses, address, len);
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

	if (zk_handle == NULL || now < look_at)
		return;
	look_at = now + LOOK_MS;
	socket = zk_client_connected() ? 0 : zk_handle_socket(addresses, &fd);
	if (socket != attempt)
		attempt_at = now;
	attempt = socket;
	if (socket != 0)
		since = attempt_at;
	else if (since == NEVER)
		return;

	machine = current_machine();
	its_bit = machine < 0 ? 0 : UINT32_C(1) << machine;
	patience = third_ms();
	if (nleft >= connect_string_machine(addresses, "", 0))
		patience *= 2;
	else if (socket != 0 && (to_skip & its_bit) != 0)
		patience = 0;
	if (stood_still || now - since < patience)
		return;
	if (socket == 0 && zk_handle_socket(addresses, &fd) == 0)
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

/*
 * Called when an outage has lasted.  If the library is connected all the same, a server
 * had sent the loss of the connection as an event: uses the connection again.
 */
void
zk_client_look_again(void)
{
	if (zk_handle && !zk_client_connected() && zoo_state(zk_handle) == ZOO_CONNECTED_STATE)
		handle_connected();
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
handle_reply(const Event *event)
{
	/* A server that requires credentials answers one call with this code, and hangs up. */
	if (zk_handle && event->reply.code == ZK_REQUIRES_AUTH)
	{
		leave_handle(ZK_SESSION_AUTH_FAILED);
		return;
	}
	if (zk_client_connected() && zk_error_outcome(event->reply.code) != CALL_UNKNOWN)
	{
		if (zklock_now_ms() - zk_flow_waits_since() < third_ms())
			nleft = to_skip = 0;
		answered = true;
		unanswered = 0;
		complained = false;
	}
	zk_flow_answer(event);
}

static void
handle_watch(const Event *event)
{
	/* Nothing else would notice the loss of an event, so the worker starts again. */
	if (event->fault)
	{
		zk_callbacks.malformed(event->fault);
		return;
	}
	if (event->text == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));

	if (event->code == ZOO_DELETED_EVENT)
		zk_callbacks.watch(ZK_WATCH_DELETED, event->text);
	else if (event->code == ZOO_CHANGED_EVENT)
		zk_callbacks.watch(ZK_WATCH_CHANGED, event->text);
	else if (event->code == ZOO_CHILD_EVENT)
		zk_callbacks.watch(ZK_WATCH_CHILDREN, event->text);
}

/* Logs a line of the library's log, and reports it as a sentence if it is a complaint. */
static void
handle_log(const Event *event)
{
	char *sentence;

	ereport(event->code ? DEBUG1 : DEBUG2, (errmsg_internal("ZooKeeper client: %s", event->text)));

	/*
	 * A complaint that comes after the handle was given up would hide the reason for that; so
	 * would the second one of SASL, which says less.
	 */
	if (!event->code || zk_handle == NULL || strstr(event->text, CONNECT_STRING_NOWHERE) ||
		strncmp(event->text, SASL_EPILOGUE, strlen(SASL_EPILOGUE)) == 0)
		return;
	if (config.sasl && strstr(event->text, "SASL"))
		sasl_fault = true;
	sentence = zk_error_sentence(event->text, silent				 ? CONNECTION_SILENT
											  : zk_client_answered() ? CONNECTION_IN_USE
																	 : CONNECTION_NEW);
	silent = false;
	complain(sentence);
	pfree(sentence);
}

static void
handle_event(const Event *event)
{
	bool is_ours = zk_handle && event->number == zk_handle_number;

	switch (event->kind)
	{
		case EVENT_REPLY:
			handle_reply(event);
			break;
		case EVENT_SESSION:
			if (is_ours)
				handle_session(event->code);
			break;
		case EVENT_WATCH:
			if (is_ours)
				handle_watch(event);
			break;
		case EVENT_LOG:
			handle_log(event);
			break;
		case EVENT_LOOKED_UP:
			zk_callbacks.looked_up(event->number, event->text);
			break;
	}
}

/* Returns when zk_client_dispatch() must run next at the latest, ms. */
int64
zk_client_next_wakeup(void)
{
	bool waits = zk_handle && (!zk_client_connected() || zk_flow_waits_since() != NEVER);

	return waits ? look_at : NEVER;
}

/*
 * Handles all events since the last call, in their order: runs reply handlers and
 * callbacks.
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
		Event *next = event->next;

		handle_event(event);
		zk_event_free(event);
		event = next;
	}
	leave_silent_server();
	if (sasl_failed && zk_handle && zk_handle_number == number)
		leave_handle(sasl_fault ? ZK_SESSION_SASL_FAILED : ZK_SESSION_AUTH_FAILED);
}
