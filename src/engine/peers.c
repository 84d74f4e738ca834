/*
 * peers.c
 *		For whom a contender waits, as the recipe says.
 *
 * The recipe decides.  These functions pass it the peers: other clients' nodes, as the last
 * listing shows them, and our own cohorts, which we know without one.  So the cohort behind
 * one of ours is granted the moment that is empty; the deletion of its node follows.  This can
 * delay other clients, but never admits one too early.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/* The peers that the recipe gets */
typedef enum PeerSet
{
	PEERS_OWN, /* cohorts of ours */
	PEERS_FOREIGN,
	PEERS_ALL
} PeerSet;

/*
 * Returns true if a contender of another session is in the cohort's queue, ahead of "c" if
 * that is in it, too.
 */
static bool
cohort_has_others(const Cohort *cohort, const Contender *c)
{
	for (Contender *other = cohort_head(cohort); other; other = contender_behind(other))
	{
		if (other == c)
			return false;
		if (!contender_same_session(other, c))
			return true;
	}
	return false;
}

/*
 * Returns true if the cohort is a peer of a contender, which may wait for it.  A node that is
 * not known to be the cohort's may be another client's, and counts no matter who is behind the
 * cohort.
 */
static bool
cohort_is_peer(const Cohort *cohort, const Contender *c)
{
	return cohort != c->cohort && cohort_has_node(cohort) &&
		   (cohort->path->recipe->blocker || cohort_has_others(cohort, c) ||
			!cohort_is_identified(cohort));
}

/* Asks the recipe, for a contender that has a node or would come last. */
static Blocker
find_blocker(Contender *c, const RecipeRequest *request, PeerSet set)
{
	const Path	  *path = c->path;
	const Cohort **cohorts;
	RecipePeer	  *peers;
	Blocker		   blocker = {.position = 1};
	int			   ncohorts = 0;
	int			   n = 0;
	int			   found;
	int32_t		   others_permits;

	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		ncohorts++;
	cohorts = palloc(Max(ncohorts, 1) * sizeof(Cohort *));
	peers = palloc(Max(ncohorts + path->nforeign, 1) * sizeof(RecipePeer));
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (set == PEERS_FOREIGN || !cohort_is_peer(cohort, c))
			continue;
		cohorts[n] = cohort;
		peers[n++] = cohort->peer;
	}
	ncohorts = n;
	for (int i = 0; set != PEERS_OWN && i < path->nforeign; i++)
		peers[n++] = path->foreign[i].peer;
	for (int i = 0; c->cohort && i < n; i++)
		blocker.position += peers[i].sequence < c->cohort->peer.sequence;

	found = recipe_blocker(path->recipe, peers, n, c->cohort ? &c->cohort->peer : NULL,
						   request, &others_permits);
	if (others_permits != 0 && set == PEERS_ALL)
		contender_set_others_permits(c, others_permits);
	if (found >= ncohorts)
		blocker.foreign = &path->foreign[found - ncohorts];
	else if (found != RECIPE_NOBODY)
		blocker.cohort = cohorts[found];
	pfree(cohorts);
	pfree(peers);
	return blocker;
}

/* Returns for whom a cohort's first contender waits; the cohort has its node and listing. */
Blocker
cohort_blocker(const Cohort *cohort)
{
	return find_blocker(cohort_head(cohort), &cohort->request, PEERS_ALL);
}

/*
 * Returns the cohort of ours for which a contender of a granted cohort waits: its own, if it
 * is not its turn, or an older one that did not stand in the way of those before it.  Returns
 * NULL if there is none, or if those in the cohort are granted together.
 */
const Cohort *
contender_own_blocker(Contender *c)
{
	const Recipe *recipe = c->path->recipe;

	if (recipe->excludes && !recipe->excludes(&c->cohort->peer, &c->cohort->request))
		return NULL;
	if (cohort_has_others(c->cohort, c))
		return c->cohort;
	return find_blocker(c, &c->cohort->request, PEERS_OWN).cohort;
}

/*
 * Returns true if a contender that has no cohort yet would have to wait, by what the last
 * listing showed.
 */
bool
contender_is_blocked(Contender *c)
{
	RecipeRequest request = contender_request(c);
	PeerSet		  set = c->path->recipe->blocker ? PEERS_ALL : PEERS_FOREIGN;
	Blocker		  blocker = find_blocker(c, &request, set);

	return blocker.cohort || blocker.foreign;
}

/*
 * Returns true if it would have to wait for sessions of this server, whatever they have so
 * far; where there is only one to get, for its own session as well.
 */
bool
contender_is_outrun(const Contender *c)
{
	const Recipe *recipe = c->path->recipe;
	RecipeRequest request = contender_request(c);

	if (recipe->excludes == NULL)
		return false;
	for (Cohort *cohort = cohort_first(c->path); cohort; cohort = cohort_after(cohort))
	{
		if (recipe->excludes(&cohort->peer, &request) &&
			cohort_is_wanted(cohort, recipe->fixed_name ? NULL : c))
			return true;
	}
	return false;
}

/* Returns true if it must not even have a node, by what the last listing showed. */
bool
contender_cannot_coexist(const Contender *c)
{
	const Path	 *path = c->path;
	RecipeRequest request = contender_request(c);

	for (int i = 0; path->recipe->cannot_coexist && i < path->nforeign; i++)
	{
		if (path->recipe->cannot_coexist(&path->foreign[i].peer, &request))
			return true;
	}
	return false;
}
