/*
 * waits.h
 *		Who waits for whom, here and across servers: private to the search for deadlocks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAITS_H
#define ZKLOCK_WAITS_H

#include "backend/call.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "recipes/recipe.h"
#include "recipes/wait_graph.h"
#include "shared/search.h"
#include "storage/lock.h"
#include "utils/hsearch.h"

/* A copy of a contender that waits or holds, of one moment */
typedef struct WaitsContender
{
	int			   index; /* of its entry, in this generation */
	uint32		   generation;
	int			   pid;
	ContenderState state;
	LockMode	   mode;
	EntryKind	   kind;
	int			   permits; /* the semaphore has, by all that is known */
	bool		   nowait;
	uint64		   place;  /* of its run among the path's; the last if it has none */
	uint64		   ticket; /* its own place there */
	TimestampTz	   requested_at;
	char		  *path;
	char		  *node; /* "" while unsettled */
} WaitsContender;

/* A process that waits or holds, or for which one waits: a vertex of the graph */
typedef struct WaitsProcess
{
	int					  pid;
	const WaitsContender *waiting;	/* the one that is not granted, or NULL */
	bool				  explored; /* the graph has for whom it waits */

	/* Its wait for a lock of PostgreSQL's, if there is one */
	LOCKTAG	 tag;
	LOCKMODE mode;
	uint64	 identity; /* two looks that find the same found the same wait; 0: none */
} WaitsProcess;

/* All is in the memory context that was current when the waits were taken. */
typedef struct Waits
{
	WaitsContender *contenders; /* by path, and there the oldest first */
	int				ncontenders;
	WaitGraph		graph;
	List		   *processes; /* of WaitsProcess, by vertex */
	HTAB		   *vertices;  /* private to waits.c */
} Waits;

static inline WaitsProcess *
waits_process(const Waits *waits, int vertex)
{
	return list_nth(waits->processes, vertex);
}

/* waits.c */
extern void	  waits_take(Waits *waits);
extern int	  waits_explore(Waits *waits, int pid);
extern uint64 waits_identity(const Waits *waits, int vertex);
extern uint64 waits_fingerprint(const Waits *waits);
extern char	 *waits_describe(const WaitsProcess *process);
extern void	 *waits_resize(void *memory, size_t size);

/* ------------------------------------------------------------------------
 * Across servers
 * ------------------------------------------------------------------------
 */

/* A record that has been read, by whom it is and when it was written */
typedef struct ReadRecord
{
	int64			owner; /* ZooKeeper session */
	int64			czxid;
	const char	   *server;
	int64			seen;
	const WaitLine *lines; /* WAIT_LINE_END is the last */
} ReadRecord;

/* A node that a process keeps from going, as a record tells */
typedef struct KeptNode
{
	const WaitLine *line; /* with its path and name */
	int				wait; /* of the process */
	bool			held; /* else the process waits with it */
	bool			is_lock;
	RecipePeer		peer; /* if so */

	/* The facts */
	bool  is_so; /* it exists and is that session's, as far as is known */
	int64 czxid; /* if ZooKeeper has said so */
} KeptNode;

/* A process that waits, as a record tells: a vertex of the graph */
typedef struct SearchWait
{
	const ReadRecord *record;
	const WaitLine	 *line; /* those for whom it waits follow */
	const KeptNode	 *node; /* with which it waits, or NULL */
} SearchWait;

/* What ZooKeeper says of a path: all its nodes */
typedef struct PathFact
{
	const char *path;
	char	  **children;
	int			nchildren;
	int64	   *strangers; /* sequences of exclusive nodes of which no record tells */
	int			nstrangers;
} PathFact;

typedef struct Search
{
	int64	  session; /* ours */
	WaitGraph graph;
	int nlocal; /* its first edges: to keepers known.  The others are through strangers. */
	SearchWait *waits; /* the first vertices, in this order */
	int			nwaits;
	KeptNode   *kept; /* by path and name */
	int			nkept;

	/* The facts: "paths" of those asked for, and what "kept" tells */
	bool	  has_facts;
	PathFact *paths;
	int		  npaths;
} Search;

/* What this server tells */
typedef struct OwnWaits
{
	bool		   any;
	StringInfoData record;
	int			   body; /* offset in the record of what does not change from look to look */
	Waits		   waits;
} OwnWaits;

/* A search, in a memory context that is deleted at its end */
typedef struct SearchRound
{
	int				index; /* the entry of this session */
	int64			until; /* it has something else to do, ms */
	Call			call;
	int64			session; /* ours, in ZooKeeper */
	SearchSigns		signs;
	int64			newest; /* zxid of a record that has to do with what we suspect */
	OwnWaits		own;
	SearchSuspicion suspicion;
	int victim; /* an entry: its session is to search, and will give up; or ENTRY_NONE */
} SearchRound;

/* wait_records.c */
extern bool wait_search_is_called_away(void *arg);
extern bool wait_search_await(SearchRound *round, uint32 question);
extern bool wait_search_make_calls(SearchRound *round, CallStep *steps, int n, CallSight sight);
extern bool				  wait_records_read(SearchRound *round);
extern const ReadRecord **wait_records_newest(int *n);
extern void				  wait_records_forget(void);

/* own_waits.c */
extern void own_waits_take(OwnWaits *own, int64 seen, const SearchSigns *signs);

/* wait_facts.c */
extern bool wait_facts_ask(SearchRound *round, Search *search, const bool *suspects);
extern const PathFact *wait_facts_of_path(const Search *search, const char *path);
extern bool			   wait_facts_stranger_between(const Search *search, const KeptNode *older,
												   const KeptNode *younger);

/* wait_search.c */
extern Search	  *wait_search_begin(const ReadRecord *const *records, int n, int64 session);
extern void		   wait_search_verify(Search *search);
extern const bool *wait_search_stuck(Search *search);
extern int		   wait_search_victim(Search *search);
extern bool		   wait_search_is_behind(const Search *search, int wait, int blocker);

#endif /* ZKLOCK_WAITS_H */
