/*
 * zk_callback.c
 *		Functions that the client library's threads call.
 *
 * They copy their arguments into an event and push that.  They check as much as
 * it takes to copy without a crash; the main loop, which knows what was asked
 * for, checks the rest.
 *
 * There is one watcher function for all that is watched with a handle, and one
 * context (trap 10).
 *
 * Runs in: the worker, in the library's completion thread.  Nothing of
 * PostgreSQL is called.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_callback.h"
#include "zk/zk_event.h"

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

void
zk_callback_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.path = path, .stat = stat}, context, EVENT_AT_ONCE);
}

/* Likewise, when the call behind it is answered next. */
void
zk_callback_created_followed(int code, const char *path, const struct Stat *stat, const void *context)
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
void
zk_callback_content(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_data(code, value, len, ZK_DATA_MAX, stat, context);
}

/* Hands on all of it. */
void
zk_callback_whole(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_data(code, value, len, PG_INT32_MAX, stat, context);
}

void
zk_callback_appended(int code, const void *append)
{
	ZkAppend *done = unconstify(ZkAppend *, (const ZkAppend *) append);

	done->path[sizeof(done->path) - 1] = '\0';
	push_reply(code, &(Reply){.path = done->path}, zk_callback_context(done->number), EVENT_AT_ONCE);
	free(done);
}

void
zk_callback_stat(int code, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Reply){.stat = stat}, context, EVENT_AT_ONCE);
}

void
zk_callback_children(int code, const struct String_vector *children, const struct Stat *stat,
					 const void *context)
{
	push_reply(code, &(Reply){.children = children, .stat = stat}, context, EVENT_AT_ONCE);
}

void
zk_callback_done(int code, const void *context)
{
	push_reply(code, &(Reply){0}, context, EVENT_AT_ONCE);
}

void
zk_callback_synced(int code, const char *path, const void *context)
{
	push_reply(code, &(Reply){0}, context, EVENT_AT_ONCE);
}

void
zk_callback_event(zhandle_t *zh, int type, int state, const char *path, void *context)
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
