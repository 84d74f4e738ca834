/*-------------------------------------------------------------------------
 *
 * recipe.h
 *	  What the engine asks of a recipe.
 *
 * Clients that wait for one another in ZooKeeper create sequential nodes below a common path;
 * each lists the path's children, and looks at those before its own.  The engine (src/engine)
 * does that much, and grants whoever waits for nobody.  A recipe says the rest: how its nodes
 * are named, what a child's name means, for whom a contender waits, and which contenders of
 * one server can stand behind one node.  A blocker that it overlooks is a second holder.
 *
 * src/README says what a new recipe takes.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECIPE_H
#define ZKLOCK_RECIPE_H

#include "recipes/node_name.h"

/*
 * Kinds of names that candidates of an election have; clients of one family wait for each
 * other.
 */
typedef enum ElectionFamily
{
	ELECTION_LATCH,	  /* Curator's LeaderLatch */
	ELECTION_SUPPORT, /* ZooKeeper's LeaderElectionSupport */
	ELECTION_LOCK	  /* clients that lead while they hold a lock: Curator's LeaderSelector,
				   * kazoo's Election */
} ElectionFamily;

/* A contender's request.  A recipe reads the members that concern it. */
typedef struct RecipeRequest
{
	LockMode	   mode;
	NodeDialect	   dialect; /* the client library whose names its node has */
	int32_t		   permits; /* how many the semaphore has, in its owner's opinion */
	ElectionFamily family;	/* whose names a candidate has; for ELECTION_LOCK, dialect counts
							* too */
} RecipeRequest;

/* A contender, as the name of its node describes it */
typedef struct RecipePeer
{
	int64_t	 sequence;	  /* in the range of a 32-bit signed integer */
	bool	 numbered;	  /* it has a sequence; the recipe says what follows if not */
	bool	 may_be_kept; /* its server may keep the node for a moment when nobody needs it */
	LockMode mode;
	NodeDialect dialect;   /* of a lock: the one to write for all clients with such names */
	int32_t		permits;   /* the semaphore's in its owner's opinion, 0 if the name has none */
	ElectionFamily family; /* of a candidate */
} RecipePeer;

/* The result of blocker() for a contender that waits for nobody */
#define RECIPE_NOBODY (-1)

/* A client that does not wait for ours, as an administrator should see it */
typedef struct RecipeHeedless
{
	const char *ours;	/* the dialect that we write */
	const char *theirs; /* the dialect of its name */
	const char *remedy; /* what else helps than to write theirs, as the end of a
						 * sentence; NULL if nothing */
} RecipeHeedless;

/* ------------------------------------------------------------------------
 * A recipe
 * ------------------------------------------------------------------------
 */

/*
 * A recipe says by one of two functions for whom a contender waits:
 *
 *	excludes	judges one peer: a contender waits for the youngest older one that keeps it
 *				out.  It watches that one alone, and what its own session holds is not in
 *				its way.
 *	blocker		judges all peers at once, as their number may decide.  Any change below
 *				the path is a reason to look again, and its own session counts like any
 *				other.
 *
 * read, write, and either of these are required; any other function may be NULL, which means
 * "no".
 */
typedef struct Recipe
{
	const char *name; /* for messages */

	/*
	 * True if there is at most one node, whose name has no sequence.  A contender is refused
	 * while another client has it; the path is neither created nor listed first.
	 */
	bool fixed_name;

	/*
	 * Reads the name of a child of the path.  Returns false if the child has
	 * nothing to do with this recipe.
	 */
	bool (*read)(const char *child, RecipePeer *peer);

	/*
	 * Writes all of a new node's name but the sequence into dst.  A buffer of
	 * ZKLOCK_MAX_NODE_NAME + 1 bytes has room for the sequence too.
	 */
	void (*write)(char *dst, size_t size, const RecipeRequest *request,
				  const uint8_t uuid[ZKLOCK_UUID_BYTES]);

	/*
	 * Returns true if a peer by itself keeps out a contender that comes after it.  Contenders
	 * behind one node that do not keep each other out are granted all together.
	 */
	bool (*excludes)(const RecipePeer *peer, const RecipeRequest *request);

	/* Returns for whom a contender waits.  See recipe_blocker(). */
	int (*blocker)(const RecipePeer *peers, int n, const RecipePeer *self,
				   const RecipeRequest *request, int32_t *others_permits);

	/*
	 * Returns true if a contender must not even have a node beside a peer.  The engine then
	 * looks at the path before it creates a node.
	 */
	bool (*cannot_coexist)(const RecipePeer *peer, const RecipeRequest *request);

	/*
	 * Returns true if another node can get the name of its node when the path is deleted and
	 * created again.
	 */
	bool (*name_is_reusable)(const RecipeRequest *request);

	/*
	 * Returns true if the client that has a child of that name does not wait for contenders
	 * of ours that asked with "request", so that both may hold at the same time.
	 */
	bool (*heedless)(const char *child, const RecipeRequest *request, RecipeHeedless *why);

	/*
	 * Returns true if a contender may join those behind a node that was asked for with "node".
	 */
	bool (*may_join)(const RecipeRequest *node, const RecipeRequest *request);

	/*
	 * Writes the name of the shared node that replaces an exclusive one, "name", when its only
	 * contender downgrades to "request".  Returns false if there is none, or no room for it.
	 */
	bool (*downgraded_name)(char *dst, size_t size, const char *name, const RecipeRequest *request);
} Recipe;

/* ------------------------------------------------------------------------
 * What the recipes of recipe.c offer
 * ------------------------------------------------------------------------
 */

/* Below a semaphore's path, as Curator has it */
#define PERMIT_TURNS "/locks"
#define PERMIT_LEASES "/leases"

/* The names of the families in settings and views, with a NULL behind the last */
extern const char *const election_family_names[];

extern const Recipe lock_recipe;   /* exclusive and shared locks */
extern const Recipe permit_recipe; /* the permits of a semaphore */
extern const Recipe election_recipe;
extern const Recipe element_recipe; /* an element of a queue, which a transaction takes */

/* The names of lock nodes; node_name.c */
extern bool node_name_parse(const char *name, RecipePeer *parsed);
extern void node_name_prefix(char *dst, size_t size, const RecipeRequest *request,
							 const uint8_t uuid[ZKLOCK_UUID_BYTES]);
extern bool node_name_downgraded(char *dst, size_t size, const char *name, const RecipeRequest *request);

extern bool recipe_shows_election(const char *child);

/* The highest priority of a candidate; who tells none has 0 */
#define ELECTION_PRIORITY_MAX 1000

extern void recipe_data_write(char *dst, size_t size, const char *name, int priority);
extern int	recipe_data_read(const char *data, size_t *name_len);

/* The contenders on a path in the order of their queue; who waits for whom */
typedef struct RecipeQueued
{
	const char *name; /* of the node */
	RecipePeer	peer;
	int64_t		place; /* private to recipe.c */
} RecipeQueued;

extern int64_t recipe_age(const RecipePeer *peer, const RecipePeer *than);
extern int recipe_queue(const Recipe *recipe, char *const *children, int n, RecipeQueued *queue);
extern int recipe_blocker(const Recipe *recipe, const RecipePeer *peers, int n, const RecipePeer *self,
						  const RecipeRequest *request, int32_t *others_permits);
extern void recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n,
						   int32_t permits, bool *holds);

#endif /* ZKLOCK_RECIPE_H */
