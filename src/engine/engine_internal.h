/*
 * engine_internal.h
 *		What the files of the engine offer each other.
 *
 * node.c explains the terms.  Each file calls only those before it:
 *
 *		path.c			what the engine has: paths, cohorts, contenders, what they cost; calls,
 *						messages
 *		kept.c			nodes that are kept for a moment when nobody needs them
 *		watch.c			listings of a path's children, watches on nodes, room for them; checks
 *		parents.c		creating the missing levels of a path
 *		node.c			the life of a node of ours; who stands behind it, and who is granted;
 *						requests
 *		engine.c		the engine as the main loop sees it
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENGINE_INTERNAL_H
#define ZKLOCK_ENGINE_INTERNAL_H

#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "shared/stats.h"
#include "utils/hsearch.h"
#include "zk/zk_client.h"

/* Pause before a call that must succeed, but was refused, is repeated */
#define RETRY_MS 5000

/* Payers: a node that is kept is charged to nobody; one that does not exist is not charged */
#define PAYER_NOBODY (-1)
#define PAYER_NONE PG_INT64_MIN

/* Pause between two messages of a kind that a role can cause as often as it likes */
#define MESSAGE_PAUSE_MS 1000

/*
 * A watch of ours on a node:
 *
 *		NONE -> ASKED -> SET -> NONE		it fired, or is given up
 *		ASKED -> NONE						the reply was lost, or there is no node
 *		NONE, ASKED -> REFUSED -> NONE		no room for it, or ZooKeeper refuses it
 *		REFUSED -> ASKED					on our own node, after RETRY_MS
 *		NONE -> SET							by a second reply, after the first one's fired
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

/* Whether a listing sets the child watch, too */
typedef enum ListWatch
{
	LIST_ONLY,
	LIST_AND_WATCH
} ListWatch;

/* Whether the path is in use for claims, which matters only if a listing shows data */
typedef enum PathUse
{
	PATH_USE_OPEN, /* no data, as far as is known */
	PATH_USE_ASKED,
	PATH_USE_OTHER /* the data are not those of a claim */
} PathUse;

/* What those who wait are told */
typedef struct Refusal
{
	Failure failure;
	int		code; /* ZooKeeper's, for FAILURE_REFUSED */
} Refusal;

/* Knowledge that a new connection, or a new handle, makes void */
typedef enum Forget
{
	FORGET_LISTINGS,
	FORGET_WATCHES /* and listings */
} Forget;

/* A contender of another client */
typedef struct ForeignContender
{
	char	  *name; /* first: they are sought by it */
	RecipePeer peer;

	/* Of a candidate */
	int64 seen_at; /* when a listing showed it first, ms */
	bool  asked;   /* its data have been asked for, by a leader */
	char *data;	   /* NULL until known */
} ForeignContender;

typedef struct Path
{
	char		  path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	const Recipe *recipe;					 /* of all cohorts here */
	dlist_head	  cohorts;					 /* of Cohort, oldest first */
	dlist_head	  arrivals;					 /* of Contender, waiting for a listing */
	dlist_node	  marked_link;				 /* in engine.marked */
	bool		  marked;
	int			  calls; /* outstanding, of the path and its cohorts */
	PathUse		  use;
	Refusal		  refusal; /* unless FAILURE_NONE, of all who wait */

	/* What the last listing showed, and later news */
	int64	   lists_sent;	   /* number of the last listing sent ... */
	int64	   lists_watching; /* ... of the last one that sets the child watch ... */
	int64	   lists_done;	   /* ... of the last one answered ... */
	int64	   lists_shown;	   /* ... and of this connection's last that showed the children */
	WatchState child_watch;
	bool	   unseen;	  /* the child watch reported a change that no listing has shown */
	int64	   list_at;	  /* when a held lock has it listed for that, ms; 0: not planned */
	int		   nchildren; /* in that listing */
	int		   nforeign;  /* known contenders of other clients */
	ForeignContender *foreign;

	/* The search for nodes that our session has left behind among them; watch.c */
	int64 orphans_at;	/* when it begins, ms; 0: not planned; NEVER: it is under way */
	int	  orphans_next; /* index in "foreign" of the next one to be looked at */

	/* Creating its missing levels; parents.c */
	bool		parents_pending; /* a call is outstanding */
	int			parents_attempts;
	MissingPath missing;		 /* the walk over them */
	size_t		created_from;	 /* bytes of the path to the first container created ... */
	size_t		created_to;		 /* ... and to the last, below which nothing was; 0: none */
	Refusal		parents_refusal; /* unless FAILURE_NONE, why they could not be created */
} Path;

/* A cohort's life, which cohort_next_step() draws and makes */
typedef enum CohortState
{
	COHORT_PLANNED,
	COHORT_CREATING,
	COHORT_CREATED,
	COHORT_GRANTED,
	COHORT_DOWNGRADING,
	COHORT_DELETING,
	COHORT_GONE /* in no list; waits for its outstanding calls */
} CohortState;

/*
 * How a cohort has ended: it has no node, or none any more.  Of two that are found one after
 * the other, the later one in this list counts.
 */
typedef enum CohortEnd
{
	END_NONE,		 /* it has not */
	END_MISSING,	 /* the node is not there */
	END_NAME_REUSED, /* another node has the name */
	END_NOT_CREATED, /* nothing was created, and that is certain */
	END_DELETED,	 /* the node was deleted, by someone else if anybody is in the queue */
	END_EXPIRED		 /* the node is gone with the session */
} CohortEnd;

/*
 * Where the engine has a contender:
 *
 *		NONE -> ARRIVED -> WAITING -> GRANTED -> NONE
 *				   ^----------'  `----------`---> KEEPS_NODE -> NONE
 *
 * A contender that leaves goes from any place to NONE; the last one of a cohort that
 * has a node, or may have, keeps the node's name in shared memory until that is gone.
 */
typedef enum ContenderPlace
{
	PLACE_NONE,		 /* in no list: the engine has nothing to do for it */
	PLACE_ARRIVED,	 /* in path->arrivals, waiting for a listing */
	PLACE_WAITING,	 /* in cohort->queue */
	PLACE_GRANTED,	 /* in cohort->queue */
	PLACE_KEEPS_NODE /* cohort->last_owner: nobody's, but its entry has the node's name */
} ContenderPlace;

typedef struct Contender Contender;
typedef struct Cohort	 Cohort;

struct Cohort
{
	dlist_node	  link; /* in path->cohorts, but for COHORT_GONE */
	Path		 *path;
	uint64		  id; /* order on the path, for a later worker */
	CohortState	  state;
	RecipeRequest request;	  /* the request for which its node stands */
	bool		  reusable;	  /* the name of its node may be another client's one day */
	dlist_head	  queue;	  /* of Contender, in order of arrival */
	int			  joined;	  /* contenders that have ever joined */
	bool		  closed;	  /* nobody joins any more */
	Contender	 *last_owner; /* its entry keeps the node's name while the queue is empty */

	/* Until its node exists or is given up: the cohort whose node goes in the same step */
	struct Cohort *replaces;
	struct Cohort *replaced_by; /* the other way round */

	/* Its node.  The name has no sequence in COHORT_CREATING. */
	char	   name[ZKLOCK_NODE_SIZE];
	char	   downgraded_name[ZKLOCK_NODE_SIZE]; /* COHORT_DOWNGRADING: of the new node */
	RecipePeer peer;							  /* what the name says */
	int64	   czxid;  /* of the node first created for the cohort */
	int		   grants; /* under this node */
	int64	   payer;  /* to whom it is charged: see entry_payer() */
	size_t	   bytes;  /* how many */
	bool	   listed; /* a listing on this connection has shown its name */

	/* Whether it stays when nobody needs it; kept.c */
	bool	   may_keep;   /* the name shows it */
	int64	   kept_since; /* ms; 0: it is not kept */
	dlist_node kept_link;

	/* The calls about it */
	int	  calls;		  /* all that are outstanding */
	int	  node_calls;	  /* that create, find, replace or delete its node: one at a time,
						  * except for a search */
	bool  refused;		  /* ZooKeeper has refused a call in this state ... */
	bool  refusal_logged; /* ... and that was logged */
	int64 retry_at;		  /* no further attempt before, ms */

	/* What answers and events have said, until cohort_advance() has acted on it */
	CohortEnd ended;
	Refusal	  refusal;		/* unless FAILURE_NONE, of those who wait in it */
	int		  no_path_code; /* COHORT_PLANNED: the code for want of the path, or 0 */
	bool	  sought; /* COHORT_CREATING: a search is over, and has not found the node ... */
	int		  list_error; /* ... since ZooKeeper does not show it, by this code; or 0 */
	bool  downgraded; /* the downgraded node is there, the other gone; nobody joins any more */
	int32 version;	  /* COHORT_DOWNGRADING: of its data, if they were written again, or
					   * ZK_ANY_VERSION */
	bool  identified; /* on this connection it was read, and it is the cohort's */
	bool  claim_gone; /* COHORT_DELETING: it is gone, but what it stands for may be there */

	/* Watches on its node, and on the contender for which it waits; watch.c */
	WatchState own_watch;
	int64	   own_watch_at;	  /* WATCH_REFUSED: try again then, ms */
	char	  *blocker;			  /* node being watched, or NULL */
	WatchState blocker_watch;	  /* WATCH_REFUSED: the path's children are watched instead */
	bool	   blocker_announces; /* WATCH_SET: the watch reports a downgrade */
};

struct Contender
{
	dlist_node	   link; /* in path->arrivals or cohort->queue */
	ContenderPlace place;
	Path		  *path;	  /* NULL in PLACE_NONE */
	Cohort		  *cohort;	  /* NULL in PLACE_NONE and PLACE_ARRIVED */
	int64		   next_list; /* number of the first listing sent since it arrived */
	uint64		   ticket;	  /* its entry's, when node.c began to look at a batch */
	int64		   came_at;	  /* when it was put into the arrivals, ms */
	Cohort *checked; /* whose node is being checked, perhaps for an earlier contender; or NULL */
	uint32 check_generation; /* of the entry then: if it has changed, the contender is gone */
	uint32 check_number;
	int64  gives_up; /* when it waits no more for a node that may be kept, ms; or 0 */
};

typedef struct Engine
{
	MemoryContext scratch;	  /* emptied after each round */
	HTAB		 *paths;	  /* of Path */
	HTAB		 *accounts;	  /* of Account */
	dlist_head	  marked;	  /* of Path, to be looked at in this round */
	Contender	 *contenders; /* by index of the entry */
	int64		  session_id;
	size_t		  chroot_len;
	size_t		  watch_bytes;		/* in watches set or asked for */
	size_t		  node_bytes;		/* in ephemeral nodes, except for ... */
	size_t		  kept_bytes;		/* ... those charged to nobody ... */
	size_t		  kept_watch_bytes; /* ... and of the child watches of these */
	int64		  resume_until;		/* while a new worker connects: a call that does not wait
							  * waits until then, ms; else NEVER */
	int	  uncommitted;	/* ZooKeeper's code for the check ahead of the last sync, or 0 */
	int64 sync_at;		/* after a refusal: when to sync again, ms; else NEVER */
	int	  refused_code; /* ZooKeeper's code if it refuses our credentials, or 0 */
	int64 retry_at;		/* when the next thing is tried again, ms, or NEVER */
	int64 overrun_us;	/* no holder's time is over before that, us */
} Engine;

/* A payer's share of the bytes of nodes */
typedef struct Account
{
	int64  payer; /* hash key: see entry_payer() */
	size_t bytes;
} Account;

/* Losses that one message reports; zero-initialised */
typedef struct Losses
{
	int			   count;
	StringInfoData lines; /* of those that are named */
} Losses;

extern Engine engine;

extern const Recipe *const engine_recipes[]; /* by RequestKind */

static inline int
entry_index(const Contender *c)
{
	return c - engine.contenders;
}

static inline Entry *
entry_of(const Contender *c)
{
	return entry_at(entry_index(c));
}

/* Return the oldest cohort of a path, and the next younger one, or NULL. */
static inline Cohort *
cohort_first(const Path *path)
{
	dlist_head *cohorts = unconstify(dlist_head *, &path->cohorts);

	return dlist_is_empty(cohorts) ? NULL : dlist_head_element(Cohort, link, cohorts);
}

static inline Cohort *
cohort_after(const Cohort *cohort)
{
	dlist_node *link = cohort->link.next;

	return link == &cohort->path->cohorts.head ? NULL : dlist_container(Cohort, link, link);
}

/* Return the first contender of a cohort's queue, and the one behind another, or NULL. */
static inline Contender *
cohort_head(const Cohort *cohort)
{
	dlist_head *queue = unconstify(dlist_head *, &cohort->queue);

	return dlist_is_empty(queue) ? NULL : dlist_head_element(Contender, link, queue);
}

static inline Contender *
contender_behind(const Contender *c)
{
	dlist_node *link = c->link.next;

	return link == &c->cohort->queue.head ? NULL : dlist_container(Contender, link, link);
}

/* Returns the session for which calls about an entry are made. */
static inline ZkOwner
entry_owner(const Entry *entry)
{
	return (ZkOwner){.pid = entry->request.pid, .role = entry->request.role};
}

/*
 * Returns to whom a node for an entry is charged: to its session, by pid, or to the role of a
 * reservation, as a negative number.
 */
static inline int64
entry_payer(const Entry *entry)
{
	if (entry->request.scope == LOCK_SCOPE_RESERVATION)
		return -(int64) entry->request.role;
	return entry->request.pid;
}

/* Returns true if the cohort's node is known to exist, by its full name. */
static inline bool
cohort_has_node(const Cohort *cohort)
{
	return cohort->state >= COHORT_CREATED && cohort->state <= COHORT_DELETING;
}

/* Returns the first of a cohort's queue, or its last owner if the queue is empty, or NULL. */
static inline Contender *
cohort_head_or_last_owner(const Cohort *cohort)
{
	return cohort_head(cohort) ? cohort_head(cohort) : cohort->last_owner;
}

/* Returns the session for which a cohort's calls are made, whose turn it is, or was last. */
static inline ZkOwner
cohort_owner(const Cohort *cohort)
{
	const Contender *c = cohort_head_or_last_owner(cohort);

	return c ? entry_owner(entry_of(c)) : (ZkOwner){.pid = ZK_WORKER};
}

/* Calls for the server's own entries belong to no session. */
StaticAssertDecl(ENTRY_SERVER_PID == ZK_WORKER, "the server's calls have no owner");

/* path.c */
extern bool	   engine_await(int64 at);
extern char	  *path_node(const Path *path, const char *name);
extern Path	  *path_find(const char *name);
extern void	   path_mark(Path *path);
extern Cohort *cohort_by_name(Path *path, const char *name);
extern bool	   cohort_owns(const Cohort *cohort, const NodeStat *stat);
extern void	   cohort_note_end(Cohort *cohort, CohortEnd how);
extern size_t  path_cost(const Path *path, const char *name);
extern void	   cohort_charge(Cohort *cohort, int64 payer);
extern void	   cohort_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler);
extern bool	   cohort_call_end(Cohort *cohort);
extern bool	   report_once(int level, const Path *path, const char *subject);
extern void	   report_losses_add(Losses *losses, const Contender *c);
extern char	  *report_losses_take(Losses *losses);

extern RecipeRequest contender_request(const Contender *c);
extern void			 contender_publish(Contender *c);
extern void			 contender_forget(Contender *c);
extern void			 contender_detach(Contender *c);
extern void			 contender_fail(Contender *c, Failure failure, int code);
extern void			 cohort_fail(Cohort *cohort, Failure failure, int code);
extern void			 contender_lose(Contender *c, LossReason reason);

/* kept.c */
extern void	 kept_visited(const Path *path);
extern bool	 kept_later(const Cohort *cohort);
extern void	 kept_end(Cohort *cohort, StatsCounter why);
extern bool	 kept_settle(Cohort *cohort);
extern bool	 kept_wait_for(Contender *c);
extern int64 kept_next_wakeup(void);
extern void	 kept_expire(void);

/* watch.c */
extern Failure path_has_room(const Path *path, const Entry *entry);
extern void	   watch_own_set(Cohort *cohort, WatchState state);
extern void	   watch_forget(Forget what);
extern void	   path_list(Path *path, ZkOwner owner, ListWatch watch);
extern void	   path_foreign_clear(Path *path);
extern void	   watch_child_give_up(Path *path);
extern void	   watch_blocker_give_up(Cohort *cohort, WatchState state);
extern bool	   cohort_confirm(Cohort *cohort, const ZkReply *reply);
extern void	   watch_own(Cohort *cohort);
extern bool	   watch_blocker(Cohort *cohort, const char *name);
extern void	   watch_for_orphans(const Cohort *cohort);
extern void	   watch_candidates(Path *path);
extern void	   contender_check(Contender *c);

/* parents.c */
extern void parents_missing(Cohort *cohort);
extern bool parents_create_ahead(Cohort *cohort);
extern bool parents_delete(Path *path);

/* node.c */
extern void path_pump_marked(void);

#endif /* ZKLOCK_ENGINE_INTERNAL_H */
