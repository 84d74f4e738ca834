/*
 * run_pump.c
 *		For whom a run waits, whom it grants, and what comes next for it.
 *
 * The recipe decides for whom a contender waits; here it is told of the peers:
 * other clients' nodes, as the last listing shows them, and our own runs, of
 * which we know ourselves.  So the run behind one of ours is granted the moment
 * that is empty; the deletion of its node follows.  This can delay other
 * clients, but never admits one too early.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/contender.h"
#include "queue/downgrade.h"
#include "queue/listing.h"
#include "queue/path_use.h"
#include "queue/probe.h"
#include "queue/replace.h"
#include "queue/run.h"
#include "queue/run_calls.h"
#include "queue/run_pump.h"
#include "queue/watch.h"
#include "shared/lease_state.h"

/* The peers of one contender, and what each of them is. */
typedef struct Peers
{
	int				  n;
	RecipePeer		 *peers;
	const Run		**runs;		  /* NULL for another client's */
	const Foreigner **foreigners; /* NULL for a run of ours */
} Peers;

/* Which runs of ours are among them. */
typedef enum PeerSet
{
	PEERS_OWN,
	PEERS_FOREIGN,
	PEERS_ALL
} PeerSet;

/*
 * Is a contender of another session in the run's queue, ahead of "c" if that
 * is in it too?
 */
static bool
run_has_others(const Run *run, const Contender *c)
{
	dlist_iter iter;

	dlist_foreach (iter, unconstify(dlist_head *, &run->queue))
	{
		Contender *other = dlist_container(Contender, link, iter.cur);

		if (other == c)
			return false;
		if (!contender_same_session(other, c))
			return true;
	}
	return false;
}

/* Gathers them.  The arrays are those of the call before. */
static Peers
gather_peers(const Contender *c, PeerSet set)
{
	static Peers gathered;
	static int	 allocated = 0;

	Path	  *path = c->path;
	dlist_iter iter;
	int		   most = path->nforeign;

	dlist_foreach (iter, &path->runs)
		most++;
	if (most > allocated)
	{
		allocated = Max(most, 64);
		if (gathered.peers)
		{
			pfree(gathered.peers);
			pfree(gathered.runs);
			pfree(gathered.foreigners);
		}
		gathered.peers = palloc(allocated * sizeof(RecipePeer));
		gathered.runs = palloc(allocated * sizeof(Run *));
		gathered.foreigners = palloc(allocated * sizeof(Foreigner *));
	}

	gathered.n = 0;
	dlist_foreach (iter, &path->runs)
	{
		const Run *run = dlist_container(Run, link, iter.cur);

		if (set == PEERS_FOREIGN || run == c->run || !run_has_node(run) ||
			(path->recipe->own_session == RECIPE_OWN_SESSION_PASSES && !run_has_others(run, c)))
			continue;
		gathered.peers[gathered.n] = run->peer;
		gathered.runs[gathered.n] = run;
		gathered.foreigners[gathered.n++] = NULL;
	}
	for (int i = 0; set != PEERS_OWN && i < path->nforeign; i++)
	{
		gathered.peers[gathered.n] = path->foreign[i].peer;
		gathered.runs[gathered.n] = NULL;
		gathered.foreigners[gathered.n++] = &path->foreign[i];
	}
	return gathered;
}

/*
 * Would a contender that has no run yet have to wait, by what the last listing
 * showed?
 */
bool
contender_is_blocked(Contender *c)
{
	const Recipe *recipe = c->path->recipe;
	RecipeRequest request = contender_request(c);
	Peers		  peers =
		gather_peers(c, recipe->own_session == RECIPE_OWN_SESSION_COUNTS ? PEERS_ALL : PEERS_FOREIGN);
	int32_t remark;
	int		blocker = recipe->blocker(peers.peers, peers.n, NULL, &request, &remark);

	if (remark != 0)
		contender_remark(c, remark);
	return blocker != RECIPE_NOBODY;
}

/* Would it have to wait for sessions of this server, whatever they have so far? */
bool
contender_is_outrun(const Contender *c)
{
	const Recipe *recipe = c->path->recipe;
	RecipeRequest request = contender_request(c);
	dlist_iter	  iter;

	if (recipe->excludes == NULL)
		return false;
	dlist_foreach (iter, &c->path->runs)
	{
		Run *run = dlist_container(Run, link, iter.cur);

		if (recipe->excludes(&run->peer, &request) && run_is_wanted(run, c))
			return true;
	}
	return false;
}

/* Must it not so much as have a node, by what the last listing showed? */
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

/* Sees to it that the run's listing comes. */
static void
run_list(Run *run)
{
	Path *path = run->path;

	if (path->lists_sent == path->lists_done)
		path_list(path, run_owner(run), run->closed ? LIST_ONLY : LIST_AND_WATCH);
}

/* Has the run look again when that for which it waits has changed. */
static void
run_watch(Run *run, const Foreigner *foreigner)
{
	Path *path = run->path;

	if (path->recipe->watch == RECIPE_WATCH_BLOCKER)
	{
		/* What becomes of our own runs we know. */
		if (foreigner)
			watch_blocker(run, foreigner->name);
	}
	else if (path->child_watch == WATCH_NONE)
		path_list(path, run_owner(run), LIST_AND_WATCH);
}

/* How many contenders, runs of ours counted as one each, came before a run? */
static int
count_older(const Run *run)
{
	const Path *path = run->path;
	dlist_iter	iter;
	int			n = 0;

	dlist_foreach (iter, unconstify(dlist_head *, &path->runs))
	{
		const Run *other = dlist_container(Run, link, iter.cur);

		n += other != run && run_has_node(other) && other->peer.sequence < run->peer.sequence;
	}
	for (int i = 0; i < path->nforeign; i++)
		n += path->foreign[i].peer.sequence < run->peer.sequence;
	return n;
}

/* Decides whether a run that has its node and listing must wait, and for whom. */
static void
run_evaluate(Run *run)
{
	Contender		  *head = run_head(run);
	Peers			   peers = gather_peers(head, PEERS_ALL);
	int32_t			   remark;
	dlist_mutable_iter iter;
	int				   blocker =
		run->path->recipe->blocker(peers.peers, peers.n, &run->peer, &run->request, &remark);

	if (remark != 0)
		contender_remark(head, remark);
	if (blocker != RECIPE_NOBODY && peers.foreigners[blocker] && ZKLOCK_FAULT("grant-early"))
		blocker = RECIPE_NOBODY;
	if (blocker == RECIPE_NOBODY)
	{
		run_granted(run);
		return;
	}

	/* Another client's contender may have left a successor: look again. */
	if (peers.foreigners[blocker] && peers.foreigners[blocker]->name == NULL)
	{
		run->listed = false;
		run_list(run);
		return;
	}

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (entry_of(c)->request.nowait)
			contender_fail(c, FAILURE_BUSY, 0);
	}
	if (dlist_is_empty(&run->queue))
		return;
	contender_blocked_by(run_head(run), peers.runs[blocker],
						 peers.foreigners[blocker] ? peers.foreigners[blocker]->name : NULL);
	contender_place(run_head(run), 1 + count_older(run));
	run_watch(run, peers.foreigners[blocker]);
}

/*
 * The run of ours for which a contender of a granted run waits: its own, if it
 * is not its turn, or an older one that did not stand in the way of those
 * before it.  NULL if there is none.
 */
static const Run *
contender_own_blocker(const Contender *c)
{
	Run	   *run = c->run;
	int32_t remark;
	Peers	peers;
	int		blocker;

	if (run_has_others(run, c))
		return run;
	peers = gather_peers(c, PEERS_OWN);
	blocker = run->path->recipe->blocker(peers.peers, peers.n, &run->peer, &run->request, &remark);
	return blocker == RECIPE_NOBODY ? NULL : peers.runs[blocker];
}

/* Grants those of a granted run whose turn it is. */
static void
run_grant(Run *run)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &run->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_GRANTED)
			continue;
		if (!run_shares(run))
		{
			const Run *own = contender_own_blocker(c);

			if (own)
			{
				contender_blocked_by(c, own, NULL);
				break;
			}
		}
		if (!contender_grant(c))
			contender_detach(c); /* it gave up while this was under way */
	}
}

/* The contenders behind the run's node: what comes next for them? */
static void
run_serve(Run *run)
{
	if (run_wants_downgrade(run) && run_is_wanted(run, NULL))
	{
		RecipeRequest request = contender_request(run_head(run));

		run_downgrading(run, &request);
	}
	if (run->state == RUN_DOWNGRADING)
	{
		run_downgrade_pump(run);
		return;
	}
	if (!run->listed && run_head(run)->place != PLACE_GRANTED)
	{
		run_list(run);
		return;
	}
	if (run->state == RUN_CREATED && path_use_is_known(run->path))
		run_evaluate(run);
	watch_own(run);
	if (run->state == RUN_GRANTED && watch_covers(run) && lease_state() == LEASE_HOLDS)
		run_grant(run);
}

/* Does what comes next for a run.  The run may be freed. */
void
run_pump(Run *run)
{
	Run *before = run_before(run);

	if (run->state == RUN_PLANNED)
	{
		if (dlist_is_empty(&run->queue))
			run_finish(run);
		else if (run->path->parents_pending == 0 && (before == NULL || run_has_node(before)))
		{
			if (run->replaces)
				run_replace(run);
			else
				run_create(run);
		}
		return;
	}
	if (run->state == RUN_UNKNOWN)
	{
		if (run->node_call == NODE_CALL_NONE && engine_retry_is_due(run->retry_at))
			run_probe(run);
		return;
	}
	if (run->state == RUN_CREATING)
		return;

	if (!dlist_is_empty(&run->queue))
		run_serve(run);
	if (dlist_is_empty(&run->queue) && run->state < RUN_DELETING_HEIR)
		run_abandoned(run);
	if (run->state >= RUN_DELETING_HEIR)
	{
		if (run->replaced_by)
			return; /* its node goes with the creation of the other */
		if (run->node_call == NODE_CALL_NONE && engine_retry_is_due(run->retry_at))
			run_delete(run);

		/* A session that may not delete a node is not told that it is gone. */
		if (run->refused_in == run->state)
			watch_own(run);
	}
}
