/*
 * zk_batch.c
 *		Deletions that go out in one request.
 *
 * Half of what a busy server asks of ZooKeeper are deletions.  Most are patient:
 * no other client is known to wait for them.  Patient ones that are waiting when
 * the turn comes to one of them go out with it, as one request: ZooKeeper commits
 * them in one write, and one message answers them.
 *
 * So that there are some, they wait while a request for others is under way,
 * unless ZK_BATCH_MAX have gathered.  This delays an unlock by the time of one
 * request at most, and pays where requests cost more work than time: so it is done
 * only if ZooKeeper can answer within NEAR_US.  The quickest answers tell, of which
 * the last count most; under load all take longer.
 *
 * Such a request does all or nothing.  If it is refused, nothing was done, and
 * each deletion is asked for again by itself, patient no more, which tells what is
 * wrong with which.  For PAUSE_MS each goes by itself then, lest a node that cannot be
 * deleted costs all others a second request each time.  If nobody knows what
 * became of the request, then nobody knows it of any of its deletions.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/clock.h"
#include "zk/zk_batch.h"
#include "zk/zk_turn.h"

#define NEAR_US 5000
#define PAUSE_MS 1000

static int64 quickest_us = PG_INT64_MAX; /* in which a deletion was answered, more or less */
static int64 again_at;					 /* deletions are put together from then on, ms */

static bool
is_near(void)
{
	return quickest_us <= NEAR_US || ZKLOCK_FAULT("near");
}

/*
 * Are patient deletions to wait for each other?
 *
 *	under_way	so many requests for such deletions are not answered yet
 */
bool
zk_batch_gathers(int under_way)
{
	return under_way > 0 && is_near() && zk_turn_patient() < ZK_BATCH_MAX && zklock_now_ms() >= again_at;
}

/*
 * The call is about to be sent: if it is a patient deletion, others go with it.
 *
 *	room	for how many calls, the first one included
 *
 * Returns how many go out.
 */
int
zk_batch_gather(Call *first, int room)
{
	Call *last = first;
	int	  n = 1;

	if (!first->patient || zklock_now_ms() < again_at)
		return n;
	while (n < Min(room, ZK_BATCH_MAX) && (last->next = zk_turn_take_patient()) != NULL)
	{
		last = last->next;
		n++;
	}
	return n;
}

/* How many calls go out in a request? */
int
zk_batch_size(const Call *first)
{
	int n = 0;

	for (const Call *call = first; call; call = call->next)
		n++;
	return n;
}

/* ZooKeeper has answered a request for deletions after so long. */
void
zk_batch_learn(int64 taken_us)
{
	if (taken_us < quickest_us)
		quickest_us = taken_us;
	else
		quickest_us += (taken_us - quickest_us) / 256;
}

/* Does an answer with that code mean that a request for several calls has done nothing? */
bool
zk_batch_is_refused(const Call *first, int code)
{
	if (ZKLOCK_FAULT("batch-done"))
		return false;
	return first->next && zk_error_outcome(code) != ZK_OK &&
		   zk_error_outcome(code) != ZK_UNKNOWN && !zk_error_is_breakdown(code);
}

/* Puts the calls of a request that was refused at the end of a list, to be sent one by one. */
void
zk_batch_part(Call *first, dlist_head *calls)
{
	Call *next;

	again_at = zklock_now_ms() + PAUSE_MS;
	for (Call *call = first; call; call = next)
	{
		next = call->next;
		call->next = NULL;
		call->patient = false;
		zk_call_renumber(call);
		dlist_push_tail(calls, &call->link);
	}
}
