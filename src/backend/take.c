/*
 * take.c
 *		Elements of queues, as a session asks for them and has them.
 *
 * A session fills a request (shared/element.h), waits until the worker has
 * answered it, and gives it back, however that ends.  An element that it takes for
 * its transaction it keeps in a list, by subtransaction, until that is over:
 *
 *	commit is visible	the worker removes it
 *	anything else		the worker gives it back
 *
 * The callbacks only change states and set the worker's latch.
 *
 * Of what is removed or offered at once a session can always say what has become
 * of it, but for two cases, in which the error names the element: the call is
 * cancelled while the write is under way, or the ZooKeeper session ends then.
 *
 * Runs in: backends.  The list is private; requests are changed under their
 * mutexes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/request.h"
#include "backend/take.h"
#include "backend/take_report.h"
#include "backend/wait.h"
#include "compat.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "shared/worker_process.h"
#include "storage/ipc.h"

#define WORKER_ABSENT_MS 10000 /* how long a call waits for a worker to appear */
#define LOOK_MS 1000		   /* how long it sleeps when nobody tells what it waits for */

static HeldElement held[ELEMENT_REQUESTS_PER_SESSION]; /* in the order of taking */
static int		   nheld = 0;

/* A call under way */
typedef struct TakeCall
{
	ElementRequest *request;
	const char	   *path;
	int64			timeout_ms;
	int64			start_us;	  /* by zklock_now_us() */
	int64			absent_since; /* no worker is seen, ms after the start; -1: there is one */
	dsm_segment	   *segment;	  /* for the data, or NULL */
} TakeCall;

/* What an error says that ends a call, such as a cancellation; bytes may be escaped. */
static void
call_context(void *arg)
{
	const TakeCall *call = arg;
	TakeView		view = take_look(call->request);
	const char	   *path = display_utf8(call->path);
	const char	   *outage = display_outage();
	bool			sent = view.state == ELEMENT_SENT;

	if (sent && call->request->action == ELEMENT_OFFER)
		errcontext("while adding an element to ZooKeeper queue \"%s\", where it may be by now", path);
	else if (sent)
		errcontext("while removing element \"%s\" of ZooKeeper queue \"%s\", which may be gone by now",
				   display_utf8(view.name), path);
	else if (outage)
		errcontext("while using ZooKeeper queue \"%s\": %s", path, outage);
	else
		errcontext("while using ZooKeeper queue \"%s\"", path);
}

static void
check_for_interrupts(TakeCall *call)
{
	ErrorContextCallback context = {.callback = call_context, .arg = call, .previous = error_context_stack};

	error_context_stack = &context;
	CHECK_FOR_INTERRUPTS();
	error_context_stack = context.previous;
}

/* ------------------------------------------------------------------------
 * Asking
 * ------------------------------------------------------------------------
 */

/* Claims a slot for a request about a path; raises an error if there is none. */
static ElementRequest *
claim_request(const char *path)
{
	ElementRequest *request;
	int				n = element_count_own();

	request_refuse_election(path);
	if (n >= ELEMENT_REQUESTS_PER_SESSION)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("too many elements of ZooKeeper queues in this session"),
						errdetail("It holds, or is just giving back, %d, as many as it may.", n),
						errhint("Take fewer elements in one transaction.")));
	request = element_claim(superuser() ? RESERVE_OPEN : RESERVE_CLOSED);
	if (request == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
						errdetail("All sessions together hold, or wait for, %d elements of ZooKeeper queues.",
								  ELEMENT_REQUESTS)));
	return request;
}

/* As a callback at error and exit */
static void
drop_request(int code, Datum arg)
{
	element_drop((ElementRequest *) DatumGetPointer(arg));
}

/* There is an element: makes room for its data. */
static void
fetch(TakeCall *call, const TakeView *view)
{
	if (call->segment)
		dsm_detach(call->segment);
	call->segment = view->data_length > 0 ? dsm_create(view->data_length, 0) : NULL;
	(void) element_fetch(call->request, call->segment ? dsm_segment_handle(call->segment)
													  : DSM_HANDLE_INVALID);
}

/* Raises an error if there has been no worker for too long. */
static void
watch_worker(TakeCall *call, int64 waited)
{
	if (zklock_worker_pid() != 0)
		call->absent_since = -1;
	else if (call->absent_since < 0)
		call->absent_since = waited;
	else if (waited - call->absent_since >= WORKER_ABSENT_MS)
		take_report_unreachable(call->path);
}

/*
 * Has the timeout passed?  If there was nobody to answer, that is an error.  What
 * has been sent is waited for as long as the answer can come.
 */
static bool
is_out_of_time(const TakeCall *call, const TakeView *view, int64 waited)
{
	bool passed = call->timeout_ms >= 0 && waited >= call->timeout_ms;
	bool outage = !zklock_connected() && lease_state() != LEASE_HOLDS;
	bool may_end = call->timeout_ms > 0 &&
				   (view->state == ELEMENT_ASKED || view->state == ELEMENT_WAITING);

	if (!passed)
		return false;
	if (outage && view->state == ELEMENT_SENT)
		take_report_uncertain(call->request, view);
	if (outage || (may_end && !zklock_connected()))
		take_report_unreachable(call->path);
	return may_end;
}

/* How long the session may sleep before it has to look again, ms. */
static int64
sleep_time(const TakeCall *call, int64 waited)
{
	if (call->timeout_ms > 0 && waited < call->timeout_ms)
		return Min(call->timeout_ms - waited, LOOK_MS);
	return LOOK_MS;
}

/* Waits until the worker has answered.  Returns false if the timeout has passed. */
static bool
wait_for_answer(TakeCall *call, TakeView *view)
{
	for (;;)
	{
		int64 waited;

		ResetLatch(MyLatch);
		*view = take_look(call->request);
		if (view->state == ELEMENT_DONE || view->state == ELEMENT_HELD || view->state == ELEMENT_LOST)
			return true;
		check_for_interrupts(call);
		if (view->state == ELEMENT_FOUND)
		{
			fetch(call, view);
			continue;
		}
		waited = zklock_ms_since(call->start_us);
		if (is_out_of_time(call, view, waited))
			return false;
		watch_worker(call, waited);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) sleep_time(call, waited), zklock_wait_event(ZKLOCK_WAIT_ELEMENT));
	}
}

/* Fills a request with what all have. */
static void
fill(ElementRequest *request, const char *path, ElementAction action, int64 timeout_ms)
{
	request->action = action;
	request->waiting = timeout_ms == LOCK_NO_WAIT ? ELEMENT_NO_WAIT : ELEMENT_WAIT;
	request->parent_nodes = zklock_parent_nodes;
	request->segment = DSM_HANDLE_INVALID;
	request->offered_length = 0;
	strlcpy(request->path, path, sizeof(request->path));
	if (!pg_strong_random(request->uuid, sizeof(request->uuid)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
}

/* Takes what the worker has delivered. */
static void
take_answer(const TakeCall *call, const TakeView *view, TakenElement *taken)
{
	taken->name = pstrdup(view->name);
	taken->token = view->czxid;
	taken->length = view->data_length;
	taken->data = MemoryContextAllocHuge(CurrentMemoryContext, Max(taken->length, 1));
	if (call->segment)
		memcpy(taken->data, dsm_segment_address(call->segment), taken->length);
}

/*
 * Adds an element to a queue.  Returns its name, or NULL if that is not known: the
 * reply was lost, and somebody has taken the element before it could be asked for.
 */
char *
take_offer(const char *path, const char *data, Size length)
{
	TakeCall call = {.path = path,
					 .timeout_ms = LOCK_NO_WAIT,
					 .start_us = zklock_now_us(),
					 .absent_since = -1};
	TakeView view;
	char	*name;

	call.request = claim_request(path);
	PG_ENSURE_ERROR_CLEANUP(drop_request, PointerGetDatum(call.request));
	{
		fill(call.request, path, ELEMENT_OFFER, LOCK_NO_WAIT);
		if (length > 0)
		{
			call.segment = dsm_create(length, 0);
			memcpy(dsm_segment_address(call.segment), data, length);
			call.request->segment = dsm_segment_handle(call.segment);
			call.request->offered_length = length;
		}
		element_ask(call.request);
		(void) wait_for_answer(&call, &view);
		if (view.outcome != ELEMENT_OUTCOME_OK)
			take_report_failure(call.request, &view);
		name = view.name[0] != '\0' ? pstrdup(view.name) : NULL;
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_request, PointerGetDatum(call.request));
	element_drop(call.request);
	if (call.segment)
		dsm_detach(call.segment);
	return name;
}

/* The transaction does not have the element any more: it stays in the queue.  Cannot fail. */
static void
give_back(const HeldElement *element)
{
	stats_held(STATS_QUEUE, zklock_now_us() - element->taken_at);
	element_drop(element->request);
}

/* Likewise: it goes. */
static void
commit(const HeldElement *element)
{
	stats_held(STATS_QUEUE, zklock_now_us() - element->taken_at);
	element_commit(element->request);
}

/* Gives everything back; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	for (int i = 0; i < nheld; i++)
		give_back(&held[i]);
	nheld = 0;
}

/* The element is the transaction's from now on.  Cannot fail. */
static void
keep(ElementRequest *request)
{
	held[nheld++] = (HeldElement){.request = request,
								  .subid = GetCurrentSubTransactionId(),
								  .taken_under = (CommitGuard) zklock_commit_guard,
								  .taken_at = zklock_now_us()};
}

/* Gets the first element, as take_element() says, by a request that it gives back or keeps. */
static bool
get_element(ElementRequest *request, const char *path, ElementAction action, int64 timeout_ms,
			TakenElement *taken)
{
	TakeCall call = {.request = request,
					 .path = path,
					 .timeout_ms = timeout_ms,
					 .start_us = zklock_now_us(),
					 .absent_since = -1};
	TakeView view;
	bool	 found;

	PG_ENSURE_ERROR_CLEANUP(drop_request, PointerGetDatum(call.request));
	{
		fill(call.request, path, action, timeout_ms);
		element_ask(call.request);
		found = wait_for_answer(&call, &view);
		if (found && view.state == ELEMENT_DONE && view.outcome == ELEMENT_OUTCOME_NONE)
			found = false;
		else if (found && view.state == ELEMENT_DONE && view.outcome != ELEMENT_OUTCOME_OK)
			take_report_failure(call.request, &view);
		else if (found && view.state == ELEMENT_LOST)
			take_report_lost_element(call.request, &view);
		if (found)
			take_answer(&call, &view, taken);
	}
	PG_END_ENSURE_ERROR_CLEANUP(drop_request, PointerGetDatum(call.request));
	if (found && action == ELEMENT_TAKE)
		keep(call.request);
	else
		element_drop(call.request);
	if (call.segment)
		dsm_detach(call.segment);
	return found;
}

/*
 * Gets the first element of a queue.
 *
 *	action		what for: ELEMENT_SHOW, ELEMENT_REMOVE, or ELEMENT_TAKE
 *	timeout_ms	how long to wait for one: LOCK_WAIT_FOREVER, LOCK_NO_WAIT, or so long
 *
 * Returns false if there was none.
 */
bool
take_element(const char *path, ElementAction action, int64 timeout_ms, TakeCounting counting,
			 TakenElement *taken)
{
	static bool		started = false;
	ElementRequest *request;
	CountedWait		wait;
	bool			found;

	if (!started)
		on_shmem_exit(release_at_exit, 0);
	started = true;
	request = claim_request(path);
	if (counting == TAKE_UNCOUNTED)
		return get_element(request, path, action, timeout_ms, taken);

	wait_counted_begin(&wait, STATS_QUEUE);
	PG_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	{
		found = get_element(request, path, action, timeout_ms, taken);
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	if (found)
		wait_counted_end(&wait, STATS_WAIT_GRANTED);
	else
		wait_counted_end(&wait, timeout_ms == LOCK_NO_WAIT ? STATS_WAIT_BUSY : STATS_WAIT_TIMEOUT);
	return found;
}

/* ------------------------------------------------------------------------
 * The transaction
 * ------------------------------------------------------------------------
 */

/* Has the transaction taken any element? */
bool
take_has_elements(void)
{
	return nheld > 0;
}

/* Calls "visit" for each element that the transaction has. */
void
take_visit(HeldElementVisitor visit, void *arg)
{
	for (int i = 0; i < nheld; i++)
		visit(&held[i], arg);
}

/* Raises an error for an element that others may have by now. */
void
take_report_lost(const HeldElement *lost)
{
	TakeView view = take_look(lost->request);

	take_report_lost_element(lost->request, &view);
}

/* The transaction has ended.  Cannot fail. */
void
take_end_transaction(XactEvent event)
{
	for (int i = 0; i < nheld; i++)
	{
		if (event == XACT_EVENT_COMMIT)
			commit(&held[i]);
		else
			give_back(&held[i]);
	}
	nheld = 0;
}

/* A subtransaction has ended: what it took becomes the parent's, or goes back.  Cannot fail. */
void
take_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	int kept = 0;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < nheld; i++)
	{
		if (held[i].subid == subid && event == SUBXACT_EVENT_ABORT_SUB)
		{
			give_back(&held[i]);
			continue;
		}
		if (held[i].subid == subid)
			held[i].subid = parent;
		held[kept++] = held[i];
	}
	nheld = kept;
}
