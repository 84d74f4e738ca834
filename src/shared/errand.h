/*
 * errand.h
 *		Errands: what a backend has the worker find out or do in ZooKeeper.
 *
 * errand.c tells who may make which step.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ERRAND_H
#define ZKLOCK_ERRAND_H

#include "port/atomics.h"
#include "recipes/recipe.h"
#include "shared/entry.h"
#include "storage/dsm.h"
#include "storage/spin.h"

#define ERRAND_SLOTS 64
#define ERRAND_PATH_SIZE (ZKLOCK_MAX_PATH + 256) /* a node's path, with its NUL */
#define ERRAND_MAX_ANSWER (1024 * 1024)			 /* bytes of an answer */
#define ERRAND_MAX_PAYLOAD (1024 * 1024)		 /* bytes that go with a question */

typedef enum ErrandKind
{
	ERRAND_READ,	  /* read who owns a node; with a segment, also what its data says */
	ERRAND_CHECK,	  /* have a quorum commit that a node exists */
	ERRAND_DELETE,	  /* delete a node if it still is the one that was read */
	ERRAND_CONTENDERS /* read the contenders on a path: see errand_list.h */
} ErrandKind;

typedef enum ErrandState
{
	ERRAND_FREE,	 /* any backend may claim the slot */
	ERRAND_CLAIMED,	 /* a backend fills it */
	ERRAND_ASKED,	 /* the worker is to take it */
	ERRAND_TAKEN,	 /* the worker sees to it */
	ERRAND_ANSWERED, /* the backend is to take note */
	ERRAND_GIVEN_UP	 /* nobody waits; the worker frees it when it is done */
} ErrandState;

typedef enum ErrandOutcome
{
	ERRAND_OK,
	ERRAND_NO_NODE,
	ERRAND_CHANGED,		/* it is another node by now */
	ERRAND_UNREACHABLE, /* no connection, or it was lost: the outcome is unknown */
	ERRAND_TOO_LONG,	/* the answer does not fit */
	ERRAND_UNDELIVERED, /* the worker cannot get at the segment; it has logged why */
	ERRAND_REFUSED		/* see "code" */
} ErrandOutcome;

/* A slot of the pool. */
typedef struct Errand
{
	slock_t mutex;

	/* Protected by the mutex; moves along the arrows drawn in errand.c. */
	ErrandState state;

	/*
	 * The question.  Written by the backend in CLAIMED, constant until the slot
	 * is FREE; read by the worker, which has seen ASKED under the mutex.
	 */
	uint64	   number;		/* of the errand, in order of asking */
	int		   proc_number; /* whose latch is set by an answer */
	int		   pid;
	ErrandKind kind;
	RecipeId   recipe;				   /* of the path, for ERRAND_CONTENDERS */
	int		   limit;				   /* likewise: of so many, more is read than the name */
	char	   path[ERRAND_PATH_SIZE]; /* UTF-8 */
	dsm_handle segment;				   /* what is long, or DSM_HANDLE_INVALID: see errand.c */
	Size	   payload_length;		   /* bytes at the beginning of the segment */

	/*
	 * Part of the question to ERRAND_DELETE, of the answer to ERRAND_READ.
	 * Written by the backend in CLAIMED, by the worker in TAKEN.
	 */
	int64 czxid;
	int64 owner; /* the node's session, 0 if it is not ephemeral */

	/*
	 * The answer.  Written by the worker in TAKEN; read by the backend, which
	 * has seen ANSWERED under the mutex.
	 */
	ErrandOutcome outcome;
	int			  code;			 /* ERRAND_REFUSED: ZooKeeper's */
	Size		  answer_length; /* bytes in the segment, behind the payload */
} Errand;

/* All slots */
typedef struct ErrandPool
{
	pg_atomic_uint64 next_number; /* of an errand; advanced by backends */
	Errand			 slots[ERRAND_SLOTS];
} ErrandPool;

/* In shared memory */
extern ErrandPool *errand_pool;

extern void errand_init(ErrandPool *pool);

/* Backends */
extern Errand	  *errand_claim(void);
extern void		   errand_ask(Errand *errand);
extern ErrandState errand_state(Errand *errand);
extern void		   errand_drop(Errand *errand);

/* Worker */
extern Errand *errand_take(void);
extern void	   errand_answer(Errand *errand, ErrandOutcome outcome, int code);
extern void	   errand_put_back_all(void);

#endif /* ZKLOCK_ERRAND_H */
