/*
 * call.h
 *		Calls: what a session has the worker do in ZooKeeper for it; and whose turn it
 *		is to look for an element of a queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CALL_H
#define ZKLOCK_CALL_H

#include "port/atomics.h"
#include "postmaster/postmaster.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

/* Questions and answers of so many bytes fit into the slot; what is longer needs room. */
#define CALL_BUFFER_SIZE 4096

#define CALL_AREA_SIZE ((Size) 8 * 1024 * 1024)
#define CALL_MAX_QUESTION (256 * 1024)
#define CALL_MAX_ANSWER (1280 * 1024)
#define CALL_MAX_OPERATIONS 256
#define CALL_SCRATCH_SIZE (ZKLOCK_MAX_PATH + 64) /* path of a scratch node, with its NUL */

/*
 * A slot's life:
 *
 *		FREE -> ASKED -> SENT -> ANSWERED -> FREE
 *		FREE -> ROOM_WANTED -> ROOM_GIVEN -> ASKED
 *		SENT -> ASKED -> ANSWERED
 *		ROOM_WANTED, ROOM_GIVEN, ASKED, SENT, ANSWERED -> GIVEN_UP -> FREE
 *
 * The backend gives up what it does not wait for any more, or as it ends.  The table in
 * call.c says who makes each step.
 */
typedef enum CallState
{
	CALL_FREE,		  /* the worker may have the room of an answer to take back */
	CALL_ROOM_WANTED, /* the question does not fit into the slot */
	CALL_ROOM_GIVEN,
	CALL_ASKED,	   /* nothing has been sent */
	CALL_SENT,	   /* something may have been done */
	CALL_ANSWERED, /* the backend is to take note */
	CALL_GIVEN_UP  /* nobody waits; the rest is the worker's */
} CallState;

typedef enum CallOpKind
{
	OP_LOOK,   /* a node's Stat */
	OP_READ,   /* and its data, unless they are too long */
	OP_LIST,   /* its children */
	OP_CREATE, /* create a persistent node */
	OP_CREATE_CONTAINER,
	OP_RECORD,	/* create a persistent node for a record, of version 1 */
	OP_REPLACE, /* the same, in place of a node of version 0, whose ACL it has */
	OP_SET,		/* replace the data of that version */
	OP_DELETE,
	OP_APPEND, /* create a persistent sequential node, and the slot's scratch node, both or none */
	OP_REMOVE, /* delete a node of that version, and the pin, if any, and create the scratch node
				 * in its place, all or none */
	OP_PUBLISH, /* create an ephemeral node, which is the slot's scratch node until the session
				 * forgets it; the one before it goes, both or none */
	OP_PIN, /* create an ephemeral node, which is the slot's scratch node until it is removed,
				 * or the session forgets it; others follow in the same question */
	OP_WATCH, /* set a watch on the node's data, if it exists */
	OP_ABROAD /* have the engine note for which entries other servers matter, with all that
				* was committed before */
} CallOpKind;

#define CALL_ANY_VERSION (-1)
#define CALL_ANY_LENGTH (-1)

/* One operation.  Texts are behind the array, at an offset from its beginning. */
typedef struct CallOperation
{
	CallOpKind kind;
	int32	   version; /* SET, REMOVE: of the data; or CALL_ANY_VERSION */
	int		   most;	/* READ: longer data are not read; or CALL_ANY_LENGTH */
	bool	   watch;	/* LIST: have the children watched for those that seek there */
	uint32	   path;	/* with a NUL; UTF-8 */
	uint32 data; /* CREATE, RECORD, REPLACE, SET, APPEND; REMOVE: the pin's path; behind them a NUL */
	uint32 data_length;
} CallOperation;

/* What has become of it.  Texts are behind the array of these. */
typedef struct CallResult
{
	CallOutcome outcome;
	int			code; /* ZooKeeper's */
	NodeStat	stat;
	bool		watching;	 /* LIST, WATCH: the watch is set */
	int			nchildren;	 /* LIST */
	uint32		text;		 /* READ: data; LIST: names; APPEND: the name; with a NUL each */
	uint32		text_length; /* bytes, 0 if nothing was read */
} CallResult;

/* How patiently a call waits for a connection. */
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
	Oid			role; /* for which it counts */
} CallRoom;

typedef struct CallSlot
{
	slock_t mutex;

	CallState state; /* protected by the mutex */

	/*
	 * The question.  Written by the backend in FREE or ROOM_GIVEN; read by the
	 * worker, which has seen a later state under the mutex.
	 */
	int			 pid;
	Oid			 role; /* the session's: it shares with others of that role */
	ShareReserve reserve;
	CallPatience patience;
	bool		 after_sync; /* it sees all that was committed before */
	bool		 writes;	 /* not all of its operations only read */
	int			 noperations;
	uint32		 question_length;
	char		 next_scratch[CALL_SCRATCH_SIZE]; /* the scratch node that it creates, or "" */

	/* Written by the worker before ROOM_GIVEN and ANSWERED, and read by the backend after. */
	CallRoom	question_room;
	CallRoom	answer_room;  /* taken back after ANSWERED */
	CallOutcome outcome;	  /* CALL_OK: each operation has its result; else of all alike */
	int			code;		  /* CALL_REFUSED: ZooKeeper's */
	int64		session;	  /* the ZooKeeper session in which the answer was given ... */
	int64		sent_session; /* ... and in which the scratch node was created */

	/*
	 * The scratch node, which exists if what was sent with it has been done; "" if
	 * there is none.  Written by the worker, or the next one; it deletes the node
	 * when it knows by the answer, or the backend does not want it any more.  If that
	 * takes the place of another one, either may exist as long as the answer is not known.
	 */
	char scratch[CALL_SCRATCH_SIZE]; /* created in sent_session */
	char replaced_scratch[CALL_SCRATCH_SIZE];
	bool scratch_wanted; /* set by the backend with the question; cleared under the mutex */

	/*
	 * A container that was created for the slot, with nothing below it yet; "" if there
	 * is none.  Written by the worker, or the next one; it deletes the node when the backend does
	 * not want it any more.
	 */
	char container[ZKLOCK_MAX_PATH + 1];
	bool container_wanted; /* set by the backend with the question; cleared under the mutex */

	/* The session looks for an element of a queue.  Protected by seek_lock */
	uint64 seek_ticket;	 /* in order of coming; 0: it does not */
	bool   seek_changed; /* something has happened at the path since it looked */
	char   seek_path[ZKLOCK_MAX_PATH + 1];

	/* CallOperations and their texts; then CallResults and theirs */
	char buffer[CALL_BUFFER_SIZE] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} CallSlot;

typedef struct CallPool
{
	/* Bit i: slot i wants attention.  Set by any process, cleared by the worker. */
	pg_atomic_uint64 marks[ZKLOCK_MARK_WORDS(MAX_BACKENDS + NUM_AUXILIARY_PROCS)];

	uint64			 last_ticket; /* protected by seek_lock */
	pg_atomic_uint32 seeks_left;  /* the last session that seeks at a path may have left */

	CallSlot slots[FLEXIBLE_ARRAY_MEMBER]; /* one for each process that there can be */
} CallPool;

/* In shared memory */
extern CallPool *call_pool;
extern void		*call_area; /* for what does not fit into a slot */
extern LWLock	*seek_lock;

extern Size call_pool_size(void);
extern void call_pool_init(CallPool *pool);
extern void call_area_init(void *place, int tranche);

/* Backends, each its own slot */
extern CallSlot *call_slot_own(void);
extern void		 call_slot_ask(CallSlot *slot, CallState state);
extern void		 call_slot_done(CallSlot *slot);
extern void		 call_slot_give_up(CallSlot *slot);
extern void		 call_slot_leave_path(CallSlot *slot);
extern void		 seek_join(const char *path);
extern bool		 seek_is_turn(bool anyhow);
extern void		 seek_leave(void);

/* The worker */
extern void		   call_slot_tell(CallSlot *slot);
extern dsa_pointer call_room_allocate(Size size);
extern void		   call_room_free(dsa_pointer room);
extern void		   seek_tell(const char *path, size_t length);
extern void		   seek_tell_all(void);
extern bool		   seek_exists(const char *path, size_t length);

/* Any process */
extern CallState call_slot_state(CallSlot *slot);
extern bool		 call_slot_step(CallSlot *slot, CallState from, CallState to);
extern void		 call_slot_mark(CallSlot *slot);
extern char		*call_slot_text(CallSlot *slot, const CallRoom *room);

static inline bool
call_is_read(CallOpKind kind)
{
	return kind == OP_LOOK || kind == OP_READ || kind == OP_LIST || kind == OP_WATCH ||
		   kind == OP_ABROAD;
}

#endif /* ZKLOCK_CALL_H */
