/*
 * wait_search.h
 *		Deadlocks across servers: what the records of all servers say, and which waits are
 *		stuck.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_SEARCH_H
#define ZKLOCK_WAIT_SEARCH_H

#include "backend/call.h"
#include "deadlock/wait_graph.h"
#include "nodes/pg_list.h"
#include "shared/deadlock_search.h"

/* ------------------------------------------------------------------------
 * The records of waits that servers publish for each other
 * ------------------------------------------------------------------------
 */

/* The node below which servers publish their records, relative to the chroot */
#define WAIT_RECORD_ROOT "/zklock-waits"

#define WAIT_RECORD_MAX 32768 /* bytes of a record, without a NUL */

#define WAIT_RECORD_TITLE "zklock waits 1" /* its first line begins with this */
#define WAIT_RECORD_MAX_TEXT 512 /* bytes of a server's name, or of what is waited for */

/*
 * The lines of a record, which wait_search.c describes.  After each WAIT_LINE_WAIT those
 * that belong to it follow, in this order.
 */
typedef enum WaitLineKind
{
	WAIT_LINE_TITLE, /* number: a zxid; text: the server's name */
	WAIT_LINE_WAIT,	 /* number: its identity; pid; permits, path, node: the node with which
					  * the process waits; text: what it waits for */
	WAIT_LINE_FOR,	 /* pid: a process of the same server for which the process waits */
	WAIT_LINE_HELD,	 /* path, node: a node that the process holds */
	WAIT_LINE_END	 /* the end of the record */
} WaitLineKind;

/* Texts end with a NUL, and are "" where the line has none. */
typedef struct WaitLine
{
	WaitLineKind kind;
	uint64		 number;
	int32		 pid;
	int32		 permits; /* the semaphore's; 0: the process waits for something else */
	const char	*path;
	const char	*node;
	const char	*text;
} WaitLine;

extern int64		   wait_record_session(const char *name);
extern const WaitLine *wait_record_lines(const CallStep *record);

/* ------------------------------------------------------------------------
 * A search
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
	int					   wait;  /* the process's, in WaitSearch.waits */
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
typedef struct WaitSearch
{
	int	   index;	  /* the entry of this session */
	Caller call;	  /* "until" the session has something else to do */
	int64  session;	  /* our ZooKeeper session; 0 before the first answer */
	bool lost_record; /* a call was given up, and took the slot's marker node with it, which is
						* our record */
	List *records;	  /* list of ReadRecord: the newest of each session */
	int64 seen;		  /* the highest czxid of these */
	bool  has_root;	  /* WAIT_RECORD_ROOT exists */

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
} WaitSearch;

extern bool wait_search_make_calls(WaitSearch *search, CallStep *steps, int n, CallSight sight);
extern bool wait_search(WaitSearch *search);
extern bool wait_search_is_victim(WaitSearch *search, int wait);

#endif /* ZKLOCK_WAIT_SEARCH_H */
