/*
 * calls.c
 *		How the worker makes sessions' calls to ZooKeeper: what becomes of a slot.
 *
 * shared/call.h draws the states of a slot; call_batch.c makes the calls, and marker.c sees
 * to marker nodes.  Each slot has a CallWork, in which this worker keeps what only it needs
 * to know.  attend() does what a slot's state asks for.  It is called when the slot is
 * marked, since its session has changed it, all of its batch has been answered, it waits
 * for room, or its marker node is gone or to be deleted again; and for all slots when a
 * connection stands.
 *
 * A batch is sent as soon as a connection stands; those that have waited for it go out in
 * the order in which the worker has seen them.  Their calls take turns with all others, by
 * role and session (zk/zk_flow.c).
 *
 * Room in shared memory: a role may have a quarter of it, superusers all.  A batch has
 * its room until it is answered, so batches leave enough for an answer.  A batch that
 * was given up counts until it is answered.  The worker's own memory has an answer until it
 * is complete and has room: CALL_MAX_ANSWER for each session at most, as in the session's own.
 *
 * Lost answers: reads are made again when a connection stands.  What became of a write
 * cannot be known here: the answer is CALL_UNKNOWN, and the session looks.  The session must
 * not look too early, since an old connection may still carry the write.  So the answer
 * waits for the next connection of the ZooKeeper session, and there for the answer to a
 * check that is committed (engine/engine.c): from then on ZooKeeper takes nothing from the
 * connection before, and what the session reads is no older.  If the ZooKeeper session has
 * ended meanwhile, the connection is that of the next one.
 *
 * Without a connection, impatient batches wait as long as the lease holds, since the
 * connection may soon be back; then the answer is CALL_UNREACHABLE.
 *
 * Runs in: the worker.  All of this is private to it, but for the slots.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "utils/memutils.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* Limits of the room, bytes */
#define MAX_ROOM_OF_ROLE (CALL_AREA_SIZE / 4)
#define MAX_BATCHES (CALL_AREA_SIZE / 2)
#define MAX_BATCHES_OF_ROLE (MAX_ROOM_OF_ROLE - CALL_MAX_ANSWER)

static CallWork *works;	   /* by slot */
static int		*in_order; /* the slots, as they were asked when a connection was last made */
static uint64	 last_asked;
static uint64	 connection;   /* counts connections on which a server has answered */
static uint64	 synchronized; /* the last of them on which a check was committed */

/* ------------------------------------------------------------------------
 * Room
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if a slot may have that much room, for its batch or for an answer, whichever
 * "room" is.
 */
static bool
room_is_free(const CallSlot *slot, const CallRoom *room, Size size)
{
	Size of_role = 0;
	Size batches_of_role = 0;
	Size batches = 0;

	if (slot->reserve == RESERVE_OPEN)
		return true;
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		const CallRoom *batch = &call_pool->slots[i].batch_room;
		const CallRoom *answer = &call_pool->slots[i].answer_room;

		batches += batch->size;
		batches_of_role += batch->role == slot->role ? batch->size : 0;
		of_role += answer->role == slot->role ? answer->size : 0;
	}
	of_role += batches_of_role;
	if (room == &slot->batch_room &&
		(batches_of_role + size > MAX_BATCHES_OF_ROLE || batches + size > MAX_BATCHES))
		return false;
	return of_role + size <= MAX_ROOM_OF_ROLE;
}

/* Allocates room if there is enough.  If not, the slot is attended again in the next round. */
static bool
room_allocate(CallSlot *slot, CallRoom *room, Size size)
{
	if (room_is_free(slot, room, size))
		room->at = call_room_allocate(size);
	if (!DsaPointerIsValid(room->at))
	{
		call_slot_mark(slot);
		return false;
	}
	room->size = size;
	room->role = slot->role;
	return true;
}

static void
room_free(CallRoom *room)
{
	if (room->size == 0)
		return;
	call_room_free(room->at);
	*room = (CallRoom){0};
	zklock_wake_worker(); /* slots that wait for room have been marked: there is another
						   * round */
}

/* ------------------------------------------------------------------------
 * Batches and answers
 * ------------------------------------------------------------------------
 */

/* Ends a batch: none of its calls is under way any more. */
static void
batch_end(CallWork *work)
{
	work->lost = false;
	if (work->context)
		MemoryContextDelete(work->context);
	work->context = NULL;
}

/* Sends all of a batch, if a connection stands, unless the session has given it up. */
static void
batch_send(CallWork *work)
{
	if (!zk_client_connected() || !call_slot_step(work->slot, CALL_ASKED, CALL_SENT))
		return;
	work->connection = connection;
	worker_batch_send(work);
}

/*
 * Hands the outcome to the session; the answer is in the slot, or there is none.  If the
 * session has given up meanwhile, it has marked the slot, which is attended soon.
 */
static void
answer(CallWork *work, CallState from, CallOutcome outcome)
{
	CallSlot *slot = work->slot;

	batch_end(work);
	work->asked = 0;
	room_free(&slot->batch_room);
	slot->outcome = outcome;
	slot->code = outcome == CALL_REFUSED ? worker_marker_forbidden(slot) : 0;
	slot->session = zklock_session->info.id;
	if (call_slot_step(slot, from, CALL_ANSWERED))
		call_slot_wake(slot);
}

/*
 * Notes what the first operation's answer says of the marker node, once nothing keeps the
 * answer from the session any more: if this worker ends before, the session looks for the
 * node.
 */
static void
settle_marker(CallWork *work)
{
	worker_marker_answered(work->slot, ((CallResult *) work->answer.data)->outcome);
}

/* Puts the answer where the backend finds it, if there is room. */
static void
deliver(CallWork *work)
{
	CallSlot			 *slot = work->slot;
	const StringInfoData *text = &work->answer;

	if (work->too_long)
	{
		settle_marker(work);
		answer(work, CALL_SENT, CALL_TOO_LONG);
		return;
	}
	if (text->len > CALL_BUFFER_SIZE && !room_allocate(slot, &slot->answer_room, text->len))
		return;
	settle_marker(work);
	memcpy(call_slot_text(slot, &slot->answer_room), text->data, text->len);
	answer(work, CALL_SENT, CALL_OK);
}

/* Settles a batch when all of it has been answered, or will not be. */
static void
settle_batch(CallWork *work)
{
	if (work->lost && !work->slot->writes)
	{
		batch_end(work);
		if (call_slot_step(work->slot, CALL_SENT, CALL_ASKED))
			batch_send(work);
	}
	else if (work->lost && work->connection >= synchronized)
		return; /* it may still be done */
	else if (work->context)
		deliver(work);
	else
		answer(work, CALL_SENT, CALL_UNKNOWN);
}

/* Refuses impatient batches: there is no connection, and the lease has lapsed. */
static void
turn_away(void)
{
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = &call_pool->slots[i];

		if (call_slot_state(slot) != CALL_ASKED || slot->patience != CALL_IMPATIENT)
			continue;
		if (!worker_marker_may_stay(slot))
			worker_marker_unwanted(slot);
		answer(&works[i], CALL_ASKED, CALL_UNREACHABLE);
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* Does what a slot asks for now. */
static void
attend(int index)
{
	CallWork *work = &works[index];
	CallSlot *slot = work->slot;
	CallState state = call_slot_state(slot);

	/* The session has copied its last answer, and may have asked again. */
	if (state != CALL_SENT && state != CALL_ANSWERED)
		room_free(&slot->answer_room);
	switch (state)
	{
		case CALL_ROOM_WANTED:
			if (room_allocate(slot, &slot->batch_room, slot->batch_length) &&
				call_slot_step(slot, CALL_ROOM_WANTED, CALL_ROOM_GIVEN))
				call_slot_wake(slot);
			break;
		case CALL_SENT:
			if (work->pending == 0)
				settle_batch(work);
			break;
		case CALL_GIVEN_UP:
			if (work->pending > 0)
				break;
			if (work->context)
				settle_marker(work);
			batch_end(work);
			work->asked = 0;
			room_free(&slot->batch_room);
			if (call_slot_step(slot, CALL_GIVEN_UP, CALL_FREE))
				call_slot_wake(slot);
			break;
		case CALL_FREE:
		case CALL_ROOM_GIVEN:
		case CALL_ASKED:
		case CALL_ANSWERED:
			break;
	}
	if (work->context == NULL)
	{
		worker_marker_attend(slot);
		worker_marker_attend_provisional(slot);
	}
	if (state != CALL_ASKED)
		return;
	if (work->asked == 0)
		work->asked = ++last_asked;
	if (!worker_marker_provisional_may_stay(slot))
		return;
	if (worker_marker_may_stay(slot))
		batch_send(work);
	else if (worker_marker_forbidden(slot) != 0)
	{
		worker_marker_unwanted(slot);
		answer(work, CALL_ASKED, CALL_REFUSED);
	}
}

/* qsort() comparator: batches that have not been seen come last. */
static int
compare_asked(const void *a, const void *b)
{
	uint64 asked_a = works[*(const int *) a].asked - 1;
	uint64 asked_b = works[*(const int *) b].asked - 1;

	return (asked_a > asked_b) - (asked_a < asked_b);
}

/* Attends to all slots, first come first served. */
static void
attend_all(void)
{
	qsort(in_order, zklock_max_processes(), sizeof(int), compare_asked);
	for (int i = 0; i < zklock_max_processes(); i++)
		attend(in_order[i]);
}

/* Takes up what sessions ask. */
void
worker_calls_attend(void)
{
	if (synchronized != connection && engine_session_synchronized())
	{
		synchronized = connection;
		attend_all();
	}
	worker_marker_delete_again();
	zklock_visit_marked(call_pool->marks, zklock_max_processes(), attend);
	if (!zk_client_connected() && lease_state() != LEASE_HOLDS)
		turn_away();
}

/* Attends to all slots: a connection stands, on which a server has answered. */
void
worker_calls_connected(void)
{
	connection++;
	attend_all();
}

/*
 * Returns true if something that may change a node has been sent, and its outcome is not
 * known, whether its session still waits for that or not.
 */
bool
worker_calls_in_doubt(void)
{
	for (int i = 0; i < zklock_max_processes() && lease_state() != LEASE_OVER; i++)
	{
		CallSlot *slot = &call_pool->slots[i];
		CallState state = call_slot_state(slot);

		if (slot->writes && (state == CALL_SENT || (state == CALL_GIVEN_UP && works[i].pending > 0)))
			return true;
	}
	return false;
}

/*
 * Returns true if a session has created a node that may not stay, and that can be deleted when
 * the session gives it up.
 */
bool
worker_calls_leave_nodes(void)
{
	for (int i = 0; i < zklock_max_processes() && zk_client_connected(); i++)
	{
		if (call_pool->slots[i].provisional[0] != '\0')
			return true;
	}
	return false;
}

/* Prepares for calls, and takes over those of an earlier worker. */
void
worker_calls_start(void)
{
	worker_marker_start();
	works = palloc0(zklock_max_processes() * sizeof(CallWork));
	in_order = palloc(zklock_max_processes() * sizeof(int));
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallWork *work = &works[i];

		in_order[i] = i;
		work->slot = &call_pool->slots[i];
		work->lost = call_slot_state(work->slot) == CALL_SENT;
		attend(i);
	}
}

/* Wakes sessions that wait; they then wait for the next worker. */
void
worker_calls_at_exit(void)
{
	for (int i = 0; i < zklock_max_processes(); i++)
		call_slot_wake(&call_pool->slots[i]);
}
