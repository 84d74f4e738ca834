/*
 * library.c
 *		ZooKeeper's client library, as far as zklock and our foreign clients use it.
 *
 * One step of a handle is what the library's threads would do next: connect, take the
 * next message from the server, notice that the connection is gone or silent, send a
 * ping.  Answers come in the order of the requests.  When a connection is lost, the
 * session event comes first, then all that was under way or waiting is answered with an
 * error; now and then nobody hears of the loss (trap 7).  What is asked meanwhile is
 * sent on the next connection, or fails with the next attempt.
 *
 * What needs no server is the real library's, with which this is linked: constants, and
 * how the operations of a multi are put together.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

typedef union Receiver
{
	void_completion_t		  code;
	string_stat_completion_t  created;
	stat_completion_t		  stat;
	data_completion_t		  data;
	strings_stat_completion_t children;
	string_completion_t		  synced;
	acl_completion_t		  acl;
} __attribute__((transparent_union)) Receiver; /* as an argument, each of them will do */

/* What was asked and has not been answered */
typedef struct Request
{
	ModelPacket		 packet; /* it comes first */
	bool			 sent;
	Receiver		 receiver;
	const void		*context;
	zoo_op_result_t *results; /* of a multi */
} Request;

zhandle_t *library_handles;

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

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

static void
give_children(const Request *request, ModelNode *node)
{
	const ModelTree		*tree = request->packet.tree;
	int					 n = node->stat.numChildren;
	char				*names[n + 1];
	struct String_vector children = {n, names};

	for (int i = 0, found = 0; found < n; i++)
	{
		if (strcmp(tree->nodes[i]->parent, node->path) == 0)
			names[found++] = (char *) tree->nodes[i]->name;
	}
	request->receiver.children(ZOK, &children, &node->stat, request->context);
}

/* Answers what was asked first.  Of an error, nobody gets more than the code. */
static void
answer_first(zhandle_t *handle, int code)
{
	const Request *request = (Request *) queue_pop(&handle->pending);
	Receiver	   to = request->receiver;
	const void	  *context = request->context;
	const ModelOp *op = &request->packet.ops[0];
	const char	  *path = code == ZOK ? op->path : NULL;
	ModelNode	  *node = code == ZOK ? op->node : NULL;
	struct Stat	  *stat = node ? &node->stat : NULL;
	const char	  *data = node ? node->data : NULL;

	switch (request->results ? MODEL_CHECK : op->kind)
	{
		case MODEL_CREATE:
			to.created(code, path, stat, context);
			break;
		case MODEL_SET:
		case MODEL_LOOK:
			to.stat(code, stat, context);
			break;
		case MODEL_LOOK_ACL:
			to.acl(code, node ? &ZOO_OPEN_ACL_UNSAFE : NULL, stat, context);
			break;
		case MODEL_READ:
			to.data(code, data, data ? stat->dataLength : -1, stat, context);
			break;
		case MODEL_LIST:
			if (node)
				give_children(request, node);
			else
				to.children(code, NULL, NULL, context);
			break;
		case MODEL_SYNC:
			to.synced(code, path, context);
			break;
		default:
			if (to.code)
				to.code(code, context);
	}
}

/* The first of what was asked fails. */
static void
fail(zhandle_t *handle, int n, int code)
{
	while (n-- > 0)
		answer_first(handle, code);
}

static void
send_request(zhandle_t *handle, Request *request)
{
	queue_push(&handle->connection->sent, &request->packet);
	request->sent = true;
	handle->sent_at = model_now;
}

/* ------------------------------------------------------------------------
 * Connections
 * ------------------------------------------------------------------------
 */

static void
enter_state(zhandle_t *handle, int state)
{
	handle->state = handle->told = state;
	handle->watcher(handle, ZOO_SESSION_EVENT, state, "", handle->context);
}

static void
leave_connection(zhandle_t *handle)
{
	if (handle->connection)
		model_leave(handle->connection);
	handle->connection = NULL;
}

/* The connection is lost, could not be made, or ends with its session. */
static void
lose_connection(zhandle_t *handle, int state, int code)
{
	bool stood = handle->state == ZOO_CONNECTED_STATE;

	leave_connection(handle);
	handle->state = state;
	if (stood && sim_one_in(sim_rates.silent))
	{
		handle->connect_at = model_now + sim_below(2 * MS);
		return;
	}
	handle->connect_at = model_now + sim_below(sim_one_in(sim_rates.away) ? handle->timeout * MS
											   : stood					  ? 20 * MS
																		  : 200 * MS);
	if (handle->told != state)
		enter_state(handle, state);
	fail(handle, queue_length(&handle->pending), code);
}

/*
 * The library takes its watches from one connection to the next.  What was sent before was sent
 * on a connection whose loss nobody has heard of.
 */
static void
on_connected(zhandle_t *handle)
{
	int			 nsent = 0;
	ModelPacket *watches = calloc(1, sizeof(ModelPacket));

	handle->id.client_id = handle->connection->session->id;
	handle->sent_at = model_now;
	handle->connected_since = model_last_zxid;
	watches->zxid = handle->zxid;
	for (int i = 0; i < handle->watches.nops; i++)
		model_add_op(watches, handle->watches.ops[i]);
	if (watches->nops > 0)
		queue_push(&handle->connection->sent, watches);
	for (int i = handle->pending.begin; i < handle->pending.end; i++)
	{
		Request *request = (Request *) handle->pending.items[i];

		if (request->sent)
			nsent++;
		else
			send_request(handle, request);
	}
	enter_state(handle, ZOO_CONNECTED_STATE);
	fail(handle, nsent, ZRUNTIMEINCONSISTENCY);
}

/* The watcher hears of it if a watch waits for that. */
static void
on_event(zhandle_t *handle, const ModelPacket *event)
{
	const char *path = event->ops[0].path;

	if (model_watch_take(&handle->watches, path, model_event_fires(event->code)))
		handle->watcher(handle, event->code, ZOO_CONNECTED_STATE, path, handle->context);
}

static void
on_answer(zhandle_t *handle, const ModelPacket *answer)
{
	const ModelOp *op = &answer->ops[0];

	if (answer->zxid > handle->zxid)
		handle->zxid = answer->zxid;
	if (op->kind == MODEL_PING || op->kind == MODEL_SET_WATCHES)
		return;
	if (queue_first(&handle->pending) != answer)
		abort();
	if (answer->code == ZOK && op->kind == MODEL_UNWATCH)
		(void) model_watch_take(&handle->watches, op->path, op->watch);
	else if (answer->code == ZOK && op->watch)
		model_watch_set(&handle->watches, op->path, op->watch);
	if (((const Request *) answer)->results)
		give_results(answer, ((const Request *) answer)->results);
	answer_first(handle, answer->code);
}

static void
receive(zhandle_t *handle, ModelPacket *packet)
{
	handle->heard_at = model_now;
	if (packet->ops[0].kind == MODEL_EVENT)
		on_event(handle, packet);
	else if (packet->ops[0].kind != MODEL_BEGIN)
		on_answer(handle, packet);
	else if (packet->code == ZOK)
		on_connected(handle);
	else
		lose_connection(handle, ZOO_EXPIRED_SESSION_STATE, ZSESSIONEXPIRED);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

/* When a server that says nothing is given up */
static int64_t
silence_ends(const zhandle_t *handle)
{
	return handle->heard_at + handle->timeout * MS * 2 / 3;
}

static int64_t
ping_due(const zhandle_t *handle)
{
	return handle->state == ZOO_CONNECTED_STATE && queue_length(&handle->pending) == 0
			   ? handle->sent_at + handle->timeout * MS / 3
			   : SIM_NEVER;
}

/* When there is something to do; or might be, as a connection moves on then */
int64_t
library_next_step(const zhandle_t *handle)
{
	const ModelConnection *connection = handle->connection;
	int64_t				   next = silence_ends(handle);

	if (handle->state < 0)
		return SIM_NEVER;
	if (connection == NULL)
		return handle->connect_at;
	if (ping_due(handle) < next)
		next = ping_due(handle);
	if (connection->stalled_until > model_now)
		return connection->stalled_until < next ? connection->stalled_until : next;
	return queue_first(&connection->received) || connection->broken ? model_now : next;
}

void
library_step(void *which)
{
	zhandle_t	*handle = which;
	ModelPacket *packet;

	sim_current = handle->owner; /* whose functions are called */
	if (handle->connection == NULL)
	{
		ModelServer *server = &model_servers[sim_below(MODEL_SERVERS)];

		/* A leader that has been deposed takes clients that others send away. */
		if (model_deposed && sim_one_in(2))
			server = model_deposed;
		handle->heard_at = model_now;
		handle->connection = model_connect(server, handle->owner, handle->id.client_id,
										   handle->timeout * MS, handle->zxid);
		if (handle->connection == NULL)
			lose_connection(handle, ZOO_CONNECTING_STATE, ZCONNECTIONLOSS);
	}
	else if (model_now >= silence_ends(handle))
		lose_connection(handle, ZOO_CONNECTING_STATE, ZOPERATIONTIMEOUT);
	else if (model_now >= ping_due(handle))
	{
		queue_push(&handle->connection->sent, model_packet(MODEL_PING, "/"));
		handle->sent_at = model_now;
	}
	else if ((packet = queue_pop(&handle->connection->received)) != NULL)
		receive(handle, packet);
	else if (handle->connection->broken)
		lose_connection(handle, ZOO_CONNECTING_STATE, ZCONNECTIONLOSS);
	sim_current = FOREIGN;
}

/* Connections that were closed in good order go when the server is done with them. */
void
library_attend_connections(void)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->left && c->broken)
			model_leave(c);
	}
}

/* ------------------------------------------------------------------------
 * Calls of the library
 * ------------------------------------------------------------------------
 */

/* Sends a request at once or when there is a connection. */
static int
submit(zhandle_t *handle, Request *request)
{
	if (handle->state < 0)
		return ZINVALIDSTATE;
	queue_push(&handle->pending, &request->packet);
	if (handle->state == ZOO_CONNECTED_STATE)
		send_request(handle, request);
	return ZOK;
}

static int
ask(zhandle_t *handle, ModelOp op, Receiver receiver, const void *context)
{
	Request *request = calloc(1, sizeof(Request));

	model_add_op(&request->packet, op);
	request->receiver = receiver;
	request->context = context;
	return submit(handle, request);
}

/*
 * A function of the library: the completion that it takes, what it asks for, and its arguments
 * between the path and the completion.  A watcher is always that of the handle.
 */
#define ASKS_FOR(name, completion_type, op, ...)                                       \
	int name(zhandle_t *handle, const char *path, ##__VA_ARGS__, completion_type done, \
			 const void *context)                                                      \
	{                                                                                  \
		return ask(handle, op, done, context);                                         \
	}

/* clang-format off */
ASKS_FOR(zoo_acreate2, string_stat_completion_t,
		 ((ModelOp){MODEL_CREATE, path, .data = value, .length = length, .mode = mode}),
		 const char *value, int length, const struct ACL_vector *acl, int mode)
ASKS_FOR(zoo_adelete, void_completion_t, ((ModelOp){MODEL_DELETE, path, .version = version}), int version)
ASKS_FOR(zoo_aset, stat_completion_t,
		 ((ModelOp){MODEL_SET, path, .data = value, .length = length, .version = version}),
		 const char *value, int length, int version)
ASKS_FOR(zoo_aexists, stat_completion_t, ((ModelOp){MODEL_LOOK, path}), int watch)
ASKS_FOR(zoo_awget, data_completion_t, ((ModelOp){MODEL_READ, path, .watch = watcher ? MODEL_WATCH_DATA : 0}),
		 watcher_fn watcher, void *watcher_context)
ASKS_FOR(zoo_awget_children2, strings_stat_completion_t,
		 ((ModelOp){MODEL_LIST, path, .watch = watcher ? MODEL_WATCH_CHILDREN : 0}),
		 watcher_fn watcher, void *watcher_context)
ASKS_FOR(zoo_aget_acl, acl_completion_t, ((ModelOp){MODEL_LOOK_ACL, path}))
ASKS_FOR(zoo_async, string_completion_t, ((ModelOp){MODEL_SYNC, path}))
/* clang-format on */

int
zoo_aremove_all_watches(zhandle_t *handle, const char *path, ZooWatcherType type, int local,
						void_completion_t *completion, const void *context)
{
	bool children = type == ZWATCHTYPE_CHILD;
	ModelOp op = {MODEL_UNWATCH, path, .watch = children ? MODEL_WATCH_CHILDREN : MODEL_WATCH_DATA};

	return ask(handle, op, (void_completion_t) completion, context);
}

/* The types of operations are the protocol's numbers for them. */
static ModelOp
op_of(const zoo_op_t *from, zoo_op_result_t *result)
{
	static const ModelKind kinds[] = {[1] = MODEL_CREATE, [2] = MODEL_DELETE, [5] = MODEL_SET, [13] = MODEL_CHECK};

	ModelOp op = {kinds[from->type], from->check_op.path}; /* all begin with it */

	*result = (zoo_op_result_t){0};
	switch (op.kind)
	{
		case MODEL_CREATE:
			op.data = from->create_op.data;
			op.length = from->create_op.datalen;
			op.mode = from->create_op.flags;
			result->value = from->create_op.buf;
			result->valuelen = from->create_op.buflen;
			break;
		case MODEL_SET:
			op.data = from->set_op.data;
			op.length = from->set_op.datalen;
			op.version = from->set_op.version;
			result->stat = from->set_op.stat;
			break;
		default:
			op.version = from->check_op.version; /* DELETE has it there, too */
	}
	return op;
}

int
zoo_amulti(zhandle_t *handle, int n, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *context)
{
	Request *request = calloc(1, sizeof(Request));

	for (int i = 0; i < n; i++)
		model_add_op(&request->packet, op_of(&ops[i], &results[i]));
	request->receiver.code = completion;
	request->context = context;
	request->results = results;
	return submit(handle, request);
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

	handle->owner = sim_current;
	handle->watcher = watcher;
	handle->context = context;
	handle->state = handle->told = ZOO_CONNECTING_STATE;
	handle->timeout = timeout;
	if (id)
		handle->id = *id;
	handle->connect_at = model_now + sim_below(10 * MS);
	handle->next = library_handles;
	library_handles = handle;
	return handle;
}

/* The process of a handle has ended: its session lives on for a while. */
void
library_drop(zhandle_t *handle)
{
	zhandle_t **link = &library_handles;

	leave_connection(handle);
	while (*link != handle)
		link = &(*link)->next;
	*link = handle->next;
}

void
library_abandon(int owner)
{
	for (zhandle_t *h = library_handles; h; h = h->next)
	{
		if (h->owner == owner)
			library_drop(h);
	}
}

/* Ends the session if there is a connection.  What is under way is never answered (trap 8). */
int
zookeeper_close(zhandle_t *handle)
{
	if (handle->state == ZOO_CONNECTED_STATE)
	{
		queue_push(&handle->connection->sent, model_packet(MODEL_CLOSE, "/"));
		handle->connection->left = true;
		handle->connection = NULL;
	}
	library_drop(handle);
	return ZOK;
}

#define TELLS(type, name, value) \
	type name(zhandle_t *handle) \
	{                            \
		return value;            \
	}

/* clang-format off */
TELLS(int, zoo_state, handle->state)
TELLS(const clientid_t *, zoo_client_id, &handle->id)
TELLS(int, zoo_recv_timeout, handle->timeout)
TELLS(const char *, zoo_get_current_server, "")
/* clang-format on */
