/*
 * calls.c
 *		How the worker makes sessions' calls to ZooKeeper: whose turn it is, and what
 *		becomes of a slot.
 *
 * shared/call.c draws the states of a slot; question.c makes the calls.  Each slot
 * has a "work", in which this worker keeps what it knows besides.  attend() does what
 * a slot's state asks for: when its session has changed it, when all of its question
 * has been answered, when its scratch node is gone, and, for all slots, when a
 * connection stands.
 *
 * Turns.  Of all that sessions ask, MAX_SENT questions are under way at once, so
 * nobody's locks wait for them.  The roles take turns, and each may have a
 * quarter; of one role's the first to ask comes first.  An eighth is for
 * superusers.  What was given up counts as long as it is under way.  The room in
 * shared memory is shared out in the same way.  A question has its room until it is
 * answered, so questions leave enough for an answer.
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

#include "lib/ilist.h"
#include "utils/memutils.h"
#include "worker/inside.h"
#include "zk/zk_client.h"

#define MAX_SENT 64
#define MAX_SENT_BY_ROLE (MAX_SENT / 4)
#define SENT_RESERVE (MAX_SENT / 8) /* for superusers */

/* The same of the room, bytes, and of that for questions */
#define MAX_ROOM_OF_ROLE (CALL_AREA_SIZE / 4)
#define MAX_QUESTIONS (CALL_AREA_SIZE / 2)
#define MAX_QUESTIONS_OF_ROLE (MAX_ROOM_OF_ROLE - CALL_MAX_ANSWER)

/* When a scratch node whose deletion was refused is to be deleted again, ms */
#define DELETE_AGAIN_MS 5000

/* Sessions of one role, some of which ask for something */
typedef struct Role
{
	dlist_node link; /* in roles */
	Oid		   oid;
	dlist_head waiting; /* of Work: ASKED, in the order of asking */
	int		   nworks;
	int		   nsent;
	Size	   room;		  /* that its questions and answers have */
	Size	   question_room; /* that its questions have */
} Role;

/* The work for a slot */
typedef struct Work
{
	CallSlot  *slot;
	Role	  *role;   /* NULL if there is nothing to do */
	dlist_node link;   /* in role->waiting or wants_room */
	bool	   listed; /* in one of them */
	bool	   deleting_scratch;
	bool	   scratch_refused; /* its deletion, which waits for delete_again_at */

	/* Of a question that was sent */
	Question question;
	uint64	 connection; /* on which it was sent */
} Work;

static dlist_head roles = DLIST_STATIC_INIT(roles); /* whose turn it is comes first */
static dlist_head wants_room = DLIST_STATIC_INIT(wants_room); /* for a question, or for an answer */
static Work		 *works;									  /* by slot */
static int		  nsent;									  /* questions under way */
static uint64 connection;			/* counts connections on which a server has answered */
static Size	  question_room;		/* that all questions have */
static int64  delete_again_at = -1; /* ms; -1 if no deletion of a scratch node was refused */

/* ------------------------------------------------------------------------
 * Works and roles
 * ------------------------------------------------------------------------
 */

static Work *
work_of(const CallSlot *slot)
{
	return &works[slot - call_pool->slots];
}

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

/* A question has room from now on, until question_free(). */
static void
count_question(Work *work)
{
	work->role->question_room += work->slot->question_length;
	question_room += work->slot->question_length;
}

/* There is something to do for a slot. */
static void
work_begin(Work *work)
{
	if (work->role)
		return;
	work->role = role_get(work->slot->role);
	work->role->nworks++;
	work->role->room += work->slot->room;
	if (DsaPointerIsValid(work->slot->question_room))
		count_question(work);
}

static void
work_list(Work *work, dlist_head *list)
{
	if (!work->listed)
		dlist_push_tail(list, &work->link);
	work->listed = true;
}

static void
work_unlist(Work *work)
{
	if (work->listed)
		dlist_delete(&work->link);
	work->listed = false;
}

/* Its question is under way no more. */
static void
work_settle(Work *work)
{
	work->question.lost = false;
	if (work->question.context == NULL)
		return;
	MemoryContextDelete(work->question.context);
	work->question.context = NULL;
	work->role->nsent--;
	nsent--;
}

static void
question_free(Work *work)
{
	CallSlot *slot = work->slot;

	if (!DsaPointerIsValid(slot->question_room))
		return;
	call_room_free(slot->question_room);
	slot->question_room = InvalidDsaPointer;
	work->role->question_room -= slot->question_length;
	question_room -= slot->question_length;
}

/* There is nothing more to do for a slot, whose room is taken back. */
static void
work_end(Work *work)
{
	CallSlot *slot = work->slot;
	Role	 *role = work->role;

	if (role == NULL)
		return;
	work_unlist(work);
	work_settle(work);
	question_free(work);
	if (DsaPointerIsValid(slot->answer_room))
		call_room_free(slot->answer_room);
	slot->answer_room = InvalidDsaPointer;
	role->room -= slot->room;
	slot->room = 0;
	work->role = NULL;
	if (--role->nworks == 0)
	{
		dlist_delete(&role->link);
		pfree(role);
	}
}

/*
 * Allocates room if the role may have so much more, and it is there.  If not, the slot
 * is attended again in each round.
 */
static bool
room_allocate(Work *work, dsa_pointer *room, Size size)
{
	if (work->slot->reserve == RESERVE_OPEN || work->role->room + size <= MAX_ROOM_OF_ROLE)
		*room = call_room_allocate(size);
	if (!DsaPointerIsValid(*room))
	{
		work_list(work, &wants_room);
		return false;
	}
	work_unlist(work);
	work->slot->room += size;
	work->role->room += size;
	return true;
}

/* Gives a question room, if that leaves enough for answers. */
static bool
question_allocate(Work *work)
{
	CallSlot *slot = work->slot;
	Size	  size = slot->question_length;

	if (slot->reserve == RESERVE_CLOSED && (work->role->question_room + size > MAX_QUESTIONS_OF_ROLE ||
											question_room + size > MAX_QUESTIONS))
	{
		work_list(work, &wants_room);
		return false;
	}
	if (!room_allocate(work, &slot->question_room, size))
		return false;
	count_question(work);
	return true;
}

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

/*
 * The answer is in the slot, or the outcome is all there is.  If the session has given
 * up meanwhile, it has marked the slot, which is attended soon.
 */
static void
answer(Work *work, CallState from, CallOutcome outcome)
{
	CallSlot *slot = work->slot;

	work_unlist(work);
	work_settle(work);
	question_free(work);
	slot->outcome = outcome;
	slot->session = zklock_session->info.id;
	if (!DsaPointerIsValid(slot->answer_room))
		work_end(work);
	if (call_slot_step(slot, from, CALL_ANSWERED))
		call_slot_tell(slot);
}

/* Puts the answer where the backend finds it, if there is room. */
static void
deliver(Work *work)
{
	CallSlot *slot = work->slot;
	Size	  length = worker_question_answer_length(&work->question);

	if (length > CALL_MAX_ANSWER)
	{
		answer(work, CALL_SENT, CALL_TOO_LONG);
		return;
	}
	if (length > CALL_BUFFER_SIZE && !room_allocate(work, &slot->answer_room, length))
		return;
	worker_question_answer(&work->question, call_slot_answer(slot));
	answer(work, CALL_SENT, CALL_OK);
}

/* All of a question has been answered, or will not be. */
static void
settle(Work *work)
{
	if (work->question.lost && worker_question_only_reads(work->slot))
	{
		/* It is asked again, before what was asked later. */
		work_settle(work);
		if (call_slot_step(work->slot, CALL_SENT, CALL_ASKED))
		{
			work_list(work, &work->role->waiting);
			dlist_move_head(&work->role->waiting, &work->link);
		}
	}
	else if (work->question.lost && work->connection == connection)
		return; /* it may still be done */
	else if (work->question.context)
		deliver(work);
	else
		answer(work, CALL_SENT, CALL_UNKNOWN);
}

/* ------------------------------------------------------------------------
 * Scratch nodes
 * ------------------------------------------------------------------------
 */

static void attend(Work *work);

/* If it may still be there it is deleted again, but what was refused not at once. */
static void
on_scratch_deleted(void *arg, const ZkReply *reply)
{
	Work	 *work = arg;
	CallSlot *slot = work->slot;

	work->deleting_scratch = false;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		strlcpy(slot->scratch, slot->replaced_scratch, sizeof(slot->scratch));
		slot->replaced_scratch[0] = '\0';
	}
	else if (reply->outcome != ZK_UNKNOWN)
	{
		work->scratch_refused = true;
		if (delete_again_at < 0)
			delete_again_at = zklock_now_ms() + DELETE_AGAIN_MS;
		return;
	}
	attend(work);
}

/* Has what is asked no need for the scratch node that there is to go first? */
static bool
scratch_may_stay(const Work *work)
{
	CallSlot *slot = work->slot;

	return slot->scratch[0] == '\0' || !worker_question_makes_scratch(slot) ||
		   (worker_question_publishes(slot) && !work->deleting_scratch &&
			slot->replaced_scratch[0] == '\0' && slot->sent_session == zklock_session->info.id);
}

/* Deletes a scratch node that nobody wants any more, of which nothing is under way. */
static void
attend_scratch(Work *work)
{
	CallSlot *slot = work->slot;
	CallState state;
	bool	  wanted;

	if (slot->scratch[0] == '\0' || work->question.context || work->deleting_scratch)
		return;
	SpinLockAcquire(&slot->mutex);
	state = slot->state;
	wanted = slot->scratch_wanted;
	SpinLockRelease(&slot->mutex);
	if (state == CALL_SENT ||
		(wanted && state != CALL_GIVEN_UP && (state != CALL_ASKED || scratch_may_stay(work))))
		return;
	if (slot->sent_session != zklock_session->info.id && zklock_session->info.id != 0)
		slot->scratch[0] = slot->replaced_scratch[0] = '\0';
	else if (zk_client_connected() && !work->scratch_refused)
	{
		work->deleting_scratch = true;
		zk_call((ZkCall){.kind = ZK_DELETE,
						 .owner = {slot->pid, slot->role},
						 .path = slot->scratch,
						 .patient = true},
				on_scratch_deleted, work);
	}
}

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/* All of a slot's question has been answered, or will not be. */
static void
on_answered(const CallSlot *slot)
{
	attend(work_of(slot));
}

/* Sends all of a question, unless the session has given it up. */
static void
send(Work *work)
{
	CallSlot *slot = work->slot;

	if (!call_slot_step(slot, CALL_ASKED, CALL_SENT))
		return;
	work->connection = connection;
	work->role->nsent++;
	nsent++;
	worker_question_send(&work->question, slot, on_answered);
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
		work_unlist(work);
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
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = &call_pool->slots[i];

		if (call_slot_state(slot) == CALL_ASKED && slot->patience == CALL_IMPATIENT)
			answer(&works[i], CALL_ASKED, CALL_UNREACHABLE);
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* Does what a slot asks for by now. */
static void
attend(Work *work)
{
	CallSlot *slot = work->slot;
	CallState state = call_slot_state(slot);

	/* The session did not wait for the room of its last answer to be taken back. */
	if ((state == CALL_ASKED || state == CALL_ROOM_WANTED) && DsaPointerIsValid(slot->answer_room))
		work_end(work);
	switch (state)
	{
		case CALL_ROOM_WANTED:
			work_begin(work);
			if (question_allocate(work) && call_slot_step(slot, CALL_ROOM_WANTED, CALL_ROOM_GIVEN))
				call_slot_tell(slot);
			break;
		case CALL_ASKED:
			work_begin(work);
			attend_scratch(work);
			if (scratch_may_stay(work))
				work_list(work, &work->role->waiting);
			break;
		case CALL_SENT:
			if (work->question.pending == 0)
				settle(work);
			break;
		case CALL_DONE:
		case CALL_GIVEN_UP:
			if (work->question.pending > 0)
				break;
			work_end(work);
			if (call_slot_step(slot, state, CALL_FREE))
				call_slot_tell(slot);
			break;
		case CALL_FREE:
		case CALL_ROOM_GIVEN:
		case CALL_ANSWERED:
			break;
	}
	attend_scratch(work);
}

/* It is time to delete again what ZooKeeper refused to delete. */
static void
delete_again(void)
{
	delete_again_at = -1;
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		works[i].scratch_refused = false;
		attend(&works[i]);
	}
}

/* When worker_calls_attend() wants to run next at the latest, ms; or -1. */
int64
worker_calls_next_wakeup(void)
{
	return delete_again_at;
}

/* Takes up what sessions ask, and sends what has its turn. */
void
worker_calls_attend(void)
{
	dlist_mutable_iter iter;
	CallSlot		  *slot;
	Work			  *work;

	if (delete_again_at >= 0 && zklock_now_ms() >= delete_again_at)
		delete_again();
	while ((slot = call_slot_next_marked()) != NULL)
		attend(work_of(slot));
	dlist_foreach_modify (iter, &wants_room)
		attend(dlist_container(Work, link, iter.cur));
	if (!zk_client_connected() && lease_state() != LEASE_HOLDS)
		turn_away();
	while (zk_client_connected() && (work = next_work()) != NULL)
		send(work);
}

/* A connection stands, on which a server has answered. */
void
worker_calls_connected(void)
{
	connection++;
	for (int i = 0; i < zklock_max_processes(); i++)
		attend(&works[i]);
}

/* Has something been sent that may change a node, and is not known to have been done, or not? */
bool
worker_calls_in_doubt(void)
{
	for (int i = 0; i < zklock_max_processes() && lease_state() != LEASE_OVER; i++)
	{
		CallSlot *slot = &call_pool->slots[i];

		if (call_slot_state(slot) == CALL_SENT && !worker_question_only_reads(slot))
			return true;
	}
	return false;
}

/* Prepares for calls, and takes over those of an earlier worker. */
void
worker_calls_start(void)
{
	works = palloc0(zklock_max_processes() * sizeof(Work));
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		Work *work = &works[i];

		work->slot = &call_pool->slots[i];
		work->question.lost = call_slot_state(work->slot) == CALL_SENT;
		if (work->question.lost || work->slot->room > 0)
			work_begin(work);
		attend(work);
	}
}

/* Tells sessions that wait, which then wait for the next worker. */
void
worker_calls_at_exit(void)
{
	for (int i = 0; i < zklock_max_processes(); i++)
		call_slot_tell(&call_pool->slots[i]);
}
