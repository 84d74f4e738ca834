/*-------------------------------------------------------------------------
 *
 * wait_graph.c
 *	  The graph of waits: vertices that can never go on, and cycles.
 *
 * A vertex waits for those to which its edges lead.  One without edges goes on by itself.
 * Most need all of theirs to go on: a process that waits for a lock waits for each that
 * stands in its way.  Some need only a number of them: a process that waits for a permit of
 * a semaphore goes on when enough are given back, no matter by which.  Hence a cycle alone
 * is no deadlock.  The stuck vertices are those that remain when all that can go on are
 * removed, again and again (the reduction of Holt's general resource graphs: "Some deadlock
 * properties of computer systems", 1972).
 *
 * Some stuck vertices merely wait behind a deadlock.  Those that can end it are in a cycle
 * of stuck vertices; all vertices in cycles with one another are a component.  In each
 * component one wait is given up, the youngest, and the rest is then looked at anew.  All
 * processes that look at the same component choose the same wait.
 *
 * deadlock.c makes a graph of the waits of this server, wait_search.c one of the waits that
 * all servers have published.
 *
 * Pure C: allocates by the caller's function, keeps no state, runs in any process or
 * thread, holds no lock.  The time is proportional to the number of edges.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock/wait_graph.h"

/* Adds a vertex without edges, which can go on and cannot be given up.  Returns its index. */
int
wait_graph_add(WaitGraph *graph)
{
	if (graph->nvertices == graph->max_vertices)
	{
		graph->max_vertices = graph->max_vertices > 0 ? 2 * graph->max_vertices : 64;
		graph->vertices =
			graph->resize(graph->vertices, (size_t) graph->max_vertices * sizeof(WaitVertex));
	}
	graph->vertices[graph->nvertices] =
		(WaitVertex){.needs = WAIT_GRAPH_ALL, .first = {WAIT_GRAPH_NONE, WAIT_GRAPH_NONE}};
	return graph->nvertices++;
}

/* Adds an edge: the first vertex waits for the second. */
void
wait_graph_connect(WaitGraph *graph, int from, int to)
{
	WaitEdge *edge;

	if (graph->nedges == graph->max_edges)
	{
		graph->max_edges = graph->max_edges > 0 ? 2 * graph->max_edges : 64;
		graph->edges = graph->resize(graph->edges, (size_t) graph->max_edges * sizeof(WaitEdge));
	}
	edge = &graph->edges[graph->nedges];
	*edge = (WaitEdge){.end = {from, to}};
	for (WaitEnd end = WAIT_FROM; end <= WAIT_TO; end++)
	{
		WaitVertex *vertex = &graph->vertices[edge->end[end]];

		edge->next[end] = vertex->first[end];
		vertex->first[end] = graph->nedges;
	}
	graph->vertices[from].nout++;
	graph->nedges++;
}

/*
 * Finds the vertices that are stuck.  If a vertex needs only a number, each of its edges
 * counts.
 */
void
wait_graph_solve(WaitGraph *graph)
{
	WaitVertex *vertices = graph->vertices;
	int			nfree = 0;

	for (int i = 0; i < graph->nvertices; i++)
	{
		vertices[i].missing =
			vertices[i].needs == WAIT_GRAPH_ALL ? vertices[i].nout : vertices[i].needs;
		vertices[i].stuck = vertices[i].missing > 0;
		if (!vertices[i].stuck)
			vertices[nfree++].queue = i;
	}
	for (int k = 0; k < nfree; k++)
	{
		for (int e = vertices[vertices[k].queue].first[WAIT_TO]; e != WAIT_GRAPH_NONE;
			 e = graph->edges[e].next[WAIT_TO])
		{
			WaitVertex *waiter = &vertices[graph->edges[e].end[WAIT_FROM]];

			if (!waiter->stuck || --waiter->missing > 0)
				continue;
			waiter->stuck = false;
			vertices[nfree++].queue = graph->edges[e].end[WAIT_FROM];
		}
	}
}

/*
 * Searches from a stuck vertex: sets "reached" of it and of all stuck ones for which it
 * waits, and "reaches" and "parent" of its component if it waits for itself.  To be called
 * after wait_graph_solve().
 */
void
wait_graph_reach(WaitGraph *graph, int self)
{
	WaitVertex *vertices = graph->vertices;

	for (int i = 0; i < graph->nvertices; i++)
	{
		vertices[i].reached = i == self;
		vertices[i].reaches = false;
	}

	/* First along the edges, to all for which it waits; then against them, to those that wait. */
	for (WaitEnd end = WAIT_FROM; end <= WAIT_TO; end++)
	{
		int nfound = 1;

		vertices[0].queue = self;
		for (int k = 0; k < nfound; k++)
		{
			int at = vertices[k].queue;

			for (int e = vertices[at].first[end]; e != WAIT_GRAPH_NONE; e = graph->edges[e].next[end])
			{
				int			next = graph->edges[e].end[end == WAIT_FROM ? WAIT_TO : WAIT_FROM];
				WaitVertex *found = &vertices[next];

				if (end == WAIT_FROM ? !found->stuck || found->reached
									 : !found->reached || found->reaches)
					continue;
				if (end == WAIT_FROM)
					found->reached = true;
				else
					found->reaches = true;
				found->parent = at;
				if (next != self)
					vertices[nfound++].queue = next;
			}
		}
	}
}

/*
 * Sets "behind" of those that are reached and merely wait behind the cycles: no vertex in a
 * cycle waits for them.  To be called after wait_graph_reach().
 */
void
wait_graph_find_behind(WaitGraph *graph)
{
	WaitVertex *vertices = graph->vertices;
	int			nfound = 0;

	for (int i = 0; i < graph->nvertices; i++)
	{
		vertices[i].behind = false;
		vertices[i].missing = 0; /* vertices that wait for it and may be in a cycle */
	}
	for (int e = 0; e < graph->nedges; e++)
		vertices[graph->edges[e].end[WAIT_TO]].missing +=
			vertices[graph->edges[e].end[WAIT_FROM]].reached;
	for (int i = 0; i < graph->nvertices; i++)
	{
		if (vertices[i].reached && vertices[i].missing == 0)
			vertices[nfound++].queue = i;
	}
	for (int k = 0; k < nfound; k++)
	{
		WaitVertex *found = &vertices[vertices[k].queue];

		found->behind = true;
		for (int e = found->first[WAIT_FROM]; e != WAIT_GRAPH_NONE; e = graph->edges[e].next[WAIT_FROM])
		{
			int next = graph->edges[e].end[WAIT_TO];

			if (--vertices[next].missing == 0 && vertices[next].reached)
				vertices[nfound++].queue = next;
		}
	}
}

/*
 * Returns true if a vertex is the wait to be given up, the youngest in its component.  Then
 * "reaches" is set of the component, and "parent" leads from the vertex through a shortest
 * cycle back to it.  To be called after wait_graph_solve().
 */
bool
wait_graph_is_victim(WaitGraph *graph, int self)
{
	const WaitVertex *wait = &graph->vertices[self];

	if (wait->order == 0 || !wait->stuck)
		return false;
	wait_graph_reach(graph, self);
	for (int i = 0; i < graph->nvertices; i++)
	{
		const WaitVertex *other = &graph->vertices[i];

		if (other->reaches &&
			(other->order != wait->order ? other->order > wait->order : other->tie > wait->tie))
			return false;
	}
	return wait->reaches;
}
