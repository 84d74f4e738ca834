/*
 * table.h
 *		Paths, runs and contenders, as the files of the engine share them.
 *
 * path.c explains what they are.  Everything here is private to the engine, and
 * so to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TABLE_H
#define ZKLOCK_TABLE_H

#include "lib/ilist.h"
#include "recipes/recipe.h"
#include "shared/shmem.h"
#include "utils/hsearch.h"
#include "zk/zk_client.h"

/* The number of the grant under a node is the low part of a fencing token. */
#define TOKEN_GRANT_BITS 12
#define MAX_GRANTS ((1 << TOKEN_GRANT_BITS) - 1)

/*
 * Bytes of paths the session may have in watches, and in ephemeral nodes:
 * each must fit in one packet of less than 1 MB (traps 3 and 4).
 */
#define SESSION_BUDGET (900 * 1024)
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

typedef struct Path
{
	char		   path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	const Recipe  *recipe;					  /* of all contenders here */
	dlist_head	   runs;					  /* of Run, oldest first */
	dlist_head	   arrivals;				  /* of Contender, waiting for a listing */
	dlist_node	   marked_node;				  /* in engine.marked */
	bool		   marked;
	int			   calls;	   /* outstanding, of the path and its runs */
	int			   lists_sent; /* number of the last listing sent ... */
	int			   lists_done; /* ... of the last one answered ... */
	int			   lists_told; /* ... and of the last whose answer told the children */
	WatchState	   child_watch;
	int			   nforeign; /* known contenders of other clients */
	Foreigner	  *foreign;
	int			   parents_pending; /* creates of parents outstanding */
	int			   parents_attempts;
	ParentsRefusal parents_refusal;
} Path;

typedef struct Contender Contender;

typedef struct Run
{
	dlist_node	  node; /* in path->runs, but for RUN_GONE */
	Path		 *path;
	uint64		  id;
	RunState	  state;
	RecipeRequest request; /* what its node was asked for with */
	dlist_head	  queue;   /* of Contender, in order of arrival */
	Contender	 *record;  /* keeps the node on record, or NULL */

	/* Its node.  The name has no sequence in RUN_CREATING and RUN_UNKNOWN. */
	char	   name[ZKLOCK_NODE_SIZE];
	char	   heir[ZKLOCK_NODE_SIZE]; /* from RUN_DOWNGRADING on: what takes its place */
	RecipePeer peer;				   /* what the name tells */
	int64	   czxid;				   /* of the node first created for the run */
	int		   joined;				   /* contenders that ever joined */
	int		   grants;				   /* under this node */
	size_t	   bytes;				   /* that the node counts for in engine.node_bytes */
	bool	   listed;				   /* seen in a listing on this connection */
	bool	   closed;				   /* nobody joins any more */

	/* What was asked about it */
	NodeCall   node_call;
	int		   calls;	   /* all that are outstanding */
	RunState   refused_in; /* a refusal in this state has been logged */
	int64	   retry_at;   /* not before, ms */
	WatchState own_watch;
	int64	   own_watch_at;  /* WATCH_REFUSED: try again then, ms */
	WatchState blocker_watch; /* WATCH_REFUSED: the path's children are watched instead */
	char	  *blocker;		  /* node being watched, or NULL */
} Run;

struct Contender
{
	dlist_node	   node; /* in path->arrivals or run->queue */
	ContenderPlace place;
	Path		  *path;	   /* NULL in PLACE_NONE */
	Run			  *run;		   /* NULL in PLACE_NONE and PLACE_ARRIVED */
	int			   needs_list; /* PLACE_ARRIVED: number of the listing it waits for */
};

typedef struct Engine
{
	HTAB	  *paths;	   /* of Path */
	dlist_head marked;	   /* of Path, to be pumped */
	Contender *contenders; /* by index of the entry */
	int64	   session_id;
	size_t	   chroot_len;
	size_t	   watch_bytes;	 /* in watches set or asked for */
	size_t	   node_bytes;	 /* in ephemeral nodes */
	int64	   resume_until; /* a new worker connects: a call that does not wait waits
							  * so long, ms; else -1 */
	bool	   synced;		 /* what we read is no older than the connection */
	int64	   sync_at;		 /* after a refusal: sync again then, ms; else -1 */
	int		   refused_code; /* ZooKeeper refuses us altogether, or 0 */
	int64	   retry_at;	 /* the next thing to try again, ms; -1: none */
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

/* Contenders (contender.c) */
extern bool			  contender_step(Contender *c, ContenderState from, ContenderState to);
extern ContenderState contender_state(const Contender *c);
extern RecipeRequest  contender_request(const Contender *c);
extern bool			  contender_same_session(const Contender *a, const Contender *b);
extern void			  contender_publish(Contender *c);
extern void			  contender_forget(Contender *c);
extern void			  contender_detach(Contender *c);
extern void			  contender_fail(Contender *c, ContenderFailure failure, int code);
extern void			  contender_turn_away(Contender *c, ContenderFailure failure);
extern void			  contender_lose(Contender *c, LossReason reason);
extern bool			  contender_grant(Contender *c);
extern void			  contender_downgraded(Contender *c);
extern void			  contender_remark(Contender *c, int32 remark);
extern void			  contender_blocked_by(Contender *c, const Run *run, const char *node);

/* Paths: the book of them, and what comes next on one (path.c) */
extern size_t path_bytes(const Path *path, const char *name);
extern char	 *path_node(const Path *path, const char *name);
extern Path	 *path_get(const char *name, const Recipe *recipe);
extern Path	 *path_find(const char *name);
extern void	  path_mark(Path *path);
extern void	  path_mark_all(void);
extern void	  path_foreign_clear(Path *path);
extern void	  path_foreign_remove(Path *path, const char *name);
extern void	  path_arrive(Path *path, Contender *c);
extern void	  path_pump_marked(void);

/* Watches (watch.c) */
extern void watch_child_set(Path *path, WatchState state);
extern void watch_child_give_up(Path *path, bool may_exist);
extern void watch_own_set(Run *run, WatchState state);
extern void watch_own(Run *run);
extern bool watch_guards(const Run *run);
extern void watch_blocker_set(Run *run, WatchState state);
extern void watch_blocker_give_up(Run *run);
extern void watch_blocker(Run *run, const char *name);

/* Listings (listing.c) */
extern void path_list(Path *path, ListWatch watch);

/* Missing nodes on the way to a path (parents.c) */
extern void parents_missing(Run *run, int code);
extern void parents_exist(Path *path);

/* Runs: their states and queues (run.c) */
extern Run		 *run_new(Path *path, uint64 id, const RecipeRequest *request);
extern void		  run_join(Run *run, Contender *c);
extern Run		 *run_last(Path *path);
extern Run		 *run_before(Run *run);
extern Run		 *run_by_name(Path *path, const char *name);
extern Contender *run_head(const Run *run);
extern bool		  run_has_node(const Run *run);
extern bool		  run_is_wanted(const Run *run, const Contender *by_others_than);
extern bool		  run_is_open(const Run *run, const RecipeRequest *request);
extern bool		  run_is_fresh(const Run *run);
extern bool		  run_shares(const Run *run);
extern void		  run_publish(Run *run);
extern void		  run_fail(Run *run, ContenderFailure failure, int code);
extern void		  run_creating(Run *run);
extern void		  run_replanned(Run *run);
extern void		  run_unsettled(Run *run);
extern void		  run_created(Run *run, const char *name, int64 czxid);
extern void		  run_adopted(Run *run, const char *name, int64 czxid);
extern void		  run_granted(Run *run);
extern void		  run_downgrading(Run *run, const RecipeRequest *request);
extern void		  run_downgraded(Run *run);
extern void		  run_abandoned(Run *run);
extern void		  run_heir_deleted(Run *run);
extern void		  run_finish(Run *run);
extern void		  run_not_created(Run *run);
extern void		  run_expired(Run *run);
extern void		  run_deleted(Run *run);
extern void		  run_usurped(Run *run);
extern void		  run_vanished(Run *run);

/* What becomes of a run: whom it waits for, whom it grants (run_pump.c) */
extern bool contender_is_outrun(const Contender *c);
extern bool contender_is_blocked(Contender *c);
extern void run_pump(Run *run);

/* Calls about a run's node (run_calls.c) */
extern void run_call_begin(Run *run);
extern bool run_call_end(Run *run);
extern void run_node_call_begin(Run *run, NodeCall call);
extern bool run_node_call_end(Run *run);
extern bool run_refused(Run *run);
extern void run_create(Run *run);
extern void run_delete(Run *run);
extern void run_identify(Run *run, const char *name, ZkReplyHandler handler);
extern void contender_check(Contender *c);

/* Downgrades (downgrade.c) */
extern bool run_wants_downgrade(const Run *run);
extern void run_downgrade_pump(Run *run);

/* Lost replies (probe.c) */
extern void run_probe(Run *run);

/* Taking over from an earlier worker (adopt.c) */
extern void engine_adopt(const int *indexes, int n);

/* Retries (queue.c) */
extern bool retry_is_due(int64 at);

/* The session's life (session.c) */
extern void queue_synchronize(void);

/* What the log has told of a path (report.c) */
extern void report_unrecognised(const Path *path, const char *child);
extern void report_sequence(const Path *path, int64 sequence, int64 limit);
extern void report_stale(const Path *path, const char *name, const ZkReply *reply);

#endif /* ZKLOCK_TABLE_H */
