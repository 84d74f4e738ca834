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
#include <ucontext.h>

#include "model.h"

#define SIM_SERVERS 3  /* database servers at most */
#define SIM_PROCS 7	   /* of a database server at most: the worker is the first */
#define SIM_WORKER 0   /* its number */
#define SIM_ENTRIES 48 /* zklock.max_locks */
#define SIM_KEPT 13	   /* most that zklock.max_kept_locks is */
#define SIM_NEVER INT64_MAX
#define PATH_SIZE 256	 /* of a foreign client's */
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

extern void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void sim_violation(const char *path, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
extern bool sim_changed; /* since the last check */

/* What goes wrong by chance, and in how many steps it usually does once */
#define SIM_FAULTS(FAULT)                                                             \
	FAULT(break_connection, 400)                                                      \
	FAULT(stall_connection, 1000)                                                     \
	FAULT(cut_off, 2000)                                                              \
	FAULT(new_leader, 5000)                                                           \
	FAULT(expire, 4000)                                                               \
	FAULT(kill_worker, 1500)                                                          \
	FAULT(freeze, 1000)                                                               \
	FAULT(crash, 20000)                                                               \
	FAULT(cancel, 300)                                                                \
	FAULT(terminate, 1000)                                                            \
	FAULT(yield, 60)		/* of a process, at each look at the clock */             \
	FAULT(long_pause, 2000) /* time passes by itself */                               \
	FAULT(away, 6)			/* of losses of a connection: for long */                 \
	FAULT(silent, 8)		/* of losses of a connection: the library says nothing */ \
	FAULT(delete_node, 8)	/* of a foreign client's steps */                         \
	FAULT(abandon, 200)		/* the same: it crashes */

/* In how many steps each happens once in this season; 0: never */
typedef struct SimRates
{
#define FAULT(name, usual) int name;
	SIM_FAULTS(FAULT)
#undef FAULT
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

#define SIM_PATHS 10

extern SimPath sim_paths[SIM_PATHS];
extern int	   sim_npaths;
extern int	   sim_path_of(const char *path); /* that this is, or is below; -1: none */
extern int	   sim_pace;					  /* how slow sessions and clients are */
extern int	   sim_writers;					  /* one in so many locks is exclusive */
extern int	   sim_tick_ms;					  /* of ZooKeeper */
extern int	   sim_timeout_ms;				  /* of sessions */
extern int	   sim_rank(int server);		  /* its priority in elections */
extern int	   sim_keep_idle;				  /* zklock.keep_idle, ms */
extern int	   sim_max_kept;				  /* zklock.max_kept_locks */

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

typedef struct ForeignKind ForeignKind;

typedef struct Foreign
{
	int				   number;
	const ForeignKind *kind; /* NULL: nothing is to be done */
	int				   path;
	zhandle_t		  *handle;
	bool			   session_over; /* and so the client begins anew */
	bool			   holds;
	bool			   shares;
	bool			   busy;			/* a request is under way */
	int64_t			   next_at;			/* if not: us */
	char			   node[PATH_SIZE]; /* its whole path */
	int64_t			   node_czxid;		/* 0: it was found by its name */

	/* The last answer */
	int							code;
	const struct String_vector *children; /* until something else is asked */

	ucontext_t context;
	char	   stack[64 * 1024];
} Foreign;

extern Foreign foreign_clients[];
extern int	   foreign_count;

extern void	   foreign_start(int n);
extern void	   foreign_run(void *client);
extern int64_t foreign_next_step(const Foreign *client); /* us */
extern bool	   foreign_is_done(const Foreign *client);

/* ------------------------------------------------------------------------
 * check.c: what must hold
 * ------------------------------------------------------------------------
 */

extern void check_step(void);
extern void check_calm(void);
extern void check_drained(void);
extern void check_ended(const SimProcess *process);
extern void check_left(const char *of, const char *what, size_t n, size_t most);

/* What a transaction that commits has relied on: an entry, whose node was there at that zxid, or a term */
extern void check_relied(int server, int entry, uint32_t generation, int64_t zxid);
extern void check_relied_term(int server, int election, int64_t term);
extern void check_given_away(int server, int election, int64_t term);

/* Elements that sessions offer, each with its number as data */
typedef enum OfferEnd
{
	OFFER_MADE,
	OFFER_FAILED,
	OFFER_IN_DOUBT
} OfferEnd;

extern int	check_offer(void);
extern void check_offered(int element, OfferEnd end);
extern int	check_removals_in_doubt[]; /* by path */
extern void check_delivered(int path, int64_t czxid, int64_t taken_in, bool unguarded);

/* Persistent locks, by path and fencing token */
extern int	   check_persistent_in_doubt[]; /* calls that may have left one, by path */
extern void	   check_locked_persistently(int path, int64_t token);
extern int64_t check_unlocks_persistently(int path); /* begins; returns 0 if there is none */
extern void	   check_unlocked_persistently(int path, int64_t token);

/* Reservations, by path and fencing token */
extern int64_t check_reserved_last[]; /* the highest of which a session was told, by path */
extern void	   check_reserved(int path, int64_t token);
extern bool	   check_is_over(int path, int64_t token);

/* Claims */
extern int	check_last_claim[];
extern void check_claimed(int path, int slot, int last);

/* ------------------------------------------------------------------------
 * library.c: ZooKeeper's client library
 * ------------------------------------------------------------------------
 */

struct _zhandle
{
	zhandle_t		*next;
	int				 owner; /* a database server, or FOREIGN */
	watcher_fn		 watcher;
	void			*context;
	int				 state;
	int				 told;	  /* the state that the watcher knows */
	int				 timeout; /* ms */
	clientid_t		 id;
	ModelConnection *connection;
	int64_t			 connect_at; /* us; without a connection */
	int64_t			 heard_at;	 /* us */
	int64_t			 sent_at;	 /* us */
	int64_t			 zxid;
	int64_t			 connected_since; /* zxid */
	ModelQueue		 pending;		  /* requests; those that are sent come first */
	ModelPacket		 watches;
};

extern zhandle_t *library_handles;

extern int64_t library_next_step(const zhandle_t *handle); /* us */
extern void	   library_step(void *handle);
extern void	   library_drop(zhandle_t *handle); /* its process has ended */
extern void	   library_abandon(int owner);		/* and so with all of its handles */
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
extern void	 sim_signal(int pid, int signal);
extern void	 sim_broadcast(const void *variable);
extern void	 sim_end(void) __attribute__((noreturn));

#endif /* SIMULATE_SIM_H */
