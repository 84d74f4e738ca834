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
#define SIM_PROCS 16   /* of a database server: the worker is the first */
#define SIM_WORKER 0   /* its number */
#define SIM_ENTRIES 48 /* zklock.max_locks */
#define SIM_NEVER INT64_MAX
#define MS INT64_C(1000) /* us */

/* ------------------------------------------------------------------------
 * main.c: chance, and what is told
 * ------------------------------------------------------------------------
 */

extern uint64_t sim_random(void);
extern uint64_t sim_below(uint64_t n);
extern bool		sim_one_in(uint64_t n); /* never if n is 0 */
extern int64_t	sim_now(void);			/* us */
extern bool		sim_tells;				/* is the history written? */
extern void		sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void		sim_violation(const char *path, const char *format, ...)
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
	int freeze_worker;
	int crash;
	int yield;		 /* of a worker, within its round, at each look at the clock */
	int long_pause;	 /* time passes by itself */
	int away;		 /* of losses of a connection: for long */
	int silent;		 /* of losses of a connection: the library says nothing of it */
	int delete_node; /* of a foreign client's steps */
	int long_hold;	 /* of what sessions hold: for seconds */
} SimRates;

extern SimRates sim_rates;

/* What sessions and foreign clients contend for */
typedef enum SimUse
{
	USE_LOCK,
	USE_SEMAPHORE,
	USE_ELECTION,
	USE_QUEUE /* of elements */
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
extern int	   sim_pace; /* how slow sessions and clients are */

/* What goes on */
typedef enum SimPhase
{
	PHASE_TURMOIL, /* everything */
	PHASE_CALM,	   /* no faults; nobody asks, or gives anything up */
	PHASE_DRAIN	   /* who has something gives it back, who waits gets it */
} SimPhase;

extern SimPhase sim_phase;

/* ------------------------------------------------------------------------
 * session.c: sessions of PostgreSQL
 * ------------------------------------------------------------------------
 */

extern void	   session_start(int server, int process);
extern int	   session_count(void);
extern bool	   session_can_run(int session);
extern void	   session_run(int session);
extern int64_t session_next_timer(int session);
extern bool	   session_is_done(int session);
extern void	   session_crashed(int server);
extern void	   session_describe(int session);

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
extern void check_consumed(int64_t session, int path, int64_t czxid); /* an element that was taken */
extern void check_calm(void);
extern void check_drained(void);

/* ------------------------------------------------------------------------
 * library.c: ZooKeeper's client library
 * ------------------------------------------------------------------------
 */

extern bool	   library_can_step(zhandle_t *handle);
extern void	   library_step(zhandle_t *handle);
extern int64_t library_next_timer(void);
extern int	   library_handles(zhandle_t **handles, int max);
extern void	   library_abandon(int owner); /* the process has ended */
extern int64_t library_zxid(int owner);	   /* seen by a database server's worker */
extern int	   library_watches(zhandle_t *handle);
extern int64_t library_session(zhandle_t *handle);
extern int	   library_owner(zhandle_t *handle); /* a database server, or FOREIGN */
extern void	   library_attend_connections(void);

/* ------------------------------------------------------------------------
 * process.c: processes of database servers
 * ------------------------------------------------------------------------
 */

#define FOREIGN (-1)

extern int sim_current; /* the database server that runs, or FOREIGN */

/* ------------------------------------------------------------------------
 * The code in a copy of the extension calls these.
 * ------------------------------------------------------------------------
 */

extern void sim_latch_set(int process);
extern void sim_latch_reset(int process);
extern int	sim_sleep(int64_t timeout_ms, bool *woken); /* returns whether the latch is set */
extern void sim_wake(void);								/* the client library has news */
extern void sim_exit(void) __attribute__((noreturn));

#endif /* SIMULATE_SIM_H */
