/*
 * search.h
 *		The search for deadlocks across servers: what waiting sessions and the worker share.
 *
 * search.c says how a session becomes the one that searches.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SEARCH_H
#define ZKLOCK_SEARCH_H

#include "recipes/wait_record.h"
#include "shared/entry.h"
#include "storage/lwlock.h"

/* A record's name: "<session id>-<number>", in hexadecimal digits */
#define RECORD_NAME_LENGTH 25

/* This server's record */
typedef struct SearchRecord
{
	char  name[RECORD_NAME_LENGTH + 1];		/* "" if there is surely no node of ours */
	char  replaces[RECORD_NAME_LENGTH + 1]; /* the one that goes when it comes, or "" */
	bool  wanted;							/* else it is to be deleted */
	bool  exists;							/* ZooKeeper has said so */
	int64 seen;								/* as in the text */
} SearchRecord;

/* The result of the first of two readings: backend/deadlock_across.c */
typedef struct SearchSuspicion
{
	bool   any;
	uint64 fingerprint;
	int64  newest;	 /* zxid */
	int	   searches; /* since */
} SearchSuspicion;

/*
 * All of it is protected by search_lock, which is held for one copy.  A word is read
 * whole, so without the lock search_is_ours() reads "searcher", and those that search
 * read "deadlock_timeout".
 */
typedef struct DeadlockSearch
{
	/* Sessions */
	int				searcher;	/* the entry of the one that searches, or ENTRY_NONE ... */
	uint32			generation; /* ... in this generation */
	int64			alive_at;	/* it has looked here then, ms */
	bool			asked;		/* for which entries others matter; the worker clears this */
	SearchSuspicion suspicion;

	/* The worker */
	int deadlock_timeout; /* the server's, ms: a session may have set its own */

	/* A session names it and wants it or not, the worker does the rest. */
	SearchRecord record;
	char		 text[WAIT_RECORD_MAX + 1]; /* constant until the worker says that the record
											 * exists or is gone: it reads without the lock */
} DeadlockSearch;

/* In shared memory */
extern DeadlockSearch *deadlock_search;
extern LWLock		  *search_lock;

extern void search_init(DeadlockSearch *search);

/* Backends */
extern bool			   search_take_over(int index);
extern void			   search_leave(int index, int successor);
extern void			   search_ask_engine(void);
extern bool			   search_engine_is_asked(void);
extern bool			   search_is_told(const char *text, int64 seen);
extern void			   search_publish(int index, int64 session, const char *text, int64 seen);
extern SearchSuspicion search_suspicion(void);
extern void			   search_suspect(int index, const SearchSuspicion *suspicion);

/* Any process */
extern bool			search_is_under_way(void);
extern SearchRecord search_record(void);
extern int64		search_record_session(const char *name);
extern void			search_withdraw(void);

/* Does the session of this entry search?  A glance. */
static inline bool
search_is_ours(int index)
{
	return ((const volatile DeadlockSearch *) deadlock_search)->searcher == index;
}

#endif /* ZKLOCK_SEARCH_H */
