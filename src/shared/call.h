/*
 * call.h
 *		Calls: what a session has the worker do in ZooKeeper for it; and whose turn it is to
 *		look for an element of a queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CALL_H
#define ZKLOCK_CALL_H

#include "postmaster/postmaster.h"
#include "shared/session_info.h"
#include "storage/spin.h"
#include "utils/dsa.h"

/*
 * Batches and answers up to this size, which most of a single operation have, fit into the slot,
 * of which each possible process has one; longer ones need room in the area.
 */
#define CALL_BUFFER_SIZE 1024

#define CALL_AREA_SIZE ((Size) 8 * 1024 * 1024)
#define CALL_MAX_BATCH (256 * 1024)
#define CALL_MAX_ANSWER (1280 * 1024)
#define CALL_MAX_OPERATIONS 256
#define CALL_MARKER_SIZE (ZKLOCK_MAX_PATH + 64) /* of a marker node's path, with its NUL */

/*
 * A slot's life:
 *
 *		FREE -> ASKED -> SENT -> ANSWERED -> FREE
 *		FREE -> ROOM_WANTED -> ROOM_GIVEN -> ASKED
 *		SENT -> ASKED -> ANSWERED
 *		ROOM_WANTED, ROOM_GIVEN, ASKED, SENT, ANSWERED -> GIVEN_UP -> FREE
 *
 * The backend gives up a batch for which it no longer waits, or when it exits.  The
 * table in call.c says who makes each step.
 */
typedef enum CallState
{
	CALL_FREE,		  /* the worker may still have to free the answer's room */
	CALL_ROOM_WANTED, /* the batch does not fit into the slot */
	CALL_ROOM_GIVEN,
	CALL_ASKED,	   /* nothing has been sent */
	CALL_SENT,	   /* something may have been done */
	CALL_ANSWERED, /* the backend has to copy the answer */
	CALL_GIVEN_UP  /* nobody waits; the worker cleans up */
} CallState;

#define CALL_ANY_LENGTH (-1)

/* The result of one call.  Its texts are behind the array of results. */
typedef struct CallResult
{
	CallOutcome outcome;
	int			code; /* ZooKeeper's */
	NodeStat	stat;
	bool		watching;  /* GET_CHILDREN, WATCH_DATA: the watch is set */
	int			nchildren; /* GET_CHILDREN */
	uint32 text; /* GET_DATA: data; GET_CHILDREN: names; APPEND, CREATE of a persistent sequential
				  * node: its name; each followed by a NUL */
	uint32 text_length; /* bytes, 0 if nothing was read */
} CallResult;

/* How long a call waits for a connection */
typedef enum CallPatience
{
	CALL_IMPATIENT, /* for as long as the lease holds */
	CALL_PATIENT	/* for ever */
} CallPatience;

/* Room in the area; all zero if there is none, and the text is in the slot's buffer */
typedef struct CallRoom
{
	dsa_pointer at;
	Size		size;
	Oid			role; /* whose share it uses */
} CallRoom;

typedef struct CallSlot
{
	slock_t mutex;

	CallState state; /* protected by the mutex */

	/*
	 * The batch.  Written by the backend in FREE or ROOM_GIVEN; read by the worker after
	 * it has seen a later state under the mutex.
	 */
	int			 pid;
	Oid			 role; /* the session's: sessions of one role have one share */
	ShareReserve reserve;
	CallPatience patience;
	bool		 after_sync;		  /* its calls see all that was committed before */
	bool		 writes;			  /* at least one of them changes something */
	bool		 creates_provisional; /* the first one creates such a node; see below */
	int			 ncalls;
	uint32		 batch_length;
	char		 next_marker[CALL_MARKER_SIZE]; /* path of the marker node that it
												   * creates, or "" */

	/* Written by the worker before ROOM_GIVEN and ANSWERED, read by the backend afterwards */
	CallRoom	batch_room;
	CallRoom	answer_room;  /* freed by the worker after ANSWERED */
	CallOutcome outcome;	  /* CALL_OK: each operation has its result; else the outcome of
							   * all */
	int			code;		  /* CALL_REFUSED: ZooKeeper's */
	int64		session;	  /* the ZooKeeper session in which the answer was given ... */
	int64		sent_session; /* ... and in which the marker node was created */

	/*
	 * The marker node, which exists if what was sent with it has been done; "" if there is
	 * none.  Written by the worker, or the next one, which deletes the node when it knows
	 * the result by the answer, or when the backend no longer wants the node.  If it
	 * replaces another one, either may exist until the answer is known.
	 */
	char marker[CALL_MARKER_SIZE]; /* created in sent_session */
	char replaced_marker[CALL_MARKER_SIZE];
	bool marker_wanted; /* set by the backend with the batch; cleared under the mutex */

	/*
	 * A persistent node that was created for the slot and may not stay: a container with
	 * nothing below it yet, or a contender's node, which is sequential; "" if there is none.  Written by the
	 * worker, or the next one, which deletes the node when the backend no longer wants it;
	 * and, in FREE, by a backend that wants it, when it is to stay.  The last field is set by
	 * the backend and cleared by the worker, under the mutex.
	 */
	char  provisional[CALL_MARKER_SIZE + ZKLOCK_MAX_NODE_NAME];
	int64 provisional_czxid;  /* of a contender's node, whose name may be reusable; else 0 */
	bool  provisional_wanted; /* set by the backend with the batch; cleared under the mutex */
	bool  provisional_abandoned; /* an earlier node was given up, and goes before the batch */

	/*
	 * The session's search for an element of a queue.  Written by the session, which writes
	 * the path only while it has no ticket; a path is good if the ticket is the same before
	 * and after it is read.  Any process may write that the path has changed.
	 */
	pg_atomic_uint64 queue_wait_ticket;	 /* order of arrival; 0: it does not wait */
	pg_atomic_uint32 queue_wait_changed; /* 1: the path has changed since it looked */
	char			 queue_wait_path[ZKLOCK_MAX_PATH + 1];

	/*
	 * The batch: ZkCalls, and behind them what they point to, as this memory is at one address
	 * in all processes.  Then the answer: CallResults and their texts.
	 */
	char buffer[CALL_BUFFER_SIZE] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} CallSlot;

typedef struct CallPool
{
	/* Bit i: the worker must look at slot i.  Set by any process, cleared by the worker. */
	pg_atomic_uint64 marks[ZKLOCK_MARK_WORDS(MAX_BACKENDS + NUM_AUXILIARY_PROCS)];

	pg_atomic_uint64 last_ticket;	   /* of a session that waits for an element of a queue */
	pg_atomic_uint32 queue_waits_left; /* a path may have lost its last session that waits */

	CallSlot slots[FLEXIBLE_ARRAY_MEMBER]; /* one for each possible process */
} CallPool;

/* In shared memory; the area is the postmaster's, which each process inherits attached */
extern CallPool *call_pool;
extern dsa_area *call_area;

/* What becomes of a provisional node */
typedef enum NodeFate
{
	NODE_STAYS,
	NODE_GOES
} NodeFate;

/* Backends, each for its own slot */
extern void call_slot_give_up(void);
extern void call_slot_settle_node(NodeFate fate);

/* Any process */
extern bool		 call_slot_step(CallSlot *slot, CallState from, CallState to);
extern CallSlot *queue_wait_first(const char *path, size_t length);
extern bool		 queue_wait_wake(const char *path, size_t length);

/* Returns the state of a slot. */
static inline CallState
call_slot_state(CallSlot *slot)
{
	CallState state;

	SpinLockAcquire(&slot->mutex);
	state = slot->state;
	SpinLockRelease(&slot->mutex);
	return state;
}

/* Returns the address of a slot's batch or answer, which may have room of its own. */
static inline char *
call_slot_text(CallSlot *slot, const CallRoom *room)
{
	return room->size > 0 ? dsa_get_address(call_area, room->at) : slot->buffer;
}

/* Has the worker look at a slot in its next round. */
static inline void
call_slot_mark(CallSlot *slot)
{
	zklock_mark(call_pool->marks, slot - call_pool->slots);
}

/* Has the worker look at a slot at once. */
static inline void
call_slot_want_worker(CallSlot *slot)
{
	call_slot_mark(slot);
	zklock_wake_worker();
}

/* Wakes the process that has a slot, after the slot has changed. */
static inline void
call_slot_wake(CallSlot *slot)
{
	SetLatch(&GetPGProcByNumber(slot - call_pool->slots)->procLatch);
}

static inline bool
call_is_read(ZkOperation kind)
{
	return kind == ZK_EXISTS || kind == ZK_GET_DATA || kind == ZK_GET_CHILDREN ||
		   kind == ZK_WATCH_DATA || kind == ZK_REMOTE_WAITS;
}

#endif /* ZKLOCK_CALL_H */
