/*
 * election.h
 *		Elections at which this server stands, as all processes may know them.
 *
 * election.c tells who may write what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELECTION_H
#define ZKLOCK_ELECTION_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "shared/entry.h"
#include "shared/path_settings.h"
#include "storage/lwlock.h"

#define ELECTION_NAME_SIZE \
	256 /* what a leader calls itself, with its NUL; longer names are clipped */

/* No election, where one might be meant */
#define ELECTION_NONE (-1)

/* The states that zk_elections shows, those of ZooKeeper's LeaderElectionSupport and one more. */
typedef enum CandidacyState
{
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

/* What others see of a candidacy besides the grant of its entry. */
typedef struct CandidacyStatus
{
	CandidacyState state;
	TimestampTz	   since;			 /* of the state */
	int			   position;		 /* in the queue, 0 if it is not known */
	char leader[ELECTION_NAME_SIZE]; /* who leads, as its node's data says; may be empty */
} CandidacyStatus;

/* What the worker must not forget when it restarts */
typedef struct Candidacy
{
	CandidacyPhase phase;
	bool		   listed;	   /* zklock.elections has it */
	int			   entry;	   /* STANDING, LEAVING: of the contender */
	uint32		   generation; /* of the entry */
	int64		   retry_at;   /* IDLE: not before, ms */
	uint32 resigning; /* number of the resignation under way; done if equal to resigns_done */
} Candidacy;

typedef struct Election
{
	/*
	 * Written by the worker, and before there is one by the postmaster, under
	 * zklock_election_lock; read by others under it
	 */
	char			path[ZKLOCK_MAX_PATH + 1]; /* UTF-8; empty if the slot is free */
	ElectionFamily	family;
	CandidacyStatus status;

	/* The worker's alone, and the next one's; the postmaster begins it */
	Candidacy candidacy;

	/*
	 * The entry whose grant is this server's leadership, and its generation; 0 if
	 * it must not lead, whatever has been granted.  Written by the worker, read by
	 * all, under no lock.
	 */
	pg_atomic_uint64 candidate;

	/* Resignations asked for, advanced by backends; and done, by the worker. */
	pg_atomic_uint32 resigns_wanted;
	pg_atomic_uint32 resigns_done;
} Election;

/* What a session has to do with elections.  Each process has one, by its number. */
typedef struct ElectionClient
{
	/* Protected by the mutex; written by the process, "interrupt" by the worker too */
	slock_t		mutex;
	int			pid;
	uint64		relied_on;	/* bit i: its transaction relies on leadership of election i */
	uint64		waited_for; /* bit i: it wants to hear of changes at election i */
	bool		committing; /* the commit guard has passed, or is about to */
	LossPolicy	on_loss;
	int			interrupt; /* signal sent for a loss, 0 if none */
	TimestampTz interrupted_at;
	int			interrupted_for; /* the election */
} ElectionClient;

typedef struct ElectionTable
{
	/* Advanced by the worker when an election comes or goes, before and after */
	pg_atomic_uint64 version;

	Election	   elections[ELECTIONS_LIMIT];
	int			   nclients; /* constant */
	ElectionClient clients[FLEXIBLE_ARRAY_MEMBER];
} ElectionTable;

/* What is known of this server's leadership */
typedef enum Leadership
{
	LEADERSHIP_NONE,
	LEADERSHIP_SUSPENDED, /* it was elected, but the session is not proved to live */
	LEADERSHIP_PROVED
} Leadership;

/* In shared memory; NULL unless the library was loaded with the server. */
extern ElectionTable *election_table;

/* Protects what the elections' paths and status are.  Held for a search or a copy. */
extern LWLock *zklock_election_lock;

extern Size election_table_size(int nclients);
extern void election_table_init(ElectionTable *table, int nclients);

/* Any process */
extern int		  election_find(const char *path);
extern bool		  election_is_above(const char *path, char *found);
extern Leadership election_leadership(int election, int64 *term);
extern bool		  election_is_term(int election, int64 term);

/* Backends */
extern uint64 election_version(void);
extern void	  election_read(int election, char *path, CandidacyStatus *status);
extern uint32 election_want_resign(int election);
extern bool	  election_resign_is_done(int election, uint32 number);
extern bool	  election_want_check(int election, int64 term, uint32 *number);
extern bool	  election_check_is_done(int election, int64 term, uint32 number);
extern void	  election_client_begin(void);
extern void	  election_client_rely(int election, LossPolicy on_loss);
extern void	  election_client_wait(int election);
extern void	  election_client_commit(void);
extern void	  election_client_set_policy(LossPolicy on_loss);
extern bool	  election_client_end(void);
extern int	  election_client_take_interrupt(int signal, TimestampTz *at);

/* Worker */
typedef void (*ElectionInterrupter)(int pid, int signal);
extern int	election_add(const ElectionItem *item);
extern void election_add_all(void);
extern void election_remove(int election);
extern void election_set_status(int election, const CandidacyStatus *status);
extern void election_set_candidate(int election, int entry, uint32 generation);
extern bool election_has_commits(int election);
extern void election_wake_clients(int election);
extern void election_interrupt_clients(int election, ElectionInterrupter interrupt);

static inline Election *
election_at(int election)
{
	return &election_table->elections[election];
}

#endif /* ZKLOCK_ELECTION_H */
