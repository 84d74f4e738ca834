/*
 * call_batch.c
 *		What a session asks in one go: its operations are sent together, and the answers
 *		are kept until all have come.
 *
 * Runs in: the worker.  It reads those members of a slot that belong to the batch
 * (call.h), which no process changes once the batch is sent.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "utils/memutils.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* An operation under way */
typedef struct Operation
{
	CallWork			*work;
	const CallOperation *asked; /* in the slot, as is its path */
	const char			*path;
} Operation;

/* Returns a pointer that is valid until more is added to the answer. */
static CallResult *
result_of(const Operation *operation)
{
	CallResult *results = (CallResult *) operation->work->answer.data;

	return &results[operation - operation->work->operations];
}

static CallOutcome
outcome_of(const ZkReply *reply, const Operation *operation)
{
	ZkOperation kind = operation->asked->kind;

	/*
	 * A server says so of a local session, which may not have the marker node.  Nothing was
	 * done.  The library says so after the event that ends the session, too late for us.
	 */
	if (reply->code == ZK_EXPIRED && operation->work->slot->next_marker[0] != '\0')
		return CALL_REFUSED;
	if (reply->outcome != CALL_REFUSED)
		return reply->outcome;

	/* A write may have been made, even if a server that broke down says something else. */
	if (reply->code == ZK_BAD_VERSION)
		return CALL_BAD_VERSION;
	if (reply->code == ZK_NOT_EMPTY)
		return CALL_NOT_EMPTY;
	return zk_error_is_breakdown(reply->code) && !call_is_read(kind) ? CALL_UNKNOWN : CALL_REFUSED;
}

/* Stores an operation's result.  A refusal keeps the stat of an earlier look, if any. */
static void
set_result(Operation *operation, const ZkReply *reply)
{
	CallResult *result = result_of(operation);
	int			sync_code = operation->work->sync_code;

	result->outcome = sync_code != 0 ? CALL_REFUSED : outcome_of(reply, operation);
	result->code = sync_code != 0 ? sync_code : reply->code;
	result->watching = reply->watching;
	if (reply->outcome == CALL_OK)
		result->stat = reply->stat;
}

/* Adds to the answer, unless it gets too long to be delivered. */
static void
keep_bytes(CallWork *work, const char *text, Size length)
{
	work->too_long |= work->answer.len + length > CALL_MAX_ANSWER;
	if (!work->too_long)
		appendBinaryStringInfo(&work->answer, text, (int) length);
}

/* Keeps the text of an answer, behind those of earlier ones. */
static void
keep_text(Operation *operation, const ZkReply *reply)
{
	CallWork   *work = operation->work;
	ZkOperation kind = operation->asked->kind;
	uint32		begin = work->answer.len;
	CallResult *result;

	for (int i = 0; i < reply->nchildren; i++)
		keep_bytes(work, reply->children[i], strlen(reply->children[i]) + 1);
	if (kind == ZK_GET_DATA && reply->data)
		keep_bytes(work, reply->data, reply->data_length);
	if ((kind == ZK_APPEND || kind == ZK_CREATE_SEQUENTIAL) && reply->outcome == CALL_OK)
	{
		const char *name = strrchr(reply->path, '/') + 1;

		keep_bytes(work, name, strlen(name) + 1);
	}
	result = result_of(operation);
	result->nchildren = reply->nchildren;
	result->text = begin;
	result->text_length = work->answer.len - begin;
}

/* Handles the reply to an operation, which may be that there will be no answer. */
static void
on_reply(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	CallWork			*work = operation->work;
	const CallOperation *wanted = operation->asked;

	set_result(operation, reply);
	keep_text(operation, reply);
	if (wanted->kind == ZK_WATCH_DATA || wanted->watch)
		worker_queue_waits_answered(operation->path,
									wanted->kind == ZK_WATCH_DATA ? WATCHED_CLAIM : WATCHED_QUEUE,
									work->slot, reply);
	if (wanted->kind == ZK_REMOTE_WAITS && reply->outcome == CALL_OK &&
		call_slot_state(work->slot) != CALL_GIVEN_UP)
		engine_note_remote_waits();
	worker_marker_created(work->slot, wanted->kind,
						  reply->outcome == CALL_OK && wanted->kind == ZK_CREATE_SEQUENTIAL
							  ? reply->path
							  : operation->path,
						  reply);

	if (reply->outcome == CALL_UNKNOWN)
		work->lost |= result_of(operation)->outcome == CALL_UNKNOWN;
	if (--work->pending == 0)
		call_slot_mark(work->slot);
}

/*
 * Handles the reply to the sync before a batch.  The batch is made again if the sync was
 * repeated, as its reads came first then, or if what became of it is not known; else a refusal
 * is theirs.
 */
static void
on_batch_synced(void *arg, const ZkReply *reply)
{
	CallWork *work = arg;
	int		  n = work->slot->noperations;

	work->lost |= reply->outcome == CALL_UNKNOWN || work->pending <= n;
	if (reply->outcome == CALL_REFUSED)
		work->sync_code = reply->code;
	if (--work->pending == 0)
		call_slot_mark(work->slot);
}

/*
 * Asks for the data, unless they are too long: ZooKeeper sends data whole, and heartbeats come
 * behind.
 */
static void
on_stat_read(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;
	ZkCall	   next = *reply->asked;

	if (reply->outcome == CALL_OK && reply->stat.data_length > 0 &&
		reply->stat.data_length <= operation->asked->most && zk_client_connected())
	{
		set_result(operation, reply);
		next.kind = ZK_GET_DATA;
		zk_call(next, on_reply, operation);
	}
	else
		on_reply(operation, reply);
}

/* Replaces a node by one with the ACL that has been read. */
static void
on_acl_read(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;
	ZkCall	   next = *reply->asked; /* with the new node's data */

	if (reply->outcome != CALL_OK)
		on_reply(operation, reply);
	else if (!zk_client_connected())
		on_reply(operation, &(ZkReply){.outcome = CALL_UNKNOWN, .code = ZK_CONNECTION_LOSS});
	else
	{
		next.kind = ZK_CREATE_RECORD;
		next.other = reply->data;
		zk_call(next, on_reply, operation);
	}
}

/* How each kind of operation is sent to ZooKeeper, as a rule */
static const ZkCall calls[] = {
	[ZK_EXISTS] = {.kind = ZK_EXISTS},
	[ZK_GET_DATA] = {.kind = ZK_GET_DATA, .bulky = true},
	[ZK_GET_CHILDREN] = {.kind = ZK_GET_CHILDREN, .bulky = true},
	[ZK_CREATE] = {.kind = ZK_CREATE, .node_kind = ZK_PERSISTENT},
	[ZK_CREATE_CONTAINER] = {.kind = ZK_CREATE, .node_kind = ZK_CONTAINER},
	[ZK_CREATE_SEQUENTIAL] = {.kind = ZK_CREATE, .node_kind = ZK_PERSISTENT_SEQUENTIAL},
	[ZK_CREATE_RECORD] = {.kind = ZK_CREATE_RECORD},
	[ZK_REPLACE_RECORD] = {.kind = ZK_GET_ACL},
	[ZK_SET_DATA] = {.kind = ZK_SET_DATA},
	[ZK_DELETE] = {.kind = ZK_DELETE},
	[ZK_APPEND] = {.kind = ZK_APPEND},
	[ZK_REMOVE] = {.kind = ZK_REPLACE, .node_kind = ZK_EPHEMERAL},
	[ZK_PUBLISH] = {.kind = ZK_CREATE, .node_kind = ZK_EPHEMERAL},
	[ZK_PIN] = {.kind = ZK_CREATE, .node_kind = ZK_EPHEMERAL},
	[ZK_WATCH_DATA] = {.kind = ZK_EXISTS},
	[ZK_REMOTE_WAITS] = {.kind = ZK_SYNC},
};

static void
begin_operation(Operation *operation)
{
	const CallOperation *wanted = operation->asked;
	CallSlot			*slot = operation->work->slot;
	ZkReplyHandler		 handler = on_reply;
	ZkCall				 call = calls[wanted->kind];

	call.owner = (ZkOwner){slot->pid, slot->role};
	call.path = operation->path;
	call.data = call_slot_text(slot, &slot->batch_room) + wanted->data;
	call.data_length = (int) wanted->data_length;
	call.version = wanted->version;
	if (wanted->kind == ZK_GET_DATA && wanted->most != CALL_ANY_LENGTH)
	{
		call.kind = ZK_EXISTS;
		call.bulky = false;
		handler = on_stat_read;
	}
	else if (wanted->kind == ZK_REPLACE_RECORD)
		handler = on_acl_read;
	else if (wanted->kind == ZK_GET_CHILDREN)
		call.watch = wanted->watch && worker_queue_waits_watch(call.path, WATCHED_QUEUE, slot);
	else if (wanted->kind == ZK_WATCH_DATA && worker_queue_waits_watch(call.path, WATCHED_CLAIM, slot))
	{
		call.kind = ZK_GET_DATA;
		call.watch = true;
	}
	else if (wanted->kind == ZK_APPEND)
		call.other = slot->marker;
	else if (wanted->kind == ZK_REMOVE)
	{
		call.other = call.path;
		call.path = slot->marker;
		call.also = wanted->data_length > 0 ? call.data : NULL;
		call.data = NULL;
		call.data_length = 0;
	}
	else if (wanted->kind == ZK_PUBLISH && slot->replaced_marker[0] != '\0')
	{
		call.kind = ZK_REPLACE;
		call.other = slot->replaced_marker;
		call.version = ZK_ANY_VERSION;
	}
	zk_call(call, handler, operation);
}

/*
 * Sends all operations of a slot's batch.  When each has been answered, or will not be, the
 * slot is marked.
 */
void
worker_batch_send(CallWork *work)
{
	CallSlot	 *slot = work->slot;
	int			  n = slot->noperations;
	char		 *text = call_slot_text(slot, &slot->batch_room);
	MemoryContext old;

	work->context = AllocSetContextCreate(CurrentMemoryContext, "zklock call", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(work->context);
	work->operations = palloc0(n * sizeof(Operation));
	work->pending = n;
	work->too_long = false;
	initStringInfo(&work->answer);
	keep_bytes(work, palloc0(n * sizeof(CallResult)), n * sizeof(CallResult));
	MemoryContextSwitchTo(old);
	worker_marker_sent(slot);
	work->sync_code = 0;
	if (slot->after_sync)
	{
		work->pending++;
		zk_call((ZkCall){.kind = ZK_SYNC, .owner = {slot->pid, slot->role}, .path = "/"},
				on_batch_synced, work);
	}
	for (int i = 0; i < n; i++)
	{
		const CallOperation *asked = &((CallOperation *) text)[i];

		work->operations[i] = (Operation){work, asked, text + asked->path};
		begin_operation(&work->operations[i]);
	}
}
