/*
 * view.h
 *		The holders and waiters on paths, for views and messages.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_VIEW_H
#define ZKLOCK_VIEW_H

#include "backend/call.h"
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
	CallStep	   answer; /* the listing, or the first step whose answer is missing */
	ContenderNode *nodes;
	int			   n;
	int			   nread; /* of these, the first ones, whose nodes have been read */
	bool permits_unknown; /* no lease says how many permits there are, nor who holds */
} Contenders;

/* Whose node it is, as far as is known; texts are in the database's encoding, or NULL */
typedef struct ContenderOwner
{
	bool		is_zklock; /* it has data as zklock writes them */
	const char *server;	   /* a database server */
	int			pid;	   /* of its process; or 0 */
	const char *user;
	const char *application;
	const char *other; /* "reservation", with its end if this server has it; or data of others */
} ContenderOwner;

extern const EntryCopy *lock_view_of_node(const LockView *view, const char *path,
										  const ContenderNode *node);
extern void contenders_sort(Contenders *contenders, const Recipe *recipe, const CallStep *listed);
extern CallStep contenders_read_nodes(Contenders *queues, int nqueues, Caller *caller, int most);
extern Contenders	  contenders_read(const char *path, const Recipe *recipe, Caller *caller,
									  int most, CallSight sight);
extern ContenderOwner contenders_owner(const ContenderNode *node, const EntryCopy *entry);
extern char			 *contenders_describe(const ContenderNode *node);

#endif /* ZKLOCK_VIEW_H */
