/*
 * errands.c
 *		How the worker runs backends' errands.
 *
 * The worker takes an errand, makes its calls one after the other, and answers it
 * with the last reply (errand.c has the states).  A connection that is lost may
 * soon be back: only when the lease has lapsed is the answer that ZooKeeper
 * cannot be reached.  For each kind of errand, one function here makes the first
 * call; the slot is the argument of all handlers.
 *
 * Runs in: the worker.  A slot that it has taken is written by it alone; errand.h
 * says what protects the rest.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/errand.h"
#include "shared/errand_list.h"
#include "shared/lease_state.h"
#include "worker/answer.h"
#include "worker/contenders.h"
#include "worker/errands.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

static void
on_done(void *arg, const ZkReply *reply)
{
	worker_answer_outcome(arg, reply->outcome, reply->code);
}

/* ERRAND_CHECK */
static void
run_check(Errand *errand)
{
	zk_check(errand->pid, errand->path, on_done, errand);
}

/* Data that we may not read is as good as none. */
static void
on_data(void *arg, const ZkReply *reply)
{
	Errand *errand = arg;

	if (reply->outcome == ZK_OK && reply->data_length > 0)
		worker_answer_long(errand, reply->data, reply->data_length);
	else if (reply->outcome == ZK_REFUSED)
		errand_answer(errand, ERRAND_OK, 0);
	else
		worker_answer_outcome(errand, reply->outcome, reply->code);
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Errand *errand = arg;

	errand->czxid = reply->czxid;
	errand->owner = reply->ephemeral_owner;
	if (reply->outcome == ZK_OK && errand->segment != DSM_HANDLE_INVALID &&
		reply->data_length > 0 && reply->data_length <= ERRAND_LIST_MAX_DATA)
		zk_read(errand->pid, errand->path, on_data, errand);
	else
		worker_answer_outcome(errand, reply->outcome, reply->code);
}

/* ERRAND_READ: no older than what anybody knows by now */
static void
run_read(Errand *errand)
{
	zk_sync(NULL, NULL);
	zk_look(errand->pid, errand->path, on_read, errand);
}

static void
on_doomed(void *arg, const ZkReply *reply)
{
	Errand *errand = arg;

	if (reply->outcome != ZK_OK)
		worker_answer_outcome(errand, reply->outcome, reply->code);
	else if (reply->czxid != errand->czxid || reply->ephemeral_owner != errand->owner)
		errand_answer(errand, ERRAND_CHANGED, 0);
	else
		zk_delete(errand->pid, errand->path, on_done, errand);
}

/* ERRAND_DELETE: looks first whether it still is the node that is meant */
static void
run_delete(Errand *errand)
{
	zk_sync(NULL, NULL);
	zk_look(errand->pid, errand->path, on_doomed, errand);
}

static void (*const run_kind[])(Errand *errand) = {
	[ERRAND_READ] = run_read,
	[ERRAND_CHECK] = run_check,
	[ERRAND_DELETE] = run_delete,
	[ERRAND_CONTENDERS] = worker_contenders_read,
};

/* Takes up what backends have asked since the last call. */
void
worker_errands_attend(void)
{
	Errand *errand;

	if (!zk_client_connected() && lease_state() == LEASE_HOLDS)
		return;
	while ((errand = errand_take()) != NULL)
	{
		if (zk_client_connected())
			run_kind[errand->kind](errand);
		else
			errand_answer(errand, ERRAND_UNREACHABLE, 0);
	}
}

/* A new worker begins again what an earlier one has begun. */
void
worker_errands_start(void)
{
	errand_put_back_all();
}
