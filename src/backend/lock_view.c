/*
 * lock_view.c
 *		What shared memory tells about contenders, and who waits for whom.
 *
 * Entries are copied one at a time.  What changes while an entry is in use is
 * copied under its spinlock; the rest, which is much, before and after which the
 * entry must be the same contender's, without.  So a copy is consistent in
 * itself; those of one view may be a moment apart, as in pg_stat_activity.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/lock_view.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
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

/*
 * UTF-8 in the database's encoding.  A path locked from a database of another
 * encoding, or a foreign node's name, may have no form in ours: its bytes are
 * escaped then, so that it does not make a view or a wait fail.
 */
char *
utf8_for_display(const char *utf8, bool convertible)
{
	StringInfoData escaped;

	if (convertible ||
		(GetDatabaseEncoding() == PG_UTF8 && pg_verify_mbstr(PG_UTF8, utf8, strlen(utf8), true)))
		return pg_any_to_server(utf8, strlen(utf8), PG_UTF8);

	initStringInfo(&escaped);
	for (const char *c = utf8; *c != '\0'; c++)
	{
		if (IS_HIGHBIT_SET(*c))
			appendStringInfo(&escaped, "\\x%02x", (unsigned char) *c);
		else
			appendStringInfoChar(&escaped, *c);
	}
	return escaped.data;
}

/*
 * Copies what may change while an entry is in use, which needs the spinlock, and
 * what tells whether it is still the same contender's later.  Returns false if
 * the entry is not in use.
 */
static bool
copy_changing(ContenderEntry *entry, EntryView *copy, uint32 *generation)
{
	bool in_use;

	SpinLockAcquire(&entry->mutex);
	in_use = entry->state != CONTENDER_FREE;
	if (in_use)
	{
		*generation = entry->generation;
		copy->state = entry->state;
		copy->mode = entry->mode;
		copy->ticket = entry->ticket;
		copy->session_count = entry->session_count;
		copy->transaction_count = entry->transaction_count;
		copy->shared_session_count = entry->shared_session_count;
		copy->shared_transaction_count = entry->shared_transaction_count;
		copy->run_id = entry->run_id;
		memcpy(copy->node, entry->node, sizeof(copy->node));
		copy->token = entry->token;
		copy->granted_at = entry->granted_at;
		copy->blocked_by_run = entry->blocked_by_run;
		memcpy(copy->blocked_by_node, entry->blocked_by_node, sizeof(copy->blocked_by_node));
	}
	SpinLockRelease(&entry->mutex);
	return in_use;
}

/*
 * Copies what is constant while an entry is in use.  That may be nonsense if the
 * entry has become another contender's meanwhile.
 */
static void
copy_constant(const ContenderEntry *entry, EntryView *copy)
{
	copy->pid = entry->pid;
	copy->database = entry->database;
	copy->role = entry->role;
	copy->kind = entry->kind;
	copy->transaction_level = entry->transaction_level;
	copy->requested_at = entry->requested_at;
	memcpy(copy->path, entry->path, sizeof(copy->path));
}

static bool
entry_is_still(ContenderEntry *entry, uint32 generation)
{
	bool same;

	SpinLockAcquire(&entry->mutex);
	same = entry->generation == generation;
	SpinLockRelease(&entry->mutex);
	return same;
}

/* Copies the entries in use. */
static EntryView *
copy_entries(int *n)
{
	int		   max = zklock_shared->max_entries;
	int		   allocated = 64;
	EntryView *copies = palloc(allocated * sizeof(EntryView));

	/* Memory that is used already: under a spinlock no page is to be fetched. */
	EntryView copy = {0};

	*n = 0;
	for (int i = 0; i < max; i++)
	{
		ContenderEntry *entry = entry_at(i);
		uint32			generation;
		bool			whole = false;

		while (!whole && copy_changing(entry, &copy, &generation))
		{
			copy_constant(entry, &copy);
			whole = entry_is_still(entry, generation);
		}
		if (!whole)
			continue;
		if (*n == allocated)
		{
			allocated *= 2;
			copies = repalloc_huge(copies, (Size) allocated * sizeof(EntryView));
		}
		copies[(*n)++] = copy;
	}
	return copies;
}

/* Gathers what is known about runs from their contenders. */
static HTAB *
view_runs(const EntryView *entries, int n)
{
	HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(RunView)};
	HTAB   *runs;

	ctl.hcxt = CurrentMemoryContext;
	runs = hash_create("zklock runs", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < n; i++)
	{
		const EntryView *entry = &entries[i];
		RunView			*run;
		bool			 found;

		if (entry->run_id == 0)
			continue;
		run = hash_search(runs, &entry->run_id, HASH_ENTER, &found);
		if (!found)
			memset((char *) run + sizeof(run->id), 0, sizeof(RunView) - sizeof(run->id));
		if (entry->state == CONTENDER_GRANTED)
		{
			if (run->holder_pid == 0)
				run->holder_pid = entry->pid;
			else if (run->holder_pid != entry->pid)
				run->next_holder_pid = entry->pid;
		}
		else if (entry->state == CONTENDER_QUEUED &&
				 (run->head_pid == 0 || entry->ticket < run->head_ticket))
		{
			run->head_pid = entry->pid;
			run->head_ticket = entry->ticket;
			run->blocked_by_run = entry->blocked_by_run;
			strlcpy(run->blocked_by_node, entry->blocked_by_node, ZKLOCK_NODE_SIZE);
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

/* A holder of the run in another session, or 0. */
static int
holder_besides(const RunView *run, int pid)
{
	return run->holder_pid != pid ? run->holder_pid : run->next_holder_pid;
}

/*
 * Whom the process "waiter" with a contender in a given run waits for: the
 * holder in its own run, else what the run waits for, which is another run of
 * this server or a foreign node, else who is ahead in its own run.  *pid is 0 and *node NULL if it is not known.
 */
void
lock_view_blocker(const LockView *view, uint64 run_id, int waiter, int *pid, const char **node)
{
	RunView *run = hash_search(view->runs, &run_id, HASH_FIND, NULL);
	RunView *before;

	*pid = 0;
	*node = NULL;
	if (run == NULL)
		return;
	*pid = holder_besides(run, waiter);
	if (*pid != 0)
		return;
	if (run->blocked_by_node[0] != '\0')
		*node = run->blocked_by_node;
	before = hash_search(view->runs, &run->blocked_by_run, HASH_FIND, NULL);
	if (before)
	{
		*pid = holder_besides(before, waiter);
		if (*pid == 0 && before->holder_pid == 0 && before->head_pid != waiter)
			*pid = before->head_pid;
	}
	if (*pid == 0 && *node == NULL && run->head_pid != waiter)
		*pid = run->head_pid;
}
