/*
 * admin.c
 *		Questions of administrators' functions to the worker.
 *
 * Only the worker talks to ZooKeeper in a session.  What an administrator's
 * function wants to know or do there, other than to lock, it asks the worker
 * through one slot in shared memory, a question at a time:
 *
 *		FREE -> ASKED			a backend, whose the slot is until FREE
 *		ASKED -> ANSWERED		the worker
 *		any -> FREE				that backend: it has the answer, or gave up
 *
 * Each step is made under the slot's mutex.
 *
 * A backend gives the slot back however it ends its wait: answer, error,
 * cancel, or exit.  (If it is killed, shared memory is initialised again.)  The
 * answer to a question that nobody waits for any more is dropped: it has
 * another number than what is asked by then.  If the worker exits, the question
 * stays, and the next worker finds and answers it.  So a question may be acted
 * upon twice, or without anybody hearing of it, and must bear that.
 *
 * The worker answers as soon as ZooKeeper has, and at once without a
 * connection; it keeps what it needs for that in memory of its own.
 *
 * Runs in: backends and the worker, as its functions say.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/admin.h"
#include "backend/request.h"
#include "compat.h"
#include "storage/ipc.h"
#include "zk/zk_client.h"

#define TURN_MS 100		/* between two looks whether the slot is free */
#define ANSWER_MS 30000 /* how long to wait for an answer */
#define LOOK_MS 1000	/* a worker that is just starting is not woken */

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

static void
sleep_interruptibly(long ms)
{
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Puts the question into the slot if that is free. */
static bool
try_to_ask(AdminKind kind, const AdminNode *node)
{
	AdminRequest *slot = &zklock_shared->admin;
	bool		  free;

	SpinLockAcquire(&slot->mutex);
	free = slot->state == ADMIN_FREE;
	if (free)
	{
		slot->number++;
		slot->proc_number = compat_my_proc_number();
		slot->kind = kind;
		strlcpy(slot->node, node->path, sizeof(slot->node));
		slot->czxid = node->czxid;
		slot->owner = node->owner;
		slot->state = ADMIN_ASKED;
	}
	SpinLockRelease(&slot->mutex);
	return free;
}

/* Gives the slot back; also as a callback at error and exit. */
static void
free_slot(int code, Datum arg)
{
	AdminRequest *slot = &zklock_shared->admin;

	(void) code;
	(void) arg;
	SpinLockAcquire(&slot->mutex);
	slot->state = ADMIN_FREE;
	SpinLockRelease(&slot->mutex);
}

/* Takes the answer if it is there. */
static bool
take_answer(AdminNode *node, AdminOutcome *outcome, int *code)
{
	AdminRequest *slot = &zklock_shared->admin;
	bool		  answered;

	SpinLockAcquire(&slot->mutex);
	answered = slot->state == ADMIN_ANSWERED;
	if (answered)
	{
		*outcome = slot->outcome;
		*code = slot->code;
		node->czxid = slot->czxid;
		node->owner = slot->owner;
	}
	SpinLockRelease(&slot->mutex);
	return answered;
}

/* Wakes the worker and waits for its answer. */
static AdminOutcome
wait_for_answer(AdminNode *node)
{
	int64		 until = zklock_now_ms() + ANSWER_MS;
	AdminOutcome outcome;
	int			 code;

	zklock_wake_worker();
	while (!take_answer(node, &outcome, &code))
	{
		if (zklock_now_ms() >= until)
			return ADMIN_UNREACHABLE;
		sleep_interruptibly(LOOK_MS);
	}
	if (outcome == ADMIN_REFUSED)
		ereport(ERROR, (errcode(zk_error_is_permission(code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
															 : ERRCODE_SYSTEM_ERROR),
						errmsg("cannot access ZooKeeper node \"%s\"", path_for_display(node->path)),
						errdetail("ZooKeeper refused: %s.", zk_error_name(code))));
	return outcome;
}

/*
 * Asks the worker, and waits for its answer, and before that for the end of
 * others' questions.  A refusal is an error.
 *
 * ADMIN_READ fills in what is known of the node, which ADMIN_DELETE relies on.
 */
AdminOutcome
admin_ask(AdminKind kind, AdminNode *node)
{
	AdminOutcome outcome;

	while (!try_to_ask(kind, node))
		sleep_interruptibly(TURN_MS);
	PG_ENSURE_ERROR_CLEANUP(free_slot, (Datum) 0);
	{
		outcome = wait_for_answer(node);
	}
	PG_END_ENSURE_ERROR_CLEANUP(free_slot, (Datum) 0);
	free_slot(0, (Datum) 0);
	return outcome;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* A question that the worker has taken up. */
typedef struct Question
{
	uint64	  number;
	AdminKind kind;
	AdminNode node;
} Question;

static uint64 last_taken; /* number of the question taken up last */

static bool
take_question(Question *question)
{
	AdminRequest *slot = &zklock_shared->admin;
	bool		  found;

	SpinLockAcquire(&slot->mutex);
	found = slot->state == ADMIN_ASKED && slot->number != last_taken;
	if (found)
	{
		last_taken = slot->number;
		question->number = slot->number;
		question->kind = slot->kind;
		strlcpy(question->node.path, slot->node, sizeof(question->node.path));
		question->node.czxid = slot->czxid;
		question->node.owner = slot->owner;
	}
	SpinLockRelease(&slot->mutex);
	return found;
}

/* Answers a question and forgets it. */
static void
answer(Question *question, AdminOutcome outcome, int code)
{
	AdminRequest *slot = &zklock_shared->admin;
	int			  proc_number = -1;

	SpinLockAcquire(&slot->mutex);
	if (slot->state == ADMIN_ASKED && slot->number == question->number)
	{
		slot->czxid = question->node.czxid;
		slot->owner = question->node.owner;
		slot->outcome = outcome;
		slot->code = code;
		slot->state = ADMIN_ANSWERED;
		proc_number = slot->proc_number;
	}
	SpinLockRelease(&slot->mutex);
	if (proc_number >= 0)
		SetLatch(&GetPGProcByNumber(proc_number)->procLatch);
	pfree(question);
}

static void
answer_from(Question *question, const ZkReply *reply)
{
	switch (reply->outcome)
	{
		case ZK_OK:
			answer(question, ADMIN_OK, 0);
			break;
		case ZK_NO_NODE:
			answer(question, ADMIN_NO_NODE, 0);
			break;
		case ZK_UNKNOWN:
			answer(question, ADMIN_UNREACHABLE, 0);
			break;
		default:
			answer(question, ADMIN_REFUSED, reply->code);
			break;
	}
}

static void
on_done(void *arg, const ZkReply *reply)
{
	answer_from(arg, reply);
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Question *question = arg;

	if (question->kind == ADMIN_READ || reply->outcome != ZK_OK)
	{
		question->node.czxid = reply->czxid;
		question->node.owner = reply->ephemeral_owner;
		answer_from(question, reply);
	}
	else if (reply->czxid != question->node.czxid || reply->ephemeral_owner != question->node.owner)
		answer(question, ADMIN_CHANGED, 0);
	else
		zk_delete(ZK_WORKER, question->node.path, on_done, question);
}

/* Takes up what a backend has asked since the last call. */
void
admin_attend(void)
{
	Question  taken;
	Question *question;

	if (!take_question(&taken))
		return;
	question = palloc(sizeof(Question));
	*question = taken;
	if (!zk_client_connected())
		answer(question, ADMIN_UNREACHABLE, 0);
	else if (question->kind == ADMIN_CHECK)
		zk_check(ZK_WORKER, question->node.path, on_done, question);
	else
	{
		zk_sync(NULL, NULL);
		zk_get(ZK_WORKER, question->node.path, false, on_read, question);
	}
}
