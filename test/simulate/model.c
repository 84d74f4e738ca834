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

int64_t			 model_now;
int64_t			 model_last_zxid;
ModelServer		 model_servers[MODEL_SERVERS];
ModelServer		*model_leader = model_servers;
ModelServer		*model_deposed;
ModelTree		*model_truth;
ModelSession	*model_sessions;
ModelConnection *model_connections;

static int64_t tick;
static int64_t next_ping;
static int64_t last_session;

/* ------------------------------------------------------------------------
 * A server and its connections
 * ------------------------------------------------------------------------
 */

static ModelPart *
part_of(ModelSession *session, const ModelServer *server)
{
	return &session->parts[server - model_servers];
}

static void
break_at_server(ModelConnection *connection)
{
	connection->broken = true;
	connection->watches = (ModelPacket){0};
}

/* A packet returns as its answer, if the client is still there. */
static void
answer(ModelPacket *packet)
{
	ModelConnection *connection = packet->connection;

	packet->zxid = connection->server->applied->zxid;
	if (packet->code == ZSESSIONMOVED)
		break_at_server(connection);
	if (!connection->broken)
		queue_push(&connection->received, packet);
}

/* The connections of a session that a server has */
static void
break_session(const ModelServer *server, const ModelSession *session)
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
	ModelTree *tree = model_truth;

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
		return;
	model_truth = tree;
	for (const ModelOp *op = packet->ops; op < packet->ops + packet->nops; op++)
	{
		if (op->kind == MODEL_CREATE && model_hooks.created)
			model_hooks.created(op->node, packet->session);
		if (op->kind == MODEL_DELETE && model_hooks.deleted)
			model_hooks.deleted(op->node, packet->session, packet->ops[0].kind == MODEL_EXPIRE);
	}
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
	packet->tree = model_truth;
	for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
		queue_push(&s->log, packet);
}

/* Returns a session; NULL if it has ended. */
ModelSession *
model_session(int64_t id)
{
	ModelSession *session = model_sessions;

	while (session && session->id != id)
		session = session->next;
	return session && !session->closing ? session : NULL;
}

/* Returns the session of a handshake; NULL if it has ended. */
static ModelSession *
begin_session(const ModelConnection *connection)
{
	ModelSession *session = model_session(connection->offered);

	if (connection->offered == 0)
	{
		session = calloc(1, sizeof(ModelSession));
		*session = (ModelSession){.next = model_sessions,
								  .id = ++last_session,
								  .client = connection->client,
								  .began = model_last_zxid + 1,
								  .timeout = connection->timeout};
		model_sessions = session;
	}
	if (session == NULL)
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

/* The leader refuses what is asked for a session. */
static void
close_session(ModelSession *session, bool expired)
{
	session->closing = true;
	if (model_hooks.session_ended)
		model_hooks.session_ended(session, expired);
}

/* A session ends: its nodes go with it. */
static void
end_session(ModelPacket *packet)
{
	ModelSession  *session = packet->session;
	ModelSession **link = &model_sessions;

	if (!session->closing)
		close_session(session, false);
	for (int i = 0; i < model_truth->n; i++)
	{
		const ModelNode *node = model_truth->nodes[i];

		if (node->stat.ephemeralOwner == session->id)
			model_add_op(packet, (ModelOp){MODEL_DELETE, node->path, .version = -1});
	}
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
model_can_forward(const ModelServer *server)
{
	return queue_first(&server->forwarded) && server->cut_off_until == 0;
}

/* The leader gets the next of what a server has forwarded. */
void
model_step_forward(void *server)
{
	decide(queue_pop(&((ModelServer *) server)->forwarded));
}

/* A server, or the leader itself, has something to say of a session. */
static void
forward_for(ModelSession *session, ModelKind kind, ModelServer *server)
{
	ModelPacket *packet = model_packet(kind, "/");

	packet->session = session;
	queue_push(&server->forwarded, packet);
}

/* The leader has not heard of a session for its timeout. */
void
model_expire(ModelSession *session)
{
	close_session(session, true);
	forward_for(session, MODEL_EXPIRE, model_leader);
}

/* The leader deletes a container that has had a child and has none. */
bool
model_step_reap(void)
{
	for (int i = 0; i < model_truth->n; i++)
	{
		const ModelNode *node = model_truth->nodes[i];

		if (node->container && node->stat.numChildren == 0 && node->stat.cversion > 0)
		{
			append(model_packet(MODEL_DELETE, node->path));
			return true;
		}
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Time
 * ------------------------------------------------------------------------
 */

/* When a server can apply the next entry of the log, us */
int64_t
model_apply_at(const ModelServer *server)
{
	const ModelPacket *next = queue_first(&server->log);

	return next && server->cut_off_until == 0 ? next->decided_at + server->lag : INT64_MAX;
}

/* When the leader does something next by itself, us */
int64_t
model_next_timer(void)
{
	int64_t next = next_ping;

	for (const ModelSession *s = model_sessions; s; s = s->next)
	{
		if (!s->closing && s->expires_at < next)
			next = s->expires_at;
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

static void
answer_read(ModelPacket *packet)
{
	ModelConnection *connection = packet->connection;

	packet->tree = connection->server->applied->tree;
	for (ModelOp *op = packet->ops; op < packet->ops + packet->nops; op++)
	{
		ModelNode *node = tree_find(packet->tree, op->path);

		if (op->kind == MODEL_SET_WATCHES)
			restore_watch(connection, op, node, packet->zxid);
		else if (op->kind == MODEL_UNWATCH)
			packet->code =
				model_watch_take(&connection->watches, op->path, op->watch) ? ZOK : ZNOWATCHER;
		else if (op->kind != MODEL_PING)
		{
			op->node = node;
			packet->code = node ? ZOK : ZNONODE;
			if (node && op->watch)
				model_watch_set(&connection->watches, op->path, op->watch);
		}
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
	}
}

/* ------------------------------------------------------------------------
 * A server applies the log
 * ------------------------------------------------------------------------
 */

static void
fire(const ModelServer *server, int event, const char *path)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->server == server && model_watch_take(&c->watches, path, model_event_fires(event)))
			send_event(c, event, path);
	}
}

static void
fire_for(const ModelServer *server, const ModelOp *op)
{
	if (op->kind == MODEL_SET)
		fire(server, ZOO_CHANGED_EVENT, op->path);
	if (op->kind == MODEL_DELETE)
		fire(server, ZOO_DELETED_EVENT, op->path);
	if (op->kind == MODEL_CREATE || op->kind == MODEL_DELETE)
		fire(server, ZOO_CHILD_EVENT, op->node->parent);
}

/* The leader's ping: the server answers with those that it has heard of since the last one. */
static void
answer_ping(ModelServer *server)
{
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		ModelPart *part = part_of(s, server);

		if (part->heard == 0)
			continue;

		/* A touch that comes just then is lost; two in a row would be against all odds. */
		part->lost = !part->lost && part->heard == 1 && sim_one_in(40);
		if (!part->lost)
			forward_for(s, MODEL_TOUCH, server);
		part->heard = 0;
	}
}

/* A server applies the next entry of the log. */
void
model_step_apply(void *which)
{
	ModelServer	 *server = which;
	ModelPacket	 *packet = queue_pop(&server->log);
	ModelSession *session = packet->session;
	ModelQueue	 *pending = session ? &part_of(session, server)->pending : NULL;

	server->applied = packet;
	for (int i = 0; i < packet->nops && packet->code == ZOK; i++)
		fire_for(server, &packet->ops[i]);
	if (packet->ops[0].kind == MODEL_PING)
		answer_ping(server);
	if (packet->ops[0].kind == MODEL_BEGIN && packet->connection->server == server)
		finish_handshake(packet);
	if (pending && queue_first(pending) == packet)
	{
		(void) queue_pop(pending);
		answer(packet);
		answer_reads(pending);
	}
	if (ends_session(packet) && packet->code == ZOK)
		break_session(server, session);
}

/* ------------------------------------------------------------------------
 * Connections
 * ------------------------------------------------------------------------
 */

/* Returns NULL if the server takes no connections. */
ModelConnection *
model_connect(ModelServer *server, int client, int64_t session, int64_t timeout, int64_t seen)
{
	ModelPacket		*packet;
	ModelConnection *connection;

	if (server->down)
		return NULL;
	packet = model_packet(MODEL_BEGIN, "/");
	connection = calloc(1, sizeof(ModelConnection));
	*connection = (ModelConnection){.next = model_connections,
									.server = server,
									.client = client,
									.offered = session,
									.timeout = timeout};
	model_connections = connection;
	packet->zxid = seen;
	queue_push(&connection->sent, packet);
	return connection;
}

/* A server gets what it has been asked for a session. */
static void
take_up(ModelSession *session, ModelServer *server, ModelPacket *packet)
{
	ModelPart *part = part_of(session, server);

	if (server == model_leader)
		touch(session);
	else
		part->heard++;
	packet->session = session;
	queue_push(&part->pending, packet);
	if (leader_decides(packet))
		queue_push(&server->forwarded, packet);
	answer_reads(&part->pending);
}

bool
model_can_step_connection(const ModelConnection *connection)
{
	return !connection->broken && connection->stalled_until <= model_now &&
		   queue_first(&connection->sent);
}

/*
 * The former leader admits a client, which no other server hears of; it takes a session for one
 * that has ended if that has begun since.
 */
static void
admit(ModelPacket *packet)
{
	ModelSession *session = model_session(packet->connection->offered);

	if (session == NULL)
		return;
	if (session->began <= packet->connection->server->applied->zxid)
		packet->session = session;
	else
		packet->code = ZSESSIONEXPIRED;
	finish_handshake(packet);
}

/* A server gets the next that the client has sent. */
void
model_step_connection(void *which)
{
	ModelConnection *connection = which;
	ModelServer		*server = connection->server;
	ModelPacket		*packet = queue_pop(&connection->sent);

	packet->connection = connection;
	if (packet->ops[0].kind != MODEL_BEGIN)
		take_up(connection->session, server, packet);
	else if (packet->zxid > server->applied->zxid)
		break_at_server(connection);
	else if (server == model_deposed)
		admit(packet);
	else
		queue_push(&server->forwarded, packet);
}

/* It breaks: the server gets some of what is on its way, and the client, too. */
void
model_break(ModelConnection *connection)
{
	ModelQueue *received = &connection->received;

	while (queue_first(&connection->sent) && sim_one_in(2))
		model_step_connection(connection);
	break_at_server(connection);
	received->end -= sim_below(queue_length(received) + 1);
}

/* The client has no more to do with it. */
void
model_leave(ModelConnection *connection)
{
	ModelConnection **link = &model_connections;

	if (!connection->broken)
		model_break(connection);
	while (*link != connection)
		link = &(*link)->next;
	*link = connection->next;
}

/* ------------------------------------------------------------------------
 * Servers that fail
 * ------------------------------------------------------------------------
 */

/* All connections of a server break. */
void
model_stop_server(const ModelServer *server)
{
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->server == server && !c->broken)
			model_break(c);
	}
}

/* A server hears who leads.  What it has forwarded and is not in the log is lost. */
void
model_reset_server(ModelServer *server)
{
	model_stop_server(server);
	server->forwarded = (ModelQueue){0};
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		part_of(s, server)->pending = (ModelQueue){0};
		part_of(s, server)->heard = 0;
	}
	server->cut_off_until = 0;
	if (server == model_deposed)
		model_deposed = NULL;
}

/* Another server leads. */
void
model_new_leader(ModelServer *server)
{
	for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
		model_reset_server(s);
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
model_start(int64_t tick_)
{
	tick = tick_;
	next_ping = sim_below(tick / 2);
	last_session = INT64_C(1) << 56;
	model_last_zxid = INT64_C(1) << 32;
	model_truth = tree_new();
	append(model_packet(MODEL_PING, "/"));
	for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
		s->applied = queue_pop(&s->log);
}

/* Is nothing under way? */
bool
model_is_idle(void)
{
	for (const ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
	{
		if (queue_first(&s->forwarded) || queue_first(&s->log))
			return false;
	}
	for (const ModelConnection *c = model_connections; c; c = c->next)
	{
		if (queue_first(&c->sent) || queue_first(&c->received))
			return false;
	}
	return true;
}
