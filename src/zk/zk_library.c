/*
 * zk_library.c
 *		Calls and answers in the client library's terms.
 *
 * Each kind of call is handed to the library in its own way.  A multi contains checks
 * of nodes, changes, deletions, and creates of persistent and ephemeral nodes; a
 * container in one would abort the process, and a create2 is not sent (trap 6).
 * Watches are set by "get" and "list" only, as "exists" would leave them on missing
 * nodes (trap 11).
 *
 * Answers come to functions that the library's threads call.  They copy their
 * arguments into an event and push that.  They check as much as it takes to copy
 * without a crash; the main loop, which knows what was asked for, checks the rest.
 * There is one watcher function for all that is watched with a handle, and one
 * context (trap 10).
 *
 * Runs in: the worker; answers and watches in the library's completion thread, where
 * nothing of PostgreSQL is called.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/node_name.h"
#include "zk/zk_inside.h"

/* What is handed on of a node's data by "get" and "read", bytes */
#define ZK_DATA_MAX 1024

/*
 * What the library writes of the answer to an append.  It may write late, or
 * never: so this is not the caller's, but goes with the completion.
 */
typedef struct ZkAppend
{
	uintptr_t		number; /* of the call */
	zoo_op_result_t results[2];
	char			path[ZKLOCK_MAX_PATH + 256]; /* of the new node, with its NUL */
} ZkAppend;

/* A number as the context of a completion */
static const void *
context_of(uintptr_t number)
{
	return (const void *) number;
}

/* ------------------------------------------------------------------------
 * Answers and watches, in the library's thread
 * ------------------------------------------------------------------------
 */

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

static AnswerStat
answer_stat(const struct Stat *stat)
{
	return (AnswerStat){.czxid = stat->czxid,
						.mzxid = stat->mzxid,
						.ephemeral_owner = stat->ephemeralOwner,
						.ctime = stat->ctime,
						.mtime = stat->mtime,
						.version = stat->version,
						.data_length = stat->dataLength,
						.child_count = stat->numChildren,
						.child_changes = stat->cversion};
}

/* All that a reply may have but data; each may be NULL. */
typedef struct Reply
{
	const char				   *path;
	const struct Stat		   *stat;
	const struct String_vector *children;
} Reply;

static void
push_reply(int code, const Reply *reply, const void *context, EventUrgency urgency)
{
	Event event = {.kind = EVENT_REPLY, .code = code, .number = (uintptr_t) context};
	bool  copied = true;

	if (code == ZOK && reply->path)
		copied = (event.text = strdup(reply->path)) != NULL;
	if (code == ZOK && reply->stat)
		event.stat = answer_stat(reply->stat);
	if (code == ZOK && reply->children)
	{
		event.fault = zk_answer_children_fault(reply->children->data, reply->children->count);
		copied = event.fault || copy_children(&event, reply->children);
	}

	/* A reply that could not be copied is as good as lost. */
	if (!copied)
		event.code = ZSYSTEMERROR;
	zk_event_push(&event, urgency);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.path = path, .stat = stat}, context, EVENT_AT_ONCE);
}

/* Likewise, when the call behind it is answered next. */
static void
on_created_followed(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.path = path, .stat = stat}, context, EVENT_BEFORE_NEXT);
}

/* Hands on up to "most" bytes of data; a server may say that there are -1. */
static void
push_data(int code, const char *value, int len, int most, const struct Stat *stat, const void *context)
{
	Event event = {.kind = EVENT_REPLY, .code = code, .number = (uintptr_t) context};

	if (code == ZOK && stat)
		event.stat = answer_stat(stat);
	if (code == ZOK && value && len > 0)
	{
		event.text_length = Min(len, most);
		event.text = malloc(event.text_length);
		if (event.text)
			memcpy(event.text, value, event.text_length);
		else
			event.code = ZSYSTEMERROR;
	}
	zk_event_push(&event, EVENT_AT_ONCE);
}

/* Hands on the beginning of the data. */
static void
on_content(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_data(code, value, len, ZK_DATA_MAX, stat, context);
}

/* Hands on all of it. */
static void
on_whole(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_data(code, value, len, PG_INT32_MAX, stat, context);
}

static void
on_appended(int code, const void *append)
{
	ZkAppend *done = unconstify(ZkAppend *, (const ZkAppend *) append);

	done->path[sizeof(done->path) - 1] = '\0';
	push_reply(code, &(Reply){.path = done->path}, context_of(done->number), EVENT_AT_ONCE);
	free(done);
}

static void
on_stat(int code, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.stat = stat}, context, EVENT_AT_ONCE);
}

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.children = children, .stat = stat}, context, EVENT_AT_ONCE);
}

static void
on_done(int code, const void *context)
{
	push_reply(code, &(Reply){0}, context, EVENT_AT_ONCE);
}

static void
on_synced(int code, const char *path, const void *context)
{
	push_reply(code, &(Reply){0}, context, EVENT_AT_ONCE);
}

void
zk_library_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Event		 event = {.kind = EVENT_WATCH, .code = type, .number = (uintptr_t) context};
	EventUrgency urgency = EVENT_AT_ONCE;

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
		if (event.text && zk_echo_is(event.text))
			urgency = EVENT_BEFORE_NEXT;
	}
	zk_event_push(&event, urgency);
}

/* ------------------------------------------------------------------------
 * Calls, in the main loop
 * ------------------------------------------------------------------------
 */

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
		case ZK_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZK_EPHEMERAL_SEQUENTIAL:
			break;
	}
	return ZOO_EPHEMERAL_SEQUENTIAL;
}

/* Creates a node with data, and its receipt. */
static int
send_append(zhandle_t *handle, const struct ACL_vector *acls, const Call *call)
{
	ZkAppend *append = calloc(1, sizeof(ZkAppend));
	zoo_op_t  ops[2];
	int		  code;

	if (append == NULL)
		return ZSYSTEMERROR;
	append->number = call->number;
	zoo_create_op_init(&ops[0], call->path, call->data, call->data_length, acls,
					   ZOO_PERSISTENT_SEQUENTIAL, append->path, sizeof(append->path));
	zoo_create_op_init(&ops[1], call->other, NULL, -1, acls, ZOO_EPHEMERAL, NULL, 0);
	code = zoo_amulti(handle, lengthof(ops), ops, append->results, on_appended, append);
	if (code != ZOK)
		free(append);
	return code;
}

/* Deletes a node, or those of several calls, all or none. */
static int
send_delete(zhandle_t *handle, const Call *first)
{
	/* Written by the library when the answer comes, if ever; never read. */
	static zoo_op_result_t results[ZK_BATCH_MAX];

	const void *context = context_of(first->number);
	zoo_op_t	ops[ZK_BATCH_MAX];
	int			nops = 0;

	if (first->next == NULL)
		return zoo_adelete(handle, first->path, -1, on_done, context);
	for (const Call *call = first; call; call = call->next)
		zoo_delete_op_init(&ops[nops++], call->path, -1);
	return zoo_amulti(handle, nops, ops, results, on_done, context);
}

/*
 * Hands a call to the library.  The answer comes as an event with its number.
 *
 * Returns an error code of the library if it does not even try.
 */
int
zk_library_send(zhandle_t *handle, uintptr_t handle_number, ZkAcl acl, const Call *call)
{
	/* Written by the library when the answer comes, if ever; never read. */
	static zoo_op_result_t results[3];
	static struct Stat	   stat;

	const void				*context = context_of(call->number);
	const struct ACL_vector *acls = acl == ZK_ACL_CREATOR ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	watcher_fn				 watcher = call->watch ? zk_library_event : NULL;
	zoo_op_t				 ops[3];
	int						 nops = 0;

	switch (call->kind)
	{
		case CALL_CREATE:
			return zoo_acreate2(handle, call->path, call->data, call->data_length, acls,
								create_mode(call->node_kind),
								call->followed ? on_created_followed : on_created, context);
		case CALL_EXCHANGE:
			zoo_create_op_init(&ops[nops++], call->path, call->data, call->data_length, acls,
							   create_mode(call->node_kind), NULL, 0);
			if (call->notice == ZK_NOTICED)
				zoo_set_op_init(&ops[nops++], call->other, call->data, call->data_length, -1, &stat);
			zoo_delete_op_init(&ops[nops++], call->other, call->version);
			return zoo_amulti(handle, nops, ops, results, on_done, context);
		case CALL_APPEND:
			return send_append(handle, acls, call);
		case CALL_DELETE_BOTH:
			zoo_delete_op_init(&ops[nops++], call->path, -1);
			zoo_delete_op_init(&ops[nops++], call->other, -1);
			return zoo_amulti(handle, nops, ops, results, on_done, context);
		case CALL_SET:
			return zoo_aset(handle, call->path, call->data, call->data_length, call->version,
							on_stat, context);
		case CALL_DELETE:
			return send_delete(handle, call);
		case CALL_GET:
			return zoo_awget(handle, call->path, watcher, (void *) handle_number, on_content, context);
		case CALL_LOOK:
			return zoo_aexists(handle, call->path, 0, on_stat, context);
		case CALL_READ:
			return zoo_aget(handle, call->path, 0, on_content, context);
		case CALL_FETCH:
			return zoo_aget(handle, call->path, 0, on_whole, context);
		case CALL_LIST:
			return zoo_awget_children2(handle, call->path, watcher, (void *) handle_number,
									   on_children, context);
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
