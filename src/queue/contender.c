/*
 * contender.c
 *		The worker's steps in a contender's life.
 *
 * These functions keep a contender's entry in shared memory, its place in the
 * worker's queues and its node on record in step with each other.
 *
 * Runs in: the worker.  Entries are changed under their spinlocks, along the
 * arrows drawn in shmem.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "mb/pg_wchar.h"
#include "queue/contender.h"
#include "utils/timestamp.h"

/* What its entry says, which its backend may have changed meanwhile. */
ContenderState
contender_state(const Contender *c)
{
	return entry_get_state(entry_index(c));
}

/* What it asks for; its backend may have downgraded that meanwhile. */
RecipeRequest
contender_request(const Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	RecipeRequest	request = {.dialect = entry->dialect, .permits = entry->permits};

	SpinLockAcquire(&entry->mutex);
	request.mode = entry->mode;
	SpinLockRelease(&entry->mutex);
	return request;
}

/* A session never waits for itself. */
bool
contender_same_session(const Contender *a, const Contender *b)
{
	return entry_of(a)->pid == entry_of(b)->pid;
}

/* Makes one step of the state machine if the entry is in state "from". */
bool
contender_step(Contender *c, ContenderState from, ContenderState to)
{
	ContenderEntry *entry = entry_of(c);
	bool			stepped;

	SpinLockAcquire(&entry->mutex);
	stepped = entry->state == from;
	if (stepped)
		entry->state = to;
	SpinLockRelease(&entry->mutex);
	return stepped;
}

/* Records in the entry which node stands for the contender. */
void
contender_publish(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	Run			   *run = c->run;

	SpinLockAcquire(&entry->mutex);
	entry->run_id = run->id;
	strlcpy(entry->node, run->name, sizeof(entry->node));
	entry->czxid = run->czxid;
	entry->run_grants = run->grants;
	SpinLockRelease(&entry->mutex);
}

/*
 * The engine is done with a contender: its entry is given back, at once or
 * when its backend has taken note of a failure or loss.
 */
void
contender_forget(Contender *c)
{
	ContenderEntry *entry = entry_of(c);

	c->place = PLACE_NONE;
	c->path = NULL;
	c->run = NULL;
	SpinLockAcquire(&entry->mutex);
	entry->run_id = 0;
	SpinLockRelease(&entry->mutex);
	if (contender_state(c) == CONTENDER_RELEASING)
		entry_free(entry_index(c));
}

/*
 * Takes a contender out of its queue.  If it was the last of a run that has,
 * or may have, a node, it stays on record.
 */
void
contender_detach(Contender *c)
{
	Run *run = c->run;

	path_mark(c->path);
	dlist_delete(&c->link);
	if (run && dlist_is_empty(&run->queue) && run->state != RUN_PLANNED)
	{
		run->record = c;
		c->place = PLACE_ON_RECORD;
		return;
	}
	if (run && !dlist_is_empty(&run->queue))
		contender_publish(run_head(run));
	contender_forget(c);
}

/* Tells the backend of a contender that waits why it is refused. */
static void
contender_refuse(Contender *c, ContenderFailure failure, int code)
{
	ContenderEntry *entry = entry_of(c);

	SpinLockAcquire(&entry->mutex);
	entry->failure = failure;
	entry->error_code = code;
	SpinLockRelease(&entry->mutex);
	if (contender_step(c, CONTENDER_QUEUED, CONTENDER_FAILED))
		entry_set_owner_latch(entry);
}

/* Refuses a contender that waits. */
void
contender_fail(Contender *c, ContenderFailure failure, int code)
{
	contender_refuse(c, failure, code);
	contender_detach(c);
}

/* Refuses one that is in no queue yet. */
void
contender_turn_away(Contender *c, ContenderFailure failure)
{
	contender_refuse(c, failure, 0);
	contender_forget(c);
}

/*
 * A granted contender's lock is lost, whether or not the node is gone.  If its
 * session wants that, it is interrupted; explain_interrupt() in guard.c makes the
 * message of it.
 */
void
contender_lose(Contender *c, LossReason reason)
{
	ContenderEntry *entry = entry_of(c);
	TimestampTz		now = GetCurrentTimestamp();
	int				interrupt = 0;
	int				pid;
	bool			lost;

	SpinLockAcquire(&entry->mutex);
	pid = entry->pid;
	lost = entry->state == CONTENDER_GRANTED;
	if (lost)
	{
		entry->state = CONTENDER_LOST;
		entry->loss = reason;
		if (entry->on_loss == LOSS_CANCEL)
			interrupt = SIGINT;
		else if (entry->on_loss == LOSS_TERMINATE)
			interrupt = SIGTERM;
		entry->interrupt = interrupt;
		entry->interrupted_at = now;
	}
	SpinLockRelease(&entry->mutex);
	if (lost)
		entry_set_owner_latch(entry);
	if (interrupt != 0 && kill(pid, interrupt) != 0)
		ereport(LOG, (errmsg("could not send signal %d to process %d: %m", interrupt, pid)));
	contender_detach(c);
}

/* Grants the lock, unless the backend has given up meanwhile. */
bool
contender_grant(Contender *c)
{
	ContenderEntry *entry = entry_of(c);
	Run			   *run = c->run;
	TimestampTz		now = GetCurrentTimestamp();
	bool			granted;

	SpinLockAcquire(&entry->mutex);
	granted = entry->state == CONTENDER_QUEUED;
	if (granted)
	{
		run->grants++;
		entry->state = CONTENDER_GRANTED;
		entry->run_grants = run->grants;
		entry->token = (run->czxid << TOKEN_GRANT_BITS) + run->grants;
		entry->granted_at = now;
		entry->blocked_by_run = 0;
		entry->blocked_by_node[0] = '\0';
	}
	SpinLockRelease(&entry->mutex);
	if (granted)
	{
		c->place = PLACE_GRANTED;
		entry_set_owner_latch(entry);
	}
	return granted;
}

/* A downgrade is done: others can share the lock, or nobody else wants to. */
void
contender_downgraded(Contender *c)
{
	ContenderEntry *entry = entry_of(c);

	SpinLockAcquire(&entry->mutex);
	entry->downgrading = false;
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
}

/* Shows what the recipe has to say to the contender's user. */
void
contender_remark(Contender *c, int32 remark)
{
	ContenderEntry *entry = entry_of(c);

	SpinLockAcquire(&entry->mutex);
	entry->others_permits = remark;
	SpinLockRelease(&entry->mutex);
}

/* Shows what the first of a waiting run waits for; zk_locks follows from there. */
void
contender_blocked_by(Contender *c, const Run *run, const char *node)
{
	ContenderEntry *entry = entry_of(c);

	int len = 0;

	/* A foreign name may be longer than we have room for. */
	if (node)
		len = pg_encoding_mbcliplen(PG_UTF8, node, strlen(node), ZKLOCK_NODE_SIZE - 1);
	SpinLockAcquire(&entry->mutex);
	entry->blocked_by_run = run ? run->id : 0;
	memcpy(entry->blocked_by_node, node ? node : "", len);
	entry->blocked_by_node[len] = '\0';
	SpinLockRelease(&entry->mutex);
}
