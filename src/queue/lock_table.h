/*
 * lock_table.h
 *		Paths, runs and contenders, as the files of the lock manager share them.
 *
 * lock_path.c explains what they are and decides; lock_contender.c changes
 * entries in shared memory, lock_run.c keeps the books, lock_calls.c talks to
 * ZooKeeper.  Private to these files and to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LOCK_TABLE_H
#define ZKLOCK_LOCK_TABLE_H

#include "lib/ilist.h"
#include "recipes/permit_recipe.h"
#include "recipes/recipe.h"
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

/* Pause before what was refused but must be done is tried again. */
#define RETRY_MS 5000

typedef enum WatchState
{
	WATCH_NONE,
	WATCH_ASKED, /* sent, not yet answered */
	WATCH_SET
} WatchState;

typedef enum RunState
{
	RUN_PLANNED,
	RUN_CREATING,
	RUN_UNKNOWN,
	RUN_CREATED,
	RUN_GRANTED,
	RUN_DELETING,
	RUN_GONE /* only waits for its outstanding calls */
} RunState;

struct Contender;

typedef struct LockPath
{
	char			 path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	dlist_head		 runs;						/* of Run, oldest first */
	dlist_head		 arrivals;					/* of Contender, waiting for a listing */
	int				 calls;						/* outstanding, of the path and its runs */
	int				 lists_sent;				/* number of the last listing sent ... */
	int				 lists_done;				/* ... and of the last one answered */
	WatchState		 child_watch;
	int				 nforeign;		/* known foreign contenders */
	bool			 heirs_unknown; /* a foreign shared node may have taken the place of
									 * an exclusive one since the last listing */
	RecipeContender *foreign;
	char		   **foreign_names;
	bool			 has_permits; /* somebody asked for one: what follows is kept */
	int				 nleases;	  /* children in the last listing */
	PermitLease		*leases;
	PermitPlace		*lease_places; /* the leases, oldest first */
	char		   **lease_names;
	int				 parents_pending; /* calls about missing parents outstanding */
	int				 parent_attempts;
	size_t			 missing_len;	  /* bytes of the path up to the one being tried */
	int				 levels_missing;  /* tried before that */
	ContenderFailure parents_failure; /* FAILURE_NONE if none */
	int				 parents_code;
} LockPath;

typedef struct Run
{
	dlist_node		  node; /* in path->runs, but for RUN_GONE */
	LockPath		 *path;
	uint64			  id;
	RunState		  state;
	LockMode		  mode;
	NodeDialect		  dialect;
	bool			  permit;				  /* its node is a lease, for one contender */
	dlist_head		  queue;				  /* of Contender, in order of arrival */
	struct Contender *record;				  /* keeps the node on record, or NULL */
	char			  name[ZKLOCK_NODE_SIZE]; /* node; from CREATING to UNKNOWN
										 * without its sequence */
	char			  heir[ZKLOCK_NODE_SIZE]; /* while it is downgraded: the shared node
											   * that takes the place of "name" */
	bool			  heir_seen;			  /* the last listing shows it */
	int64			  sequence;
	int64			  czxid;  /* of the node first created for it */
	int				  joined; /* contenders that ever joined */
	int				  grants; /* under this node */
	bool			  listed; /* seen in a listing */
	int				  place;  /* of a permit's lease among all in that listing */
	bool			  closed; /* nobody may join */
	bool			  delete_refused;
	bool			  downgrade_refused;
	bool			  accounted; /* its node counts in node_bytes */
	bool			  calling;	 /* create, replace, probe or delete is outstanding */
	int				  calls;	 /* all outstanding calls with the run */
	int64			  retry_at;	 /* delete not before, ms */
	WatchState		  own_watch;
	bool			  unguarded; /* own node cannot be watched ... */
	int64			  guard_at;	 /* ... which is tried again then, ms */
	WatchState		  blocker_watch;
	char			 *blocker; /* node being watched */
	bool			  blind;   /* the blocker cannot be read */
} Run;

typedef struct Contender
{
	dlist_node node; /* in path->arrivals or run->queue */
	LockPath  *path; /* NULL: the worker has nothing to do for it */
	Run		  *run;	 /* NULL: it is in path->arrivals */
	bool	   granted;
	int		   needs_list; /* arrival: number of the listing to wait for */
} Contender;

/* A path's runs by the names of their nodes, for as long as none of them changes */
typedef struct RunIndex
{
	Run **runs; /* in order of their sequences */
	int	  n;
} RunIndex;

/* What the log has told of a path, so as not to tell it again. */
typedef struct ReportedPath
{
	char path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	bool unrecognised;				/* a child that may be meant as a contender */
	bool sequence;					/* the counter is past its half */
} ReportedPath;

typedef struct LockManager
{
	HTAB	  *paths;		   /* of LockPath */
	HTAB	  *reported_paths; /* of ReportedPath */
	Contender *contenders;	   /* by index of the entry */
	int64	   session_id;
	size_t	   chroot_len;
	size_t	   watch_bytes;	 /* in watches set or asked for */
	size_t	   node_bytes;	 /* in ephemeral nodes */
	int64	   resume_until; /* a new worker connects: who does not wait waits so
							  * long, ms; else -1 */
	bool	   synced;		 /* what we read is no older than the connection */
	int64	   sync_at;		 /* after a refusal: sync again then, ms; else -1 */
	int		   refused_code; /* ZooKeeper refuses us altogether, or 0 */
	int64	   retry_at;	 /* the next thing to try again, ms; -1: none */
} LockManager;

extern LockManager lock_manager;

static inline int
entry_index(const Contender *c)
{
	return c - lock_manager.contenders;
}

static inline ContenderEntry *
entry_of(const Contender *c)
{
	return entry_at(entry_index(c));
}

/* Contenders (lock_contender.c) */
extern bool			  contender_step(Contender *c, ContenderState from, ContenderState to);
extern ContenderState contender_state(const Contender *c);
extern LockMode		  contender_mode(const Contender *c);
extern bool			  contender_same_session(const Contender *a, const Contender *b);
extern void			  contender_publish(Contender *c);
extern void			  contender_forget(Contender *c);
extern void			  contender_detach(Contender *c);
extern void			  contender_fail(Contender *c, ContenderFailure failure, int code);
extern void			  contender_lose(Contender *c, LossReason reason);
extern bool			  contender_grant(Contender *c);
extern void			  contender_downgraded(Contender *c);
extern void			  contender_blocked_by(Contender *c, const Run *run, const char *node);

/* Watches, paths and runs (lock_run.c) */
extern size_t	 path_bytes(const LockPath *path, const char *name);
extern void		 child_watch_set(LockPath *path, WatchState state);
extern void		 own_watch_set(Run *run, WatchState state);
extern void		 blocker_watch_set(Run *run, WatchState state);
extern void		 child_watch_give_up(LockPath *path, bool may_exist);
extern void		 blocker_watch_give_up(Run *run, bool may_exist);
extern char		*node_path(const LockPath *path, const char *name);
extern LockPath *path_of_entry(const ContenderEntry *entry);
extern void		 path_free_if_idle(LockPath *path);
extern void		 foreign_clear(LockPath *path);
extern void		 foreign_remove(LockPath *path, const char *name);
extern Run		*run_new(LockPath *path, uint64 id, LockMode mode, NodeDialect dialect);
extern void		 run_join(Run *run, Contender *c);
extern Run		*last_run(LockPath *path);
extern Run		*run_before(Run *run);
extern bool		 run_is_wanted(const Run *run, const Contender *by_others_than);
extern bool		 run_is_open(const Run *run, LockMode mode, NodeDialect dialect);
extern bool		 retry_is_due(int64 at);
extern bool		 run_may_retry(const Run *run);
extern bool		 run_is_fresh(const Run *run);
extern bool		 run_sequence(const Run *run, const char *name, int64 *sequence);
extern bool		 run_is_guarded(const Run *run);
extern void		 run_publish(Run *run);
extern void		 run_account_node(Run *run);
extern void		 run_finish(Run *run);
extern void		 run_fail(Run *run, ContenderFailure failure, int code);
extern void		 run_replace(Run *run, bool keep_place);
extern void		 run_deleted(Run *run);
extern void		 run_usurped(Run *run);

/* Downgrades (lock_downgrade.c) */
extern bool run_wants_downgrade(const Run *run);
extern void run_downgrade_begin(Run *run);
extern void run_downgrade_pump(Run *run);
extern void run_downgraded(Run *run);
extern void run_vanished(Run *run);

/* Permits (lock_permit.c) */
extern void leases_set(LockPath *path, const ZkReply *reply, const RunIndex *ours);
extern void leases_clear(LockPath *path);
extern bool permit_is_free(const LockPath *path, const ContenderEntry *entry);
extern void permit_evaluate(Run *run);

/* Calls to ZooKeeper (lock_calls.c) */
extern int	run_owner(const Run *run);
extern void path_list(LockPath *path, int owner, bool watch);
extern void run_create(Run *run);
extern void run_delete(Run *run);
extern void run_guard(Run *run);
extern void run_watch_blocker(Run *run, const char *name);
extern void contender_check(Contender *c);
extern void run_call_begin(Run *run);
extern bool run_call_end(Run *run);
extern void run_node_call_begin(Run *run);
extern bool run_node_call_end(Run *run);
extern void run_created(Run *run, const char *name, int64 czxid);

extern const ContenderEntry *run_first_entry(Run *run);

/* Missing parents (lock_parents.c) */
extern void parents_missing(Run *run, int code);
extern void parents_forget(LockPath *path);

/* Runs by name (lock_index.c) */
extern void run_index_make(RunIndex *index, const LockPath *path);
extern Run *run_index_find(const RunIndex *index, const char *name, int64 sequence);
extern void run_index_drop(RunIndex *index);

/* Taking over from an earlier worker (lock_adopt.c) */
extern void lock_adopt(const int *indexes, int n);

/* Lost replies (lock_probe.c) */
extern void run_probe(Run *run);

/* Decisions (lock_path.c) */
extern void arrivals_place(LockPath *path);
extern void path_pump(LockPath *path);
extern void lock_pump_all(void);

/* The session's life (lock_session.c) */
extern void lock_synchronize(void);

#endif /* ZKLOCK_LOCK_TABLE_H */
