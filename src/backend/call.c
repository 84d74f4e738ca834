/*
 * call.c
 *		Calls to ZooKeeper, which the worker makes for this session; and what several recipes
 *		do with them.
 *
 * shared/call.c has the states of the slot through which a session asks.  Code that makes
 * calls is written as a sequence, in the backend, and relies on these rules:
 *
 *	- Reads are made again until they are answered.  A write is made once: if its
 *	  answer is lost, the outcome is CALL_UNKNOWN, and then it has been done or
 *	  never will be.  The caller reads what shows which, with CALL_AFTER_SYNC.
 *	- While something is in doubt the caller is CALL_PATIENT: only the answer ends
 *	  the wait, or an interrupt, for which the caller's error context says what is
 *	  not known.
 *	- An impatient call ends within ANSWER_MS with CALL_UNREACHABLE if ZooKeeper
 *	  does not answer, whatever the cause, unless a write has been sent.
 *	- What this session has given up counts as its own until the worker is done
 *	  with it: the next call waits for that.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/hold.h"
#include "storage/ipc.h"

#define ANSWER_MS 30000 /* how long an impatient call waits for anything */
#define LOOK_MS 1000	/* a worker that has gone sets no latch */

/* ------------------------------------------------------------------------
 * Making calls
 * ------------------------------------------------------------------------
 */

static void
give_up_at_exit(int code, Datum arg)
{
	call_slot_give_up();
}

/*
 * Lays a batch out: the calls, and behind them what they point to.  Returns its length.
 *
 *	place	in shared memory; NULL to have the length alone
 */
static Size
lay_out_batch(char *place, const CallStep *steps, int n)
{
	Size at = n * sizeof(ZkCall);

	for (int i = 0; i < n; i++)
	{
		ZkCall		 call = steps[i].asked;
		const char **texts[] = {&call.path, &call.marker, &call.pin};

		for (size_t k = 0; k < lengthof(texts); k++)
		{
			Size size = *texts[k] ? strlen(*texts[k]) + 1 : 0;

			if (place && size > 0)
				*texts[k] = memcpy(place + at, *texts[k], size);
			at += size;
		}
		if (call.data && call.data_length == 0)
			call.data_length = strlen(call.data);
		if (call.data_length == 0)
			call.data = NULL;
		else if (place)
			call.data = memcpy(place + at, call.data, call.data_length);
		at += call.data_length;
		if (place)
			((ZkCall *) place)[i] = call;
	}
	return at;
}

/*
 * Waits until the slot is in a state, or until a time, ms; -1: for ever.  Returns true if it
 * is.  A wait that is not for ever ends when there has been no worker for too long.
 */
static bool
wait_for_slot(CallSlot *slot, CallState state, const Caller *caller, int64 until)
{
	int64 absent_since = 0;

	for (;;)
	{
		int64 timeout;

		ResetLatch(MyLatch);
		if (call_slot_state(slot) == state)
			return true;
		timeout = until < 0 ? LOOK_MS : Min(zklock_ms_until(until), LOOK_MS);
		if (timeout == 0 || (caller->is_called_away && caller->is_called_away(caller->away_arg)) ||
			(request_lacks_worker(&absent_since) && until >= 0))
			return false;
		if (!caller->is_called_away)
			CHECK_FOR_INTERRUPTS();
		if (caller->attend)
		{
			int64 left = zklock_ms_until(caller->attend(caller->attend_arg));

			timeout = Min(timeout, left);
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, (long) timeout,
						 zklock_wait_event(caller->is_called_away ? ZKLOCK_WAIT_LOCK : ZKLOCK_WAIT_CALL));
	}
}

/*
 * Asks, and waits for the answer, but not for too long.  Returns with the slot ANSWERED if there
 * is one.
 */
static void
ask_and_wait(const Caller *caller, const CallStep *steps, int n, CallSight sight)
{
	static bool started = false;

	CallSlot	 *slot = &call_pool->slots[compat_my_proc_number()];
	const ZkCall *first = &steps[0].asked;
	Size		  length = lay_out_batch(NULL, steps, n);
	int64		  until = caller->patience == CALL_PATIENT ? -1 : zklock_now_ms() + ANSWER_MS;

	Assert(n > 0 && n <= CALL_MAX_OPERATIONS);
	if (length > CALL_MAX_BATCH)
		elog(ERROR, "batch of calls to the zklock worker is too long: %zu bytes", length);
	if (caller->until > 0)
		until = caller->until;
	if (!started)
		on_shmem_exit(give_up_at_exit, 0);
	started = true;

	/* An earlier call of this process number may still be under way. */
	if (call_slot_state(slot) != CALL_FREE)
	{
		call_slot_give_up();
		if (!wait_for_slot(slot, CALL_FREE, caller, until))
			return;
	}
	slot->pid = MyProcPid;
	slot->role = GetSessionUserId();
	slot->reserve = superuser() ? RESERVE_OPEN : RESERVE_CLOSED;
	slot->patience = caller->patience;
	slot->after_sync = sight == CALL_AFTER_SYNC;
	slot->writes = false;
	for (int i = 0; i < n; i++)
		slot->writes |= !call_is_read(steps[i].asked.kind);
	slot->creates_provisional =
		first->kind == ZK_CREATE &&
		(first->node_kind == ZK_CONTAINER || first->node_kind == ZK_PERSISTENT_SEQUENTIAL);
	slot->ncalls = n;
	slot->batch_length = length;
	if (length > CALL_BUFFER_SIZE)
	{
		(void) call_slot_step(slot, CALL_FREE, CALL_ROOM_WANTED);
		call_slot_want_worker(slot);
		if (!wait_for_slot(slot, CALL_ROOM_GIVEN, caller, until))
			return;
	}
	(void) lay_out_batch(call_slot_text(slot, &slot->batch_room), steps, n);

	/* The nodes that the batch creates for a while stay until the session gives them up. */
	strlcpy(slot->next_marker, first->marker ? first->marker : "", sizeof(slot->next_marker));
	if (first->marker)
		slot->marker_wanted = true;
	if (slot->creates_provisional)
	{
		SpinLockAcquire(&slot->mutex);
		if (slot->provisional[0] != '\0' && !slot->provisional_wanted)
			slot->provisional_abandoned = true;
		slot->provisional_wanted = true;
		SpinLockRelease(&slot->mutex);
	}
	(void) call_slot_step(slot, length > CALL_BUFFER_SIZE ? CALL_ROOM_GIVEN : CALL_FREE, CALL_ASKED);
	call_slot_want_worker(slot);

	/*
	 * A batch that was not sent need not be: call_batch() gives it up.  If it was sent
	 * and writes, the session waits for the answer.
	 */
	if (!wait_for_slot(slot, CALL_ANSWERED, caller, until) && slot->writes &&
		!call_slot_step(slot, CALL_ASKED, CALL_GIVEN_UP))
		(void) wait_for_slot(slot, CALL_ANSWERED, caller, -1);
}

void
call_batch(Caller *caller, CallStep *steps, int n, CallSight sight)
{
	CallSlot   *slot = &call_pool->slots[compat_my_proc_number()];
	CallOutcome outcome;
	const char *answer;
	bool		answered;

	PG_TRY();
	{
		ask_and_wait(caller, steps, n, sight);
	}
	PG_CATCH();
	{
		call_slot_give_up();
		PG_RE_THROW();
	}
	PG_END_TRY();

	/* Without an answer, the call is given up as if ZooKeeper could not be reached. */
	answered = call_slot_state(slot) == CALL_ANSWERED;
	outcome = answered ? slot->outcome : CALL_UNREACHABLE;
	answer = call_slot_text(slot, &slot->answer_room);
	for (int i = 0; i < n; i++)
	{
		CallStep   *step = &steps[i];
		CallResult *result = &step->result;
		char	   *copy;

		*result = (CallResult){.outcome = outcome, .code = answered ? slot->code : 0};
		step->read = NULL;
		step->children = NULL;
		if (outcome != CALL_OK)
			continue;

		/* The text of an answer: data, or names one after the other */
		*result = ((const CallResult *) answer)[i];
		copy = palloc(result->text_length + 1);
		memcpy(copy, answer + result->text, result->text_length);
		copy[result->text_length] = '\0';
		if (result->text_length > 0)
			step->read = copy;
		step->children = palloc_extended((result->nchildren + 1) * sizeof(char *), MCXT_ALLOC_HUGE);
		for (int k = 0; k < result->nchildren; k++)
		{
			step->children[k] = copy;
			copy += strlen(copy) + 1;
		}
	}
	if (!answered)
	{
		call_slot_give_up();
		return;
	}
	caller->session = slot->session;
	if (steps[0].asked.marker)
		caller->sent_session = slot->sent_session;
	(void) call_slot_step(slot, CALL_ANSWERED, CALL_FREE);
	if (slot->answer_room.size > 0)
		call_slot_want_worker(slot);
}

/*
 * Raises the error for a step whose outcome is not one that callers handle.  CALL_UNREACHABLE is
 * no error after the caller's deadline: it means that the time is over.
 */
void
call_report(const Caller *caller, const CallStep *step)
{
	static const Failure failures[] = {
		[CALL_NO_CHILDREN] = FAILURE_NO_CHILDREN, [CALL_NOT_EMPTY] = FAILURE_REFUSED,
		[CALL_UNREACHABLE] = FAILURE_UNREACHABLE, [CALL_TOO_LONG] = FAILURE_TOO_LONG,
		[CALL_REFUSED] = FAILURE_REFUSED,
	};

	if (failures[step->result.outcome] != FAILURE_NONE &&
		(step->result.outcome != CALL_UNREACHABLE || caller->until == 0 ||
		 zklock_now_ms() < caller->until))
		request_report_failure(ENTRY_NONE, step->asked.path, failures[step->result.outcome],
							   step->result.code);
}

static void
call_context(void *arg)
{
	const Caller *caller = arg;

	if (caller->in_doubt || caller->doing[0] != '\0')
		errcontext("%s%s", caller->doing, caller->in_doubt ? caller->doubt : "");
}

/*
 * Adds to errors, such as a cancellation, what the caller is doing, until it pops "context": texts
 * that are composed beforehand, so that nothing can fail while an error is written.
 *
 *	doubt	is added while that may have been done
 */
void
call_tell(Caller *caller, const char *doing, const char *doubt)
{
	caller->doing = doing;
	caller->doubt = doubt;
	caller->context =
		(ErrorContextCallback){.callback = call_context, .arg = caller, .previous = error_context_stack};
	error_context_stack = &caller->context;
}

/* Makes one call, and raises the error for its outcome. */
const CallStep *
call_make(Caller *caller, ZkCall asked, CallSight sight)
{
	CallStep *made = palloc(sizeof(CallStep));

	*made = (CallStep){.asked = asked};
	call_batch(caller, made, 1, sight);
	call_report(caller, made);
	return made;
}

/* ------------------------------------------------------------------------
 * Creating a node and its missing parents
 *
 * The lowest node is tried first.  If it can be created, or is there, nothing is asked about
 * the nodes above, which have always been there, and to which we may have no rights.  If its
 * parent is missing, the path above it is created as recipes/node_name.c says.
 *
 * ZooKeeper removes no container that never had a child, or not for five minutes: if the
 * creation stops at one, by an error or a cancellation, the worker deletes it.  A contender's
 * node is provisional as well, until its session says otherwise.
 * ------------------------------------------------------------------------
 */

/* Raises an error if the node would harm users of its parent.  "used" is the path for messages. */
static void
refuse_harm(Caller *caller, const char *used, const char *node)
{
	size_t		length = missing_path_above(node, strlen(node));
	const char *parent = pnstrdup(node, length);
	int			harm = length > 0 ? neighbour_harm(parent, node + length + 1) : 0;
	CallStep	list = {.asked = {.kind = ZK_GET_CHILDREN, .path = parent}};

	if (harm == 0)
		return;
	call_batch(caller, &list, 1, CALL_AS_KNOWN);

	/* A parent whose children we may not see is no reason to refuse. */
	if (list.result.outcome == CALL_UNREACHABLE)
		call_report(caller, &list);
	for (int i = 0; i < list.result.nchildren; i++)
	{
		if (neighbour_is_harmed(harm, list.children[i]))
			request_report_failure(ENTRY_NONE, used, FAILURE_HARMFUL, 0);
	}
}

/* Creates a node and its missing parents; see call_create_path(). */
static const CallStep *
create_with_parents(Caller *caller, const char *used, const ZkCall *node)
{
	ZkNodeKind kind = zklock_parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER;
	CallStep  *made = palloc(sizeof(CallStep));
	int		   code = 0; /* why the node was not created */

	/* A contender stands behind the others. */
	if (node->node_kind != ZK_PERSISTENT_SEQUENTIAL)
		refuse_harm(caller, used, node->path);
	for (int attempt = 0; attempt < MISSING_PATH_ATTEMPTS; attempt++)
	{
		size_t		length = missing_path_above(node->path, strlen(node->path));
		MissingPath walk = {.end = length, .length = length};
		MissingStep next = length > 0 ? MISSING_LOOK : MISSING_NO_CHROOT;

		*made = (CallStep){.asked = *node};
		call_batch(caller, made, 1, CALL_AS_KNOWN);
		if (made->result.outcome != CALL_NO_NODE)
			return made;
		code = made->result.code;
		if (zklock_parent_nodes == PARENTS_EXISTING)
			request_report_failure(ENTRY_NONE, used, FAILURE_NO_PATH, 0);
		while (next == MISSING_LOOK || next == MISSING_CREATE)
		{
			const char *parent = pnstrdup(node->path, walk.length);

			if (next == MISSING_LOOK)
				refuse_harm(caller, used, parent);
			*made = (CallStep){.asked = {.kind = ZK_CREATE, .node_kind = kind, .path = parent}};
			call_batch(caller, made, 1, CALL_AS_KNOWN);
			switch (made->result.outcome)
			{
				case CALL_OK:
				case CALL_NODE_EXISTS:
				case CALL_UNKNOWN: /* the node below it shows whether it exists */
					next = missing_path_next(&walk, node->path, true);
					break;
				case CALL_NO_NODE:
					next = missing_path_next(&walk, node->path, false);
					break;
				default:
					return made;
			}
		}
		if (next == MISSING_NO_CHROOT)
			request_report_failure(ENTRY_NONE, used, FAILURE_NO_CHROOT, 0);
		if (next == MISSING_TOO_DEEP)
			request_report_failure(ENTRY_NONE, used, FAILURE_TOO_DEEP, 0);
	}
	request_report_failure(ENTRY_NONE, used, FAILURE_REFUSED, code);
}

/*
 * Creates a node, and its missing parents as zklock.parent_nodes says.
 *
 *	path	that is used, for messages
 *	node	the operation that creates the node: ZK_CREATE and ZK_CREATE_RECORD the path's own,
 *			a sequential one is a contender's below it
 *
 * Returns the creation of the node, or that of the parent which was refused: then the node has
 * not been created.  A contender's node is deleted unless call_slot_settle_node(NODE_STAYS) follows.
 */
const CallStep *
call_create_path(Caller *caller, const char *path, ZkCall node)
{
	const CallStep *volatile made = NULL;

	if (zklock_parent_nodes == PARENTS_EXISTING && node.node_kind != ZK_PERSISTENT_SEQUENTIAL)
		request_report_failure(ENTRY_NONE, path, FAILURE_NO_PATH, 0);
	PG_TRY();
	{
		made = create_with_parents(caller, path, &node);
	}
	PG_CATCH();
	{
		call_slot_settle_node(NODE_GOES);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (node.node_kind != ZK_PERSISTENT_SEQUENTIAL)
		call_slot_settle_node(NODE_GOES);
	return made;
}

/* ------------------------------------------------------------------------
 * Nodes that were read
 * ------------------------------------------------------------------------
 */

/*
 * Deletes a node that was read, unless another node has its name by now.  ZooKeeper deletes
 * by name, so a moment remains between that check and the deletion (doc/guarantees.md).
 *
 *	stat	the node's, as it was read
 *
 * Returns false if another client has deleted it.
 */
bool
call_delete_node(Caller *caller, const char *path, const NodeStat *stat)
{
	for (;;)
	{
		const CallStep *look =
			call_make(caller, (ZkCall){.kind = ZK_EXISTS, .path = path}, CALL_AFTER_SYNC);
		CallStep step = {.asked = {.kind = ZK_DELETE, .path = path}};

		if (look->result.outcome != CALL_OK || look->result.stat.czxid != stat->czxid ||
			look->result.stat.ephemeral_owner != stat->ephemeral_owner)
			return caller->in_doubt;
		caller->in_doubt = true;
		call_batch(caller, &step, 1, CALL_AS_KNOWN);
		caller->in_doubt = step.result.outcome == CALL_UNKNOWN;
		call_report(caller, &step);
		if (step.result.outcome == CALL_OK)
			return true;

		/* A deletion in doubt must be settled, however long that takes. */
		caller->patience = caller->in_doubt ? CALL_PATIENT : CALL_IMPATIENT;
	}
}

/*
 * Raises an error if the data of a node are a claim's.
 *
 *	stat	the node's, as it was read or listed
 */
void
call_refuse_claims(Caller *caller, const char *path, const NodeStat *stat)
{
	CallStep read = {.asked = {.kind = ZK_GET_DATA, .path = path, .most = CLAIM_RECORD_SIZE - 1}};

	if (stat->data_length == 0 || stat->data_length >= CLAIM_RECORD_SIZE)
		return;
	call_batch(caller, &read, 1, CALL_AS_KNOWN);

	/* Data that we may not read are no reason to refuse. */
	if (read.result.outcome == CALL_UNREACHABLE)
		call_report(caller, &read);
	if (claim_record_recognised(read.read, read.result.text_length))
		request_report_failure(ENTRY_NONE, path, FAILURE_IS_CLAIMS, 0);
}
