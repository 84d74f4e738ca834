/*
 * lock_index.c
 *		Finding runs by the names of their nodes.
 *
 * A path may have thousands of runs, and a listing as many children.  Whoever
 * goes through the children makes an index of the runs first, in order of
 * their sequences, so that the whole costs little more than the listing.  The
 * index must be dropped before any run is made, finished or renamed.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/lock_table.h"

static int
compare_sequences(const void *a, const void *b)
{
	int64 sequence_a = (*(Run *const *) a)->sequence;
	int64 sequence_b = (*(Run *const *) b)->sequence;

	return sequence_a < sequence_b ? -1 : sequence_a > sequence_b ? 1 : 0;
}

/* Makes an index of those of a path's runs whose nodes' full names are known. */
void
run_index_make(RunIndex *index, const LockPath *path)
{
	dlist_iter iter;
	int		   room = 0;

	dlist_foreach (iter, unconstify(dlist_head *, &path->runs))
		room++;
	index->runs = palloc(Max(room, 1) * sizeof(Run *));
	index->n = 0;
	dlist_foreach (iter, unconstify(dlist_head *, &path->runs))
	{
		Run *run = dlist_container(Run, node, iter.cur);

		if (run->state >= RUN_CREATED)
			index->runs[index->n++] = run;
	}
	qsort(index->runs, index->n, sizeof(Run *), compare_sequences);
}

void
run_index_drop(RunIndex *index)
{
	pfree(index->runs);
}

/* The run that has the node, under its own name or its heir's; or NULL. */
Run *
run_index_find(const RunIndex *index, const char *name, int64 sequence)
{
	int low = 0;
	int high = index->n;

	while (low < high)
	{
		int middle = (low + high) / 2;

		if (index->runs[middle]->sequence < sequence)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < index->n && index->runs[low]->sequence == sequence; low++)
	{
		Run *run = index->runs[low];

		if (strcmp(run->name, name) == 0 || strcmp(run->heir, name) == 0)
			return run;
	}
	return NULL;
}
