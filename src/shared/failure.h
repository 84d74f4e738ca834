/*
 * failure.h
 *		Why something could not be had from ZooKeeper, or was lost, and what errors and the
 *		log say then.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_FAILURE_H
#define ZKLOCK_FAILURE_H

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

#endif /* ZKLOCK_FAILURE_H */
