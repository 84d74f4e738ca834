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
#include <stddef.h>
#include <stdint.h>

#define WAIT_GRAPH_NONE (-1) /* no vertex, no edge */

/* A vertex goes on when all to which its edges lead do, or never. */
#define WAIT_GRAPH_ALL (-1)
#define WAIT_GRAPH_NEVER INT32_MAX

typedef struct WaitVertex
{
	/* The caller's */
	int		 needs; /* WAIT_GRAPH_ALL, or so many of them suffice */
	uint64_t order; /* of a wait that can be given up: the younger, the higher;
					 * 0: it cannot be */
	uint64_t tie;	/* the same between those that are equally young */

	/* Set by wait_graph_solve() */
	bool stuck;		/* it never goes on */
	int	 first_out; /* edges that leave it ... */
	int	 first_in;	/* ... and that lead to it */

	/* Set by a search from a vertex */
	bool reached; /* it is reached from there */
	bool reaches; /* and reaches that ... */
	int	 parent;  /* ... and this is the next on a shortest way there */

	/* Private to wait_graph.c */
	int missing; /* so many more have to go on */
	int queue;	 /* of a search: the vertices to be visited, each once at most */
} WaitVertex;

typedef struct WaitEdge
{
	int from; /* waits for */
	int to;

	/* Set by wait_graph_solve(): of the same vertex, or WAIT_GRAPH_NONE */
	int next_out;
	int next_in;
} WaitEdge;

/* Begins as zeros, but for "resize". */
typedef struct WaitGraph
{
	void *(*resize)(void *memory, size_t size); /* like realloc(), but it does not fail */
	WaitVertex *vertices;
	int			nvertices;
	int			max_vertices;
	WaitEdge   *edges;
	int			nedges;
	int			max_edges;
} WaitGraph;

extern int	wait_graph_add(WaitGraph *graph);
extern void wait_graph_connect(WaitGraph *graph, int from, int to);
extern void wait_graph_solve(WaitGraph *graph);
extern void wait_graph_reach(WaitGraph *graph, int self);
extern bool wait_graph_is_victim(WaitGraph *graph, int self);

#endif /* ZKLOCK_WAIT_GRAPH_H */
