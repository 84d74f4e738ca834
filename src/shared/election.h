/*
 * election.h
 *		Elections at which this server stands, as all processes may know them.
 *
 * election.c tells what makes this server a leader, and who may write what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELECTION_H
#define ZKLOCK_ELECTION_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"

/*
 * How many paths can be in zklock.elections, one after the other, before the
 * server is started again: each keeps its slot.
 */
#define ELECTION_SLOTS 256

/* No election, where one might be meant */
#define ELECTION_NONE (-1)

/* The states that zk_elections shows, those of ZooKeeper's LeaderElectionSupport and one more */
typedef enum CandidacyState
{
	CANDIDACY_GONE,		 /* zklock.elections does not have it any more; not shown */
	CANDIDACY_STOP,		 /* it does not stand: the server is a standby, or shuts down */
	CANDIDACY_OFFER,	 /* it has asked for a node, or asks again */
	CANDIDACY_READY,	 /* others are before it */
	CANDIDACY_ELECTED,	 /* it is the first */
	CANDIDACY_SUSPENDED, /* it was, and may be still, but that is not proved */
	CANDIDACY_FAILED	 /* it was refused, and is tried again */
} CandidacyState;

/* Where the worker is with a candidacy; worker/candidacy.c draws it. */
typedef enum CandidacyPhase
{
	CANDIDACY_IDLE,
	CANDIDACY_STANDING,
	CANDIDACY_LEAVING
} CandidacyPhase;

/* What others see of a candidacy besides the grant of its entry */
typedef struct CandidacyStatus
{
	CandidacyState state;
	TimestampTz	   since;	 /* of the state; 0 before there is a worker */
	int			   position; /* in the queue, 0 if it is not known */
} CandidacyStatus;

/* Kept for the next worker */
typedef struct Candidacy
{
	CandidacyPhase phase;
	bool		   listed;	 /* zklock.elections has it */
	ElectionFamily family;	 /* whose names it gives for it */
	int			   entry;	 /* STANDING, LEAVING: of the contender */
	int64		   retry_at; /* IDLE: not before, ms */
} Candidacy;

/* Stakes of a process's transaction in an election; a set of these */
#define STAKE_COMMIT 0x04  /* it commits, or is about to, because this server leads */
#define STAKE_ON_LOSS 0x03 /* a LossPolicy: what happens to it with leadership */

typedef struct Election
{
	/* Constant from the moment when ElectionTable.n counts the election */
	char path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */

	/* Written by the worker under the mutex, read by others under it */
	slock_t			mutex;
	CandidacyStatus status;

	/* The worker's alone, and the next one's */
	Candidacy candidacy;

	/*
	 * The entry whose grant is this server's leadership, and its generation; 0 if
	 * it must not lead, whatever has been granted.  Written by the worker, read by
	 * all, under no lock.
	 */
	pg_atomic_uint64 candidate;

	/*
	 * The term that is to end, as sessions want; 0 if there is none, or it has ended and
	 * the candidate has another place.  Written by backends, cleared by the worker.
	 */
	pg_atomic_uint64 resign_term;

	/* Sessions wait here for leadership, or for its end. */
	ConditionVariable changed;
} Election;

typedef struct ElectionTable
{
	pg_atomic_uint32 n; /* slots in use; written by the worker, first by the postmaster */
	Election		 elections[ELECTION_SLOTS];

	/* By slot and process; each byte is written by its process, read by the worker. */
	volatile uint8 stakes[FLEXIBLE_ARRAY_MEMBER];
} ElectionTable;

/* This server's leadership, as far as it is known */
typedef enum Leadership
{
	LEADERSHIP_NONE,
	LEADERSHIP_SUSPENDED, /* it was elected, but the session is not proved to live */
	LEADERSHIP_PROVED
} Leadership;

/* In shared memory; NULL unless the library was loaded with the server */
extern ElectionTable *election_table;

/* What views and the log call a CandidacyState */
extern const char *const election_state_names[];

extern Size election_table_size(void);
extern void election_table_init(ElectionTable *table);

/* Any process */
extern int		  election_find(const char *path);
extern bool		  election_is_above(const char *path, const char **found);
extern bool		  election_status(int election, CandidacyStatus *status);
extern Leadership election_leadership(int election, int64 *term);
extern int		  election_term_entry(int election, int64 term, EntryStatus *status);

/* Backends */
extern void election_want_resign(int election, int64 term);
extern bool election_resign_is_done(int election, int64 term);

/* The worker */
extern int	election_slot(const char *path);
extern void election_set_candidate(int election, int entry);

static inline Election *
election_at(int election)
{
	return &election_table->elections[election];
}

/* Slots from 0 to one less than this are in use. */
static inline int
election_count(void)
{
	int n = (int) pg_atomic_read_u32(&election_table->n);

	pg_read_barrier();
	return n;
}

/* The stakes of a process's transaction */
static inline volatile uint8 *
election_stake(int election, int process)
{
	return &election_table->stakes[election * zklock_max_processes() + process];
}

#endif /* ZKLOCK_ELECTION_H */
