/*
 * zk_client.c
 *		The ZooKeeper client library, tamed.
 *
 * This is the only file that knows <zookeeper.h>.  The library runs two threads
 * of its own, which may not touch PostgreSQL: what they have to say goes through
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
 * Runs in: the worker (main thread unless a function says otherwise).
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <signal.h>
#include <zookeeper/zookeeper.h>

#include "compat.h"
#include "zk/zk_answer.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"
#include "zk/zk_event.h"

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

/*
 * Any thread.  The library puts the level into the text, between the process
 * and the function: "...:ZOO_WARN@function@line: message".
 */
static void
on_log(const char *message)
{
	Event		event = {.kind = EVENT_LOG};
	const char *level = strstr(message, ":ZOO_");
	const char *text = level ? strstr(level, ": ") : NULL;

	event.code = level && strncmp(level, ":ZOO_ERROR@", 11) == 0 ? ZOO_LOG_LEVEL_ERROR
																 : ZOO_LOG_LEVEL_INFO;
	event.text = strdup(text ? text + 2 : message);
	if (event.text)
		zk_event_push(&event);
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
static bool				 connected;
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
	clientid_t id;
	sigset_t   all;
	sigset_t   old;

	id.client_id = config.session_id;
	memcpy(id.passwd, config.session_password, sizeof(id.passwd));
	free(resolved_servers);
	resolved_servers = strdup(servers);
	addresses_changed = false;
	outage_logged = false;

	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	handle = zookeeper_init2(servers, on_event, config.session_timeout,
							 config.session_id != 0 ? &id : NULL, (void *) ++epoch,
							 ZOO_NO_LOG_CLIENTENV, on_log);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (handle == NULL)
	{
		ereport(LOG, (errmsg("could not create ZooKeeper client for \"%s\": %m", servers)));
		return false;
	}
	zoo_set_servers_resolution_delay(handle, -1);
	return true;
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
	config = *config_;
	if (connect_string_resolve(&config.servers, true, resolved, sizeof(resolved)))
		return start_handle(resolved);
	opening = true;
	resolving = resolving || zk_event_resolve(&config.servers);
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

	if (handle == NULL)
		return false;
	connected = false;
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

/* Has an outage lasted, see whether the server names mean other addresses now. */
void
zk_client_check_addresses(void)
{
	char resolved[ZKLOCK_SERVERS_SIZE * 4];

	/* It was a server that said that the connection is lost. */
	if (handle && !connected && zoo_state(handle) == ZOO_CONNECTED_STATE)
	{
		handle_session(ZOO_CONNECTED_STATE);
		return;
	}
	if (!resolving && !connect_string_resolve(&config.servers, true, resolved, sizeof(resolved)))
		resolving = zk_event_resolve(&config.servers);
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
		handle_disconnect();
		connected = true;
		outage_logged = false;
		send_credentials();
		zk_calls_connected();
		callbacks.session(ZK_SESSION_CONNECTED);
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)
	{
		zk_client_close();
		callbacks.session(state == ZOO_EXPIRED_SESSION_STATE ? ZK_SESSION_EXPIRED
															 : ZK_SESSION_AUTH_FAILED);
	}
	else
		handle_disconnect();
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
	if (event->code == ZOO_LOG_LEVEL_ERROR)
	{
		callbacks.complaint(event->text, !outage_logged);
		outage_logged = true;
	}
	else
		ereport(DEBUG2, (errmsg_internal("ZooKeeper client: %s", event->text)));
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
		Event *next = event->next;

		switch (event->kind)
		{
			case EVENT_REPLY:
				/* A server that wants credentials says so to one call, and hangs up. */
				if (handle && event->code == ZK_REQUIRES_AUTH)
					handle_session(ZOO_AUTH_FAILED_STATE);
				else
					zk_calls_answer(event);
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
		}
		zk_event_free(event);
		event = next;
	}
	zk_calls_send();
}
