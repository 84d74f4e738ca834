/*
 * common.h
 *		What all storeys share: the clock, wait events, operations and their results, why
 *		something failed or was lost, limits, and shares.
 *
 * src/zk includes nothing else of src/shared.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_COMMON_H
#define ZKLOCK_COMMON_H

#include <time.h>

#include "recipes/node_name.h"

#define ZKLOCK_SERVERS_SIZE 1024 /* a connect string, with its NUL */
#define ZKLOCK_ADDRESSES_SIZE \
	4096						/* addresses of its servers and its chroot, with their NUL */
#define ZKLOCK_ERROR_SIZE 256	/* an error as a sentence, with its NUL */
#define ZKLOCK_FILE_SIZE 1024	/* the name of a file, with its NUL: PostgreSQL's MAXPGPATH */
#define ZKLOCK_PASSWORD_SIZE 16 /* bytes of a ZooKeeper session's password */

/* A time that never comes, us or ms */
#define NEVER INT64_MAX

/* Who may access the nodes that we create */
typedef enum ZklockAcl
{
	ZKLOCK_ACL_OPEN,   /* everybody, with all rights */
	ZKLOCK_ACL_CREATOR /* only clients with the same credentials */
} ZklockAcl;

/* The files for TLS, in PEM format, in the order of the client library's argument */
typedef enum TlsFile
{
	TLS_CA,
	TLS_CERT,
	TLS_KEY
} TlsFile;

#define TLS_FILES (TLS_KEY + 1)

typedef struct TlsFiles
{
	char names[TLS_FILES][ZKLOCK_FILE_SIZE]; /* as set; TLS is on if the first is not empty */
} TlsFiles;

/* What pg_stat_activity shows of a process that waits */
typedef enum ZklockWaitEvent
{
	ZKLOCK_WAIT_LOCK,		  /* a session waits for a lock or permit */
	ZKLOCK_WAIT_COMMIT_GUARD, /* ... for proof of its locks, before it commits */
	ZKLOCK_WAIT_UNLOCK,		  /* ... until what it has released is free */
	ZKLOCK_WAIT_CALL,		  /* ... for an answer of ZooKeeper */
	ZKLOCK_WAIT_ELEMENT,	  /* ... for an element of a queue, or until one is added */
	ZKLOCK_WAIT_WORKER		  /* the worker waits for anything to do */
} ZklockWaitEvent;

/*
 * A fencing token has a node's czxid as its high part, and the number of the grant under
 * that node as its low part.  zk_answer.c refuses a czxid from CZXID_END on, so tokens are
 * positive.
 */
#define TOKEN_GRANT_BITS 12
#define CZXID_END ((int64_t) 1 << (63 - TOKEN_GRANT_BITS))

static inline int64_t
token_of_grant(int64_t czxid, int64_t grant)
{
	return (czxid << TOKEN_GRANT_BITS) + grant;
}

/* Which process makes a step from one state of a record in shared memory to another */
typedef enum StepBy
{
	BY_NOBODY,
	BY_BACKEND, /* the one to which the record belongs */
	BY_WORKER
} StepBy;

/* A node, without its data and children */
typedef struct NodeStat
{
	int64_t czxid;			 /* the number of the transaction that created it ... */
	int64_t mzxid;			 /* ... and of the one that wrote its data last */
	int64_t ephemeral_owner; /* a session's id, 0 if none */
	int64_t ctime;			 /* when it was created, ms since 1970, by the server's clock */
	int64_t mtime;			 /* when its data were written, by the same clock */
	int32_t version;		 /* of the data */
	int		data_length;
	int		child_count;
	int		child_changes; /* children created and deleted so far */
} NodeStat;

/*
 * The operations on nodes.  A session asks the worker for some of these, and the worker asks
 * ZooKeeper.
 */
typedef enum ZkOperation
{
	/* Asked for by sessions and by the worker.  These change nodes. */
	ZK_CREATE,		  /* with our ACL; sequential: a sequence is appended to the path */
	ZK_APPEND,		  /* create a persistent sequential node, and an empty ephemeral one, its
					* marker, both or none.  Both have the same czxid. */
	ZK_SET_DATA,	  /* replace the data; if they have another version, ZK_BAD_VERSION */
	ZK_DELETE,		  /* a node, or two, both or none */
	ZK_CREATE_RECORD, /* create a persistent node and write its data again, both or none, so
					   * that its version is 1.  With "acl", the same step deletes the
					   * existing node, which must have version 0; the new one gets its ACL */

	/* These read what is there, or was a moment ago. */
	ZK_EXISTS, /* the Stat, which ZooKeeper returns even if the ACL forbids to read the node */
	ZK_GET_DATA, /* Stat and data.  ZooKeeper sends all of the data, however long: ask for the
				  * Stat first. */
	ZK_GET_CHILDREN, /* Stat and children */

	/* Asked for by sessions; the worker makes others of them (worker/calls.c). */
	ZK_REPLACE_RECORD, /* ZK_CREATE_RECORD, in place of a node of version 0, whose ACL it
						* keeps */
	ZK_REMOVE,	/* delete a node of that version, and the pin, if any, and create the marker
				* node in the pin's place, all or none */
	ZK_PUBLISH, /* create an ephemeral node, which is the slot's marker node until the session
				 * gives it up, and delete the one before it, both or none */
	ZK_PIN, /* create an ephemeral node, which is the slot's marker node until it is removed,
				 * or the session gives it up; others follow in the same batch */
	ZK_WATCH_DATA,	 /* set a watch on the node's data, if it exists */
	ZK_REMOTE_WAITS, /* have the engine note which entries wait for other servers or keep them
					  * waiting, after a sync */

	/* Asked for by the worker */
	ZK_REPLACE, /* create an ephemeral node, and delete another, both or none: CALL_NODE_EXISTS
				 * is about the first, CALL_NO_NODE about the second.  The reply does not
				 * contain the sequence. */
	ZK_GET_ACL, /* the ACL as text, with its NUL, in "data" */
	ZK_CHECK,	/* the leader checks, as a write that a quorum commits, that the session lives
			   * and that a node exists: CALL_OK, CALL_NO_NODE, or CALL_UNKNOWN if that was not
				 * committed */
	ZK_SYNC,	/* makes later reads see all that was committed before */

	/* These remove a watch that is no longer wanted, now or when we are connected. */
	ZK_UNWATCH_DATA,
	ZK_UNWATCH_CHILDREN
} ZkOperation;

/* The result of a call */
typedef enum CallOutcome
{
	CALL_OK,
	CALL_NO_NODE,
	CALL_NODE_EXISTS,
	CALL_NO_CHILDREN, /* the parent is ephemeral */
	CALL_UNKNOWN,	  /* no answer: it was done or not; when a session gets this, that cannot
					   * change any more */
	CALL_REFUSED,	  /* any other error; the code says which */

	/* Only sessions get these: in a ZkReply the first two are CALL_REFUSED. */
	CALL_BAD_VERSION,
	CALL_NOT_EMPTY,	  /* a node that has children is not deleted */
	CALL_UNREACHABLE, /* no connection: nothing was sent */
	CALL_TOO_LONG	  /* the answer is longer than CALL_MAX_ANSWER */
} CallOutcome;

/*
 * Returns microseconds on a clock that is never set and that runs on while the machine
 * sleeps; only differences mean anything.
 */
static inline int64_t
zklock_now_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t) 1000000 * now.tv_sec + now.tv_nsec / 1000;
}

/* Returns the same in milliseconds. */
static inline int64_t
zklock_now_ms(void)
{
	return zklock_now_us() / 1000;
}

/* Returns the milliseconds since a time by zklock_now_us(), rounded down. */
static inline int64_t
zklock_ms_since(int64_t start_us)
{
	return (zklock_now_us() - start_us) / 1000;
}

/*
 * Returns the milliseconds until a time by zklock_now_ms(), or 0 if it has passed.
 *
 * Max() would read the clock twice.  If the time passed in between, the result would be
 * negative, which is a timeout that never ends.
 */
static inline int64_t
zklock_ms_until(int64_t at)
{
	int64_t left = at - zklock_now_ms();

	return left > 0 ? left : 0;
}

extern uint32_t zklock_wait_event(ZklockWaitEvent event);

/* ------------------------------------------------------------------------
 * Why something could not be had from ZooKeeper, or was lost
 * ------------------------------------------------------------------------
 */

typedef enum Failure
{
	FAILURE_NONE,
	FAILURE_BUSY,		   /* a call that does not wait found it taken */
	FAILURE_UNREACHABLE,   /* a call that does not wait could not reach ZooKeeper */
	FAILURE_REFUSED,	   /* ZooKeeper refused; there is a code */
	FAILURE_DENIED,		   /* ZooKeeper refused: rights are missing */
	FAILURE_NO_MARKER,	   /* ZooKeeper refused: the marker node sent with the change cannot
						   * be created */
	FAILURE_QUOTA,		   /* ZooKeeper refused: the path's quota is used up */
	FAILURE_LOCAL_SESSION, /* ZooKeeper refused: our session may have no ephemeral nodes */
	FAILURE_NO_CHILDREN,   /* the path lies under an ephemeral node */
	FAILURE_NO_CHROOT,	   /* the chroot of zklock.servers is missing */
	FAILURE_NO_PATH,	   /* the path does not exist and is not to be created */
	FAILURE_TOO_DEEP,	   /* too many levels of the path are missing */
	FAILURE_HARMFUL,	   /* a new node would harm users of a lock or semaphore above it */
	FAILURE_SESSION_FULL,  /* the ZooKeeper session has as many nodes and watches as is safe */
	FAILURE_SHARE_FULL,	   /* the backend has used its share of these */
	FAILURE_WORN_OUT,	   /* the path's sequence numbers are used up */
	FAILURE_IS_LOCK,	   /* the path is in use as a lock */
	FAILURE_IS_SEMAPHORE,  /* ... as a part of a semaphore */
	FAILURE_IS_ELECTION,   /* ... for an election */
	FAILURE_IS_CLAIMS,	   /* ... for claims */
	FAILURE_IS_QUEUE,	   /* ... as a queue, or an element of one */
	FAILURE_CANNOT_COEXIST, /* clients of another kind are there, which a node would disturb */
	FAILURE_TOO_LONG		/* ZooKeeper's answer is longer than CALL_MAX_ANSWER */
} Failure;

/* What an error or the log says of a Failure */
typedef struct FailureText
{
	int			sqlerrcode;
	const char *message; /* with a place for the path */
	const char *detail;	 /* a sentence, which may have a place for the limit, or NULL */
	int			limit;
	const char *hint; /* a sentence, or NULL */
} FailureText;

/* Why a contender is in ENTRY_LOST */
typedef enum LossReason
{
	LOSS_DELETED,  /* someone deleted the node */
	LOSS_BROKEN,   /* zk_break_lock() did */
	LOSS_EXPIRED,  /* the session ended */
	LOSS_UNPROVED, /* suspended for too long */
	LOSS_OVERRUN   /* held for longer than zklock.max_hold_time */
} LossReason;

/* What happens to a session that loses a lock; zklock.on_lock_loss */
typedef enum LossPolicy
{
	LOSS_ABORT,	   /* its transaction cannot commit */
	LOSS_CANCEL,   /* and its statement is cancelled */
	LOSS_TERMINATE /* or the session is terminated */
} LossPolicy;

/* By Failure */
extern const FailureText failure_texts[];

/* By LossReason: a sentence each; LOSS_OVERRUN's has a place for zklock.max_hold_time, ms */
extern const char *const failure_loss_texts[];

extern int failure_describe(Failure failure, const char *refusal);

/* The worker */
extern void failure_interrupt(int proc_number, LossPolicy policy);

/* ------------------------------------------------------------------------
 * The share that one session may have of what all sessions use
 *
 * Two things are limited: entries in shared memory, of which zklock.max_locks exist, and
 * the bytes of paths that the ZooKeeper session may have in nodes, and in watches.  A
 * session gets a share of each, and superusers have a reserve.
 * ------------------------------------------------------------------------
 */

/*
 * Bytes of paths that the ZooKeeper session may have in watches, and as many in ephemeral
 * nodes: each must fit in one packet of less than 1 MB (traps 3 and 4).
 */
#define PACKET_BUDGET (900 * 1024)

/*
 * Bytes for nodes that are kept (engine/kept.c).  ZooKeeper takes a session's nodes in a packet
 * of up to 2 MB when it closes it (trap 4), so these have as much again.  In the packet of watches
 * only some bytes are left beside those above and those of calls; what settings demand of more
 * is taken from watches of locks: kept_share_of_watches().
 */
#define KEPT_NODE_BYTES (1000 * 1024)
#define KEPT_WATCH_BYTES_LEFT (60 * 1024)
#define KEPT_WATCH_BYTES_EACH 60
#define KEPT_WATCH_BYTES_MOST (512 * 1024)

/* Bytes that a node takes of them in addition to its path and the chroot */
#define SHARE_NODE_BYTES (ZKLOCK_MAX_NODE_NAME + 5)

/* The last of these bytes are for superusers alone. */
#define PACKET_RESERVE (PACKET_BUDGET / 16)

/* On a small server a quarter would be too few for one array of paths. */
#define SHARE_FEWEST_ENTRIES 16

/* Every share has room for some of the longest paths. */
#define SHARE_FEWEST_BYTES ((size_t) 32 * 1024)

/* Whether a request may use what is reserved for superusers */
typedef enum ShareReserve
{
	RESERVE_CLOSED,
	RESERVE_OPEN
} ShareReserve;

/*
 * Returns how many entries a session may have.
 *
 *	setting		zklock.max_locks_per_session: -1 for a quarter of all, but not
 *				so few that a small server is of no use
 *	max_entries	how many there are
 */
static inline int
share_of_entries(int setting, int max_entries)
{
	int quarter = max_entries / 4;

	if (setting < 0)
		setting = quarter > SHARE_FEWEST_ENTRIES ? quarter : SHARE_FEWEST_ENTRIES;
	return setting < max_entries ? setting : max_entries;
}

/* Returns how many entries are left for superusers: a sixteenth, but not the only one. */
static inline int
share_entries_reserved(int max_entries)
{
	return max_entries > 1 ? (max_entries + 15) / 16 : 0;
}

/* Returns how many bytes the watches of so many kept nodes may take. */
static inline size_t
kept_share_of_watches(int max_kept)
{
	size_t wanted = (size_t) max_kept * KEPT_WATCH_BYTES_EACH;

	if (wanted < KEPT_WATCH_BYTES_LEFT)
		return KEPT_WATCH_BYTES_LEFT;
	return wanted < KEPT_WATCH_BYTES_MOST ? wanted : KEPT_WATCH_BYTES_MOST;
}

/* Returns how many of the bytes for nodes belong to a share of the entries. */
static inline size_t
share_of_bytes(int entries, int max_entries)
{
	size_t bytes = (size_t) PACKET_BUDGET * entries / max_entries;

	return bytes > SHARE_FEWEST_BYTES ? bytes : SHARE_FEWEST_BYTES;
}

#endif /* ZKLOCK_COMMON_H */
