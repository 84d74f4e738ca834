/*
 * calls.c
 *		How the worker makes sessions' calls to ZooKeeper.
 *
 * shared/call.c draws the states of a slot.  Here a slot that has been asked for
 * something has a "work", which goes from one list to the next:
 *
 *	Role.waiting	in the order of asking; its role's turn comes
 *	(none)			SENT: the client library has its operations
 *	doubtful		a write's answer was lost
 *	undelivered		there is no room for its answer
 *	wants_room		there is no room for its question
 *	waits_scratch	the scratch node of its last question is not deleted yet
 *
 * Turns.  Of all that sessions ask, MAX_SENT questions are under way at once, so
 * nobody's locks wait for them.  The roles take turns, and each may have a
 * quarter; of one role's the first to ask comes first.  An eighth is for
 * superusers.  What was given up counts as long as it is under way.  The room in
 * shared memory is shared out likewise.
 *
 * Lost answers.  Reads are made again when a connection stands.  What became of a
 * write cannot be known here: the answer is CALL_UNKNOWN, and the session looks.
 * That must not be too early: an old connection may still carry the write.  So it
 * waits for the next connection of the ZooKeeper session, on which a server has
 * answered: from then on ZooKeeper takes nothing from the one before.  If
 * the ZooKeeper session has ended meanwhile, it is that of the next one.
 *
 * Without a connection, what is impatient waits as long as the lease holds, since
 * the connection may soon be back; then the answer is CALL_UNREACHABLE.
 *
 * Runs in: the worker.  All of this is private to it, but for the slots.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/call.h"
#include "shared/lease_state.h"
#include "utils/memutils.h"
#include "worker/calls.h"
#include "worker/seeks.h"
#include "worker/session.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

#define MAX_SENT 64
#define MAX_SENT_BY_ROLE (MAX_SENT / 4)
#define SENT_RESERVE (MAX_SENT / 8) /* for superusers */

/* Likewise of the room, bytes */
#define MAX_ROOM_OF_ROLE (call_area_size() / 4)

/* Sessions of one role, some of which ask for something */
typedef struct Role
{
	dlist_node link; /* in roles */
	Oid		   oid;
	dlist_head waiting; /* of Work, in the order of asking */
	int		   nworks;
	int		   nsent;
	Size	   room; /* that its questions and answers have */
} Role;

typedef struct Work Work;

/* An operation under way */
typedef struct Operation
{
	Work	  *work;
	int		   index;
	CallResult result;
	char	  *text; /* in the work's context, or NULL */
} Operation;

/* A question */
struct Work
{
	dlist_node	  link;	  /* see above */
	bool		  listed; /* it is in a list */
	CallSlot	 *slot;
	Role		 *role;
	MemoryContext context;	  /* NULL unless it is under way; what follows is in it */
	Operation	 *operations; /* NULL if an earlier worker sent it */
	int			  pending;	  /* calls that are not answered */
	bool		  lost;		  /* one was not, and never will be */
	uint64		  connection; /* on which it was sent */
};

static dlist_head roles = DLIST_STATIC_INIT(roles); /* whose turn it is comes first */
static dlist_head doubtful = DLIST_STATIC_INIT(doubtful);
static dlist_head undelivered = DLIST_STATIC_INIT(undelivered);
static dlist_head wants_room = DLIST_STATIC_INIT(wants_room);
static dlist_head waits_scratch = DLIST_STATIC_INIT(waits_scratch);
static Work		**works;			/* by slot; NULL: none */
static bool		 *deleting_scratch; /* by slot */
static int		  nsent;			/* questions under way */
static uint64	  connection;		/* counts connections on which a server has answered */

/* ------------------------------------------------------------------------
 * Works and roles
 * ------------------------------------------------------------------------
 */

static Role *
role_get(Oid oid)
{
	dlist_iter iter;
	Role	  *role;

	dlist_foreach (iter, &roles)
	{
		role = dlist_container(Role, link, iter.cur);
		if (role->oid == oid)
			return role;
	}
	role = palloc0(sizeof(Role));
	role->oid = oid;
	dlist_init(&role->waiting);
	dlist_push_tail(&roles, &role->link);
	return role;
}

static void
list_add(dlist_head *list, Work *work)
{
	dlist_push_tail(list, &work->link);
	work->listed = true;
}

static void
list_remove(Work *work)
{
	if (work->listed)
		dlist_delete(&work->link);
	work->listed = false;
}

static Work *
work_begin(CallSlot *slot)
{
	Work *work = palloc0(sizeof(Work));

	work->slot = slot;
	work->role = role_get(slot->role);
	work->role->nworks++;
	work->role->room += slot->room;
	works[slot - call_pool->slots] = work;
	return work;
}

/* It is under way from now on, and counts. */
static void
work_send(Work *work)
{
	work->context = AllocSetContextCreate(CurrentMemoryContext, "zklock call", ALLOCSET_SMALL_SIZES);
	work->connection = connection;
	work->lost = false;
	work->role->nsent++;
	nsent++;
}

/* It is under way no more. */
static void
work_settle(Work *work)
{
	if (work->context == NULL)
		return;
	MemoryContextDelete(work->context);
	work->context = NULL;
	work->operations = NULL;
	work->role->nsent--;
	nsent--;
}

static void
room_free(dsa_pointer *room)
{
	if (DsaPointerIsValid(*room))
		call_room_free(*room);
	*room = InvalidDsaPointer;
}

/* Allocates room if the role may have so much more, and it is there. */
static bool
room_allocate(Work *work, dsa_pointer *room, Size size)
{
	if (work->slot->reserve == RESERVE_OPEN || work->role->room + size <= MAX_ROOM_OF_ROLE)
		*room = call_room_allocate(size);
	if (!DsaPointerIsValid(*room))
		return false;
	work->slot->room += size;
	work->role->room += size;
	return true;
}

/* All that is left is the slot, whose room is taken back. */
static void
work_end(Work *work)
{
	CallSlot *slot = work->slot;
	Role	 *role = work->role;

	list_remove(work);
	work_settle(work);
	room_free(&slot->question_room);
	room_free(&slot->answer_room);
	role->room -= slot->room;
	slot->room = 0;
	if (--role->nworks == 0)
	{
		dlist_delete(&role->link);
		pfree(role);
	}
	works[slot - call_pool->slots] = NULL;
	pfree(work);
}

/* Nobody waits for the answer, and nothing is under way. */
static void
slot_free(CallSlot *slot)
{
	Work *work = works[slot - call_pool->slots];

	if (work)
		work_end(work);
	(void) (call_slot_step(slot, CALL_GIVEN_UP, CALL_FREE) ||
			call_slot_step(slot, CALL_DONE, CALL_FREE));
	call_slot_tell(slot);
}

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

/* The answer is in the slot, or the outcome is all there is. */
static void
answer(Work *work, CallState from, CallOutcome outcome)
{
	CallSlot *slot = work->slot;

	list_remove(work);
	work_settle(work);
	room_free(&slot->question_room);
	slot->outcome = outcome;
	slot->session = session_status_id();
	if (!call_slot_step(slot, from, CALL_ANSWERED))
	{
		slot_free(slot);
		return;
	}
	if (!DsaPointerIsValid(slot->answer_room))
		work_end(work);
	call_slot_tell(slot);
}

/* Puts the answer where the backend finds it.  Returns false if there is no room now. */
static bool
deliver(Work *work)
{
	CallSlot   *slot = work->slot;
	Size		length = slot->noperations * sizeof(CallResult);
	uint32		at = length;
	CallResult *results;

	for (int i = 0; i < slot->noperations; i++)
		length += work->operations[i].result.text_length;
	if (call_slot_state(slot) == CALL_GIVEN_UP)
		slot_free(slot);
	else if (length > CALL_MAX_ANSWER)
		answer(work, CALL_SENT, CALL_TOO_LONG);
	else if (length > CALL_BUFFER_SIZE && !room_allocate(work, &slot->answer_room, length))
		return false;
	else
	{
		results = (CallResult *) call_slot_answer(slot);
		for (int i = 0; i < slot->noperations; i++)
		{
			const Operation *operation = &work->operations[i];

			results[i] = operation->result;
			results[i].text = at;
			if (operation->text)
				memcpy((char *) results + at, operation->text, operation->result.text_length);
			at += operation->result.text_length;
		}
		answer(work, CALL_SENT, CALL_OK);
	}
	return true;
}

static bool
is_read(CallOpKind kind)
{
	return kind == OP_LOOK || kind == OP_READ || kind == OP_LIST || kind == OP_WATCH;
}

/* Does a question change nothing? */
static bool
only_reads(CallSlot *slot)
{
	const CallOperation *operations = (CallOperation *) call_slot_question(slot);

	for (int i = 0; i < slot->noperations; i++)
	{
		if (!is_read(operations[i].kind))
			return false;
	}
	return true;
}

/* Nothing was done, and it is to be asked again, before what was asked later. */
static void
ask_again(Work *work)
{
	work_settle(work);
	if (call_slot_step(work->slot, CALL_SENT, CALL_ASKED))
	{
		dlist_push_head(&work->role->waiting, &work->link);
		work->listed = true;
	}
	else
		slot_free(work->slot);
}

/* What was sent is done by now, or never will be. */
static void
settle(Work *work)
{
	list_remove(work);
	if (work->operations == NULL)
		answer(work, CALL_SENT, CALL_UNKNOWN);
	else if (!deliver(work))
		list_add(&undelivered, work);
}

/* All of a question has been answered, or will not be. */
static void
finish(Work *work)
{
	if (call_slot_state(work->slot) == CALL_GIVEN_UP)
		slot_free(work->slot);
	else if (work->lost && only_reads(work->slot))
		ask_again(work);
	else if (!work->lost || connection > work->connection)
		settle(work);
	else
		list_add(&doubtful, work);
}

/* ------------------------------------------------------------------------
 * Scratch nodes
 * ------------------------------------------------------------------------
 */

static bool
makes_scratch(CallSlot *slot)
{
	CallOpKind kind = ((CallOperation *) call_slot_question(slot))->kind;

	return kind == OP_APPEND || kind == OP_REMOVE;
}

/* A scratch node is going to be created. */
static void
note_scratch(CallSlot *slot)
{
	strlcpy(slot->scratch, slot->next_scratch, sizeof(slot->scratch));
	slot->sent_session = session_status_id();
}

static void delete_scratch(CallSlot *slot);

static void
on_scratch_deleted(void *arg, const ZkReply *reply)
{
	CallSlot *slot = arg;
	Work	 *work = works[slot - call_pool->slots];

	/* If that is not known it is tried again, on the next connection; so is what was refused. */
	deleting_scratch[slot - call_pool->slots] = false;
	if (reply->outcome == ZK_UNKNOWN)
		delete_scratch(slot);
	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
		return;
	slot->scratch[0] = '\0';
	if (work && work->listed && call_slot_state(slot) == CALL_ASKED)
	{
		list_remove(work);
		list_add(&work->role->waiting, work);
	}
}

static void
delete_scratch(CallSlot *slot)
{
	if (deleting_scratch[slot - call_pool->slots] || !zk_client_connected())
		return;
	deleting_scratch[slot - call_pool->slots] = true;
	zk_delete_patiently(slot->pid, slot->scratch, on_scratch_deleted, slot);
}

/* Sees to a scratch node of which nothing is under way. */
static void
attend_scratch(CallSlot *slot)
{
	Work	 *work = works[slot - call_pool->slots];
	CallState state = call_slot_state(slot);
	bool	  wanted;

	if (slot->scratch[0] == '\0' || (work && work->context))
		return;
	SpinLockAcquire(&slot->mutex);
	wanted = slot->scratch_wanted;
	SpinLockRelease(&slot->mutex);
	if (slot->sent_session != session_status_id() && session_status_id() != 0)
		slot->scratch[0] = '\0';
	else if (!wanted || state == CALL_GIVEN_UP || (state == CALL_ASKED && makes_scratch(slot)))
		delete_scratch(slot);
}

/* ------------------------------------------------------------------------
 * Operations
 * ------------------------------------------------------------------------
 */

static const CallOperation *
question_of(const Operation *operation)
{
	return &((CallOperation *) call_slot_question(operation->work->slot))[operation->index];
}

static const char *
question_text(const Operation *operation, uint32 offset)
{
	return call_slot_question(operation->work->slot) + offset;
}

static CallOutcome
outcome_of(const ZkReply *reply, CallOpKind kind)
{
	switch (reply->outcome)
	{
		case ZK_OK:
			return CALL_OK;
		case ZK_NO_NODE:
			return CALL_NO_NODE;
		case ZK_NODE_EXISTS:
			return CALL_NODE_EXISTS;
		case ZK_NO_CHILDREN:
			return CALL_NO_CHILDREN;
		case ZK_UNKNOWN:
			return CALL_UNKNOWN;
		case ZK_REFUSED:
			break;
	}

	/* A write may have been made, even if a server that broke down says something else. */
	if (reply->code == ZK_BAD_VERSION)
		return CALL_BAD_VERSION;
	if (reply->code == ZK_NOT_EMPTY)
		return CALL_NOT_EMPTY;
	return zk_error_is_breakdown(reply->code) && !is_read(kind) ? CALL_UNKNOWN : CALL_REFUSED;
}

static void
set_result(Operation *operation, const ZkReply *reply)
{
	operation->result.outcome = outcome_of(reply, question_of(operation)->kind);
	operation->result.code = reply->code;
	operation->result.czxid = reply->czxid;
	operation->result.ephemeral_owner = reply->ephemeral_owner;
	operation->result.ctime = reply->ctime;
	operation->result.mtime = reply->mtime;
	operation->result.version = reply->version;
	operation->result.child_count = reply->child_count;
	operation->result.child_changes = reply->child_changes;
	operation->result.data_length = reply->data_length;
	operation->result.watching = reply->watching;
}

static void
end_operation(Operation *operation, const ZkReply *reply)
{
	Work *work = operation->work;

	work->lost |= reply->outcome == ZK_UNKNOWN;
	if (--work->pending == 0)
		finish(work);
}

static void
on_done(void *arg, const ZkReply *reply)
{
	set_result(arg, reply);
	end_operation(arg, reply);
}

static void
on_listed(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;
	Size	   length = 0;
	char	  *at;

	if (question_of(operation)->watch && !reply->watching)
		worker_seeks_unwatched(question_text(operation, question_of(operation)->path));
	set_result(operation, reply);
	operation->result.nchildren = reply->nchildren;
	for (int i = 0; i < reply->nchildren; i++)
		length += strlen(reply->children[i]) + 1;

	/* What is too long is not kept: its length tells. */
	operation->result.text_length = length;
	if (length > 0 && length <= CALL_MAX_ANSWER)
	{
		at = operation->text = MemoryContextAlloc(operation->work->context, length);
		for (int i = 0; i < reply->nchildren; i++)
			at = stpcpy(at, reply->children[i]) + 1;
	}
	end_operation(operation, reply);
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;

	/* Of what may not be read, the look has told the rest. */
	if (reply->outcome == ZK_OK || question_of(operation)->most == CALL_ANY_LENGTH)
		set_result(operation, reply);
	operation->result.outcome = outcome_of(reply, OP_READ);
	operation->result.code = reply->code;
	if (reply->data && reply->data_length > 0)
	{
		operation->text = MemoryContextAlloc(operation->work->context, reply->data_length);
		operation->result.text_length = reply->data_length;
		memcpy(operation->text, reply->data, reply->data_length);
	}
	end_operation(operation, reply);
}

/* ZooKeeper sends data whole, and heartbeats come behind: what is too long is not asked for. */
static void
on_looked(void *arg, const ZkReply *reply)
{
	Operation			*operation = arg;
	const CallOperation *question = question_of(operation);

	if (reply->outcome == ZK_OK && reply->data_length > 0 &&
		reply->data_length <= question->most && zk_client_connected())
	{
		int owner = operation->work->slot->pid;

		set_result(operation, reply);
		zk_fetch(owner, question_text(operation, question->path), on_read, operation);
		return;
	}
	on_done(operation, reply);
}

static void
on_watched(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;

	if (!reply->watching)
		worker_seeks_unwatched(question_text(operation, question_of(operation)->path));
	on_done(operation, reply);
}

/* It has been done, and an appended node has a name; or not, or only the scratch node knows. */
static void
on_done_with_scratch(void *arg, const ZkReply *reply)
{
	Operation *operation = arg;
	CallSlot  *slot = operation->work->slot;

	set_result(operation, reply);
	if (reply->outcome == ZK_OK && reply->path)
	{
		operation->text =
			MemoryContextStrdup(operation->work->context, strrchr(reply->path, '/') + 1);
		operation->result.text_length = strlen(operation->text) + 1;
	}
	if (operation->result.outcome != CALL_UNKNOWN)
	{
		SpinLockAcquire(&slot->mutex);
		slot->scratch_wanted = false;
		SpinLockRelease(&slot->mutex);
	}
	if (reply->outcome == ZK_OK)
		delete_scratch(slot);
	else if (operation->result.outcome != CALL_UNKNOWN)
		slot->scratch[0] = '\0';
	end_operation(operation, reply);
}

static void
begin_operation(Operation *operation)
{
	const CallOperation *question = question_of(operation);
	const char			*path = question_text(operation, question->path);
	const char			*data = question_text(operation, question->data);
	int					 owner = operation->work->slot->pid;

	switch (question->kind)
	{
		case OP_LOOK:
			zk_look(owner, path, on_done, operation);
			break;
		case OP_READ:
			if (question->most == CALL_ANY_LENGTH)
				zk_fetch(owner, path, on_read, operation);
			else
				zk_look(owner, path, on_looked, operation);
			break;
		case OP_LIST:
			if (question->watch && worker_seeks_watch(path, WATCHED_QUEUE))
				zk_list(owner, path, ZK_WATCHED, on_listed, operation);
			else
				zk_list(owner, path, ZK_UNWATCHED, on_listed, operation);
			break;
		case OP_WATCH:
			if (worker_seeks_watch(path, WATCHED_CLAIM))
				zk_get(owner, path, ZK_WATCHED, on_watched, operation);
			else
				zk_look(owner, path, on_done, operation);
			break;
		case OP_APPEND:
			note_scratch(operation->work->slot);
			zk_append(owner, path, data, (int) question->data_length,
					  operation->work->slot->scratch, on_done_with_scratch, operation);
			break;
		case OP_REMOVE:
			note_scratch(operation->work->slot);
			zk_remove(owner, path, question->version, operation->work->slot->scratch,
					  on_done_with_scratch, operation);
			break;
		case OP_CREATE:
			zk_create(owner, path, data, ZK_PERSISTENT, on_done, operation);
			break;
		case OP_CREATE_CONTAINER:
			zk_create(owner, path, data, ZK_CONTAINER, on_done, operation);
			break;
		case OP_SET:
			zk_set(owner, path, data, question->version, on_done, operation);
			break;
		case OP_DELETE:
			zk_delete(owner, path, on_done, operation);
			break;
	}
}

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/* Sends all of a question. */
static void
send(Work *work)
{
	CallSlot *slot = work->slot;

	if (makes_scratch(slot) && slot->scratch[0] != '\0')
	{
		list_add(&waits_scratch, work);
		attend_scratch(slot);
		return;
	}
	if (!call_slot_step(slot, CALL_ASKED, CALL_SENT))
	{
		slot_free(slot);
		return;
	}
	work_send(work);
	work->operations = MemoryContextAllocZero(work->context, slot->noperations * sizeof(Operation));
	work->pending = slot->noperations;
	if (slot->after_sync)
		zk_sync(NULL, NULL);
	for (int i = 0; i < slot->noperations; i++)
	{
		work->operations[i].work = work;
		work->operations[i].index = i;
		begin_operation(&work->operations[i]);
	}
}

/* The first question of the role whose turn it is; NULL if none may be sent now. */
static Work *
next_work(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &roles)
	{
		Role *role = dlist_container(Role, link, iter.cur);
		Work *work;

		if (dlist_is_empty(&role->waiting) || role->nsent >= MAX_SENT_BY_ROLE)
			continue;
		work = dlist_head_element(Work, link, &role->waiting);
		if (nsent >= MAX_SENT - (work->slot->reserve == RESERVE_OPEN ? 0 : SENT_RESERVE))
			continue;
		list_remove(work);
		dlist_delete(&role->link);
		dlist_push_tail(&roles, &role->link);
		return work;
	}
	return NULL;
}

/* There is no connection, and the lease has lapsed. */
static void
turn_away(void)
{
	for (int i = 0; i < call_pool->nslots; i++)
	{
		Work *work = works[i];

		if (work && work->slot->patience == CALL_IMPATIENT &&
			call_slot_state(work->slot) == CALL_ASKED && work->listed)
			answer(work, CALL_ASKED, CALL_UNREACHABLE);
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* A slot has changed. */
static void
visit(CallSlot *slot)
{
	Work	 *work = works[slot - call_pool->slots];
	CallState state = call_slot_state(slot);

	/* The backend did not wait for the room of its last answer to be taken back. */
	if ((state == CALL_ASKED || state == CALL_ROOM_WANTED) && work &&
		DsaPointerIsValid(slot->answer_room))
	{
		work_end(work);
		work = NULL;
	}
	switch (state)
	{
		case CALL_ROOM_WANTED:
			if (work == NULL)
				list_add(&wants_room, work_begin(slot));
			break;
		case CALL_ASKED:
			if (work == NULL)
				work = work_begin(slot);
			if (!work->listed)
				list_add(&work->role->waiting, work);
			break;
		case CALL_DONE:
			slot_free(slot);
			break;
		case CALL_GIVEN_UP:
			if (work == NULL || work->pending == 0)
				slot_free(slot);
			break;
		case CALL_FREE:
		case CALL_ROOM_GIVEN:
		case CALL_SENT:
		case CALL_ANSWERED:
			break;
	}
	attend_scratch(slot);
}

/* Gives room to those who wait for it, if there is some by now. */
static void
give_room(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &wants_room)
	{
		Work	 *work = dlist_container(Work, link, iter.cur);
		CallSlot *slot = work->slot;

		if (call_slot_state(slot) == CALL_ROOM_WANTED &&
			room_allocate(work, &slot->question_room, slot->question_length))
		{
			list_remove(work);
			(void) call_slot_step(slot, CALL_ROOM_WANTED, CALL_ROOM_GIVEN);
			call_slot_tell(slot);
		}
	}
	dlist_foreach_modify (iter, &undelivered)
		(void) deliver(dlist_container(Work, link, iter.cur));
}

/* Takes up what sessions ask, and sends what has its turn. */
void
worker_calls_attend(void)
{
	CallSlot *slot;
	Work	 *work;

	while ((slot = call_slot_next_marked()) != NULL)
		visit(slot);
	give_room();
	if (!zk_client_connected() && lease_state() != LEASE_HOLDS)
		turn_away();
	while (zk_client_connected() && (work = next_work()) != NULL)
		send(work);
}

/* A connection stands, on which a server has answered. */
void
worker_calls_connected(void)
{
	dlist_mutable_iter iter;

	connection++;
	dlist_foreach_modify (iter, &doubtful)
		settle(dlist_container(Work, link, iter.cur));
	for (int i = 0; i < call_pool->nslots; i++)
		attend_scratch(&call_pool->slots[i]);
}

/* What an earlier worker has left in a slot */
static void
adopt(CallSlot *slot)
{
	Work *work;

	switch (call_slot_state(slot))
	{
		case CALL_SENT:
			if (only_reads(slot))
				(void) call_slot_step(slot, CALL_SENT, CALL_ASKED);
			else
			{
				work = work_begin(slot);
				work_send(work);
				work->lost = true;
				list_add(&doubtful, work);
			}
			break;
		case CALL_ROOM_GIVEN:
		case CALL_ANSWERED:
			if (slot->room > 0)
				(void) work_begin(slot);
			break;
		case CALL_FREE:
		case CALL_ROOM_WANTED:
		case CALL_ASKED:
		case CALL_DONE:
		case CALL_GIVEN_UP:
			break;
	}
	visit(slot);
}

/* Prepares for calls, and takes over those of an earlier worker. */
void
worker_calls_start(void)
{
	works = palloc0(call_pool->nslots * sizeof(Work *));
	deleting_scratch = palloc0(call_pool->nslots * sizeof(bool));
	for (int i = 0; i < call_pool->nslots; i++)
		adopt(&call_pool->slots[i]);
}

/* Tells sessions that wait, which then wait for the next worker. */
void
worker_calls_at_exit(void)
{
	for (int i = 0; i < call_pool->nslots; i++)
		call_slot_tell(&call_pool->slots[i]);
}
