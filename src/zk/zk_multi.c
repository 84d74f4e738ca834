/*
 * zk_multi.c
 *		Calls that go out in one request.
 *
 * Most calls of a busy server create lock nodes, list their paths, or delete them.  Creates
 * and deletions that are marked as patient go out together, those of one kind in one
 * request: ZooKeeper commits them in one write and answers them in one message.  When the
 * turn comes to a patient call, the others of its kind that wait go with it (zk_turn.c).
 *
 * So that they gather, patient calls wait while a request of others of their kind is under
 * way, unless ZK_MULTI_MAX have gathered.  This delays a lock or an unlock by the time of
 * one request at most, and pays where requests cost more work than time.  So it is done
 * only if ZooKeeper can answer within NEAR_US.  The quickest answers show that, the latest
 * of them most; under load all answers take longer.  A session that is alone never waits.
 *
 * That is worth, with 16 sessions on a path each, two cores and ZooKeeper in memory: a node that
 * is created, listed and deleted by the client library alone takes 362 us of processor time,
 * ZooKeeper's included; 259 us if deletions go out together, 163 us if creates do, too.  A lock
 * and its release take 407 us in all processes with deletions alone, 327 us with both, and there
 * are 1.13 times as many of them in a second.  One session gains nothing.
 *
 * Such a request does all or nothing.  If it is refused, nothing was done, and each call is
 * sent again by itself, no longer patient, which shows what is wrong with which
 * (zk_flow.c).  For PAUSE_MS each call of that kind then goes by itself, so that a node
 * that cannot be created or deleted does not cost all others a second request each time;
 * but where paths are missing, the caller says which creates are patient (engine/node.c).
 * If it is not known what became of the request, it is not known of any of its calls.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/common.h"
#include "zk/zk_internal.h"

#define NEAR_US 5000
#define PAUSE_MS 1000

/* The patient calls of one kind */
typedef struct Patient
{
	int	  waiting;	   /* for their turn */
	int	  under_way;   /* taken, and not answered yet */
	int64 quickest_us; /* about the shortest time of an answer to any call of the kind */
	int64 again_at;	   /* when they may go out together again, ms */
} Patient;

static Patient creates = {.quickest_us = PG_INT64_MAX};
static Patient deletions = {.quickest_us = PG_INT64_MAX};

static Patient *
patient(ZkOperation kind)
{
	return kind == ZK_DELETE ? &deletions : &creates;
}

/* Counts a call that begins (1) or ceases (-1) to wait for its turn, or to be under way. */
void
zk_multi_count(const Call *call, int waiting, int under_way)
{
	if (!call->asked.patient)
		return;
	patient(call->asked.kind)->waiting += waiting;
	patient(call->asked.kind)->under_way += under_way;
}

/* Returns true if others may go out in the same request as the call. */
bool
zk_multi_may_grow(const Call *call)
{
	return call->asked.patient && zklock_now_ms() >= patient(call->asked.kind)->again_at;
}

/* Returns true if the call must wait until more have gathered. */
bool
zk_multi_gathers(const Call *call)
{
	const Patient *others = patient(call->asked.kind);

	return call->asked.patient && others->under_way > 0 && others->waiting < ZK_MULTI_MAX &&
		   (others->quickest_us <= NEAR_US || ZKLOCK_FAULT("near")) &&
		   zklock_now_ms() >= others->again_at;
}

/* Adapts quickest_us to a request that has been answered just now. */
static void
learn(const Call *first)
{
	Patient *others = patient(first->asked.kind);
	int64	 taken = zklock_now_us() - first->sent_at;

	if (taken < others->quickest_us)
		others->quickest_us = taken;
	else
		others->quickest_us += (taken - others->quickest_us) / 256;
}

/*
 * Learns from the answer to a request.  Returns true if it was one of several calls and did
 * nothing; for a while each call of its kind goes by itself then.
 */
bool
zk_multi_answered(const Call *first, int code)
{
	if (first->asked.kind != ZK_DELETE && first->asked.kind != ZK_CREATE)
		return false;
	learn(first);
	if (first->next == NULL || zk_error_outcome(code) == CALL_OK ||
		zk_error_is_breakdown(code) || ZKLOCK_FAULT("batch-done"))
		return false;
	if (first->asked.kind == ZK_DELETE || zk_error_outcome(code) != CALL_NO_NODE)
		patient(first->asked.kind)->again_at = zklock_now_ms() + PAUSE_MS;
	return true;
}
