/*
 * overrun.c
 *		Holders that have held for longer than zklock.max_hold_time.
 *
 * The time is fixed at the grant: it is in the entry, on the clock that nobody
 * sets (clock.c).  When it is over the holder has lost the lock, by one step of
 * its entry from GRANTED to LOST, for which its backend need not do anything: it
 * may be stopped, in a loop, or wait for a client that is gone.  It is like any
 * other loss from there on, but for this: the node is there, and ours.  So the
 * run goes on without that contender: it grants the next one of this server,
 * with a new token, or its node is deleted.
 *
 *	backend		looks at the clock itself before it relies on the lock: a worker
 *				that is stopped prolongs nothing
 *	worker		the entry survives it; the next one begins with a look at all
 *	ZooKeeper	if it is away, the holder has lost the lock all the same; the node
 *				goes when it is back, or with the session
 *
 * A turn at a semaphore is limited as well, since a session that is stopped
 * while it has its turn would hold up all others.  For a session that merely
 * waits for its permit this changes nothing: it goes on waiting, in its place
 * (see permit.c), while the next one begins to.
 *
 * All holders are looked at when the first time is over, no sooner: then their
 * next one is known.  Locks that are given back in time, as nearly all are, cost
 * no more than that look, once in a while.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/overrun.h"

/* When a holder's time is over, us; 0: never. */
static int64
end_of_hold(int index)
{
	ContenderEntry *entry = entry_at(index);
	int64			expires_us;

	SpinLockAcquire(&entry->mutex);
	expires_us = entry->status.state == CONTENDER_GRANTED ? entry->status.expires_us : 0;
	SpinLockRelease(&entry->mutex);
	return expires_us;
}

/* Takes from a holder what it has held for too long. */
static void
take_from(Contender *c, int64 now)
{
	const EntryRequest *request = &entry_of(c)->request;
	int					limit = entry_of(c)->status.max_hold_ms;

	if (contender_overrun(c, now) && request->kind != CONTENDER_TURN)
		ereport(WARNING, (errmsg("process %d has lost \"%s\": it was held for longer than \"zklock.max_hold_time\"",
								 request->pid, request->path),
						  errdetail("The limit was %d ms when it was asked for.", limit)));
}

/* Takes note of the time being over for holders. */
void
queue_overrun_attend(void)
{
	int64 now = zklock_now_us();

	if (now < engine.overrun_us)
		return;
	engine.overrun_us = PG_INT64_MAX;
	for (int i = 0; i < entries_max(); i++)
	{
		Contender *c = &engine.contenders[i];
		int64	   expires_us = c->place == PLACE_GRANTED ? end_of_hold(i) : 0;

		if (expires_us == 0)
			continue;
		if (now >= expires_us)
			take_from(c, now);
		else
			engine.overrun_us = Min(engine.overrun_us, expires_us);
	}
}

/* When queue_overrun_attend() wants to be called at the latest, ms; or -1. */
int64
queue_overrun_next_wakeup(void)
{
	return engine.overrun_us == PG_INT64_MAX ? -1 : engine.overrun_us / 1000 + 1;
}
