/*
 * zk_client.c
 *		The ZooKeeper client library, tamed: the connection, and what happens to it.
 *
 * The library runs two threads of its own, which may not touch PostgreSQL: their
 * news goes through a queue (zk_library.c, zk_event.c) to the worker's main
 * loop, which acts on it in zk_client_dispatch().  All calls into the library
 * come from the main loop.
 *
 * From the ground up:
 *
 *		zk_event.c				news from threads for the main loop
 *		zk_answer.c, zk_error.c	does an answer make sense, and what does it mean?
 *		zk_tls.c, zk_handle.c	the library's handles, and what TLS needs
 *		zk_call.c, zk_library.c	calls, and the same in the library's terms
 *		zk_flow.c				calls until they are answered; zk_turn.c says which is
 *								sent, when, and with which others
 *		zk_client.c				the handle that is used; events, and what follows
 *								from them
 *
 * The library has traps.  Comments name them by the numbers that they have in the
 * table of doc/internals.md, which says what is done about each.  Those that are
 * seen to here:
 *
 *	 - it may reconnect at any time without a word of the loss (trap 7)
 *	 - it shows the password that the last handshake has brought, whatever that
 *	   was: it must be the session's (zk_answer_session_fault)
 *	 - it takes watch events for its own session events if a server marks them
 *	   so: an end that the handle knows nothing of is ignored
 *	   (zk_library_event), a lost connection is found out
 *	   (zk_client_look_again)
 *	 - it connects again at once, ten times a second if need be, to a server that
 *	   hangs up as often, and waits for the answer to TLS's handshake for ever:
 *	   such a handle cannot be given up, so the worker ends, and the next one
 *	   begins a second later, or more if that happens again
 *	   (handle_hang_up, look_for_answers)
 *
 * Servers are believed: if one says that the session is over, it is.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/common.h"
#include "zk/zk_internal.h"

#define HANDSHAKE_MS 5000 /* TLS's, with one server */
#define LOOK_MS 500		  /* how often that, and the first answer, are looked for */
#define MAX_UNANSWERED 3  /* connections in a row */

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_AUTH_FAILED == ZAUTHFAILED && ZK_CLOSING == ZCLOSING &&
					 ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

/*
 * The library connects, and reconnects, by itself while it has a handle; each arrow
 * is one function here:
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

/* Answers */
static bool	 answered;		  /* the last connection has been */
static int	 unanswered;	  /* connections in a row that ended without an answer */
static int64 answer_until;	  /* connected, not answered: not for longer, ms */
static int64 handshake_until; /* TLS's, ms; 0 if there is none */

/* Passes on a complaint, a sentence without its period; logs it once in an outage. */
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
 * Begins to connect.  There must be no handle.  What happens is told by the
 * session callback.  The configuration is copied; the credentials are wiped
 * when the library has them.
 *
 *	addresses	as zk_client_look_up() finds them
 *
 * Returns false if that could not even begin.
 */
bool
zk_client_open(const char *addresses, const ZkClientConfig *config_)
{
	Assert(zk_handle == NULL);
	config = *config_;
	zk_handle_number++;
	zk_handle = zk_handle_open(addresses, &config);
	if (zk_handle == NULL)
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
	return zk_handle != NULL;
}

/* The handle, if there was any, is gone, and with it the calls. */
static void
without_handle(void)
{
	zk_handle = NULL;
	zk_flow_over();
}

/*
 * Gives the handle up, and all calls with it.  If connected this ends the
 * session, which takes up to a few seconds with a server that hangs.
 *
 * Returns true if ZooKeeper has done so, as far as can be told.
 */
bool
zk_client_close(void)
{
	bool idle = zk_flow_idle();
	bool ended = zk_handle && zk_handle_close(zk_handle) && idle;

	without_handle();
	return ended;
}

/* The same, without waiting, and what follows from it. */
static void
leave(ZkSessionEvent event)
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
 * Prepares the client; once per process.
 *
 * Returns a descriptor that wakes a main loop that sleeps; see
 * zk_event_may_sleep().
 */
int
zk_client_start(const ZkClientCallbacks *callbacks)
{
	zk_callbacks = *callbacks;
	zk_tls_start();
	zk_turn_start();
	return zk_event_queue_open();
}

/* Has a server answered on the connection that stands? */
bool
zk_client_answered(void)
{
	return zk_client_connected() && answered;
}

/* Is there a handle, which connects if it is not connected? */
bool
zk_client_is_open(void)
{
	return zk_handle != NULL;
}

/* Fills in what only the library knows of the session. */
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
 * A server offers a session that cannot be.  Nothing that comes on this
 * connection can be relied on, so it is given up: easily, if there is no other
 * session.  The library cannot do so and keep one; the worker can, by starting
 * again.
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
	leave(ZK_SESSION_IN_DOUBT);
}

/*
 * The connection is gone, or another one stands already.  One that nobody ever
 * answers does not count, and the library does not wait between two.
 */
static void
handle_hang_up(void)
{
	if (!zk_client_connected())
		return;
	unanswered = answered ? 0 : unanswered + 1;
	zk_flow_disconnected();
	zk_callbacks.session(ZK_SESSION_DISCONNECTED);
	if (unanswered >= MAX_UNANSWERED)
		zk_callbacks.stuck(
			"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
}

/* The library says that it is connected: a server has accepted the session, which so exists. */
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
		answer_until = zklock_now_ms() + config.session_timeout;
		config.session_id = session.id;
		memcpy(config.session_password, session.password, sizeof(config.session_password));
		zk_flow_connected(session.id);
		zk_callbacks.session(ZK_SESSION_CONNECTED);
	}
	explicit_bzero(&session, sizeof(session));
}

/* The library is in another state than before. */
static void
handle_session(int library_state)
{
	if (library_state == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (library_state == ZOO_EXPIRED_SESSION_STATE)
		leave(config.session_id != 0 ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
	else if (library_state == ZOO_AUTH_FAILED_STATE)
		leave(ZK_SESSION_AUTH_FAILED);
	else
	{
		handle_hang_up();
		if (library_state == ZOO_READONLY_STATE)
			handle_malformed_session("The session is read-only.");
	}
}

/*
 * Is there no way on with this handle?  A server may stand still in TLS's
 * handshake, which can begin at any time while there is no connection, without an
 * event; or give no answer on a connection, for as long as a session would live
 * that it has granted itself.
 */
static void
look_for_answers(void)
{
	int64 now = zklock_now_ms();

	if (zk_handle == NULL || !config.tls || !zk_tls_is_shaking_hands(zk_handle))
		handshake_until = 0;
	else if (handshake_until == 0)
		handshake_until = now + HANDSHAKE_MS;
	else if (now >= handshake_until)
		zk_callbacks.stuck("a ZooKeeper server does not go on with TLS's handshake");

	if (zk_client_connected() && !answered && now >= answer_until)
		zk_callbacks.stuck("a ZooKeeper server accepts the connection and answers nothing");
}

/* An outage has lasted: was it a server that said that the connection is lost? */
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
	/* A server that wants credentials says so to one call, and hangs up. */
	if (zk_handle && event->reply.code == ZK_REQUIRES_AUTH)
	{
		leave(ZK_SESSION_AUTH_FAILED);
		return;
	}
	if (zk_client_connected() && zk_error_outcome(event->reply.code) != CALL_UNKNOWN)
	{
		answered = true;
		unanswered = 0;
		complained = false;
	}
	zk_flow_answer(event);
}

static void
handle_watch(const Event *event)
{
	/* An event that is lost, or as good as lost, is nowhere noticed: start over. */
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

/* A line of the library's log; complaints of a server become sentences. */
static void
handle_log(const Event *event)
{
	char *sentence;

	ereport(event->code ? DEBUG1 : DEBUG2, (errmsg_internal("ZooKeeper client: %s", event->text)));

	/* News of a handle that has been given up would hide why it was. */
	if (!event->code || zk_handle == NULL)
		return;
	sentence = zk_error_sentence(event->text, zk_client_answered());
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

/* When zk_client_dispatch() wants to run next at the latest, ms. */
int64
zk_client_next_wakeup(void)
{
	bool waits = zk_handle && (zk_client_connected() ? !answered : config.tls);

	return waits ? zklock_now_ms() + LOOK_MS : NEVER;
}

/*
 * Handles all that has happened since the last call: runs reply handlers and
 * callbacks, in the order of the events.
 */
void
zk_client_dispatch(void)
{
	Event *event = zk_event_take_all();

	while (event)
	{
		Event *next = event->next;

		handle_event(event);
		zk_event_free(event);
		event = next;
	}
	look_for_answers();
}
