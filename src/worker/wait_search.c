/*
 * wait_search.c
 *		Deadlocks across servers: what the records of all of them tell together.
 *
 * The graph has a vertex for each wait of each record.  Such a wait keeps the nodes
 * that it names as held from going.  It waits itself for those that keep older nodes
 * on the path of its own:
 *
 *	wait -> wait			a lock: the other keeps an older node that conflicts
 *	wait -> permit			a permit: it needs some of the older nodes to go
 *	permit -> node			each of these
 *	node -> wait			who keeps it; none if nobody is known to
 *
 * A node of the same server that conflicts is that server's own business: it finds
 * such a cycle itself (backend/deadlock.c).  Older nodes that wait on the path are in
 * the way like those that are held.  A shared node that does not conflict, or one of
 * the same process, is in the way if an exclusive one stands between that is of no
 * wait that is told, such as another client's: that waits for the older and keeps
 * back the younger.
 *
 * Records are claims.  A first look takes them as they are, and supposes what they do
 * not tell to be for the worse: it finds the suspects, mostly none.  Only for these
 * ZooKeeper is asked whether the nodes that they name exist and are of the session
 * that has written the record, and what else is on their paths.  The second look
 * goes by these facts, and leaves out what is not so.  So a forged record can claim
 * no more than what its own session has in the way of others, and other clients
 * count as what they are: they block, and what is not known to be kept goes.
 *
 * Waits have an order, by the age of their nodes, in which all servers that see them
 * agree: wait_cycle.c makes use of it.
 *
 * Runs in: the worker.  All is in the memory context of the round.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/recipe.h"
#include "worker/wait_search.h"

/* Records tell of no more than this, all together. */
#define MAX_WAITS 1000
#define MAX_HELD 10000

/* So much is asked of ZooKeeper for one search. */
#define MAX_FACTS 500

/* ------------------------------------------------------------------------
 * Facts
 * ------------------------------------------------------------------------
 */

static int
compare_nodes(const ReadNode *a, const ReadNode *b)
{
	int order = strcmp(a->path, b->path);

	return order != 0 ? order : strcmp(a->name, b->name);
}

/* What is known of a path; NULL if nothing was asked. */
static PathFact *
path_fact(const Search *search, const char *path)
{
	for (int i = 0; i < search->npaths; i++)
	{
		if (strcmp(search->paths[i].path, path) == 0)
			return &search->paths[i];
	}
	return NULL;
}

/* What is known of a node that a session claims; NULL if nothing was asked. */
static NodeFact *
node_fact(const Search *search, const ReadNode *node, int64 claimed)
{
	for (int i = 0; i < search->nnodes; i++)
	{
		if (search->nodes[i].claimed == claimed && compare_nodes(&search->nodes[i].node, node) == 0)
			return &search->nodes[i];
	}
	return NULL;
}

/* Is it so that the session has the node, as far as is known? */
static bool
is_so(const Search *search, const ReadNode *node, int64 claimed)
{
	const NodeFact *fact = node_fact(search, node, claimed);

	return !search->has_facts || (fact && fact->is_so);
}

static void
need_path(Search *search, const char *path)
{
	if (search->npaths + search->nnodes < MAX_FACTS && path_fact(search, path) == NULL)
		search->paths[search->npaths++] = (PathFact){.path = path};
}

static void
need_node(Search *search, const ReadNode *node, int64 claimed)
{
	if (search->npaths + search->nnodes < MAX_FACTS && node_fact(search, node, claimed) == NULL)
		search->nodes[search->nnodes++] = (NodeFact){.node = *node, .claimed = claimed};
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

static int
add_vertex(Search *search)
{
	WaitGraph *graph = &search->graph;

	if (graph->nvertices == search->max_vertices)
	{
		search->max_vertices = Max(2 * search->max_vertices, 64);
		graph->vertices =
			graph->vertices
				? repalloc_huge(graph->vertices, search->max_vertices * sizeof(WaitVertex))
				: palloc(search->max_vertices * sizeof(WaitVertex));
	}
	graph->vertices[graph->nvertices] = (WaitVertex){.needs = WAIT_GRAPH_ALL};
	return graph->nvertices++;
}

static void
add_edge(Search *search, int from, int to)
{
	WaitGraph *graph = &search->graph;

	if (graph->nedges == search->max_edges)
	{
		search->max_edges = Max(2 * search->max_edges, 64);
		graph->edges = graph->edges
						   ? repalloc_huge(graph->edges, search->max_edges * sizeof(WaitEdge))
						   : palloc(search->max_edges * sizeof(WaitEdge));
	}
	graph->edges[graph->nedges++] = (WaitEdge){.from = from, .to = to};
}

static int
compare_held(const void *a, const void *b)
{
	return compare_nodes(((const SearchHeld *) a)->node, ((const SearchHeld *) b)->node);
}

/* The first of the nodes on a path that are kept, or "nheld". */
static int
first_held(const Search *search, const char *path)
{
	int low = 0;
	int high = search->nheld;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (strcmp(search->held[middle].node->path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Does a record tell of a wait with that node? */
static bool
is_told(const Search *search, const ReadNode *node)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		if (search->waits[i].is_so && compare_nodes(&search->waits[i].wait->node, node) == 0)
			return true;
	}
	return false;
}

/*
 * Does an exclusive node stand between two, by their sequences, of which no record
 * tells?
 */
static bool
has_exclusive_between(const Search *search, const char *path, const RecipePeer *older,
					  const RecipePeer *younger)
{
	const PathFact *fact = path_fact(search, path);

	for (int i = 0; fact && i < fact->nchildren; i++)
	{
		ReadNode   node = {.path = path, .name = fact->children[i]};
		RecipePeer peer;

		if (lock_recipe.read(node.name, &peer) && peer.mode == LOCK_MODE_EXCLUSIVE &&
			peer.sequence > older->sequence && peer.sequence < younger->sequence &&
			!is_told(search, &node))
			return true;
	}
	return !search->has_facts;
}

/* Is one node of a lock older than another, and do they conflict? */
bool
worker_search_is_older(const char *older, const char *younger)
{
	RecipePeer self;
	RecipePeer peer;

	return lock_recipe.read(younger, &self) && lock_recipe.read(older, &peer) &&
		   peer.sequence < self.sequence &&
		   (self.mode == LOCK_MODE_EXCLUSIVE || peer.mode == LOCK_MODE_EXCLUSIVE);
}

/* Does a wait for a lock wait for the end of another one, which keeps that node? */
static bool
is_in_the_way(const Search *search, const SearchWait *waiting, const SearchWait *keeping,
			  const ReadNode *kept)
{
	const ReadNode *node = &waiting->wait->node;
	bool			same_server = waiting->record->owner == keeping->record->owner;
	bool			same_process = same_server && keeping->wait->steps[0].pid ==
										   waiting->wait->steps[waiting->wait->nsteps - 1].pid;
	RecipePeer self;
	RecipePeer peer;

	if (!lock_recipe.read(node->name, &self) || !lock_recipe.read(kept->name, &peer) ||
		peer.sequence >= self.sequence)
		return false;
	if (!same_process && worker_search_is_older(kept->name, node->name))
		return !same_server;
	return has_exclusive_between(search, node->path, &peer, &self);
}

static void
add_lock_edges(Search *search, int vertex)
{
	const SearchWait *waiting = &search->waits[vertex];
	const char		 *path = waiting->wait->node.path;

	for (int i = first_held(search, path);
		 i < search->nheld && strcmp(search->held[i].node->path, path) == 0; i++)
	{
		const SearchHeld *held = &search->held[i];
		const SearchWait *keeping = &search->waits[held->wait];

		if (held->is_so && is_in_the_way(search, waiting, keeping, held->node))
			add_edge(search, vertex, held->wait);
	}

	/* So are older ones that wait, which records tell of. */
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *older = &search->waits[i];

		if (older->record->owner != waiting->record->owner && older->wait->permits == 0 &&
			strcmp(older->wait->node.path, path) == 0 && older->is_so &&
			worker_search_is_older(older->wait->node.name, waiting->wait->node.name))
			add_edge(search, vertex, i);
	}
}

/* Adds a node that a permit waits for, with those who keep it; returns its vertex. */
static int
add_node(Search *search, const ReadNode *node)
{
	int vertex = add_vertex(search);

	for (int i = first_held(search, node->path); i < search->nheld; i++)
	{
		const SearchHeld *held = &search->held[i];

		if (strcmp(held->node->path, node->path) != 0)
			break;
		if (held->is_so && compare_nodes(held->node, node) == 0)
			add_edge(search, vertex, held->wait);
	}
	return vertex;
}

/* Is a permit's node older than another?  Sequences run in a circle. */
static bool
is_older_permit(const RecipePeer *peer, const RecipePeer *than)
{
	return !peer->numbered || (int32) ((uint32) than->sequence - (uint32) peer->sequence) > 0;
}

/* The names of nodes on a permit's path: those that exist, or those known to be kept. */
static const char **
permit_names(const Search *search, const char *path, int *n)
{
	const PathFact *fact = path_fact(search, path);
	int				first = first_held(search, path);
	const char	  **names;

	*n = 0;
	if (search->has_facts)
	{
		*n = fact ? fact->nchildren : 0;
		return fact ? (const char **) fact->children : NULL;
	}
	names = palloc((search->nheld - first + 1) * sizeof(char *));
	for (int i = first; i < search->nheld && strcmp(search->held[i].node->path, path) == 0; i++)
	{
		if (*n == 0 || strcmp(names[*n - 1], search->held[i].node->name) != 0)
			names[(*n)++] = search->held[i].node->name;
	}
	return names;
}

static void
add_permit_edges(Search *search, int vertex)
{
	const ReadWait *wait = search->waits[vertex].wait;
	int				permits = wait->permits;
	int				n;
	const char	  **names = permit_names(search, wait->node.path, &n);
	int				permit = add_vertex(search);
	int				older = 0;
	RecipePeer		self;

	add_edge(search, vertex, permit);
	(void) permit_recipe.read(wait->node.name, &self);
	for (int i = 0; i < n; i++)
	{
		ReadNode   node = {.path = wait->node.path, .name = names[i]};
		RecipePeer peer;

		if (strcmp(names[i], wait->node.name) == 0 || !permit_recipe.read(names[i], &peer) ||
			!is_older_permit(&peer, &self))
			continue;
		older++;
		if (peer.permits > 0)
			permits = Min(permits, peer.permits);
		add_edge(search, permit, add_node(search, &node));
	}

	/* Without facts there may be more than are known. */
	search->graph.vertices[permit].needs =
		Max(older - permits + 1, search->has_facts || older == 0 ? 0 : 1);
}

/* Notes what of the records is so.  Once, as there may be many facts. */
static void
compare_with_facts(Search *search)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		SearchWait *waiting = &search->waits[i];

		waiting->is_so = is_so(search, &waiting->wait->node, waiting->record->owner);
	}
	for (int i = 0; i < search->nheld; i++)
	{
		SearchHeld *held = &search->held[i];

		held->is_so = is_so(search, held->node, search->waits[held->wait].record->owner);
	}
}

/* Makes the graph, by the facts if there are any, and finds out who is stuck. */
static void
solve(Search *search)
{
	compare_with_facts(search);
	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i < search->nwaits; i++)
		(void) add_vertex(search);
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *waiting = &search->waits[i];

		if (!waiting->is_so)
			continue;
		if (waiting->wait->permits > 0)
			add_permit_edges(search, i);
		else
			add_lock_edges(search, i);
	}
	wait_graph_solve(&search->graph);
}

/* ------------------------------------------------------------------------
 * The two looks
 * ------------------------------------------------------------------------
 */

static void
take_records(Search *search, const ReadRecord *const *records, int n)
{
	search->waits = palloc(MAX_WAITS * sizeof(SearchWait));
	search->held = palloc(MAX_HELD * sizeof(SearchHeld));
	for (int i = 0; i < n; i++)
	{
		for (int w = 0; w < records[i]->nwaits && search->nwaits < MAX_WAITS; w++)
		{
			const ReadWait *wait = &records[i]->waits[w];

			for (int h = 0; h < wait->nheld && search->nheld < MAX_HELD; h++)
				search->held[search->nheld++] =
					(SearchHeld){.node = &wait->held[h], .wait = search->nwaits};
			search->waits[search->nwaits++] = (SearchWait){.record = records[i], .wait = wait};
		}
	}
	qsort(search->held, search->nheld, sizeof(SearchHeld), compare_held);
}

static bool
is_own(const Search *search, int vertex)
{
	return vertex < search->nwaits && search->waits[vertex].record->owner == search->session;
}

/* Notes which facts are needed of a wait that may be stuck. */
static void
need_facts(Search *search, const SearchWait *waiting)
{
	need_path(search, waiting->wait->node.path);
	need_node(search, &waiting->wait->node, waiting->record->owner);
}

/* Notes the nodes that keep others waiting, on the paths of which something is to be known. */
static void
need_held(Search *search, const SearchWait *keeping)
{
	for (int i = 0; i < keeping->wait->nheld; i++)
	{
		if (path_fact(search, keeping->wait->held[i].path))
			need_node(search, &keeping->wait->held[i], keeping->record->owner);
	}
}

/*
 * The first look: may a wait of ours be stuck?  Then "paths" and "nodes" are what is
 * to be asked about before the second.
 *
 *	records		n of them, one for each session
 *	session		our own
 */
bool
worker_search_suspects(Search *search, const ReadRecord *const *records, int n, int64 session)
{
	bool *suspect;
	bool  any = false;

	memset(search, 0, sizeof(*search));
	search->session = session;
	take_records(search, records, n);
	solve(search);
	suspect = palloc0(Max(search->nwaits, 1) * sizeof(bool));
	for (int i = 0; i < search->nwaits; i++)
	{
		if (!is_own(search, i) || !search->graph.vertices[i].stuck || suspect[i])
			continue;
		any = true;
		suspect[i] = true;
		(void) wait_graph_in_cycle(&search->graph, i);
		for (int k = 0; k < search->nwaits; k++)
			suspect[k] |= search->graph.vertices[k].reached;
	}
	search->nodes = palloc(MAX_FACTS * sizeof(NodeFact));
	search->paths = palloc(MAX_FACTS * sizeof(PathFact));
	for (int i = 0; i < search->nwaits; i++)
	{
		if (suspect[i])
			need_facts(search, &search->waits[i]);
	}
	for (int i = 0; i < search->nwaits; i++)
	{
		if (suspect[i])
			need_held(search, &search->waits[i]);
	}
	return any;
}

/* How old a wait is */
typedef struct Age
{
	int	  wait;
	int64 czxid;
	int	  pid;
} Age;

/* The older first */
static int
compare_ages(const void *a, const void *b)
{
	const Age *one = a;
	const Age *other = b;

	if (one->czxid != other->czxid)
		return one->czxid < other->czxid ? -1 : 1;
	return one->pid - other->pid;
}

/* Gives the waits that are stuck their order. */
static void
set_order(Search *search)
{
	Age *ages = palloc(Max(search->nwaits, 1) * sizeof(Age));
	int	 n = 0;

	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *waiting = &search->waits[i];
		const NodeFact *fact = node_fact(search, &waiting->wait->node, waiting->record->owner);

		search->graph.vertices[i].order = 1;
		if (search->graph.vertices[i].stuck)
			ages[n++] = (Age){.wait = i,
							  .czxid = fact ? fact->czxid : 0,
							  .pid = waiting->wait->steps[waiting->wait->nsteps - 1].pid};
	}
	qsort(ages, n, sizeof(Age), compare_ages);
	for (int i = 1; i < n; i++)
		search->graph.vertices[ages[i].wait].order =
			compare_ages(&ages[i - 1], &ages[i]) == 0
				? search->graph.vertices[ages[i - 1].wait].order
				: (uint64) i + 1;
}

/* The second look, when the facts are there. */
void
worker_search_verify(Search *search)
{
	search->has_facts = true;
	solve(search);
	set_order(search);
}

/*
 * Is a wait of ours stuck?  Then all that it waits for and that is stuck has
 *
 *	fingerprint	a number: the same only for the same waits
 *	newest		the zxid of the youngest of their records
 *	seen		what all of their writers had seen before they looked
 */
bool
worker_search_is_stuck(Search *search, uint64 *fingerprint, int64 *newest, int64 *seen)
{
	bool *involved = palloc0(Max(search->nwaits, 1) * sizeof(bool));
	bool  any = false;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (!is_own(search, i) || !search->graph.vertices[i].stuck || involved[i])
			continue;
		any = true;
		(void) wait_graph_in_cycle(&search->graph, i);
		for (int k = 0; k < search->nwaits; k++)
			involved[k] |= search->graph.vertices[k].reached;
	}
	*fingerprint = 0;
	*newest = 0;
	*seen = PG_INT64_MAX;
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *waiting = &search->waits[i];

		if (!involved[i])
			continue;
		*fingerprint += waiting->wait->identity * 31 + (uint64) waiting->record->owner;
		*newest = Max(*newest, waiting->record->czxid);
		*seen = Min(*seen, waiting->record->seen);
	}
	return any;
}
