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
 *		zk_call.c, zk_call_record.c, zk_library.c
 *								calls, and the same in the library's terms
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
 *	   was: it must be the session's (session_fault)
 *	 - it takes watch events for its own session events if a server marks them
 *	   so: an end that the handle knows nothing of is ignored
 *	   (zk_library_event), a lost connection is found out
 *	   (zk_client_check_addresses)
 *	 - it connects again at once, ten times a second if need be, to a server that
 *	   hangs up as often, and waits for the answer to TLS's handshake for ever:
 *	   such a handle cannot be given up, so the worker ends, and the next one
 *	   begins a second later (look_for_answers)
 *
 * What a server says is believed: it says that the session is over, and it is.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <zookeeper/zookeeper.h>

#include "shared/clock.h"
#include "zk/zk_client.h"
#include "zk/zk_inside.h"
#include "zk/zk_tls.h"

#define HANDSHAKE_MS 5000 /* TLS's, with one server */
#define LOOK_MS 500		  /* how often that, and the first answer, are looked for */
#define MAX_UNANSWERED 3  /* connections in a row */

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_AUTH_FAILED == ZAUTHFAILED && ZK_CLOSING == ZCLOSING &&
					 ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

/*
 * The library connects, and reconnects, by itself while it has a handle.  Our
 * knowledge of that is one of these states; each arrow is one function here:
 *
 *              open_handle                connected
 *      NONE ----------------> CONNECTING -----------> CONNECTED
 *       |  looking_up          ^      ^                  |
 *       '-------------> LOOKUP |      '------------------'
 *                         '----'              lost
 *                       open_handle
 *
 *      each of these: without_handle -> NONE
 *
 * If a session is to be ended and not used, the state remains CONNECTING.
 *
 * A handle that is connected cannot be given up without ending its session.
 */
typedef enum Connection
{
	CONNECTION_NONE,	   /* no handle */
	CONNECTION_LOOKUP,	   /* a thread looks up the names of the servers */
	CONNECTION_CONNECTING, /* there is a handle */
	CONNECTION_CONNECTED   /* a server has accepted the session: calls are made */
} Connection;

static ZkClientCallbacks callbacks;
static Connection		 state = CONNECTION_NONE;
static zhandle_t		*handle;
static uintptr_t		 handle_number; /* its events carry it: last words of an
										 * earlier one are ignored */
static ZkClientConfig	 config;		/* with the session, once there is one */
static char				 addresses[CONNECT_STRING_RESOLVED_SIZE]; /* the handle's */
static ZkComplaint		 next_complaint = ZK_COMPLAINT_FIRST;

/* Answers */
static bool	 answered;		  /* the last connection has been */
static int	 unanswered;	  /* connections in a row that ended without an answer */
static int64 answer_until;	  /* CONNECTED, not answered: not for longer, ms */
static int64 handshake_until; /* TLS's, ms; 0 if there is none */

/* Names that are being looked up, by the number of the question; 0: none. */
static uintptr_t last_question;
static uintptr_t names_question; /* for the handle, or during an outage */
static bool		 addresses_changed;
static uintptr_t others_question; /* for zk_client_look_up() */
static void (*others_found)(const char *addresses);

/* Does the session of the configuration exist? */
static bool
session_exists(void)
{
	return config.session_id != 0;
}

/* Passes on a complaint: a sentence without its period. */
static void
complain(const char *message)
{
	ZkComplaint complaint = next_complaint;

	next_complaint = ZK_COMPLAINT_REPEATED;
	callbacks.complaint(message, complaint);
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

/* There is a handle, if the library makes one, and it begins to connect. */
static bool
open_handle(const char *addresses_)
{
	Assert(state == CONNECTION_NONE || state == CONNECTION_LOOKUP);
	strlcpy(addresses, addresses_, sizeof(addresses));
	handle = zk_handle_open(addresses, &config, ++handle_number);
	state = handle ? CONNECTION_CONNECTING : CONNECTION_NONE;
	if (handle == NULL)
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
	return handle != NULL;
}

static void
looking_up(uintptr_t question)
{
	Assert(state == CONNECTION_NONE);
	state = CONNECTION_LOOKUP;
	names_question = question;
}

/* A server has accepted the session, which so exists. */
static void
connected(void)
{
	ZkSession session;

	Assert(state == CONNECTION_CONNECTING);
	state = CONNECTION_CONNECTED;
	answered = false;
	answer_until = zklock_now_ms() + config.session_timeout;
	zk_handle_session(handle, &session);
	config.session_id = session.id;
	memcpy(config.session_password, session.password, sizeof(config.session_password));
	explicit_bzero(&session, sizeof(session));
	zk_flow_connected(config.session_id);
}

/* The connection is gone. */
static void
lost(void)
{
	Assert(state == CONNECTION_CONNECTED);
	state = CONNECTION_CONNECTING;
	unanswered = answered ? 0 : unanswered + 1;
	zk_flow_disconnected();
}

/* The handle, if there was any, is gone, and with it the calls. */
static void
without_handle(void)
{
	handle = NULL;
	state = CONNECTION_NONE;
	names_question = 0;
	zk_flow_over();
}

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

/* Hands a call to the library; see zk_library_send().  There must be a handle. */
static int
send_call(const Call *call)
{
	return zk_library_send(handle, handle_number, config.acl, call);
}

/*
 * Prepares the client; once per process.
 *
 * Returns a descriptor that wakes a main loop that sleeps; see
 * zk_client_may_sleep().
 */
int
zk_client_start(const ZkClientCallbacks *callbacks_)
{
	ZkFlowCallbacks for_calls = {.send = send_call,
								 .malformed = callbacks_->malformed,
								 .answered = callbacks_->answered};

	callbacks = *callbacks_;
	zk_tls_start();
	zk_turn_start(callbacks.role_of);
	zk_flow_start(&for_calls);
	return zk_event_queue_open();
}

/*
 * Begins to connect.  There must be no handle.  What happens is told by the
 * session callback.  The configuration is copied; the credentials are wiped
 * when the library has them.
 *
 * Returns false if that could not even begin.
 */
bool
zk_client_open(const ZkClientConfig *config_)
{
	char found[CONNECT_STRING_RESOLVED_SIZE];

	Assert(state == CONNECTION_NONE);
	config = *config_;
	addresses_changed = false;
	switch (zk_handle_look_up(&config.servers, ++last_question, found, sizeof(found)))
	{
		case ZK_LOOKUP_DONE:
			return open_handle(found);
		case ZK_LOOKUP_BEGUN:
			looking_up(last_question);
			return true;
		case ZK_LOOKUP_FAILED:
			break;
	}
	return false;
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
	bool ended = handle && zk_handle_close(handle) && idle;

	without_handle();
	return ended;
}

/*
 * Gives the handle up as zk_client_close() does, if there is one, but without
 * waiting for the end of the session.
 */
void
zk_client_leave(void)
{
	if (handle)
		zk_handle_close_apart(handle);
	without_handle();
}

/* From now on, nodes are created with this ACL. */
void
zk_client_set_acl(ZkAcl acl)
{
	config.acl = acl;
}

/* May calls be made? */
bool
zk_client_connected(void)
{
	return state == CONNECTION_CONNECTED;
}

/* Fills in what only the library knows of the session; nothing, while names are looked up. */
void
zk_client_session(ZkSession *session)
{
	memset(session, 0, sizeof(*session));
	if (handle)
		zk_handle_session(handle, session);
}

/* ------------------------------------------------------------------------
 * What happens to the connection
 * ------------------------------------------------------------------------
 */

/* What is wrong with the session that a server offers, as a sentence, or NULL. */
static const char *
session_fault(void)
{
	ZkSession	session;
	const char *fault;

	zk_handle_session(handle, &session);
	fault = zk_answer_session_fault(session.id, session.negotiated_timeout);
	if (fault == NULL && session_exists())
		fault = zk_answer_password_fault(session.password, config.session_password);
	explicit_bzero(&session, sizeof(session));
	return fault;
}

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

	if (session_exists())
	{
		callbacks.malformed(fault);
		return;
	}
	zk_handle_session(handle, &session);
	sentence = psprintf("malformed answer of ZooKeeper server %s: %s", session.server, fault);
	complain(sentence);
	pfree(sentence);
	zk_client_leave();
	callbacks.session(ZK_SESSION_IN_DOUBT);
}

/*
 * The connection is gone, or another one stands already.  One that nobody ever
 * answers does not count, and the library does not wait between two.
 */
static void
handle_hang_up(void)
{
	if (state != CONNECTION_CONNECTED)
		return;
	lost();
	callbacks.session(ZK_SESSION_DISCONNECTED);
	if (unanswered >= MAX_UNANSWERED)
		callbacks.stuck("ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
}

/* The library says that it is connected. */
static void
handle_connected(void)
{
	const char *fault = session_fault();

	if (fault)
	{
		handle_malformed_session(fault);
		return;
	}

	/* There are reconnects that the library does not announce (trap 7). */
	handle_hang_up();
	(void) zk_handle_show_credentials(handle, &config); /* ahead of all calls */
	if (config.purpose == ZK_PURPOSE_USE)
		connected();
	callbacks.session(ZK_SESSION_CONNECTED);
}

/* The library is in another state than before. */
static void
handle_session(int library_state)
{
	bool existed = session_exists();

	if (library_state == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (library_state == ZOO_EXPIRED_SESSION_STATE)
	{
		(void) zk_client_close();
		callbacks.session(existed ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
	}
	else if (library_state == ZOO_AUTH_FAILED_STATE)
	{
		(void) zk_client_close();
		callbacks.session(ZK_SESSION_AUTH_FAILED);
	}
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

	if (handle == NULL || !config.tls || !zk_tls_is_shaking_hands(handle))
		handshake_until = 0;
	else if (handshake_until == 0)
		handshake_until = now + HANDSHAKE_MS;
	else if (now >= handshake_until)
		callbacks.stuck("a ZooKeeper server does not go on with TLS's handshake");

	if (state == CONNECTION_CONNECTED && !answered && now >= answer_until)
		callbacks.stuck("a ZooKeeper server accepts the connection and answers nothing");
}

/* ------------------------------------------------------------------------
 * Names of servers
 * ------------------------------------------------------------------------
 */

/* Looks servers up for somebody else; forgets what was looked up for them before. */
void
zk_client_look_up(const ConnectString *servers, void (*found)(const char *addresses))
{
	char in_numbers[CONNECT_STRING_RESOLVED_SIZE];

	others_question = 0;
	others_found = found;
	switch (zk_handle_look_up(servers, ++last_question, in_numbers, sizeof(in_numbers)))
	{
		case ZK_LOOKUP_DONE:
			found(in_numbers);
			break;
		case ZK_LOOKUP_BEGUN:
			others_question = last_question;
			break;
		case ZK_LOOKUP_FAILED:
			found(NULL);
			break;
	}
}

/*
 * An outage has lasted: sees whether we are mistaken about it, or whether the
 * server names mean other addresses now.
 */
void
zk_client_check_addresses(void)
{
	char found[CONNECT_STRING_RESOLVED_SIZE];

	/* It was a server that said that the connection is lost. */
	if (handle && config.purpose == ZK_PURPOSE_USE && state != CONNECTION_CONNECTED &&
		zoo_state(handle) == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (names_question == 0 && zk_handle_look_up(&config.servers, ++last_question, found,
													  sizeof(found)) == ZK_LOOKUP_BEGUN)
		names_question = last_question;
}

/* Did zk_client_check_addresses() find that server names mean other addresses now? */
bool
zk_client_addresses_changed(void)
{
	return addresses_changed;
}

static void
handle_looked_up(const Event *event)
{
	if (event->number == others_question)
	{
		others_question = 0;
		others_found(event->text);
	}
	if (event->number != names_question)
		return;
	names_question = 0;
	if (state != CONNECTION_LOOKUP)
		addresses_changed = event->text && strcmp(event->text, addresses) != 0;
	else if (event->text == NULL || !open_handle(event->text))
	{
		without_handle();
		callbacks.session(ZK_SESSION_UNRESOLVED);
	}
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
handle_reply(const Event *event)
{
	/* A server that wants credentials says so to one call, and hangs up. */
	if (handle && event->code == ZK_REQUIRES_AUTH)
	{
		(void) zk_client_close();
		callbacks.session(ZK_SESSION_AUTH_FAILED);
		return;
	}
	if (state == CONNECTION_CONNECTED && zk_error_outcome(event->code) != ZK_UNKNOWN)
	{
		answered = true;
		unanswered = 0;
		next_complaint = ZK_COMPLAINT_FIRST;
	}
	zk_flow_answer(event);
}

static void
handle_watch(const Event *event)
{
	/* An event that is lost, or as good as lost, is nowhere noticed: start over. */
	if (event->fault)
	{
		callbacks.malformed(event->fault);
		return;
	}
	if (event->text == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));

	if (event->code == ZOO_DELETED_EVENT)
		callbacks.watch(ZK_WATCH_DELETED, event->text);
	else if (event->code == ZOO_CHANGED_EVENT)
		callbacks.watch(ZK_WATCH_CHANGED, event->text);
	else if (event->code == ZOO_CHILD_EVENT)
		callbacks.watch(ZK_WATCH_CHILDREN, event->text);
}

/* A line of the library's log; complaints of a server become sentences. */
static void
handle_log(const Event *event)
{
	char *sentence;

	ereport(event->code ? DEBUG1 : DEBUG2, (errmsg_internal("ZooKeeper client: %s", event->text)));

	/* What is told of a handle that has been given up would hide why it was. */
	if (!event->code || handle == NULL)
		return;
	sentence = zk_error_sentence(event->text, state == CONNECTION_CONNECTED && answered
												  ? ZK_CONNECTION_IN_USE
												  : ZK_CONNECTION_NEW);
	complain(sentence);
	pfree(sentence);
}

static void
handle_event(const Event *event)
{
	bool is_ours = handle && event->number == handle_number;

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
			handle_looked_up(event);
			break;
	}
}

/* When zk_client_dispatch() wants to run next at the latest, ms; or -1. */
int64
zk_client_next_wakeup(void)
{
	bool waits = handle && (state == CONNECTION_CONNECTED ? !answered : config.tls);

	return waits ? zklock_now_ms() + LOOK_MS : -1;
}

/*
 * May the main loop sleep?  If so, the descriptor of zk_client_start() becomes
 * readable when something has happened; zk_client_woken() is to follow then.
 */
bool
zk_client_may_sleep(void)
{
	return zk_event_may_sleep();
}

void
zk_client_woken(void)
{
	zk_event_woken();
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

/* Sends the calls that have been made since, and those that waited for their turn. */
void
zk_client_send(void)
{
	zk_flow_send();
}
