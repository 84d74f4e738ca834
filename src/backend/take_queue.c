/*
 * take_queue.c
 *		A queue of elements: is it one, what is in it, and what becomes of writes.
 *
 * A queue is ZooKeeper's recipe: its elements are children "qn-N" of a path, and
 * the lowest comes first.
 *
 *	take_offer.c	look at the path; create the element, and with it a scratch node
 *	take_seek.c		list; get the first element that nobody has claimed
 *	take.c			show it: read it
 *					remove it: read it; delete it, and create a scratch node
 *					take it: an entry, whose node is the claim below the element;
 *					read it
 *
 * If the answer to an offer or removal was lost, the scratch node tells whether it was
 * made.  That is settled as long as the ZooKeeper session lives, whatever becomes
 * of connection and worker.  Only if the session has ended, or the call is cancelled,
 * nobody knows; the error says so, and names the element that was being removed.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/display.h"
#include "backend/request.h"
#include "backend/take_queue.h"
#include "fault.h"
#include "miscadmin.h"
#include "recipes/claim_record.h"
#include "shared/common.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "zk/zk_error.h"

/* How long to sleep when nobody tells what is waited for */
#define LOOK_MS 1000

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

/* Adds to an error that ends a call, such as a cancellation, what is in doubt. */
void
take_context(void *arg)
{
	const TakeQueue *queue = arg;
	const char		*path = display_utf8(queue->path);
	const char		*outage = display_outage();

	if (queue->offering)
		errcontext("while adding an element to ZooKeeper queue \"%s\", where it may be by now", path);
	else if (queue->removing)
		errcontext("while removing element \"%s\" of ZooKeeper queue \"%s\", which may be gone by now",
				   display_utf8(queue->removing), path);
	else if (outage)
		errcontext("while using ZooKeeper queue \"%s\": %s", path, outage);
	else
		errcontext("while using ZooKeeper queue \"%s\"", path);
}

/* Raises the error for an outcome of a step with a scratch node that cannot be borne. */
void
take_check(const TakeQueue *queue, const CallStep *step)
{
	CallStep shown = *step;

	shown.path = queue->path;
	if (step->result.outcome == CALL_REFUSED && zk_error_is_permission(step->result.code))
		request_report_failure(ENTRY_NONE, queue->path, FAILURE_NO_RECEIPT, step->result.code);
	if (step->result.outcome == CALL_REFUSED && step->result.code == ZK_QUOTA_EXCEEDED)
		request_report_failure(ENTRY_NONE, queue->path, FAILURE_QUOTA, step->result.code);
	call_report(&shown);
}

/* Refuses a path that is used for something else. */
static void
report_other_use(const TakeQueue *queue, ElementOtherUse use)
{
	static const char *const details[] =
		{[ELEMENT_USE_LOCK] = gettext_noop(
			 "The elements of a queue and the nodes of a lock or semaphore cannot have the same path."),
		 [ELEMENT_USE_ELECTION] = gettext_noop(
			 "The elements of a queue and the candidates of an election cannot have the same path."),
		 [ELEMENT_USE_CLAIMS] =
			 gettext_noop("The elements of a queue and claims cannot have the same path.")};

	if (use != ELEMENT_USE_NONE)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("ZooKeeper path \"%s\" is in use for something else",
							   display_path(queue->path)),
						errdetail_internal("%s", _(details[use]))));
}

/* Nobody knows whether what was sent has been done. */
static void
report_uncertain(const TakeQueue *queue)
{
	char *path = display_path(queue->path);

	if (queue->offering)
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"", path),
				 errdetail("The ZooKeeper session ended meanwhile.")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
						   display_utf8(queue->removing), path),
					errdetail("The ZooKeeper session ended meanwhile."),
					errhint("If the element is still in the queue, it was not.")));
}

/* ------------------------------------------------------------------------
 * Time
 * ------------------------------------------------------------------------
 */

bool
take_is_out_of_time(const TakeQueue *queue)
{
	return queue->call.until > 0 && zklock_now_ms() >= queue->call.until;
}

/* Sleeps until the latch is set, the time is over, or something has to be looked at. */
void
take_sleep(const TakeQueue *queue)
{
	long timeout = LOOK_MS;

	if (queue->call.until > 0)
		timeout = Max(Min(LOOK_MS, queue->call.until - zklock_now_ms()), 0);
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
					 zklock_wait_event(ZKLOCK_WAIT_ELEMENT));
}

/* ------------------------------------------------------------------------
 * Is it a queue, and what is in it?
 * ------------------------------------------------------------------------
 */

/* Refuses the path if its data, of which a look or listing tells, are a claim's. */
void
take_refuse_claims(TakeQueue *queue, const CallResult *result)
{
	CallStep read = {.kind = OP_READ, .path = queue->path, .most = CLAIM_RECORD_SIZE - 1};

	if (result->stat.data_length == 0 || result->stat.data_length >= CLAIM_RECORD_SIZE)
		return;
	call_batch(&queue->call, &read, 1, CALL_AS_KNOWN);

	/* Data that we may not read are no reason to refuse. */
	if (read.result.outcome == CALL_UNREACHABLE)
		call_report(&read);
	if (claim_record_recognised(read.read, read.result.text_length))
		report_other_use(queue, ELEMENT_USE_CLAIMS);
}

/*
 * Refuses the path if its children are something else.  Where there are elements it is
 * a queue: a lock that somebody asks for there is refused, and its node goes.
 */
static void
refuse_other_use(const TakeQueue *queue, const CallStep *list)
{
	ElementOtherUse found = ELEMENT_USE_NONE;
	int64_t			number;

	for (int i = 0; i < list->result.nchildren; i++)
	{
		if (element_name_read(list->children[i], &number))
			return;
		if (found == ELEMENT_USE_NONE)
			found = element_name_other_use(list->children[i]);
	}
	report_other_use(queue, found);
}

/* Lists the queue, no older than what anybody knows by now; refuses what is none. */
const CallStep *
take_list(TakeQueue *queue, bool watch)
{
	CallStep *list = palloc(sizeof(CallStep));

	*list = (CallStep){.kind = OP_LIST, .path = queue->path, .watch = watch};
	call_batch(&queue->call, list, 1, CALL_AFTER_SYNC);
	if (list->result.outcome != CALL_UNREACHABLE || queue->call.until == 0)
		call_report(list);
	if (list->result.outcome == CALL_OK)
	{
		take_refuse_claims(queue, &list->result);
		refuse_other_use(queue, list);
	}
	return list;
}

/* The elements of a listing, in their order */
const ElementName *
take_sort(const CallStep *list, int *n)
{
	ElementName *names =
		MemoryContextAllocHuge(CurrentMemoryContext,
							   Max(list->result.nchildren, 1) * sizeof(ElementName));

	*n = element_name_sort(list->children, list->result.nchildren, names);
	return names;
}

char *
take_element_path(const TakeQueue *queue, const char *name)
{
	return psprintf("%s/%s", queue->path, name);
}

/* ------------------------------------------------------------------------
 * What a scratch node tells
 * ------------------------------------------------------------------------
 */

/* The path of a scratch node of which nobody else knows */
static char *
scratch_path(void)
{
	uint8 uuid[ZKLOCK_UUID_BYTES];
	char  id[64];

	if (!pg_strong_random(uuid, sizeof(uuid)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	uuid_format(id, sizeof(id), uuid, UUID_DIGITS_ONLY);
	return psprintf(ELEMENT_RECEIPTS "/%s", id);
}

/*
 * Makes a step that a scratch node goes with, and waits until it is known whether it
 * was made.  If the answer was lost, and it was, the outcome is CALL_OK, and
 * czxid that of the scratch node; if it was not, CALL_UNKNOWN.
 */
void
take_make_certainly(TakeQueue *queue, CallStep *step)
{
	Call	 settling = {.patience = CALL_PATIENT};
	CallStep look;

	step->scratch = scratch_path();
	call_batch(&queue->call, step, 1, CALL_AS_KNOWN);
	if (step->result.outcome != CALL_UNKNOWN ||
		(step->kind == OP_REMOVE && ZKLOCK_FAULT("removal-again")))
		return;
	look = (CallStep){.kind = OP_LOOK, .path = step->scratch};
	call_batch(&settling, &look, 1, CALL_AFTER_SYNC);
	if (settling.session != queue->call.sent_session)
		report_uncertain(queue);
	call_report(&look);
	if (look.result.outcome == CALL_OK)
		step->result = look.result;
	call_forget_scratch();
}

/* A step with a scratch node found no node: that may have been the parent of such.  Returns whether it was. */
bool
take_create_receipts(TakeQueue *queue)
{
	const CallStep *made = call_create_path(&queue->call, ELEMENT_RECEIPTS, NULL, OP_CREATE);

	call_report(made);
	return made->result.outcome != CALL_NODE_EXISTS;
}
