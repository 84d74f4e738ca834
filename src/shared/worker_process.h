/*
 * worker_process.h
 *		Is there a worker, and how is it woken?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_PROCESS_H
#define ZKLOCK_WORKER_PROCESS_H

#include "port/atomics.h"

/* Both are written by the worker, at its start and exit, and read by anyone. */
typedef struct WorkerProcess
{
	pg_atomic_uint32 pid;		  /* 0 if none runs */
	pg_atomic_uint32 proc_number; /* ZKLOCK_NO_WORKER if none runs */
} WorkerProcess;

#define ZKLOCK_NO_WORKER PG_UINT32_MAX

/* In shared memory */
extern WorkerProcess *zklock_worker;

extern void zklock_worker_init(WorkerProcess *worker);
extern int	zklock_worker_pid(void);
extern void zklock_wake_worker(void);
extern void zklock_want_worker(void);

/* The worker */
extern void zklock_worker_begins(void);
extern void zklock_worker_ends(void);
extern void zklock_worker_restart(const char *reason);

#endif /* ZKLOCK_WORKER_PROCESS_H */
