/*-------------------------------------------------------------------------
 *
 * wait_graph.h
 *	  The graph of waits, and the records of waits that servers publish for each other.
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

/* ------------------------------------------------------------------------
 * wait_graph.c: the graph of waits, and its cycles
 * ------------------------------------------------------------------------
 */

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

/* ------------------------------------------------------------------------
 * wait_record.c: the records of waits that servers publish
 * ------------------------------------------------------------------------
 */

/* The node below which servers publish their records, relative to the chroot */
#define WAIT_RECORD_ROOT "/zklock-waits"

#define WAIT_RECORD_MAX 32768 /* bytes of a record, without a NUL */

#define WAIT_RECORD_TITLE "zklock waits 1" /* its first line begins with this */
#define WAIT_RECORD_MAX_TEXT 512 /* bytes of a server's name, or of what is waited for */

/*
 * The lines of a record, which wait_record.c describes.  After each WAIT_LINE_WAIT those
 * that belong to it follow, in this order.
 */
typedef enum WaitLineKind
{
	WAIT_LINE_TITLE, /* number: a zxid; text: the server's name */
	WAIT_LINE_WAIT,	 /* number: its identity; pid; permits, path, node: the node with which
					  * the process waits; text: what it waits for */
	WAIT_LINE_FOR,	 /* pid: a process of the same server for which the process waits */
	WAIT_LINE_HELD,	 /* path, node: a node that the process holds */
	WAIT_LINE_END	 /* the end of the record */
} WaitLineKind;

/* Texts end with a NUL, and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64_t	 number;
	int32_t		 pid;
	int32_t		 permits; /* the semaphore's; 0: the process waits for something else */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

extern bool wait_record_read(char *record, size_t len, WaitLine *lines);

#endif /* ZKLOCK_WAIT_GRAPH_H */
