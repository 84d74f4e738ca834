/*
 * engine_internal.h
 *		What the files of the engine offer each other: cohorts and contenders, and the
 *		engine as a whole; paths_internal.h has paths.
 *
 * path.c explains the terms.  Each file calls only those before it:
 *
 *		accounts.c		accounts: paths, bytes, watches, outstanding calls
 *		contender.c		the steps in the life of one request
 *		report.c		messages in the log
 *		kept.c			nodes that are kept for a moment when nobody needs them
 *		cohort.c		the states of a node of ours
 *		listing.c		listings of a path's children
 *		parents.c		creating the missing levels of a path
 *		node.c			creating, finding and deleting a cohort's node
 *		downgrade.c		a shared node in place of an exclusive one
 *		watch.c			watches that report the end of a node
 *		peers.c			for whom a contender waits
 *		arrivals.c		who joins which cohort
 *		path.c			the decisions
 *		session.c		what survives the session, and an earlier worker
 *		round.c			the engine as the main loop sees it
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENGINE_INTERNAL_H
#define ZKLOCK_ENGINE_INTERNAL_H

#include "engine/paths_internal.h"
#include "lib/stringinfo.h"
#include "utils/hsearch.h"

/* Pause before a call that must succeed, but was refused, is repeated */
#define RETRY_MS 5000

/* A payer: a node that is kept is charged to nobody */
#define PAYER_NOBODY (-1)

/* Pause between two messages of a kind that a role can cause as often as it likes */
#define MESSAGE_PAUSE_MS 1000

/*
 * A cohort's life.  It stands for one attempt and one node name; cohort.c makes the steps.
 *
 *		PLANNED -> CREATING -> CREATED -> GRANTED -> DELETING -> GONE
 *		CREATING -> PLANNED					nothing was created
 *		GRANTED -> DOWNGRADING -> GRANTED
 *		CREATED, DOWNGRADING -> DELETING	nobody needs the node any more
 *		PLANNED, CREATING, CREATED, GRANTED, DOWNGRADING -> GONE
 *
 *	PLANNED			no node; the create is sent once the cohort before has its node
 *	CREATING		the create is sent, and right behind it a listing of the path; if
 *					the reply is lost, another listing shows whether the node exists
 *	CREATED			the node exists; the recipe says for whom the cohort waits
 *	GRANTED			it waits for nobody; contenders are granted from its queue
 *	DOWNGRADING		its node is being replaced by its downgraded node (downgrade.c)
 *	DELETING		nobody needs it; the delete is repeated until the node is gone
 *	GONE			taken off its path; freed when its last call is answered
 */
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

/* Why a cohort ends whose contenders have not left it: it has no node, or none any more */
typedef enum CohortEnd
{
	END_NOT_CREATED, /* nothing was created, and that is certain */
	END_EXPIRED,	 /* the node is gone with the session */
	END_DELETED,	 /* someone else has deleted the node */
	END_MISSING,	 /* the node is not there */
	END_NAME_REUSED	 /* another node has the name */
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
typedef void (*CohortStep)(Cohort *cohort);

struct Cohort
{
	dlist_node	  link; /* in path->cohorts, but for COHORT_GONE */
	Path		 *path;
	uint64		  id; /* order on the path, for a later worker */
	CohortState	  state;
	RecipeRequest request;	  /* the request for which its node stands */
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
	size_t	   bytes;  /* charged for it, once it may exist ... */
	int64	   payer;  /* ... to this payer, see entry_payer(), or PAYER_NOBODY */
	bool	   listed; /* a listing on this connection has shown its name */

	/* Whether it stays when nobody needs it; kept.c */
	bool	   may_keep;   /* the name shows it */
	int64	   kept_since; /* ms; 0: it is not kept */
	dlist_node kept_link;

	/* The calls about it */
	int			calls;		/* all that are outstanding */
	int			node_calls; /* that create, find, replace or delete its node: one at a time,
						  * except for a search */
	CohortStep	step;		/* what follows when the node has been read */
	int			list_error; /* COHORT_CREATING: ZooKeeper's code for not showing it, or 0 */
	CohortState refused_in; /* ZooKeeper has refused a call in this state ... */
	CohortState refusal_logged_in; /* ... and the refusal was logged */
	int64		retry_at;		   /* no further attempt before, ms */

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
	uint64		   ticket;	  /* its entry's, when round.c began to look at a batch */
	int64		   came_at;	  /* when it was put into the arrivals, ms */
	bool		   checking; /* a check of its node is under way, perhaps for an earlier one */
	int64		   gives_up; /* when it waits no more for a node that may be kept, ms; or 0 */
};

typedef struct Engine
{
	MemoryContext scratch;	  /* emptied after each round */
	HTAB		 *paths;	  /* of Path */
	dlist_head	  marked;	  /* of Path, to be looked at in this round */
	const Path	 *attended;	  /* the one being worked on, for the log; or NULL */
	Contender	 *contenders; /* by index of the entry */
	int64		  session_id;
	size_t		  chroot_len;
	size_t		  watch_bytes;	/* in watches set or asked for */
	size_t		  node_bytes;	/* in ephemeral nodes, except for ... */
	size_t		  kept_bytes;	/* ... those charged to nobody */
	int64		  resume_until; /* while a new worker connects: a call that does not wait
							  * waits until then, ms; else NEVER */
	bool		  synced;		/* what is read now is no older than the connection */
	int	  uncommitted;	/* ZooKeeper's code for the check ahead of the last sync, or 0 */
	int64 sync_at;		/* after a refusal: when to sync again, ms; else NEVER */
	int	  refused_code; /* ZooKeeper's code if it refuses our credentials, or 0 */
	int64 retry_at;		/* when the next thing is tried again, ms, or NEVER */
	int64 overrun_us;	/* no holder's time is over before that, us */
} Engine;

/* For whom a contender waits: a cohort of ours, another client's contender, or nobody */
typedef struct Blocker
{
	const Cohort		   *cohort;
	const ForeignContender *foreign;
	int position; /* among the peers that the recipe was given; 0: not known */
} Blocker;

/* Losses that one message reports */
typedef struct Losses
{
	int			   count;
	StringInfoData lines; /* of those that are named */
} Losses;

extern Engine engine;

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

/* Returns the state in the entry, which the backend may have changed meanwhile. */
static inline EntryState
contender_state(const Contender *c)
{
	return entry_status(entry_index(c)).state;
}

/* Returns true if both are of one session, which never waits for itself. */
static inline bool
contender_same_session(const Contender *a, const Contender *b)
{
	return entry_same_session(&entry_of(a)->request, &entry_of(b)->request);
}

/*
 * Return the oldest and youngest cohort of a path, and the next younger and older one, or
 * NULL.
 */
static inline Cohort *
cohort_first(const Path *path)
{
	dlist_head *cohorts = unconstify(dlist_head *, &path->cohorts);

	return dlist_is_empty(cohorts) ? NULL : dlist_head_element(Cohort, link, cohorts);
}

static inline Cohort *
cohort_last(const Path *path)
{
	dlist_head *cohorts = unconstify(dlist_head *, &path->cohorts);

	return dlist_is_empty(cohorts) ? NULL : dlist_tail_element(Cohort, link, cohorts);
}

static inline Cohort *
cohort_after(const Cohort *cohort)
{
	dlist_node *link = cohort->link.next;

	return link == &cohort->path->cohorts.head ? NULL : dlist_container(Cohort, link, link);
}

static inline Cohort *
cohort_before(const Cohort *cohort)
{
	dlist_node *link = cohort->link.prev;

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

static inline bool
cohort_is_empty(const Cohort *cohort)
{
	return cohort_head(cohort) == NULL;
}

static inline bool
cohort_is_kept(const Cohort *cohort)
{
	return cohort->kept_since != 0;
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

/* Returns the first of a cohort's queue, or its last owner if the queue is empty, or NULL. */
static inline Contender *
cohort_head_or_last_owner(const Cohort *cohort)
{
	return cohort_is_empty(cohort) ? cohort->last_owner : cohort_head(cohort);
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

/* accounts.c */
extern void accounts_start(void);
extern bool engine_retry_is_due(int64 at);
extern void cohort_charge(Cohort *cohort, int64 payer);
extern void cohort_refund(Cohort *cohort);
extern void cohort_pay(Cohort *cohort, int64 payer);
extern bool watch_is_needed(const Path *path, const char *child);
extern void watch_remove(const Path *path, const char *child);
extern void watch_own_set(Cohort *cohort, WatchState state);
extern void watch_blocker_set(Cohort *cohort, WatchState state);
extern void watch_blocker_give_up(Cohort *cohort, WatchState state);
extern void cohort_call_begin(Cohort *cohort);
extern bool cohort_call_end(Cohort *cohort);
extern void cohort_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler);
extern void cohort_node_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler);
extern bool cohort_node_call_end(Cohort *cohort);
extern bool cohort_refused(Cohort *cohort);

/* contender.c */
extern const Recipe *contender_recipe(const Contender *c);
extern RecipeRequest contender_request(const Contender *c);
extern void			 contender_publish(Contender *c);
extern void			 contender_arrive(Contender *c, Path *path);
extern void			 contender_forget(Contender *c);
extern void			 contender_detach(Contender *c);
extern void			 contender_fail(Contender *c, Failure failure, int code);
extern bool			 contender_lose(Contender *c, LossReason reason);
extern void			 contender_grant(Contender *c);
extern void			 contender_note_end(const Contender *c);
extern void			 contender_downgraded(Contender *c);
extern void			 contender_set_others_permits(Contender *c, int32 others_permits);
extern void			 contender_blocked_by(Contender *c, Blocker blocker);

/* report.c */
extern void		   report_deletion(const Cohort *cohort);
extern void		   report_losses_begin(Losses *losses);
extern void		   report_losses_add(Losses *losses, const Contender *c);
extern const char *report_losses_list(Losses *losses);
extern void		   report_overrun(const Contender *c);
extern void		   report_overruns(void);
extern int64	   report_next_wakeup(void);

/* kept.c */
extern void	 kept_visited(const Path *path);
extern void	 kept_children_changed(const Path *path);
extern bool	 kept_later(const Cohort *cohort);
extern void	 kept_end(Cohort *cohort);
extern bool	 kept_stays(Cohort *cohort);
extern void	 kept_resume(Cohort *cohort);
extern int64 kept_next_wakeup(void);
extern void	 kept_expire(void);
extern bool	 kept_may_go(Contender *c);

/* cohort.c */
extern Cohort *cohort_new(Path *path, uint64 id, const RecipeRequest *request);
extern void	   cohort_join(Cohort *cohort, Contender *c);
extern Cohort *cohort_by_name(Path *path, const char *name);
extern bool	   cohort_has_node(const Cohort *cohort);
extern bool	   cohort_is_wanted(const Cohort *cohort, const Contender *by_others_than);
extern bool	   cohort_consumes(const Cohort *cohort);
extern bool	   cohort_name_is_reusable(const Cohort *cohort);
extern bool	   cohort_has_downgraded_node(const Cohort *cohort);
extern bool	   cohort_owns(const Cohort *cohort, const NodeStat *stat);
extern Cohort *cohort_replaced_for(const Contender *c);
extern void	   cohort_replaces(Cohort *cohort, const Contender *c);
extern void	   cohort_fail(Cohort *cohort, Failure failure, int code);
extern void	   cohort_creating(Cohort *cohort);
extern void	   cohort_planned(Cohort *cohort);
extern void	   cohort_created(Cohort *cohort, const char *name, int64 czxid);
extern void	   cohort_adopted(Cohort *cohort, const char *name, int64 czxid, int64 payer);
extern void	   cohort_granted(Cohort *cohort);
extern void	   cohort_downgrading(Cohort *cohort);
extern void	   cohort_downgraded(Cohort *cohort);
extern void	   cohort_deleting(Cohort *cohort);
extern void	   cohort_gone(Cohort *cohort);
extern void	   cohort_end(Cohort *cohort, CohortEnd how);

/* parents.c */
extern void parents_missing(Cohort *cohort, int code);
extern bool parents_create_ahead(Cohort *cohort);

/* node.c */
extern void cohort_create(Cohort *cohort);
extern void cohort_find_node(Cohort *cohort);
extern bool cohort_is_hidden(const Cohort *cohort);
extern bool cohort_confirmed(Cohort *cohort, const ZkReply *reply);
extern void cohort_with_own_node(Cohort *cohort, CohortStep step);
extern void cohort_delete(Cohort *cohort);

/* downgrade.c */
extern bool cohort_wants_downgrade(const Cohort *cohort);
extern void cohort_downgrade_pump(Cohort *cohort);

/* watch.c */
extern bool watch_covers(const Cohort *cohort);
extern bool cohort_is_identified(const Cohort *cohort);
extern void watch_own(Cohort *cohort);
extern void watch_for_orphans(const Cohort *cohort);
extern void watch_blocker(Cohort *cohort, const char *name);
extern void contender_check(Contender *c);

/* peers.c */
extern Blocker		 cohort_blocker(const Cohort *cohort);
extern const Cohort *contender_own_blocker(Contender *c);
extern bool			 contender_is_blocked(Contender *c);
extern bool			 contender_is_outrun(const Contender *c);
extern bool			 contender_cannot_coexist(const Contender *c);

/* arrivals.c */
extern bool contender_has_looked(const Contender *c);

/* session.c */
extern void engine_adopt_entries(const int *indexes, int n);
extern void engine_session_synchronize(void);

#endif /* ZKLOCK_ENGINE_INTERNAL_H */
