/*
 * deadlock_search.h
 *		The search for deadlocks across servers: which session makes it.
 *
 * deadlock/deadlock.c says how a session becomes the one that searches.
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
	int64  newest;		/* zxid of the newest record of these waits, when first seen */
	int	   searches;	/* searches that have seen these waits */
	int	   passes;		/* how often the search was passed on to that session */
} Suspicion;

/* More suspicions than these have to wait. */
#define MAX_SUSPICIONS 16

/* What a search leaves for the next one, in whichever session */
typedef struct SearchFindings
{
	int64	  next_at;			 /* the next one is due then, ms */
	bool	  refusal_is_logged; /* the log says already that records are refused */
	int		  searches; /* that found waits of ours stuck, since the last new suspicion */
	int		  nsuspicions;
	Suspicion suspicions[MAX_SUSPICIONS];
} SearchFindings;

/*
 * Protected by search_lock, but for what the worker writes: it takes no lock that a session
 * may hold.  A word is read whole.  So search_is_ours() reads "searcher" without the lock, and
 * sessions that search read the worker's settings without it.
 */
typedef struct DeadlockSearch
{
	int			   searcher;   /* the entry of the session that searches, or ENTRY_NONE ... */
	uint32		   generation; /* ... in this generation */
	int64		   alive_at;   /* when it last looked here, ms */
	SearchFindings findings;   /* written by it */

	/*
	 * The server's settings, written by the worker before it connects: a session may have
	 * set its own
	 */
	int				 deadlock_timeout; /* ms */
	int				 parent_nodes;
	pg_atomic_uint32 reloaded; /* set after these; cleared by the session that searches next,
								* for which the search is due at once */
} DeadlockSearch;

/* In shared memory */
extern DeadlockSearch *deadlock_search;
extern LWLock		  *search_lock;

/* Returns true if the session of this entry searches; without a lock. */
static inline bool
search_is_ours(int index)
{
	return index != ENTRY_NONE &&
		   ((const volatile DeadlockSearch *) deadlock_search)->searcher == index;
}

#endif /* ZKLOCK_DEADLOCK_SEARCH_H */
