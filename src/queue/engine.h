/*
 * engine.h
 *		The books of the engine: paths, runs, contenders.
 *
 * path.c explains what they are.  Everything here is private to the engine, and
 * so to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENGINE_H
#define ZKLOCK_ENGINE_H

#include "lib/ilist.h"
#include "recipes/node_contender.h"
#include "recipes/recipe.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "utils/hsearch.h"
#include "zk/zk_call.h"

#define PATH_OVERHEAD 4

/* Pause before a call that was refused but must succeed is repeated. */
#define RETRY_MS 5000

/*
 * A watch of ours on a node:
 *
 *		NONE -> ASKED -> SET -> NONE		it fired, or is given up
 *				 |-> NONE					the answer was lost, or there is no node
 *				 `-> REFUSED -> ASKED		tried again after RETRY_MS
 *
 * A new connection keeps watches; a new handle has none.
 */
typedef enum WatchState
{
	WATCH_NONE,
	WATCH_ASKED, /* sent, not yet answered */
	WATCH_SET,
	WATCH_REFUSED
} WatchState;

/* Does a listing ask for the child watch too? */
typedef enum ListWatch
{
	LIST_ONLY,
	LIST_AND_WATCH
} ListWatch;

/* Another client's contender is gone: has it left a successor? */
typedef enum Departure
{
	DEPARTURE_FOR_GOOD, /* no */
	DEPARTURE_UNSEEN	/* perhaps */
} Departure;

/* A run's life; run.c draws it. */
typedef enum RunState
{
	RUN_PLANNED,
	RUN_CREATING,
	RUN_UNKNOWN,
	RUN_CREATED,
	RUN_GRANTED,
	RUN_DOWNGRADING,
	RUN_DELETING_HEIR,
	RUN_DELETING,
	RUN_GONE /* in no list; waits for its outstanding calls */
} RunState;

/* The call about a run's own node that is outstanding; there is one at a time. */
typedef enum NodeCall
{
	NODE_CALL_NONE,
	NODE_CALL_CREATE,
	NODE_CALL_PROBE,	/* does it exist? */
	NODE_CALL_IDENTIFY, /* is it ours, to be deleted or replaced? */
	NODE_CALL_EXCHANGE,
	NODE_CALL_DELETE
} NodeCall;

/* Where the engine has a contender. */
typedef enum ContenderPlace
{
	PLACE_NONE,		/* nowhere: the engine has nothing to do for it */
	PLACE_ARRIVED,	/* in path->arrivals, waiting for a listing */
	PLACE_WAITING,	/* in run->queue */
	PLACE_GRANTED,	/* likewise */
	PLACE_ON_RECORD /* run->record: nobody's any more, but its entry names a node */
} ContenderPlace;

/* Is the path in use for claims?  Only a listing that shows data raises the question. */
typedef enum PathUse
{
	PATH_USE_OPEN, /* no data, as far as is known */
	PATH_USE_ASKED,
	PATH_USE_OTHER /* the data are no claim's */
} PathUse;

/* Why the path's missing nodes could not be created; parents.c. */
typedef struct ParentsRefusal
{
	ContenderFailure failure; /* FAILURE_NONE if it was not refused */
	int				 code;	  /* ZooKeeper's */
} ParentsRefusal;

/*
 * A contender of another client, or one that may have taken the place of such
 * a contender since the last listing.
 */
typedef struct Foreigner
{
	char	  *name; /* NULL if it is not known to exist */
	RecipePeer peer;
} Foreigner;

typedef struct Contender Contender;

typedef struct Path
{
	char		   path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	const Recipe  *recipe;					  /* of all contenders here */
	dlist_head	   runs;					  /* of Run, oldest first */
	dlist_head	   arrivals;				  /* of Contender, waiting for a listing */
	dlist_node	   marked_link;				  /* in engine.marked */
	bool		   marked;
	int			   calls;	   /* outstanding, of the path and its runs */
	int			   lists_sent; /* number of the last listing sent ... */
	int			   lists_done; /* ... of the last one answered ... */
	int			   lists_told; /* ... and of the last whose answer told the children */
	PathUse		   use;
	WatchState	   child_watch;
	int			   nforeign; /* known contenders of other clients */
	Foreigner	  *foreign;
	int			   parents_pending; /* calls about missing parents outstanding */
	int			   parents_attempts;
	size_t		   missing_len;	   /* bytes of the path up to the one being tried */
	int			   levels_missing; /* tried before that */
	ParentsRefusal parents_refusal;
} Path;

typedef struct Run
{
	dlist_node	  link; /* in path->runs, but for RUN_GONE */
	Path		 *path;
	uint64		  id;
	RunState	  state;
	RecipeRequest request; /* what its node was asked for with */
	dlist_head	  queue;   /* of Contender, in order of arrival */
	Contender	 *record;  /* keeps the node on record, or NULL */

	/* Until its node exists or is given up: the run whose node goes in the same step */
	struct Run *replaces;
	struct Run *replaced_by; /* the other way round */

	/* Its node.  The name has no sequence in RUN_CREATING and RUN_UNKNOWN. */
	char	   name[ZKLOCK_NODE_SIZE];
	char	   heir[ZKLOCK_NODE_SIZE]; /* from RUN_DOWNGRADING on: what takes its place */
	RecipePeer peer;				   /* what the name tells */
	int64	   czxid;				   /* of the node first created for the run */
	int		   joined;				   /* contenders that ever joined */
	int		   grants;				   /* under this node */
	size_t	   bytes;  /* that its node is charged with, once it may exist ... */
	int		   payer;  /* ... to this session, a pid */
	bool	   listed; /* seen in a listing on this connection */
	bool	   closed; /* nobody joins any more */

	/* What was asked about it */
	NodeCall   node_call;
	int		   calls;	   /* all that are outstanding */
	RunState   refused_in; /* a refusal in this state has been logged */
	int64	   retry_at;   /* not before, ms */
	WatchState own_watch;
	int64	   own_watch_at;	  /* WATCH_REFUSED: try again then, ms */
	WatchState blocker_watch;	  /* WATCH_REFUSED: the path's children are watched instead */
	char	  *blocker;			  /* node being watched, or NULL */
	bool	   blocker_announces; /* WATCH_SET: should it leave a successor, we hear of that */
} Run;

struct Contender
{
	dlist_node	   link; /* in path->arrivals or run->queue */
	ContenderPlace place;
	Path		  *path;	   /* NULL in PLACE_NONE */
	Run			  *run;		   /* NULL in PLACE_NONE and PLACE_ARRIVED */
	int			   needs_list; /* PLACE_ARRIVED: number of the listing it waits for */
	uint64		   ticket;	   /* its entry's when queue.c began to look at a batch */
};

typedef struct Engine
{
	HTAB	   *paths;		/* of Path */
	dlist_head	marked;		/* of Path, to be pumped */
	const Path *attended;	/* that is being seen to, for the log; or NULL */
	Contender  *contenders; /* by index of the entry */
	int64		session_id;
	size_t		chroot_len;
	size_t		watch_bytes;  /* in watches set or asked for */
	size_t		node_bytes;	  /* in ephemeral nodes */
	int64		resume_until; /* a new worker connects: a call that does not wait waits
							  * so long, ms; else -1 */
	bool		synced;		  /* what we read is no older than the connection */
	int64		sync_at;	  /* after a refusal: sync again then, ms; else -1 */
	int			refused_code; /* ZooKeeper refuses us altogether, or 0 */
	int64		retry_at;	  /* the next thing to try again, ms; -1: none */
	int64		overrun_us;	  /* no holder's time is over before, us */
	bool		long_waits;	  /* a contender may have waited for deadlock_timeout */
} Engine;

extern Engine engine;

static inline int
entry_index(const Contender *c)
{
	return c - engine.contenders;
}

static inline ContenderEntry *
entry_of(const Contender *c)
{
	return entry_at(entry_index(c));
}

/* The first contender of a run's queue, which must not be empty */
static inline Contender *
run_head(const Run *run)
{
	return dlist_head_element(Contender, link, unconstify(dlist_head *, &run->queue));
}

/* For whom its calls are made: the session whose turn it is, or was last */
static inline int
run_owner(const Run *run)
{
	if (!dlist_is_empty(unconstify(dlist_head *, &run->queue)))
		return entry_of(run_head(run))->request.pid;
	return run->record ? entry_of(run->record)->request.pid : ZK_WORKER;
}

/* The server's own calls are nobody's in particular. */
StaticAssertDecl(ENTRY_SERVER_PID == ZK_WORKER, "the server's calls have no owner");

/* Paths */
extern size_t path_bytes(const Path *path, const char *name);
extern char	 *path_node(const Path *path, const char *name);
extern Path	 *path_get(const char *name, const Recipe *recipe);
extern Path	 *path_find(const char *name);
extern void	  path_mark(Path *path);
extern void	  path_mark_all(void);
extern void	  path_foreign_clear(Path *path);
extern void	  path_foreign_remove(Path *path, const char *name, Departure departure);

/* Outstanding calls */
extern void run_call_begin(Run *run);
extern bool run_call_end(Run *run);
extern void run_node_call_begin(Run *run, NodeCall call);
extern bool run_node_call_end(Run *run);
extern bool run_refused(Run *run);

/* Retries */
extern bool engine_retry_is_due(int64 at);

#endif /* ZKLOCK_ENGINE_H */
