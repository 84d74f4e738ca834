/*
 * wait_search.c
 *		Deadlocks across servers: what the records of all of them tell together.
 *
 * The graph (wait_graph.h) has a vertex for each process of which a record tells.  It
 * waits for those of its own server that the record names.  If it waits with a node
 * of its own, it waits besides for all who keep older nodes on the path that conflict:
 * those who hold them, and those who wait with them.  A permit needs some of the
 * older nodes to go.  Such a node is a vertex, too: it goes when all go who hold it,
 * and one that nobody is known to hold goes by itself.
 *
 * Between two nodes that do not conflict, or are one process's, an exclusive one may
 * stand that no record tells of, such as another client's: that waits for the older and
 * keeps back the younger.  A component of one server alone, without such a stranger, is
 * that server's own business, which finds it by itself (deadlock.c).
 *
 * Records are claims.  A first look takes them as they are, and supposes what they do
 * not tell to be for the worse: it finds the suspects, mostly none.  The second look
 * goes by what ZooKeeper knows of these (wait_facts.c), and leaves out what is not so.
 *
 * Of the waits in a component the one with the youngest node, by its czxid, is to
 * give up; of those behind one node, the one of the process with the highest pid.
 * All servers that see the component find the same one.  It is told a shortest cycle
 * through itself, process by process.
 *
 * Runs in: backends, in the one that searches for all.  All is in the current memory
 * context.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/waits.h"

/* Records tell of no more than this, all together. */
#define MAX_WAITS 1000
#define MAX_KEPT 11000

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

static int
compare_kept(const void *a, const void *b)
{
	const WaitLine *one = ((const KeptNode *) a)->line;
	const WaitLine *other = ((const KeptNode *) b)->line;
	int				order = strcmp(one->path, other->path);

	return order != 0 ? order : strcmp(one->node, other->node);
}

static void
take_line(Search *search, const ReadRecord *record, const WaitLine *line)
{
	KeptNode *kept;

	if (line->kind == WAIT_LINE_WAIT)
		search->waits[search->nwaits++] = (SearchWait){.record = record, .line = line};
	if ((line->kind != WAIT_LINE_NODE && line->kind != WAIT_LINE_HELD) || search->nkept == MAX_KEPT)
		return;
	kept = &search->kept[search->nkept++];
	*kept = (KeptNode){.line = line,
					   .wait = search->nwaits - 1,
					   .held = line->kind == WAIT_LINE_HELD,
					   .is_so = true};
	kept->is_lock = lock_recipe.read(line->node, &kept->peer);
}

static void
take_records(Search *search, const ReadRecord *const *records, int n)
{
	search->waits = palloc(MAX_WAITS * sizeof(SearchWait));
	search->kept = palloc(MAX_KEPT * sizeof(KeptNode));
	for (int i = 0; i < n; i++)
	{
		for (const WaitLine *line = records[i]->lines; line->kind != WAIT_LINE_END; line++)
		{
			if (line->kind == WAIT_LINE_WAIT && search->nwaits == MAX_WAITS)
				break;
			take_line(search, records[i], line);
		}
	}
	qsort(search->kept, search->nkept, sizeof(KeptNode), compare_kept);
	for (int i = 0; i < search->nkept; i++)
	{
		if (!search->kept[i].held)
			search->waits[search->kept[i].wait].node = &search->kept[i];
	}
}

static int64
owner_of(const Search *search, int wait)
{
	return search->waits[wait].record->owner;
}

/* The first of the nodes on a path that are kept, or "nkept" */
static int
first_kept(const Search *search, const char *path)
{
	int low = 0;
	int high = search->nkept;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (strcmp(search->kept[middle].line->path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool
is_kept_on(const Search *search, int kept, const char *path)
{
	return kept < search->nkept && strcmp(search->kept[kept].line->path, path) == 0;
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/* Adds the processes of its own server for which one waits. */
static void
add_named(Search *search, int wait)
{
	for (const WaitLine *line = search->waits[wait].line + 1;
		 line->kind == WAIT_LINE_NODE || line->kind == WAIT_LINE_FOR; line++)
	{
		for (int i = 0; i < search->nwaits && line->kind == WAIT_LINE_FOR; i++)
		{
			if (search->waits[i].record == search->waits[wait].record &&
				search->waits[i].line->pid == line->pid)
				wait_graph_connect(&search->graph, wait, i);
		}
	}
}

/* Does a wait for a lock wait by itself for the process that keeps an older node? */
static bool
is_in_the_way(const Search *search, int wait, const KeptNode *kept)
{
	const KeptNode *self = search->waits[wait].node;

	return owner_of(search, wait) != owner_of(search, kept->wait) &&
		   (self->peer.mode == LOCK_MODE_EXCLUSIVE || kept->peer.mode == LOCK_MODE_EXCLUSIVE);
}

/* Does it wait for a stranger that waits for that process? */
static bool
is_behind_stranger(const Search *search, int wait, const KeptNode *kept)
{
	const KeptNode *self = search->waits[wait].node;

	return kept->held && wait_facts_stranger_between(search, kept, self) &&
		   (wait == kept->wait ||
			(self->peer.mode == LOCK_MODE_SHARED && kept->peer.mode == LOCK_MODE_SHARED));
}

/* Adds the processes for which a wait for a lock waits, in one way or the other. */
static void
add_lock_wait(Search *search, int wait, bool (*waits)(const Search *, int, const KeptNode *))
{
	const KeptNode *self = search->waits[wait].node;

	for (int i = first_kept(search, self->line->path); is_kept_on(search, i, self->line->path); i++)
	{
		const KeptNode *kept = &search->kept[i];

		if (kept->is_so && kept->is_lock && self->is_lock &&
			kept->peer.sequence < self->peer.sequence && waits(search, wait, kept))
			wait_graph_connect(&search->graph, wait, kept->wait);
	}
}

/* Adds a node that a permit waits for, with those who hold it; returns its vertex. */
static int
add_node(Search *search, const char *path, const char *name)
{
	int vertex = wait_graph_add(&search->graph);

	for (int i = first_kept(search, path); is_kept_on(search, i, path); i++)
	{
		const KeptNode *kept = &search->kept[i];

		if (kept->held && kept->is_so && strcmp(kept->line->node, name) == 0)
			wait_graph_connect(&search->graph, vertex, kept->wait);
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
	const PathFact *fact = wait_facts_of_path(search, path);
	int				first = first_kept(search, path);
	const char	  **names;

	*n = 0;
	if (search->has_facts)
	{
		*n = fact ? fact->nchildren : 0;
		return fact ? (const char **) fact->children : NULL;
	}
	names = palloc((search->nkept - first + 1) * sizeof(char *));
	for (int i = first; is_kept_on(search, i, path); i++)
	{
		const char *name = search->kept[i].line->node;

		if (*n == 0 || strcmp(names[*n - 1], name) != 0)
			names[(*n)++] = name;
	}
	return names;
}

static void
add_permit_wait(Search *search, int wait)
{
	const WaitLine *line = search->waits[wait].node->line;
	int				permits = line->permits;
	int				older = 0;
	int				n;
	const char	  **names = permit_names(search, line->path, &n);
	RecipePeer		self;

	(void) permit_recipe.read(line->node, &self);
	for (int i = 0; i < n; i++)
	{
		RecipePeer peer;

		if (strcmp(names[i], line->node) == 0 || !permit_recipe.read(names[i], &peer) ||
			!is_older_permit(&peer, &self))
			continue;
		older++;
		if (peer.permits > 0)
			permits = Min(permits, peer.permits);
		wait_graph_connect(&search->graph, wait, add_node(search, line->path, names[i]));
	}

	/* Without facts there may be more than are known. */
	search->graph.vertices[wait].needs =
		Max(older - permits + 1, search->has_facts || older == 0 ? 0 : 1);
}

/* Makes the graph, by the facts if there are any, and finds out who is stuck. */
static void
solve(Search *search)
{
	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i < search->nwaits; i++)
		(void) wait_graph_add(&search->graph);
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		if (node && !node->is_so)
			continue;
		if (node && node->line->permits > 0)
		{
			add_permit_wait(search, i);
			continue;
		}
		add_named(search, i);
		if (node)
			add_lock_wait(search, i, is_in_the_way);
	}
	search->nlocal = search->graph.nedges;
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		if (node && node->is_so && node->line->permits == 0)
			add_lock_wait(search, i, is_behind_stranger);
	}
	wait_graph_solve(&search->graph);
}

/* ------------------------------------------------------------------------
 * The two looks
 * ------------------------------------------------------------------------
 */

static bool
is_own(const Search *search, int wait)
{
	return owner_of(search, wait) == search->session;
}

/*
 * The first look, at what n records tell: one for each session, of which one is ours.
 */
Search *
wait_search_begin(const ReadRecord *const *records, int n, int64 session)
{
	Search *search = palloc0(sizeof(Search));

	search->session = session;
	search->graph.resize = waits_resize;
	take_records(search, records, n);
	solve(search);
	return search;
}

/* The second look, when the facts are there. */
void
wait_search_verify(Search *search)
{
	solve(search);
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		search->graph.vertices[i].order = node && node->is_so ? node->czxid : 0;
		search->graph.vertices[i].tie = search->waits[i].line->pid;
	}
}

/*
 * The waits of ours that are stuck, and all for which they wait and that are stuck,
 * as a palloc'd array by wait; NULL if there are none.
 */
const bool *
wait_search_stuck(Search *search)
{
	bool *stuck = palloc0(Max(search->nwaits, 1) * sizeof(bool));
	bool  any = false;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (!is_own(search, i) || !search->graph.vertices[i].stuck || stuck[i])
			continue;
		any = true;
		wait_graph_reach(&search->graph, i);
		for (int k = 0; k < search->nwaits; k++)
			stuck[k] |= search->graph.vertices[k].reached;
	}
	return any ? stuck : NULL;
}

/* ------------------------------------------------------------------------
 * Who gives up
 * ------------------------------------------------------------------------
 */

/* Is a component, to which a wait of ours belongs, more than this server can see by itself? */
static bool
is_across(const Search *search)
{
	const WaitGraph *graph = &search->graph;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (graph->vertices[i].reaches && !is_own(search, i))
			return true;
	}
	for (int e = search->nlocal; e < graph->nedges; e++)
	{
		if (graph->vertices[graph->edges[e].from].reaches &&
			graph->vertices[graph->edges[e].to].reaches)
			return true;
	}
	return false;
}

/* Does one wait for another only because of a stranger between them? */
bool
wait_search_is_behind(const Search *search, int wait, int blocker)
{
	for (int e = 0; e < search->nlocal; e++)
	{
		if (search->graph.edges[e].from == wait && search->graph.edges[e].to == blocker)
			return false;
	}
	return true;
}

/*
 * The wait of ours that is to give up, or WAIT_GRAPH_NONE.  "parent" of the graph's
 * vertices leads from there through the cycle.
 */
int
wait_search_victim(Search *search)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		if (is_own(search, i) && wait_graph_is_victim(&search->graph, i) && is_across(search))
			return i;
	}
	return WAIT_GRAPH_NONE;
}
