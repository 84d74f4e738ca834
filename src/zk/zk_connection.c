/*
 * zk_connection.c
 *		The connection to ZooKeeper: its handle and its states.
 *
 * The client library connects, and reconnects, by itself while it has a handle.
 * Our knowledge of that is one of these states.  These are all the arrows between
 * them, each of which is one function here:
 *
 *             looking_up            unresolved
 *        NONE ----------> LOOKUP ----------------> NONE
 *          |                 |
 *          | opened          | resolved
 *          '--------.--------'
 *    a new session  |  a session that exists
 *          .--------'----------------.
 *          v                         v
 *      BEGINNING                 CONNECTING <----------.
 *          |   ^                     |   ^             |
 *  greeted |   | lost        greeted |   | lost        |
 *          v   |                     v   |             |
 *     UNCONFIRMED                 GREETED              |
 *          |                         |                 |
 *          | answered       answered |                 |
 *          '---------.---------------'                 |
 *                    v                lost             |
 *                CONNECTED ----------------------------'
 *
 *        each of these: closed, left -> NONE
 *
 *        NONE ----------> DOUBTED ---------------> NONE
 *             doubted             settled, closed, left
 *
 *	NONE		no handle
 *	LOOKUP		a thread looks up the names of the servers
 *	BEGINNING	there is a handle, for a session that nobody has confirmed: what
 *				answers need not be ZooKeeper, and there is nothing to be lost
 *	UNCONFIRMED	the library says connected; a server has answered nothing yet
 *	CONNECTING	there is a handle, for a session that exists
 *	GREETED		the library says connected, so a server has accepted the session,
 *				but answered nothing yet
 *	CONNECTED	a server has answered a read: calls are made
 *	DOUBTED		the library says that the session is over; servers are asked
 *
 * If a session is to be ended and not used, nothing is asked for an answer, and
 * the state remains CONNECTING.
 *
 * A handle that is connected cannot be given up without ending its session.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_connection.h"
#include "zk/zk_flow.h"
#include "zk/zk_handle.h"
#include "zk/zk_log.h"
#include "zk/zk_pause.h"
#include "zk/zk_send.h"

static ZkConnectionState state = ZK_CONNECTION_NONE;
static zhandle_t		*handle;		/* from BEGINNING to CONNECTED, else NULL */
static uintptr_t		 handle_number; /* its events carry it: last words of an
										 * earlier one are ignored */
static ZkClientConfig	 config;		/* with the session, once it is confirmed */
static char				 addresses[CONNECT_STRING_RESOLVED_SIZE]; /* the handle's */

/* The library's threads */
static void
on_log(const char *message)
{
	zk_log_push(message, 0);
	zk_pause_hold(message);
}

/* ------------------------------------------------------------------------
 * What is known of it
 * ------------------------------------------------------------------------
 */

ZkConnectionState
zk_connection_state(void)
{
	return state;
}

/* The configuration that it was opened with last. */
const ZkClientConfig *
zk_connection_config(void)
{
	return &config;
}

/* The addresses that the last handle was given. */
const char *
zk_connection_addresses(void)
{
	return addresses;
}

bool
zk_connection_has_handle(void)
{
	return handle != NULL;
}

/* Does the library say that it is connected, as far as its events have told? */
bool
zk_connection_stands(void)
{
	return state == ZK_CONNECTION_UNCONFIRMED || state == ZK_CONNECTION_GREETED ||
		   state == ZK_CONNECTION_CONNECTED;
}

/* Is the library shaking hands, as TLS does? */
bool
zk_connection_is_shaking_hands(void)
{
	return handle != NULL && config.tls != ZK_TLS_OFF && zk_handle_is_shaking_hands(handle);
}

/* Is there a session that has been confirmed, by this handle or an earlier one? */
bool
zk_connection_session_exists(void)
{
	return config.session_id != 0;
}

/* Does the library say that it is connected, and its events say that it is not? */
bool
zk_connection_is_mistaken(void)
{
	return handle != NULL && !zk_connection_stands() && zoo_state(handle) == ZOO_CONNECTED_STATE;
}

/* Fills in what the library knows of the session.  There must be a handle. */
void
zk_connection_session(ZkSession *session)
{
	zk_handle_session(handle, session);
}

/* What is wrong with the session that a server offers, as a sentence, or NULL. */
const char *
zk_connection_session_fault(void)
{
	ZkSession	session;
	const char *fault;

	zk_handle_session(handle, &session);
	fault = zk_answer_session_fault(session.id, session.negotiated_timeout);
	if (fault == NULL && zk_connection_session_exists())
		fault = zk_answer_password_fault(session.password, config.session_password);
	explicit_bzero(&session, sizeof(session));
	return fault;
}

/* The question whether the session lives. */
void
zk_connection_question(ZkSessionQuestion *question)
{
	strlcpy(question->servers, addresses, sizeof(question->servers));
	question->tls = config.tls;
	question->timeout = config.session_timeout;
	question->id = config.session_id;
	memcpy(question->password, config.session_password, sizeof(question->password));
}

/* Is it an event of the handle, and not of an earlier one? */
bool
zk_connection_owns(const Event *event)
{
	return handle != NULL && event->number == handle_number;
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

static bool
open_handle(const char *addresses_)
{
	ZkHandleOptions options = {.servers = addresses,
							   .config = &config,
							   .number = ++handle_number,
							   .log = on_log};

	strlcpy(addresses, addresses_, sizeof(addresses));
	handle = zk_handle_open(&options);
	if (handle == NULL)
	{
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", addresses)));
		state = ZK_CONNECTION_NONE;
		return false;
	}
	state = zk_connection_session_exists() ? ZK_CONNECTION_CONNECTING : ZK_CONNECTION_BEGINNING;
	return true;
}

/* A thread has begun to look up the names of the configuration, which is copied. */
void
zk_connection_looking_up(const ZkClientConfig *config_)
{
	Assert(state == ZK_CONNECTION_NONE);
	config = *config_;
	state = ZK_CONNECTION_LOOKUP;
}

/* None of them could be resolved. */
void
zk_connection_unresolved(void)
{
	Assert(state == ZK_CONNECTION_LOOKUP);
	state = ZK_CONNECTION_NONE;
}

/* They have been: see zk_connection_opened(). */
bool
zk_connection_resolved(const char *addresses_)
{
	Assert(state == ZK_CONNECTION_LOOKUP);
	return open_handle(addresses_);
}

/*
 * There is a handle, if the library makes one, and it begins to connect.  The
 * configuration is copied.
 *
 * Returns false, with a log message, if it makes none.
 */
bool
zk_connection_opened(const ZkClientConfig *config_, const char *addresses_)
{
	Assert(state == ZK_CONNECTION_NONE);
	config = *config_;
	return open_handle(addresses_);
}

/* The library says that it is connected. */
void
zk_connection_greeted(void)
{
	Assert(state == ZK_CONNECTION_BEGINNING || state == ZK_CONNECTION_CONNECTING);
	state = state == ZK_CONNECTION_BEGINNING ? ZK_CONNECTION_UNCONFIRMED : ZK_CONNECTION_GREETED;
	zk_pause_connected();
}

/* A server has answered, which confirms the session. */
void
zk_connection_answered(void)
{
	ZkSession session;

	Assert(state == ZK_CONNECTION_UNCONFIRMED || state == ZK_CONNECTION_GREETED);
	state = ZK_CONNECTION_CONNECTED;
	zk_handle_session(handle, &session);
	config.session_id = session.id;
	memcpy(config.session_password, session.password, sizeof(config.session_password));
	zk_log_outage_over();
	zk_pause_answered();
	zk_flow_connected(session.id);
}

/* The connection is gone. */
void
zk_connection_lost(void)
{
	ZkConnectionState before = state;

	Assert(zk_connection_stands());
	state = before == ZK_CONNECTION_UNCONFIRMED ? ZK_CONNECTION_BEGINNING : ZK_CONNECTION_CONNECTING;
	zk_pause_hung_up(config.session_timeout);
	if (before == ZK_CONNECTION_CONNECTED)
		zk_flow_disconnected();
}

/* The handle, if there was any, is gone, and with it the calls. */
static void
without_handle(void)
{
	handle = NULL;
	state = ZK_CONNECTION_NONE;
	zk_flow_over();
}

/*
 * Closes the handle, if there is any, and waits for that.  Returns true if its
 * session has ended with it, as far as can be told.
 */
bool
zk_connection_closed(void)
{
	bool idle = zk_flow_idle();
	bool ended = false;

	if (handle)
	{
		zk_pause_end();
		ended = zk_handle_close(handle) && idle;
	}
	without_handle();
	return ended;
}

/* Closes the handle, if there is any, and does not wait for that. */
void
zk_connection_left(void)
{
	if (handle)
	{
		zk_pause_end();
		zk_handle_close_apart(handle, handle_number);
	}
	without_handle();
}

/* The library has said that the session is over, and servers have been asked. */
void
zk_connection_doubted(void)
{
	Assert(state == ZK_CONNECTION_NONE);
	state = ZK_CONNECTION_DOUBTED;
}

/* They have answered, or not. */
void
zk_connection_settled(void)
{
	Assert(state == ZK_CONNECTION_DOUBTED);
	state = ZK_CONNECTION_NONE;
}

/* ------------------------------------------------------------------------
 * What is done with it
 * ------------------------------------------------------------------------
 */

/* Hands a call to the library; see zk_send().  There must be a handle. */
int
zk_connection_send(const Call *call)
{
	return zk_send(handle, handle_number, config.acl, call);
}

/* From now on, nodes are created with this ACL. */
void
zk_connection_set_acl(ZkAcl acl)
{
	config.acl = acl;
}

/* The server does not go on with TLS's handshake: another one is tried. */
void
zk_connection_break_handshake(void)
{
	zk_handle_break_handshake(handle);
}

/* A connection stands: shows the credentials, before any call is made. */
void
zk_connection_show_credentials(void)
{
	(void) zk_handle_show_credentials(handle, &config);
}
