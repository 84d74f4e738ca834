/*
 * election.h
 *		Elections at which this server stands, as all processes see them.
 *
 * election.c says what makes this server a leader, and in which order that is read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELECTION_H
#define ZKLOCK_ELECTION_H

#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"

/*
 * How many different paths zklock.elections may name before the server is restarted: each
 * keeps its slot.
 */
#define ELECTION_SLOTS 256

/* Stands for no election */
#define ELECTION_NONE (-1)

/*
 * The states that zk_elections shows: those of ZooKeeper's LeaderElectionSupport, and
 * "suspended"
 */
typedef enum CandidacyState
{
	CANDIDACY_GONE,		 /* no longer in zklock.elections; not shown */
	CANDIDACY_STOP,		 /* the server does not stand: it is a standby, or shuts down */
	CANDIDACY_OFFER,	 /* it has asked for a node, or asks again */
	CANDIDACY_READY,	 /* others are before it */
	CANDIDACY_ELECTED,	 /* it is the first */
	CANDIDACY_SUSPENDED, /* it was the first, but that is not proved now */
	CANDIDACY_FAILED	 /* it was refused, and will be tried again */
} CandidacyState;

/* The worker's step in a candidacy; worker/candidacy.c has the drawing. */
typedef enum CandidacyPhase
{
	CANDIDACY_IDLE,
	CANDIDACY_STANDING,
	CANDIDACY_LEAVING
} CandidacyPhase;

/* What other processes see of a candidacy, in addition to the grant of its entry */
typedef struct CandidacyStatus
{
	CandidacyState state;
	TimestampTz	   since;	 /* of the state; 0 before there is a worker */
	int			   position; /* in the queue, 0 if unknown */
	int			   priority; /* as zklock.elections has it */

	/* The data of the candidate to which this leader is going to give way; or "" */
	char preferred[ZKLOCK_NODE_DATA_SIZE];
} CandidacyStatus;

/* The worker's notes on a candidacy, kept for the next worker */
typedef struct Candidacy
{
	CandidacyPhase phase;
	bool		   listed;		/* it is in zklock.elections */
	ElectionFamily family;		/* whose node names zklock.elections gives for it */
	int			   priority;	/* that it has there ... */
	int			   stands_with; /* STANDING: ... and that its node tells */
	int			   entry;		/* STANDING, LEAVING: the contender's */
	int64		   retry_at;	/* IDLE: it does not stand again before, ms */
} Candidacy;

/* What is at stake for a process's transaction in an election; a set of these bits */
#define STAKE_RELY 0x08	   /* it relies on this server's leadership */
#define STAKE_COMMIT 0x04  /* it commits, or is about to, because this server leads */
#define STAKE_ON_LOSS 0x03 /* a LossPolicy: what happens to it when leadership is lost */

typedef struct Election
{
	/* Constant from the moment when ElectionTable.n counts the election */
	char path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */

	/* Written by the worker under the mutex, read by others under it */
	slock_t			mutex;
	CandidacyStatus status;

	/* Used by the worker alone, and by the next one */
	Candidacy candidacy;

	/*
	 * The entry whose grant is this server's leadership, and its generation; 0 if the
	 * server must not lead, whatever has been granted.  Written by the worker, read by all,
	 * under no lock.
	 */
	pg_atomic_uint64 candidate;

	/*
	 * No transaction begins to rely on leadership now.  Written by the worker, read by all,
	 * under no lock.  The worker raises no error while this is set, and if it is killed then,
	 * shared memory is made anew.
	 */
	volatile bool giving_way;

	/*
	 * The term that sessions want to end; 0 if there is none, or it has ended and the
	 * candidate has another place.  Written by backends, cleared by the worker.
	 */
	pg_atomic_uint64 resign_term;

	/* Sessions wait here for leadership, or for its end. */
	ConditionVariable changed;
} Election;

typedef struct ElectionTable
{
	pg_atomic_uint32 n; /* slots in use; written by the worker, at the start by the
						 * postmaster */
	Election		 elections[ELECTION_SLOTS];

	/* By slot and process; each byte is written by its process, and read by the worker */
	volatile uint8 stakes[FLEXIBLE_ARRAY_MEMBER];
} ElectionTable;

/* This server's leadership, as far as is known */
typedef enum Leadership
{
	LEADERSHIP_NONE,
	LEADERSHIP_SUSPENDED, /* it was elected, but the session is not proved to live */
	LEADERSHIP_PROVED
} Leadership;

/* In shared memory; NULL unless the library was loaded with the server */
extern ElectionTable *election_table;

/* The name of each CandidacyState in views and the log */
extern const char *const election_state_names[];

/* Any process */
extern int		  election_find(const char *path);
extern Leadership election_leadership(int election, int64 *term);
extern int		  election_granted_entry(int election, EntryStatus *status);

/* The worker */
extern int	election_slot(const char *path);
extern void election_set_candidate(int election, int entry);
extern bool election_give_way(int election);

static inline Election *
election_at(int election)
{
	return &election_table->elections[election];
}

/* Returns the number of slots in use, which are the first ones. */
static inline int
election_count(void)
{
	int n = (int) pg_atomic_read_u32(&election_table->n);

	pg_read_barrier();
	return n;
}

/* Returns the place of a process's stakes in an election. */
static inline volatile uint8 *
election_stake(int election, int process)
{
	return &election_table->stakes[election * zklock_max_processes() + process];
}

#endif /* ZKLOCK_ELECTION_H */
