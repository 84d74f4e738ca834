/*
 * peers.c
 *		For whom a contender waits, as the recipe says.
 *
 * The recipe decides.  These functions pass it the peers: other clients' nodes, as the last
 * listing shows them, and our own runs, which we know without one.  So the run behind one of
 * ours is granted the moment that is empty; the deletion of its node follows.  This can
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
	PEERS_OWN, /* runs of ours */
	PEERS_FOREIGN,
	PEERS_ALL
} PeerSet;

/*
 * Returns true if a contender of another session is in the run's queue, ahead of "c" if that
 * is in it, too.
 */
static bool
run_has_others(const Run *run, const Contender *c)
{
	for (Contender *other = run_head(run); other; other = contender_behind(other))
	{
		if (other == c)
			return false;
		if (!contender_same_session(other, c))
			return true;
	}
	return false;
}

/*
 * Returns true if the run is a peer of a contender, which may wait for it.  A node that is not
 * known to be the run's may be another client's, and counts no matter who is behind the run.
 */
static bool
run_is_peer(const Run *run, const Contender *c)
{
	return run != c->run && run_has_node(run) &&
		   (run->path->recipe->blocker || run_has_others(run, c) || !run_is_identified(run));
}

/* Asks the recipe, for a contender that has a node or would come last. */
static Blocker
find_blocker(Contender *c, const RecipeRequest *request, PeerSet set)
{
	const Path *path = c->path;
	const Run **runs;
	RecipePeer *peers;
	Blocker		blocker = {.position = 1};
	int			nruns = 0;
	int			n = 0;
	int			found;
	int32_t		remark;

	for (const Run *run = run_first(path); run; run = run_after(run))
		nruns++;
	runs = palloc(Max(nruns, 1) * sizeof(Run *));
	peers = palloc(Max(nruns + path->nforeign, 1) * sizeof(RecipePeer));
	for (const Run *run = run_first(path); run; run = run_after(run))
	{
		if (set == PEERS_FOREIGN || !run_is_peer(run, c))
			continue;
		runs[n] = run;
		peers[n++] = run->peer;
	}
	nruns = n;
	for (int i = 0; set != PEERS_OWN && i < path->nforeign; i++)
		peers[n++] = path->foreign[i].peer;
	for (int i = 0; c->run && i < n; i++)
		blocker.position += peers[i].sequence < c->run->peer.sequence;

	found = recipe_blocker(path->recipe, peers, n, c->run ? &c->run->peer : NULL, request, &remark);
	if (remark != 0 && set == PEERS_ALL)
		contender_remark(c, remark);
	if (found >= nruns)
		blocker.foreigner = &path->foreign[found - nruns];
	else if (found != RECIPE_NOBODY)
		blocker.run = runs[found];
	pfree(runs);
	pfree(peers);
	return blocker;
}

/* Returns for whom a run's first contender waits; the run has its node and listing. */
Blocker
run_blocker(const Run *run)
{
	return find_blocker(run_head(run), &run->request, PEERS_ALL);
}

/*
 * Returns the run of ours for which a contender of a granted run waits: its own, if it is not
 * its turn, or an older one that did not stand in the way of those before it.  Returns NULL if
 * there is none, or if those in the run are granted together.
 */
const Run *
contender_own_blocker(Contender *c)
{
	const Recipe *recipe = c->path->recipe;

	if (recipe->excludes && !recipe->excludes(&c->run->peer, &c->run->request))
		return NULL;
	if (run_has_others(c->run, c))
		return c->run;
	return find_blocker(c, &c->run->request, PEERS_OWN).run;
}

/*
 * Returns true if a contender that has no run yet would have to wait, by what the last listing
 * showed.
 */
bool
contender_is_blocked(Contender *c)
{
	RecipeRequest request = contender_request(c);
	PeerSet		  set = c->path->recipe->blocker ? PEERS_ALL : PEERS_FOREIGN;
	Blocker		  blocker = find_blocker(c, &request, set);

	return blocker.run || blocker.foreigner;
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
	for (Run *run = run_first(c->path); run; run = run_after(run))
	{
		if (recipe->excludes(&run->peer, &request) && run_is_wanted(run, recipe->single ? NULL : c))
			return true;
	}
	return false;
}

/* Returns true if it must not even have a node, by what the last listing showed. */
bool
contender_is_barred(const Contender *c)
{
	const Path	 *path = c->path;
	RecipeRequest request = contender_request(c);

	for (int i = 0; path->recipe->bars && i < path->nforeign; i++)
	{
		if (path->recipe->bars(&path->foreign[i].peer, &request))
			return true;
	}
	return false;
}
