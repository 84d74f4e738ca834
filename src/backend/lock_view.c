/*
 * lock_view.c
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Entries are copied one at a time.  A copy is consistent in itself; those of
 * one view may be a moment apart, as in pg_stat_activity.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/lock_view.h"
#include "utils/memutils.h"

/* What the contenders of one run tell about it. */
typedef struct RunView
{
	uint64 id;				/* hash key */
	int	   holder_pid;		/* 0 if it is not granted */
	int	   next_holder_pid; /* another one, or 0 */
	int	   head_pid;		/* of the first that waits */
	uint64 head_ticket;
	uint64 blocked_by_run;
	char   blocked_by_node[ZKLOCK_NODE_SIZE];
} RunView;

/* Copies the entries in use, each as it is at one moment. */
static EntryCopy *
copy_entries(int *n)
{
	int		   allocated = 64;
	EntryCopy *copies = palloc(allocated * sizeof(EntryCopy));

	*n = 0;
	for (int i = 0; i < entries_max(); i++)
	{
		EntryStatus *status;

		if (*n == allocated)
		{
			allocated *= 2;
			copies = repalloc_huge(copies, (Size) allocated * sizeof(EntryCopy));
		}
		if (!entry_copy(i, &copies[*n]))
			continue;
		status = &copies[(*n)++].status;
		if (status->state == CONTENDER_GRANTED && entry_is_overrun(status->expires_us))
			status->state = CONTENDER_LOST;
	}
	return copies;
}

/* Gathers what is known about runs from their contenders. */
static HTAB *
view_runs(const EntryCopy *entries, int n)
{
	HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(RunView)};
	HTAB   *runs;

	ctl.hcxt = CurrentMemoryContext;
	runs = hash_create("zklock runs", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < n; i++)
	{
		const EntryCopy *entry = &entries[i];
		RunView			*run;
		bool			 found;

		if (entry->status.run_id == 0)
			continue;
		run = hash_search(runs, &entry->status.run_id, HASH_ENTER, &found);
		if (!found)
			memset((char *) run + sizeof(run->id), 0, sizeof(RunView) - sizeof(run->id));
		if (entry->status.state == CONTENDER_GRANTED)
		{
			if (run->holder_pid == 0)
				run->holder_pid = entry->request.pid;
			else if (run->holder_pid != entry->request.pid)
				run->next_holder_pid = entry->request.pid;
		}
		else if (entry->status.state == CONTENDER_QUEUED &&
				 (run->head_pid == 0 || entry->status.ticket < run->head_ticket))
		{
			run->head_pid = entry->request.pid;
			run->head_ticket = entry->status.ticket;
			run->blocked_by_run = entry->node.blocked_by_run;
			strlcpy(run->blocked_by_node, entry->node.blocked_by_node, ZKLOCK_NODE_SIZE);
		}
	}
	return runs;
}

/* Takes a view, in the current memory context. */
void
lock_view_take(LockView *view)
{
	view->entries = copy_entries(&view->n);
	view->runs = view_runs(view->entries, view->n);
}

/* Frees a view. */
void
lock_view_drop(LockView *view)
{
	hash_destroy(view->runs);
	pfree(view->entries);
}

/* Who holds is before who waits, and of these who came first. */
static int
compare_entries(const void *a, const void *b)
{
	const EntryStatus *x = &(*(EntryCopy *const *) a)->status;
	const EntryStatus *y = &(*(EntryCopy *const *) b)->status;
	int order = (y->state == CONTENDER_GRANTED) - (x->state == CONTENDER_GRANTED);

	if (order == 0)
		order = (y->state == CONTENDER_QUEUED) - (x->state == CONTENDER_QUEUED);
	return order != 0 ? order : (x->ticket > y->ticket) - (x->ticket < y->ticket);
}

/* The contenders on a path in their order, palloc'd; "n" gets their number. */
EntryCopy **
lock_view_of_path(const LockView *view, const char *path, int *n)
{
	EntryCopy **entries = palloc(Max(view->n, 1) * sizeof(EntryCopy *));

	*n = 0;
	for (int i = 0; i < view->n; i++)
	{
		if (strcmp(view->entries[i].request.path, path) == 0)
			entries[(*n)++] = &view->entries[i];
	}
	qsort(entries, *n, sizeof(EntryCopy *), compare_entries);
	return entries;
}

/* A holder of the run in another session, or 0. */
static int
holder_besides(const RunView *run, int pid)
{
	return run->holder_pid != pid ? run->holder_pid : run->next_holder_pid;
}

/*
 * For whom does the process "waiter" wait, which has a contender in that run?
 * For the holder in its own run, else for what the run waits for, which is
 * another run of this server or a foreign node, else for the contender ahead of
 * it in its own run.
 */
LockBlocker
lock_view_blocker(const LockView *view, uint64 run_id, int waiter)
{
	RunView	   *run = hash_search(view->runs, &run_id, HASH_FIND, NULL);
	RunView	   *before;
	LockBlocker blocker = {0};

	if (run == NULL)
		return blocker;
	blocker.pid = holder_besides(run, waiter);
	if (blocker.pid != 0)
		return blocker;
	if (run->blocked_by_node[0] != '\0')
		blocker.node = run->blocked_by_node;
	before = hash_search(view->runs, &run->blocked_by_run, HASH_FIND, NULL);
	if (before)
	{
		blocker.pid = holder_besides(before, waiter);
		if (blocker.pid == 0 && before->holder_pid == 0 && before->head_pid != waiter)
			blocker.pid = before->head_pid;
	}
	if (blocker.pid == 0 && blocker.node == NULL && run->head_pid != waiter)
		blocker.pid = run->head_pid;
	return blocker;
}
