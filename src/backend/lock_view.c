/*
 * lock_view.c
 *		The contenders as shared memory has them, and who waits for whom.
 *
 * Entries are copied one at a time.  A copy is consistent in itself; the copies of one view
 * may be a moment apart, as in pg_stat_activity.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/contenders.h"

/*
 * Cohorts are numbered in the order of their path's queue.  An entry that has no cohort yet
 * comes last.
 */
static uint64
cohort_order(const EntryCopy *entry)
{
	return entry->node.cohort_id != 0 ? entry->node.cohort_id : PG_UINT64_MAX;
}

static int
state_order(const EntryCopy *entry)
{
	return entry->status.state == ENTRY_GRANTED	 ? 0
		   : entry->status.state == ENTRY_QUEUED ? 1
												 : 2;
}

static int
compare_entries(const void *a, const void *b)
{
	const EntryCopy *x = *(EntryCopy *const *) a;
	const EntryCopy *y = *(EntryCopy *const *) b;
	int				 order = strcmp(x->request.path, y->request.path);

	if (order != 0)
		return order;
	if (cohort_order(x) != cohort_order(y))
		return cohort_order(x) < cohort_order(y) ? -1 : 1;
	if (state_order(x) != state_order(y))
		return state_order(x) - state_order(y);
	return x->status.ticket < y->status.ticket ? -1 : x->status.ticket > y->status.ticket;
}

/*
 * Copies the entries in use, each as it is at one moment, in the current memory context.
 * A palloc() for each takes twice the time if there are a thousand, mostly in page faults.
 */
LockView
lock_view_take(void)
{
	const int  at_once = 64;
	LockView   view = {.entries = palloc(entries_max() * sizeof(EntryCopy *))};
	EntryCopy *copy = NULL;
	int		   left = 0;

	for (int i = 0; i < entries_max(); i++)
	{
		/* Most are free, which a look without the spinlock shows. */
		if (((const volatile Entry *) entry_at(i))->status.state == ENTRY_FREE)
			continue;
		if (left == 0)
		{
			copy = palloc(at_once * sizeof(EntryCopy));
			left = at_once;
		}
		if (!entry_copy(i, copy))
			continue;
		if (copy->status.state == ENTRY_GRANTED && entry_is_overrun(copy->status.expires_us))
			copy->status.state = ENTRY_LOST;
		if (copy->status.reserved)
			copy->request.pid = ENTRY_SERVER_PID;
		view.entries[view.n++] = copy++;
		left--;
	}
	qsort(view.entries, view.n, sizeof(EntryCopy *), compare_entries);
	return view;
}

/* Copies the entries at one path, in the same order. */
LockView
lock_view_of_path(const char *path)
{
	LockView view = lock_view_take();
	int		 n = view.n;

	view.n = 0;
	for (int i = 0; i < n; i++)
	{
		if (strcmp(view.entries[i]->request.path, path) == 0)
			view.entries[view.n++] = view.entries[i];
	}
	return view;
}

/*
 * Returns true if a node stands for an entry.  The czxid is compared as well, since a name
 * can be used again.  A downgraded lock has a later node.
 */
static bool
stands_for(const ContenderNode *node, const EntryCopy *entry)
{
	int64 czxid = node->answer.stat.czxid;
	bool  downgraded = entry->status.mode != entry->request.terms.mode;

	return strcmp(entry->node.name, node->name) == 0 &&
		   (czxid == 0 || czxid == entry->node.czxid || (downgraded && czxid > entry->node.czxid));
}

/*
 * Returns the entry at a path for which a node stands: the holder's, or else that of the
 * first that came.  Returns NULL if the node is not ours.
 */
const EntryCopy *
lock_view_of_node(const LockView *at_path, const ContenderNode *node)
{
	for (int i = 0; i < at_path->n; i++)
	{
		if (stands_for(node, at_path->entries[i]))
			return at_path->entries[i];
	}
	return NULL;
}

/*
 * Returns the path as the user knows it: for a turn or a permit the semaphore's, which is
 * above.
 */
const char *
lock_view_path(const EntryCopy *entry)
{
	const char *path = entry->request.path;

	if (entry->request.kind != REQUEST_TURN && entry->request.kind != REQUEST_PERMIT)
		return path;
	return pnstrdup(path, strrchr(path, '/') - path);
}

/* Stands for no process, not even the server itself */
#define NO_PROCESS (-1)

/*
 * Returns the first entry of a path's cohort that is in a state and is not that of process
 * "except_pid"; NULL if there is none.
 */
static const EntryCopy *
find_in_cohort(const LockView *view, const char *path, uint64 cohort_id, EntryState state, int except_pid)
{
	int from = 0;
	int to = view->n;

	while (from < to)
	{
		int middle = from + (to - from) / 2;
		int order = strcmp(view->entries[middle]->request.path, path);

		if (order < 0 || (order == 0 && cohort_order(view->entries[middle]) < cohort_id))
			from = middle + 1;
		else
			to = middle;
	}
	for (; from < view->n && cohort_order(view->entries[from]) == cohort_id; from++)
	{
		if (view->entries[from]->status.state == state && view->entries[from]->request.pid != except_pid)
			return view->entries[from];
	}
	return NULL;
}

/*
 * Returns for whom the process of an entry waits: for the holder in its own cohort; else for
 * what the cohort waits for, which is another cohort of this server or a foreign node; else
 * for the contender ahead of it in its own cohort.
 */
LockBlocker
lock_view_blocker(const LockView *view, const EntryCopy *entry)
{
	const char		*path = entry->request.path;
	uint64			 cohort_id = entry->node.cohort_id;
	int				 waiter = entry->request.pid;
	const EntryCopy *head = find_in_cohort(view, path, cohort_id, ENTRY_QUEUED, NO_PROCESS);
	const EntryCopy *blocker = find_in_cohort(view, path, cohort_id, ENTRY_GRANTED, waiter);
	const char		*node = NULL;

	if (blocker == NULL && head != NULL)
	{
		uint64 before = head->node.blocked_by_cohort;

		if (head->node.blocked_by_node[0] != '\0')
			node = head->node.blocked_by_node;
		blocker = find_in_cohort(view, path, before, ENTRY_GRANTED, waiter);
		if (find_in_cohort(view, path, before, ENTRY_GRANTED, NO_PROCESS) == NULL)
			blocker = find_in_cohort(view, path, before, ENTRY_QUEUED, NO_PROCESS);
		if (blocker == NULL && node == NULL)
			blocker = head;
	}
	if (blocker && blocker->status.reserved)
		node = blocker->node.name;
	if (blocker && blocker->request.pid == waiter)
		blocker = NULL;
	return (LockBlocker){.pid = blocker ? blocker->request.pid : 0, .node = node};
}
