/*
 * shmem.h
 *		Shared memory: what backends and the worker tell each other.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SHMEM_H
#define ZKLOCK_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "recipes/recipe.h"
#include "shared/clock.h"
#include "shared/errand.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#define ZKLOCK_NODE_DATA_SIZE 768 /* node data, JSON, with its NUL */
#define ZKLOCK_NODE_SIZE (ZKLOCK_MAX_NODE_NAME + 1)
#define ZKLOCK_SERVERS_SIZE 1024 /* a connect string, with its NUL */
#define ZKLOCK_ERROR_SIZE 256
#define ZKLOCK_PASSWORD_SIZE 16	 /* of a ZooKeeper session */
#define ZKLOCK_LOCKS_LIMIT 16384 /* upper bound of zklock.max_locks */

/* A contender's life; shmem.c shows who may make which step. */
typedef enum ContenderState
{
	CONTENDER_FREE,		 /* not in use */
	CONTENDER_REQUESTED, /* asked for; the worker has not seen it */
	CONTENDER_QUEUED,	 /* the worker sees to it */
	CONTENDER_GRANTED,	 /* the lock is held */
	CONTENDER_LOST,		 /* was granted, is no longer held */
	CONTENDER_FAILED,	 /* refused; "failure" says why */
	CONTENDER_RELEASING	 /* given up; the rest is the worker's */
} ContenderState;

/* Why a contender is in CONTENDER_LOST. */
typedef enum LossReason
{
	LOSS_EXPIRED, /* the session ended */
	LOSS_DELETED, /* someone deleted the node */
	LOSS_UNPROVED /* suspended for too long */
} LossReason;

/* What happens to a session that loses a lock; zklock.on_lock_loss */
typedef enum LossPolicy
{
	LOSS_ABORT,	   /* its transaction cannot commit */
	LOSS_CANCEL,   /* and its statement is cancelled */
	LOSS_TERMINATE /* or the session is terminated */
} LossPolicy;

/* What a contender is for. */
typedef enum EntryKind
{
	CONTENDER_LOCK,
	CONTENDER_TURN,	 /* the lock that says whose turn it is at a semaphore */
	CONTENDER_PERMIT /* a lease of a semaphore */
} EntryKind;

/* What missing nodes of a path are created as; zklock.parent_nodes */
typedef enum ParentNodes
{
	PARENTS_CONTAINER, /* ZooKeeper removes them when they are empty */
	PARENTS_PERSISTENT,
	PARENTS_EXISTING /* they are not created */
} ParentNodes;

/* Why a contender is in CONTENDER_FAILED. */
typedef enum ContenderFailure
{
	FAILURE_NONE,
	FAILURE_BUSY,		  /* a call that does not wait found it taken */
	FAILURE_UNREACHABLE,  /* a call that does not wait could not ask */
	FAILURE_REFUSED,	  /* ZooKeeper refused; see "error_code" */
	FAILURE_NO_CHILDREN,  /* the path lies under an ephemeral node */
	FAILURE_NO_CHROOT,	  /* the chroot of zklock.servers is missing */
	FAILURE_NO_PATH,	  /* the path does not exist and is not to be created */
	FAILURE_TOO_DEEP,	  /* too many levels of the path are missing */
	FAILURE_HARMFUL,	  /* a new node would harm users of a lock or semaphore above it */
	FAILURE_SESSION_FULL, /* it has as many nodes and watches as is safe */
	FAILURE_SHARE_FULL,	  /* the backend has its share of these */
	FAILURE_WORN_OUT,	  /* the path's sequence numbers are used up */
	FAILURE_OTHER_RECIPE  /* the path is in use for something else */
} ContenderFailure;

/*
 * One request of one session.  All fields but the mutex are protected by it,
 * with one exception: who has seen the entry in use may read without it what is
 * constant then, and must see afterwards that its generation is the same.
 */
typedef struct ContenderEntry
{
	slock_t mutex;

	/* Written by both sides, only along the arrows drawn in shmem.c. */
	ContenderState state;

	/*
	 * Written by the owning backend on FREE -> REQUESTED, and once more if it
	 * downgrades what it holds: from exclusive to shared.
	 */
	LockMode mode;

	/*
	 * Order of arrival in this server.  Written by the owning backend on FREE ->
	 * REQUESTED, and anew by the worker on REQUESTED -> QUEUED.
	 */
	uint64 ticket;

	/*
	 * Written by the owning backend on FREE -> REQUESTED, then constant.  Path
	 * and data are written before that step, without the mutex.
	 */
	int			proc_number; /* whose latch is set on a change */
	int			pid;
	Oid			database;
	Oid			role; /* the session's, who may see all of it */
	EntryKind	kind;
	RecipeId	recipe;
	NodeDialect dialect;
	int			permits; /* of the semaphore, for CONTENDER_PERMIT */
	ParentNodes parent_nodes;
	int			share;			   /* entries that its backend may have: see share.h */
	bool		may_use_reserve;   /* likewise; it asked as a superuser */
	bool		transaction_level; /* what was asked for at first */
	bool		nowait;			   /* never wait for another holder */
	TimestampTz requested_at;
	char		path[ZKLOCK_MAX_PATH + 1];	 /* UTF-8 */
	char		data[ZKLOCK_NODE_DATA_SIZE]; /* for the node, UTF-8 */

	/* Written by the owning backend at any time. */
	int		   session_count;			 /* session-level acquisitions */
	int		   transaction_count;		 /* transaction-level acquisitions */
	int		   shared_session_count;	 /* shared ones by the exclusive holder ... */
	int		   shared_transaction_count; /* ... which have no entry of their own */
	bool	   notify_release;			 /* set its latch when the entry is FREE */
	LossPolicy on_loss;
	uint32	   check_wanted; /* number of the check of its node asked for last */

	/* Set by the owning backend with "mode", cleared by the worker when done. */
	bool downgrading;

	/* Written by the worker. */
	uint32			 generation;			 /* counts the times the entry became FREE */
	int				 next_free;				 /* free list, under ZklockShared.mutex */
	uint64			 run_id;				 /* run it belongs to, 0 if none */
	char			 node[ZKLOCK_NODE_SIZE]; /* the run's; no sequence while unsettled */
	int64			 czxid;					 /* of that node, 0 while unsettled */
	int				 run_grants;			 /* grants under that node so far */
	int				 others_permits;		 /* fewest that older leases tell of, 0 if none */
	int64			 token;					 /* fencing token, 0 until granted */
	TimestampTz		 granted_at;
	uint64			 blocked_by_run; /* head of a run only: the run it waits for */
	char			 blocked_by_node[ZKLOCK_NODE_SIZE]; /* likewise: the foreign node */
	ContenderFailure failure;
	int				 error_code; /* ZooKeeper's, for FAILURE_REFUSED */
	LossReason		 loss;
	uint32			 check_done; /* number of the check passed last */

	/*
	 * Set by the worker with a loss, or by the owning backend if it makes up for
	 * one after its transaction; cleared by the owning backend.
	 */
	int			interrupt;		/* signal that on_loss made it send, 0 if none */
	TimestampTz interrupted_at; /* when */
} ContenderEntry;

typedef enum SessionState
{
	SESSION_DOWN, /* no client handle: not started, or retrying */
	SESSION_CONNECTING,
	SESSION_CONNECTED,
	SESSION_AUTH_FAILED /* ZooKeeper refused our credentials */
} SessionState;

/*
 * What zk_session shows and a restarted worker needs; all set by the worker.
 * Too much to be copied under a spinlock, it has an LWLock of its own.
 */
typedef struct SessionInfo
{
	SessionState state;
	int64		 id; /* 0 if there is no session */
	char		 password[ZKLOCK_PASSWORD_SIZE];
	char		 chroot[ZKLOCK_MAX_PATH + 1]; /* the session's */
	char		 server[128];				  /* host:port we are connected to */
	int			 negotiated_timeout;		  /* ms */
	int			 shortest_timeout;			  /* ms, that it ever had: the lease's */
	TimestampTz	 connected_since;
	int64		 reconnects;
	int64		 expirations;
	char		 last_error[ZKLOCK_ERROR_SIZE];
	TimestampTz	 last_error_at;
	char obstacle[ZKLOCK_ERROR_SIZE]; /* why nothing is granted now; empty if nothing is in the way */
} SessionInfo;

/*
 * The settings that the session runs with, which may be others than those in
 * force elsewhere: what does not work is not taken up.
 */
typedef struct SessionSettings
{
	bool known; /* else no worker has run yet */
	char servers[ZKLOCK_SERVERS_SIZE];
	char auth_file[MAXPGPATH];
	int	 session_timeout; /* ms, asked for */
	int	 tick_time;		  /* ms */
	int	 acl;			  /* a ZklockAcl */
} SessionSettings;

#define ZKLOCK_ENDED_SESSIONS 16

typedef struct ZklockShared
{
	int max_entries; /* constant after initialisation */

	/* Set by the worker at its start and exit; read by anyone. */
	pg_atomic_uint32 worker_proc_number; /* NO_WORKER if none runs */

	/*
	 * The lease, by the clock of zklock_now_us(): when it ends, and when locks
	 * held under it count as lost; 0 for none.  Set by the worker, lease.c.
	 */
	pg_atomic_uint64 lease_until;
	pg_atomic_uint64 lease_over;

	/* Written and read by the worker alone, and by the next one. */
	SessionSettings settings;

	/* Advanced by backends and the worker: order of arrival. */
	pg_atomic_uint64 next_ticket;

	/* Advanced by backends: number of the next errand. */
	pg_atomic_uint64 next_errand;

	/* Bit i: entry i wants attention. Set by backends, cleared by the worker. */
	pg_atomic_uint64 dirty[ZKLOCK_LOCKS_LIMIT / 64];

	SessionInfo session; /* under zklock_session_lock */

	slock_t mutex;		 /* protects what follows, to the errands */
	int		worker_pid;	 /* worker; 0 if none runs */
	int		first_free;	 /* free list of entries; -1 if empty */
	int		nfree;		 /* its length */
	uint64	next_run_id; /* worker */

	/* Ids of sessions of ours that have ended, newest first; of the worker. */
	int64 ended_sessions[ZKLOCK_ENDED_SESSIONS];

	Errand errands[ERRAND_SLOTS];

	ContenderEntry entries[FLEXIBLE_ARRAY_MEMBER];
} ZklockShared;

#define NO_WORKER PG_UINT32_MAX

extern ZklockShared *zklock_shared;

/* Protects zklock_shared->session.  Nothing that can fail is done under it. */
extern LWLock *zklock_session_lock;

extern void zklock_shmem_request(void);
extern void zklock_shmem_startup(void);

/* Backends */
extern int	entry_claim(int leave);
extern void entry_mark_dirty(int index);
extern void zklock_wake_worker(void);

/* Worker */
typedef void (*EntryVisitor)(int index);
extern void entries_visit_dirty(EntryVisitor visit);
extern void entry_free(int index);
extern void entry_set_owner_latch(const ContenderEntry *entry);
extern void zklock_session_ended(int64 id);
extern bool zklock_session_has_ended(int64 id);

/* Any process */
extern ContenderState entry_get_state(int index);
extern int			  entries_in_use(void);
extern void			  zklock_require_preload(void);
extern void			  zklock_get_session(SessionInfo *info, int *worker_pid);

static inline ContenderEntry *
entry_at(int index)
{
	return &zklock_shared->entries[index];
}

#endif /* ZKLOCK_SHMEM_H */
