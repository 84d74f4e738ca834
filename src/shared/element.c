/*
 * element.c
 *		Elements of queues that sessions have taken.
 *
 * A session that has chosen an element of a queue has the worker claim it, and has it
 * for as long as its transaction lasts:
 *
 *		FREE -> RESERVED -> ASKED			a backend
 *		ASKED -> HELD						the worker: the claim is made, and watched
 *		ASKED -> FAILED						the worker: somebody else was faster, ...
 *		HELD -> LOST						the worker
 *		HELD, LOST -> COMMITTED				the backend: its transaction has committed
 *		any other -> GIVEN_UP				the backend: done, or it gives up
 *		COMMITTED, GIVEN_UP -> FREE			the worker, when nothing is left behind
 *
 * Each step is made under the element's mutex, which orders what the two sides
 * write.
 *
 * What is made in ZooKeeper is written down before it is sent ("claim"), so that
 * the next worker finds it.  If a backend is killed, this memory is initialised
 * again, and the next worker ends the ZooKeeper session with all it has made.
 *
 * Runs in: backends and the worker, as element.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "port/pg_bitutils.h"
#include "shared/element.h"
#include "shared/worker_process.h"

ElementPool *element_pool = NULL;

/* Initialises memory that is all zero. */
void
element_init(ElementPool *pool)
{
	pg_atomic_init_u64(&pool->next_number, 1);
	ConditionVariableInit(&pool->given_back);
	for (int i = 0; i < (int) lengthof(pool->dirty); i++)
		pg_atomic_init_u64(&pool->dirty[i], 0);
	for (int i = 0; i < ELEMENTS; i++)
		SpinLockInit(&pool->elements[i].mutex);
}

/* Makes a step if the element is in state "from". */
static bool
step(TakenElement *element, ElementState from, ElementState to)
{
	bool stepped;

	SpinLockAcquire(&element->mutex);
	stepped = element->state == from;
	if (stepped)
		element->state = to;
	SpinLockRelease(&element->mutex);
	return stepped;
}

/* The state at this moment. */
ElementState
element_state(TakenElement *element)
{
	ElementState state;

	SpinLockAcquire(&element->mutex);
	state = element->state;
	SpinLockRelease(&element->mutex);
	return state;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Has the worker look at an element. */
static void
mark_dirty(TakenElement *element)
{
	int index = element_index(element);

	pg_atomic_fetch_or_u64(&element_pool->dirty[index / 64], UINT64CONST(1) << (index % 64));
	zklock_wake_worker();
}

/* Reserves a slot, to be filled; NULL if none is free for this session. */
TakenElement *
element_reserve(ShareReserve reserve)
{
	int max = ELEMENTS - (reserve == RESERVE_OPEN ? 0 : ELEMENTS_RESERVED);

	for (int i = 0; i < max; i++)
	{
		TakenElement *element = &element_pool->elements[i];

		if (!step(element, ELEMENT_FREE, ELEMENT_RESERVED))
			continue;
		element->pid = MyProcPid;
		element->proc_number = compat_my_proc_number();
		return element;
	}
	return NULL;
}

/* How many this session has; what it has given up counts until the worker is done with it. */
int
element_count_own(void)
{
	int n = 0;

	for (int i = 0; i < ELEMENTS; i++)
	{
		TakenElement *element = &element_pool->elements[i];

		SpinLockAcquire(&element->mutex);
		n += element->state != ELEMENT_FREE && element->pid == MyProcPid;
		SpinLockRelease(&element->mutex);
	}
	return n;
}

/* Hands an element that has been filled in to the worker. */
void
element_ask(TakenElement *element)
{
	bool asked PG_USED_FOR_ASSERTS_ONLY;

	element->number = pg_atomic_fetch_add_u64(&element_pool->next_number, 1);
	element->check_wanted = element->check_done = 0;
	element->claim = TRACE_NONE;
	asked = step(element, ELEMENT_RESERVED, ELEMENT_ASKED);
	Assert(asked);
	mark_dirty(element);
}

/* The element is to go.  Cannot fail. */
void
element_commit(TakenElement *element)
{
	SpinLockAcquire(&element->mutex);
	Assert(element->state == ELEMENT_HELD || element->state == ELEMENT_LOST);
	element->state = ELEMENT_COMMITTED;
	SpinLockRelease(&element->mutex);
	mark_dirty(element);
}

/* Gives a slot back, whatever its state.  Cannot fail, does not wait. */
void
element_drop(TakenElement *element)
{
	SpinLockAcquire(&element->mutex);
	Assert(element->state != ELEMENT_FREE && element->state != ELEMENT_COMMITTED &&
		   element->state != ELEMENT_GIVEN_UP);
	element->state = element->state == ELEMENT_RESERVED ? ELEMENT_FREE : ELEMENT_GIVEN_UP;
	element->stuck = false;
	SpinLockRelease(&element->mutex);
	mark_dirty(element);
}

/* Is an element just being given back by a session of this server? */
bool
element_is_coming_back(const char *path, const char *name)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		TakenElement *element = &element_pool->elements[i];
		bool		  coming;

		SpinLockAcquire(&element->mutex);
		coming = element->state == ELEMENT_GIVEN_UP && !element->stuck;
		SpinLockRelease(&element->mutex);
		if (coming && strcmp(element->name, name) == 0 && strcmp(element->path, path) == 0)
			return true;
	}
	return false;
}

/* Asks for a check of the claim. */
void
element_want_check(TakenElement *element)
{
	SpinLockAcquire(&element->mutex);
	element->check_wanted++;
	SpinLockRelease(&element->mutex);
	mark_dirty(element);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* Calls "visit" for each element that a backend has marked, in no order. */
void
element_visit_dirty(ElementVisitor visit)
{
	for (int i = 0; i < (int) lengthof(element_pool->dirty); i++)
	{
		uint64 bits = pg_atomic_read_u64(&element_pool->dirty[i]);

		if (bits != 0)
			bits = pg_atomic_exchange_u64(&element_pool->dirty[i], 0);
		for (; bits != 0; bits &= bits - 1)
			visit(&element_pool->elements[i * 64 + pg_rightmost_one_pos64(bits)]);
	}
}

static void
set_latch(const TakenElement *element)
{
	SetLatch(&GetPGProcByNumber(element->proc_number)->procLatch);
}

/* Makes a step, and tells the backend, if the element is in state "from". */
bool
element_step(TakenElement *element, ElementState from, ElementState to)
{
	bool stepped = step(element, from, to);

	if (stepped)
		set_latch(element);
	return stepped;
}

/* ASKED -> FAILED, likewise */
bool
element_fail(TakenElement *element, ElementFailure failure, int code)
{
	bool failed;

	SpinLockAcquire(&element->mutex);
	failed = element->state == ELEMENT_ASKED;
	if (failed)
	{
		element->state = ELEMENT_FAILED;
		element->failure = failure;
		element->code = code;
	}
	SpinLockRelease(&element->mutex);
	if (failed)
		set_latch(element);
	return failed;
}

/* Nothing is left behind of what is COMMITTED or GIVEN_UP. */
void
element_free(TakenElement *element)
{
	SpinLockAcquire(&element->mutex);
	Assert(element->state == ELEMENT_COMMITTED || element->state == ELEMENT_GIVEN_UP);
	element->state = ELEMENT_FREE;
	SpinLockRelease(&element->mutex);
	ConditionVariableBroadcast(&element_pool->given_back);
}

/* It cannot be given back now: nobody is to wait for that. */
void
element_is_stuck(TakenElement *element)
{
	SpinLockAcquire(&element->mutex);
	element->stuck = true;
	SpinLockRelease(&element->mutex);
	ConditionVariableBroadcast(&element_pool->given_back);
}

/* The claim was seen after the check with that number had been asked for. */
void
element_check_done(TakenElement *element, uint32 check)
{
	SpinLockAcquire(&element->mutex);
	element->check_done = check;
	SpinLockRelease(&element->mutex);
	set_latch(element);
}
