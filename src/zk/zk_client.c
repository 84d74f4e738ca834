/*
 * zk_client.c
 *		The ZooKeeper client library, tamed.
 *
 * The library runs two threads of its own, which may not touch PostgreSQL: their
 * news goes through a queue (zk_callback.c, zk_event.c) to the worker's main
 * loop, which acts on it in zk_client_dispatch().  All calls into the library
 * come from the main loop.
 *
 * From the ground up:
 *
 *		zk_callback.c, zk_event.c	news from threads for the main loop
 *		zk_thread.c					threads of our own: zk_lookup.c (names),
 *									zk_ask.c (questions beside the library)
 *		zk_answer.c, zk_error.c		does an answer make sense, and what does it mean?
 *		zk_log.c, zk_pause.c		complaints of the library; its pauses
 *		zk_tls.c, zk_tls_stream.c	TLS: what is needed for it; a connection of our own
 *		zk_handle.c, zk_send.c		the library's handles, and calls in its terms
 *		zk_call.c, zk_flow.c		calls, until they are answered; zk_turn.c,
 *									zk_window.c and zk_batch.c say which is sent,
 *									when, and with which others
 *		zk_connection.c				the handle that is used, and its states
 *		zk_greeting.c				when a connection counts
 *		zk_trial.c					another handle, beside that
 *		zk_client.c					events, and what follows from them
 *
 * What the library gets wrong, and what we do about it (the numbers are those
 * of the list "traps of the C client" in doc/internals.md):
 *
 *	 1 it resolves names on every turn, blocking: it gets numeric addresses
 *	   (zk_lookup.c) and is told never to resolve (zk_handle_open)
 *	 2 it skips half of an even number of servers: it gets an odd number
 *	   (connect_string.c)
 *	 3 it re-registers all watches in one packet, whose size is limited:
 *	   src/queue/account.c keeps the sum of their paths below that
 *	 4 a session with too many bytes of ephemeral paths cannot be closed:
 *	   the same budget bounds them
 *	 5 a server may sit on a request until the next one comes: calls
 *	   without an answer are followed by a harmless one (zk_flow.c), and so is
 *	   the first read on a connection (zk_greeting.c)
 *	 6 a container inside a multi aborts the process: multis contain none
 *	   (zk_send.c)
 *	 7 more than 64k unread wake-ups break the connection: the number of
 *	   calls outstanding is limited (zk_flow.c).  It reconnects then without a
 *	   word of the loss, as it may at any time (handle_connected)
 *	 8 completions may never be called: each call is registered under a number
 *	   of its own and failed by us when its session ends (zk_flow.c)
 *	 9 its threads take signals meant for us: all are blocked around init
 *	   (zk_handle_open, zk_thread.c)
 *	10 session events are delivered once per distinct watcher: there is one
 *	   watcher function, with one context (zk_callback_event)
 *	11 "exists" leaves watches on missing nodes: watches are set by "get" and
 *	   "list" only (zk_send.c)
 *	12 an answer from a follower does not prove that the session lives: see
 *	   the chapter on proof of holding in doc/internals.md
 *	13 it passes on what it has decoded, well formed or not: zk_answer.c checks
 *	   each field that is used
 *
 * And beyond those:
 *
 *	 - it takes whatever arrives first for the answer to its handshake, be it
 *	   another session's id, which reads as the end of ours: that is believed
 *	   when a server says so to us (zk_ask.c)
 *	 - it calls a connection connected that has answered nothing yet: it counts
 *	   when the server has answered a read (zk_greeting.c)
 *	 - it shows the password that the last handshake has brought, whatever that
 *	   was: it must be the session's (zk_connection_session_fault)
 *	 - it takes watch events for its own session events if a server marks them
 *	   so: an end that the handle knows nothing of is ignored
 *	   (zk_callback_event), a lost connection is found out
 *	   (zk_client_check_addresses)
 *	 - with TLS it tells nothing of why it fails (zk_ask.c), reads its files anew
 *	   each time and trusts the system's authorities (zk_tls.c), and waits for an
 *	   answer for ever (attend_handshake)
 *	 - it connects again at once, ten times a second if need be, to a server
 *	   that hangs up as often: its thread is held up where it pauses anyway
 *	   (zk_pause.c)
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <zookeeper/zookeeper.h>

#include "shared/clock.h"
#include "zk/zk_ask.h"
#include "zk/zk_client.h"
#include "zk/zk_connection.h"
#include "zk/zk_flow.h"
#include "zk/zk_greeting.h"
#include "zk/zk_lookup.h"
#include "zk/zk_pause.h"
#include "zk/zk_tls.h"
#include "zk/zk_trial.h"

#define HANDSHAKE_MS 3000 /* TLS's, with one server */
#define LOOK_AT_HANDSHAKE_MS 500

StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_AUTH_FAILED == ZAUTHFAILED && ZK_CLOSING == ZCLOSING &&
					 ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

static ZkClientCallbacks callbacks;
static uintptr_t		 last_question; /* number of the one asked last, of any kind */

/* Questions under way, by number; 0: none. */
static uintptr_t names_question; /* for the addresses of the servers */
static uintptr_t doubt_question; /* whether the session lives */
static uintptr_t tick_question;	 /* for the tickTime of ... */
static char		 tick_server[ZK_SERVER_SIZE];
static uintptr_t tls_question; /* why TLS fails; if it is not TLS: */
static char		 tls_complaint[ZKLOCK_ERROR_SIZE];

static int64 handshake_until; /* TLS's, ms; 0 if there is none */

static bool addresses_changed; /* the servers' names mean others than the handle has */

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

/*
 * Prepares the client; once per process.
 *
 * Returns a descriptor that wakes a main loop that sleeps; see
 * zk_client_may_sleep().
 */
int
zk_client_start(const ZkClientCallbacks *callbacks_)
{
	ZkFlowCallbacks for_calls = {.send = zk_connection_send,
								 .malformed = callbacks_->malformed,
								 .answered = callbacks_->answered};

	callbacks = *callbacks_;
	zk_tls_start();
	zk_log_start(callbacks.complaint);
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
zk_client_open(const ZkClientConfig *config)
{
	char addresses[CONNECT_STRING_RESOLVED_SIZE];

	addresses_changed = false;
	names_question = 0;
	switch (zk_lookup(&config->servers, ++last_question, addresses, sizeof(addresses)))
	{
		case ZK_LOOKUP_DONE:
			return zk_connection_opened(config, addresses);
		case ZK_LOOKUP_BEGUN:
			names_question = last_question;
			zk_connection_looking_up(config);
			return true;
		case ZK_LOOKUP_FAILED:
			break;
	}
	return false;
}

/* Nothing that was asked about the handle matters any more. */
static void
forget_questions(void)
{
	names_question = 0;
	doubt_question = 0;
	tick_question = 0;
	tls_question = 0;
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
	forget_questions();
	return zk_connection_closed();
}

/*
 * Gives the handle up as zk_client_close() does, if there is one, but without
 * waiting for the end of the session.
 */
void
zk_client_leave(void)
{
	forget_questions();
	zk_connection_left();
}

/* From now on, nodes are created with this ACL. */
void
zk_client_set_acl(ZkAcl acl)
{
	zk_connection_set_acl(acl);
}

/* May calls be made? */
bool
zk_client_connected(void)
{
	return zk_connection_state() == ZK_CONNECTION_CONNECTED;
}

/* Fills in what only the library knows of the session.  There must be a handle. */
void
zk_client_session(ZkSession *session)
{
	zk_connection_session(session);
}

/* Did zk_client_check_addresses() find that server names mean other addresses now? */
bool
zk_client_addresses_changed(void)
{
	return addresses_changed;
}

/* When zk_client_dispatch() wants to run next at the latest, ms; or -1. */
int64
zk_client_next_wakeup(void)
{
	int64 wakeup = zk_greeting_next_wakeup();
	int64 look = handshake_until == 0 ? -1 : zklock_now_ms() + LOOK_AT_HANDSHAKE_MS;

	return wakeup < 0 || look < 0 ? Max(wakeup, look) : Min(wakeup, look);
}

/* ------------------------------------------------------------------------
 * What happens to the connection
 * ------------------------------------------------------------------------
 */

/* The connection is gone, or another one stands already. */
static void
handle_hang_up(void)
{
	bool connected = zk_client_connected();

	if (!zk_connection_stands())
		return;
	zk_connection_lost();
	if (connected)
		callbacks.session(ZK_SESSION_DISCONNECTED);
}

/* A session that nobody has confirmed is none, or of no use. */
static void
give_up_unconfirmed(void)
{
	zk_client_leave();
	callbacks.session(ZK_SESSION_IN_DOUBT);
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

	if (zk_connection_session_exists())
	{
		callbacks.malformed(fault);
		return;
	}
	zk_connection_session(&session);
	sentence = psprintf("malformed answer of ZooKeeper server %s: %s", session.server, fault);
	zk_log_complain(sentence);
	pfree(sentence);
	give_up_unconfirmed();
}

/* The library says that it is connected. */
static void
handle_connected(void)
{
	const char *fault = zk_connection_session_fault();

	if (fault)
	{
		handle_malformed_session(fault);
		return;
	}

	/* There are reconnects that the library does not announce (trap 7). */
	handle_hang_up();
	zk_connection_show_credentials();
	if (zk_connection_config()->purpose == ZK_PURPOSE_END)
	{
		callbacks.session(ZK_SESSION_CONNECTED);
		return;
	}
	zk_connection_greeted();
	zk_greeting_begin();
	if (zk_connection_session_exists())
		callbacks.session(ZK_SESSION_GREETED);
}

/* A server has answered: the connection counts.  Asks that server for its tickTime. */
static void
handle_answered(void)
{
	ZkSession session;

	zk_connection_answered();
	callbacks.session(ZK_SESSION_CONNECTED);
	if (!zk_client_connected())
		return;
	zk_connection_session(&session);
	strlcpy(tick_server, session.server, sizeof(tick_server));
	tick_question = ++last_question;
	if (!zk_ask_tick_time(tick_server, zk_connection_config()->tls, tick_question))
		tick_question = 0;
}

/*
 * The library says that the session is over.  If it ever was one, asks servers;
 * until they answer we are as good as disconnected.
 */
static void
handle_expired(void)
{
	ZkSessionQuestion question;
	bool			  existed = zk_connection_session_exists();

	zk_connection_question(&question);
	handle_hang_up();
	(void) zk_client_close();
	if (existed && zk_ask_session(&question, ++last_question))
	{
		doubt_question = last_question;
		zk_connection_doubted();
	}
	else
		callbacks.session(ZK_SESSION_IN_DOUBT);
	explicit_bzero(&question, sizeof(question));
}

/* ZooKeeper refuses our credentials, or wants others. */
static void
handle_refused(void)
{
	(void) zk_client_close();
	callbacks.session(ZK_SESSION_AUTH_FAILED);
}

/* The library is in another state than before. */
static void
handle_session(int library_state)
{
	if (library_state == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (library_state == ZOO_EXPIRED_SESSION_STATE)
		handle_expired();
	else if (library_state == ZOO_AUTH_FAILED_STATE)
		handle_refused();
	else
	{
		handle_hang_up();
		if (library_state == ZOO_READONLY_STATE)
			handle_malformed_session("The session is read-only.");
		else if (!zk_connection_session_exists())
			give_up_unconfirmed();
	}
}

/*
 * An outage has lasted: sees whether we are mistaken about it, or whether the
 * server names mean other addresses now.
 */
void
zk_client_check_addresses(void)
{
	char addresses[CONNECT_STRING_RESOLVED_SIZE];

	/* It was a server that said that the connection is lost. */
	if (zk_connection_is_mistaken())
		handle_connected();
	else if (names_question == 0 && zk_lookup(&zk_connection_config()->servers, ++last_question,
											  addresses, sizeof(addresses)) == ZK_LOOKUP_BEGUN)
		names_question = last_question;
}

/*
 * Sees to TLS's handshake, with which a server does not go on.  It may begin at any
 * time while there is no connection, without an event.
 */
static void
attend_handshake(void)
{
	int64 now = zklock_now_ms();

	if (!zk_connection_has_handle() || zk_connection_config()->tls == ZK_TLS_OFF ||
		zk_connection_stands())
		handshake_until = 0;
	else if (handshake_until == 0 || !zk_connection_is_shaking_hands())
		handshake_until = now + HANDSHAKE_MS;
	else if (now >= handshake_until)
	{
		zk_connection_break_handshake();
		handshake_until = now + HANDSHAKE_MS;
	}
}

/* Sees to a connection that has no answer. */
static void
attend_greeting(void)
{
	if (zk_greeting_is_hopeless())
		give_up_unconfirmed();
	else
		zk_greeting_attend();
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
handle_reply(const Event *event)
{
	/* A server that wants credentials says so to one call, and hangs up. */
	if (zk_connection_has_handle() && event->code == ZK_REQUIRES_AUTH)
		handle_refused();
	else if ((event->number & ZK_OF_GREETING) == 0)
		zk_flow_answer(event);
	else if (zk_greeting_is_answer(event))
	{
		const char *fault = zk_answer_code_fault(event->code);

		if (fault)
			callbacks.malformed(fault);
		else
			handle_answered();
	}
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

/*
 * A connection fails, as the sentence says.  With TLS there may be more to say:
 * returns true if that is being found out.
 */
static bool
find_out_about_tls(const char *sentence)
{
	if (!zk_connection_has_handle() || zk_connection_config()->tls == ZK_TLS_OFF ||
		zk_connection_stands())
		return false;
	if (tls_question != 0)
		return true;
	tls_question = ++last_question;
	strlcpy(tls_complaint, sentence, sizeof(tls_complaint));
	if (!zk_ask_about_tls(zk_connection_addresses(), zk_connection_config()->tls, tls_question))
		tls_question = 0;
	return tls_question != 0;
}

static void
handle_log(const Event *event)
{
	char *sentence;

	/* What is told of a handle that has been given up would hide why it was. */
	if (!zk_log_is_complaint(event) || !zk_connection_has_handle())
		return;
	if (!zk_connection_stands())
		zk_pause_refused();
	if (zk_pause_is_due())
		sentence = pstrdup(
			"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
	else
		sentence = zk_error_sentence(event->text, zk_client_connected() ? ZK_CONNECTION_IN_USE
																		: ZK_CONNECTION_NEW);
	if (!find_out_about_tls(sentence))
		zk_log_complain(sentence);
	pfree(sentence);
}

/* The names of the servers have been looked up: for a handle, or during an outage. */
static void
handle_looked_up(const Event *event)
{
	if (event->number != names_question)
		return;
	names_question = 0;
	if (zk_connection_state() == ZK_CONNECTION_LOOKUP)
	{
		if (event->text == NULL)
			zk_connection_unresolved();
		else if (zk_connection_resolved(event->text))
			return;
		callbacks.session(ZK_SESSION_UNRESOLVED);
	}
	else if (event->text && strcmp(event->text, zk_connection_addresses()) != 0)
		addresses_changed = true;
}

static void
handle_asked(const Event *event)
{
	if (event->number == tick_question)
	{
		tick_question = 0;
		if (event->code > 0)
			callbacks.tick_time(tick_server, event->code);
	}
	else if (event->number == tls_question)
	{
		tls_question = 0;
		zk_log_complain(event->text ? event->text : tls_complaint);
	}
	else if (event->number == doubt_question)
	{
		doubt_question = 0;
		zk_connection_settled();
		callbacks.session(event->code == ZK_VERDICT_OVER ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
	}
}

static void
handle_event(const Event *event)
{
	switch (event->kind)
	{
		case EVENT_REPLY:
			handle_reply(event);
			break;
		case EVENT_SESSION:
			if (zk_connection_owns(event))
				handle_session(event->code);
			break;
		case EVENT_WATCH:
			if (zk_connection_owns(event))
				handle_watch(event);
			break;
		case EVENT_LOG:
			handle_log(event);
			break;
		case EVENT_LOOKED_UP:
			handle_looked_up(event);
			break;
		case EVENT_ASKED:
			handle_asked(event);
			break;
		case EVENT_CLOSED: /* and nobody waits for it */
			break;
	}
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

		if ((event->number & ZK_OF_TRIAL) != 0)
			zk_trial_event(event);
		else
			handle_event(event);
		zk_event_free(event);
		event = next;
	}
	attend_greeting();
	attend_handshake();
}

/* Sends the calls that have been made since, and those that waited for their turn. */
void
zk_client_send(void)
{
	zk_flow_send();
}
