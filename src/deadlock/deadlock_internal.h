/*
 * deadlock_internal.h
 *		The search for deadlocks: what its files offer each other.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_INTERNAL_H
#define ZKLOCK_DEADLOCK_INTERNAL_H

#include "backend/call.h"
#include "deadlock/wait_graph.h"
#include "nodes/pg_list.h"
#include "recipes/recipe.h"
#include "shared/deadlock_search.h"
#include "shared/entry.h"
#include "utils/hsearch.h"

/* ------------------------------------------------------------------------
 * On this server
 * ------------------------------------------------------------------------
 */

/* The waits of this server, in the memory context that was current when they were taken */
typedef struct Waits
{
	EntryCopy **contenders; /* those that wait or hold: by path and cohort, those without a
							 * cohort last */
	int			ncontenders;
	WaitGraph	graph;
	List	   *processes; /* of WaitsProcess, by vertex; private to deadlock.c ... */
	HTAB	   *by_pid;	   /* ... and so are the same processes here */
} Waits;

/* What an error says of a wait */
typedef struct WaitDescription
{
	int			pid;   /* 0: an unknown contender, which stands between two others */
	const char *where; /* the server of the process, as a phrase, or "" */
	const char *what;  /* what the process waits for */
	bool		is_ours;
} WaitDescription;

typedef WaitDescription (*WaitDescriber)(const void *arg, int vertex);

extern void		   deadlock_report(const WaitGraph *graph, int victim, WaitDescriber describe,
								   const void *arg);
extern const char *own_waits_write(Waits *waits, int64 seen);
extern const EntryCopy *own_waits_find(Waits *waits, int pid, uint64 identity);

/* ------------------------------------------------------------------------
 * Across servers
 * ------------------------------------------------------------------------
 */

/* A record's name: "<session id>-<number>", in hexadecimal digits */
#define RECORD_NAME_LENGTH 25

/* A record that has been read, and is kept for later searches */
typedef struct ReadRecord
{
	char			name[RECORD_NAME_LENGTH + 1];
	int64			owner; /* ZooKeeper session */
	int64			czxid;
	const WaitLine *lines; /* set by wait_search() if it is the newest of its session; else
							* NULL.  The last line is WAIT_LINE_END. */
	char			text[FLEXIBLE_ARRAY_MEMBER]; /* "" if it is no valid record, or not of
												  * that owner */
} ReadRecord;

/* How suspect a wait is: the search asks about the most suspect ones first */
typedef enum Suspect
{
	SUSPECT_NONE,
	SUSPECT_BEHIND, /* it merely waits behind a deadlock */
	SUSPECT_PART	/* it is in a deadlock, or one that is waits for it */
} Suspect;

/* A node that a process holds, or with which it waits, as a record says */
typedef struct KeptNode
{
	const WaitLine		  *line; /* with its path and name; WAIT_LINE_WAIT if the process waits
								  * with it */
	const struct KeptNode *first; /* of the nodes on its path, which follow each other */
	int					   wait;  /* the process's, in Search.waits */
	RecipePeer			   peer;
	int64				   place;	/* by age, among those on its path */
	bool				   is_lock; /* otherwise a permit */
	Suspect				   suspect; /* its process */

	/* The facts */
	bool  is_so; /* it exists and belongs to the record's session, as far as is known */
	int64 czxid; /* if ZooKeeper has confirmed that; else 0 */
} KeptNode;

/* A process that waits, as a record says */
typedef struct SearchWait
{
	const ReadRecord *record;
	const WaitLine	 *line; /* the lines of those for which it waits follow */
	const KeptNode	 *node; /* the node with which it waits, or NULL */

	/*
	 * The facts: the unknown contender next before it, that is the next older exclusive
	 * node that is in no record; not "numbered" if there is none
	 */
	RecipePeer unknown;
} SearchWait;

/* A search.  What it points to is in the memory context of the wait, except the records. */
typedef struct Search
{
	int	   index;	  /* the entry of this session */
	Caller call;	  /* "until" the session has something else to do */
	int64  session;	  /* our ZooKeeper session; 0 before the first answer */
	bool lost_record; /* a call was given up, and took the slot's marker node with it, which is
						* our record */
	Waits own;
	List *records;	/* list of ReadRecord: the newest of each session */
	int64 seen;		/* the highest czxid of these */
	bool  has_root; /* WAIT_RECORD_ROOT exists */

	/*
	 * A vertex for each wait, then one for the unknown contender before each, and one that
	 * waits for all of our waits; in the first look, others behind these.  Our waits that
	 * are stuck, and all for which they wait, are "reached".
	 */
	WaitGraph	graph;
	SearchWait *waits;
	int			nwaits;
	KeptNode   *kept; /* by path and name; the last is followed by one without a line */
	int			nkept;
	bool		has_facts;

	int64 newest; /* highest zxid of a record with a wait that is "reached"; 0: no wait of
				   * ours is stuck */
	SearchFindings findings;
	int next; /* the entry whose session searches next: this one, or one that is to give up */
} Search;

extern bool wait_search_make_calls(Search *search, CallStep *steps, int n, CallSight sight);
extern bool wait_search(Search *search);
extern bool wait_search_is_victim(Search *search, int wait);

#endif /* ZKLOCK_DEADLOCK_INTERNAL_H */
