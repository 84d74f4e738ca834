/*
 * take.c
 *		One element of a queue: it is shown, removed, or taken by a transaction.
 *
 * An element that a transaction takes is a hold (hold.c), whose node is the element's child
 * "claim".  The worker creates and watches that, as it does the nodes of locks, and
 * a claim that somebody else has is refused at once.  If the element is just being
 * given back by a session of this server, the worker waits for that.  As for locks,
 * the commit guard looks whether it was lost.
 *
 *	commit is visible	the worker deletes claim and element together
 *	anything else		the worker deletes the claim
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/hold.h"
#include "backend/request.h"
#include "backend/take_queue.h"
#include "miscadmin.h"
#include "shared/session_info.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

/* A session may have so many. */
#define MAX_ELEMENTS 64

static void
set_element(Element *element, const char *name, const CallStep *read)
{
	element->name = pstrdup(name);
	element->token = read->result.stat.czxid;
	element->version = read->result.stat.version;
	element->data = read->read ? read->read : palloc(1);
	element->length = read->result.text_length;
}

/* Reads an element.  Returns false if it is gone, or if the time is over. */
static bool
read_element(TakeQueue *queue, const char *name, CallStep *read)
{
	*read = (CallStep){.kind = OP_READ, .path = take_element_path(queue, name), .most = CALL_ANY_LENGTH};
	call_batch(&queue->call, read, 1, CALL_AS_KNOWN);
	if (read->result.outcome != CALL_UNREACHABLE || !take_is_out_of_time(queue))
		call_report(read);
	return read->result.outcome == CALL_OK;
}

/* Shows an element, if nobody has claimed it. */
bool
take_show_element(TakeQueue *queue, const char *name, Element *got)
{
	CallStep read;

	if (!read_element(queue, name, &read) || read.result.stat.child_count > 0)
		return false;
	set_element(got, name, &read);
	return true;
}

/* Removes an element, but nothing that was not read. */
bool
take_remove_element(TakeQueue *queue, const char *name, Element *got)
{
	while (take_show_element(queue, name, got))
	{
		CallStep step = {.kind = OP_REMOVE, .path = take_element_path(queue, name), .version = got->version};

		queue->removing = name;
		take_make_certainly(queue, &step);
		queue->removing = NULL;
		if (step.result.outcome == CALL_OK)
			return true;
		if (step.result.outcome == CALL_NOT_EMPTY ||
			(step.result.outcome == CALL_NO_NODE && !take_create_receipts(queue)) ||
			(step.result.outcome == CALL_UNREACHABLE && take_is_out_of_time(queue)))
			return false;
		take_check(queue, &step);
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Taking
 * ------------------------------------------------------------------------
 */

static void
check_number(void)
{
	int n = hold_number(CONTENDER_ELEMENT);

	if (n >= MAX_ELEMENTS)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("too many elements of ZooKeeper queues in this session"),
						errdetail("It holds %d, as many as it may.", n),
						errhint("Take fewer elements in one transaction.")));
}

/* Waits until the worker has claimed the element, or cannot. */
static bool
wait_for_claim(const TakeQueue *queue, const Hold *taken)
{
	for (;;)
	{
		EntryStatus status;

		ResetLatch(MyLatch);
		status = entry_status(taken->entry);
		if (status.state == CONTENDER_GRANTED)
			return true;
		if (status.state == CONTENDER_LOST)
			request_report_lost(taken);
		if (status.state == CONTENDER_FAILED &&
			(status.failure == FAILURE_BUSY || status.failure == FAILURE_NO_PATH))
			return false;
		if (status.state == CONTENDER_FAILED)
			request_report_failure(taken->entry, queue->path, status.failure, status.error_code);
		if (take_is_out_of_time(queue))
			return false;
		if (queue->timeout_ms == LOCK_NO_WAIT && lease_state() != LEASE_HOLDS)
			request_report_unreachable(queue->path);
		take_sleep(queue);
	}
}

/* Reads an element that has been asked for, once it is claimed: the data are those of that one. */
static bool
read_claimed(TakeQueue *queue, const Hold *taken, const char *name, Element *got)
{
	CallStep read;

	if (!wait_for_claim(queue, taken) || !read_element(queue, name, &read))
		return false;
	hold_check(taken);
	set_element(got, name, &read);
	return true;
}

/* Takes an element until the transaction ends. */
bool
take_claim_element(TakeQueue *queue, const char *name, Element *got)
{
	HoldRequest request = {.kind = CONTENDER_ELEMENT,
						   .path = take_element_path(queue, name),
						   .mode = LOCK_MODE_EXCLUSIVE,
						   .scope = LOCK_SCOPE_TRANSACTION,
						   .manner = queue->timeout_ms == LOCK_NO_WAIT ? ASK_AND_GRAB : ASK_AND_WAIT,
						   .since = GetCurrentTimestamp()};
	int			mark = hold_begin();
	Hold	   *taken;
	bool		made;

	check_number();
	taken = hold_ask(&request);
	made = read_claimed(queue, taken, name, got);
	if (made)
		hold_count(taken, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
	hold_end(mark, made);
	return made;
}
