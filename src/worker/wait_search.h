/*
 * wait_search.h
 *		Deadlocks across servers: what the records of all of them tell together.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_SEARCH_H
#define ZKLOCK_WAIT_SEARCH_H

#include "recipes/wait_graph.h"
#include "worker/read_record.h"

/* What ZooKeeper says of a node that a record names */
typedef struct NodeFact
{
	ReadNode node;
	int64	 claimed; /* by this session */
	bool	 is_so;	  /* it exists, and is that session's */
	int64	 czxid;
} NodeFact;

/* What it says of a path: all its nodes */
typedef struct PathFact
{
	const char *path;
	char	  **children;
	int			nchildren;
} PathFact;

/* A wait as a vertex: the first vertices of the graph, in this order */
typedef struct SearchWait
{
	const ReadRecord *record;
	const ReadWait	 *wait;
	bool			  is_so; /* its node is that session's, as far as is known */
} SearchWait;

typedef struct SearchHeld
{
	const ReadNode *node;
	int				wait;  /* vertex of a wait that keeps it */
	bool			is_so; /* as above */
} SearchHeld;

typedef struct Search
{
	int64		session; /* ours */
	SearchWait *waits;
	int			nwaits;
	SearchHeld *held; /* by path and name */
	int			nheld;
	WaitGraph	graph;
	int			max_vertices;
	int			max_edges;

	/* The facts that are needed: to be filled in between the two looks */
	NodeFact *nodes;
	int		  nnodes;
	PathFact *paths;
	int		  npaths;
	bool	  has_facts;
} Search;

extern bool worker_search_suspects(Search *search, const ReadRecord *const *records, int n,
								   int64 session);
extern void worker_search_verify(Search *search);
extern bool worker_search_is_stuck(Search *search, uint64 *fingerprint, int64 *newest, int64 *seen);
extern bool worker_search_is_older(const char *older, const char *younger);

#endif /* ZKLOCK_WAIT_SEARCH_H */
