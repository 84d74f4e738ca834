/*
 * deadlock_search.h
 *		The search for deadlocks across servers: which session makes it.
 *
 * deadlock/deadlock_across.c says how a session becomes the one that searches.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_SEARCH_H
#define ZKLOCK_DEADLOCK_SEARCH_H

#include "shared/entry.h"
#include "storage/lwlock.h"

/* The first of two readings of a deadlock that a session of ours is to end */
typedef struct Suspicion
{
	uint64 fingerprint; /* the same only for the same waits */
	int64  newest;		/* zxid of the newest record that told of them */
	int	   searches;	/* since */
	int	   passes;		/* the search was so often passed on to that session */
} Suspicion;

/* Further suspicions have to wait. */
#define MAX_SUSPICIONS 16

/* What a search leaves to the next one, whichever session makes it */
typedef struct SearchFindings
{
	int64	  next_at;		   /* the next one is due then, ms */
	bool	  refusal_is_told; /* the log knows that nothing can be published */
	int		  searches; /* that have found waits of ours stuck, since the last new suspicion */
	int		  nsuspicions;
	Suspicion suspicions[MAX_SUSPICIONS];
} SearchFindings;

/*
 * All of it is protected by search_lock, which is held for one copy.  A word is read
 * whole, so without the lock search_is_ours() reads "searcher", and those that search
 * read what the worker has written.
 */
typedef struct DeadlockSearch
{
	int			   searcher;   /* the entry of the session that searches, or ENTRY_NONE ... */
	uint32		   generation; /* ... in this generation */
	int64		   alive_at;   /* it has looked here then, ms */
	SearchFindings findings;   /* by it; the worker clears "next_at" */

	/* The server's settings, by the worker, before it connects: a session may have set its own */
	int deadlock_timeout; /* ms */
	int parent_nodes;
} DeadlockSearch;

/* In shared memory */
extern DeadlockSearch *deadlock_search;
extern LWLock		  *search_lock;

/* Does the session of this entry search?  A glance. */
static inline bool
search_is_ours(int index)
{
	return index != ENTRY_NONE &&
		   ((const volatile DeadlockSearch *) deadlock_search)->searcher == index;
}

#endif /* ZKLOCK_DEADLOCK_SEARCH_H */
