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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "model.h"

/* What of an answer its receiver gets */
typedef enum Answer
{
	ANSWER_CODE,
	ANSWER_CREATED,
	ANSWER_STAT,
	ANSWER_DATA,
	ANSWER_CHILDREN,
	ANSWER_SYNCED,
	ANSWER_ACL
} Answer;

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
typedef struct Pending
{
	STAILQ_ENTRY(Pending) link;
	uint64_t		 number;
	ModelPacket		*unsent; /* NULL once it is sent */
	Answer			 answer;
	Receiver		 receiver;
	const void		*context;
	zoo_op_result_t *results; /* of a multi */
} Pending;

struct _zhandle
{
	LIST_ENTRY(_zhandle) link;
	int				 owner;
	watcher_fn		 watcher;
	void			*context;
	int				 state;
	int				 told;	  /* the state that the watcher knows */
	int				 timeout; /* ms */
	clientid_t		 id;
	ModelConnection *connection;
	int64_t			 connect_at; /* us; without a connection */
	int64_t			 heard_at;	 /* us */
	int64_t			 sent_at;	 /* us */
	int64_t			 zxid;
	int64_t			 connected_since; /* zxid */
	uint64_t		 last_number;
	STAILQ_HEAD(, Pending) pending; /* those that are sent come first */
	ModelPacket watches;
};

static LIST_HEAD(, _zhandle) handles = LIST_HEAD_INITIALIZER(handles);

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

static Pending *
take_first(zhandle_t *handle)
{
	Pending *pending = STAILQ_FIRST(&handle->pending);

	STAILQ_REMOVE_HEAD(&handle->pending, link);
	return pending;
}

static void
discard(Pending *pending)
{
	if (pending->unsent)
		model_release(pending->unsent);
	free(pending);
}

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
give_children(const Pending *pending, ModelNode *node)
{
	int					 n = node->stat.numChildren;
	char				*names[n + 1];
	struct String_vector children = {n, names};

	for (int i = 0; i < n; i++)
		names[i] = strrchr(node->children[i]->path, '/') + 1;
	pending->receiver.children(ZOK, &children, &node->stat, pending->context);
}

/* Answers what was asked first.  Of an error, nobody gets more than the code. */
static void
answer_first(zhandle_t *handle, int code, const ModelPacket *answer)
{
	Pending		  *pending = take_first(handle);
	Receiver	   to = pending->receiver;
	const void	  *context = pending->context;
	const ModelOp *op = code == ZOK ? &answer->ops[0] : NULL;
	ModelNode	  *node = op ? op->node : NULL;
	struct Stat	  *stat = node ? &node->stat : NULL;
	const char	  *data = node ? node->data : NULL;

	if (answer && pending->results)
		give_results(answer, pending->results);
	switch (pending->answer)
	{
		case ANSWER_CODE:
			if (to.code)
				to.code(code, context);
			break;
		case ANSWER_CREATED:
			to.created(code, op ? op->path : NULL, stat, context);
			break;
		case ANSWER_STAT:
			to.stat(code, stat, context);
			break;
		case ANSWER_DATA:
			to.data(code, data, data ? stat->dataLength : -1, stat, context);
			break;
		case ANSWER_CHILDREN:
			if (node)
				give_children(pending, node);
			else
				to.children(code, NULL, NULL, context);
			break;
		case ANSWER_SYNCED:
			to.synced(code, op ? op->path : NULL, context);
			break;
		case ANSWER_ACL:
			to.acl(code, node ? &ZOO_OPEN_ACL_UNSAFE : NULL, stat, context);
			break;
	}
	discard(pending);
}

/* Fails all until the one with that number; what is asked meanwhile comes behind that. */
static void
fail_until(zhandle_t *handle, uint64_t last, int code)
{
	while (!STAILQ_EMPTY(&handle->pending) && STAILQ_FIRST(&handle->pending)->number <= last)
		answer_first(handle, code, NULL);
}

static void
send_pending(zhandle_t *handle, Pending *pending)
{
	model_send(handle->connection, pending->unsent);
	pending->unsent = NULL;
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
	fail_until(handle, handle->last_number, code);
}

/* The library takes its watches from one connection to the next. */
static void
send_watches(zhandle_t *handle)
{
	ModelPacket *packet = calloc(1, sizeof(ModelPacket));

	packet->zxid = handle->zxid;
	for (int i = 0; i < handle->watches.nops; i++)
		model_watch_set(packet, handle->watches.ops[i].path, handle->watches.ops[i].watch);
	model_send(handle->connection, packet);
}

/* What was sent before was sent on a connection whose loss nobody has heard of. */
static void
on_connected(zhandle_t *handle)
{
	uint64_t sent = 0;
	Pending *pending;

	handle->id.client_id = handle->connection->session->id;
	handle->sent_at = model_now;
	handle->connected_since = model_last_zxid;
	if (handle->watches.nops > 0)
		send_watches(handle);
	STAILQ_FOREACH(pending, &handle->pending, link)
	{
		if (pending->unsent)
			send_pending(handle, pending);
		else
			sent = pending->number;
	}
	enter_state(handle, ZOO_CONNECTED_STATE);
	fail_until(handle, sent, ZRUNTIMEINCONSISTENCY);
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
	if (answer->number == 0) /* to a ping, or to the watches */
		return;
	if (STAILQ_FIRST(&handle->pending)->number != answer->number)
		abort();
	if (answer->code == ZOK && op->kind == MODEL_UNWATCH)
		(void) model_watch_take(&handle->watches, op->path, op->watch);
	else if (answer->code == ZOK && op->watch)
		model_watch_set(&handle->watches, op->path, op->watch);
	answer_first(handle, answer->code, answer);
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
	model_release(packet);
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
	return handle->state == ZOO_CONNECTED_STATE && STAILQ_EMPTY(&handle->pending)
			   ? handle->sent_at + handle->timeout * MS / 3
			   : SIM_NEVER;
}

/* When there is something to do; or might be, as a connection moves on then */
static int64_t
next_step(const zhandle_t *handle)
{
	const ModelConnection *connection = handle->connection;
	int64_t				   next = silence_ends(handle);

	if (handle->state < 0)
		return SIM_NEVER;
	if (connection == NULL)
		return handle->connect_at;
	if (ping_due(handle) < next)
		next = ping_due(handle);
	if (connection->stalled_until > model_now && connection->stalled_until < next)
		return connection->stalled_until;
	return model_can_receive(connection) ? model_now : next;
}

bool
library_can_step(zhandle_t *handle)
{
	return next_step(handle) <= model_now;
}

void
library_step(zhandle_t *handle)
{
	int			 former = sim_current;
	ModelPacket *packet;

	sim_current = handle->owner; /* whose functions are called */
	if (handle->connection == NULL)
	{
		handle->heard_at = model_now;
		handle->connection = model_connect(sim_below(MODEL_SERVERS), handle->id.client_id,
										   handle->timeout * MS, handle->zxid, handle);
		if (handle->connection == NULL)
			lose_connection(handle, ZOO_CONNECTING_STATE, ZCONNECTIONLOSS);
	}
	else if (model_now >= silence_ends(handle))
		lose_connection(handle, ZOO_CONNECTING_STATE, ZOPERATIONTIMEOUT);
	else if (model_now >= ping_due(handle))
	{
		model_send(handle->connection, model_packet(MODEL_PING, "/"));
		handle->sent_at = model_now;
	}
	else if ((packet = model_receive(handle->connection)) != NULL)
		receive(handle, packet);
	else if (handle->connection->broken)
		lose_connection(handle, ZOO_CONNECTING_STATE, ZCONNECTIONLOSS);
	sim_current = former;
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
 * What the world wants to know
 * ------------------------------------------------------------------------
 */

int64_t
library_next_timer(void)
{
	const zhandle_t *h;
	int64_t			 next = SIM_NEVER;

	LIST_FOREACH(h, &handles, link)
	{
		int64_t at = next_step(h);

		next = at < next ? at : next;
	}
	return next;
}

int
library_handles(zhandle_t **found, int max)
{
	zhandle_t *h;
	int		   n = 0;

	LIST_FOREACH(h, &handles, link)
	{
		if (n < max)
			found[n++] = h;
	}
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
	const zhandle_t *h;

	LIST_FOREACH(h, &handles, link)
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

int64_t
library_connected_since(zhandle_t *handle)
{
	return handle->connected_since;
}

/* ------------------------------------------------------------------------
 * Calls of the library
 * ------------------------------------------------------------------------
 */

static Pending *
expect(ModelPacket *request, Answer answer, Receiver receiver, const void *context)
{
	Pending *pending = calloc(1, sizeof(Pending));

	pending->unsent = request;
	pending->answer = answer;
	pending->receiver = receiver;
	pending->context = context;
	return pending;
}

/* Sends a request at once or when there is a connection. */
static int
ask(zhandle_t *handle, Pending *pending)
{
	if (handle->state < 0)
	{
		discard(pending);
		return ZINVALIDSTATE;
	}
	pending->unsent->number = pending->number = ++handle->last_number;
	STAILQ_INSERT_TAIL(&handle->pending, pending, link);
	if (handle->state == ZOO_CONNECTED_STATE)
		send_pending(handle, pending);
	return ZOK;
}

int
zoo_acreate2(zhandle_t *handle, const char *path, const char *value, int length,
			 const struct ACL_vector *acl, int mode, string_stat_completion_t completion,
			 const void *context)
{
	ModelPacket *request = model_packet(MODEL_CREATE, path);

	model_op_data(&request->ops[0], value, length);
	request->ops[0].mode = mode;
	return ask(handle, expect(request, ANSWER_CREATED, completion, context));
}

int
zoo_adelete(zhandle_t *handle, const char *path, int version, void_completion_t completion,
			const void *context)
{
	ModelPacket *request = model_packet(MODEL_DELETE, path);

	request->ops[0].version = version;
	return ask(handle, expect(request, ANSWER_CODE, completion, context));
}

int
zoo_aset(zhandle_t *handle, const char *path, const char *value, int length, int version,
		 stat_completion_t completion, const void *context)
{
	ModelPacket *request = model_packet(MODEL_SET, path);

	model_op_data(&request->ops[0], value, length);
	request->ops[0].version = version;
	return ask(handle, expect(request, ANSWER_STAT, completion, context));
}

int
zoo_aexists(zhandle_t *handle, const char *path, int watch, stat_completion_t completion,
			const void *context)
{
	return ask(handle, expect(model_packet(MODEL_LOOK, path), ANSWER_STAT, completion, context));
}

int
zoo_awget(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
		  data_completion_t completion, const void *context)
{
	ModelPacket *request = model_packet(MODEL_READ, path);

	request->ops[0].watch = watcher ? MODEL_WATCH_DATA : 0; /* the watcher is that of the handle */
	return ask(handle, expect(request, ANSWER_DATA, completion, context));
}

int
zoo_awget_children2(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
					strings_stat_completion_t completion, const void *context)
{
	ModelPacket *request = model_packet(MODEL_LIST, path);

	request->ops[0].watch = watcher ? MODEL_WATCH_CHILDREN : 0;
	return ask(handle, expect(request, ANSWER_CHILDREN, completion, context));
}

int
zoo_aget_acl(zhandle_t *handle, const char *path, acl_completion_t completion, const void *context)
{
	return ask(handle, expect(model_packet(MODEL_LOOK, path), ANSWER_ACL, completion, context));
}

int
zoo_async(zhandle_t *handle, const char *path, string_completion_t completion, const void *context)
{
	return ask(handle, expect(model_packet(MODEL_SYNC, path), ANSWER_SYNCED, completion, context));
}

int
zoo_aremove_all_watches(zhandle_t *handle, const char *path, ZooWatcherType type, int local,
						void_completion_t *completion, const void *context)
{
	ModelPacket *request = model_packet(MODEL_UNWATCH, path);

	request->ops[0].watch = type == ZWATCHTYPE_CHILD ? MODEL_WATCH_CHILDREN : MODEL_WATCH_DATA;
	return ask(handle, expect(request, ANSWER_CODE, (void_completion_t) completion, context));
}

/* The types of operations are the protocol's numbers for them. */
static void
add_op(ModelPacket *request, const zoo_op_t *op, zoo_op_result_t *result)
{
	static const ModelKind kinds[] = {[1] = MODEL_CREATE, [2] = MODEL_DELETE, [5] = MODEL_SET, [13] = MODEL_CHECK};

	ModelOp *to = model_add_op(request, kinds[op->type], op->check_op.path); /* all begin with it */

	*result = (zoo_op_result_t){0};
	switch (to->kind)
	{
		case MODEL_CREATE:
			model_op_data(to, op->create_op.data, op->create_op.datalen);
			to->mode = op->create_op.flags;
			result->value = op->create_op.buf;
			result->valuelen = op->create_op.buflen;
			break;
		case MODEL_SET:
			model_op_data(to, op->set_op.data, op->set_op.datalen);
			to->version = op->set_op.version;
			result->stat = op->set_op.stat;
			break;
		default:
			to->version = op->check_op.version; /* DELETE has it there, too */
	}
}

int
zoo_amulti(zhandle_t *handle, int n, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *context)
{
	ModelPacket *request = calloc(1, sizeof(ModelPacket));
	Pending		*pending = expect(request, ANSWER_CODE, completion, context);

	for (int i = 0; i < n; i++)
		add_op(request, &ops[i], &results[i]);
	pending->results = results;
	return ask(handle, pending);
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
	STAILQ_INIT(&handle->pending);
	handle->connect_at = model_now + sim_below(10 * MS);
	LIST_INSERT_HEAD(&handles, handle, link);
	return handle;
}

/* The process of a handle has ended: its session lives on for a while. */
void
library_drop(zhandle_t *handle)
{
	leave_connection(handle);
	LIST_REMOVE(handle, link);
	while (!STAILQ_EMPTY(&handle->pending))
		discard(take_first(handle));
	model_packet_clear(&handle->watches);
	free(handle);
}

void
library_abandon(int owner)
{
	zhandle_t *next;

	for (zhandle_t *h = LIST_FIRST(&handles); h; h = next)
	{
		next = LIST_NEXT(h, link);
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
		model_send(handle->connection, model_packet(MODEL_CLOSE, "/"));
		handle->connection->left = true;
		handle->connection->client = NULL;
		handle->connection = NULL;
	}
	library_drop(handle);
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
