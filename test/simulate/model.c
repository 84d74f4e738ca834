/*
 * model.c
 *		ZooKeeper, as far as its clients can tell: a model of an ensemble.
 *
 * What it keeps to:
 *
 *	- One order of all changes, the log.  A server has applied a prefix of it.
 *	- What a session asks on a server is done, and answered, in the order in which it
 *	  was received: a read waits for the session's writes before it.  That order goes on
 *	  from one connection to the next on the same server.
 *	- The leader refuses what a server forwards for a session that has moved to another
 *	  one, or that is about to end.
 *	- A watch belongs to a connection.  It fires once, ahead of the answer to anything
 *	  that was asked later.  The client sends its watches again on the next connection.
 *	- A session ends in two steps, of which only the second is in the log.  The leader
 *	  hears of a client from a server's answers to its pings alone, and these go through
 *	  the same queues as everything else.
 *	- A connection that breaks loses the rest of what is under way in either direction.
 *	- A new leader has the whole log, forgets what was forwarded, gives each session a new
 *	  timeout, and all connections break.  The former one may not know of it for a while.
 *	  Then it admits clients, as far as they have seen nothing newer, and answers what needs
 *	  no quorum, syncs too; nobody else hears of that.
 *
 * What it leaves out: ACLs, quotas, TTL nodes, servers that lose their memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "parts.h"

typedef struct Server
{
	ModelNode *tree;
	int64_t	   zxid;	  /* of the last that it has applied */
	ModelQueue log;		  /* the rest */
	ModelQueue forwarded; /* on its way to the leader */
} Server;

int64_t			 model_now;
int64_t			 model_last_zxid;
int				 model_leader;
int				 model_deposed = -1;
ModelSession	*model_sessions;
ModelConnection *model_connections;
bool			 model_cut_off[MODEL_SERVERS];
bool			 model_down[MODEL_SERVERS];
int64_t			 model_lag[MODEL_SERVERS];

static ModelHooks hooks;
static int64_t	  tick;
static int64_t	  next_ping;
static int64_t	  last_session;
static ModelNode *truth;
static Server	  servers[MODEL_SERVERS];

/* ------------------------------------------------------------------------
 * A server and its connections
 * ------------------------------------------------------------------------
 */

static void
break_at_server(ModelConnection *connection)
{
	connection->broken = true;
	model_packet_clear(&connection->watches);
}

/* A packet returns as its answer, if the client is still there. */
static void
answer(ModelPacket *packet)
{
	ModelConnection *connection = packet->connection;

	packet->zxid = servers[connection->server].zxid;
	if (packet->code == ZSESSIONMOVED)
		break_at_server(connection);
	if (!connection->broken)
		queue_push(&connection->received, packet);
}

/* The connections of a session that a server has */
static void
break_session(int server, const ModelSession *session)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->server == server && c->session == session)
			break_at_server(c);
	}
}

/* The leader has decided on a handshake. */
static void
finish_handshake(ModelPacket *packet)
{
	ModelConnection *connection = packet->connection;

	if (packet->session && !connection->broken)
		break_session(connection->server, packet->session);
	connection->session = packet->session;
	answer(packet);
	if (packet->session == NULL)
		break_at_server(connection);
}

/* ------------------------------------------------------------------------
 * The leader
 * ------------------------------------------------------------------------
 */

static void
touch(ModelSession *session)
{
	if (!session->closing)
		session->expires_at = ((model_now + session->timeout) / tick + 1) * tick;
}

/* Does all operations of a packet to the truth, or none. */
static void
transact(ModelPacket *packet)
{
	ModelNode *before = truth;
	ModelNode *tree = tree_retain(truth);

	for (int i = 0; i < packet->nops; i++)
	{
		ModelOp *op = &packet->ops[i];

		op->code = packet->code == ZOK ? tree_check(tree, op) : ZRUNTIMEINCONSISTENCY;
		if (packet->code == ZOK)
			packet->code = op->code;
		if (packet->code == ZOK)
			tree = tree_after(tree, packet, op);
	}
	if (packet->code != ZOK)
	{
		tree_release(tree);
		return;
	}
	truth = tree;
	for (int i = 0; i < packet->nops; i++)
	{
		const ModelOp	*op = &packet->ops[i];
		const ModelNode *created = op->kind == MODEL_CREATE ? tree_find(truth, op->path) : NULL;
		const ModelNode *deleted = op->kind == MODEL_DELETE ? tree_find(before, op->path) : NULL;

		if (created)
			hooks.created(created, packet->session);
		if (deleted)
			hooks.deleted(deleted, packet->session, packet->ops[0].kind == MODEL_EXPIRE);
	}
	tree_release(before);
}

/* The log goes on with a packet, and what comes of it. */
static void
append(ModelPacket *packet)
{
	ModelKind kind = packet->ops[0].kind;

	packet->zxid = kind == MODEL_SYNC || kind == MODEL_PING ? model_last_zxid : ++model_last_zxid;
	packet->decided_at = model_now;
	if (packet->code == ZOK)
		transact(packet);
	packet->tree = tree_retain(truth);
	for (int i = 0; i < MODEL_SERVERS; i++)
		queue_push(&servers[i].log, packet);
}

/* Returns the session of a handshake; NULL if it has ended. */
static ModelSession *
begin_session(const ModelConnection *connection)
{
	ModelSession *session = model_sessions;

	if (connection->offered == 0)
	{
		session = calloc(1, sizeof(ModelSession));
		*session =
			(ModelSession){.next = model_sessions, .id = ++last_session, .timeout = connection->timeout};
		model_sessions = session;
	}
	while (session && connection->offered != 0 && session->id != connection->offered)
		session = session->next;
	if (session == NULL || session->closing)
		return NULL;
	session->owner = connection->server;
	touch(session);
	return session;
}

static bool
ends_session(const ModelPacket *packet)
{
	return packet->ops[0].kind == MODEL_CLOSE || packet->ops[0].kind == MODEL_EXPIRE;
}

/* Adds the deletion of a session's nodes, of those below this one. */
static void
delete_owned(ModelPacket *packet, const ModelNode *node)
{
	for (int i = 0; i < node->stat.numChildren; i++)
	{
		delete_owned(packet, node->children[i]);
		if (node->children[i]->owner == packet->session->id)
			(void) model_add_op(packet, MODEL_DELETE, node->children[i]->path);
	}
}

/* A session ends: its nodes go with it.  It is not freed, since others may point to it. */
static void
end_session(ModelPacket *packet)
{
	ModelSession  *session = packet->session;
	ModelSession **link = &model_sessions;

	if (!session->closing)
		hooks.session_ended(session, false);
	session->closing = true;
	delete_owned(packet, truth);
	while (*link != session)
		link = &(*link)->next;
	*link = session->next;
}

/* The leader says what is to be done about what a server has forwarded. */
static void
decide(ModelPacket *packet)
{
	switch (packet->ops[0].kind)
	{
		case MODEL_TOUCH:
			touch(packet->session);
			return;
		case MODEL_EXPIRE:
			break;
		case MODEL_BEGIN:
			packet->session = begin_session(packet->connection);
			packet->code = packet->session ? ZOK : ZSESSIONEXPIRED;
			if (packet->connection->offered == 0)
				break;
			finish_handshake(packet); /* not in the log: the server may be behind */
			return;
		default:
			if (packet->session->closing)
				packet->code = ZSESSIONEXPIRED;
			else if (packet->session->owner != packet->connection->server)
				packet->code = ZSESSIONMOVED;
	}
	if (packet->code == ZOK && ends_session(packet))
		end_session(packet);
	append(packet);
}

bool
model_can_forward(int server)
{
	return queue_first(&servers[server].forwarded) && !model_cut_off[server];
}

/* The leader gets the next of what a server has forwarded. */
void
model_step_forward(int server)
{
	ModelPacket *packet = queue_pop(&servers[server].forwarded);

	decide(packet);
	model_release(packet);
}

/* A server, or the leader itself, has something to say of a session. */
static void
forward_for(ModelSession *session, ModelKind kind, int server)
{
	ModelPacket *packet = model_packet(kind, "/");

	packet->session = session;
	queue_push(&servers[server].forwarded, packet);
}

/* The leader has not heard of a session for its timeout. */
void
model_expire(ModelSession *session)
{
	session->closing = true;
	hooks.session_ended(session, true);
	forward_for(session, MODEL_EXPIRE, model_leader);
}

/* A container below a node, or itself, that has had a child and has none; NULL if none has */
static const ModelNode *
find_empty(const ModelNode *node)
{
	const ModelNode *found = NULL;

	if (node->container && node->stat.numChildren == 0 && node->stat.cversion > 0)
		return node;
	for (int i = 0; i < node->stat.numChildren && found == NULL; i++)
		found = find_empty(node->children[i]);
	return found;
}

/* The leader deletes a container that is empty. */
bool
model_step_reap(void)
{
	const ModelNode *empty = find_empty(truth);

	if (empty)
		append(model_packet(MODEL_DELETE, empty->path));
	return empty != NULL;
}

/* ------------------------------------------------------------------------
 * Time
 * ------------------------------------------------------------------------
 */

/* When a server can apply the next entry of the log, us */
static int64_t
apply_at(int server)
{
	const ModelPacket *next = queue_first(&servers[server].log);

	return next && !model_cut_off[server] ? next->decided_at + model_lag[server] : INT64_MAX;
}

/* When anything can happen next by time alone, us */
int64_t
model_next_timer(void)
{
	int64_t next = next_ping;

	for (const ModelSession *s = model_sessions; s; s = s->next)
	{
		if (!s->closing && s->expires_at < next)
			next = s->expires_at;
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (apply_at(i) > model_now && apply_at(i) < next)
			next = apply_at(i);
	}
	return next;
}

/* Time passes: the leader does what is due meanwhile, each when it is due. */
void
model_advance(int64_t to)
{
	int64_t next;

	while ((next = model_next_timer()) <= to)
	{
		model_now = next > model_now ? next : model_now;
		if (next_ping <= model_now)
		{
			append(model_packet(MODEL_PING, "/"));
			next_ping = model_now + tick / 2;
		}
		for (ModelSession *s = model_sessions; s; s = s->next)
		{
			if (!s->closing && s->expires_at <= model_now)
				model_expire(s);
		}
	}
	model_now = to;
}

/* ------------------------------------------------------------------------
 * A server answers
 * ------------------------------------------------------------------------
 */

static void
send_event(ModelConnection *connection, int event, const char *path)
{
	ModelPacket *packet = model_packet(MODEL_EVENT, path);

	packet->code = event;
	queue_push(&connection->received, packet);
}

/* The client comes with a watch from another connection. */
static void
restore_watch(ModelConnection *connection, const ModelOp *op, const ModelNode *node, int64_t seen)
{
	bool children = op->watch == MODEL_WATCH_CHILDREN;

	if (node == NULL)
		send_event(connection, ZOO_DELETED_EVENT, op->path);
	else if ((children ? node->stat.pzxid : node->stat.mzxid) > seen)
		send_event(connection, children ? ZOO_CHILD_EVENT : ZOO_CHANGED_EVENT, op->path);
	else
		model_watch_set(&connection->watches, op->path, op->watch);
}

/* A server looks at what it has applied. */
static int
look(ModelConnection *connection, ModelOp *op, ModelNode *node)
{
	if (node == NULL)
		return ZNONODE;
	op->node = tree_retain(node);
	if (op->watch)
		model_watch_set(&connection->watches, op->path, op->watch);
	return ZOK;
}

static void
answer_read(ModelPacket *packet)
{
	ModelConnection *connection = packet->connection;

	for (int i = 0; i < packet->nops; i++)
	{
		ModelOp	  *op = &packet->ops[i];
		ModelNode *node = tree_find(servers[connection->server].tree, op->path);

		if (op->kind == MODEL_SET_WATCHES)
			restore_watch(connection, op, node, packet->zxid);
		else if (op->kind == MODEL_UNWATCH)
			packet->code =
				model_watch_take(&connection->watches, op->path, op->watch) ? ZOK : ZNOWATCHER;
		else if (op->kind != MODEL_PING)
			packet->code = look(connection, op, node);
	}
	answer(packet);
}

static bool
leader_decides(const ModelPacket *packet)
{
	ModelKind kind = packet->ops[0].kind;

	return kind <= MODEL_TOUCH &&
		   !(kind == MODEL_SYNC && packet->connection->server == model_deposed);
}

/* Answers a session's reads that wait for no write before them. */
static void
answer_reads(ModelQueue *pending)
{
	ModelPacket *packet;

	while ((packet = queue_first(pending)) != NULL && !leader_decides(packet))
	{
		(void) queue_pop(pending);
		if (!packet->connection->broken)
			answer_read(packet);
		model_release(packet);
	}
}

/* ------------------------------------------------------------------------
 * A server applies the log
 * ------------------------------------------------------------------------
 */

static void
fire(int server, int event, const char *path)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->server == server && model_watch_take(&c->watches, path, model_event_fires(event)))
			send_event(c, event, path);
	}
}

static void
fire_for(int server, const ModelOp *op)
{
	int	  slash = strrchr(op->path, '/') - op->path;
	char *parent = bytes_copy(op->path, slash > 0 ? slash : 1);

	if (op->kind == MODEL_SET)
		fire(server, ZOO_CHANGED_EVENT, op->path);
	if (op->kind == MODEL_DELETE)
		fire(server, ZOO_DELETED_EVENT, op->path);
	if (op->kind == MODEL_CREATE || op->kind == MODEL_DELETE)
		fire(server, ZOO_CHILD_EVENT, parent);
	free(parent);
}

/* The leader's ping: the server answers with those that it has heard of since the last one. */
static void
answer_ping(int server)
{
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		if (s->heard[server] == 0)
			continue;

		/* A touch that comes just then is lost; two in a row would be against all odds. */
		s->lost[server] = !s->lost[server] && s->heard[server] == 1 && sim_one_in(40);
		if (!s->lost[server])
			forward_for(s, MODEL_TOUCH, server);
		s->heard[server] = 0;
	}
}

bool
model_can_apply(int server)
{
	return apply_at(server) <= model_now;
}

/* A server applies the next entry of the log. */
void
model_step_apply(int server)
{
	ModelPacket	 *packet = queue_pop(&servers[server].log);
	ModelSession *session = packet->session;
	ModelQueue	 *pending = session ? &session->pending[server] : NULL;

	servers[server].zxid = packet->zxid;
	tree_release(servers[server].tree);
	servers[server].tree = tree_retain(packet->tree);
	for (int i = 0; i < packet->nops && packet->code == ZOK; i++)
		fire_for(server, &packet->ops[i]);
	if (packet->ops[0].kind == MODEL_PING)
		answer_ping(server);
	if (packet->ops[0].kind == MODEL_BEGIN && packet->connection->server == server)
		finish_handshake(packet);
	if (pending && queue_first(pending) == packet)
	{
		model_release(queue_pop(pending));
		answer(packet);
		answer_reads(pending);
	}
	if (ends_session(packet) && packet->code == ZOK)
		break_session(server, session);
	model_release(packet);
}

/* ------------------------------------------------------------------------
 * Connections
 * ------------------------------------------------------------------------
 */

/* Returns NULL if the server takes no connections. */
ModelConnection *
model_connect(int server, int64_t session, int64_t timeout, int64_t seen, void *client)
{
	ModelPacket		*packet;
	ModelConnection *connection;

	if (model_down[server])
		return NULL;
	packet = model_packet(MODEL_BEGIN, "/");
	connection = calloc(1, sizeof(ModelConnection));
	*connection = (ModelConnection){.next = model_connections,
									.server = server,
									.offered = session,
									.timeout = timeout,
									.client = client};
	model_connections = connection;
	packet->zxid = seen;
	model_send(connection, packet);
	return connection;
}

void
model_send(ModelConnection *connection, ModelPacket *packet)
{
	queue_push(&connection->sent, packet);
}

/* A server gets what it has been asked for a session. */
static void
take_up(ModelSession *session, int server, ModelPacket *packet)
{
	if (server == model_leader)
		touch(session);
	else
		session->heard[server]++;
	packet->session = session;
	queue_push(&session->pending[server], packet);
	if (leader_decides(packet))
		queue_push(&servers[server].forwarded, packet);
	answer_reads(&session->pending[server]);
}

bool
model_can_step_connection(const ModelConnection *connection)
{
	return !connection->broken && connection->stalled_until <= model_now &&
		   queue_first(&connection->sent);
}

/* The former leader admits a client, which no other server hears of. */
static void
admit(ModelPacket *packet)
{
	ModelSession *session = model_sessions;

	while (session && session->id != packet->connection->offered)
		session = session->next;
	if (session == NULL || session->closing)
		return;
	packet->session = session;
	finish_handshake(packet);
}

/* A server gets the next that the client has sent. */
void
model_step_connection(ModelConnection *connection)
{
	ModelPacket *packet = queue_pop(&connection->sent);
	int			 server = connection->server;

	packet->connection = connection;
	if (packet->ops[0].kind != MODEL_BEGIN)
		take_up(connection->session, server, packet);
	else if (packet->zxid > servers[server].zxid)
		break_at_server(connection);
	else if (server == model_deposed)
		admit(packet);
	else
		queue_push(&servers[server].forwarded, packet);
	model_release(packet);
}

/* Has anything arrived, be it that the connection is gone? */
bool
model_can_receive(const ModelConnection *connection)
{
	return connection->stalled_until <= model_now &&
		   (queue_first(&connection->received) || connection->broken);
}

/* The next that has arrived, to be released; NULL if there is none. */
ModelPacket *
model_receive(ModelConnection *connection)
{
	return queue_pop(&connection->received);
}

/* It breaks: the server gets some of what is on its way, and the client, too. */
void
model_break(ModelConnection *connection)
{
	ModelQueue *received = &connection->received;
	int			lost;

	while (queue_first(&connection->sent) && sim_one_in(2))
		model_step_connection(connection);
	break_at_server(connection);
	lost = sim_below(received->end - received->begin + 1);
	while (lost-- > 0)
		model_release(received->items[--received->end]);
}

/* The client has no more to do with it.  It is not freed, since packets may point to it. */
void
model_leave(ModelConnection *connection)
{
	ModelConnection **link = &model_connections;

	if (!connection->broken)
		model_break(connection);
	while (*link != connection)
		link = &(*link)->next;
	*link = connection->next;
	queue_clear(&connection->sent);
	queue_clear(&connection->received);
}

/* ------------------------------------------------------------------------
 * Servers that fail
 * ------------------------------------------------------------------------
 */

/* All connections of a server break. */
void
model_stop_server(int server)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->server == server && !c->broken)
			model_break(c);
	}
}

/* A server hears who leads.  What it has forwarded and is not in the log is lost. */
void
model_reset_server(int server)
{
	model_stop_server(server);
	queue_clear(&servers[server].forwarded);
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		queue_clear(&s->pending[server]);
		s->heard[server] = 0;
	}
	model_cut_off[server] = false;
	if (server == model_deposed)
		model_deposed = -1;
}

/* Another server leads. */
void
model_new_leader(int server)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_reset_server(i);
	model_leader = server;
	model_last_zxid = ((model_last_zxid >> 32) + 1) << 32;
	next_ping = model_now + sim_below(tick / 2);
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		s->closing = false;
		touch(s);
	}
}

/* ------------------------------------------------------------------------
 * The beginning, and the truth
 * ------------------------------------------------------------------------
 */

void
model_start(const ModelHooks *hooks_, int64_t tick_)
{
	hooks = *hooks_;
	tick = tick_;
	next_ping = sim_below(tick / 2);
	last_session = INT64_C(1) << 56;
	model_last_zxid = INT64_C(1) << 32;
	truth = tree_new();
	for (int i = 0; i < MODEL_SERVERS; i++)
		servers[i].tree = tree_retain(truth);
}

const ModelNode *
model_node(const char *path)
{
	return tree_find(truth, path);
}

/* Is nothing under way? */
bool
model_is_idle(void)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (queue_first(&servers[i].forwarded) || queue_first(&servers[i].log))
			return false;
	}
	for (const ModelConnection *c = model_connections; c; c = c->next)
	{
		if (queue_first(&c->sent) || queue_first(&c->received))
			return false;
	}
	return true;
}
