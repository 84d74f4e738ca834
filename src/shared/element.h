/*
 * element.h
 *		Elements of queues that sessions have taken.
 *
 * element.c draws the states and says who may make which step.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_H
#define ZKLOCK_ELEMENT_H

#include "port/atomics.h"
#include "recipes/element_name.h"
#include "recipes/node_name.h"
#include "shared/share.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

/* How many elements can be taken; one in 16 is for superusers alone. */
#define ELEMENTS 1024
#define ELEMENTS_RESERVED (ELEMENTS / 16)

/* Of these, a session may have so many. */
#define ELEMENTS_PER_SESSION 64

typedef enum ElementState
{
	ELEMENT_FREE,
	ELEMENT_RESERVED,  /* a backend fills it */
	ELEMENT_ASKED,	   /* it is to be claimed */
	ELEMENT_HELD,	   /* it is, and its claim is watched */
	ELEMENT_FAILED,	   /* it cannot be claimed; "failure" says why */
	ELEMENT_LOST,	   /* it was held, but others may have it now */
	ELEMENT_COMMITTED, /* the element is to go */
	ELEMENT_GIVEN_UP   /* the rest is the worker's */
} ElementState;

typedef enum ElementFailure
{
	ELEMENT_FAILURE_GONE,		  /* there is no such element any more */
	ELEMENT_FAILURE_TAKEN,		  /* somebody else has it */
	ELEMENT_FAILURE_SESSION_FULL, /* too many claims */
	ELEMENT_FAILURE_REFUSED		  /* by ZooKeeper; see "code" */
} ElementFailure;

/* Is the claim, as far as the worker knows, there? */
typedef enum ElementTrace
{
	TRACE_NONE,	  /* it is not */
	TRACE_UNSURE, /* a write is under way, or its reply was lost */
	TRACE_THERE
} ElementTrace;

typedef struct TakenElement
{
	slock_t mutex;

	/* Protected by the mutex; the state moves along the arrows drawn in element.c. */
	ElementState   state;
	ElementFailure failure;
	int			   code;		 /* ZooKeeper's, for ELEMENT_FAILURE_REFUSED */
	bool		   stuck;		 /* GIVEN_UP: it cannot be given back now */
	uint32		   check_wanted; /* number of the check of the claim asked for last ... */
	uint32		   check_done;	 /* ... and passed last */

	/* Written by the backend in RESERVED, constant until FREE */
	uint64 number;		/* in order of asking */
	int	   proc_number; /* whose latch is set */
	int	   pid;
	uint8  uuid[ZKLOCK_UUID_BYTES];	  /* the claim's data */
	char   path[ZKLOCK_MAX_PATH + 1]; /* the queue's, UTF-8 */
	char   name[ELEMENT_NAME_SIZE];

	/* Written and read by the worker alone, and by the next one, under no lock */
	ElementTrace claim;	  /* the child of the element */
	int64		 session; /* in which it was made */
} TakenElement;

typedef struct ElementPool
{
	pg_atomic_uint64 next_number; /* of a request; advanced by backends */

	/* Somebody may wait for an element to be given back: it is, or is stuck. */
	ConditionVariable given_back;

	/* Bit i: element i wants attention.  Set by backends, cleared by the worker. */
	pg_atomic_uint64 dirty[ELEMENTS / 64];

	TakenElement elements[ELEMENTS];
} ElementPool;

/* In shared memory */
extern ElementPool *element_pool;

extern void element_init(ElementPool *pool);

/* Backends */
extern TakenElement *element_reserve(ShareReserve reserve);
extern int			 element_count_own(void);
extern void			 element_ask(TakenElement *element);
extern void			 element_commit(TakenElement *element);
extern void			 element_drop(TakenElement *element);
extern bool			 element_is_coming_back(const char *path, const char *name);
extern void			 element_want_check(TakenElement *element);

/* The worker */
typedef void (*ElementVisitor)(TakenElement *element);
extern void element_visit_dirty(ElementVisitor visit);
extern bool element_step(TakenElement *element, ElementState from, ElementState to);
extern bool element_fail(TakenElement *element, ElementFailure failure, int code);
extern void element_free(TakenElement *element);
extern void element_is_stuck(TakenElement *element);
extern void element_check_done(TakenElement *element, uint32 check);

/* Any process */
extern ElementState element_state(TakenElement *element);

static inline int
element_index(const TakenElement *element)
{
	return element - element_pool->elements;
}

#endif /* ZKLOCK_ELEMENT_H */
