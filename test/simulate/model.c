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
 *	  timeout, and all connections break.
 *
 * What it leaves out: ACLs, quotas, TTL nodes, servers that lose their memory, a deposed
 * leader that goes on answering.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024

typedef struct Tree
{
	ModelNode *buckets[BUCKETS];
	int		   nnodes;
} Tree;

typedef struct Change
{
	ModelKind kind; /* CREATE, DELETE, SET */
	char	 *path;
	char	 *data;
	int		  length;
	bool	  container;
	int64_t	  owner;
	int64_t	  time; /* ms */
} Change;

typedef struct Entry
{
	int64_t		  zxid;
	int64_t		  at; /* us */
	int			  nchanges;
	Change		 *changes;
	int			  server;  /* that is to answer the request */
	ModelRequest *request; /* NULL if there is none, or none any more */
	ModelMessage *answer;
	ModelSession *closed; /* session that ends here, or NULL */
	bool		  is_ping;
} Entry;

typedef struct Server
{
	Tree		  tree;
	int64_t		  applied; /* number of entries */
	int64_t		  zxid;
	ModelRequest *forwarded; /* on their way to the leader */
	ModelRequest *forwarded_last;
} Server;

int64_t			 model_now;
int				 model_leader;
ModelSession	*model_sessions;
ModelConnection *model_connections;
bool			 model_cut_off[MODEL_SERVERS];
bool			 model_down[MODEL_SERVERS];
int64_t			 model_lag[MODEL_SERVERS];

static ModelHooks hooks;
static int64_t	  tick;
static int64_t	  next_ping;
static Tree		  truth;
static Server	  servers[MODEL_SERVERS];
static Entry	 *entries; /* of the log, from "first" on */
static int64_t	  first;
static int64_t	  appended; /* number of all */
static int64_t	  room;
static int64_t	  last_zxid;
static int64_t	  next_session;
static uint64_t	  next_connection;

static char *
copy(const char *data, int length)
{
	char *copied = malloc(length + 1);

	memcpy(copied, data, length);
	copied[length] = '\0';
	return copied;
}

static uint64_t
below(uint64_t n)
{
	return hooks.random() % n;
}

/* ------------------------------------------------------------------------
 * Trees
 * ------------------------------------------------------------------------
 */

uint32_t
model_hash(const char *path)
{
	uint32_t hash = 2166136261u;

	for (; *path; path++)
		hash = (hash ^ (unsigned char) *path) * 16777619u;
	return hash;
}

static ModelNode *
find_hashed(const Tree *tree, const char *path, uint32_t hash)
{
	ModelNode *node = tree->buckets[hash % BUCKETS];

	while (node && (node->hash != hash || strcmp(node->path, path) != 0))
		node = node->chain;
	return node;
}

static ModelNode *
find(const Tree *tree, const char *path)
{
	return find_hashed(tree, path, model_hash(path));
}

/* Copies the path of the parent; "" is the root's parent. */
static void
parent_of(char *dst, size_t size, const char *path)
{
	char *slash;

	snprintf(dst, size, "%s", path);
	slash = strrchr(dst, '/');
	slash[slash == dst && path[1] != '\0'] = '\0';
}

static ModelNode *
find_parent(const Tree *tree, const char *path)
{
	char parent[2048];

	parent_of(parent, sizeof(parent), path);
	return find(tree, parent);
}

static ModelNode *
add(Tree *tree, const Change *change, int64_t zxid)
{
	ModelNode *node = calloc(1, sizeof(ModelNode));
	ModelNode *parent = find_parent(tree, change->path);

	node->path = strdup(change->path);
	node->hash = model_hash(node->path);
	node->chain = tree->buckets[node->hash % BUCKETS];
	tree->buckets[node->hash % BUCKETS] = node;
	tree->nnodes++;
	node->container = change->container;
	node->owner = change->owner;
	if (change->data)
		node->data = copy(change->data, change->length);
	node->stat = (struct Stat){.czxid = zxid,
							   .mzxid = zxid,
							   .pzxid = zxid,
							   .ctime = change->time,
							   .mtime = change->time,
							   .ephemeralOwner = change->owner,
							   .dataLength = change->length};
	node->parent = parent;
	if (parent)
	{
		node->behind = parent->children;
		if (node->behind)
			node->behind->before = node;
		parent->children = node;
		parent->stat.numChildren++;
		parent->stat.cversion++;
		parent->stat.pzxid = zxid;
	}
	return node;
}

static void
drop(Tree *tree, ModelNode *node, int64_t zxid)
{
	ModelNode **link = &tree->buckets[node->hash % BUCKETS];

	while (*link != node)
		link = &(*link)->chain;
	*link = node->chain;
	tree->nnodes--;
	if (node->before)
		node->before->behind = node->behind;
	else
		node->parent->children = node->behind;
	if (node->behind)
		node->behind->before = node->before;
	node->parent->stat.numChildren--;
	node->parent->stat.pzxid = zxid;
	free(node->path);
	free(node->data);
	free(node);
}

static void
apply(Tree *tree, const Change *change, int64_t zxid)
{
	ModelNode *node;

	if (change->kind == MODEL_CREATE)
	{
		(void) add(tree, change, zxid);
		return;
	}
	node = find(tree, change->path);
	if (change->kind == MODEL_DELETE)
		drop(tree, node, zxid);
	else
	{
		free(node->data);
		node->data = change->data ? copy(change->data, change->length) : NULL;
		node->stat.mzxid = zxid;
		node->stat.mtime = change->time;
		node->stat.version++;
		node->stat.dataLength = change->length;
	}
}

/* As ZooKeeper shows it: creations and deletions count. */
static struct Stat
shown(const ModelNode *node)
{
	struct Stat stat = node->stat;

	stat.cversion = 2 * stat.cversion - stat.numChildren;
	return stat;
}

/* ------------------------------------------------------------------------
 * Requests and messages
 * ------------------------------------------------------------------------
 */

void
model_op_set(ModelOp *op, ModelKind kind, const char *path)
{
	*op = (ModelOp){.kind = kind, .path = strdup(path), .version = -1};
}

void
model_op_data(ModelOp *op, const char *data, int length)
{
	op->data = data ? copy(data, length) : NULL;
	op->length = data ? length : 0;
}

ModelRequest *
model_request(ModelKind kind, const char *path)
{
	ModelRequest *request = calloc(1, sizeof(ModelRequest));

	request->nops = 1;
	request->ops = calloc(1, sizeof(ModelOp));
	model_op_set(&request->ops[0], kind, path);
	return request;
}

static void
free_watches(ModelWatch *watches)
{
	while (watches)
	{
		ModelWatch *next = watches->next;

		free(watches->path);
		free(watches);
		watches = next;
	}
}

void
model_request_free(ModelRequest *request)
{
	for (int i = 0; i < request->nops; i++)
	{
		free(request->ops[i].path);
		free(request->ops[i].data);
	}
	free(request->ops);
	free_watches(request->watches);
	free(request->touched);
	free(request);
}

void
model_message_free(ModelMessage *message)
{
	free(message->path);
	free(message->data);
	free(message->children);
	free(message);
}

static void
say(ModelConnection *to, ModelMessage *message)
{
	if (to->received_last)
		to->received_last->next = message;
	else
		to->received = message;
	to->received_last = message;
}

static ModelMessage *
new_message(ModelNews news)
{
	ModelMessage *message = calloc(1, sizeof(ModelMessage));

	message->news = news;
	return message;
}

static ModelConnection *
connection_by_number(uint64_t number)
{
	ModelConnection *connection = model_connections;

	while (connection && connection->number != number)
		connection = connection->next;
	return connection && !connection->broken ? connection : NULL;
}

/* Copies the children's names. */
static void
list_children(ModelMessage *message, const ModelNode *node)
{
	size_t size = 0;
	char  *string;
	int	   n = 0;

	for (const ModelNode *child = node->children; child; child = child->behind)
		size += sizeof(char *) + strlen(strrchr(child->path, '/'));
	message->nchildren = node->stat.numChildren;
	message->children = malloc(size + 1);
	string = (char *) (message->children + message->nchildren);
	for (const ModelNode *child = node->children; child; child = child->behind)
	{
		message->children[n++] = string;
		string = stpcpy(string, strrchr(child->path, '/') + 1) + 1;
	}
}

/* ------------------------------------------------------------------------
 * Watches, as a server has them
 * ------------------------------------------------------------------------
 */

static void
set_watch(ModelConnection *connection, const char *path, bool children)
{
	uint32_t	hash = model_hash(path);
	ModelWatch *watch = connection->watches;

	while (watch &&
		   (watch->hash != hash || watch->children != children || strcmp(watch->path, path) != 0))
		watch = watch->next;
	if (watch)
		return;
	watch = malloc(sizeof(ModelWatch));
	*watch = (ModelWatch){.next = connection->watches,
						  .children = children,
						  .hash = hash,
						  .path = strdup(path)};
	connection->watches = watch;
}

/* Removes a watch; returns whether it was there. */
static bool
take_watch(ModelConnection *connection, const char *path, uint32_t hash, bool children)
{
	for (ModelWatch **link = &connection->watches; *link; link = &(*link)->next)
	{
		ModelWatch *watch = *link;

		if (watch->hash != hash || watch->children != children || strcmp(watch->path, path) != 0)
			continue;
		*link = watch->next;
		free(watch->path);
		free(watch);
		return true;
	}
	return false;
}

static void
tell_event(ModelConnection *connection, int event, const char *path, int64_t zxid)
{
	ModelMessage *message = new_message(NEWS_EVENT);

	message->event = event;
	message->path = strdup(path);
	message->zxid = zxid;
	say(connection, message);
}

/* Fires the watches of a server on a path, of one kind or both. */
static void
fire(int server, int event, const char *path, bool data, bool children, int64_t zxid)
{
	uint32_t hash = model_hash(path);

	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		bool fires;

		if (c->server != server || c->broken || c->watches == NULL)
			continue;
		fires = data && take_watch(c, path, hash, false);
		fires |= children && take_watch(c, path, hash, true);
		if (fires)
			tell_event(c, event, path, zxid);
	}
}

static void
fire_for(int server, const Change *change, int64_t zxid)
{
	char parent[2048];

	if (change->kind == MODEL_SET)
	{
		fire(server, ZOO_CHANGED_EVENT, change->path, true, false, zxid);
		return;
	}
	if (change->kind == MODEL_DELETE)
		fire(server, ZOO_DELETED_EVENT, change->path, true, true, zxid);
	parent_of(parent, sizeof(parent), change->path);
	fire(server, ZOO_CHILD_EVENT, parent, false, true, zxid);
}

/* The client comes with its watches from another connection. */
static void
restore_watches(ModelConnection *connection, const ModelRequest *request)
{
	const Server *server = &servers[connection->server];

	for (const ModelWatch *watch = request->watches; watch; watch = watch->next)
	{
		const ModelNode *node = find(&server->tree, watch->path);

		if (node == NULL)
			tell_event(connection, ZOO_DELETED_EVENT, watch->path, server->zxid);
		else if (watch->children ? node->stat.pzxid > request->seen
								 : node->stat.mzxid > request->seen)
			tell_event(connection, watch->children ? ZOO_CHILD_EVENT : ZOO_CHANGED_EVENT,
					   watch->path, server->zxid);
		else
			set_watch(connection, watch->path, watch->children);
	}
}

/* ------------------------------------------------------------------------
 * The leader
 * ------------------------------------------------------------------------
 */

static Entry *
append(int64_t zxid)
{
	Entry *entry;
	Entry *grown;

	if (appended - first == room)
	{
		room = room ? 2 * room : 1024;
		grown = realloc(entries, room * sizeof(Entry));
		if (grown == NULL)
			abort();
		entries = grown;
	}
	entry = &entries[appended++ - first];
	*entry = (Entry){.zxid = zxid, .at = model_now};
	return entry;
}

static void
touch(ModelSession *session)
{
	if (!session->closing)
		session->expires_at = ((model_now + session->timeout) / tick + 1) * tick;
}

/* Adds a change to an entry, and to the truth. */
static void
commit(Entry *entry, Change change, const ModelSession *by, bool expired)
{
	entry->changes = realloc(entry->changes, (entry->nchanges + 1) * sizeof(Change));
	change.path = strdup(change.path);
	change.time = model_now / 1000;
	entry->changes[entry->nchanges++] = change;
	if (change.kind == MODEL_DELETE)
		hooks.deleted(find(&truth, change.path), by, expired);
	apply(&truth, &change, entry->zxid);
	if (change.kind == MODEL_CREATE)
		hooks.created(find(&truth, change.path), by);
}

/* What the operations of a request, so far, would do */
typedef struct Draft
{
	int	  n;
	char *paths[64];
	bool  exists[64];
	bool  ephemeral[64];
	int	  version[64]; /* of its data */
	bool  changed[64]; /* it was there before, and is */
} Draft;

static bool
draft_exists(const Draft *draft, const char *path)
{
	for (int i = draft->n - 1; i >= 0; i--)
	{
		if (strcmp(draft->paths[i], path) == 0)
			return draft->exists[i];
	}
	return find(&truth, path) != NULL;
}

/* How many children a path gains by it, or loses; or how many creates there are */
static int
draft_children(const Draft *draft, const char *path, bool creates)
{
	char parent[2048];
	int	 n = 0;

	for (int i = 0; i < draft->n; i++)
	{
		parent_of(parent, sizeof(parent), draft->paths[i]);
		if (!draft->changed[i] && strcmp(parent, path) == 0)
			n += draft->exists[i] ? 1 : creates ? 0 : -1;
	}
	return n;
}

static bool
draft_is_ephemeral(const Draft *draft, const char *path)
{
	const ModelNode *node = find(&truth, path);

	for (int i = draft->n - 1; i >= 0; i--)
	{
		if (strcmp(draft->paths[i], path) == 0)
			return draft->ephemeral[i];
	}
	return node && node->owner != 0;
}

static int
draft_version(const Draft *draft, const char *path)
{
	const ModelNode *node = find(&truth, path);

	for (int i = draft->n - 1; i >= 0; i--)
	{
		if (strcmp(draft->paths[i], path) == 0)
			return draft->version[i];
	}
	return node ? node->stat.version : 0;
}

static void
draft_add(Draft *draft, const char *path, bool exists, bool ephemeral, int version)
{
	draft->version[draft->n] = version;
	draft->paths[draft->n] = strdup(path);
	draft->ephemeral[draft->n] = ephemeral;
	draft->exists[draft->n++] = exists;
}

static int
check_create(Draft *draft, ModelOp *op)
{
	char			 parent[2048];
	char			 numbered[2048];
	const ModelNode *node;

	parent_of(parent, sizeof(parent), op->path);
	node = find(&truth, parent);
	if (!draft_exists(draft, parent))
		return ZNONODE;
	if (op->sequential)
	{
		snprintf(numbered, sizeof(numbered), "%s%010d", op->path,
				 (node ? node->stat.cversion : 0) + draft_children(draft, parent, true));
		free(op->path);
		op->path = strdup(numbered);
	}
	if (draft_exists(draft, op->path))
		return ZNODEEXISTS;
	if (draft_is_ephemeral(draft, parent))
		return ZNOCHILDRENFOREPHEMERALS;
	draft_add(draft, op->path, true, op->ephemeral, 0);
	return ZOK;
}

static int
check_op(Draft *draft, ModelOp *op)
{
	const ModelNode *node;
	int				 version;

	if (op->kind == MODEL_CREATE)
		return check_create(draft, op);
	if (!draft_exists(draft, op->path))
		return ZNONODE;
	node = find(&truth, op->path);
	version = draft_version(draft, op->path);
	if (op->version != -1 && op->version != version)
		return ZBADVERSION;
	if (op->kind == MODEL_SET)
	{
		draft->changed[draft->n] = true;
		draft_add(draft, op->path, true, draft_is_ephemeral(draft, op->path), version + 1);
	}
	if (op->kind != MODEL_DELETE)
		return ZOK;
	if ((node ? node->stat.numChildren : 0) + draft_children(draft, op->path, false) > 0)
		return ZNOTEMPTY;
	draft_add(draft, op->path, false, false, 0);
	return ZOK;
}

static int
check_ops(ModelRequest *request)
{
	Draft draft = {0};
	int	  code = ZOK;

	for (int i = 0; i < request->nops && code == ZOK; i++)
		code = check_op(&draft, &request->ops[i]);
	for (int i = 0; i < draft.n; i++)
		free(draft.paths[i]);
	return code;
}

static void
commit_op(Entry *entry, const ModelRequest *request, ModelOp *op)
{
	Change change = {.kind = op->kind,
					 .path = op->path,
					 .data = op->data,
					 .length = op->length,
					 .container = op->container,
					 .owner = op->ephemeral ? request->session->id : 0};

	if (op->kind == MODEL_CHECK)
		return;
	commit(entry, change, request->session, false);
	op->data = NULL; /* the change's by now */
}

/* The end of a session, which the leader has made up its mind about before */
static void
commit_end(ModelSession *session, bool expired, Entry *entry)
{
	bool found;

	do
	{
		found = false;
		for (int i = 0; i < BUCKETS && !found; i++)
		{
			for (ModelNode *node = truth.buckets[i]; node; node = node->chain)
			{
				if (node->owner != session->id)
					continue;
				commit(entry, (Change){.kind = MODEL_DELETE, .path = node->path}, session, expired);
				found = true;
				break;
			}
		}
	} while (found);
	entry->closed = session;
	session->closed = true;
	for (ModelSession **link = &model_sessions; *link; link = &(*link)->next)
	{
		if (*link == session)
		{
			*link = session->next;
			break;
		}
	}
}

/* A request has reached the leader. */
static void
decide(ModelRequest *request)
{
	ModelSession *session = request->session;
	ModelKind	  kind = request->ops[0].kind;
	int			  code = ZOK;
	Entry		 *entry;

	if (kind == MODEL_CLOSE && request->connection == 0)
	{
		/* The leader's own, of a session that has expired. */
		if (!session->closed)
			commit_end(session, true, append(++last_zxid));
		model_request_free(request);
		return;
	}
	if (session->closing || session->closed)
		code = ZSESSIONEXPIRED;
	else if (session->owner != request->server)
		code = ZSESSIONMOVED;
	else if (kind != MODEL_SYNC && kind != MODEL_CLOSE && kind != MODEL_BEGIN)
		code = check_ops(request);
	entry = append(kind == MODEL_SYNC ? last_zxid : ++last_zxid);
	entry->server = request->server;
	entry->request = request;
	entry->answer = new_message(NEWS_ANSWER);
	entry->answer->code = code;
	if (code != ZOK)
		return;
	if (kind == MODEL_CLOSE)
	{
		session->closing = true;
		hooks.session_ended(session, false);
		commit_end(session, false, entry);
		return;
	}
	if (kind == MODEL_SYNC || kind == MODEL_BEGIN)
		return;
	for (int i = 0; i < request->nops; i++)
		commit_op(entry, request, &request->ops[i]);
	if (kind == MODEL_CREATE)
		entry->answer->path = strdup(request->ops[0].path);
	if (kind == MODEL_CREATE || kind == MODEL_SET)
	{
		const ModelNode *node = find(&truth, request->ops[0].path);

		if (node)
			entry->answer->stat = shown(node);
	}
}

static void
forward(int server, ModelRequest *request)
{
	Server *at = &servers[server];

	request->next = NULL;
	if (at->forwarded_last)
		at->forwarded_last->next = request;
	else
		at->forwarded = request;
	at->forwarded_last = request;
}

bool
model_can_forward(int server)
{
	return servers[server].forwarded != NULL && !model_cut_off[server];
}

/* The leader gets the next of what a server has forwarded. */
bool
model_step_forward(int server)
{
	Server		 *from = &servers[server];
	ModelRequest *request = from->forwarded;

	if (!model_can_forward(server))
		return false;
	from->forwarded = request->next;
	if (from->forwarded == NULL)
		from->forwarded_last = NULL;
	if (request->nops > 0)
	{
		decide(request);
		return true;
	}
	for (int i = 0; i < request->ntouched; i++)
	{
		if (!request->touched[i]->closed)
			touch(request->touched[i]);
	}
	model_request_free(request);
	return true;
}

/* The leader has not heard of a session for its timeout. */
void
model_expire(ModelSession *session)
{
	ModelRequest *end = model_request(MODEL_CLOSE, "/");

	session->closing = true;
	hooks.session_ended(session, true);
	end->session = session;
	end->server = model_leader;
	forward(model_leader, end);
}

/* When a server can apply the next entry, us */
static int64_t
apply_at(int server)
{
	const Server *at = &servers[server];

	return at->applied < appended && !model_cut_off[server]
			   ? entries[at->applied - first].at + model_lag[server]
			   : INT64_MAX;
}

/* When the leader does something of its own accord next, us */
static int64_t
leader_timer(void)
{
	int64_t next = next_ping;

	for (const ModelSession *s = model_sessions; s; s = s->next)
	{
		if (!s->closing && s->expires_at < next)
			next = s->expires_at;
	}
	return next;
}

/* When anything can happen next by time alone, us */
int64_t
model_next_timer(void)
{
	int64_t next = leader_timer();

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

	while ((next = leader_timer()) <= to)
	{
		model_now = next > model_now ? next : model_now;
		if (next_ping <= model_now)
		{
			append(last_zxid)->is_ping = true;
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

/* Containers that have had a child and have none are deleted, one in a step. */
bool
model_step_reap(void)
{
	for (int i = 0; i < BUCKETS; i++)
	{
		for (ModelNode *node = truth.buckets[i]; node; node = node->chain)
		{
			if (!node->container || node->stat.numChildren > 0 || node->stat.cversion == 0)
				continue;
			commit(append(++last_zxid), (Change){.kind = MODEL_DELETE, .path = node->path},
				   NULL, false);
			return true;
		}
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

static void
break_at_server(ModelConnection *connection)
{
	connection->broken = true;
	free_watches(connection->watches);
	connection->watches = NULL;
}

/* Answers what the session has asked first, and waits for no commit any more. */
static void
answer(int server, ModelSession *session, ModelMessage *message)
{
	ModelRequest	*request = session->pending[server];
	ModelConnection *connection = connection_by_number(request->connection);

	session->pending[server] = request->behind;
	if (request->behind == NULL)
		session->pending_last[server] = NULL;
	message->number = request->number;
	message->kind = request->ops[0].kind;
	message->zxid = servers[server].zxid;
	if (connection && connection->session == session && message->code == ZSESSIONMOVED)
	{
		break_at_server(connection);
		connection = NULL;
	}
	if (connection && message->kind == MODEL_BEGIN)
		message->news = NEWS_CONNECTED;
	if (connection)
		say(connection, message);
	else
		model_message_free(message);
	model_request_free(request);
}

static ModelMessage *
read_answer(int server, ModelConnection *connection, const ModelRequest *request)
{
	ModelMessage	*message = new_message(NEWS_ANSWER);
	const ModelOp	*op = &request->ops[0];
	const ModelNode *node = find(&servers[server].tree, op->path);

	if (op->kind == MODEL_UNWATCH_DATA || op->kind == MODEL_UNWATCH_CHILDREN)
	{
		message->code = take_watch(connection, op->path, model_hash(op->path),
								   op->kind == MODEL_UNWATCH_CHILDREN)
							? ZOK
							: ZNOWATCHER;
		return message;
	}
	if (op->kind == MODEL_SET_WATCHES)
	{
		restore_watches(connection, request);
		return message;
	}
	if (node == NULL)
	{
		message->code = ZNONODE;
		return message;
	}
	message->stat = shown(node);
	if (op->kind == MODEL_READ && node->data)
	{
		message->data = copy(node->data, node->stat.dataLength);
		message->length = node->stat.dataLength;
	}
	if (op->kind == MODEL_LIST)
		list_children(message, node);
	if (request->watch)
		set_watch(connection, op->path, op->kind == MODEL_LIST);
	return message;
}

/* Answers a session's reads that wait for no write before them. */
static void
answer_reads(int server, ModelSession *session)
{
	ModelRequest *request;

	while ((request = session->pending[server]) != NULL && !request->forwarded)
	{
		ModelConnection *connection = connection_by_number(request->connection);

		answer(server, session,
			   connection ? read_answer(server, connection, request) : new_message(NEWS_ANSWER));
	}
}

bool
model_can_apply(int server)
{
	return apply_at(server) <= model_now;
}

/* The leader's ping: those that were heard of since the last one are told of. */
static void
answer_ping(int server)
{
	ModelRequest *heard = calloc(1, sizeof(ModelRequest));
	bool		  loses = below(20) == 0; /* a touch that comes just then is lost */

	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		if (!s->touched[server])
			continue;
		s->touched[server] = false;
		if (loses && below(2) == 0)
			continue;
		heard->touched = realloc(heard->touched, (heard->ntouched + 1) * sizeof(ModelSession *));
		heard->touched[heard->ntouched++] = s;
	}
	forward(server, heard);
}

/* Entries that all servers have applied are forgotten. */
static void
trim_log(void)
{
	int64_t least = appended;

	for (int i = 0; i < MODEL_SERVERS; i++)
		least = servers[i].applied < least ? servers[i].applied : least;
	if (least - first < 256)
		return;
	for (int64_t i = 0; i < least - first; i++)
	{
		for (int j = 0; j < entries[i].nchanges; j++)
		{
			free(entries[i].changes[j].path);
			free(entries[i].changes[j].data);
		}
		free(entries[i].changes);
	}
	memmove(entries, entries + (least - first), (appended - least) * sizeof(Entry));
	first = least;
}

/* A server applies the next entry of the log. */
bool
model_step_apply(int server)
{
	Server *at = &servers[server];
	Entry  *entry;

	if (!model_can_apply(server))
		return false;
	entry = &entries[at->applied++ - first];
	at->zxid = entry->zxid;
	for (int i = 0; i < entry->nchanges; i++)
	{
		apply(&at->tree, &entry->changes[i], entry->zxid);
		fire_for(server, &entry->changes[i], entry->zxid);
	}
	if (entry->is_ping)
		answer_ping(server);
	if (entry->request && entry->server == server)
	{
		ModelSession *session = entry->request->session;

		entry->request = NULL;
		answer(server, session, entry->answer);
		answer_reads(server, session);
	}
	if (entry->closed)
	{
		for (ModelConnection *c = model_connections; c; c = c->next)
		{
			if (c->session == entry->closed && c->server == server && !c->broken)
				break_at_server(c);
		}
	}
	trim_log();
	return true;
}

static ModelSession *
session_by_id(int64_t id)
{
	ModelSession *session = model_sessions;

	while (session && session->id != id)
		session = session->next;
	return session;
}

static void
begin_session(ModelConnection *connection)
{
	ModelSession *session = calloc(1, sizeof(ModelSession));
	ModelRequest *begin = model_request(MODEL_BEGIN, "/");

	session->id = ++next_session;
	for (int i = 0; i < MODEL_PASSWORD; i++)
		session->password[i] = (char) (hooks.random() | 1);
	session->timeout = connection->timeout;
	session->owner = connection->server;
	touch(session);
	session->next = model_sessions;
	model_sessions = session;
	connection->session = session;
	begin->session = session;
	begin->server = connection->server;
	begin->connection = connection->number;
	begin->forwarded = true;
	session->pending[begin->server] = session->pending_last[begin->server] = begin;
	forward(begin->server, begin);
}

/* The handshake of a session that exists, as far as the client knows */
static void
resume_session(ModelConnection *connection)
{
	ModelSession *session = session_by_id(connection->offered);

	if (session == NULL || session->closing ||
		memcmp(session->password, connection->password, MODEL_PASSWORD) != 0)
	{
		say(connection, new_message(NEWS_EXPIRED));
		break_at_server(connection);
		return;
	}
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c != connection && c->session == session && c->server == connection->server && !c->broken)
			break_at_server(c);
	}
	session->owner = connection->server;
	touch(session);
	connection->session = session;
	say(connection, new_message(NEWS_CONNECTED));
}

static void
begin_connection(ModelConnection *connection)
{
	connection->begun = true;
	if (connection->seen > servers[connection->server].zxid)
		break_at_server(connection);
	else if (connection->offered == 0)
		begin_session(connection);
	else
		resume_session(connection);
}

/* The server receives what the client has sent first. */
static void
receive_request(ModelConnection *connection)
{
	ModelRequest *request = connection->sent;
	ModelSession *session = connection->session;
	int			  server = connection->server;
	ModelKind	  kind = request->nops > 0 ? request->ops[0].kind : MODEL_LOOK;

	connection->sent = request->next;
	if (connection->sent == NULL)
		connection->sent_last = NULL;
	if (server == model_leader)
		touch(session);
	else
		session->touched[server] = true;
	if (request->nops == 0) /* a ping */
	{
		ModelMessage *pong = new_message(NEWS_ANSWER);

		pong->number = request->number;
		pong->zxid = servers[server].zxid;
		say(connection, pong);
		model_request_free(request);
		return;
	}
	request->session = session;
	request->server = server;
	request->behind = NULL;
	request->forwarded = kind <= MODEL_BEGIN;
	if (session->pending_last[server])
		session->pending_last[server]->behind = request;
	else
		session->pending[server] = request;
	session->pending_last[server] = request;
	if (request->forwarded)
		forward(server, request);
	answer_reads(server, session);
}

/*
 * Has a server forwarded all that it has received for a session?  The leader hears of the
 * session's return to it behind that, and so refuses what another server has been asked after.
 */
static bool
all_is_forwarded(int server, int64_t session)
{
	for (const ModelRequest *r = servers[server].forwarded; r; r = r->next)
	{
		if (r->session && r->session->id == session)
			return false;
	}
	return true;
}

bool
model_can_step_connection(const ModelConnection *connection)
{
	if (connection->broken || connection->stalled_until > model_now)
		return false;
	if (!connection->begun)
		return !model_cut_off[connection->server] &&
			   all_is_forwarded(connection->server, connection->offered);
	return connection->sent != NULL && connection->session != NULL;
}

bool
model_step_connection(ModelConnection *connection)
{
	if (!model_can_step_connection(connection))
		return false;
	if (!connection->begun)
		begin_connection(connection);
	else
		receive_request(connection);
	return true;
}

/* ------------------------------------------------------------------------
 * Clients
 * ------------------------------------------------------------------------
 */

ModelConnection *
model_connect(int server, int64_t session, const char *password, int64_t timeout, int64_t seen,
			  void *client)
{
	ModelConnection *connection;

	if (model_down[server])
		return NULL;
	connection = calloc(1, sizeof(ModelConnection));
	connection->number = ++next_connection;
	connection->server = server;
	connection->offered = session;
	memcpy(connection->password, password, MODEL_PASSWORD);
	connection->timeout = timeout;
	connection->seen = seen;
	connection->client = client;
	connection->next = model_connections;
	model_connections = connection;
	return connection;
}

void
model_send(ModelConnection *connection, ModelRequest *request)
{
	request->connection = connection->number;
	request->next = NULL;
	if (connection->sent_last)
		connection->sent_last->next = request;
	else
		connection->sent = request;
	connection->sent_last = request;
}

/* The next message, which is the caller's; NULL if none has arrived. */
ModelMessage *
model_receive(ModelConnection *connection)
{
	ModelMessage *message = connection->received;

	if (message)
	{
		connection->received = message->next;
		if (message->next == NULL)
			connection->received_last = NULL;
	}
	return message;
}

/* The client has no more to do with it. */
void
model_leave(ModelConnection *connection)
{
	ModelMessage *message;

	if (!connection->broken)
		model_break(connection);
	for (ModelConnection **link = &model_connections; *link; link = &(*link)->next)
	{
		if (*link == connection)
		{
			*link = connection->next;
			break;
		}
	}
	while ((message = model_receive(connection)) != NULL)
		model_message_free(message);
	free(connection);
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */

/* It breaks: the server gets some of what is on its way, and the client, too. */
void
model_break(ModelConnection *connection)
{
	int kept = 0;

	while (connection->sent && connection->begun && connection->session && below(2) == 0)
		receive_request(connection);
	break_at_server(connection);
	while (connection->sent)
	{
		ModelRequest *lost = connection->sent;

		connection->sent = lost->next;
		model_request_free(lost);
	}
	connection->sent_last = NULL;
	for (ModelMessage *m = connection->received; m; m = m->next)
		kept++;
	kept = kept > 0 ? below(kept + 1) : 0;
	for (ModelMessage **link = &connection->received; *link;)
	{
		ModelMessage *message = *link;

		if (kept-- > 0)
		{
			connection->received_last = message;
			link = &message->next;
			continue;
		}
		*link = message->next;
		model_message_free(message);
	}
	if (connection->received == NULL)
		connection->received_last = NULL;
}

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

/* Another server leads.  What was forwarded and is not in the log is lost. */
void
model_new_leader(int server)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
		model_stop_server(i);
	for (int64_t i = 0; i < appended - first; i++)
	{
		if (entries[i].request)
			model_message_free(entries[i].answer);
		entries[i].request = NULL;
	}
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		while (servers[i].forwarded)
		{
			ModelRequest *lost = servers[i].forwarded;

			servers[i].forwarded = lost->next;
			if (!lost->forwarded) /* in no session's queue */
				model_request_free(lost);
		}
		servers[i].forwarded_last = NULL;
		model_cut_off[i] = false;
	}
	model_leader = server;
	last_zxid = ((last_zxid >> 32) + 1) << 32;
	for (ModelSession *s = model_sessions; s; s = s->next)
	{
		for (int i = 0; i < MODEL_SERVERS; i++)
		{
			while (s->pending[i])
			{
				ModelRequest *lost = s->pending[i];

				s->pending[i] = lost->behind;
				model_request_free(lost);
			}
			s->pending_last[i] = NULL;
			s->touched[i] = false;
		}
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
	Change root = {.kind = MODEL_CREATE, .path = "/"};

	hooks = *hooks_;
	tick = tick_;
	last_zxid = INT64_C(1) << 32;
	next_session = INT64_C(1) << 56;
	next_ping = tick / 2;
	(void) add(&truth, &root, 0);
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		(void) add(&servers[i].tree, &root, 0);
		servers[i].zxid = last_zxid;
	}
}

const ModelNode *
model_node(const char *path)
{
	return find(&truth, path);
}

const ModelNode *
model_first_node(void)
{
	return find(&truth, "/");
}

int
model_count_nodes(void)
{
	return truth.nnodes;
}

int
model_count_watches(void)
{
	int n = 0;

	for (const ModelConnection *c = model_connections; c; c = c->next)
	{
		for (const ModelWatch *watch = c->watches; watch; watch = watch->next)
			n++;
	}
	return n;
}

int64_t
model_last_zxid(void)
{
	return last_zxid;
}

/* Is nothing under way? */
bool
model_is_idle(void)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
	{
		if (servers[i].forwarded || servers[i].applied < appended)
			return false;
	}
	for (const ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->sent || c->received || (!c->begun && !c->broken))
			return false;
	}
	return true;
}
