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
	CallWork	 *work;
	const ZkCall *asked; /* by the session, in the slot */
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
	if ((kind == ZK_APPEND ||
		 (kind == ZK_CREATE && operation->asked->node_kind == ZK_PERSISTENT_SEQUENTIAL)) &&
		reply->outcome == CALL_OK)
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
	Operation	 *operation = arg;
	CallWork	 *work = operation->work;
	const ZkCall *wanted = operation->asked;

	set_result(operation, reply);
	keep_text(operation, reply);
	if (wanted->kind == ZK_WATCH_DATA || wanted->watch)
		worker_queue_waits_answered(operation->asked->path,
									wanted->kind == ZK_WATCH_DATA ? WATCHED_CLAIM : WATCHED_QUEUE,
									work->slot, reply);
	if (wanted->kind == ZK_REMOTE_WAITS && reply->outcome == CALL_OK &&
		call_slot_state(work->slot) != CALL_GIVEN_UP)
		engine_note_remote_waits();
	worker_marker_created(work->slot, wanted, reply);
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
	int		  n = work->slot->ncalls;

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
		next.acl = reply->data;
		zk_call(next, on_reply, operation);
	}
}

/* Sends an operation; some are others for ZooKeeper. */
static void
begin_operation(Operation *operation)
{
	const ZkCall  *wanted = operation->asked;
	CallSlot	  *slot = operation->work->slot;
	ZkReplyHandler handler = on_reply;
	ZkCall		   call = *wanted;

	call.owner = (ZkOwner){slot->pid, slot->role};
	switch (wanted->kind)
	{
		case ZK_GET_DATA:
			call.bulky = wanted->most == CALL_ANY_LENGTH;
			if (call.bulky)
				break;
			call.kind = ZK_EXISTS;
			handler = on_stat_read;
			break;
		case ZK_GET_CHILDREN:
			call.bulky = true;
			call.watch = wanted->watch && worker_queue_waits_watch(call.path, WATCHED_QUEUE, slot);
			break;
		case ZK_WATCH_DATA:
			call.watch = worker_queue_waits_watch(call.path, WATCHED_CLAIM, slot);
			call.kind = call.watch ? ZK_GET_DATA : ZK_EXISTS;
			break;
		case ZK_REPLACE_RECORD:
			call.kind = ZK_GET_ACL;
			handler = on_acl_read;
			break;
		case ZK_REMOVE:
			call.kind = ZK_REPLACE;
			call.node_kind = ZK_EPHEMERAL;
			call.path = wanted->marker;
			call.replaced = wanted->path;
			break;
		case ZK_PUBLISH:
		case ZK_PIN:
			call.kind = ZK_CREATE;
			call.node_kind = ZK_EPHEMERAL;
			call.marker = NULL;
			if (wanted->kind == ZK_PIN || slot->replaced_marker[0] == '\0')
				break;
			call.kind = ZK_REPLACE;
			call.replaced = slot->replaced_marker;
			call.version = ZK_ANY_VERSION;
			break;
		case ZK_REMOTE_WAITS:
			call.kind = ZK_SYNC;
			break;
		default:
			break;
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
	int			  n = slot->ncalls;
	const ZkCall *asked = (const ZkCall *) call_slot_text(slot, &slot->batch_room);
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
		work->operations[i] = (Operation){work, &asked[i]};
		begin_operation(&work->operations[i]);
	}
}
