/*-------------------------------------------------------------------------
 *
 * wait_graph.h
 *	  The graph of waits, and its cycles.
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

/* Values of "needs": a vertex goes on when all for which it waits do, or never */
#define WAIT_GRAPH_ALL (-1)
#define WAIT_GRAPH_NEVER INT32_MAX

/* The ends of an edge: the vertex that waits, and the one for which it waits */
typedef enum WaitEnd
{
	WAIT_FROM,
	WAIT_TO
} WaitEnd;

typedef struct WaitVertex
{
	/* Set by the caller */
	int		 needs; /* how many must go on first, or WAIT_GRAPH_ALL or _NEVER */
	uint64_t order; /* higher for a younger wait; 0: the wait cannot be given up */
	uint64_t tie;	/* the same for waits of equal order */

	int	 first[2]; /* the first edge with this vertex at that end */
	int	 nout;	   /* number of edges from it */
	bool stuck;	   /* it can never go on; set by wait_graph_solve() */

	/* Set by a search from a vertex */
	bool reached; /* it is reached from that vertex */
	bool reaches; /* and reaches that vertex ... */
	int	 parent;  /* ... by a shortest way, on which this is the next */
	bool behind;  /* see wait_graph_find_behind() */

	/* Private to wait_graph.c */
	int missing; /* how many more must go on first */
	int queue;	 /* a search's vertices to be visited, each once at most */
} WaitVertex;

typedef struct WaitEdge
{
	int end[2];
	int next[2]; /* the next edge with the same vertex at that end, or WAIT_GRAPH_NONE */
} WaitEdge;

/* All zero at first, except "resize" */
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
extern void wait_graph_find_behind(WaitGraph *graph);
extern bool wait_graph_is_victim(WaitGraph *graph, int self);

#endif /* ZKLOCK_WAIT_GRAPH_H */
