/*
 * deadlock_internal.h
 *		What the files of the search for deadlocks offer each other.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_INTERNAL_H
#define ZKLOCK_DEADLOCK_INTERNAL_H

#include "backend/call.h"
#include "deadlock/wait_graph.h"
#include "nodes/pg_list.h"
#include "shared/deadlock_search.h"
#include "storage/lock.h"
#include "utils/hsearch.h"

/* ------------------------------------------------------------------------
 * On this server
 * ------------------------------------------------------------------------
 */

/* How much does it matter to other servers what becomes of a process?  The highest counts. */
typedef enum WaitsRank
{
	RANK_NONE,
	RANK_WRITER,  /* it waits to write: readers may wait behind its node */
	RANK_BETWEEN, /* and other servers' readers stand before it */
	RANK_HOLDER,  /* it holds a node */
	RANK_COVETED  /* others may wait for one that it holds */
} WaitsRank;

/* A process that waits or holds, or for which one waits: a vertex of the graph */
typedef struct WaitsProcess
{
	int				  pid; /* hash key */
	int				  vertex;
	EntryCopy *const *waiting;	/* among the contenders, that is not granted; or NULL */
	bool			  explored; /* the graph has for whom it waits */

	/* Its wait for a lock of PostgreSQL's, if there is one */
	LOCKTAG	 tag;
	LOCKMODE mode;
	uint64	 identity; /* two looks that find the same found the same wait; 0: none */

	/* What others are to know; of own_waits.c */
	WaitsRank rank;
	bool	  is_told; /* unless there is no room for it */
} WaitsProcess;

/* All is in the memory context that was current when the waits were taken. */
typedef struct Waits
{
	EntryCopy **contenders; /* that wait or hold: by path and run, those without a run last */
	int			ncontenders;
	WaitGraph	graph;
	List	   *processes; /* of WaitsProcess, by vertex */
	HTAB	   *by_pid;	   /* the same; private to deadlock.c */
} Waits;

static inline WaitsProcess *
waits_process(const Waits *waits, int vertex)
{
	return list_nth(waits->processes, vertex);
}

/* What an error tells of a wait */
typedef struct WaitTold
{
	int			pid;   /* 0: of one that is not known, which stands between others */
	const char *where; /* which server's process it is */
	const char *what;  /* is waited for */
	bool		is_ours;
} WaitTold;

typedef WaitTold (*WaitTell)(const void *arg, int vertex);

/* deadlock.c */
extern void			 waits_take(Waits *waits);
extern WaitsProcess *waits_explore(Waits *waits, int pid);
extern List			*waits_blockers(const Waits *waits, const WaitsProcess *process);
extern int			 waits_permits(const EntryCopy *contender);
extern uint64		 waits_identity(const WaitsProcess *process);
extern char			*waits_describe(const WaitsProcess *process);
extern void			*waits_resize(void *memory, size_t size);
extern void deadlock_report(const WaitGraph *graph, int victim, WaitTell tell, const void *arg);

/* own_waits.c */
extern const char *own_waits_tell(Waits *waits, int64 seen);

/* ------------------------------------------------------------------------
 * Across servers
 * ------------------------------------------------------------------------
 */

/* A record's name: "<session id>-<number>", in hexadecimal digits */
#define RECORD_NAME_LENGTH 25

/* A record that has been read, and is kept from search to search */
typedef struct ReadRecord
{
	char			name[RECORD_NAME_LENGTH + 1];
	int64			owner; /* ZooKeeper session */
	int64			czxid;
	const WaitLine *lines; /* of this search, if it is the newest of its session; else NULL.
							* The last is WAIT_LINE_END. */
	char			text[FLEXIBLE_ARRAY_MEMBER]; /* "": it is none, or not of that owner */
} ReadRecord;

/* A node that a process keeps from going, as a record tells */
typedef struct KeptNode
{
	const WaitLine *line; /* with its path and name; WAIT_LINE_WAIT: the process waits with it */
	const struct KeptNode *first; /* of those on its path, which follow each other */
	int					   wait;  /* of the process */
	RecipePeer			   peer;
	bool				   is_lock; /* else a permit */

	/* The facts */
	bool  is_so; /* it exists and is that session's, as far as is known */
	int64 czxid; /* if ZooKeeper has said so; else 0 */
} KeptNode;

/* A process that waits, as a record tells */
typedef struct SearchWait
{
	const ReadRecord *record;
	const WaitLine	 *line; /* those for whom it waits follow */
	const KeptNode	 *node; /* with which it waits, or NULL */

	/* The facts: the next older exclusive node of which no record tells; not numbered: none */
	RecipePeer stranger;
} SearchWait;

/* A search; what it points to goes with the memory context of the wait, but for records */
typedef struct Search
{
	int	  index;   /* the entry of this session */
	Call  call;	   /* "until" it has something else to do */
	int64 session; /* ours, in ZooKeeper; 0 if none has answered */
	Waits own;
	List *records;	/* of ReadRecord: the newest of each session */
	int64 seen;		/* the newest czxid of these */
	bool  has_root; /* the node below which they are exists */

	/*
	 * A vertex for each wait, then for the stranger of each, and one that waits for all of
	 * ours.  The waits of ours that are stuck, and all for which they wait, are "reached".
	 */
	WaitGraph	graph;
	SearchWait *waits;
	int			nwaits;
	KeptNode   *kept; /* by path and name; behind the last is one without a line */
	int			nkept;
	bool		has_facts;

	int64 newest; /* zxid of a record that tells of a wait for which one of ours does */
	SearchFindings findings;
	int next; /* the entry whose session is to search then: this one, or one that is to give up */
} Search;

/* wait_records.c */
extern bool wait_records_make_calls(Search *search, CallStep *steps, int n, CallSight sight);
extern bool wait_records_read(Search *search);
extern void wait_records_publish(Search *search, const char *text, int64 seen);
extern void wait_records_withdraw(void);
extern void wait_records_forget(void);

/* wait_search.c */
extern bool wait_search(Search *search);
extern bool wait_search_is_victim(Search *search, int wait);

#endif /* ZKLOCK_DEADLOCK_INTERNAL_H */
