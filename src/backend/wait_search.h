/*
 * wait_search.h
 *		Deadlocks across servers: what is told of waits, and what follows from it.
 *
 * Private to deadlock_across.c, own_waits.c and wait_search.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_SEARCH_H
#define ZKLOCK_WAIT_SEARCH_H

#include "lib/stringinfo.h"
#include "recipes/wait_graph.h"
#include "shared/search.h"

/* A record that has been read, by whom it is and when it was written */
typedef struct ReadRecord
{
	int64			owner; /* ZooKeeper session */
	int64			czxid;
	const char	   *server;
	int64			seen;
	const WaitLine *lines;
	int				nlines;
} ReadRecord;

/* A wait of a record */
typedef struct SearchWait
{
	const ReadRecord *record;
	const WaitLine	 *line; /* with its path and node */
	const WaitLine	 *steps;
	int				  nsteps;
	const WaitLine	 *held;
	int				  nheld;
	bool			  is_so; /* its node is that session's, as far as is known */
} SearchWait;

/* What ZooKeeper says of a node that a record names */
typedef struct NodeFact
{
	const WaitLine *node;
	int64			claimed; /* by this session */
	bool			is_so;	 /* it exists, and is that session's */
	int64			czxid;
} NodeFact;

/* What it says of a path: all its nodes */
typedef struct PathFact
{
	const char *path;
	char	  **children;
	int			nchildren;
} PathFact;

typedef struct Search
{
	int64			 session; /* ours */
	WaitGraph		 graph;
	SearchWait		*waits; /* the first vertices, in this order */
	int				 nwaits;
	struct KeptNode *kept; /* the next ones, by path and name */
	int				 nkept;

	/* The facts that are needed: to be filled in between the two looks */
	NodeFact *nodes;
	int		  nnodes;
	PathFact *paths;
	int		  npaths;
	bool	  has_facts;
} Search;

/* A wait of this server that is told */
typedef struct OwnWait
{
	uint64 identity; /* as in the record */
	int	   entry;	 /* of the session that waits for another server or client */
} OwnWait;

typedef struct OwnWaits
{
	char	*record;
	int		 body; /* offset in the record of what does not change from look to look */
	OwnWait *waits;
	int		 n;
} OwnWaits;

/* own_waits.c */
extern void own_waits_take(OwnWaits *own, int64 seen, const SearchSigns *signs);

/* wait_search.c */
extern bool	   wait_search_parse(ReadRecord *record, char *text, size_t len);
extern Search *wait_search_suspects(const ReadRecord *const *records, int n, int64 session);
extern void	   wait_search_verify(Search *search);
extern bool wait_search_is_stuck(Search *search, uint64 *fingerprint, int64 *newest, int64 *seen);
extern const SearchWait *wait_search_victim(Search *search, StringInfo cycle);

#endif /* ZKLOCK_WAIT_SEARCH_H */
