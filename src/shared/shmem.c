/*
 * shmem.c
 *		Shared memory: layout, allocation, and how the two sides meet.
 *
 * There is one entry per contender: one request of one session for one path.
 * Its state moves along these arrows and no others, always under the entry's
 * own spinlock:
 *
 *		FREE -> REQUESTED						owning backend
 *		REQUESTED -> QUEUED						worker
 *		QUEUED -> GRANTED						worker
 *		GRANTED -> LOST							worker
 *		QUEUED -> FAILED						worker
 *		any in use -> RELEASING					owning backend
 *		RELEASING -> FREE						worker
 *
 * What is GRANTED may also change its mode, once, from exclusive to shared;
 * that is the owning backend's too.
 *
 * A grant and a cancellation may cross.  Whoever takes the spinlock first
 * wins: a worker that comes second finds RELEASING and grants to the next, a
 * backend that comes second releases what it was just granted.  What a backend
 * has released is the worker's to finish, and RELEASING is final: nothing the
 * worker does can turn it back into a lock.
 *
 * A backend that changed a state sets the entry's bit in "dirty" and then the
 * worker's latch.  The worker clears a whole word of bits before it looks at
 * the entries, so a change is never missed; looking at an entry twice does no
 * harm.  There are no lists through the entries that a process could leave
 * half-changed.
 *
 * If a backend dies, its exit callback has released its entries; if it was
 * killed without running them, PostgreSQL restarts all processes and this
 * memory is initialised again.  If the worker exits, entries stay as they are:
 * waiting backends go on waiting, released entries stay RELEASING, and the
 * next worker takes everything up from here (see lock_adopt()).
 *
 * Runs in: all processes.  Spinlocks are held for a few copies at most, the
 * LWLock of SessionInfo for one of that, and nothing that can fail is done under
 * any of them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "fault.h"
#include "port/pg_bitutils.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define SESSION_TRANCHE "zklock_session"

ZklockShared *zklock_shared = NULL;
LWLock		 *zklock_session_lock = NULL;

static int
max_entries(void)
{
	if (zklock_max_locks > 0)
		return zklock_max_locks;
	return Min(64 * MaxConnections, ZKLOCK_LOCKS_LIMIT);
}

static Size
shared_size(void)
{
	return add_size(offsetof(ZklockShared, entries), mul_size(max_entries(), sizeof(ContenderEntry)));
}

/* Reserves the memory; called in the postmaster when that is allowed. */
void
zklock_shmem_request(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche(SESSION_TRANCHE, 1);
}

/* Attaches to the memory, initialising it if it is new. */
void
zklock_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zklock_session_lock = &GetNamedLWLockTranche(SESSION_TRANCHE)->lock;
	zklock_shared = ShmemInitStruct("zklock", shared_size(), &found);
	if (!found)
	{
		ZklockShared *shared = zklock_shared;

		memset(shared, 0, shared_size());
		shared->max_entries = max_entries();
		pg_atomic_init_u32(&shared->worker_proc_number, NO_WORKER);
		pg_atomic_init_u64(&shared->lease_until, 0);
		pg_atomic_init_u64(&shared->lease_over, 0);
		pg_atomic_init_u64(&shared->next_ticket, 1);
		pg_atomic_init_u64(&shared->next_errand, 1);
		for (int i = 0; i < (int) lengthof(shared->dirty); i++)
			pg_atomic_init_u64(&shared->dirty[i], 0);
		SpinLockInit(&shared->mutex);
		for (int i = 0; i < ERRAND_SLOTS; i++)
			SpinLockInit(&shared->errands[i].mutex);
		shared->next_run_id = 1;
		shared->first_free = 0;
		shared->nfree = shared->max_entries;
		for (int i = 0; i < shared->max_entries; i++)
		{
			SpinLockInit(&shared->entries[i].mutex);
			shared->entries[i].next_free = i + 1 < shared->max_entries ? i + 1 : -1;
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Takes an entry from the free list, which is to keep some of them.  Its state
 * stays FREE until the caller has filled it and makes it REQUESTED, between
 * which nothing may fail.
 *
 *	leave	how many entries must stay free
 *
 * Returns its index, or -1 if there is none.
 */
int
entry_claim(int leave)
{
	int index = -1;

	SpinLockAcquire(&zklock_shared->mutex);
	if (zklock_shared->nfree > leave)
	{
		index = zklock_shared->first_free;
		zklock_shared->first_free = entry_at(index)->next_free;
		zklock_shared->nfree--;
	}
	SpinLockRelease(&zklock_shared->mutex);
	return index;
}

/* Asks the worker to look at an entry.  Cannot fail, does not wait. */
void
entry_mark_dirty(int index)
{
	ZKLOCK_SLOW("slow-backends", 120, 25);
	pg_atomic_fetch_or_u64(&zklock_shared->dirty[index / 64], UINT64CONST(1) << (index % 64));
	zklock_wake_worker();
}

/* Sets the worker's latch, if a worker runs.  Cannot fail, does not wait. */
void
zklock_wake_worker(void)
{
	uint32 proc_number;

	proc_number = pg_atomic_read_u32(&zklock_shared->worker_proc_number);
	if (proc_number != NO_WORKER)
		SetLatch(&GetPGProcByNumber(proc_number)->procLatch);
}

/* Calls "visit" for each entry whose bit was set, clearing the bits first. */
void
entries_visit_dirty(EntryVisitor visit)
{
	int nwords = (zklock_shared->max_entries + 63) / 64;

	for (int word = 0; word < nwords; word++)
	{
		uint64 bits;

		if (pg_atomic_read_u64(&zklock_shared->dirty[word]) == 0)
			continue;
		bits = pg_atomic_exchange_u64(&zklock_shared->dirty[word], 0);
		while (bits != 0)
		{
			int bit = pg_rightmost_one_pos64(bits);

			bits &= bits - 1;
			visit(word * 64 + bit);
		}
	}
}

/*
 * Gives a RELEASING entry back and tells its owner if it waits for that.
 * Worker only.
 *
 * Both mutexes are held, so that who sees the new generation can also have the
 * entry.
 */
void
entry_free(int index)
{
	ContenderEntry *entry = entry_at(index);
	int				owner;
	bool			notify;

	SpinLockAcquire(&entry->mutex);
	Assert(entry->state == CONTENDER_RELEASING);
	entry->state = CONTENDER_FREE;
	entry->generation++;
	owner = entry->proc_number;
	notify = entry->notify_release;
	SpinLockAcquire(&zklock_shared->mutex);
	entry->next_free = zklock_shared->first_free;
	zklock_shared->first_free = index;
	zklock_shared->nfree++;
	SpinLockRelease(&zklock_shared->mutex);
	SpinLockRelease(&entry->mutex);

	if (notify)
		SetLatch(&GetPGProcByNumber(owner)->procLatch);
}

/*
 * Sets the latch of the backend that owns an entry.  Should that backend be
 * gone and its slot be taken by another, the other wakes up once for nothing.
 */
void
entry_set_owner_latch(const ContenderEntry *entry)
{
	SetLatch(&GetPGProcByNumber(entry->proc_number)->procLatch);
}

/* An entry's state at this moment. */
ContenderState
entry_get_state(int index)
{
	ContenderEntry *entry = entry_at(index);
	ContenderState	state;

	SpinLockAcquire(&entry->mutex);
	state = entry->state;
	SpinLockRelease(&entry->mutex);
	return state;
}

/* Remembers the id of a session of ours that has ended.  Worker only. */
void
zklock_session_ended(int64 id)
{
	int64 *ended = zklock_shared->ended_sessions;

	SpinLockAcquire(&zklock_shared->mutex);
	memmove(ended + 1, ended, (ZKLOCK_ENDED_SESSIONS - 1) * sizeof(int64));
	ended[0] = id;
	SpinLockRelease(&zklock_shared->mutex);
}

/* Is it the id of a session of ours that has ended?  Worker only. */
bool
zklock_session_has_ended(int64 id)
{
	bool found = false;

	SpinLockAcquire(&zklock_shared->mutex);
	for (int i = 0; i < ZKLOCK_ENDED_SESSIONS; i++)
		found |= id != 0 && zklock_shared->ended_sessions[i] == id;
	SpinLockRelease(&zklock_shared->mutex);
	return found;
}

/* Copies the session's state; either argument may be NULL. */
void
zklock_get_session(SessionInfo *info, int *worker_pid)
{
	if (info)
	{
		LWLockAcquire(zklock_session_lock, LW_SHARED);
		*info = zklock_shared->session;
		LWLockRelease(zklock_session_lock);
	}
	if (worker_pid)
	{
		SpinLockAcquire(&zklock_shared->mutex);
		*worker_pid = zklock_shared->worker_pid;
		SpinLockRelease(&zklock_shared->mutex);
	}
}

/* How many entries are not free. */
int
entries_in_use(void)
{
	int n = 0;

	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		if (entry_get_state(i) != CONTENDER_FREE)
			n++;
	}
	return n;
}

/* Raises an error unless the library was loaded with the server. */
void
zklock_require_preload(void)
{
	if (zklock_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"zklock\" to \"shared_preload_libraries\" and restart the server.")));
}
