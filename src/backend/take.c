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
#include "backend/wait.h"
#include "compat.h"
#include "shared/clock.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "shared/worker_process.h"
#include "storage/ipc.h"
#include "zk/zk_error.h"

#define WORKER_ABSENT_MS 10000 /* how long a call waits for a worker to appear */
#define LOOK_MS 1000		   /* how long it sleeps when nobody tells what it waits for */

static HeldElement held[ELEMENT_REQUESTS_PER_SESSION]; /* in the order of taking */
static int		   nheld = 0;

/* What is known of a request */
typedef struct View
{
	ElementState   state;
	char		   name[ELEMENT_NAME_SIZE];
	int64		   czxid;
	Size		   data_length;
	ElementOutcome outcome;
	int			   code;
} View;

/* A call under way */
typedef struct Call
{
	ElementRequest *request;
	const char	   *path;
	int64			timeout_ms;
	int64			start_us;	  /* by zklock_now_us() */
	int64			absent_since; /* no worker is seen, ms after the start; -1: there is one */
	dsm_segment	   *segment;	  /* for the data, or NULL */
} Call;

static View
look(ElementRequest *request)
{
	View view;

	SpinLockAcquire(&request->mutex);
	view.state = request->state;
	memcpy(view.name, request->name, sizeof(view.name));
	view.czxid = request->czxid;
	view.data_length = request->data_length;
	view.outcome = request->outcome;
	view.code = request->code;
	SpinLockRelease(&request->mutex);
	return view;
}

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

/* Raises the error for a call that cannot wait until ZooKeeper can be reached. */
static void
report_unreachable(const char *path)
{
	const char *outage = display_outage();

	if (zklock_worker_pid() == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errhint("See the server log; you might need to increase \"max_worker_processes\".")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not use ZooKeeper queue \"%s\": ZooKeeper cannot be reached",
						   display_path(path)),
					outage ? errdetail_internal("%s.", outage) : 0));
}

/* Raises the error for a write of which nobody knows whether it was made. */
static void
report_uncertain(const ElementRequest *request, const View *view)
{
	if (request->action == ELEMENT_OFFER)
		ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
						errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"",
							   display_path(request->path)),
						errdetail("The connection to ZooKeeper was lost meanwhile.")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
						   display_utf8(view->name), display_path(request->path)),
					errdetail("The connection to ZooKeeper was lost meanwhile."),
					errhint("If the element is still in the queue, it was not.")));
}

static const char *
other_use_detail(int code)
{
	switch ((ElementOtherUse) code)
	{
		case ELEMENT_USE_ELECTION:
			return _("The elements of a queue and the candidates of an election cannot have the same path.");
		case ELEMENT_USE_CLAIMS:
			return _("The elements of a queue and claims cannot have the same path.");
		case ELEMENT_USE_NONE:
		case ELEMENT_USE_LOCK:
			break;
	}
	return _("The elements of a queue and the nodes of a lock or semaphore cannot have the same path.");
}

/* Raises the error for a request that cannot be fulfilled. */
static void
report_failure(const ElementRequest *request, const View *view)
{
	const char *name = display_path(request->path);

	switch (view->outcome)
	{
		case ELEMENT_OUTCOME_UNREACHABLE:
			report_unreachable(request->path);
			break;
		case ELEMENT_OUTCOME_UNCERTAIN:
			report_uncertain(request, view);
			break;
		case ELEMENT_OUTCOME_NO_PATH:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("ZooKeeper queue \"%s\" does not exist", name),
					 errdetail("Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\".")));
			break;
		case ELEMENT_OUTCOME_NO_RECEIPTS:
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							errmsg("cannot use ZooKeeper queue \"%s\": node \"%s\" does not exist",
								   name, "/zklock-receipts"),
							errdetail("Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\"."),
							errhint("Ask an administrator to create the node in ZooKeeper.")));
			break;
		case ELEMENT_OUTCOME_NO_CHILDREN:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" cannot be a ZooKeeper queue", name),
					 errdetail("The path, or one above it, is an ephemeral node, which cannot have children.")));
			break;
		case ELEMENT_OUTCOME_NO_CHROOT:
			ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
							errmsg("cannot use ZooKeeper queue \"%s\"", name),
							errdetail("The chroot in \"zklock.servers\" does not exist."),
							errhint("Create the chroot node.")));
			break;
		case ELEMENT_OUTCOME_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot create ZooKeeper queue \"%s\": too many levels of it are missing", name),
					 errdetail("No more than 16 nodes are created for a path: its own and those above it.")));
			break;
		case ELEMENT_OUTCOME_HARMFUL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot create ZooKeeper queue \"%s\": it lies below a lock or semaphore in use",
							name),
					 errdetail("Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists.")));
			break;
		case ELEMENT_OUTCOME_OTHER_USE:
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("ZooKeeper path \"%s\" is in use for something else", name),
							errdetail_internal("%s", other_use_detail(view->code))));
			break;
		case ELEMENT_OUTCOME_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("ZooKeeper queue \"%s\" is full", name),
					 errdetail("It has %d elements or more.", ELEMENT_MAX_CHILDREN),
					 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
			break;
		case ELEMENT_OUTCOME_WORN_OUT:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up", name),
					 errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
					 errhint("When the queue is empty and nobody uses it, delete its node.")));
			break;
		case ELEMENT_OUTCOME_SESSION_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot use ZooKeeper queue \"%s\": too many elements are held or waited for",
							name),
					 errdetail("The paths of their nodes and watches exceed what all sessions of this server, or this one, may have."),
					 errhint("Take fewer elements at a time, or use shorter paths.")));
			break;
		case ELEMENT_OUTCOME_UNDELIVERED:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not exchange data with the zklock worker about \"%s\"", name),
					 errdetail("The worker could not use the dynamic shared memory segment for it."),
					 errhint("See server log for the reason.")));
			break;
		default:
			ereport(ERROR, (errcode(zk_error_is_permission(view->code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
																	   : ERRCODE_SYSTEM_ERROR),
							errmsg("cannot use ZooKeeper queue \"%s\"", name),
							errdetail("ZooKeeper refused: %s.", zk_error_name(view->code)),
							zk_error_is_permission(view->code)
								? errhint("Check the ACLs of the queue and of node \"%s\", and the settings \"zklock.auth_file\" and \"zklock.acl\".",
										  "/zklock-receipts")
								: 0));
	}
}

/* Raises the error for an element that was taken and that others may have by now. */
static void
report_lost(const ElementRequest *request, const View *view)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("element \"%s\" of ZooKeeper queue \"%s\" was lost",
					display_utf8(view->name), display_path(request->path)),
			 errdetail("The ZooKeeper session ended, or somebody deleted the claim of the element."),
			 errhint("Others may have taken the element meanwhile. Retry the transaction.")));
}

/* What an error says that ends a call, such as a cancellation; bytes may be escaped. */
static void
call_context(void *arg)
{
	const Call *call = arg;
	View		view = look(call->request);
	const char *path = display_utf8(call->path);
	const char *outage = display_outage();
	bool		sent = view.state == ELEMENT_SENT;

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
check_for_interrupts(Call *call)
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
fetch(Call *call, const View *view)
{
	if (call->segment)
		dsm_detach(call->segment);
	call->segment = view->data_length > 0 ? dsm_create(view->data_length, 0) : NULL;
	(void) element_fetch(call->request, call->segment ? dsm_segment_handle(call->segment)
													  : DSM_HANDLE_INVALID);
}

/* Raises an error if there has been no worker for too long. */
static void
watch_worker(Call *call, int64 waited)
{
	if (zklock_worker_pid() != 0)
		call->absent_since = -1;
	else if (call->absent_since < 0)
		call->absent_since = waited;
	else if (waited - call->absent_since >= WORKER_ABSENT_MS)
		report_unreachable(call->path);
}

/*
 * Has the timeout passed?  If there was nobody to answer, that is an error.  What
 * has been sent is waited for as long as the answer can come.
 */
static bool
is_out_of_time(const Call *call, const View *view, int64 waited)
{
	bool passed = call->timeout_ms >= 0 && waited >= call->timeout_ms;
	bool outage = !zklock_connected() && lease_state() != LEASE_HOLDS;
	bool may_end = call->timeout_ms > 0 &&
				   (view->state == ELEMENT_ASKED || view->state == ELEMENT_WAITING);

	if (!passed)
		return false;
	if (outage && view->state == ELEMENT_SENT)
		report_uncertain(call->request, view);
	if (outage || (may_end && !zklock_connected()))
		report_unreachable(call->path);
	return may_end;
}

/* How long the session may sleep before it has to look again, ms. */
static int64
sleep_time(const Call *call, int64 waited)
{
	if (call->timeout_ms > 0 && waited < call->timeout_ms)
		return Min(call->timeout_ms - waited, LOOK_MS);
	return LOOK_MS;
}

/* Waits until the worker has answered.  Returns false if the timeout has passed. */
static bool
wait_for_answer(Call *call, View *view)
{
	for (;;)
	{
		int64 waited;

		ResetLatch(MyLatch);
		*view = look(call->request);
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
take_answer(const Call *call, const View *view, TakenElement *taken)
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
	Call  call = {.path = path, .timeout_ms = LOCK_NO_WAIT, .start_us = zklock_now_us(), .absent_since = -1};
	View  view;
	char *name;

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
			report_failure(call.request, &view);
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
	Call call = {.request = request,
				 .path = path,
				 .timeout_ms = timeout_ms,
				 .start_us = zklock_now_us(),
				 .absent_since = -1};
	View view;
	bool found;

	PG_ENSURE_ERROR_CLEANUP(drop_request, PointerGetDatum(call.request));
	{
		fill(call.request, path, action, timeout_ms);
		element_ask(call.request);
		found = wait_for_answer(&call, &view);
		if (found && view.state == ELEMENT_DONE && view.outcome == ELEMENT_OUTCOME_NONE)
			found = false;
		else if (found && view.state == ELEMENT_DONE && view.outcome != ELEMENT_OUTCOME_OK)
			report_failure(call.request, &view);
		else if (found && view.state == ELEMENT_LOST)
			report_lost(call.request, &view);
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

	wait_counted_begin(&wait, STATS_QUEUE, path);
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
	View view = look(lost->request);

	report_lost(lost->request, &view);
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
