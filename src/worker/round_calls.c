/*
 * round_calls.c
 *		Deadlocks across servers: the calls of a round.
 *
 * A file that makes a call counts it as pending; the handler of its reply does its
 * work first, and then says here what follows for the round.  deadlock.c begins and
 * ends rounds; it is reached through a callback, as it is above the others.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "worker/round_calls.h"

RoundCalls worker_round_calls;

/* The last thing that the handler of a reply does: the round may end in it. */
void
worker_round_answered(RoundAnswer answer)
{
	worker_round_calls.pending--;
	worker_round_calls.failed |= answer != ROUND_GOES_ON;
	worker_round_calls.again |= answer == ROUND_AGAIN;
	worker_round_calls.go_on();
}
