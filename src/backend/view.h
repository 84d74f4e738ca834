/*
 * view.h
 *		The holders and waiters on paths, for views and messages.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_VIEW_H
#define ZKLOCK_VIEW_H

#include "backend/call.h"
#include "recipes/recipe.h"
#include "shared/entry.h"

/* ------------------------------------------------------------------------
 * Those of this server, as shared memory has them
 * ------------------------------------------------------------------------
 */

/*
 * The entries in use, ordered by path, there by cohort, and in a cohort the holders first,
 * then those that wait, in their order
 */
typedef struct LockView
{
	EntryCopy **entries; /* an entry that has overrun its time is ENTRY_LOST, and a reservation
						  * has no pid */
	int			n;
} LockView;

/* Whom a process waits for, as far as that is known.  The text belongs to the view. */
typedef struct LockBlocker
{
	int			pid;  /* of this server, or 0 */
	const char *node; /* of another client, or of a reservation; or NULL */
} LockBlocker;

extern LockView	   lock_view_take(const char *path, bool with_kept);
extern LockView	   lock_view_at(const LockView *all, const char *path);
extern const char *lock_view_path(const EntryCopy *entry);
extern LockBlocker lock_view_blocker(const LockView *view, const EntryCopy *entry);

/* ------------------------------------------------------------------------
 * Those of all clients, as ZooKeeper has them
 * ------------------------------------------------------------------------
 */

/* Longer data are not read, bytes. */
#define CONTENDERS_MAX_DATA 8192

/* A contender's node */
typedef struct ContenderNode
{
	const char *name;
	RecipePeer	peer;	/* what the name says */
	bool		holds;	/* by its place in the queue, as far as that is known */
	CallResult	answer; /* what ZooKeeper has answered; nothing if there is no czxid */
	const char *data;	/* of "text_length"; "" if none, too long, or not readable for us */
} ContenderNode;

/* The contenders on a path, in the order of the queue */
typedef struct Contenders
{
	const char	  *path; /* UTF-8 */
	const Recipe  *recipe;
	ContenderNode *nodes;
	int			   n;
	int			   nread; /* of these, the first ones, whose nodes have been read */
	bool permits_unknown; /* no lease says how many permits there are, nor who holds */
} Contenders;

extern const EntryCopy *lock_view_of_node(const LockView *at_path, const ContenderNode *node);
extern void				contenders_sort(Contenders *contenders, const CallStep *listed);
extern CallStep contenders_read_nodes(Contenders *queues, int nqueues, Caller *caller, int most);
extern CallStep contenders_read(Contenders *contenders, Caller *call, int most, CallSight sight);
extern const char *contenders_reservation(const ContenderNode *node, const EntryCopy *entry,
										  NodeContender *data);
extern char		  *contenders_describe(const ContenderNode *node);

#endif /* ZKLOCK_VIEW_H */
