/*
 * calls.c
 *		How the worker makes sessions' calls to ZooKeeper: whose turn it is, and what
 *		becomes of a slot.
 *
 * shared/call.c draws the states of a slot; question.c makes the calls, and scratch.c
 * sees to scratch nodes.  Each slot has a "work", in which this worker keeps what it
 * knows besides.  attend() does what a slot's state asks for: when it has been marked,
 * as its session has changed it, all of its question has been answered, it waits for
 * room, or its scratch node is gone or to be deleted again; and, for all slots, when a
 * connection stands.
 *
 * Turns.  Of all that sessions ask, MAX_SENT questions are under way at once, so
 * nobody's locks wait for them.  The roles take turns, and each may have a
 * quarter; of one role's the first that was seen comes first.  An eighth is for
 * superusers.  What was given up counts as long as it is under way.  Room in shared
 * memory has limits of the same kind.  A question has its room until it is answered,
 * so questions leave enough for an answer.
 *
 * Lost answers.  Reads are made again when a connection stands.  What became of a
 * write cannot be known here: the answer is CALL_UNKNOWN, and the session looks.
 * That must not be too early: an old connection may still carry the write.  So it
 * waits for the next connection of the ZooKeeper session, and there for the answer to
 * a check that is committed (queue/session.c): from then on ZooKeeper takes nothing from
 * the one before, and what the session reads is no older.  If the ZooKeeper session has
 * ended meanwhile, it is that of the next one.
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
#include "queue/queue.h"
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

/* Sessions of one role, some of which ask for something */
typedef struct Role
{
	dlist_node link; /* in roles */
	Oid		   oid;
	dlist_head waiting; /* of Work: ASKED, in the order in which they were seen */
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
	dlist_node link;   /* in role->waiting */
	bool	   listed; /* it is there */

	/* Of a question that was sent */
	Question question;
	uint64	 connection; /* on which it was sent */
} Work;

static dlist_head roles = DLIST_STATIC_INIT(roles); /* whose turn it is comes first */
static Work		 *works;							/* by slot */
static int		  nsent;							/* questions under way */
static uint64	  connection;	 /* counts connections on which a server has answered */
static uint64	  synchronized;	 /* the last of them on which a check was committed */
static Size		  question_room; /* that all questions have */

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

/* A slot has so much more room, for its question or for an answer, whichever "room" is; or less. */
static void
charge(Work *work, const CallRoom *room, ssize_t size)
{
	work->role->room += size;
	if (room == &work->slot->question_room)
	{
		work->role->question_room += size;
		question_room += size;
	}
}

/* There is something to do for a slot. */
static void
work_begin(Work *work)
{
	if (work->role)
		return;
	work->role = role_get(work->slot->role);
	work->role->nworks++;
	charge(work, &work->slot->question_room, work->slot->question_room.size);
	charge(work, &work->slot->answer_room, work->slot->answer_room.size);
}

static void
work_list(Work *work)
{
	if (!work->listed)
		dlist_push_tail(&work->role->waiting, &work->link);
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
room_free(Work *work, CallRoom *room)
{
	if (room->size == 0)
		return;
	call_room_free(room->at);
	charge(work, room, -(ssize_t) room->size);
	*room = (CallRoom){0};
	zklock_wake_worker(); /* slots that wait for room have been marked: there is another round */
}

/* There is nothing more to do for a slot, whose room is taken back. */
static void
work_end(Work *work)
{
	Role *role = work->role;

	if (role == NULL)
		return;
	work_unlist(work);
	work_settle(work);
	room_free(work, &work->slot->question_room);
	room_free(work, &work->slot->answer_room);
	work->role = NULL;
	if (--role->nworks == 0)
	{
		dlist_delete(&role->link);
		pfree(role);
	}
}

/* May a slot have so much room?  A question may only if that leaves enough for answers. */
static bool
room_is_free(const Work *work, const CallRoom *room, Size size)
{
	const Role *role = work->role;

	if (work->slot->reserve == RESERVE_OPEN)
		return true;
	if (room == &work->slot->question_room &&
		(role->question_room + size > MAX_QUESTIONS_OF_ROLE || question_room + size > MAX_QUESTIONS))
		return false;
	return role->room + size <= MAX_ROOM_OF_ROLE;
}

/* Allocates room if it is there.  If not, the slot is attended again in the next round. */
static bool
room_allocate(Work *work, CallRoom *room, Size size)
{
	if (room_is_free(work, room, size))
		room->at = call_room_allocate(size);
	if (!DsaPointerIsValid(room->at))
	{
		call_slot_mark(work->slot);
		return false;
	}
	room->size = size;
	charge(work, room, size);
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
	room_free(work, &slot->question_room);
	slot->outcome = outcome;
	slot->code = outcome == CALL_REFUSED ? worker_scratch_forbidden(slot) : 0;
	slot->session = zklock_session->info.id;
	if (slot->answer_room.size == 0)
		work_end(work);
	if (call_slot_step(slot, from, CALL_ANSWERED))
		call_slot_tell(slot);
}

/*
 * What the first operation's answer tells of the scratch node counts when nothing keeps the answer
 * from the session any more: if this worker ends before, the session looks for the node.
 */
static void
settle_scratch(Work *work)
{
	worker_scratch_answered(work->slot, ((CallResult *) work->question.answer.data)->outcome);
}

/* Puts the answer where the backend finds it, if there is room. */
static void
deliver(Work *work)
{
	CallSlot			 *slot = work->slot;
	const StringInfoData *text = &work->question.answer;

	if (work->question.too_long)
	{
		settle_scratch(work);
		answer(work, CALL_SENT, CALL_TOO_LONG);
		return;
	}
	if (text->len > CALL_BUFFER_SIZE && !room_allocate(work, &slot->answer_room, text->len))
		return;
	settle_scratch(work);
	memcpy(call_slot_text(slot, &slot->answer_room), text->data, text->len);
	answer(work, CALL_SENT, CALL_OK);
}

/* All of a question has been answered, or will not be. */
static void
settle(Work *work)
{
	if (work->question.lost && !work->slot->writes)
	{
		/* It is asked again, before what was asked later. */
		work_settle(work);
		if (call_slot_step(work->slot, CALL_SENT, CALL_ASKED))
		{
			work_list(work);
			dlist_move_head(&work->role->waiting, &work->link);
		}
	}
	else if (work->question.lost && work->connection >= synchronized)
		return; /* it may still be done */
	else if (work->question.context)
		deliver(work);
	else
		answer(work, CALL_SENT, CALL_UNKNOWN);
}

/* ------------------------------------------------------------------------
 * Turns
 * ------------------------------------------------------------------------
 */

/* Sends all of a question, unless the session has given it up. */
static void
send_work(Work *work)
{
	CallSlot *slot = work->slot;

	if (!call_slot_step(slot, CALL_ASKED, CALL_SENT))
		return;
	work->connection = connection;
	work->role->nsent++;
	nsent++;
	worker_question_send(&work->question, slot);
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

	/* The session has copied its last answer, and may have asked again. */
	if (state != CALL_SENT && state != CALL_ANSWERED && slot->answer_room.size > 0)
		work_end(work);
	switch (state)
	{
		case CALL_ROOM_WANTED:
			work_begin(work);
			if (room_allocate(work, &slot->question_room, slot->question_length) &&
				call_slot_step(slot, CALL_ROOM_WANTED, CALL_ROOM_GIVEN))
				call_slot_tell(slot);
			break;
		case CALL_ASKED:
			work_begin(work);
			break;
		case CALL_SENT:
			if (work->question.pending == 0)
				settle(work);
			break;
		case CALL_GIVEN_UP:
			if (work->question.pending > 0)
				break;
			if (work->question.context)
				settle_scratch(work);
			work_end(work);
			if (call_slot_step(slot, CALL_GIVEN_UP, CALL_FREE))
				call_slot_tell(slot);
			break;
		case CALL_FREE:
		case CALL_ROOM_GIVEN:
		case CALL_ANSWERED:
			break;
	}
	if (work->question.context == NULL)
	{
		worker_scratch_attend(slot);
		worker_scratch_attend_container(slot);
	}
	if (state != CALL_ASKED)
		return;
	if (worker_scratch_may_stay(slot))
		work_list(work);
	else if (worker_scratch_forbidden(slot) != 0)
	{
		worker_scratch_unwanted(slot);
		answer(work, CALL_ASKED, CALL_REFUSED);
	}
}

static void
attend_marked(int index)
{
	attend(&works[index]);
}

static void
attend_all(void)
{
	for (int i = 0; i < zklock_max_processes(); i++)
		attend(&works[i]);
}

/* Takes up what sessions ask, and sends what has its turn. */
void
worker_calls_attend(void)
{
	Work *work;

	if (synchronized != connection && queue_session_synchronized())
	{
		synchronized = connection;
		attend_all();
	}
	worker_scratch_delete_again();
	zklock_visit_marked(call_pool->marks, zklock_max_processes(), attend_marked);
	if (!zk_client_connected() && lease_state() != LEASE_HOLDS)
		turn_away();
	while (zk_client_connected() && (work = next_work()) != NULL)
		send_work(work);
}

/* A connection stands, on which a server has answered. */
void
worker_calls_connected(void)
{
	connection++;
	attend_all();
}

/* Has something been sent that may change a node, and is not known to have been done, or not? */
bool
worker_calls_in_doubt(void)
{
	for (int i = 0; i < zklock_max_processes() && lease_state() != LEASE_OVER; i++)
	{
		CallSlot *slot = &call_pool->slots[i];

		if (call_slot_state(slot) == CALL_SENT && slot->writes)
			return true;
	}
	return false;
}

/* Prepares for calls, and takes over those of an earlier worker. */
void
worker_calls_start(void)
{
	worker_scratch_start();
	works = palloc0(zklock_max_processes() * sizeof(Work));
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		Work *work = &works[i];

		work->slot = &call_pool->slots[i];
		work->question.lost = call_slot_state(work->slot) == CALL_SENT;
		if (work->question.lost || work->slot->question_room.size + work->slot->answer_room.size > 0)
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
