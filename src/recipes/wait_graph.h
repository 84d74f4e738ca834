/*-------------------------------------------------------------------------
 *
 * wait_graph.h
 *	  Who can never go on: the graph of waits, and its cycles.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAIT_GRAPH_H
#define ZKLOCK_WAIT_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#define WAIT_GRAPH_NONE (-1) /* no vertex, no edge */

/* A vertex goes on when all to which its edges lead do. */
#define WAIT_GRAPH_ALL (-1)

typedef struct WaitVertex
{
	/* Filled in by the caller */
	int		 needs; /* WAIT_GRAPH_ALL, or so many of them suffice */
	uint64_t order; /* of a wait that can be given up: the younger, the higher;
					 * 0: it cannot be */

	/* Set by wait_graph_solve() */
	bool stuck; /* it never goes on */

	/* Set by a search from or to a vertex */
	bool reached; /* it is reached from there */
	bool reaches; /* it reaches that ... */
	int	 parent;  /* ... and this is the next on a shortest way there */

	/* Private to wait_graph.c */
	int first_out; /* edges that leave it ... */
	int first_in;  /* ... and that lead to it */
	int missing;   /* so many more have to go on */
	int next;	   /* in the queue of a search */
} WaitVertex;

typedef struct WaitEdge
{
	int from; /* waits for */
	int to;

	/* Private to wait_graph.c */
	int next_out;
	int next_in;
} WaitEdge;

typedef struct WaitGraph
{
	WaitVertex *vertices;
	int			nvertices;
	WaitEdge   *edges;
	int			nedges;
} WaitGraph;

extern void wait_graph_solve(WaitGraph *graph);
extern void wait_graph_trace(WaitGraph *graph, int target);
extern bool wait_graph_in_cycle(WaitGraph *graph, int self);
extern int	wait_graph_cycle(WaitGraph *graph, int self, int *cycle, int max);

#endif /* ZKLOCK_WAIT_GRAPH_H */
