/*
 * question.c
 *		What a session asks in one go: its operations are sent together, and the answers
 *		are kept until all have come.
 *
 * Runs in: the worker.  It reads those members of a slot that belong to the question
 * (call.h), which no process changes once the question is sent.
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
	Question *question;
} Operation;

static char *
question_text(const Operation *operation)
{
	CallSlot *slot = operation->question->slot;

	return call_slot_text(slot, &slot->question_room);
}

static const CallOperation *
asked(const Operation *operation)
{
	const CallOperation *operations = (CallOperation *) question_text(operation);

	return &operations[operation - operation->question->operations];
}

static const char *
asked_path(const Operation *operation)
{
	return question_text(operation) + asked(operation)->path;
}

/* Returns a pointer that is valid until more is added to the answer. */
static CallResult *
result_of(const Operation *operation)
{
	CallResult *results = (CallResult *) operation->question->answer.data;

	return &results[operation - operation->question->operations];
}

static CallOutcome
outcome_of(const ZkReply *reply, CallOpKind kind)
{
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

	result->outcome = outcome_of(reply, asked(operation)->kind);
	result->code = reply->code;
	result->watching = reply->watching;
	if (reply->outcome == CALL_OK)
		result->stat = reply->stat;
}

/* Adds to the answer, unless it gets too long to be delivered. */
static void
keep(Question *question, const char *text, Size length)
{
	question->too_long |= question->answer.len + length > CALL_MAX_ANSWER;
	if (!question->too_long)
		appendBinaryStringInfo(&question->answer, text, (int) length);
}

/* Keeps the text of an answer, behind those of earlier ones. */
static void
keep_text(Operation *operation, const ZkReply *reply)
{
	Question   *question = operation->question;
	CallOpKind	kind = asked(operation)->kind;
	uint32		begin = question->answer.len;
	CallResult *result;

	for (int i = 0; i < reply->nchildren; i++)
		keep(question, reply->children[i], strlen(reply->children[i]) + 1);
	if (kind == OP_READ && reply->data)
		keep(question, reply->data, reply->data_length);
	if ((kind == OP_APPEND || kind == OP_CREATE_SEQUENTIAL) && reply->outcome == CALL_OK)
	{
		const char *name = strrchr(reply->path, '/') + 1;

		keep(question, name, strlen(name) + 1);
	}
	result = result_of(operation);
	result->nchildren = reply->nchildren;
	result->text = begin;
	result->text_length = question->answer.len - begin;
}

/* Handles the reply to an operation, which may be that there will be no answer. */
static void
on_reply(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	Question			*question = operation->question;
	const CallOperation *wanted = asked(operation);

	set_result(operation, reply);
	keep_text(operation, reply);
	if (wanted->kind == OP_WATCH || wanted->watch)
		worker_seeks_answered(asked_path(operation),
							  wanted->kind == OP_WATCH ? WATCHED_CLAIM : WATCHED_QUEUE,
							  question->slot, reply);
	if (wanted->kind == OP_ABROAD && reply->outcome == CALL_OK &&
		call_slot_state(question->slot) != CALL_GIVEN_UP)
		engine_look_abroad();
	worker_scratch_created(question->slot, wanted->kind,
						   reply->outcome == CALL_OK && wanted->kind == OP_CREATE_SEQUENTIAL
							   ? reply->path
							   : asked_path(operation),
						   reply->outcome);

	question->lost |= reply->outcome == CALL_UNKNOWN;
	if (--question->pending == 0)
		call_slot_mark(question->slot);
}

/*
 * Asks for the data, unless they are too long: ZooKeeper sends data whole, and heartbeats come
 * behind.
 */
static void
on_looked(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	const CallOperation *wanted = asked(operation);
	const CallSlot		*slot = operation->question->slot;

	if (reply->outcome == CALL_OK && reply->stat.data_length > 0 &&
		reply->stat.data_length <= wanted->most && zk_client_connected())
	{
		set_result(operation, reply);
		zk_call((ZkCall){.kind = ZK_READ, .owner = {slot->pid, slot->role}, .path = asked_path(operation)},
				on_reply, operation);
	}
	else
		on_reply(operation, reply);
}

/* Replaces a node by one with the ACL that has been read. */
static void
on_acl(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	const CallOperation *wanted = asked(operation);
	const CallSlot		*slot = operation->question->slot;

	if (reply->outcome != CALL_OK)
		on_reply(operation, reply);
	else if (!zk_client_connected())
		on_reply(operation, &(ZkReply){.outcome = CALL_UNKNOWN, .code = ZK_CONNECTION_LOSS});
	else
		zk_call((ZkCall){.kind = ZK_RECORD,
						 .owner = {slot->pid, slot->role},
						 .path = asked_path(operation),
						 .other = reply->data,
						 .data = question_text(operation) + wanted->data,
						 .data_length = (int) wanted->data_length},
				on_reply, operation);
}

/* How each kind of operation is sent to ZooKeeper, as a rule */
static const ZkCall calls[] = {
	[OP_LOOK] = {.kind = ZK_LOOK},
	[OP_READ] = {.kind = ZK_READ, .bulky = true},
	[OP_LIST] = {.kind = ZK_LIST, .bulky = true},
	[OP_CREATE] = {.kind = ZK_CREATE, .node_kind = ZK_PERSISTENT},
	[OP_CREATE_CONTAINER] = {.kind = ZK_CREATE, .node_kind = ZK_CONTAINER},
	[OP_CREATE_SEQUENTIAL] = {.kind = ZK_CREATE, .node_kind = ZK_PERSISTENT_SEQUENTIAL},
	[OP_RECORD] = {.kind = ZK_RECORD},
	[OP_REPLACE] = {.kind = ZK_ACL},
	[OP_SET] = {.kind = ZK_SET},
	[OP_DELETE] = {.kind = ZK_DELETE},
	[OP_APPEND] = {.kind = ZK_APPEND},
	[OP_REMOVE] = {.kind = ZK_EXCHANGE, .node_kind = ZK_EPHEMERAL},
	[OP_PUBLISH] = {.kind = ZK_CREATE, .node_kind = ZK_EPHEMERAL},
	[OP_PIN] = {.kind = ZK_CREATE, .node_kind = ZK_EPHEMERAL},
	[OP_WATCH] = {.kind = ZK_LOOK},
	[OP_ABROAD] = {.kind = ZK_SYNC},
};

static void
begin_operation(Operation *operation)
{
	const CallOperation *wanted = asked(operation);
	CallSlot			*slot = operation->question->slot;
	ZkReplyHandler		 handler = on_reply;
	ZkCall				 call = calls[wanted->kind];

	call.owner = (ZkOwner){slot->pid, slot->role};
	call.path = asked_path(operation);
	call.data = question_text(operation) + wanted->data;
	call.data_length = (int) wanted->data_length;
	call.version = wanted->version;
	if (wanted->kind == OP_READ && wanted->most != CALL_ANY_LENGTH)
	{
		call.kind = ZK_LOOK;
		call.bulky = false;
		handler = on_looked;
	}
	else if (wanted->kind == OP_REPLACE)
		handler = on_acl;
	else if (wanted->kind == OP_LIST)
		call.watch = wanted->watch && worker_seeks_watch(call.path, WATCHED_QUEUE, slot);
	else if (wanted->kind == OP_WATCH && worker_seeks_watch(call.path, WATCHED_CLAIM, slot))
	{
		call.kind = ZK_READ;
		call.watch = true;
	}
	else if (wanted->kind == OP_APPEND)
		call.other = slot->scratch;
	else if (wanted->kind == OP_REMOVE)
	{
		call.other = call.path;
		call.path = slot->scratch;
		call.also = wanted->data_length > 0 ? call.data : NULL;
		call.data = NULL;
		call.data_length = 0;
	}
	else if (wanted->kind == OP_PUBLISH && slot->replaced_scratch[0] != '\0')
	{
		call.kind = ZK_EXCHANGE;
		call.other = slot->replaced_scratch;
		call.version = ZK_ANY_VERSION;
	}
	zk_call(call, handler, operation);
}

/*
 * Sends all operations of a slot's question.  When each has been answered, or will not be, the
 * slot is marked.
 */
void
worker_question_send(Question *question, CallSlot *slot)
{
	int			  n = slot->noperations;
	MemoryContext old;

	question->slot = slot;
	question->context =
		AllocSetContextCreate(CurrentMemoryContext, "zklock call", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(question->context);
	question->operations = palloc0(n * sizeof(Operation));
	question->pending = n;
	question->too_long = false;
	initStringInfo(&question->answer);
	keep(question, palloc0(n * sizeof(CallResult)), n * sizeof(CallResult));
	MemoryContextSwitchTo(old);
	worker_scratch_sent(slot);
	if (slot->after_sync)
		zk_call((ZkCall){.kind = ZK_SYNC, .owner = {slot->pid, slot->role}, .path = "/"}, NULL, NULL);
	for (int i = 0; i < n; i++)
	{
		question->operations[i].question = question;
		begin_operation(&question->operations[i]);
	}
}
