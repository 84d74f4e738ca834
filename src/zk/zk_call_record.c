/*
 * zk_call_record.c
 *		A call to ZooKeeper: what it asks for, of what sort it is, and whether an answer
 *		can be one to it.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_inside.h"

static uintptr_t next_number = 1; /* 0: a nudge, whose answer nobody waits for */

/*
 * Makes a call, which is in no list.  The path is copied, and so is the data, of
 * that length; it may be NULL.
 */
Call *
zk_call_new(CallKind kind, int owner, const char *path, const char *data, int length)
{
	Call *call = palloc0(sizeof(Call));

	call->kind = kind;
	call->number = next_number++;
	call->owner = owner;
	call->path = pstrdup(path);
	call->data = data ? memcpy(palloc(Max(length, 1)), data, length) : NULL;
	call->data_length = data ? length : 0;
	return call;
}

/* The call, which is under way no more, is made anew. */
void
zk_call_renumber(Call *call)
{
	call->number = next_number++;
}

void
zk_call_free(Call *call)
{
	pfree(call->path);
	if (call->data)
		pfree(call->data);
	if (call->other)
		pfree(call->other);
	pfree(call);
}

/* Does the call change a node?  A check is a write as well, but of nothing. */
bool
zk_call_is_write(const Call *call)
{
	return call->kind == CALL_CREATE || call->kind == CALL_DELETE || call->kind == CALL_EXCHANGE ||
		   call->kind == CALL_SET || call->kind == CALL_APPEND || call->kind == CALL_DELETE_BOTH;
}

/* Does it tell of a node what was read there, not what has been written? */
bool
zk_call_is_read(const Call *call)
{
	return call->kind == CALL_GET || call->kind == CALL_LOOK || call->kind == CALL_FETCH ||
		   call->kind == CALL_LIST;
}

/* Does it go out ahead of all that waits? */
bool
zk_call_is_urgent(const Call *call)
{
	return call->kind == CALL_BEAT || call->kind == CALL_SYNC;
}

/* Does it remove a watch? */
bool
zk_call_is_unwatch(const Call *call)
{
	return call->kind == CALL_UNWATCH_DATA || call->kind == CALL_UNWATCH_CHILDREN;
}

/* Do two calls set or remove the same kind of watch on the same path? */
bool
zk_call_same_watch(const Call *a, const Call *b)
{
	bool a_children = a->kind == CALL_LIST || a->kind == CALL_UNWATCH_CHILDREN;
	bool b_children = b->kind == CALL_LIST || b->kind == CALL_UNWATCH_CHILDREN;

	return a_children == b_children && strcmp(a->path, b->path) == 0;
}

/* What is wrong with the answer to a create, as a sentence, or NULL. */
static const char *
create_fault(const Call *call, const ZkReply *answer, int64 session)
{
	bool		numbered = call->node_kind == ZK_EPHEMERAL_SEQUENTIAL;
	bool		ephemeral = numbered || call->node_kind == ZK_EPHEMERAL;
	const char *fault = zk_answer_path_fault(answer->path, call->path,
											 numbered ? ANSWER_PATH_NUMBERED : ANSWER_PATH_SAME);

	if (fault == NULL)
		fault = zk_answer_new_stat_fault(answer->czxid, answer->mzxid);
	if (fault == NULL && ephemeral)
		fault = zk_answer_owner_fault(answer->ephemeral_owner, session);
	return fault;
}

/*
 * What is wrong with the answer to a call that was made in a session, as a
 * sentence, or NULL.
 */
const char *
zk_call_fault(const Call *call, const ZkReply *answer, int64 session)
{
	const char *fault = zk_answer_code_fault(answer->code);

	if (fault || zk_error_outcome(answer->code) != ZK_OK)
		return fault;
	switch (call->kind)
	{
		case CALL_CREATE:
			return create_fault(call, answer, session);
		case CALL_APPEND:
			return zk_answer_path_fault(answer->path, call->path, ANSWER_PATH_NUMBERED);
		case CALL_SET:
		case CALL_GET:
		case CALL_LOOK:
		case CALL_FETCH:
			return zk_answer_stat_fault(answer->czxid, answer->mzxid);
		case CALL_LIST:
			return zk_answer_children_fault(answer->children, answer->nchildren);
		case CALL_EXCHANGE:
		case CALL_DELETE:
		case CALL_DELETE_BOTH:
		case CALL_CHECK:
		case CALL_BEAT:
		case CALL_SYNC:
		case CALL_UNWATCH_DATA:
		case CALL_UNWATCH_CHILDREN:
			break; /* the code is all there is */
	}
	return NULL;
}
