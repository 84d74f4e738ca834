/*
 * paths_internal.h
 *		Paths: what the engine knows of each, and what its files offer for it.
 *
 * path.c explains the terms.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATHS_INTERNAL_H
#define ZKLOCK_PATHS_INTERNAL_H

#include "lib/ilist.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "zk/zk_client.h"

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

/* Whether a contender of another client that is gone may have been downgraded (downgrade.c) */
typedef enum DowngradeChance
{
	DOWNGRADE_IMPOSSIBLE, /* it has not */
	DOWNGRADE_POSSIBLE	  /* it may have */
} DowngradeChance;

/* Whether the path is in use for claims, which matters only if a listing shows data */
typedef enum PathUse
{
	PATH_USE_OPEN, /* no data, as far as is known */
	PATH_USE_ASKED,
	PATH_USE_OTHER /* the data are not those of a claim */
} PathUse;

/* A contender of another client */
typedef struct ForeignContender
{
	char	  *name;
	RecipePeer peer;
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
	bool	parents_pending; /* a call is outstanding */
	int		parents_attempts;
	size_t	missing_len;	 /* bytes of the path up to the level being tried */
	bool	descending;		 /* a level above that exists by now */
	size_t	created_from;	 /* bytes of the path to the first container created ... */
	size_t	created_to;		 /* ... and to the last, below which nothing was; 0: none */
	Failure parents_failure; /* why the creation was refused, if it was ... */
	int		parents_code;	 /* ... and ZooKeeper's code */
} Path;

/* accounts.c */
extern char	  *path_node(const Path *path, const char *name);
extern Path	  *path_get(const char *name, const Recipe *recipe);
extern Path	  *path_find(const char *name);
extern void	   path_mark(Path *path);
extern void	   path_mark_all(void);
extern void	   path_foreign_clear(Path *path);
extern void	   path_foreign_remove(Path *path, const char *name, DowngradeChance downgrade);
extern Failure path_has_room(const Path *path, const Entry *entry);
extern bool	   watch_exists(WatchState state);
extern bool	   watch_has_room(const Path *path, const char *node, const Entry *entry);
extern void	   watch_child_set(Path *path, WatchState state);
extern void	   watch_child_give_up(Path *path);

/* report.c */
extern void report_unrecognised(const Path *path, const char *child);
extern void report_sequence(const Path *path, int64 sequence, int64 limit);
extern void report_stale(const Path *path, const char *name, const ZkReply *reply);
extern void report_heedless(Path *path);
extern void report_unremoved(const Path *path, LossReason reason);

/* listing.c */
extern void path_list(Path *path, ZkOwner owner, ListWatch watch);

/* parents.c */
extern void parents_exist(Path *path);
extern bool parents_delete(Path *path);

/* arrivals.c */
extern void path_place_arrivals(Path *path);

/* path.c */
extern void path_pump_marked(void);

#endif /* ZKLOCK_PATHS_INTERNAL_H */
