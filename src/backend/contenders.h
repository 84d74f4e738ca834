/*
 * contenders.h
 *		Who holds and who waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CONTENDERS_H
#define ZKLOCK_CONTENDERS_H

#include "backend/call.h"
#include "recipes/recipe.h"
#include "shared/entry.h"

/* ------------------------------------------------------------------------
 * lock_view.c: as shared memory has it
 * ------------------------------------------------------------------------
 */

/* Those in use: by path, there by run, and in a run who holds, then who waits, in their order */
typedef struct LockView
{
	EntryCopy **entries; /* one that has overrun its time is CONTENDER_LOST */
	int			n;
} LockView;

/* For whom a process waits, as far as that is known.  The text belongs to the view. */
typedef struct LockBlocker
{
	int			pid;  /* of this server, or 0 */
	const char *node; /* of another client, or NULL */
} LockBlocker;

extern LockView	   lock_view_take(void);
extern LockView	   lock_view_of_path(const char *path);
extern const char *lock_view_path(const EntryCopy *entry);
extern LockBlocker lock_view_blocker(const LockView *view, const EntryCopy *entry);

/* ------------------------------------------------------------------------
 * contenders.c: as ZooKeeper has it
 * ------------------------------------------------------------------------
 */

/* Data that are longer are not read, bytes. */
#define CONTENDERS_MAX_DATA 8192

/* A contender's node */
typedef struct ContenderNode
{
	const char *name;
	RecipePeer	peer;  /* what the name tells */
	bool		holds; /* by its place in the queue, as far as that tells */
	CallResult	told;  /* of the node; nothing if there is no czxid */
	const char *data; /* of "text_length"; "" if there are none, or they are too long, or not for us */
} ContenderNode;

/* The contenders on a path, the first of them first */
typedef struct Contenders
{
	const char	  *path; /* UTF-8 */
	const Recipe  *recipe;
	ContenderNode *nodes;
	int			   n;
	bool permits_unknown; /* no lease tells how many permits there are: nor who holds */
} Contenders;

extern const EntryCopy *lock_view_of_node(const LockView *at_path, const ContenderNode *node);
extern CallStep contenders_read(Contenders *contenders, Call *call, int most, CallSight sight);
extern void		contenders_take_node(ContenderNode *node, const CallStep *read);
extern char	   *contenders_describe(const ContenderNode *node);

#endif /* ZKLOCK_CONTENDERS_H */
