/*
 * verdict.c
 *		Deadlocks across servers: what the worker tells the session that is to give up.
 *
 * The worker alone sees what other servers publish, the session alone can raise
 * an error.  The worker writes what there is to say into the slot that was used
 * longest ago, and its number into the session's entry.  Should the slot be used
 * again before the session has read it, which takes as many deadlocks as there
 * are slots, the number tells, and the session says less.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "shared/verdict.h"

Verdicts *verdicts = NULL;
LWLock	 *verdict_lock = NULL;

/* Writes a verdict; what is too long is clipped.  Returns its number. */
uint32
verdict_pass(const char *cycle, const int *pids, int npids)
{
	Verdict *verdict;
	int		 len = pg_encoding_mbcliplen(PG_UTF8, cycle, strlen(cycle), VERDICT_SIZE - 1);

	LWLockAcquire(verdict_lock, LW_EXCLUSIVE);
	if (++verdicts->last == 0)
		verdicts->last = 1;
	verdict = &verdicts->slots[verdicts->last % VERDICT_SLOTS];
	verdict->number = verdicts->last;
	memcpy(verdict->cycle, cycle, len);
	verdict->cycle[len] = '\0';
	verdict->npids = Min(npids, VERDICT_PIDS);
	memcpy(verdict->pids, pids, verdict->npids * sizeof(int));
	LWLockRelease(verdict_lock);
	return verdicts->last;
}

/* Copies a verdict.  Returns false if its slot has been used again. */
bool
verdict_read(uint32 number, Verdict *verdict)
{
	LWLockAcquire(verdict_lock, LW_SHARED);
	*verdict = verdicts->slots[number % VERDICT_SLOTS];
	LWLockRelease(verdict_lock);
	return verdict->number == number;
}
