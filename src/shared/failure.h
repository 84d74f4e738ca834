/*
 * failure.h
 *		Why something could not be had from ZooKeeper, or was lost.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_FAILURE_H
#define ZKLOCK_FAILURE_H

typedef enum Failure
{
	FAILURE_NONE,
	FAILURE_BUSY,		  /* a call that does not wait found it taken */
	FAILURE_UNREACHABLE,  /* a call that does not wait could not ask */
	FAILURE_REFUSED,	  /* ZooKeeper refused; there is a code */
	FAILURE_DENIED,		  /* likewise, for a lack of rights */
	FAILURE_NO_RECEIPT,	  /* likewise, of a node with which a scratch node is created */
	FAILURE_QUOTA,		  /* ZooKeeper refused: the path's quota is used up */
	FAILURE_NO_CHILDREN,  /* the path lies under an ephemeral node */
	FAILURE_NO_CHROOT,	  /* the chroot of zklock.servers is missing */
	FAILURE_NO_PATH,	  /* the path does not exist and is not to be created */
	FAILURE_TOO_DEEP,	  /* too many levels of the path are missing */
	FAILURE_HARMFUL,	  /* a new node would harm users of a lock or semaphore above it */
	FAILURE_SESSION_FULL, /* the ZooKeeper session has as many nodes and watches as is safe */
	FAILURE_SHARE_FULL,	  /* the backend has its share of these */
	FAILURE_WORN_OUT,	  /* the path's sequence numbers are used up */
	FAILURE_OTHER_RECIPE, /* the path is in use for something else */
	FAILURE_BARRED,		  /* clients of another kind are there, whom a node would harm */
	FAILURE_TOO_LONG	  /* what ZooKeeper tells of the node has no room in an answer */
} Failure;

/* What is told of it */
typedef struct FailureText
{
	int			sqlerrcode;
	const char *message; /* with a place for the path */
	const char *detail;	 /* a sentence, or NULL */
	const char *hint;	 /* likewise */
} FailureText;

/* Why a contender is in CONTENDER_LOST. */
typedef enum LossReason
{
	LOSS_EXPIRED,  /* the session ended */
	LOSS_DELETED,  /* someone deleted the node */
	LOSS_BROKEN,   /* zk_break_lock() did */
	LOSS_UNPROVED, /* suspended for too long */
	LOSS_OVERRUN   /* held for longer than zklock.max_hold_time */
} LossReason;

/* By reason: sentences, of which one has a place for zklock.max_hold_time, ms */
extern const char *const failure_loss_texts[];

extern const FailureText *failure_text(Failure failure);
extern int				  failure_describe(Failure failure, const char *refusal);

#endif /* ZKLOCK_FAILURE_H */
