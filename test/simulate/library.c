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
	ModelRequest   *unsent; /* NULL once it is */
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
	const void *context;
	ModelKind	op;
	char	   *path; /* READ, LIST, UNWATCH_*: of the watch that is set, or removed */
	bool		watch;
	char	   *buffer; /* of a multi: for the path of the node created first */
	int			buffer_length;
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
	ModelWatch		*watches;
};

static zhandle_t *handles;

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

static void
complete(zhandle_t *handle, Pending *pending, int code, const ModelMessage *answer)
{
	struct String_vector children = {0};
	const struct Stat	*stat = code == ZOK && answer ? &answer->stat : NULL;
	const char			*path = code == ZOK && answer ? answer->path : NULL;
	int					 former = sim_current;

	sim_current = handle->owner;
	if (pending->buffer && path)
		snprintf(pending->buffer, pending->buffer_length, "%s", path);
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
			pending->data(code, answer ? answer->data : NULL,
						  answer ? answer->data ? answer->length : -1 : 0, stat, pending->context);
			break;
		case COMPLETE_STRINGS_STAT:
			if (stat)
				children = (struct String_vector){answer->nchildren, answer->children};
			pending->strings_stat(code, stat ? &children : NULL, stat, pending->context);
			break;
		case COMPLETE_STRING:
			pending->string(code, path, pending->context);
			break;
	}
	sim_current = former;
	if (pending->unsent)
		model_request_free(pending->unsent);
	free(pending->path);
	free(pending);
}

static ModelWatch **
watch_find(zhandle_t *handle, const char *path, bool children)
{
	ModelWatch **link = &handle->watches;

	while (*link && ((*link)->children != children || strcmp((*link)->path, path) != 0))
		link = &(*link)->next;
	return link;
}

static bool
watch_forget(zhandle_t *handle, const char *path, bool children)
{
	ModelWatch **link = watch_find(handle, path, children);
	ModelWatch	*watch = *link;

	if (watch == NULL)
		return false;
	*link = watch->next;
	free(watch->path);
	free(watch);
	return true;
}

static void
watch_remember(zhandle_t *handle, const char *path, bool children)
{
	ModelWatch *watch;

	if (*watch_find(handle, path, children))
		return;
	watch = calloc(1, sizeof(ModelWatch));
	*watch = (ModelWatch){.next = handle->watches, .children = children, .path = strdup(path)};
	handle->watches = watch;
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
handle_event(zhandle_t *handle, const ModelMessage *event)
{
	bool deleted = event->event == ZOO_DELETED_EVENT;
	bool known = event->event == ZOO_CHILD_EVENT ? false : watch_forget(handle, event->path, false);
	int former = sim_current;

	if (deleted || event->event == ZOO_CHILD_EVENT)
		known |= watch_forget(handle, event->path, true);
	if (!known)
		return;
	sim_current = handle->owner;
	handle->watcher(handle, event->event, ZOO_CONNECTED_STATE, event->path, handle->context);
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
handle_answer(zhandle_t *handle, const ModelMessage *answer)
{
	Pending *pending = handle->pending;

	if (answer->number == 0) /* to a ping, or to the watches */
		return;
	handle->pending = pending->next;
	if (handle->pending == NULL)
		handle->pending_last = NULL;
	if (pending->number != answer->number)
		abort();
	if (answer->code == ZOK && pending->watch)
		watch_remember(handle, pending->path, pending->op == MODEL_LIST);
	if (answer->code == ZOK &&
		(pending->op == MODEL_UNWATCH_DATA || pending->op == MODEL_UNWATCH_CHILDREN))
		watch_forget(handle, pending->path, pending->op == MODEL_UNWATCH_CHILDREN);
	complete(handle, pending, answer->code, answer);
}

/* The connection stands. */
static void
handle_connected(zhandle_t *handle)
{
	handle->state = ZOO_CONNECTED_STATE;
	handle->id.client_id = handle->connection->session->id;
	memcpy(handle->id.passwd, handle->connection->session->password, sizeof(handle->id.passwd));
	tell_state(handle, ZOO_CONNECTED_STATE);
	if (handle->silent)
		fail_pending(handle, ZRUNTIMEINCONSISTENCY, false);
	handle->silent = false;
	if (handle->watches)
	{
		ModelRequest *request = model_request(MODEL_SET_WATCHES, "/");

		request->seen = handle->zxid;
		for (const ModelWatch *watch = handle->watches; watch; watch = watch->next)
		{
			ModelWatch *copied = malloc(sizeof(ModelWatch));

			*copied = (ModelWatch){.next = request->watches,
								   .children = watch->children,
								   .path = strdup(watch->path)};
			request->watches = copied;
		}
		model_send(handle->connection, request);
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
	return connection->stalled_until <= model_now && (connection->received || connection->broken);
}

void
library_step(zhandle_t *handle)
{
	ModelMessage *message;

	if (handle->connection == NULL)
	{
		handle->server = sim_below(MODEL_SERVERS);
		handle->connection = model_connect(handle->server, handle->id.client_id, handle->id.passwd,
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
		ModelRequest *ping = calloc(1, sizeof(ModelRequest));

		model_send(handle->connection, ping);
		handle->sent_at = model_now;
		return;
	}
	message = model_receive(handle->connection);
	if (message == NULL)
	{
		if (handle->connection->broken)
			lose_connection(handle, ZCONNECTIONLOSS);
		return;
	}
	handle->heard_at = model_now;
	if (message->news == NEWS_ANSWER && message->zxid > handle->zxid)
		handle->zxid = message->zxid;
	switch (message->news)
	{
		case NEWS_CONNECTED:
			handle_connected(handle);
			break;
		case NEWS_EXPIRED:
			handle_expired(handle);
			break;
		case NEWS_EVENT:
			handle_event(handle, message);
			break;
		case NEWS_ANSWER:
			handle_answer(handle, message);
			break;
	}
	model_message_free(message);
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
	int n = 0;

	for (const ModelWatch *watch = handle->watches; watch; watch = watch->next)
		n++;
	return n;
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
			model_request_free(p->unsent);
		if (p->buffer)
			free((void *) p->context);
		free(p->path);
		free(p);
	}
	while (handle->watches)
		watch_forget(handle, handle->watches->path, handle->watches->children);
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
submit(zhandle_t *handle, ModelRequest *request, Pending *pending)
{
	if (handle->state < 0)
	{
		model_request_free(request);
		free(pending->path);
		free(pending);
		return ZINVALIDSTATE;
	}
	request->number = pending->number = ++handle->last_number;
	pending->op = request->ops[0].kind;
	if (handle->state == ZOO_CONNECTED_STATE)
	{
		model_send(handle->connection, request);
		handle->sent_at = model_now;
	}
	else
		pending->unsent = request;
	if (handle->pending_last)
		handle->pending_last->next = pending;
	else
		handle->pending = pending;
	handle->pending_last = pending;
	return ZOK;
}

static void
set_mode(ModelOp *op, int mode)
{
	op->ephemeral = mode == ZOO_EPHEMERAL || mode == ZOO_EPHEMERAL_SEQUENTIAL;
	op->sequential = mode == ZOO_EPHEMERAL_SEQUENTIAL || mode == ZOO_PERSISTENT_SEQUENTIAL;
	op->container = mode == ZOO_CONTAINER;
}

int
zoo_acreate2(zhandle_t *handle, const char *path, const char *value, int length,
			 const struct ACL_vector *acl, int mode, string_stat_completion_t completion,
			 const void *context)
{
	ModelRequest *request = model_request(MODEL_CREATE, path);
	Pending		 *pending = new_pending(COMPLETE_STRING_STAT, context);

	(void) acl;
	pending->string_stat = completion;
	model_op_data(&request->ops[0], value, length);
	set_mode(&request->ops[0], mode);
	return submit(handle, request, pending);
}

int
zoo_adelete(zhandle_t *handle, const char *path, int version, void_completion_t completion,
			const void *context)
{
	ModelRequest *request = model_request(MODEL_DELETE, path);
	Pending		 *pending = new_pending(COMPLETE_VOID, context);

	pending->done = completion;
	request->ops[0].version = version;
	return submit(handle, request, pending);
}

int
zoo_aset(zhandle_t *handle, const char *path, const char *value, int length, int version,
		 stat_completion_t completion, const void *context)
{
	ModelRequest *request = model_request(MODEL_SET, path);
	Pending		 *pending = new_pending(COMPLETE_STAT, context);

	pending->stat = completion;
	request->ops[0].version = version;
	model_op_data(&request->ops[0], value, length);
	return submit(handle, request, pending);
}

int
zoo_aexists(zhandle_t *handle, const char *path, int watch, stat_completion_t completion,
			const void *context)
{
	Pending *pending = new_pending(COMPLETE_STAT, context);

	(void) watch;
	pending->stat = completion;
	return submit(handle, model_request(MODEL_LOOK, path), pending);
}

int
zoo_awget(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
		  data_completion_t completion, const void *context)
{
	ModelRequest *request = model_request(MODEL_READ, path);
	Pending		 *pending = new_pending(COMPLETE_DATA, context);

	(void) watcher_context;
	pending->data = completion;
	pending->path = strdup(path);
	pending->watch = request->watch = watcher != NULL;
	return submit(handle, request, pending);
}

int
zoo_awget_children2(zhandle_t *handle, const char *path, watcher_fn watcher, void *watcher_context,
					strings_stat_completion_t completion, const void *context)
{
	ModelRequest *request = model_request(MODEL_LIST, path);
	Pending		 *pending = new_pending(COMPLETE_STRINGS_STAT, context);

	(void) watcher_context;
	pending->strings_stat = completion;
	pending->path = strdup(path);
	pending->watch = request->watch = watcher != NULL;
	return submit(handle, request, pending);
}

int
zoo_async(zhandle_t *handle, const char *path, string_completion_t completion, const void *context)
{
	Pending *pending = new_pending(COMPLETE_STRING, context);

	pending->string = completion;
	return submit(handle, model_request(MODEL_SYNC, path), pending);
}

/* It knows of a watch when that has been answered, and sends no removal of another. */
int
zoo_aremove_all_watches(zhandle_t *handle, const char *path, ZooWatcherType type, int local,
						void_completion_t *completion, const void *context)
{
	bool	 children = type == ZWATCHTYPE_CHILD;
	Pending *pending;

	(void) local;
	if (*watch_find(handle, path, children) == NULL)
		return ZNOWATCHER;
	pending = new_pending(COMPLETE_VOID, context);
	pending->done = (void_completion_t) completion;
	pending->path = strdup(path);
	return submit(handle, model_request(children ? MODEL_UNWATCH_CHILDREN : MODEL_UNWATCH_DATA, path),
				  pending);
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

static void
convert_op(ModelOp *to, const zoo_op_t *op)
{
	switch (op->type)
	{
		case OP_CREATE:
			model_op_set(to, MODEL_CREATE, op->create_op.path);
			model_op_data(to, op->create_op.data, op->create_op.datalen);
			set_mode(to, op->create_op.flags);
			break;
		case OP_DELETE:
			model_op_set(to, MODEL_DELETE, op->delete_op.path);
			to->version = op->delete_op.version;
			break;
		case OP_SET:
			model_op_set(to, MODEL_SET, op->set_op.path);
			model_op_data(to, op->set_op.data, op->set_op.datalen);
			to->version = op->set_op.version;
			break;
		default:
			model_op_set(to, MODEL_CHECK, op->check_op.path);
			to->version = op->check_op.version;
	}
}

int
zoo_amulti(zhandle_t *handle, int n, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *context)
{
	ModelRequest *request = calloc(1, sizeof(ModelRequest));
	Pending		 *pending = new_pending(COMPLETE_VOID, context);

	(void) results;
	request->nops = n;
	request->ops = calloc(n, sizeof(ModelOp));
	for (int i = 0; i < n; i++)
		convert_op(&request->ops[i], &ops[i]);
	pending->done = completion;
	if (ops[0].type == OP_CREATE && ops[0].create_op.buf)
	{
		pending->buffer = ops[0].create_op.buf;
		pending->buffer_length = ops[0].create_op.buflen;
	}
	return submit(handle, request, pending);
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
		model_send(connection, model_request(MODEL_CLOSE, "/"));
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
