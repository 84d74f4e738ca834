/*
 * round_calls.h
 *		Deadlocks across servers: the calls of a round.
 *
 * Private to deadlock.c, wait_records.c and own_record.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ROUND_CALLS_H
#define ZKLOCK_ROUND_CALLS_H

#include "shared/session_info.h"

/* What an answered call means for the round */
typedef enum RoundAnswer
{
	ROUND_GOES_ON,
	ROUND_FAILED, /* it ends with this step */
	ROUND_AGAIN	  /* so it does, and the next one is to come at once */
} RoundAnswer;

typedef struct RoundCalls
{
	MemoryContext context; /* what the round needs goes with it */
	int			  pending; /* calls that are not answered */
	bool		  failed;  /* one was not answered as it should */
	bool		  again;   /* the next round is to come at once */
	void (*go_on)(void);   /* to the next step, if nothing is pending */
} RoundCalls;

extern RoundCalls worker_round_calls;

static inline int64
our_session(void)
{
	return zklock_session->info.id;
}

extern void worker_round_answered(RoundAnswer answer);

#endif /* ZKLOCK_ROUND_CALLS_H */
