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
 * Of the waits in a component the one with the youngest node, by its czxid, is to
 * give up; of those behind one node, the one of the process with the highest pid.
 * All servers that see the component find the same one.
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
 * Records
 * ------------------------------------------------------------------------
 */

/* Counts the lines of each kind, which have room then. */
static bool
count_lines(const char *text, size_t len, int *counts)
{
	char	  *copy = palloc(len + 1);
	WaitReader reader;
	WaitLine   line;
	bool	   good;

	memcpy(copy, text, len);
	good = wait_record_begin(&reader, copy, len);
	while (good && (good = wait_record_next(&reader, &line)) && line.kind != WAIT_LINE_END)
		counts[line.kind]++;
	pfree(copy);
	return good;
}

/*
 * Reads a record's text, which it keeps.  Returns false if it is none.
 */
bool
worker_record_parse(ReadRecord *record, char *text, size_t len)
{
	int		   counts[WAIT_LINE_END] = {0};
	WaitReader reader;
	WaitLine   line;
	ReadWait  *wait = NULL;
	ReadStep  *steps;
	ReadNode  *held;

	if (len > WAIT_RECORD_MAX || !count_lines(text, len, counts))
		return false;
	record->waits = palloc0((counts[WAIT_LINE_WAIT] + 1) * sizeof(ReadWait));
	steps = palloc0((counts[WAIT_LINE_STEP] + 1) * sizeof(ReadStep));
	held = palloc0((counts[WAIT_LINE_HELD] + 1) * sizeof(ReadNode));
	(void) wait_record_begin(&reader, text, len);
	while (wait_record_next(&reader, &line) && line.kind != WAIT_LINE_END)
	{
		switch (line.kind)
		{
			case WAIT_LINE_SERVER:
				record->server = line.text;
				break;
			case WAIT_LINE_SEEN:
				record->seen = (int64) line.number;
				break;
			case WAIT_LINE_WAIT:
				wait = &record->waits[record->nwaits++];
				wait->identity = line.number;
				wait->permits = line.permits;
				wait->node = (ReadNode){.path = line.path, .name = line.node};
				wait->steps = steps;
				wait->held = held;
				break;
			case WAIT_LINE_STEP:
				*steps++ = (ReadStep){.pid = (int) line.number, .text = line.text};
				wait->nsteps++;
				break;
			case WAIT_LINE_HELD:
				*held++ = (ReadNode){.path = line.path, .name = line.node};
				wait->nheld++;
				break;
			case WAIT_LINE_END:
				break;
		}
	}
	return true;
}

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
		if (compare_nodes(&search->waits[i].wait->node, node) == 0 &&
			is_so(search, node, search->waits[i].record->owner))
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

/* Is one node older than another, and do they conflict? */
static bool
is_older_conflict(const char *older, const char *younger)
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
	if (!same_process && is_older_conflict(kept->name, node->name))
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

		if (is_so(search, held->node, keeping->record->owner) &&
			is_in_the_way(search, waiting, keeping, held->node))
			add_edge(search, vertex, held->wait);
	}

	/* So are older ones that wait, which records tell of. */
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *older = &search->waits[i];

		if (older->record->owner != waiting->record->owner && older->wait->permits == 0 &&
			strcmp(older->wait->node.path, path) == 0 &&
			is_older_conflict(older->wait->node.name, waiting->wait->node.name) &&
			is_so(search, &older->wait->node, older->record->owner))
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
		if (compare_nodes(held->node, node) == 0 &&
			is_so(search, node, search->waits[held->wait].record->owner))
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

/* Makes the graph, by the facts if there are any, and finds out who is stuck. */
static void
solve(Search *search)
{
	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i < search->nwaits; i++)
		(void) add_vertex(search);
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *waiting = &search->waits[i];

		if (!is_so(search, &waiting->wait->node, waiting->record->owner))
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

/* Which of two waits is younger? */
static int
compare_age(const Search *search, int a, int b)
{
	const SearchWait *one = &search->waits[a];
	const SearchWait *other = &search->waits[b];
	const NodeFact	 *one_fact = node_fact(search, &one->wait->node, one->record->owner);
	const NodeFact	 *other_fact = node_fact(search, &other->wait->node, other->record->owner);
	int64			  one_czxid = one_fact ? one_fact->czxid : 0;
	int64			  other_czxid = other_fact ? other_fact->czxid : 0;

	if (one_czxid != other_czxid)
		return one_czxid < other_czxid ? -1 : 1;
	return one->wait->steps[one->wait->nsteps - 1].pid -
		   other->wait->steps[other->wait->nsteps - 1].pid;
}

/* The second look, when the facts are there. */
void
worker_search_verify(Search *search)
{
	search->has_facts = true;
	solve(search);
	for (int i = 0; i < search->nwaits; i++)
	{
		search->graph.vertices[i].order = 1;
		for (int k = 0; search->graph.vertices[i].stuck && k < search->nwaits; k++)
		{
			if (search->graph.vertices[k].stuck && compare_age(search, k, i) < 0)
				search->graph.vertices[i].order++;
		}
	}
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

/* By what a wait keeps another one */
typedef enum Hindrance
{
	BY_WHAT_IT_HOLDS, /* its first process keeps a node in the way */
	BY_ITS_PLACE,	  /* the node of its last process, which waits, is in the way */
	BY_OTHERS		  /* a contender of which no record tells stands between the two */
} Hindrance;

static Hindrance
hindrance(const SearchWait *waiting, const SearchWait *next)
{
	const ReadNode *node = &waiting->wait->node;
	bool			same_server = waiting->record->owner == next->record->owner;

	if (waiting->wait->permits > 0)
		return BY_WHAT_IT_HOLDS;
	for (int i = 0; i < next->wait->nheld && !same_server; i++)
	{
		if (strcmp(next->wait->held[i].path, node->path) == 0 &&
			is_older_conflict(next->wait->held[i].name, node->name))
			return BY_WHAT_IT_HOLDS;
	}
	if (!same_server && strcmp(next->wait->node.path, node->path) == 0 &&
		is_older_conflict(next->wait->node.name, node->name))
		return BY_ITS_PLACE;
	return BY_OTHERS;
}

/* Which of its processes keeps another wait from going on? */
static int
keeping_step(const SearchWait *waiting, const SearchWait *next)
{
	return hindrance(waiting, next) == BY_ITS_PLACE ? next->wait->nsteps - 1 : 0;
}

/* Tells the steps of a wait, as lines; the last of them is blocked by the next wait. */
static void
describe_wait(const SearchWait *waiting, const SearchWait *next, int from, int to, StringInfo text)
{
	for (int i = from; i < to; i++)
	{
		bool			last = i == waiting->wait->nsteps - 1;
		const ReadStep *step = &waiting->wait->steps[i];
		const ReadStep *blocker = last ? &next->wait->steps[keeping_step(waiting, next)] : step + 1;

		appendStringInfo(text, "%sProcess %d of server \"%s\" waits for %s%s; blocked by process %d of server \"%s\".",
						 text->len > 0 ? "\n" : "", step->pid, waiting->record->server, step->text,
						 last && hindrance(waiting, next) == BY_OTHERS ? " behind another contender" : "",
						 blocker->pid, last ? next->record->server : waiting->record->server);
	}
}

/*
 * The wait of ours that is to give up, or NULL.
 *
 *	cycle	gets who waits for whom, from the process that gives up on
 */
const SearchWait *
worker_search_victim(Search *search, StringInfo cycle)
{
	int *vertices = palloc(Max(search->graph.nvertices, 1) * sizeof(int));

	for (int i = 0; i < search->nwaits; i++)
	{
		int length = 0;
		int n = 0;

		if (is_own(search, i))
			length = wait_graph_cycle(&search->graph, i, vertices, search->graph.nvertices);
		for (int k = 0; k < length; k++)
		{
			if (vertices[k] < search->nwaits)
				vertices[n++] = vertices[k];
		}
		if (n == 0)
			continue;
		for (int k = 0; k < n; k++)
		{
			const SearchWait *waiting = &search->waits[vertices[k]];
			const SearchWait *previous = &search->waits[vertices[(k + n - 1) % n]];
			int				  nsteps = waiting->wait->nsteps;

			describe_wait(waiting, &search->waits[vertices[(k + 1) % n]],
						  k == 0 ? nsteps - 1 : keeping_step(previous, waiting), nsteps, cycle);
		}
		describe_wait(&search->waits[i], &search->waits[i],
					  keeping_step(&search->waits[vertices[n - 1]], &search->waits[i]),
					  search->waits[i].wait->nsteps - 1, cycle);
		return &search->waits[i];
	}
	return NULL;
}
