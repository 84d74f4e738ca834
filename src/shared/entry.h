/*
 * entry.h
 *		Entries: what a session asks for.
 *
 * An entry is one request of one session for one path.  It stands between the backend that
 * asks and the zklock worker, the server's only process that talks to ZooKeeper.  A session's
 * request has three records, 1:1:1, with the entry's number in common:
 *
 *	Hold		backend/hold.h, in the session: what it has, and how often
 *	Entry		here, in shared memory: what it asks for, and the answer
 *	Contender	engine/engine_internal.h, in the worker: its place in the queue of the path
 *
 * A lock is held while its entry is GRANTED and its time, if it has one, is not over.  The
 * lease says whether that is proved (worker/lease_rule.c).  Entries stay as they are if the
 * worker exits, and the next worker goes on from there.  A crash of the server empties shared
 * memory; the next worker ends the ZooKeeper session that is left behind.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENTRY_H
#define ZKLOCK_ENTRY_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/spin.h"

#define ZKLOCK_NODE_DATA_SIZE 768 /* node data, with its NUL */
#define ZKLOCK_NODE_SIZE (ZKLOCK_MAX_NODE_NAME + 1)
#define ZKLOCK_LOCKS_LIMIT 16384 /* upper bound of zklock.max_locks */
#define KEPT_LOCKS_LIMIT 16384	 /* that of zklock.max_kept_locks: entries beyond those */

#define MAX_GRANTS ((1 << TOKEN_GRANT_BITS) - 1) /* under one node; a token numbers them */

/* ------------------------------------------------------------------------
 * What a request may say
 * ------------------------------------------------------------------------
 */

/*
 * The purpose of a request, for backends and views.  The engine, the part of the worker that
 * grants, looks at the recipe instead.
 */
typedef enum RequestKind
{
	REQUEST_LOCK,
	REQUEST_TURN,	/* a semaphore's lock: only its holder waits for a permit */
	REQUEST_PERMIT, /* a permit of a semaphore */
	REQUEST_CANDIDACY,
	REQUEST_ELEMENT /* an element of a queue */
} RequestKind;

/*
 * The server itself may ask, too, to lead.  The worker then takes the owning backend's steps,
 * and notices changes in its main loop.
 */
#define ENTRY_SERVER_PID 0
#define ENTRY_NO_LATCH (-1)

/* Stands for no entry */
#define ENTRY_NONE (-1)

/* How long an acquisition lasts */
typedef enum LockScope
{
	LOCK_SCOPE_SESSION,
	LOCK_SCOPE_TRANSACTION,
	LOCK_SCOPE_RESERVATION /* for a time, held by nobody's session: see entry.c, "Reservations" */
} LockScope;

/* How missing nodes of a path are created; zklock.parent_nodes */
typedef enum ParentNodes
{
	PARENTS_CONTAINER, /* ZooKeeper removes them when they are empty */
	PARENTS_PERSISTENT,
	PARENTS_EXISTING /* they are not created */
} ParentNodes;

/* Whether a backend is woken when an entry that it has given up is free */
typedef enum EntryNotice
{
	ENTRY_NO_NOTICE,
	ENTRY_NOTICE /* set its latch */
} EntryNotice;

/* How a request treats other holders */
typedef enum AskManner
{
	ASK_AND_WAIT, /* wait for them */
	ASK_AND_LOOK, /* do not wait; look before a node is created */
	ASK_AND_GRAB  /* do not wait; create the node at once */
} AskManner;

/* ------------------------------------------------------------------------
 * One entry
 * ------------------------------------------------------------------------
 */

/*
 * A contender's life:
 *
 *		FREE -> REQUESTED -> QUEUED -> GRANTED -> LOST
 *		QUEUED -> FAILED
 *		REQUESTED, QUEUED, GRANTED, LOST, FAILED -> RELEASING -> FREE
 *
 * The table in entry.c says who makes each step, under the mutex: if a grant and a release
 * cross, the first wins.
 */
typedef enum EntryState
{
	ENTRY_FREE,		 /* not in use */
	ENTRY_REQUESTED, /* asked for; the worker has not seen it */
	ENTRY_QUEUED,	 /* the worker has seen it */
	ENTRY_GRANTED,	 /* the lock is held */
	ENTRY_LOST,		 /* was granted, is no longer held */
	ENTRY_FAILED,	 /* refused; "failure" says why */
	ENTRY_RELEASING	 /* given up; the worker finishes the release */
} EntryState;

/* The request of a contender */
typedef struct EntryRequest
{
	int			  proc_number; /* of the asking process, or ENTRY_NO_LATCH */
	int			  pid;		   /* or ENTRY_SERVER_PID */
	Oid			  database;
	Oid			  role; /* whose it is, and who may see all of it */
	RequestKind	  kind;
	RecipeRequest terms;	   /* as first asked for: see EntryStatus.mode */
	LockScope	  scope;	   /* of the first acquisition */
	int			  max_hold_ms; /* longest time from the grant on; 0: no limit */
	ParentNodes	  parent_nodes;
	int			  share; /* entries that its backend may have: see common.h */
	ShareReserve  reserve;
	AskManner	  manner;
	int			  replaces;		/* an entry of the same owner and path, given up at the same
								 * time, whose node is deleted when ours is created; or
								 * ENTRY_NONE */
	TimestampTz	  requested_at; /* for views */
	int64		  requested_us; /* the same, by zklock_now_us() */
	char		  path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */
} EntryRequest;

/* The state of a contender, and what the two sides signal each other */
typedef struct EntryStatus
{
	/* Both sides, along the arrows of EntryState */
	EntryState state;

	/*
	 * Written by the owning backend; LOCK_MODE_SHARED instead of exclusive after a
	 * downgrade
	 */
	LockMode mode;

	/* Set by the owning backend with "mode", cleared by the worker when done */
	bool downgrading;

	/*
	 * Order of arrival: a number that the owning backend draws when it asks, and the worker
	 * anew when it makes the entry QUEUED
	 */
	uint64 ticket;

	/*
	 * Written by the owning backend.  Any backend may write check_wanted of the server's
	 * entries, and latch and notice of a reservation.
	 */
	int			acquired[2][2]; /* how often, by LockMode and LockScope: an exclusive lock
								 * includes the shared one */
	LossPolicy	on_loss;		/* what a loss does to the session */
	uint32		check_wanted;	/* number of the last check by a quorum that was asked for */
	EntryNotice notice;			/* of its end */
	int			latch;	  /* of the process that is woken on a change, or ENTRY_NO_LATCH */
	bool		reserved; /* GRANTED: it is a reservation, and no session's any more */
	bool		consumed; /* RELEASING: the element is deleted with its node */
	bool		kept;	  /* RELEASING: its node is kept for nobody; set by the worker */

	/*
	 * Set by the worker when ZooKeeper refuses to end the node, or to replace it by a shared
	 * one, which the worker asks for again and again; cleared by the owning backend when it
	 * gives up or downgrades
	 */
	bool refused;

	/*
	 * Why the lock is lost if its node is deleted.  Written by any process that has the
	 * node deleted, and by the worker.
	 */
	LossReason deletion;

	/* The worker; when a reservation ends, any backend, too */
	int64		token; /* fencing token, 0 until granted */
	TimestampTz granted_at;
	int64		expires_us; /* it is lost from then on, by zklock_now_us(), or NEVER */
	TimestampTz expires_at; /* the same, for views; 0: never */

	uint32	   check_done;	   /* number of the last check that it passed */
	int		   others_permits; /* fewest permits that older nodes record, 0 if none does */
	Failure	   failure;
	int		   error_code; /* ZooKeeper's, for FAILURE_REFUSED */
	LossReason loss;
} EntryStatus;

/* Its cohort (a node of ours and those behind it), that node, and what it waits for */
typedef struct EntryNode
{
	uint64 cohort_id;			   /* its cohort, 0 if none */
	char   name[ZKLOCK_NODE_SIZE]; /* the cohort's node; without a sequence until known */
	int64  czxid;				   /* of that node, 0 until known */
	int	   grants;				   /* grants under that node so far */

	/* Set for the first in the cohort that waits, as last seen; 0 or empty if unknown */
	int	   position;						  /* in the path's queue */
	uint64 blocked_by_cohort;				  /* the cohort it waits for */
	char   blocked_by_node[ZKLOCK_NODE_SIZE]; /* the node of another client that it waits
											   * for */

	/* Known from the last search for deadlocks across servers */
	bool waits_remote;	/* it waits for another server or client */
	bool blocks_remote; /* it may keep another server or client waiting */
} EntryNode;

typedef struct Entry
{
	/*
	 * Written without a lock by the backend that asks, while the entry is FREE and in no
	 * list; constant until it is FREE again.  The owning backend, and a worker that has
	 * seen the entry in use, read them without a lock; other processes take an
	 * entry_copy().
	 */
	EntryRequest request;
	char		 data[ZKLOCK_NODE_DATA_SIZE]; /* for the node, UTF-8 */

	/* Protected by the mutex.  The worker may read without it what it alone writes. */
	slock_t		mutex;
	EntryStatus status;
	EntryNode	node; /* written by the worker alone */

	/*
	 * Written by the worker under EntryPool.mutex when it adds the entry to the free list.
	 * The generation counts how often that has happened; see entry_generation().
	 */
	uint32 generation;
	int	   next_free; /* -1 at the end of the list */
} Entry;

/* A consistent copy of an entry */
typedef struct EntryCopy
{
	int			 index;
	uint32		 generation;
	EntryRequest request;
	EntryStatus	 status;
	EntryNode	 node;
} EntryCopy;

/* ------------------------------------------------------------------------
 * All entries
 * ------------------------------------------------------------------------
 */

typedef struct EntryPool
{
	/* Constant after initialisation */
	int max_entries; /* the sum of both: */
	int limit;		 /* those that sessions may have: zklock.max_locks */
	int nspare;		 /* more, for nodes that are kept: zklock.max_kept_locks */

	/*
	 * Number of transactions that rely on reservations, and a bit that no more may.  Changed
	 * by backends, and the bit by the worker, atomically.
	 */
#define RELIANCES_CLOSED 0x80000000 /* no transaction may begin to rely */
	pg_atomic_uint32 reliances;

	/* Next place in the order of arrival.  Advanced by backends and the worker. */
	pg_atomic_uint64 next_ticket;

	/* Bit i: the worker must look at entry i.  Set by any process, cleared by the worker. */
	pg_atomic_uint64 dirty[(ZKLOCK_LOCKS_LIMIT + KEPT_LOCKS_LIMIT) / 64];

	/* Backends have all kept nodes given up: zk_release_kept().  Cleared by the worker. */
	pg_atomic_uint32 release_kept;

	/* Grows from one worker to the next; read and written by the worker alone. */
	uint64 next_cohort_id;

	slock_t mutex;		/* protects what follows, up to the entries */
	int		first_free; /* free list of entries; -1 if empty */
	int		nfree;		/* its length */
	int		nkept; /* entries that are kept, nspare at most; changed by the worker alone */

	Entry entries[FLEXIBLE_ARRAY_MEMBER];
} EntryPool;

/* In shared memory; NULL unless the library was loaded with the server. */
extern EntryPool *entry_pool;

/* Backends */
extern int entry_ask(const EntryRequest *request, const char *data, LossPolicy on_loss, int leave);
extern void entry_give_up(int index, EntryNotice notice);
extern bool entry_is_settled(int index, uint32 generation);

/* Worker */
extern bool entry_take_up(int index);
extern bool entry_grant(int index, int64 token);
extern void entry_fail(int index, Failure failure, int code);
extern bool entry_lose(int index, LossReason reason);
extern bool entry_keep(int index);
extern void entry_free(int index);
extern void entries_expect_deletion(uint64 cohort_id, LossReason deletion);

/* Any process */
extern void entry_mark_dirty(int index);
extern bool entry_copy(int index, EntryCopy *copy);
extern int	entries_in_use(void);

static inline Entry *
entry_at(int index)
{
	return &entry_pool->entries[index];
}

/*
 * Returns how often the entry has been freed: if that has changed, the contender that had
 * it is gone.
 *
 * It is read without a lock, as a word is read whole.  A backend that sees the new
 * generation can also take the entry: it needs the mutex to look into the free list, and
 * the worker holds that until the entry is there.
 */
static inline uint32
entry_generation(int index)
{
	return ((volatile Entry *) entry_at(index))->generation;
}

/*
 * Sets the latch of the backend that owns an entry.  If that backend has exited and another
 * one has its slot, the other wakes up once for nothing.  The worker looks at its own
 * entries once per round of its main loop.
 */
static inline void
entry_set_owner_latch(const Entry *entry)
{
	int latch = ((volatile const Entry *) entry)->status.latch;

	if (latch != ENTRY_NO_LATCH)
		SetLatch(&GetPGProcByNumber(latch)->procLatch);
}

/*
 * Copies the status of an entry.  It is inline so that a caller which looks at one field
 * copies no more under the lock.
 */
static inline EntryStatus
entry_status(int index)
{
	Entry	   *entry = entry_at(index);
	EntryStatus status;

	SpinLockAcquire(&entry->mutex);
	status = entry->status;
	SpinLockRelease(&entry->mutex);
	return status;
}

/* Returns true if both are of one session, which never waits for itself. */
static inline bool
entry_same_session(const EntryRequest *a, const EntryRequest *b)
{
	return a->pid == b->pid && a->scope != LOCK_SCOPE_RESERVATION && b->scope != LOCK_SCOPE_RESERVATION;
}

/* ------------------------------------------------------------------------
 * Reservations: locks that the server holds for whoever knows their tokens
 * ------------------------------------------------------------------------
 */

/* A reservation, as long as its entry has that generation */
typedef struct Reservation
{
	int	   index;
	uint32 generation;
} Reservation;

/* Backends */
extern bool reservation_status(const Reservation *reservation, EntryStatus *status);
extern bool reservation_renew(const Reservation *reservation, int duration_ms);
extern bool reservation_end(const Reservation *reservation, int latch);

#endif /* ZKLOCK_ENTRY_H */
