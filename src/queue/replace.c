/*
 * replace.c
 *		A node of ours takes the place of another of ours, at the end of the queue.
 *
 * A contender that goes to the end of the queue should not be out of it for a moment, nor
 * seem to be there twice.  So the new node is created and the old one deleted
 * in one multi.  The old run waits in RUN_DELETING (run->replaced_by) until that
 * is done:
 *
 *		done			the old run is over; what number the new node got, the
 *						answer does not tell: the new run is UNKNOWN, and a listing
 *						finds its node (probe.c)
 *		not answered	likewise, but the old run stays until the new node is
 *						found; if it is not, the multi is sent again
 *		no node			the old node is gone: the new run goes on without it
 *		refused			those in the new run get an error, and the old node is
 *						deleted like any other
 *
 * A worker that takes over finds both entries, of which one names the other, and
 * both runs; adopt.c ties them together again.  For names without a UUID it helps
 * that the old node is known: any other of our session is the new one.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/replace.h"
#include "queue/run.h"
#include "queue/run_calls.h"

static void
on_replaced(void *arg, const ZkReply *reply)
{
	Run *run = arg;

	if (!run_node_call_end(run))
		return;
	switch (reply->outcome)
	{
		case ZK_OK:
			run_unsettled(run);
			if (run->replaces)
				run_deleted(run->replaces);
			break;
		case ZK_UNKNOWN:
			run_unsettled(run);
			break;
		case ZK_NO_NODE:
			run_replanned(run);
			if (run->replaces)
				run_deleted(run->replaces);
			break;
		default:
			/* A server that broke down may have done it all the same. */
			if (zk_error_is_breakdown(reply->code))
				run_unsettled(run);
			else
				run_replanned(run);
			run_fail(run, reply->outcome == ZK_NODE_EXISTS ? FAILURE_WORN_OUT : FAILURE_REFUSED,
					 reply->code);
			break;
	}
}

/* Creates the node of a run in place of that of the run which it replaces. */
void
run_replace(Run *run)
{
	char *old = path_node(run->path, run->replaces->name);
	char *node;

	run_choose_name(run);
	run_creating(run);
	run_node_call_begin(run, NODE_CALL_EXCHANGE);
	node = path_node(run->path, run->name);
	zk_exchange(run_owner(run), node, entry_of(run_head(run))->data, ZK_EPHEMERAL_SEQUENTIAL,
				old, ZK_UNNOTICED, on_replaced, run);
	pfree(node);
	pfree(old);
}
