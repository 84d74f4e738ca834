/*
 * verdict.h
 *		Deadlocks across servers: what the worker tells the session that is to give up.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_VERDICT_H
#define ZKLOCK_VERDICT_H

#include "storage/lwlock.h"

#define VERDICT_SLOTS 8
#define VERDICT_SIZE 8192 /* of what it says, with its NUL */
#define VERDICT_PIDS 32

typedef struct Verdict
{
	uint32 number;				/* 0: none so far */
	char   cycle[VERDICT_SIZE]; /* who waits for whom, UTF-8, lines */
	int	   npids;
	int	   pids[VERDICT_PIDS]; /* of those that are this server's */
} Verdict;

typedef struct Verdicts
{
	/* Written by the worker alone, and by the next one; read by others under the lock */
	uint32	last; /* number of the verdict passed last */
	Verdict slots[VERDICT_SLOTS];

	/*
	 * Read and written by the worker alone, and by the next one: may there be a node
	 * below WAIT_RECORD_ROOT that this server's ZooKeeper session has made?
	 */
	bool record_may_exist;
} Verdicts;

/* In shared memory; the lock is held for one copy. */
extern Verdicts *verdicts;
extern LWLock	*verdict_lock;

/* The worker */
extern uint32 verdict_pass(const char *cycle, const int *pids, int npids);

/* Backends */
extern bool verdict_read(uint32 number, Verdict *verdict);

#endif /* ZKLOCK_VERDICT_H */
