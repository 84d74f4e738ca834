/*
 * question.c
 *		What a session asks in one go: its operations are sent together, and the
 *		answers are kept until all are there.
 *
 * An append or a removal creates a scratch node with it, whose name is written into
 * the slot before it is sent: it tells later whether the operation was done.  What is
 * published is a scratch node itself, so it goes when its session does.
 *
 * Runs in: the worker.  Of a slot it reads the question, which nobody changes once it
 * is sent.  shared/call.h says what protects the rest.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/queue.h"
#include "utils/memutils.h"
#include "worker/inside.h"
#include "zk/zk_client.h"

/* An operation under way */
struct Operation
{
	Question  *question;
	CallResult result;
	char	  *text; /* in the question's context, or NULL */
};

/* Does a question change nothing? */
bool
worker_question_only_reads(CallSlot *slot)
{
	const CallOperation *operations = (CallOperation *) call_slot_question(slot);

	for (int i = 0; i < slot->noperations; i++)
	{
		if (!call_is_read(operations[i].kind))
			return false;
	}
	return true;
}

/* Is a question's scratch node to stay, in place of the one there is? */
bool
worker_question_publishes(CallSlot *slot)
{
	return ((CallOperation *) call_slot_question(slot))->kind == OP_PUBLISH;
}

/* Does a question leave a scratch node behind? */
bool
worker_question_makes_scratch(CallSlot *slot)
{
	CallOpKind kind = ((CallOperation *) call_slot_question(slot))->kind;

	return kind == OP_APPEND || kind == OP_REMOVE || kind == OP_PUBLISH;
}

/* A scratch node is going to be created. */
static void
note_scratch(CallSlot *slot)
{
	strlcpy(slot->replaced_scratch, slot->scratch, sizeof(slot->replaced_scratch));
	strlcpy(slot->scratch, slot->next_scratch, sizeof(slot->scratch));
	slot->sent_session = zklock_session->info.id;
}

/* It is known whether the scratch node was created. */
static void
settle_scratch(CallSlot *slot, CallOutcome outcome)
{
	SpinLockAcquire(&slot->mutex);
	slot->scratch_wanted &= worker_question_publishes(slot);
	SpinLockRelease(&slot->mutex);
	if (outcome == CALL_NO_NODE)
		slot->scratch[0] = '\0'; /* the one before it is gone, by itself or with its parent */
	else if (outcome != CALL_OK)
		strlcpy(slot->scratch, slot->replaced_scratch, sizeof(slot->scratch));
	slot->replaced_scratch[0] = '\0';
}

static const CallOperation *
asked(const Operation *operation)
{
	const Question		*question = operation->question;
	const CallOperation *operations = (CallOperation *) call_slot_question(question->slot);

	return &operations[operation - question->operations];
}

static const char *
asked_text(const Operation *operation, uint32 offset)
{
	return call_slot_question(operation->question->slot) + offset;
}

static CallOutcome
outcome_of(const ZkReply *reply, CallOpKind kind)
{
	const CallOutcome outcomes[] = {
		[ZK_OK] = CALL_OK,
		[ZK_NO_NODE] = CALL_NO_NODE,
		[ZK_NODE_EXISTS] = CALL_NODE_EXISTS,
		[ZK_NO_CHILDREN] = CALL_NO_CHILDREN,
		[ZK_UNKNOWN] = CALL_UNKNOWN,
	};

	if (reply->outcome != ZK_REFUSED)
		return outcomes[reply->outcome];

	/* A write may have been made, even if a server that broke down says something else. */
	if (reply->code == ZK_BAD_VERSION)
		return CALL_BAD_VERSION;
	if (reply->code == ZK_NOT_EMPTY)
		return CALL_NOT_EMPTY;
	return zk_error_is_breakdown(reply->code) && !call_is_read(kind) ? CALL_UNKNOWN : CALL_REFUSED;
}

/* A refusal leaves the results of an earlier look, if any. */
static void
set_result(Operation *operation, const ZkReply *reply)
{
	CallResult *result = &operation->result;

	result->outcome = outcome_of(reply, asked(operation)->kind);
	result->code = reply->code;
	result->watching = reply->watching;
	if (reply->outcome == ZK_OK)
		result->stat = reply->stat;
}

/* Keeps a text until it is delivered.  Of what is too long the length tells. */
static char *
keep_text(Operation *operation, const char *text, Size length)
{
	operation->result.text_length = length;
	if (length == 0 || length > CALL_MAX_ANSWER)
		return NULL;
	operation->text = MemoryContextAlloc(operation->question->context, length);
	return text ? memcpy(operation->text, text, length) : operation->text;
}

static void
keep_children(Operation *operation, const ZkReply *reply)
{
	Size  length = 0;
	char *at;

	operation->result.nchildren = reply->nchildren;
	for (int i = 0; i < reply->nchildren; i++)
		length += strlen(reply->children[i]) + 1;
	at = keep_text(operation, NULL, length);
	for (int i = 0; at && i < reply->nchildren; i++)
		at = stpcpy(at, reply->children[i]) + 1;
}

/* An operation has been answered, or will not be. */
static void
on_reply(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	Question			*question = operation->question;
	const CallOperation *wanted = asked(operation);

	set_result(operation, reply);
	if ((wanted->kind == OP_WATCH || wanted->watch) && !reply->watching)
		worker_seeks_unwatched(asked_text(operation, wanted->path));
	if (wanted->kind == OP_LIST)
		keep_children(operation, reply);
	else if (wanted->kind == OP_READ && reply->data)
		(void) keep_text(operation, reply->data, reply->data_length);
	else if (wanted->kind == OP_ABROAD && reply->outcome == ZK_OK &&
			 call_slot_state(question->slot) != CALL_GIVEN_UP)
		queue_look_abroad();
	else if (wanted->kind == OP_APPEND && reply->outcome == ZK_OK)
	{
		const char *name = strrchr(reply->path, '/') + 1;

		(void) keep_text(operation, name, strlen(name) + 1);
	}
	if (worker_question_makes_scratch(question->slot) && operation->result.outcome != CALL_UNKNOWN)
		settle_scratch(question->slot, operation->result.outcome);

	question->lost |= reply->outcome == ZK_UNKNOWN;
	if (--question->pending == 0)
		question->done(question->slot);
}

/* ZooKeeper sends data whole, and heartbeats come behind: what is too long is not asked for. */
static void
on_looked(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	const CallOperation *wanted = asked(operation);
	const CallSlot		*slot = operation->question->slot;

	if (reply->outcome == ZK_OK && reply->stat.data_length > 0 &&
		reply->stat.data_length <= wanted->most && zk_client_connected())
	{
		set_result(operation, reply);
		zk_call((ZkCall){.kind = ZK_READ,
						 .owner = {slot->pid, slot->role},
						 .path = asked_text(operation, wanted->path),
						 .whole = true},
				on_reply, operation);
	}
	else
		on_reply(operation, reply);
}

static void
begin_operation(Operation *operation)
{
	const CallOperation *wanted = asked(operation);
	CallSlot			*slot = operation->question->slot;
	ZkReplyHandler		 handler = on_reply;
	ZkCall				 call = {.owner = {slot->pid, slot->role},
								 .path = asked_text(operation, wanted->path),
								 .data = asked_text(operation, wanted->data),
								 .data_length = (int) wanted->data_length,
								 .version = wanted->version};

	switch (wanted->kind)
	{
		case OP_LOOK:
			call.kind = ZK_LOOK;
			break;
		case OP_READ:
			call.kind = wanted->most == CALL_ANY_LENGTH ? ZK_READ : ZK_LOOK;
			call.whole = true;
			handler = wanted->most == CALL_ANY_LENGTH ? on_reply : on_looked;
			break;
		case OP_LIST:
			call.kind = ZK_LIST;
			call.watch = wanted->watch && worker_seeks_watch(call.path, WATCHED_QUEUE);
			break;
		case OP_WATCH:
			call.watch = worker_seeks_watch(call.path, WATCHED_CLAIM);
			call.kind = call.watch ? ZK_READ : ZK_LOOK;
			break;
		case OP_APPEND:
			note_scratch(slot);
			call.kind = ZK_APPEND;
			call.other = slot->scratch;
			break;
		case OP_REMOVE:
			note_scratch(slot);
			call.kind = ZK_EXCHANGE;
			call.other = call.path;
			call.path = slot->scratch;
			call.node_kind = ZK_EPHEMERAL;
			break;
		case OP_PUBLISH:
			note_scratch(slot);
			call.kind = slot->replaced_scratch[0] != '\0' ? ZK_EXCHANGE : ZK_CREATE;
			call.other = slot->replaced_scratch;
			call.node_kind = ZK_EPHEMERAL;
			call.version = ZK_ANY_VERSION;
			break;
		case OP_ABROAD:
			call.kind = ZK_SYNC;
			break;
		case OP_CREATE:
		case OP_CREATE_CONTAINER:
			call.kind = ZK_CREATE;
			call.node_kind = wanted->kind == OP_CREATE ? ZK_PERSISTENT : ZK_CONTAINER;
			break;
		case OP_SET:
			call.kind = ZK_SET;
			break;
		case OP_DELETE:
			call.kind = ZK_DELETE;
			break;
	}
	zk_call(call, handler, operation);
}

/*
 * Sends all operations of a slot's question.
 *
 *	done	is called when all have been answered, or will not be
 */
void
worker_question_send(Question *question, CallSlot *slot, QuestionDone done)
{
	question->slot = slot;
	question->done = done;
	question->context =
		AllocSetContextCreate(CurrentMemoryContext, "zklock call", ALLOCSET_SMALL_SIZES);
	question->operations =
		MemoryContextAllocZero(question->context, slot->noperations * sizeof(Operation));
	question->pending = slot->noperations;
	if (slot->after_sync)
		zk_call((ZkCall){.kind = ZK_SYNC, .path = "/", .urgent = true}, NULL, NULL);
	for (int i = 0; i < slot->noperations; i++)
	{
		question->operations[i].question = question;
		begin_operation(&question->operations[i]);
	}
}

/* The length of all answers, which may be more than can be delivered */
Size
worker_question_answer_length(const Question *question)
{
	int	 n = question->slot->noperations;
	Size length = n * sizeof(CallResult);

	for (int i = 0; i < n; i++)
		length += question->operations[i].result.text_length;
	return length;
}

/* Writes the answers where the session finds them: the results, and behind them the texts. */
void
worker_question_answer(const Question *question, char *dst)
{
	int			n = question->slot->noperations;
	CallResult *results = (CallResult *) dst;
	uint32		at = n * sizeof(CallResult);

	for (int i = 0; i < n; i++)
	{
		const Operation *operation = &question->operations[i];

		results[i] = operation->result;
		results[i].text = at;
		if (operation->text)
			memcpy(dst + at, operation->text, operation->result.text_length);
		at += operation->result.text_length;
	}
}
