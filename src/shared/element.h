/*
 * element.h
 *		Element requests: what a session wants of a queue.
 *
 * element.c draws the states of a request and says who may make which step.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_H
#define ZKLOCK_ELEMENT_H

#include "port/atomics.h"
#include "recipes/element_name.h"
#include "recipes/node_name.h"
#include "shared/entry.h"
#include "storage/dsm.h"
#include "storage/spin.h"

/* How many requests there can be; one in 16 is for superusers alone. */
#define ELEMENT_REQUESTS 1024
#define ELEMENT_REQUESTS_RESERVED (ELEMENT_REQUESTS / 16)

/* Of these, a session may have so many. */
#define ELEMENT_REQUESTS_PER_SESSION 64

/* Longest element that is offered, bytes.  Java's clients read no more than 1,048,487. */
#define ELEMENT_MAX_DATA 1000000

/* A queue that has so many children takes no more: Java's clients list up to 61,679. */
#define ELEMENT_MAX_CHILDREN 50000

typedef enum ElementAction
{
	ELEMENT_OFFER,	/* add one */
	ELEMENT_SHOW,	/* read the first one */
	ELEMENT_REMOVE, /* take the first one away, for good */
	ELEMENT_TAKE	/* take the first one until the transaction ends */
} ElementAction;

typedef enum ElementState
{
	ELEMENT_FREE,	   /* any backend may claim the slot */
	ELEMENT_CLAIMED,   /* a backend fills it */
	ELEMENT_ASKED,	   /* the worker has not seen it */
	ELEMENT_WAITING,   /* the worker sees to it; nothing is decided */
	ELEMENT_FOUND,	   /* there is an element: the backend makes room for its data */
	ELEMENT_FETCHING,  /* the worker is to copy the data */
	ELEMENT_SENT,	   /* a write is under way that cannot be taken back */
	ELEMENT_DONE,	   /* answered; "outcome" says how */
	ELEMENT_HELD,	   /* taken until the transaction ends */
	ELEMENT_LOST,	   /* it was, but others may have it now */
	ELEMENT_COMMITTED, /* the element is to go */
	ELEMENT_GIVEN_UP   /* nobody waits; the rest is the worker's */
} ElementState;

typedef enum ElementOutcome
{
	ELEMENT_OUTCOME_OK,
	ELEMENT_OUTCOME_NONE,		 /* there is no element */
	ELEMENT_OUTCOME_NO_PATH,	 /* the path does not exist and is not to be created */
	ELEMENT_OUTCOME_UNREACHABLE, /* no connection: nothing was done */
	ELEMENT_OUTCOME_UNCERTAIN,	 /* the session ended: the write was made or not */
	ELEMENT_OUTCOME_NO_CHILDREN, /* the path, or one above it, is ephemeral */
	ELEMENT_OUTCOME_NO_RECEIPTS, /* their parent does not exist and is not to be created */
	ELEMENT_OUTCOME_NO_CHROOT,	 /* the chroot of zklock.servers is missing */
	ELEMENT_OUTCOME_TOO_DEEP,	 /* too many levels of the path are missing */
	ELEMENT_OUTCOME_HARMFUL,   /* the path would harm users of a lock or semaphore above it */
	ELEMENT_OUTCOME_OTHER_USE, /* the path is no queue; "code" is an ElementOtherUse */
	ELEMENT_OUTCOME_FULL,	   /* the queue has as many elements as is safe */
	ELEMENT_OUTCOME_WORN_OUT,  /* its sequence numbers are used up */
	ELEMENT_OUTCOME_SESSION_FULL, /* too many claims and watches */
	ELEMENT_OUTCOME_UNDELIVERED,  /* the segment could not be used; the log says why */
	ELEMENT_OUTCOME_REFUSED		  /* by ZooKeeper; see "code" */
} ElementOutcome;

typedef enum ElementWaiting
{
	ELEMENT_NO_WAIT,
	ELEMENT_WAIT /* until there is one */
} ElementWaiting;

/* Is a node that a request has made in ZooKeeper there? */
typedef enum ElementTrace
{
	TRACE_NONE,	  /* it is not */
	TRACE_UNSURE, /* a write is under way, or its reply was lost */
	TRACE_THERE
} ElementTrace;

typedef struct ElementRequest
{
	slock_t mutex;

	/* Protected by the mutex; moves along the arrows drawn in element.c. */
	ElementState state;

	/*
	 * The question.  Written by the backend in CLAIMED, constant until the slot is
	 * FREE; read by the worker, which has seen a later state under the mutex.
	 */
	uint64		   number;		/* in order of asking */
	int			   proc_number; /* whose latch is set */
	int			   pid;
	ElementAction  action;
	ElementWaiting waiting;
	ParentNodes	   parent_nodes;
	uint8		   uuid[ZKLOCK_UUID_BYTES];
	char		   path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */
	Size		   offered_length;			  /* bytes in the segment */

	/*
	 * Where the data is.  Written by the backend in CLAIMED (OFFER) or FOUND; read
	 * by the worker, which has seen the next state under the mutex.
	 */
	dsm_handle segment;

	/*
	 * What has been found.  Written by the worker under the mutex; read by others
	 * under it.  The name is empty until there is one.
	 */
	char		   name[ELEMENT_NAME_SIZE];
	int64		   czxid;		/* the element's */
	Size		   data_length; /* bytes */
	ElementOutcome outcome;
	int			   code; /* ELEMENT_OUTCOME_REFUSED: ZooKeeper's; ELEMENT_OUTCOME_OTHER_USE */

	/* Protected by the mutex; advanced by the backend, and followed by the worker. */
	uint32 check_wanted; /* number of the check of the claim asked for last */
	uint32 check_done;	 /* likewise passed last */

	/*
	 * What is in ZooKeeper because of the request.  Written and read by the worker
	 * alone, and by the next one, under no lock.
	 */
	ElementTrace claim;	  /* the child of the element */
	ElementTrace receipt; /* of a removal or an offer */
	int			 attempt; /* number of the claim or receipt made last */
	int64		 session; /* in which they were made */
} ElementRequest;

typedef struct ElementPool
{
	pg_atomic_uint64 next_number; /* of a request; advanced by backends */

	/* Bit i: request i wants attention.  Set by backends, cleared by the worker. */
	pg_atomic_uint64 dirty[ELEMENT_REQUESTS / 64];

	ElementRequest requests[ELEMENT_REQUESTS];
} ElementPool;

/* In shared memory */
extern ElementPool *element_pool;

extern void element_init(ElementPool *pool);

/* Backends */
extern ElementRequest *element_claim(ShareReserve reserve);
extern int			   element_count_own(void);
extern void			   element_ask(ElementRequest *request);
extern bool			   element_fetch(ElementRequest *request, dsm_handle segment);
extern void			   element_commit(ElementRequest *request);
extern void			   element_drop(ElementRequest *request);
extern void			   element_want_check(ElementRequest *request);

/* The worker */
typedef void (*ElementVisitor)(ElementRequest *request);
extern void element_visit_dirty(ElementVisitor visit);
extern void element_visit_all(ElementVisitor visit);
extern bool element_step(ElementRequest *request, ElementState from, ElementState to);
extern void element_set_found(ElementRequest *request, const char *name, int64 czxid, Size length);
extern bool element_lose(ElementRequest *request);
extern bool element_answer(ElementRequest *request, ElementOutcome outcome, int code);
extern void element_check_done(ElementRequest *request, uint32 check);
extern void element_free(ElementRequest *request);

/* Any process */
extern ElementState element_state(ElementRequest *request);

static inline int
element_index(const ElementRequest *request)
{
	return request - element_pool->requests;
}

#endif /* ZKLOCK_ELEMENT_H */
