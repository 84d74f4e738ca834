/*
 * element.c
 *		Element requests: what a session wants of a queue.
 *
 * A queue is ZooKeeper's recipe: its elements are children "qn-N" of a path, and
 * the lowest comes first.  A session asks for one thing at a time: to add an
 * element, to be shown the first one, to get it removed, or to take it for as
 * long as its transaction lasts.  Each is a request in shared memory:
 *
 *		FREE -> CLAIMED -> ASKED			a backend, whose the slot is from now on
 *		ASKED -> WAITING					the worker
 *		WAITING -> FOUND					the worker: it has read an element
 *		FOUND -> FETCHING					the backend: there is room for the data
 *		FETCHING -> SENT					the worker (REMOVE): the data is delivered
 *		FETCHING -> DONE					likewise (SHOW)
 *		FETCHING -> HELD					likewise (TAKE)
 *		WAITING -> SENT						the worker (OFFER)
 *		SENT -> DONE						the worker
 *		SENT, FOUND, FETCHING -> WAITING	the worker: another client was faster, or
 *											a new worker begins again
 *		ASKED, WAITING, FETCHING -> DONE	the worker: it cannot be done
 *		HELD -> LOST						the worker
 *		HELD, LOST -> COMMITTED				the backend: its transaction has committed
 *		any but COMMITTED -> GIVEN_UP		the backend: done, or it gives up
 *		COMMITTED, GIVEN_UP -> FREE			the worker, when nothing is left behind
 *
 * Each step is made under the slot's mutex, which orders what the two sides write.
 * A backend that gives up may cross with the worker.  The first to take the mutex
 * wins: either nothing has been sent, and nothing will be, or it is SENT, and who
 * is told of a cancellation is told of the element as well (backend/take.c).
 *
 * The data travels in a dynamic shared memory segment that the backend makes
 * when the length is known.  Between FOUND and FETCHING the worker has it in its
 * memory.
 *
 * What a request makes in ZooKeeper besides the element itself is written down
 * before it is sent ("claim", "receipt"), so that the next worker finds it.  A
 * slot is FREE when both are gone.  If a backend is killed, this memory is
 * initialised again, and the next worker ends the session with all it has made.
 *
 * Runs in: backends and the worker, as element.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "port/pg_bitutils.h"
#include "shared/element.h"
#include "shared/stats.h"
#include "shared/worker_process.h"

ElementPool *element_pool = NULL;

/* Initialises memory that is all zero. */
void
element_init(ElementPool *pool)
{
	pg_atomic_init_u64(&pool->next_number, 1);
	for (int i = 0; i < (int) lengthof(pool->dirty); i++)
		pg_atomic_init_u64(&pool->dirty[i], 0);
	for (int i = 0; i < ELEMENT_REQUESTS; i++)
		SpinLockInit(&pool->requests[i].mutex);
}

/* Makes a step if the request is in state "from". */
static bool
step(ElementRequest *request, ElementState from, ElementState to)
{
	bool stepped;

	SpinLockAcquire(&request->mutex);
	stepped = request->state == from;
	if (stepped)
		request->state = to;
	SpinLockRelease(&request->mutex);
	return stepped;
}

/* The state of a request at this moment. */
ElementState
element_state(ElementRequest *request)
{
	ElementState state;

	SpinLockAcquire(&request->mutex);
	state = request->state;
	SpinLockRelease(&request->mutex);
	return state;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Has the worker look at a request. */
static void
mark_dirty(ElementRequest *request)
{
	int index = element_index(request);

	pg_atomic_fetch_or_u64(&element_pool->dirty[index / 64], UINT64CONST(1) << (index % 64));
	zklock_wake_worker();
}

/* Claims a slot, to be filled; NULL if none is free for this session. */
ElementRequest *
element_claim(ShareReserve reserve)
{
	int max = ELEMENT_REQUESTS - (reserve == RESERVE_OPEN ? 0 : ELEMENT_REQUESTS_RESERVED);

	for (int i = 0; i < max; i++)
	{
		ElementRequest *request = &element_pool->requests[i];

		if (!step(request, ELEMENT_FREE, ELEMENT_CLAIMED))
			continue;
		request->pid = MyProcPid;
		request->proc_number = compat_my_proc_number();
		return request;
	}
	return NULL;
}

/*
 * How many requests this session has.  What it has given up counts until the
 * worker is done with it.
 */
int
element_count_own(void)
{
	int n = 0;

	for (int i = 0; i < ELEMENT_REQUESTS; i++)
	{
		ElementRequest *request = &element_pool->requests[i];

		SpinLockAcquire(&request->mutex);
		n += request->state != ELEMENT_FREE && request->pid == MyProcPid;
		SpinLockRelease(&request->mutex);
	}
	return n;
}

/* Hands a request that has been filled to the worker. */
void
element_ask(ElementRequest *request)
{
	bool asked PG_USED_FOR_ASSERTS_ONLY;

	request->number = pg_atomic_fetch_add_u64(&element_pool->next_number, 1);
	request->name[0] = '\0';
	request->check_wanted = request->check_done = 0;
	request->claim = request->receipt = TRACE_NONE;
	request->attempt = 0;
	asked = step(request, ELEMENT_CLAIMED, ELEMENT_ASKED);
	Assert(asked);
	mark_dirty(request);
}

/*
 * There is room for the data that was FOUND; DSM_HANDLE_INVALID if there is none.
 * Returns false if the element is gone meanwhile.
 */
bool
element_fetch(ElementRequest *request, dsm_handle segment)
{
	request->segment = segment;
	if (!step(request, ELEMENT_FOUND, ELEMENT_FETCHING))
		return false;
	mark_dirty(request);
	return true;
}

/* The transaction that has the element has committed.  Cannot fail. */
void
element_commit(ElementRequest *request)
{
	SpinLockAcquire(&request->mutex);
	Assert(request->state == ELEMENT_HELD || request->state == ELEMENT_LOST);
	request->state = ELEMENT_COMMITTED;
	SpinLockRelease(&request->mutex);
	mark_dirty(request);
}

/* Gives a slot back, whatever its state.  Cannot fail, does not wait. */
void
element_drop(ElementRequest *request)
{
	SpinLockAcquire(&request->mutex);
	Assert(request->state != ELEMENT_FREE && request->state != ELEMENT_COMMITTED &&
		   request->state != ELEMENT_GIVEN_UP);
	request->state = request->state == ELEMENT_CLAIMED ? ELEMENT_FREE : ELEMENT_GIVEN_UP;
	SpinLockRelease(&request->mutex);
	mark_dirty(request);
}

/* Asks for a check of the claim. */
void
element_want_check(ElementRequest *request)
{
	SpinLockAcquire(&request->mutex);
	request->check_wanted++;
	SpinLockRelease(&request->mutex);
	mark_dirty(request);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* Calls "visit" for each request that a backend has marked, in no order. */
void
element_visit_dirty(ElementVisitor visit)
{
	for (int i = 0; i < (int) lengthof(element_pool->dirty); i++)
	{
		uint64 bits = pg_atomic_read_u64(&element_pool->dirty[i]);

		if (bits != 0)
			bits = pg_atomic_exchange_u64(&element_pool->dirty[i], 0);
		for (; bits != 0; bits &= bits - 1)
			visit(&element_pool->requests[i * 64 + pg_rightmost_one_pos64(bits)]);
	}
}

/* Calls "visit" for each request that is in use. */
void
element_visit_all(ElementVisitor visit)
{
	for (int i = 0; i < ELEMENT_REQUESTS; i++)
	{
		ElementState state = element_state(&element_pool->requests[i]);

		if (state != ELEMENT_FREE && state != ELEMENT_CLAIMED)
			visit(&element_pool->requests[i]);
	}
}

static void
set_latch(const ElementRequest *request)
{
	SetLatch(&GetPGProcByNumber(request->proc_number)->procLatch);
}

/* An element has been read, or its name is known. */
void
element_set_found(ElementRequest *request, const char *name, int64 czxid, Size length)
{
	SpinLockAcquire(&request->mutex);
	strlcpy(request->name, name, sizeof(request->name));
	request->czxid = czxid;
	request->data_length = length;
	SpinLockRelease(&request->mutex);
}

/* Makes a step, and tells the backend, if the request is in state "from". */
bool
element_step(ElementRequest *request, ElementState from, ElementState to)
{
	bool stepped = step(request, from, to);

	if (stepped)
		set_latch(request);
	return stepped;
}

/* HELD -> LOST.  Returns false if no transaction has the element. */
bool
element_lose(ElementRequest *request)
{
	bool lost = step(request, ELEMENT_HELD, ELEMENT_LOST);

	if (lost)
		stats_lost(STATS_QUEUE);
	return lost;
}

/* Tells the backend what has become of its request.  Returns false if it does not wait. */
bool
element_answer(ElementRequest *request, ElementOutcome outcome, int code)
{
	bool answered = false;

	SpinLockAcquire(&request->mutex);
	if (request->state == ELEMENT_ASKED || request->state == ELEMENT_WAITING ||
		request->state == ELEMENT_FETCHING || request->state == ELEMENT_SENT)
	{
		request->state = ELEMENT_DONE;
		request->outcome = outcome;
		request->code = code;
		answered = true;
	}
	SpinLockRelease(&request->mutex);
	if (answered)
		set_latch(request);
	return answered;
}

/* The claim was seen after the check with that number had been asked for. */
void
element_check_done(ElementRequest *request, uint32 check)
{
	SpinLockAcquire(&request->mutex);
	request->check_done = check;
	SpinLockRelease(&request->mutex);
	set_latch(request);
}

/* Nothing is left of a request that nobody waits for. */
void
element_free(ElementRequest *request)
{
	SpinLockAcquire(&request->mutex);
	Assert(request->state == ELEMENT_COMMITTED || request->state == ELEMENT_GIVEN_UP);
	request->state = ELEMENT_FREE;
	SpinLockRelease(&request->mutex);
}
