/*
 * zk_library.c
 *		Calls and answers in the client library's terms.
 *
 * A multi consists of checks of nodes, changes, deletions, and creates of persistent and
 * ephemeral nodes; a container in one would abort the process, and the library does not
 * send a create2 in one (trap 6).  Only ZK_GET_DATA and ZK_GET_CHILDREN set watches, because
 * "exists" would leave watches on missing nodes (trap 11).  All watches of a handle share one
 * watcher function and one context (trap 10).
 *
 * The library's thread calls a function for each answer.  This copies its arguments into
 * an event and pushes that.  It checks no more than it must to copy without a crash; the
 * main loop, which knows what was asked for, checks the rest.
 *
 * Runs in: the worker; answers and watches in the library's completion thread, where
 * nothing of PostgreSQL is called.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_internal.h"

#define STAMP_OPS 3 /* see send_creates() */

/*
 * Where the library stores the answer to creates of sequential nodes in one multi.  It may
 * write late, or never, so the completion function frees this, and not the caller.
 */
typedef struct ZkCreates
{
	uintptr_t		number; /* of the first call */
	zoo_op_result_t results[ZK_MULTI_MAX + STAMP_OPS];
	struct Stat		stat; /* of the stamp, if there is one */
	int				npaths;
	char paths[FLEXIBLE_ARRAY_MEMBER][ZKLOCK_MAX_PATH + 256]; /* of the new nodes, with NULs */
} ZkCreates;

zhandle_t *zk_handle;
uintptr_t  zk_handle_number;

static const struct ACL_vector *acls = &ZOO_OPEN_ACL_UNSAFE; /* of new nodes */

/* ------------------------------------------------------------------------
 * Answers and watches, in the library's thread
 * ------------------------------------------------------------------------
 */

/*
 * Copies strings, which have been checked, into a reply, in one block.
 * Returns false if there is no memory.
 */
static bool
copy_children(ZkReply *reply, const struct String_vector *children)
{
	size_t size = 0;
	char  *string;

	if (children->count == 0)
		return true;
	for (int i = 0; i < children->count; i++)
		size += sizeof(char *) + strlen(children->data[i]) + 1;
	reply->children = malloc(size);
	if (reply->children == NULL)
		return false;
	reply->nchildren = children->count;
	string = (char *) (reply->children + children->count);
	for (int i = 0; i < children->count; i++)
	{
		reply->children[i] = string;
		strcpy(string, children->data[i]);
		string += strlen(string) + 1;
	}
	return true;
}

static NodeStat
copy_stat(const struct Stat *stat)
{
	return (NodeStat){.czxid = stat->czxid,
					  .mzxid = stat->mzxid,
					  .ephemeral_owner = stat->ephemeralOwner,
					  .ctime = stat->ctime,
					  .mtime = stat->mtime,
					  .version = stat->version,
					  .data_length = stat->dataLength,
					  .child_count = stat->numChildren,
					  .child_changes = stat->cversion};
}

/* The parts of an answer, except its code; each pointer may be NULL. */
typedef struct Answer
{
	const char				   *path;
	const struct Stat		   *stat;
	const struct String_vector *children;
	const struct String_vector *created; /* paths of new nodes */
	const char				   *data;
	int							data_length; /* a server may say that there are -1 */
	bool						followed;	 /* the call behind it is answered next */
} Answer;

static void
push_reply(int code, const Answer *answer, const void *context)
{
	Event event = {.kind = EVENT_REPLY,
				   .can_wait = answer->followed,
				   .reply.code = code,
				   .number = (uintptr_t) context};
	bool  copied = true;

	if (code == ZOK && answer->path)
		copied = (event.reply.path = event.text = strdup(answer->path)) != NULL;
	if (code == ZOK && answer->stat)
		event.reply.stat = copy_stat(answer->stat);
	if (code == ZOK && answer->children)
	{
		event.fault = zk_answer_children_fault(answer->children->data, answer->children->count);
		copied = event.fault || copy_children(&event.reply, answer->children);
	}
	if (code == ZOK && answer->created)
		copied = copy_children(&event.reply, answer->created);
	if (code == ZOK && answer->data && answer->data_length > 0)
	{
		event.text = malloc(answer->data_length);
		copied = event.text != NULL;
		if (copied)
			event.reply.data = memcpy(event.text, answer->data, answer->data_length);
		event.reply.data_length = answer->data_length;
	}

	/* A reply that could not be copied is answered as a failure of the library. */
	if (!copied)
		event.reply.code = ZSYSTEMERROR;
	zk_event_push(&event);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.path = path, .stat = stat}, context);
}

static void
on_created_followed(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.path = path, .stat = stat, .followed = true}, context);
}

static void
on_all_created(int code, const void *creates)
{
	ZkCreates			*done = unconstify(ZkCreates *, (const ZkCreates *) creates);
	char				*paths[ZK_MULTI_MAX];
	struct String_vector created = {.count = done->npaths, .data = paths};

	for (int i = 0; i < done->npaths; i++)
	{
		paths[i] = done->paths[i];
		paths[i][sizeof(done->paths[i]) - 1] = '\0';
	}
	push_reply(code,
			   &(Answer){.created = &created, .stat = &done->stat, .followed = done->npaths > 1},
			   (const void *) done->number);
	free(done);
}

static void
on_data(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.data = value, .data_length = len, .stat = stat}, context);
}

static void
on_stat(int code, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.stat = stat}, context);
}

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.children = children, .stat = stat}, context);
}

/* Returns ZOK, or as an error code why no other node can get this entry of an ACL. */
static int
acl_entry_fault(const struct ACL *entry)
{
	const char *scheme = entry->id.scheme;
	const char *hash = entry->id.id ? strrchr(entry->id.id, ':') : NULL;

	if (scheme == NULL || entry->id.id == NULL || strpbrk(scheme, " \n") || strchr(entry->id.id, '\n'))
		return ZINVALIDACL;

	/* ZooKeeper hides hashes of passwords from those who may not change the ACL. */
	return strcmp(scheme, "digest") == 0 && hash && strcmp(hash, ":x") == 0 ? ZNOAUTH : ZOK;
}

/* Pushes an ACL as text, with one line for each entry: "permissions scheme id". */
static void
on_acl(int code, struct ACL_vector *acl, struct Stat *stat, const void *context)
{
	size_t size = 1;
	size_t length = 0;
	char  *text = NULL;

	for (int i = 0; code == ZOK && i < acl->count; i++)
	{
		code = acl->data ? acl_entry_fault(&acl->data[i]) : ZINVALIDACL;
		if (code == ZOK)
			size += sizeof("-2147483648  ") + strlen(acl->data[i].id.scheme) +
					strlen(acl->data[i].id.id);
	}
	if (code == ZOK && (text = calloc(1, size)) == NULL)
		code = ZSYSTEMERROR;
	for (int i = 0; code == ZOK && i < acl->count; i++)
		length += snprintf(text + length, size - length, "%d %s %s\n", acl->data[i].perms,
						   acl->data[i].id.scheme, acl->data[i].id.id);
	push_reply(code, &(Answer){.data = text, .data_length = (int) length + 1}, context);
	free(text);
}

static void
on_done(int code, const void *context)
{
	push_reply(code, &(Answer){0}, context);
}

static void
on_synced(int code, const char *path, const void *context)
{
	push_reply(code, &(Answer){0}, context);
}

void
zk_library_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Event event = {.kind = EVENT_WATCH, .code = type, .number = (uintptr_t) context};

	if (type == ZOO_SESSION_EVENT)
	{
		/* The handle does not know of this end: a server sent it as a watch event. */
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

/* ------------------------------------------------------------------------
 * Calls, in the main loop
 * ------------------------------------------------------------------------
 */

/* Sets the ACL of nodes that are created from now on. */
void
zk_client_set_acl(ZklockAcl acl)
{
	acls = acl == ZKLOCK_ACL_CREATOR ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

/* Returns the library's mode for a kind of node. */
static int
create_mode(ZkNodeKind kind)
{
	const int modes[] = {
		[ZK_CONTAINER] = ZOO_CONTAINER,
		[ZK_PERSISTENT] = ZOO_PERSISTENT,
		[ZK_PERSISTENT_SEQUENTIAL] = ZOO_PERSISTENT_SEQUENTIAL,
		[ZK_EPHEMERAL] = ZOO_EPHEMERAL,
		[ZK_EPHEMERAL_SEQUENTIAL] = ZOO_EPHEMERAL_SEQUENTIAL,
	};

	return modes[kind];
}

/*
 * Sends a multi, if the library is connected.  zoo_amulti() frees memory that it does not
 * own if it finds that the session is over while it composes the request (trap 21).  The
 * library's I/O thread may know that before the main loop does, but while it is connected
 * it would have to reconnect first, between our check and the request.
 */
static int
send_multi(int nops, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *context)
{
	if (zoo_state(zk_handle) != ZOO_CONNECTED_STATE)
		return ZCONNECTIONLOSS;
	return zoo_amulti(zk_handle, nops, ops, results, completion, context);
}

/*
 * Sends creates of sequential nodes in one request: of a node with its marker, or of lock
 * nodes that go out together.
 *
 * The answer to a multi contains the paths of new nodes, but not their czxid, the number of
 * the transaction, which all of them have in common.  So the multi creates, writes and
 * deletes one more node, the stamp, which nobody ever sees; the answer to the write has its
 * Stat, with that czxid.  Its path is that of the first node without the sequence.  So no
 * other node has it, and what limits the nodes there concerns the first one as well.
 */
static int
send_creates(const Call *first)
{
	bool		append = first->asked.kind == ZK_APPEND;
	const char *stamp = first->asked.path;
	zoo_op_t	ops[ZK_MULTI_MAX + STAMP_OPS];
	ZkCreates  *creates;
	int			n = 0;
	int			code;

	for (const Call *call = first; call; call = call->next)
		n++;
	creates = calloc(1, offsetof(ZkCreates, paths) + n * sizeof(creates->paths[0]));
	if (creates == NULL)
		return ZSYSTEMERROR;
	creates->number = first->number;
	for (const Call *call = first; call; call = call->next)
	{
		char *path = creates->paths[creates->npaths];

		zoo_create_op_init(&ops[creates->npaths++], call->asked.path, call->asked.data,
						   call->asked.data_length, acls,
						   append ? ZOO_PERSISTENT_SEQUENTIAL : ZOO_EPHEMERAL_SEQUENTIAL, path,
						   sizeof(creates->paths[0]));
	}
	if (append)
		zoo_create_op_init(&ops[n++], first->asked.marker, NULL, -1, acls, ZOO_EPHEMERAL, NULL, 0);
	else
	{
		zoo_create_op_init(&ops[n++], stamp, NULL, -1, acls, ZOO_EPHEMERAL, NULL, 0);
		zoo_set_op_init(&ops[n++], stamp, NULL, -1, ZK_ANY_VERSION, &creates->stat);
		zoo_delete_op_init(&ops[n++], stamp, ZK_ANY_VERSION);
	}
	code = send_multi(n, ops, creates->results, on_all_created, creates);
	if (code != ZOK)
		free(creates);
	return code;
}

/* Parses, in place, an ACL that on_acl() has written.  The result points into the text. */
static struct ACL_vector
read_acl(char *text)
{
	struct ACL_vector acl = {.data = palloc0((strlen(text) + 1) * sizeof(struct ACL))};
	char			 *rest = text;
	char			 *line;

	while ((line = strsep(&rest, "\n")) != NULL && line[0] != '\0')
	{
		struct ACL *entry = &acl.data[acl.count++];

		entry->perms = atoi(strsep(&line, " "));
		entry->id.scheme = strsep(&line, " ");
		entry->id.id = line;
	}
	return acl;
}

/*
 * Sends the create of a node and one write of its data.  If the ACL of another node is
 * given, deletes that node first, in the same step.
 */
static int
send_record(const Call *call, zoo_op_result_t *results, struct Stat *stat)
{
	const ZkCall	 *asked = &call->asked;
	char			 *text = asked->acl ? pstrdup(asked->acl) : NULL;
	struct ACL_vector own = text ? read_acl(text) : *acls;
	zoo_op_t		  ops[3];
	int				  nops = 0;
	int				  code;

	if (text)
		zoo_delete_op_init(&ops[nops++], asked->path, 0);
	zoo_create_op_init(&ops[nops++], asked->path, asked->data, asked->data_length, &own,
					   ZOO_PERSISTENT, NULL, 0);
	zoo_set_op_init(&ops[nops++], asked->path, asked->data, asked->data_length, 0, stat);
	code = send_multi(nops, ops, results, on_done, (const void *) call->number);
	if (text)
	{
		pfree(own.data);
		pfree(text);
	}
	return code;
}

/*
 * Passes a request to the library, which was made from this call and those behind it.  There
 * must be a handle.  The answer comes as an event with the call's number, also if the request
 * cannot be sent: it is answered in its turn then.
 */
void
zk_library_send(const Call *call)
{
	/* The library writes these when the answer comes, if it does; nobody reads them. */
	static zoo_op_result_t results[ZK_MULTI_MAX];
	static struct Stat	   stat;

	const ZkCall *asked = &call->asked;
	const void	 *context = (const void *) call->number;
	watcher_fn	  watcher = asked->watch ? zk_library_event : NULL;
	zoo_op_t	  ops[ZK_MULTI_MAX]; /* of a multi */
	int			  nops = 0;
	int			  code = ZOK;

	switch (asked->kind)
	{
		case ZK_CREATE:
			if (call->next)
				code = send_creates(call);
			else
				code = zoo_acreate2(zk_handle, asked->path, asked->data, asked->data_length,
									acls, create_mode(asked->node_kind),
									asked->followed ? on_created_followed : on_created, context);
			break;
		case ZK_APPEND:
			code = send_creates(call);
			break;
		case ZK_CREATE_RECORD:
			code = send_record(call, results, &stat);
			break;
		case ZK_SET_DATA:
			code = zoo_aset(zk_handle, asked->path, asked->data, asked->data_length,
							asked->version, on_stat, context);
			break;
		case ZK_EXISTS:
			code = zoo_aexists(zk_handle, asked->path, 0, on_stat, context);
			break;
		case ZK_GET_DATA:
			code = zoo_awget(zk_handle, asked->path, watcher, (void *) zk_handle_number,
							 on_data, context);
			break;
		case ZK_GET_CHILDREN:
			code = zoo_awget_children2(zk_handle, asked->path, watcher,
									   (void *) zk_handle_number, on_children, context);
			break;
		case ZK_GET_ACL:
			code = zoo_aget_acl(zk_handle, asked->path, on_acl, context);
			break;
		case ZK_SYNC:
			code = zoo_async(zk_handle, asked->path, on_synced, context);
			break;
		case ZK_UNWATCH_DATA:
		case ZK_UNWATCH_CHILDREN:
			code = zoo_aremove_all_watches(zk_handle, asked->path,
										   asked->kind == ZK_UNWATCH_DATA ? ZWATCHTYPE_DATA
																		  : ZWATCHTYPE_CHILD,
										   0, (void_completion_t *) on_done, context);
			break;
		case ZK_DELETE:
			if (call->next == NULL && asked->also_deleted == NULL)
			{
				code = zoo_adelete(zk_handle, asked->path,
								   asked->versioned ? asked->version : -1, on_done, context);
				break;
			}
			for (const Call *each = call; each; each = each->next)
				zoo_delete_op_init(&ops[nops++], each->asked.path, -1);
			if (asked->also_deleted)
				zoo_delete_op_init(&ops[nops++], asked->also_deleted, -1);
			break;
		case ZK_REPLACE:
			zoo_create_op_init(&ops[nops++], asked->path, asked->data, asked->data_length,
							   acls, create_mode(asked->node_kind), NULL, 0);
			if (asked->notice)
				zoo_set_op_init(&ops[nops++], asked->replaced, asked->data, asked->data_length,
								asked->version, &stat);
			zoo_delete_op_init(&ops[nops++], asked->replaced,
							   asked->notice ? ZK_ANY_VERSION : asked->version);
			if (asked->pin)
				zoo_delete_op_init(&ops[nops++], asked->pin, -1);
			break;
		case ZK_CHECK:
			zoo_check_op_init(&ops[nops++], asked->path, -1);
			break;
		case ZK_REPLACE_RECORD:
		case ZK_REMOVE:
		case ZK_PUBLISH:
		case ZK_PIN:
		case ZK_WATCH_DATA:
		case ZK_REMOTE_WAITS:
			break; /* the worker has made others of them */
	}
	if (nops > 0)
		code = send_multi(nops, ops, results, on_done, context);
	if (zk_error_outcome(code) != CALL_OK)
	{
		Event event = {.kind = EVENT_REPLY, .number = call->number, .reply.code = code};

		zk_event_push(&event);
	}
}
