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

/* A record of this server's.  One is there, or takes the place of another. */
#define SEARCH_RECORDS 2

typedef struct SearchRecord
{
	char  name[RECORD_NAME_LENGTH + 1]; /* "" if there is surely no such node */
	bool  wanted;						/* else it is to be deleted */
	bool  exists;						/* ZooKeeper has said so */
	int64 seen;							/* as in the text */
	int	  body; /* offset in the text of what does not change from look to look */
} SearchRecord;

/* The result of the first of two readings: backend/deadlock_across.c */
typedef struct SearchSuspicion
{
	bool   any;
	uint64 fingerprint;
	int64  newest;	 /* zxid */
	int	   searches; /* since */
} SearchSuspicion;

/* For which entries others matter: a bit for each; search_sign() reads them */
typedef struct SearchSigns
{
	int	  deadlock_timeout; /* the server's, ms: a session may have set its own */
	uint8 abroad[ZKLOCK_LOCKS_LIMIT / 8];  /* it waits for another server or client */
	uint8 coveted[ZKLOCK_LOCKS_LIMIT / 8]; /* it may keep one back */
} SearchSigns;

/* All of it is protected by search_lock, which is held for one copy. */
typedef struct DeadlockSearch
{
	/* Sessions */
	int				searcher;	/* the entry of the one that searches, or ENTRY_NONE ... */
	uint32			generation; /* ... in this generation */
	int64			alive_at;	/* it has looked here then, ms */
	uint32			question;	/* number of the last one to the engine */
	SearchSuspicion suspicion;

	/* The worker */
	uint32		answer; /* number of the last question that has been answered */
	SearchSigns signs;

	/* Sessions name them and want them or not, the worker does the rest. */
	SearchRecord records[SEARCH_RECORDS];
	char		 texts[SEARCH_RECORDS][WAIT_RECORD_MAX + 1];
} DeadlockSearch;

/* In shared memory */
extern DeadlockSearch *deadlock_search;
extern LWLock		  *search_lock;

extern void search_init(DeadlockSearch *search);

/* Backends */
extern bool			   search_take_over(int index);
extern void			   search_leave(int index, int successor);
extern uint32		   search_ask_engine(void);
extern bool			   search_engine_answered(uint32 question, SearchSigns *signs);
extern bool			   search_has_record(const char *name);
extern bool			   search_is_told(const char *body, int64 seen);
extern void			   search_publish(int64 session, const char *text, int body, int64 seen);
extern SearchSuspicion search_suspicion(void);
extern void			   search_suspect(const SearchSuspicion *suspicion);

/* Any process */
extern bool	 search_is_under_way(void);
extern void	 search_copy_records(SearchRecord records[SEARCH_RECORDS]);
extern int64 search_record_session(const char *name);
extern void	 search_withdraw(void);

/* Does the session of this entry search?  A glance. */
static inline bool
search_is_ours(int index)
{
	return ((const volatile DeadlockSearch *) deadlock_search)->searcher == index;
}

static inline bool
search_sign(const uint8 *signs, int index)
{
	return (signs[index / 8] & (1 << (index % 8))) != 0;
}

#endif /* ZKLOCK_SEARCH_H */
