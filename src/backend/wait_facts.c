/*
 * wait_facts.c
 *		Deadlocks across servers: what ZooKeeper knows of waits that seem to be stuck.
 *
 * ZooKeeper is asked whether the nodes that the suspects name exist and are of the
 * session that has written the record, and what else is on the paths where they wait.
 * So a forged record can claim no more than what its own session has in the way of
 * others.  Other clients count as what they are: they block, and what is not known to
 * be kept goes.
 *
 * Runs in: backends, in the one that searches for all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/waits.h"

/* So much is asked of ZooKeeper for one search. */
#define MAX_FACTS 500

/* What is known of a path; NULL if nothing was asked. */
const PathFact *
wait_facts_of_path(const Search *search, const char *path)
{
	for (int i = 0; i < search->npaths; i++)
	{
		if (strcmp(search->paths[i].path, path) == 0)
			return &search->paths[i];
	}
	return NULL;
}

/* Does a record tell of a wait with that node? */
static bool
is_told(const Search *search, const char *path, const char *name)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		if (node && node->is_so && strcmp(node->line->path, path) == 0 &&
			strcmp(node->line->node, name) == 0)
			return true;
	}
	return false;
}

/* Finds the exclusive nodes on a path of which no record tells. */
static void
find_strangers(const Search *search, PathFact *fact)
{
	fact->strangers = palloc((fact->nchildren + 1) * sizeof(int64));
	for (int i = 0; i < fact->nchildren; i++)
	{
		RecipePeer peer;

		if (lock_recipe.read(fact->children[i], &peer) && peer.mode == LOCK_MODE_EXCLUSIVE &&
			!is_told(search, fact->path, fact->children[i]))
			fact->strangers[fact->nstrangers++] = peer.sequence;
	}
}

/* Does a stranger stand between two nodes?  Without facts, one may. */
bool
wait_facts_stranger_between(const Search *search, const KeptNode *older, const KeptNode *younger)
{
	const PathFact *fact = wait_facts_of_path(search, younger->line->path);

	for (int i = 0; fact && i < fact->nstrangers; i++)
	{
		if (fact->strangers[i] > older->peer.sequence && fact->strangers[i] < younger->peer.sequence)
			return true;
	}
	return !search->has_facts;
}

/* Finds out on which paths suspects wait. */
static void
find_paths(Search *search, const bool *suspects)
{
	search->paths = palloc(MAX_FACTS * sizeof(PathFact));
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		if (suspects[i] && node && search->npaths < MAX_FACTS &&
			wait_facts_of_path(search, node->line->path) == NULL)
			search->paths[search->npaths++] = (PathFact){.path = node->line->path};
	}
}

/*
 * Finds the nodes to be asked about, as many as "max": those with which suspects wait,
 * and those which suspects hold where suspects wait.  Nothing of the others is taken for
 * granted any more.  Returns how many there are.
 */
static int
find_nodes(Search *search, const bool *suspects, KeptNode **nodes, int max)
{
	int n = 0;

	for (int held = false; held <= true; held++)
	{
		for (int i = 0; i < search->nkept; i++)
		{
			KeptNode *kept = &search->kept[i];

			if (kept->held != held)
				continue;
			kept->is_so = false;
			if (n < max && suspects[kept->wait] && wait_facts_of_path(search, kept->line->path))
				nodes[n++] = kept;
		}
	}
	return n;
}

/* Asks for the facts about suspects, by wait.  Returns false if they are not to be had now. */
bool
wait_facts_ask(SearchRound *round, Search *search, const bool *suspects)
{
	CallStep  *steps = palloc0(MAX_FACTS * sizeof(CallStep));
	KeptNode **nodes = palloc(MAX_FACTS * sizeof(KeptNode *));
	int		   n = 0;
	int		   nnodes;

	find_paths(search, suspects);
	nnodes = find_nodes(search, suspects, nodes, MAX_FACTS - search->npaths);
	for (int i = 0; i < search->npaths; i++)
		steps[n++] = (CallStep){.kind = OP_LIST, .path = search->paths[i].path};
	for (int i = 0; i < nnodes; i++)
		steps[n++] =
			(CallStep){.kind = OP_LOOK,
					   .path = psprintf("%s/%s", nodes[i]->line->path, nodes[i]->line->node)};
	if (!wait_search_make_calls(round, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < nnodes; i++)
	{
		const CallResult *result = &steps[search->npaths + i].result;

		nodes[i]->is_so = result->outcome == CALL_OK &&
						  result->stat.ephemeral_owner == search->waits[nodes[i]->wait].record->owner;
		nodes[i]->czxid = result->stat.czxid;
	}
	for (int i = 0; i < search->npaths; i++)
	{
		search->paths[i].children = steps[i].children;
		search->paths[i].nchildren = steps[i].result.nchildren;
		find_strangers(search, &search->paths[i]);
	}
	search->has_facts = true;
	return true;
}
