/*
 * zk_client.c
 *		The ZooKeeper client library, tamed.
 *
 * Only this file and zk_trial.c, with zk_handle.c below them, know
 * <zookeeper.h>.  The library runs two threads of its own, which may not touch PostgreSQL: what they have to say goes through
 * a queue (zk_event.c) to the worker's main loop, which runs the handlers in
 * zk_client_dispatch().  All calls into the library come from the main loop,
 * where zk_call.c keeps them until they are answered.
 *
 * What the library gets wrong, and what we do about it (the numbers are those
 * of the list "traps of the C client" in doc/internals.md):
 *
 *	 1 it resolves names on every turn, blocking: it gets numeric addresses
 *	   and is told never to resolve (start_handle)
 *	 2 it skips half of an even number of servers: it gets an odd number
 *	   (connect_string.c)
 *	 3 it re-registers all watches in one packet, whose size is limited:
 *	   lock_path.c keeps the sum of their paths below that
 *	 4 a session with too many bytes of ephemeral paths cannot be closed:
 *	   the same budget bounds them
 *	 5 a server may sit on a request until the next one comes: calls
 *	   without an answer are followed by a harmless one (zk_call.c)
 *	 6 a container inside a multi aborts the process: multis contain checks of
 *	   nodes (zk_check), or an ephemeral node and a deletion (zk_exchange)
 *	 7 more than 64k unread wake-ups break the connection: the number of
 *	   calls outstanding is limited (zk_call.c)
 *	 8 completions may never be called: each call is registered under a number
 *	   of its own and failed by us when its session ends (zk_call.c)
 *	 9 its threads take signals meant for us: all are blocked around init
 *	10 session events are delivered once per distinct watcher: there is one
 *	   watcher function, with one context
 *	11 "exists" leaves watches on missing nodes: watches are set by "get" and
 *	   "list" only
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
 *	   when the server has answered a read (greet)
 *	 - it connects again at once, ten times a second if need be, to a server
 *	   that hangs up as often: its thread is held up where it pauses anyway
 *	   (zk_handle_pause)
 *
 * Runs in: the worker (main thread unless a function says otherwise).
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <signal.h>

#include "compat.h"
#include "zk/zk_answer.h"
#include "zk/zk_ask.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"
#include "zk/zk_event.h"
#include "zk/zk_handle.h"
#include "zk/zk_trial.h"

#ifndef ZOO_NO_LOG_CLIENTENV /* as in 3.4, which Ubuntu 22.04 has */
#error "zklock needs the C client library of ZooKeeper 3.7 or later"
#endif

#define CLOSE_WAIT_MS 1500 /* the library's, for the answer to a close */

StaticAssertDecl(ZKLOCK_PASSWORD_SIZE == sizeof(((clientid_t *) 0)->passwd),
				 "size of a ZooKeeper session's password");
StaticAssertDecl(ZK_CONNECTION_LOSS == ZCONNECTIONLOSS && ZK_NO_AUTH == ZNOAUTH &&
					 ZK_AUTH_FAILED == ZAUTHFAILED && ZK_CLOSING == ZCLOSING &&
					 ZK_NO_WATCHER == ZNOWATCHER,
				 "ZooKeeper's error codes");

/* ------------------------------------------------------------------------
 * Events: from the threads to the main loop
 * ------------------------------------------------------------------------
 */

/* Any thread: the call's number travels in the library's context pointer. */
static inline const void *
call_context(uint64 number)
{
	return (const void *) (uintptr_t) number;
}

/*
 * Copies the children into the event, in one block; they have been checked.
 * Returns false if there is no memory.
 */
static bool
copy_children(Event *event, const struct String_vector *children)
{
	size_t size = 0;
	char  *string;

	if (children->count == 0)
		return true;
	for (int i = 0; i < children->count; i++)
		size += sizeof(char *) + strlen(children->data[i]) + 1;
	event->children = malloc(size);
	if (event->children == NULL)
		return false;
	event->nchildren = children->count;
	string = (char *) (event->children + children->count);
	for (int i = 0; i < children->count; i++)
	{
		event->children[i] = string;
		strcpy(string, children->data[i]);
		string += strlen(string) + 1;
	}
	return true;
}

static void
push_reply(int code, const char *path, const struct Stat *stat,
		   const struct String_vector *children, const void *context)
{
	Event event = {.kind = EVENT_REPLY, .code = code};
	bool  copied = true;

	event.call = (uint64) (uintptr_t) context;
	if (code == ZOK && path)
		copied = (event.text = strdup(path)) != NULL;
	if (code == ZOK && stat)
		event.stat = (AnswerStat){.czxid = stat->czxid,
								  .mzxid = stat->mzxid,
								  .ephemeral_owner = stat->ephemeralOwner};
	if (code == ZOK && children)
	{
		event.fault = zk_answer_children_fault(children->data, children->count);
		copied = event.fault || copy_children(&event, children);
	}

	/* A reply that could not be copied is as good as lost. */
	if (!copied)
		event.code = ZSYSTEMERROR;
	zk_event_push(&event);
}

/* The library's completion thread */
static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, path, stat, NULL, context);
}

static void
on_data(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	(void) value;
	(void) len;
	push_reply(code, NULL, stat, NULL, context);
}

static void
on_stat(int code, const struct Stat *stat, const void *context)
{
	push_reply(code, NULL, stat, NULL, context);
}

static void
on_children(int code, const struct String_vector *children, const void *context)
{
	push_reply(code, NULL, NULL, children, context);
}

static void
on_done(int code, const void *context)
{
	push_reply(code, NULL, NULL, NULL, context);
}

static void
on_synced(int code, const char *path, const void *context)
{
	(void) path;
	push_reply(code, NULL, NULL, NULL, context);
}

static void
on_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Event event = {.kind = EVENT_WATCH, .code = type};

	event.epoch = (uintptr_t) context;
	if (type == ZOO_SESSION_EVENT)
	{
		/* An end that the handle knows nothing of: a server sent this as a watch event. */
		if (state < 0 && zoo_state(zh) != state)
			return;
		event.kind = EVENT_SESSION;
		event.code = state;
	}
	else
	{
		event.fault = zk_answer_event_fault(path);
		if (event.fault == NULL)
			event.text = strdup(path);
	}
	zk_event_push(&event);
}

/* Any thread */
static void
on_log(const char *message)
{
	zk_handle_push_log(message, 0);
	zk_handle_pause(message);
}

/* ------------------------------------------------------------------------
 * Calls: from the main loop to the library
 * ------------------------------------------------------------------------
 */

static zhandle_t		*handle;
static uintptr_t		 epoch; /* number of the handle, its watchers' context:
								 * last words of an earlier one are ignored */
static ZkClientCallbacks callbacks;
static ZkClientConfig	 config;
static bool				 connected;			/* and a server has answered */
static bool				 greeted;			/* the library says connected */
static int64			 greeted_at;		/* ms */
static uint64			 greeting;			/* number of the read that is to be answered */
static int64			 greet_again_at;	/* ms, if it is not */
static bool				 answered;			/* the handle has ever been connected */
static int				 short_connections; /* in a row */
static int				 refusals;	/* in a row: failures before the library says connected */
static uintptr_t		 questions; /* number of the one asked last */
static uintptr_t		 doubt;		/* the question whether the session lives, or 0 */
static uintptr_t		 tick_question; /* the question for a tickTime, or 0 */
static char				 tick_server[sizeof(((SessionInfo *) 0)->server)]; /* asked */
static bool				 resolving; /* a resolver thread is running */
static bool				 opening;	/* its result is for a new handle */
static bool				 addresses_changed;
static char				*resolved_servers; /* what the handle was given (malloc) */
static bool				 outage_logged;	   /* the library has complained since the last
								 * connection */

/* A kind of node in the library's terms */
static int
create_mode(ZkNodeKind kind)
{
	switch (kind)
	{
		case ZK_CONTAINER:
			return ZOO_CONTAINER;
		case ZK_PERSISTENT:
			return ZOO_PERSISTENT;
		default:
			return ZOO_EPHEMERAL_SEQUENTIAL;
	}
}

/*
 * Hands a call to the library.  The answer comes as an event with its number.
 *
 * Returns an error code of the library if it does not even try.
 */
int
zk_client_send(const Call *call)
{
	/* Written by the library when the answer comes, if ever; never read. */
	static zoo_op_result_t results[2];

	const void				*context = call_context(call->number);
	const struct ACL_vector *acl = config.creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	zoo_op_t				 ops[2];

	switch (call->kind)
	{
		case CALL_CREATE:
			return zoo_acreate2(handle, call->path, call->data,
								call->data ? (int) strlen(call->data) : 0, acl,
								create_mode(call->node_kind), on_created, context);
		case CALL_EXCHANGE:
			zoo_create_op_init(&ops[0], call->path, call->data, (int) strlen(call->data), acl,
							   ZOO_EPHEMERAL, NULL, 0);
			zoo_delete_op_init(&ops[1], call->replaced, -1);
			return zoo_amulti(handle, lengthof(ops), ops, results, on_done, context);
		case CALL_DELETE:
			return zoo_adelete(handle, call->path, -1, on_done, context);
		case CALL_GET:
			return zoo_awget(handle, call->path, call->watch ? on_event : NULL, (void *) epoch,
							 on_data, context);
		case CALL_LIST:
			return zoo_awget_children(handle, call->path, call->watch ? on_event : NULL,
									  (void *) epoch, on_children, context);
		case CALL_CHECK:
		case CALL_BEAT:
			zoo_check_op_init(&ops[0], call->path, -1);
			return zoo_amulti(handle, 1, ops, results, on_done, context);
		case CALL_SYNC:
			return zoo_async(handle, call->path, on_synced, context);
		case CALL_NUDGE:
			return zoo_aexists(handle, call->path, 0, on_stat, context);
		case CALL_UNWATCH_DATA:
			return zoo_aremove_all_watches(handle, call->path, ZWATCHTYPE_DATA, 0,
										   (void_completion_t *) on_done, context);
		case CALL_UNWATCH_CHILDREN:
			return zoo_aremove_all_watches(handle, call->path, ZWATCHTYPE_CHILD, 0,
										   (void_completion_t *) on_done, context);
	}
	return ZBADARGUMENTS; /* cannot happen */
}

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

/*
 * Prepares the client; once per process.
 *
 * Returns a descriptor that becomes readable when zk_client_dispatch() has
 * something to do.
 */
int
zk_client_start(const ZkClientCallbacks *callbacks_)
{
	callbacks = *callbacks_;
	return zk_event_queue_open();
}

/* Makes the library's handle; false, with a log message, if it cannot. */
static bool
start_handle(const char *servers)
{
	clientid_t		id = {.client_id = config.session_id};
	ZkHandleOptions options = {.servers = servers,
							   .session_timeout = config.session_timeout,
							   .session = config.session_id != 0 ? &id : NULL,
							   .epoch = epoch + 1,
							   .watcher = on_event,
							   .log = on_log};

	epoch++;
	memcpy(id.passwd, config.session_password, sizeof(id.passwd));
	free(resolved_servers);
	resolved_servers = strdup(servers);
	addresses_changed = false;
	greeted = false;
	answered = false;
	handle = zk_handle_open(&options);
	if (handle == NULL)
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", servers)));
	return handle != NULL;
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
	char resolved[ZKLOCK_SERVERS_SIZE * 4];

	Assert(handle == NULL);
	doubt = 0;
	config = *config_;
	if (connect_string_resolve(&config.servers, true, resolved, sizeof(resolved)))
		return start_handle(resolved);
	opening = true;
	resolving = resolving || zk_event_resolve(&config.servers, 0);
	return resolving;
}

/*
 * Gives the handle up, and all calls with it.  If connected this ends the
 * session, which takes up to a few seconds with a server that hangs.
 *
 * Returns true if ZooKeeper has done so.  The library does not tell, but it
 * waits until the server has closed the connection, unless a signal arrives, or
 * the answer to an earlier call.
 */
bool
zk_client_close(void)
{
	int64	 start = zklock_now_ms();
	sigset_t most;
	sigset_t old;
	bool	 ended;

	doubt = 0;
	if (handle == NULL)
		return false;
	connected = false;
	zk_handle_set_pause(0);
	sigfillset(&most);
	sigdelset(&most, SIGQUIT);
	pthread_sigmask(SIG_SETMASK, &most, &old);
	ended = zoo_state(handle) == ZOO_CONNECTED_STATE && zk_calls_idle();
	ended = zookeeper_close(handle) == ZOK && zklock_now_ms() - start < CLOSE_WAIT_MS && ended;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	handle = NULL;
	zk_calls_over();
	return ended;
}

static void handle_session(int state);
/*
 * Gives the handle up as zk_client_close() does, if there is one, but without
 * waiting for the end of the session.
 */
void
zk_client_leave(void)
{
	doubt = 0;
	connected = false;
	if (handle == NULL)
		return;
	zk_handle_set_pause(0);
	zk_handle_close_apart(handle, epoch);
	handle = NULL;
	zk_calls_over();
}

/* From now on, nodes are created for their creator alone, or for anybody. */
void
zk_client_set_acl(bool creator)
{
	config.creator_acl = creator;
}

/* Has an outage lasted, see whether the server names mean other addresses now. */
void
zk_client_check_addresses(void)
{
	char resolved[ZKLOCK_SERVERS_SIZE * 4];

	/* It was a server that said that the connection is lost. */
	if (handle && !connected && !greeted && zoo_state(handle) == ZOO_CONNECTED_STATE)
	{
		handle_session(ZOO_CONNECTED_STATE);
		return;
	}
	if (!resolving && !connect_string_resolve(&config.servers, true, resolved, sizeof(resolved)))
		resolving = zk_event_resolve(&config.servers, 0);
}

/* Did zk_client_check_addresses() find that they do? */
bool
zk_client_addresses_changed(void)
{
	return addresses_changed;
}

bool
zk_client_connected(void)
{
	return connected;
}

/* Fills in what only the library knows of the session. */
void
zk_client_session(SessionInfo *info)
{
	const clientid_t	   *id = zoo_client_id(handle);
	struct sockaddr_storage address;
	socklen_t				len = sizeof(address);
	char					host[INET6_ADDRSTRLEN] = "";

	info->id = id->client_id;
	memcpy(info->password, id->passwd, sizeof(info->password));
	info->negotiated_timeout = zoo_recv_timeout(handle);
	info->server[0] = '\0';
	if (zookeeper_get_connected_host(handle, (struct sockaddr *) &address, &len) == NULL)
		return;
	if (address.ss_family == AF_INET)
	{
		struct sockaddr_in *v4 = (struct sockaddr_in *) &address;

		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(info->server, sizeof(info->server), "%s:%d", host, ntohs(v4->sin_port));
	}
	else
	{
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &address;

		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(info->server, sizeof(info->server), "[%s]:%d", host, ntohs(v6->sin6_port));
	}
}

static void
handle_disconnect(void)
{
	if (!connected)
		return;
	connected = false;
	zk_calls_disconnected();
	callbacks.session(ZK_SESSION_DISCONNECTED);
}

/*
 * Shows our credentials, once: the library repeats them on each later
 * connection.  It refuses to take them while it is between two attempts to
 * connect, so this is done when a connection stands, ahead of all calls.
 */
static void
send_credentials(void)
{
	if (config.auth_scheme[0] == '\0' ||
		zoo_add_auth(handle, config.auth_scheme, config.auth_credentials,
					 strlen(config.auth_credentials), NULL, NULL) != ZOK)
		return;
	explicit_bzero(config.auth_scheme, sizeof(config.auth_scheme));
	explicit_bzero(config.auth_credentials, sizeof(config.auth_credentials));
}

/* The session that the handle is in, or 0. */
int64
zk_client_session_id(void)
{
	return handle ? zoo_client_id(handle)->client_id : 0;
}

/*
 * An answer makes no sense, so nothing that comes on this connection can be
 * relied on.  The library cannot give up a connection and keep the session; the
 * worker can, by starting again.
 */
void
zk_client_malformed(const char *fault)
{
	callbacks.malformed(fault);
}
/*
 * Connections that end without an answer are followed by pauses, from the second
 * one in a row on.  Each is twice as long, up to this, or a third of the session
 * timeout.
 */
#define FIRST_PAUSE_MS 200
#define MAX_PAUSE_MS 10000

/* After so many failures to connect, the next are no matter of short connections. */
#define MAX_REFUSALS 2

/* Numbers of greetings, which are no calls of zk_call.c. */
#define GREETING (UINT64CONST(1) << (sizeof(uintptr_t) * 8 - 1))

/* A server may sit on a request until the next one comes (trap 5). */
#define GREET_AGAIN_MS 400

/*
 * Was the session there before this connection?  What nobody has confirmed need
 * not be one.
 */
static bool
session_exists(void)
{
	return answered || config.session_id != 0;
}

/* Asks for an answer, with which the connection counts. */
static void
send_greeting(void)
{
	greet_again_at = zklock_now_ms() + GREET_AGAIN_MS;
	(void) zoo_aexists(handle, "/", 0, on_stat, call_context(greeting));
}

/* A connection stands: it counts when the server has answered a read. */
static void
greet(void)
{
	greeted = true;
	greeted_at = zklock_now_ms();
	refusals = 0;
	greeting = GREETING | (greeting + 1);
	send_greeting();
	if (session_exists())
		callbacks.session(ZK_SESSION_GREETED);
}

static void
handle_answered(void)
{
	SessionInfo info;

	greeting++;
	connected = true;
	answered = true;
	outage_logged = false;
	zk_calls_connected();
	callbacks.session(ZK_SESSION_CONNECTED);

	if (handle == NULL)
		return;
	zk_client_session(&info);
	strlcpy(tick_server, info.server, sizeof(tick_server));
	tick_question = ++questions;
	(void) zk_ask_tick_time(tick_server, tick_question);
}

/* The connection is gone, or another one stands already. */
static void
handle_hang_up(void)
{
	int longest = Min(MAX_PAUSE_MS, config.session_timeout / 3);

	if (greeted)
	{
		greeted = false;
		short_connections = connected ? 0 : short_connections + 1;
		if (short_connections < 2)
			zk_handle_set_pause(0);
		else
			zk_handle_set_pause(Min(FIRST_PAUSE_MS << Min(short_connections - 2, 8), longest));
	}
	handle_disconnect();
}

/* Nobody has confirmed the session: it is none, or of no use. */
static void
give_up_unconfirmed(void)
{
	zk_client_leave();
	callbacks.session(ZK_SESSION_IN_DOUBT);
}

/*
 * The library says that the session is over.  If it ever was one, ask servers;
 * until they answer we are as good as disconnected.
 */
static void
handle_expired(void)
{
	ZkSessionQuestion question = {.timeout = config.session_timeout};
	const clientid_t *id = zoo_client_id(handle);
	bool			  existed = session_exists();

	question.id = id->client_id;
	memcpy(question.password, id->passwd, sizeof(question.password));
	strlcpy(question.servers, resolved_servers ? resolved_servers : "", sizeof(question.servers));
	handle_hang_up();
	zk_client_close();
	if (existed)
	{
		doubt = ++questions;
		if (zk_ask_session(&question, doubt))
			return;
	}
	doubt = 0;
	callbacks.session(ZK_SESSION_IN_DOUBT);
}

static void
handle_session(int state)
{
	if (state == ZOO_CONNECTED_STATE)
	{
		const char *fault =
			zk_answer_session_fault(zk_client_session_id(), zoo_recv_timeout(handle));

		if (fault)
		{
			zk_client_malformed(fault);
			return;
		}

		/* There are reconnects that the library does not announce (trap 7). */
		handle_hang_up();
		send_credentials();
		if (config.closing)
			callbacks.session(ZK_SESSION_CONNECTED);
		else
			greet();
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		handle_expired();
	else if (state == ZOO_AUTH_FAILED_STATE)
	{
		zk_client_close();
		callbacks.session(ZK_SESSION_AUTH_FAILED);
	}
	else
	{
		handle_hang_up();

		if (!session_exists())
			give_up_unconfirmed();
	}
}

static void
handle_asked(const Event *event)
{
	if (event->epoch == tick_question)
	{
		tick_question = 0;
		if (event->code > 0)
			callbacks.tick_time(tick_server, event->code);
	}
	else if (event->epoch == doubt)
	{
		doubt = 0;
		callbacks.session(event->code == ZK_VERDICT_OVER ? ZK_SESSION_EXPIRED : ZK_SESSION_IN_DOUBT);
	}
}

static void
handle_reply(const Event *event)
{
	/* A server that wants credentials says so to one call, and hangs up. */
	if (handle && event->code == ZK_REQUIRES_AUTH)
		handle_session(ZOO_AUTH_FAILED_STATE);
	else if ((event->call & GREETING) == 0)
		zk_calls_answer(event);
	else if (handle && event->call == greeting && zk_error_outcome(event->code) != ZK_UNKNOWN)
		handle_answered();
}

/* When zk_client_dispatch() wants to run next at the latest, ms; or -1. */
int64
zk_client_next_wakeup(void)
{
	return handle && greeted && !connected && !config.closing ? greet_again_at : -1;
}

/*
 * Sees to a connection that has no answer.  The library gives it up in time, but
 * not if it took the time from something that is no ZooKeeper server.
 */
static void
attend_greeting(void)
{
	int64 wakeup = zk_client_next_wakeup();

	if (wakeup < 0 || zklock_now_ms() < wakeup)
		return;
	if (!session_exists() && zklock_now_ms() >= greeted_at + config.session_timeout)
		give_up_unconfirmed();
	else
		send_greeting();
}

static void
handle_watch(const Event *event)
{
	/* An event that is lost, or as good as lost, is nowhere noticed: start over. */
	if (event->fault)
	{
		zk_client_malformed(event->fault);
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

static void
handle_log(const Event *event)
{
	char *sentence;

	ereport(event->code == ZOO_LOG_LEVEL_ERROR ? DEBUG1 : DEBUG2,
			(errmsg_internal("ZooKeeper client: %s", event->text)));
	if (event->code != ZOO_LOG_LEVEL_ERROR)
		return;
	if (connected)
		short_connections = 0;

	/* What a thread says of a connection may come before the other has told of it. */
	if (!greeted && ++refusals >= MAX_REFUSALS)
	{
		short_connections = 0;
		zk_handle_set_pause(0);
	}
	if (short_connections > 1)
		sentence = pstrdup(
			"ZooKeeper accepts each connection and closes it soon; its jute.maxbuffer may be too small for this session's watches");
	else
		sentence = zk_error_sentence(event->text, connected);
	callbacks.complaint(sentence, !outage_logged);
	outage_logged = true;
	pfree(sentence);
}

static void
handle_resolved(const Event *event)
{
	resolving = false;
	if (opening)
	{
		opening = false;
		if (event->code && start_handle(event->text))
			return;
		callbacks.session(ZK_SESSION_UNRESOLVED);
	}
	else if (event->code && resolved_servers && strcmp(event->text, resolved_servers) != 0)
		addresses_changed = true;
}

/*
 * Handles all that has happened since the last call: runs reply handlers and
 * callbacks, in the order of the events, and sends what was waiting.
 */
void
zk_client_dispatch(void)
{
	Event *event = zk_event_take_all();

	while (event)
	{
		Event	 *next = event->next;
		EventKind kind = (event->epoch & ZK_TRIAL_EPOCH) != 0 ? EVENT_TRIAL : event->kind;

		switch (kind)
		{
			case EVENT_REPLY:
				handle_reply(event);
				break;
			case EVENT_SESSION:
				if (handle && event->epoch == epoch)
					handle_session(event->code);
				break;
			case EVENT_WATCH:
				if (handle && event->epoch == epoch)
					handle_watch(event);
				break;
			case EVENT_LOG:
				handle_log(event);
				break;
			case EVENT_RESOLVED:
				handle_resolved(event);
				break;
			case EVENT_TRIAL:
				zk_trial_event(event);
				break;
			case EVENT_ASKED:
				handle_asked(event);
				break;
			case EVENT_CLOSED: /* and nobody waits for it */
				break;
		}
		zk_event_free(event);
		event = next;
	}
	attend_greeting();
	zk_calls_send();
}
