/*
 * sim.h
 *		The simulated world: what its parts offer each other.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_SIM_H
#define SIMULATE_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

#define SIM_SERVERS 3  /* database servers at most */
#define SIM_PROCS 7	   /* of a database server at most: the worker is the first */
#define SIM_WORKER 0   /* its number */
#define SIM_ENTRIES 48 /* zklock.max_locks */
#define SIM_NEVER INT64_MAX
#define MS INT64_C(1000) /* us */

typedef struct SimProcess SimProcess;

/* ------------------------------------------------------------------------
 * chance.c
 * ------------------------------------------------------------------------
 */

extern void		sim_seed(uint64_t seed);
extern uint64_t sim_random(void);
extern uint64_t sim_below(uint64_t n);
extern bool		sim_one_in(uint64_t n); /* never if n is 0 */

/* ------------------------------------------------------------------------
 * main.c: what is told
 * ------------------------------------------------------------------------
 */

extern int64_t sim_now(void); /* us */
extern bool	   sim_tells;	  /* is the history written? */
extern void	   sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void	   sim_violation(const char *path, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
extern bool sim_changed; /* since the last check */

/* How often what goes wrong: one in so many steps; 0: never */
typedef struct SimRates
{
	int break_connection;
	int stall_connection;
	int cut_off;
	int new_leader;
	int expire;
	int kill_worker;
	int freeze;
	int crash;
	int cancel;
	int terminate;
	int yield;		 /* of a process, at each look at the clock */
	int long_pause;	 /* time passes by itself */
	int away;		 /* of losses of a connection: for long */
	int silent;		 /* of losses of a connection: the library says nothing of it */
	int delete_node; /* of a foreign client's steps */
	int abandon;	 /* the same: it crashes */
} SimRates;

extern SimRates sim_rates;

/* What sessions and foreign clients contend for */
typedef enum SimUse
{
	USE_LOCK,
	USE_SEMAPHORE,
	USE_ELECTION,
	USE_QUEUE, /* of elements */
	USE_CLAIM
} SimUse;

typedef struct SimPath
{
	const char *path;
	SimUse		use;
	int			dialect; /* LOCK: a NodeDialect */
	int			permits; /* SEMAPHORE */
	int			family;	 /* ELECTION: an ElectionFamily */
} SimPath;

#define SIM_PATHS 6

extern SimPath sim_paths[SIM_PATHS];
extern int	   sim_npaths;
extern int	   sim_pace;	  /* how slow sessions and clients are */
extern int	   sim_keep_idle; /* zklock.keep_idle, ms */

/* What goes on */
typedef enum SimPhase
{
	PHASE_TURMOIL, /* everything */
	PHASE_CALM,	   /* no faults; nobody asks, or gives anything up */
	PHASE_DRAIN	   /* who has something gives it back, who waits gets it */
} SimPhase;

extern SimPhase sim_phase;

/* ------------------------------------------------------------------------
 * foreign.c: clients that are not zklock
 * ------------------------------------------------------------------------
 */

typedef struct ForeignHolder
{
	int			client;
	int			path;
	bool		shared;
	const char *node;  /* its whole path */
	int64_t		czxid; /* of it; 0 if that does not matter */
} ForeignHolder;

extern void	   foreign_start(int n);
extern int	   foreign_count(void);
extern bool	   foreign_can_run(int client);
extern void	   foreign_run(int client);
extern int64_t foreign_next_timer(int client);
extern bool	   foreign_is_done(int client);
extern bool	   foreign_holds(int client, ForeignHolder *holder);
extern void	   foreign_describe(int client);

/* ------------------------------------------------------------------------
 * check.c: what must hold
 * ------------------------------------------------------------------------
 */

extern void check_start(int64_t grace);
extern void check_step(void);
extern void check_calm(void);
extern void check_drained(void);
extern void check_ended(const SimProcess *process);

/* What a transaction that commits has relied on: an entry, whose node was there at that zxid, or a term */
extern void check_relied(int server, int entry, int64_t zxid);
extern void check_relied_term(int server, int election, int64_t term);

/* Elements that sessions offer, each with its number as data */
typedef enum OfferEnd
{
	OFFER_MADE,
	OFFER_FAILED,
	OFFER_IN_DOUBT
} OfferEnd;

extern int	check_offer(void);
extern void check_offered(int element, OfferEnd end);
extern void check_removal_in_doubt(int path);
extern void check_delivered(int path, int64_t czxid, int64_t taken_in, bool unguarded);

/* Claims */
extern int	check_last_claim(int path);
extern void check_claimed(int path, int slot, int last);

/* ------------------------------------------------------------------------
 * library.c: ZooKeeper's client library
 * ------------------------------------------------------------------------
 */

extern bool	   library_can_step(zhandle_t *handle);
extern void	   library_step(zhandle_t *handle);
extern int64_t library_next_timer(void);
extern int	   library_handles(zhandle_t **handles, int max);
extern void	   library_drop(zhandle_t *handle); /* its process has ended */
extern void	   library_abandon(int owner);		/* and so with all of its handles */
extern int64_t library_zxid(int owner);			/* seen by a database server's worker */
extern int	   library_watches(zhandle_t *handle);
extern int64_t library_session(zhandle_t *handle);
extern int64_t library_connected_since(zhandle_t *handle); /* zxid */
extern int	   library_owner(zhandle_t *handle);		   /* a database server, or FOREIGN */
extern void	   library_attend_connections(void);

/* ------------------------------------------------------------------------
 * process.c: processes of database servers.  The code in them calls these.
 * ------------------------------------------------------------------------
 */

#define FOREIGN (-1)

extern int		   sim_current; /* the database server that runs, or FOREIGN */
extern SimProcess *sim_process; /* NULL: the world runs */

extern void *sim_shared(const char *name, size_t size, bool *found);
extern bool	 sim_sleep(int64_t timeout_ms); /* returns whether the latch is set */
extern void	 sim_round(void);
extern void	 sim_wake(void); /* the client library has news for the worker */
extern void	 sim_signal(int pid, int signal);
extern void	 sim_broadcast(const void *variable);
extern void	 sim_end(void) __attribute__((noreturn));

#endif /* SIMULATE_SIM_H */
