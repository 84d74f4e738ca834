/*
 * heavy_wait.c
 *		Waits of processes for PostgreSQL's own locks.
 *
 * GetBlockerStatusData(), which pg_blocking_pids() is made of, tells the state of
 * the lock for which a process waits, of one moment.  It takes all partitions of
 * the lock table, so a process that does not wait is not asked about: a glance
 * at it tells, and one that begins to wait is seen with the next look.
 *
 * Dead ends, which this does not look behind: prepared transactions, since they
 * are no processes; the startup process of a standby, which is none that
 * PostgreSQL tells of here; and autovacuum, which PostgreSQL cancels when it is in
 * somebody's way.
 *
 * Runs in: backends and the worker.  LWLocks are held by GetBlockerStatusData()
 * only, while it copies.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "shared/heavy_wait.h"
#include "storage/lock.h"
#include "storage/procarray.h"

/* Is a process in the queue of a lock ahead of the one that is blocked? */
static bool
is_ahead(const BlockedProcsData *data, const BlockedProcData *blocked, int pid)
{
	for (int i = 0; i < blocked->num_waiters; i++)
	{
		if (data->waiter_pids[blocked->first_waiter + i] == pid)
			return true;
	}
	return false;
}

/* Does the owner of one lock instance keep another one waiting? */
static bool
is_in_the_way(const BlockedProcsData *data, const BlockedProcData *blocked,
			  const LockInstanceData *waiting, const LockInstanceData *other)
{
	LOCKMASK conflicts =
		GetLockTagsMethodTable(&waiting->locktag)->conflictTab[waiting->waitLockMode];

	if (other->leaderPid == waiting->leaderPid)
		return false;
	if ((conflicts & other->holdMask) != 0)
		return true;
	return other->waitLockMode != NoLock && (conflicts & LOCKBIT_ON(other->waitLockMode)) != 0 &&
		   is_ahead(data, blocked, other->pid);
}

/* A number for a wait of a process for a lock. */
static uint64
identify(const LockInstanceData *waiting)
{
	PGPROC *proc = BackendPidGetProc(waiting->pid);
	uint64	began = proc ? pg_atomic_read_u64(&proc->waitStart) : 0;

	/*
	 * The beginning is told a moment late: the lock tells two waits apart until then.
	 * GetBlockerStatusData() does not fill in LockInstanceData.waitStart.
	 */
	return hash_bytes_extended((const unsigned char *) &waiting->locktag, sizeof(LOCKTAG),
							   began + waiting->waitLockMode);
}

/* Takes in the wait of one process. */
static void
add_blocked(HeavyWait *wait, const BlockedProcsData *data, const BlockedProcData *blocked)
{
	const LockInstanceData *instances = &data->locks[blocked->first_lock];
	const LockInstanceData *waiting = NULL;

	for (int i = 0; i < blocked->num_locks; i++)
	{
		if (instances[i].pid == blocked->pid)
			waiting = &instances[i];
	}
	if (waiting == NULL || waiting->waitLockMode == NoLock)
		return;
	if (!wait->waits)
	{
		wait->waits = true;
		wait->tag = waiting->locktag;
		wait->mode = waiting->waitLockMode;
		wait->identity = identify(waiting);
	}
	for (int i = 0; i < blocked->num_locks; i++)
	{
		if (is_in_the_way(data, blocked, waiting, &instances[i]))
			wait->blockers[wait->nblockers++] = instances[i].leaderPid;
	}
}

/*
 * Looks for whom a process waits, which is the leader if there are parallel
 * workers.  What is found is in the current memory context.
 */
void
heavy_wait_look(int pid, HeavyWait *wait)
{
	const PGPROC	 *proc = BackendPidGetProc(pid);
	BlockedProcsData *data;

	memset(wait, 0, sizeof(*wait));
	if (proc == NULL || (proc->statusFlags & PROC_IS_AUTOVACUUM) != 0 ||
		(((const volatile PGPROC *) proc)->waitLock == NULL && proc->lockGroupLeader == NULL))
		return;
	data = GetBlockerStatusData(pid);
	wait->blockers = palloc(Max(data->nlocks, 1) * sizeof(int));
	for (int i = 0; i < data->nprocs; i++)
		add_blocked(wait, data, &data->procs[i]);
}
