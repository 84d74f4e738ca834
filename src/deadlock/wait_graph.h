/*-------------------------------------------------------------------------
 *
 * wait_graph.h
 *	  Who can never go on, and what servers tell each other of waits that last.
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

/* A vertex goes on when all to which its edges lead do, or never. */
#define WAIT_GRAPH_ALL (-1)
#define WAIT_GRAPH_NEVER INT32_MAX

/* The ends of an edge: who waits, and for whom */
typedef enum WaitEnd
{
	WAIT_FROM,
	WAIT_TO
} WaitEnd;

typedef struct WaitVertex
{
	/* The caller's */
	int		 needs; /* WAIT_GRAPH_ALL, or so many of them suffice */
	uint64_t order; /* of a wait that can be given up: the younger, the higher;
					 * 0: it cannot be */
	uint64_t tie;	/* the same between those that are equally young */

	int	 first[2]; /* edges of which it is that end */
	int	 nout;	   /* so many leave it */
	bool stuck;	   /* it never goes on; set by wait_graph_solve() */

	/* Set by a search from a vertex */
	bool reached; /* it is reached from there */
	bool reaches; /* and reaches that ... */
	int	 parent;  /* ... and this is the next on a shortest way there */
	bool behind;  /* see wait_graph_find_behind() */

	/* Private to wait_graph.c */
	int missing; /* so many more have to go on */
	int queue;	 /* of a search: the vertices to be visited, each once at most */
} WaitVertex;

typedef struct WaitEdge
{
	int end[2];
	int next[2]; /* that has the same vertex at that end, or WAIT_GRAPH_NONE */
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
extern void wait_graph_find_behind(WaitGraph *graph);
extern bool wait_graph_is_victim(WaitGraph *graph, int self);

/* ------------------------------------------------------------------------
 * wait_record.c: what servers tell each other
 * ------------------------------------------------------------------------
 */

/* Below this node, relative to the chroot, each server has one of its own. */
#define WAIT_RECORD_ROOT "/zklock-waits"

#define WAIT_RECORD_MAX 32768 /* bytes of a record, without a NUL */

#define WAIT_RECORD_TITLE "zklock waits 1" /* with which its first line begins */
#define WAIT_RECORD_MAX_TEXT 512		   /* bytes of a name, or of what is waited for */

/* A line of a record, as wait_record.c describes them.  They may follow each other in this order. */
typedef enum WaitLineKind
{
	WAIT_LINE_TITLE, /* number: a zxid; text: the server's name */
	WAIT_LINE_WAIT,	 /* number: its identity; pid; permits, path, node: that with which the
					  * process waits; text: what it waits for */
	WAIT_LINE_FOR,	 /* pid: a process of the same server for which it waits */
	WAIT_LINE_HELD,	 /* path, node: it holds that */
	WAIT_LINE_END	 /* there are no more */
} WaitLineKind;

/* Texts end with a NUL and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64_t	 number;
	int32_t		 pid;
	int32_t		 permits; /* of the semaphore; 0: a lock is waited for */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

extern bool wait_record_read(char *record, size_t len, WaitLine *lines);

#endif /* ZKLOCK_WAIT_GRAPH_H */
