/*
 * library.c
 *		ZooKeeper's client library, as far as zklock and our foreign clients use it.
 *
 * One step of a handle is what the library's threads would do next: connect, take the
 * next message from the server, notice that the connection is gone or silent, send a
 * ping.  Answers come in the order of the requests.  When a connection is lost, the
 * session event comes first, then all that was under way or waiting is answered with an
 * error; now and then the loss is not announced (trap 7).  What is asked meanwhile is
 * sent on the next connection, or fails with the next attempt.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

const int		  ZOO_EXPIRED_SESSION_STATE = -112;
const int		  ZOO_AUTH_FAILED_STATE = -113;
const int		  ZOO_CONNECTING_STATE = 1;
const int		  ZOO_ASSOCIATING_STATE = 2;
const int		  ZOO_CONNECTED_STATE = 3;
const int		  ZOO_READONLY_STATE = 5;
const int		  ZOO_NOTCONNECTED_STATE = 999;
const int		  ZOO_CREATED_EVENT = 1;
const int		  ZOO_DELETED_EVENT = 2;
const int		  ZOO_CHANGED_EVENT = 3;
const int		  ZOO_CHILD_EVENT = 4;
const int		  ZOO_SESSION_EVENT = -1;
const int		  ZOO_NOTWATCHING_EVENT = -2;
const int		  ZOO_PERSISTENT = 0;
const int		  ZOO_EPHEMERAL = 1;
const int		  ZOO_PERSISTENT_SEQUENTIAL = 2;
const int		  ZOO_EPHEMERAL_SEQUENTIAL = 3;
const int		  ZOO_CONTAINER = 4;
struct ACL_vector ZOO_OPEN_ACL_UNSAFE;
struct ACL_vector ZOO_CREATOR_ALL_ACL;

typedef enum Completion
{
	COMPLETE_VOID,
	COMPLETE_STRING_STAT,
	COMPLETE_STAT,
	COMPLETE_DATA,
	COMPLETE_STRINGS_STAT,
	COMPLETE_STRING
} Completion;

/* What was asked and has not been answered */
typedef struct Pending
{
	struct Pending *next;
	uint64_t		number;
	ModelPacket	   *unsent; /* NULL once it is */
	Completion		kind;
	union
	{
		void_completion_t		  done;
		string_stat_completion_t  string_stat;
		stat_completion_t		  stat;
		data_completion_t		  data;
		strings_stat_completion_t strings_stat;
		string_completion_t		  string;
	};
	const void		*context;
	zoo_op_result_t *results; /* of a multi */
} Pending;

struct _zhandle
{
	zhandle_t		*next;
	int				 owner;
	watcher_fn		 watcher;
	void			*context;
	int				 state;
	int				 timeout; /* ms */
	clientid_t		 id;
	ModelConnection *connection;
	int				 server;
	int64_t			 connect_at; /* us; without a connection */
	int64_t			 heard_at;	 /* us */
	int64_t			 sent_at;	 /* us */
	int64_t			 zxid;
	uint64_t		 last_number;
	bool			 silent;  /* the loss of the last connection was not announced */
	Pending			*pending; /* oldest first */
	Pending			*pending_last;
	ModelPacket		 watches;
};

static zhandle_t *handles;

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

/* Of the operations of a multi */
static void
give_results(const ModelPacket *answer, zoo_op_result_t *results)
{
	for (int i = 0; i < answer->nops; i++)
	{
		const ModelOp *op = &answer->ops[i];

		results[i].err = op->code;
		if (answer->code == ZOK && op->kind == MODEL_CREATE && results[i].value)
			snprintf(results[i].value, results[i].valuelen, "%s", op->path);
		if (answer->code == ZOK && op->kind == MODEL_SET && results[i].stat)
			*results[i].stat = op->node->stat;
	}
}

/* The names of a node's children */
static struct String_vector
names_of_children(const ModelNode *node)
{
	struct String_vector names = {node->stat.numChildren,
								  malloc((node->stat.numChildren + 1) * sizeof(char *))};

	for (int i = 0; i < names.count; i++)
		names.data[i] = strrchr(node->children[i]->path, '/') + 1;
	return names;
}

static void
complete(zhandle_t *handle, Pending *pending, int code, const ModelPacket *answer)
{
	struct String_vector children = {0};
	const ModelNode		*node = code == ZOK && answer ? answer->ops[0].node : NULL;
	const struct Stat	*stat = node ? &node->stat : NULL;
	const char			*path = code == ZOK && answer ? answer->ops[0].path : NULL;
	int					 former = sim_current;

	sim_current = handle->owner;
	if (answer && pending->results)
		give_results(answer, pending->results);
	switch (pending->kind)
	{
		case COMPLETE_VOID:
			if (pending->done)
				pending->done(code, pending->context);
			break;
		case COMPLETE_STRING_STAT:
			pending->string_stat(code, path, stat, pending->context);
			break;
		case COMPLETE_STAT:
			pending->stat(code, stat, pending->context);
			break;
		case COMPLETE_DATA:
			pending->data(code, node ? node->data : NULL,
						  !node		   ? 0
						  : node->data ? stat->dataLength
									   : -1,
						  stat, pending->context);
			break;
		case COMPLETE_STRINGS_STAT:
			if (node)
				children = names_of_children(node);
			pending->strings_stat(code, node ? &children : NULL, stat, pending->context);
			free(children.data);
			break;
		case COMPLETE_STRING:
			pending->string(code, path, pending->context);
			break;
	}
	sim_current = former;
	if (pending->unsent)
		model_release(pending->unsent);
	free(pending);
}

static void
tell_state(zhandle_t *handle, int state)
{
	int former = sim_current;

	sim_current = handle->owner;
	handle->watcher(handle, ZOO_SESSION_EVENT, state, "", handle->context);
	sim_current = former;
}

static void
handle_event(zhandle_t *handle, const ModelPacket *event)
{
	const char *path = event->ops[0].path;
	int			former = sim_current;

	if (!model_watch_take(&handle->watches, path, model_event_fires(event->code)))
		return;
	sim_current = handle->owner;
	handle->watcher(handle, event->code, ZOO_CONNECTED_STATE, path, handle->context);
	sim_current = former;
}

/* Fails what is under way: all, or only what was sent. */
static void
fail_pending(zhandle_t *handle, int code, bool all)
{
	Pending *kept = NULL;
	Pending *kept_last = NULL;
	Pending *next;

	for (Pending *p = handle->pending; p; p = next)
	{
		next = p->next;
		if (!all && p->unsent)
		{
			p->next = NULL;
			if (kept_last)
				kept_last->next = p;
			else
				kept = p;
			kept_last = p;
		}
		else
			complete(handle, p, code, NULL);
	}
	handle->pending = kept;
	handle->pending_last = kept_last;
}

static void
handle_answer(zhandle_t *handle, const ModelPacket *answer)
{
	Pending		  *pending = handle->pending;
	const ModelOp *op = &answer->ops[0];

	if (answer->zxid > handle->zxid)
		handle->zxid = answer->zxid;
	if (answer->number == 0) /* to a ping, or to the watches */
		return;
	handle->pending = pending->next;
	if (handle->pending == NULL)
		handle->pending_last = NULL;
	if (pending->number != answer->number)
		abort();
	if (answer->code == ZOK && op->kind == MODEL_UNWATCH)
		(void) model_watch_take(&handle->watches, op->path, op->watch);
	else if (answer->code == ZOK && op->watch)
		model_watch_set(&handle->watches, op->path, op->watch);
	complete(handle, pending, answer->code, answer);
}

/* The connection stands. */
static void
handle_connected(zhandle_t *handle)
{
	handle->state = ZOO_CONNECTED_STATE;
	handle->id.client_id = handle->connection->session->id;
	tell_state(handle, ZOO_CONNECTED_STATE);
	if (handle->silent)
		fail_pending(handle, ZRUNTIMEINCONSISTENCY, false);
	handle->silent = false;
	if (handle->watches.nops > 0)
	{
		ModelPacket *packet = calloc(1, sizeof(ModelPacket));

		packet->zxid = handle->zxid;
		for (int i = 0; i < handle->watches.nops; i++)
			model_watch_set(packet, handle->watches.ops[i].path, handle->watches.ops[i].watch);
		model_send(handle->connection, packet);
	}
	for (Pending *p = handle->pending; p; p = p->next)
	{
		if (p->unsent)
			model_send(handle->connection, p->unsent);
		p->unsent = NULL;
	}
	handle->sent_at = model_now;
}

static void
lose_connection(zhandle_t *handle, int code)
{
	bool connected = handle->state == ZOO_CONNECTED_STATE;

	model_leave(handle->connection);
	handle->connection = NULL;
	handle->connect_at = model_now + (sim_one_in(sim_rates.away) ? sim_below(handle->timeout * MS)
									  : connected				 ? sim_below(20 * MS)
																 : sim_below(200 * MS));
	handle->state = ZOO_CONNECTING_STATE;
	if (connected && sim_one_in(sim_rates.silent))
	{
		handle->silent = true;
		handle->connect_at = model_now + sim_below(2 * MS);
		return;
	}
	if (connected || handle->silent)
		tell_state(handle, ZOO_CONNECTING_STATE);
	handle->silent = false;
	fail_pending(handle, code, true);
}

static void
handle_expired(zhandle_t *handle)
{
	model_leave(handle->connection);
	handle->connection = NULL;
	handle->state = ZOO_EXPIRED_SESSION_STATE;
	tell_state(handle, ZOO_EXPIRED_SESSION_STATE);
	fail_pending(handle, ZSESSIONEXPIRED, true);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

static int64_t
silence_ends(const zhandle_t *handle)
{
	return handle->heard_at + handle->timeout * MS * 2 / 3;
}

static int64_t
ping_due(const zhandle_t *handle)
{
	return handle->state == ZOO_CONNECTED_STATE && handle->pending == NULL
			   ? handle->sent_at + handle->timeout * MS / 3
			   : SIM_NEVER;
}

bool
library_can_step(zhandle_t *handle)
{
	const ModelConnection *connection = handle->connection;

	if (handle->state < 0)
		return false;
	if (connection == NULL)
		return model_now >= handle->connect_at;
	if (model_now >= silence_ends(handle) || model_now >= ping_due(handle))
		return true;
	return model_can_receive(connection);
}

void
library_step(zhandle_t *handle)
{
	ModelPacket *packet;

	if (handle->connection == NULL)
	{
		handle->server = sim_below(MODEL_SERVERS);
		handle->connection = model_connect(handle->server, handle->id.client_id,
										   handle->timeout * MS, handle->zxid, handle);
		handle->heard_at = model_now;
		if (handle->connection == NULL)
		{
			handle->connect_at = model_now + sim_below(200 * MS);
			if (handle->silent)
				tell_state(handle, ZOO_CONNECTING_STATE);
			handle->silent = false;
			fail_pending(handle, ZCONNECTIONLOSS, true);
		}
		return;
	}
	if (model_now >= silence_ends(handle))
	{
		lose_connection(handle, ZOPERATIONTIMEOUT);
		return;
	}
	if (model_now >= ping_due(handle))
	{
		model_send(handle->connection, model_packet(MODEL_PING, "/"));
		handle->sent_at = model_now;
		return;
	}
	packet = model_receive(handle->connection);
	if (packet == NULL)
	{
		if (handle->connection->broken)
			lose_connection(handle, ZCONNECTIONLOSS);
		return;
	}
	handle->heard_at = model_now;
	if (packet->ops[0].kind == MODEL_EVENT)
		handle_event(handle, packet);
	else if (packet->ops[0].kind != MODEL_BEGIN)
		handle_answer(handle, packet);
	else if (packet->code == ZOK)
		handle_connected(handle);
	else
		handle_expired(handle);
	model_release(packet);
}

int64_t
library_next_timer(void)
{
	int64_t next = SIM_NEVER;

	for (const zhandle_t *h = handles; h; h = h->next)
	{
		int64_t at;

		if (h->state < 0)
			continue;
		at = h->connection == NULL ? h->connect_at : silence_ends(h);
		if (h->connection && ping_due(h) < at)
			at = ping_due(h);
		if (h->connection && h->connection->stalled_until > model_now &&
			h->connection->stalled_until < at)
			at = h->connection->stalled_until;
		next = at < next ? at : next;
	}
	return next;
}

int
library_handles(zhandle_t **found, int max)
{
	int n = 0;

	for (zhandle_t *h = handles; h && n < max; h = h->next)
		found[n++] = h;
	return n;
}

int
library_owner(zhandle_t *handle)
{
	return handle->owner;
}

int64_t
library_zxid(int owner)
{
	for (const zhandle_t *h = handles; h; h = h->next)
	{
		if (h->owner == owner && h->state == ZOO_CONNECTED_STATE)
			return h->zxid;
	}
	return 0;
}

int
library_watches(zhandle_t *handle)
{
	return handle->watches.nops;
}

int64_t
library_session(zhandle_t *handle)
{
	return handle->id.client_id;
}

static void
forget(zhandle_t *handle)
{
	for (zhandle_t **link = &handles; *link; link = &(*link)->next)
	{
		if (*link == handle)
		{
			*link = handle->next;
			break;
		}
	}
	while (handle->pending)
	{
		Pending *p = handle->pending;

		handle->pending = p->next;
		if (p->unsent)
			model_release(p->unsent);
		if (p->results && p->results[0].value)
			free((void *) p->context);
		free(p);
	}
	model_packet_clear(&handle->watches);
	free(handle);
}

/* A process has ended, and with it its handles. */
void
library_abandon(int owner)
{
	zhandle_t *next;

	for (zhandle_t *h = handles; h; h = next)
	{
		next = h->next;
		if (h->owner != owner)
			continue;
		if (h->connection)
			model_leave(h->connection);
		forget(h);
	}
}

/* Connections that were closed in good order go when the server is done with them. */
void
library_attend_connections(void)
{
	ModelConnection *next;

	for (ModelConnection *c = model_connections; c; c = next)
	{
		next = c->next;
		if (c->left && c->broken)
			model_leave(c);
	}
}

/* ------------------------------------------------------------------------
 * What the library is asked for
 * ------------------------------------------------------------------------
 */

static Pending *
new_pending(Completion kind, const void *context)
{
	Pending *pending = calloc(1, sizeof(Pending));

	pending->kind = kind;
	pending->context = context;
	return pending;
}

static int
submit(zhandle_t *handle, ModelPacket *packet, Pending *pending)
{
	if (handle->state < 0)
	{
		model_release(packet);
		free(pending);
		return ZINVALIDSTATE;
	}
	packet->number = pending->number = ++handle->last_number;
	if (handle->state == ZOO_CONNECTED_STATE)
	{
		model_send(handle->connection, packet);
		handle->sent_at = model_now;
	}
	else
		pending->unsent = packet;
	if (handle->pending_last)
		handle->pending_last->next = pending;
	else
		handle->pending = pending;
	handle->pending_last = pending;
	return ZOK;
}

int
zoo_acreate2(zhandle_t *handle, const char *path, const char *value, int length,
			 const struct ACL_vector *acl, int mode, string_stat_completion_t completion,
			 const void *context)
{
	ModelPacket *packet = model_packet(MODEL_CREATE, path);
	Pending		*pending = new_pending(COMPLETE_STRING_STAT, context);

	(void) acl;
	pending->string_stat = completion;
	model_op_data(&packet->ops[0], value, length);
	packet->ops[0].mode = mode;
	return submit(handle, packet, pending);
}

int
zoo_adelete(zhandle_t *handle, const char *path, int version, void_completion_t completion,
			const void *context)
{
	ModelPacket *packet = model_packet(MODEL_DELETE, path);
	Pending		*pending = new_pending(COMPLETE_VOID, context);

	pending->done = completion;
	packet->ops[0].version = version;
	return submit(handle, packet, pending);
}

int
zoo_aset(zhandle_t *handle, const char *path, const char *value, int length, int version,
		 stat_completion_t completion, const void *context)
{
	ModelPacket *packet = model_packet(MODEL_SET, path);
	Pending		*pending = new_pending(COMPLETE_STAT, context);

	pending->stat = completion;
	packet->ops[0].version = version;
	model_op_data(&packet->ops[0], value, length);
	return submit(handle, packet, pending);
}

int
zoo_aexists(zhandle_t *handle, const char *path, int watch, stat_completion_t completion,
			const void *context)
{
	Pending *pending = new_pending(COMPLETE_STAT, context);

	(void) watch;
	pending->stat = completion;
	return submit(handle, model_packet(MODEL_LOOK, path), pending);
}

int
zoo_awget(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
		  data_completion_t completion, const void *context)
{
	ModelPacket *packet = model_packet(MODEL_READ, path);
	Pending		*pending = new_pending(COMPLETE_DATA, context);

	(void) watcher_context;
	pending->data = completion;
	packet->ops[0].watch = watcher ? MODEL_WATCH_DATA : 0;
	return submit(handle, packet, pending);
}

int
zoo_awget_children2(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
					strings_stat_completion_t completion, const void *context)
{
	ModelPacket *packet = model_packet(MODEL_LIST, path);
	Pending		*pending = new_pending(COMPLETE_STRINGS_STAT, context);

	(void) watcher_context;
	pending->strings_stat = completion;
	packet->ops[0].watch = watcher ? MODEL_WATCH_CHILDREN : 0;
	return submit(handle, packet, pending);
}

int
zoo_async(zhandle_t *handle, const char *path, string_completion_t completion, const void *context)
{
	Pending *pending = new_pending(COMPLETE_STRING, context);

	pending->string = completion;
	return submit(handle, model_packet(MODEL_SYNC, path), pending);
}

int
zoo_aremove_all_watches(zhandle_t *handle, const char *path, ZooWatcherType type, int local,
						void_completion_t *completion, const void *context)
{
	ModelPacket *packet = model_packet(MODEL_UNWATCH, path);
	Pending		*pending = new_pending(COMPLETE_VOID, context);

	(void) local;
	pending->done = (void_completion_t) completion;
	packet->ops[0].watch = type == ZWATCHTYPE_CHILD ? MODEL_WATCH_CHILDREN : MODEL_WATCH_DATA;
	return submit(handle, packet, pending);
}

enum
{
	OP_CREATE = 1,
	OP_DELETE = 2,
	OP_SET = 5,
	OP_CHECK = 13
};

void
zoo_create_op_init(zoo_op_t *op, const char *path, const char *value, int length,
				   const struct ACL_vector *acl, int mode, char *buffer, int buffer_length)
{
	op->type = OP_CREATE;
	op->create_op.path = path;
	op->create_op.data = value;
	op->create_op.datalen = length;
	op->create_op.buf = buffer;
	op->create_op.buflen = buffer_length;
	op->create_op.acl = acl;
	op->create_op.flags = mode;
}

void
zoo_delete_op_init(zoo_op_t *op, const char *path, int version)
{
	op->type = OP_DELETE;
	op->delete_op.path = path;
	op->delete_op.version = version;
}

void
zoo_set_op_init(zoo_op_t *op, const char *path, const char *value, int length, int version,
				struct Stat *stat)
{
	op->type = OP_SET;
	op->set_op.path = path;
	op->set_op.data = value;
	op->set_op.datalen = length;
	op->set_op.version = version;
	op->set_op.stat = stat;
}

void
zoo_check_op_init(zoo_op_t *op, const char *path, int version)
{
	op->type = OP_CHECK;
	op->check_op.path = path;
	op->check_op.version = version;
}

/* Adds an operation of a multi to a packet, and prepares for its result. */
static void
add_op(ModelPacket *packet, const zoo_op_t *op, zoo_op_result_t *result)
{
	ModelOp *to;

	*result = (zoo_op_result_t){0};
	switch (op->type)
	{
		case OP_CREATE:
			to = model_add_op(packet, MODEL_CREATE, op->create_op.path);
			model_op_data(to, op->create_op.data, op->create_op.datalen);
			to->mode = op->create_op.flags;
			result->value = op->create_op.buf;
			result->valuelen = op->create_op.buflen;
			break;
		case OP_DELETE:
			model_add_op(packet, MODEL_DELETE, op->delete_op.path)->version = op->delete_op.version;
			break;
		case OP_SET:
			to = model_add_op(packet, MODEL_SET, op->set_op.path);
			model_op_data(to, op->set_op.data, op->set_op.datalen);
			to->version = op->set_op.version;
			result->stat = op->set_op.stat;
			break;
		default:
			model_add_op(packet, MODEL_CHECK, op->check_op.path)->version = op->check_op.version;
	}
}

int
zoo_amulti(zhandle_t *handle, int n, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *context)
{
	ModelPacket *packet = calloc(1, sizeof(ModelPacket));
	Pending		*pending = new_pending(COMPLETE_VOID, context);

	for (int i = 0; i < n; i++)
		add_op(packet, &ops[i], &results[i]);
	pending->done = completion;
	pending->results = results;
	return submit(handle, packet, pending);
}

/* ------------------------------------------------------------------------
 * Handles
 * ------------------------------------------------------------------------
 */

zhandle_t *
zookeeper_init2(const char *host, watcher_fn watcher, int timeout, const clientid_t *id,
				void *context, int flags, log_callback_fn on_log)
{
	zhandle_t *handle = calloc(1, sizeof(zhandle_t));

	(void) host;
	(void) flags;
	(void) on_log;
	handle->owner = sim_current;
	handle->watcher = watcher;
	handle->context = context;
	handle->state = ZOO_CONNECTING_STATE;
	handle->timeout = timeout;
	if (id)
		handle->id = *id;
	handle->connect_at = model_now + sim_below(10 * MS);
	handle->next = handles;
	handles = handle;
	return handle;
}

int
zookeeper_close(zhandle_t *handle)
{
	ModelConnection *connection = handle->connection;

	if (connection && handle->state == ZOO_CONNECTED_STATE)
	{
		model_send(connection, model_packet(MODEL_CLOSE, "/"));
		connection->left = true;
		connection->client = NULL;
	}
	else if (connection)
		model_leave(connection);
	forget(handle);
	return ZOK;
}

int
zoo_state(zhandle_t *handle)
{
	return handle->state;
}

const clientid_t *
zoo_client_id(zhandle_t *handle)
{
	return &handle->id;
}

int
zoo_recv_timeout(zhandle_t *handle)
{
	return handle->timeout;
}

struct sockaddr *
zookeeper_get_connected_host(zhandle_t *handle, struct sockaddr *address, socklen_t *length)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(2181 + handle->server)};

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(address, &in, sizeof(in));
	*length = sizeof(in);
	return address;
}

int
zoo_add_auth(zhandle_t *handle, const char *scheme, const char *credentials, int length,
			 void_completion_t completion, const void *context)
{
	(void) handle, (void) scheme, (void) credentials, (void) length, (void) completion, (void) context;
	return ZOK;
}

int
zoo_set_servers_resolution_delay(zhandle_t *handle, int delay)
{
	(void) handle, (void) delay;
	return ZOK;
}

void
zoo_deterministic_conn_order(int yes)
{
	(void) yes;
}

void
zoo_set_debug_level(ZooLogLevel level)
{
	(void) level;
}

void
zoo_set_log_callback(zhandle_t *handle, log_callback_fn on_log)
{
	(void) handle, (void) on_log;
}

void
zoo_set_log_stream(FILE *stream)
{
	(void) stream;
}

/* Only claims read an ACL, and there are none here. */
int
zoo_aget_acl(zhandle_t *handle, const char *path, acl_completion_t completion, const void *context)
{
	(void) handle, (void) path, (void) completion, (void) context;
	return ZUNIMPLEMENTED;
}
