/*
 * wait_cycle.c
 *		Deadlocks across servers: who gives up, and what that one is told.
 *
 * Of the waits in a component the one with the youngest node, by its czxid, is to
 * give up; of those behind one node, the one of the process with the highest pid.
 * All servers that see the component find the same one (wait_search.c).
 *
 * It is told a shortest cycle of waits through its own, process by process: those
 * of each wait, from the one that keeps the wait before from going on.
 *
 * Runs in: the worker.  All is in the memory context of the round.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "worker/wait_cycle.h"

/* By what a wait keeps another one */
typedef enum Hindrance
{
	BY_WHAT_IT_HOLDS, /* its first process keeps a node in the way */
	BY_ITS_PLACE,	  /* the node of its last process, which waits, is in the way */
	BY_OTHERS		  /* a contender of which no record tells stands between the two */
} Hindrance;

static Hindrance
hindrance(const SearchWait *waiting, const SearchWait *next)
{
	const ReadNode *node = &waiting->wait->node;
	bool			same_server = waiting->record->owner == next->record->owner;

	if (waiting->wait->permits > 0)
		return BY_WHAT_IT_HOLDS;
	for (int i = 0; i < next->wait->nheld && !same_server; i++)
	{
		if (strcmp(next->wait->held[i].path, node->path) == 0 &&
			worker_search_is_older(next->wait->held[i].name, node->name))
			return BY_WHAT_IT_HOLDS;
	}
	if (!same_server && strcmp(next->wait->node.path, node->path) == 0 &&
		worker_search_is_older(next->wait->node.name, node->name))
		return BY_ITS_PLACE;
	return BY_OTHERS;
}

/* Which of its processes keeps another wait from going on? */
static int
keeping_step(const SearchWait *waiting, const SearchWait *next)
{
	return hindrance(waiting, next) == BY_ITS_PLACE ? next->wait->nsteps - 1 : 0;
}

/* Tells the steps of a wait, as lines; the last of them is blocked by the next wait. */
static void
describe_wait(const SearchWait *waiting, const SearchWait *next, int from, int to, StringInfo text)
{
	for (int i = from; i < to; i++)
	{
		bool			last = i == waiting->wait->nsteps - 1;
		const ReadStep *step = &waiting->wait->steps[i];
		const ReadStep *blocker = last ? &next->wait->steps[keeping_step(waiting, next)] : step + 1;

		appendStringInfo(text, "%sProcess %d of server \"%s\" waits for %s%s; blocked by process %d of server \"%s\".",
						 text->len > 0 ? "\n" : "", step->pid, waiting->record->server, step->text,
						 last && hindrance(waiting, next) == BY_OTHERS ? " behind another contender" : "",
						 blocker->pid, last ? next->record->server : waiting->record->server);
	}
}

/*
 * The wait of ours that is to give up, or NULL.
 *
 *	cycle	gets who waits for whom, from the process that gives up on
 */
const SearchWait *
worker_cycle_victim(Search *search, StringInfo cycle)
{
	int *vertices = palloc(Max(search->graph.nvertices, 1) * sizeof(int));

	for (int i = 0; i < search->nwaits; i++)
	{
		int length = 0;
		int n = 0;

		if (search->waits[i].record->owner == search->session)
			length = wait_graph_cycle(&search->graph, i, vertices, search->graph.nvertices);
		for (int k = 0; k < length; k++)
		{
			if (vertices[k] < search->nwaits)
				vertices[n++] = vertices[k];
		}
		if (n == 0)
			continue;
		for (int k = 0; k < n; k++)
		{
			const SearchWait *waiting = &search->waits[vertices[k]];
			const SearchWait *previous = &search->waits[vertices[(k + n - 1) % n]];
			int				  nsteps = waiting->wait->nsteps;

			describe_wait(waiting, &search->waits[vertices[(k + 1) % n]],
						  k == 0 ? nsteps - 1 : keeping_step(previous, waiting), nsteps, cycle);
		}
		describe_wait(&search->waits[i], &search->waits[i],
					  keeping_step(&search->waits[vertices[n - 1]], &search->waits[i]),
					  search->waits[i].wait->nsteps - 1, cycle);
		return &search->waits[i];
	}
	return NULL;
}
