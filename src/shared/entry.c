/*
 * entry.c
 *		Entries: what a session asks for, in shared memory; how many there are; and reservations.
 *
 * An entry makes the steps of the table below and no others, always under its own spinlock.
 * Three changes are not in the table:
 *
 *	- The owning backend may change the mode of an entry that is GRANTED, once, from
 *	  exclusive to shared: hold_release().
 *	- The owning backend marks the entry of an element that is to be deleted after a commit,
 *	  before it gives the entry up (backend/transaction.c).
 *	- A lock that is GRANTED for a limited time is lost when that time is over, whether or
 *	  not the worker has already made the step.  So code that relies on GRANTED also asks
 *	  whether "expires_us" has come.
 *
 * A grant and a cancellation may cross.  The first to take the spinlock wins: a worker that
 * comes second finds RELEASING and grants to the next, a backend that comes second releases
 * what it was just granted.  The worker finishes a release.  RELEASING is final: nothing
 * the worker does turns it back into a lock.
 *
 * An entry has three parts.
 *
 *	request		constant while the entry is in use.  A backend takes an entry from
 *				the free list, fills it while nobody looks at it, and publishes it
 *				with its state; the spinlock orders the two.
 *	status		what both sides change, under the spinlock.  Nothing but copying is
 *				done under that.
 *	node		what only the worker changes, under the spinlock; others only read it.
 *
 * A process that is neither the entry's owner nor the worker, such as one that shows a
 * view, must not mix a contender with the next one that has the entry.  entry_copy() copies
 * the request last, and begins again if the entry's generation shows that it has been freed
 * meanwhile.
 *
 * The worker also owns entries, for what the server itself contends for.  It then takes a
 * backend's steps too; see ENTRY_SERVER_PID in entry.h.  A reservation is nobody's once it is
 * granted: any backend may end or prolong it, and the worker frees it when it is lost; see
 * "Reservations" below.
 *
 * A process that has changed a state sets the entry's bit in "dirty" and then the worker's
 * latch.  The worker clears a whole word of bits before it looks at the entries, so it
 * misses no change; looking at an entry twice does no harm.  Entries in use are in no list
 * that a process could leave half-changed.
 *
 * A backend that exits releases its entries in its exit callback.  If it is killed without
 * running it, PostgreSQL restarts all processes and initialises this memory again.  If the
 * worker exits, entries stay as they are: backends go on waiting, unless there is no worker
 * for long (backend/wait.c), released entries stay RELEASING, and the next worker takes
 * everything up from here (engine/node.c).
 *
 * Free entries are in a list, under the pool's spinlock.  There are more entries than sessions may
 * have, for those that are kept with their node for nobody: however many these are, sessions have
 * as many.
 *
 * Runs in: all processes, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/stats.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

EntryPool	*entry_pool = NULL;
StatsShared *stats_shared = NULL; /* stats.h */

PG_USED_FOR_ASSERTS_ONLY static const StepBy entry_steps[][ENTRY_RELEASING + 1] = {
	[ENTRY_FREE] = {[ENTRY_REQUESTED] = BY_BACKEND},
	[ENTRY_REQUESTED] = {[ENTRY_QUEUED] = BY_WORKER, [ENTRY_RELEASING] = BY_BACKEND},
	[ENTRY_QUEUED] = {[ENTRY_GRANTED] = BY_WORKER, /* unless it is given up before */
					  [ENTRY_FAILED] = BY_WORKER,
					  [ENTRY_RELEASING] = BY_BACKEND},
	[ENTRY_GRANTED] = {[ENTRY_LOST] = BY_WORKER, [ENTRY_RELEASING] = BY_BACKEND},
	[ENTRY_LOST] = {[ENTRY_RELEASING] = BY_BACKEND},
	[ENTRY_FAILED] = {[ENTRY_RELEASING] = BY_BACKEND},
	[ENTRY_RELEASING] = {[ENTRY_FREE] = BY_WORKER},
};

/* Makes a step.  The caller holds the entry's spinlock. */
static void
entry_step(Entry *entry, EntryState to, StepBy by)
{
	Assert(entry_steps[entry->status.state][to] == by);
	Assert(by == BY_WORKER || entry->request.pid == ENTRY_SERVER_PID
			   ? MyProcPid == zklock_worker_pid()
			   : MyProcPid == entry->request.pid || entry->status.reserved);
	entry->status.state = to;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/*
 * FREE -> REQUESTED: takes an entry from the free list, fills and publishes it.  Cannot
 * fail, does not wait.
 *
 *	data	for the node; truncated if it is too long
 *	leave	how many entries must stay free
 *
 * Returns its index, or ENTRY_NONE if there is none.
 */
int
entry_ask(const EntryRequest *request, const char *data, LossPolicy on_loss, int leave)
{
	int			index = ENTRY_NONE;
	Entry	   *entry;
	EntryStatus status = {.state = ENTRY_FREE,
						  .mode = request->terms.mode,
						  .on_loss = on_loss,
						  .expires_us = NEVER,
						  .latch = request->proc_number};

	/* Those that are kept take nothing from what sessions may have. */
	SpinLockAcquire(&entry_pool->mutex);
	if (entry_pool->nfree + entry_pool->nkept - entry_pool->nspare > leave)
	{
		index = entry_pool->first_free;
		entry_pool->first_free = entry_at(index)->next_free;
		entry_pool->nfree--;
	}
	SpinLockRelease(&entry_pool->mutex);
	if (index == ENTRY_NONE)
		return ENTRY_NONE;

	entry = entry_at(index);
	entry->request = *request;
	strlcpy(entry->data, data, sizeof(entry->data));
	status.ticket = pg_atomic_fetch_add_u64(&entry_pool->next_ticket, 1);
	SpinLockAcquire(&entry->mutex);
	Assert(entry->status.state == ENTRY_FREE);
	entry->status = status;
	entry_step(entry, ENTRY_REQUESTED, BY_BACKEND);
	SpinLockRelease(&entry->mutex);
	entry_mark_dirty(index);
	return index;
}

/* Any state in use -> RELEASING.  Cannot fail, does not wait. */
void
entry_give_up(int index, EntryNotice notice)
{
	Entry *entry = entry_at(index);

	SpinLockAcquire(&entry->mutex);
	entry->status.notice = notice;
	entry->status.refused = false;
	entry_step(entry, ENTRY_RELEASING, BY_BACKEND);
	SpinLockRelease(&entry->mutex);
	entry_mark_dirty(index);
}

/*
 * Returns true if the worker is done with an entry that was given up or downgraded in that
 * generation.  One that is FREE is not in the free list yet if its generation is still the
 * same.
 */
bool
entry_is_settled(int index, uint32 generation)
{
	EntryStatus status;

	if (entry_generation(index) != generation)
		return true;
	status = entry_status(index);
	if (status.state == ENTRY_RELEASING && status.kept)
		return true;
	return status.state != ENTRY_FREE && status.state != ENTRY_RELEASING &&
		   (status.state != ENTRY_GRANTED || !status.downgrading);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/*
 * Makes a step if the entry is in state "from", and keeps its spinlock: the caller writes
 * what else changes, and releases it.  Otherwise returns false, without the lock.
 */
static bool
entry_step_from(Entry *entry, EntryState from, EntryState to)
{
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state == from)
	{
		entry_step(entry, to, BY_WORKER);
		return true;
	}
	SpinLockRelease(&entry->mutex);
	return false;
}

/*
 * REQUESTED -> QUEUED, with a new ticket: another backend may have drawn a later ticket and
 * been seen by us first.  The next worker must find the order that we have seen.
 *
 * Returns false if the entry is not REQUESTED any more.
 */
bool
entry_take_up(int index)
{
	Entry *entry = entry_at(index);
	uint64 ticket = pg_atomic_fetch_add_u64(&entry_pool->next_ticket, 1);

	if (!entry_step_from(entry, ENTRY_REQUESTED, ENTRY_QUEUED))
		return false;
	entry->status.ticket = ticket;
	SpinLockRelease(&entry->mutex);
	return true;
}

/*
 * QUEUED -> GRANTED, under its cohort's node.  Returns false if the entry is not QUEUED any
 * more.
 */
bool
entry_grant(int index, int64 token)
{
	Entry	   *entry = entry_at(index);
	TimestampTz now = GetCurrentTimestamp();
	int64		now_us = zklock_now_us();
	int			max_hold_ms = entry->request.max_hold_ms;

	if (!entry_step_from(entry, ENTRY_QUEUED, ENTRY_GRANTED))
		return false;
	entry->status.token = token;
	entry->status.granted_at = now;
	entry->status.expires_us = max_hold_ms > 0 ? now_us + INT64CONST(1000) * max_hold_ms : NEVER;
	entry->status.expires_at = max_hold_ms > 0 ? TimestampTzPlusMilliseconds(now, max_hold_ms) : 0;
	entry->node.grants = token & MAX_GRANTS;
	entry->node.position = 1;
	entry->node.blocked_by_cohort = 0;
	entry->node.blocked_by_node[0] = '\0';
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
	return true;
}

/*
 * QUEUED -> FAILED, unless the entry is not QUEUED any more.
 *
 *	code	ZooKeeper's, for FAILURE_REFUSED
 */
void
entry_fail(int index, Failure failure, int code)
{
	Entry *entry = entry_at(index);

	if (!entry_step_from(entry, ENTRY_QUEUED, ENTRY_FAILED))
		return;
	entry->status.failure = failure;
	entry->status.error_code = code;
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
}

/*
 * GRANTED -> LOST.  Wakes the owner, and interrupts it if it wants that; backend/guard.c turns
 * the interrupt into the message.  A reservation is RELEASING at once, as it has no owner that
 * would give it up.
 *
 * Returns false if the entry is not GRANTED any more.
 */
bool
entry_lose(int index, LossReason reason)
{
	Entry	  *entry = entry_at(index);
	LossPolicy policy;

	if (!entry_step_from(entry, ENTRY_GRANTED, ENTRY_LOST))
		return false;
	policy = entry->status.on_loss;
	entry->status.loss = reason == LOSS_DELETED ? entry->status.deletion : reason;
	if (entry->status.reserved)
		entry_step(entry, ENTRY_RELEASING, BY_BACKEND);
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
	if (policy == LOSS_ABORT)
		return true;

	/*
	 * An owner that has given the entry up is not interrupted.  The lock keeps it from exiting
	 * meanwhile: its slot may be another's then.
	 */
	ZKLOCK_SLOW("slow-losses", 400, 25);
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	if (entry_status(index).state == ENTRY_LOST)
		failure_interrupt(entry->request.proc_number, policy);
	LWLockRelease(ProcArrayLock);
	return true;
}

/*
 * Keeps an entry that is RELEASING, with its node, for nobody: its owner has released it, and
 * is woken if it waits for that.  Returns false if no more can be kept.
 */
bool
entry_keep(int index)
{
	Entry	   *entry = entry_at(index);
	EntryNotice notice;
	bool		room;

	SpinLockAcquire(&entry_pool->mutex);
	room = entry_pool->nkept < entry_pool->nspare;
	entry_pool->nkept += room;
	SpinLockRelease(&entry_pool->mutex);
	if (!room)
		return false;
	SpinLockAcquire(&entry->mutex);
	Assert(entry->status.state == ENTRY_RELEASING && !entry->status.kept);
	entry->status.kept = true;
	notice = entry->status.notice;
	entry->status.notice = ENTRY_NO_NOTICE;
	SpinLockRelease(&entry->mutex);
	if (notice == ENTRY_NOTICE)
		entry_set_owner_latch(entry);
	return true;
}

/*
 * RELEASING -> FREE: puts an entry into the free list, and wakes its owner if it waits for
 * that.
 */
void
entry_free(int index)
{
	Entry	   *entry = entry_at(index);
	int			owner;
	EntryNotice notice;
	bool		kept;

	SpinLockAcquire(&entry->mutex);
	entry_step(entry, ENTRY_FREE, BY_WORKER);
	owner = entry->status.latch;
	notice = entry->status.notice;
	kept = entry->status.kept;
	memset(&entry->node, 0, sizeof(entry->node));
	SpinLockRelease(&entry->mutex);

	/* In one step it gets its new generation and is free: then any contender may take it. */
	SpinLockAcquire(&entry_pool->mutex);
	entry->generation++;
	entry->next_free = entry_pool->first_free;
	entry_pool->first_free = index;
	entry_pool->nfree++;
	entry_pool->nkept -= kept;
	SpinLockRelease(&entry_pool->mutex);
	if (notice == ENTRY_NOTICE && owner != ENTRY_NO_LATCH)
		SetLatch(&GetPGProcByNumber(owner)->procLatch);
}

/*
 * Stores why the lock is lost if a cohort's node is deleted, in the entries behind the cohort.
 */
void
entries_expect_deletion(uint64 cohort_id, LossReason deletion)
{
	for (int i = 0; cohort_id != 0 && i < entry_pool->max_entries; i++)
	{
		Entry *entry = entry_at(i);

		SpinLockAcquire(&entry->mutex);
		if (entry->node.cohort_id == cohort_id)
			entry->status.deletion = deletion;
		SpinLockRelease(&entry->mutex);
	}
}

/* ------------------------------------------------------------------------
 * Any process
 * ------------------------------------------------------------------------
 */

/* Has the worker look at an entry.  Cannot fail, does not wait. */
void
entry_mark_dirty(int index)
{
	ZKLOCK_SLOW("slow-backends", 120, 25);
	zklock_mark(entry_pool->dirty, index);
	zklock_wake_worker();
}

/* Makes a consistent copy of an entry.  Returns false if it is not in use. */
bool
entry_copy(int index, EntryCopy *copy)
{
	Entry *entry = entry_at(index);

	copy->index = index;
	do
	{
		copy->generation = entry_generation(index);
		SpinLockAcquire(&entry->mutex);
		copy->status = entry->status;
		if (copy->status.state != ENTRY_FREE)
			copy->node = entry->node;
		SpinLockRelease(&entry->mutex);
		if (copy->status.state == ENTRY_FREE)
			return false;
		ZKLOCK_SLOW("slow-views", 20, 100);
		copy->request = entry->request;
		pg_read_barrier();
	} while (entry_generation(index) != copy->generation && !ZKLOCK_FAULT("torn-views"));
	return true;
}

/* Returns how many entries sessions, or the server itself, have. */
int
entries_in_use(void)
{
	int unused;

	SpinLockAcquire(&entry_pool->mutex);
	unused = entry_pool->nfree + entry_pool->nkept;
	SpinLockRelease(&entry_pool->mutex);
	return entry_pool->max_entries - unused;
}

/* ------------------------------------------------------------------------
 * Reservations: locks that the server holds for whoever knows their tokens
 *
 * A reservation is an exclusive lock for a time, for work of many transactions that have no
 * session of their own.  It is an entry like that of any lock, but it changes hands:
 *
 *		asked for	REQUESTED, QUEUED and at first GRANTED, it is the asking backend's, which
 *					waits for it, and gives it up if the call fails or the session ends
 *		reserved	still GRANTED, it is marked as "reserved", which is the backend's last step:
 *					hold_hand_over().  From then on it is nobody's session's.
 *		over		RELEASING: a backend whose user knows the token has ended it,
 *					reservation_end(), or the worker when it is lost, entry_lose()
 *
 * Each of these steps is made under the entry's spinlock, by whoever comes first; who comes
 * later finds it over.  A backend looks for interrupts for the last time before it marks the
 * entry: a cancellation that comes with the grant leaves nothing.
 *
 *	time		Its end is in the entry, from the grant on, as with zklock.max_hold_time
 *				(engine/engine.c).  Any backend may move it, under the spinlock.  Both read the clock
 *				before the entry: so the worker never takes a reservation that was renewed in time,
 *				and who sees it over may see it renewed, but not the reverse.
 *	backend		If it ends, its reservations stay.
 *	worker		If it ends, they stay: the next one finds the entries.
 *	server		If it crashes, they are lost with shared memory.  If it stops, they end with the
 *				ZooKeeper session, which the worker closes when no transaction relies on one any
 *				more, and none can begin to: RELIANCES_CLOSED.
 *
 * A reservation is a session of its own, to whose contenders it never belongs, even while it is
 * asked for.  Its node, too, is its own: the node's bytes are charged to its role (path.c).
 *
 * A transaction that relies on reservations is counted in EntryPool.reliances.  A backend that
 * exits aborts its transaction first, which ends the reliance.  One that is killed has the server
 * start anew, with memory in which nobody relies.
 * ------------------------------------------------------------------------
 */

/*
 * Returns the entry of a reservation, with its spinlock, for the caller to release; or NULL,
 * without it, if the reservation is over.
 */
static Entry *
reservation_lock(const Reservation *reservation, int64 *now_us)
{
	Entry *entry = entry_at(reservation->index);

	*now_us = zklock_now_us();
	SpinLockAcquire(&entry->mutex);
	if (entry->status.state == ENTRY_GRANTED && entry->status.reserved &&
		*now_us < entry->status.expires_us &&
		entry_generation(reservation->index) == reservation->generation)
		return entry;
	SpinLockRelease(&entry->mutex);
	return NULL;
}

/*
 * Copies the status of a reservation.  Returns false if it is over.  A caller that relies on
 * the lease reads it first: then it is the lease of the grant.
 */
bool
reservation_status(const Reservation *reservation, EntryStatus *status)
{
	int64  now_us;
	Entry *entry = reservation_lock(reservation, &now_us);

	if (entry == NULL)
		return false;
	*status = entry->status;
	SpinLockRelease(&entry->mutex);
	return true;
}

/* Has a reservation end so long from now.  Returns false if it is over. */
bool
reservation_renew(const Reservation *reservation, int duration_ms)
{
	TimestampTz expires_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), duration_ms);
	int64		now_us;
	Entry	   *entry = reservation_lock(reservation, &now_us);

	if (entry == NULL)
		return false;
	entry->status.expires_us = now_us + INT64CONST(1000) * duration_ms;
	entry->status.expires_at = expires_at;
	SpinLockRelease(&entry->mutex);

	/* It may end sooner than the worker knows. */
	entry_mark_dirty(reservation->index);
	return true;
}

/*
 * Ends a reservation.  Returns false if it is over already.
 *
 *	latch	the process that is woken when others can have the lock
 */
bool
reservation_end(const Reservation *reservation, int latch)
{
	int64  held = GetCurrentTimestamp();
	int64  now_us;
	Entry *entry = reservation_lock(reservation, &now_us);

	if (entry == NULL)
		return false;
	held -= entry->status.granted_at;
	entry->status.latch = latch;
	entry->status.notice = ENTRY_NOTICE;
	entry_step(entry, ENTRY_RELEASING, BY_BACKEND);
	SpinLockRelease(&entry->mutex);
	stats_add(STATS_LOCK_EXCLUSIVE, STATS_HOLD_US, Max(held, 0));
	entry_mark_dirty(reservation->index);
	return true;
}
