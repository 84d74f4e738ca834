/*
 * worker_process.c
 *		Is there a worker, and how is it woken?
 *
 * Runs in: all processes.  Takes no lock: the fields are atomics.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "shared/worker_process.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"

WorkerProcess *zklock_worker = NULL;

/* Initialises new memory. */
void
zklock_worker_init(WorkerProcess *worker)
{
	pg_atomic_init_u32(&worker->pid, 0);
	pg_atomic_init_u32(&worker->proc_number, ZKLOCK_NO_WORKER);
}

/* The worker's process id, or 0 if none runs. */
int
zklock_worker_pid(void)
{
	return (int) pg_atomic_read_u32(&zklock_worker->pid);
}

/*
 * Sets the worker's latch, if a worker runs.  Cannot fail, does not wait.
 *
 * The caller has written its news under a spinlock, or in an atomic operation, and
 * SetLatch() is a barrier.  A worker that just starts is not
 * woken, but looks at all there is.
 */
void
zklock_wake_worker(void)
{
	uint32 proc_number;

	pg_memory_barrier();
	proc_number = pg_atomic_read_u32(&zklock_worker->proc_number);
	if (proc_number != ZKLOCK_NO_WORKER)
		SetLatch(&GetPGProcByNumber(proc_number)->procLatch);
}

/*
 * There has been no worker for longer than it takes to start one.  PostgreSQL 15's
 * postmaster may overlook for a minute that one has ended, if it was just about to
 * sleep; it looks when it is woken.
 */
void
zklock_want_worker(void)
{
	SendPostmasterSignal(PMSIGNAL_BACKGROUND_WORKER_CHANGE);
}

/*
 * This process is the worker from now on.  What was asked before, and woke
 * nobody, it sees when it looks afterwards: here and in zklock_wake_worker() a
 * barrier is between the write and the read.
 */
void
zklock_worker_begins(void)
{
	pg_atomic_write_u32(&zklock_worker->pid, MyProcPid);
	pg_atomic_write_u32(&zklock_worker->proc_number, compat_my_proc_number());
	pg_memory_barrier();
}

/* The worker exits.  Cannot fail, does not wait. */
void
zklock_worker_ends(void)
{
	pg_atomic_write_u32(&zklock_worker->pid, 0);
	pg_atomic_write_u32(&zklock_worker->proc_number, ZKLOCK_NO_WORKER);
}

/* The worker leaves, so that the postmaster starts a new one a second later. */
void
zklock_worker_restart(const char *reason)
{
	ereport(LOG, (errmsg("zklock worker restarts because of %s", reason)));
	proc_exit(1);
}
