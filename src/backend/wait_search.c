/*
 * wait_search.c
 *		Deadlocks across servers: what the records of all of them tell together.
 *
 * The graph (wait_graph.h) has a vertex for each wait of each record.  Such a wait
 * keeps the nodes that it names as held, and the one with which it waits.  It waits
 * itself for older nodes on the path of that one:
 *
 *	wait -> kept			a lock: another wait keeps an older node that conflicts
 *	wait -> node			a permit: it needs some of the older nodes to go
 *	node -> kept			by all who keep it; by none that is known, it goes
 *	kept -> wait			who keeps it
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
 * All servers that see the component find the same one.  It is told a shortest cycle
 * of waits through its own, process by process: those of each wait, from the one that
 * keeps the wait before from going on.
 *
 * Runs in: backends, in the one that searches for all.  All is in the current memory
 * context.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/wait_search.h"
#include "backend/waits.h"
#include "recipes/recipe.h"

/* Records tell of no more than this, all together. */
#define MAX_WAITS 1000
#define MAX_KEPT 11000

/* So much is asked of ZooKeeper for one search. */
#define MAX_FACTS 500

/* A node that a wait keeps from going */
typedef struct KeptNode
{
	const WaitLine *node;
	int				wait;
	int				step;  /* of the wait: its process keeps the node */
	bool			held;  /* else that process waits with it */
	bool			is_so; /* it is that session's, as far as is known */
} KeptNode;

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

/*
 * Reads a record's text, which it keeps.  Returns false if it is none.  The text
 * comes from whoever may write below WAIT_RECORD_ROOT; recipes/wait_record.c says
 * what is accepted.
 */
bool
wait_search_parse(ReadRecord *record, char *text, size_t len)
{
	int		   max = 1;
	WaitReader reader;
	WaitLine  *lines;
	bool	   good = wait_record_begin(&reader, text, len);

	for (size_t i = 0; i < len; i++)
		max += text[i] == '\n';
	lines = palloc(max * sizeof(WaitLine));
	record->nlines = 0;
	while (good && (good = wait_record_next(&reader, &lines[record->nlines])) &&
		   lines[record->nlines].kind != WAIT_LINE_END)
		record->nlines++;
	if (!good)
		return false;
	record->lines = lines;
	record->server = lines[0].text;
	record->seen = (int64) lines[1].number;
	return true;
}

static int
compare_nodes(const WaitLine *a, const WaitLine *b)
{
	int order = strcmp(a->path, b->path);

	return order != 0 ? order : strcmp(a->node, b->node);
}

static int
compare_kept(const void *a, const void *b)
{
	return compare_nodes(((const KeptNode *) a)->node, ((const KeptNode *) b)->node);
}

static void
add_kept(Search *search, const WaitLine *node, int step, bool held)
{
	if (search->nkept < MAX_KEPT)
		search->kept[search->nkept++] =
			(KeptNode){.node = node, .wait = search->nwaits, .step = step, .held = held};
}

/* Takes in one wait, whose lines begin there.  Returns the line behind it. */
static const WaitLine *
take_wait(Search *search, const ReadRecord *record, const WaitLine *line)
{
	const WaitLine *end = record->lines + record->nlines;
	SearchWait	   *wait = &search->waits[search->nwaits];

	*wait = (SearchWait){.record = record, .line = line, .steps = line + 1};
	for (line++; line < end && line->kind == WAIT_LINE_STEP; line++)
		wait->nsteps++;
	wait->held = line;
	for (; line < end && line->kind == WAIT_LINE_HELD; line++)
	{
		wait->nheld++;
		add_kept(search, line, 0, true);
	}
	add_kept(search, wait->line, wait->nsteps - 1, false);
	search->nwaits++;
	return line;
}

static void
take_records(Search *search, const ReadRecord *const *records, int n)
{
	search->waits = palloc(MAX_WAITS * sizeof(SearchWait));
	search->kept = palloc(MAX_KEPT * sizeof(KeptNode));
	for (int i = 0; i < n; i++)
	{
		const WaitLine *line = records[i]->lines + 2; /* behind the server and what it has seen */

		while (line < records[i]->lines + records[i]->nlines && search->nwaits < MAX_WAITS)
			line = take_wait(search, records[i], line);
	}
	qsort(search->kept, search->nkept, sizeof(KeptNode), compare_kept);
}

/* ------------------------------------------------------------------------
 * Facts
 * ------------------------------------------------------------------------
 */

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
node_fact(const Search *search, const WaitLine *node, int64 claimed)
{
	for (int i = 0; i < search->nnodes; i++)
	{
		if (search->nodes[i].claimed == claimed && compare_nodes(search->nodes[i].node, node) == 0)
			return &search->nodes[i];
	}
	return NULL;
}

/* Is it so that the session has the node, as far as is known? */
static bool
is_so(const Search *search, const WaitLine *node, int64 claimed)
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
need_node(Search *search, const WaitLine *node, int64 claimed)
{
	if (search->npaths + search->nnodes < MAX_FACTS && node_fact(search, node, claimed) == NULL)
		search->nodes[search->nnodes++] = (NodeFact){.node = node, .claimed = claimed};
}

/* Notes what is to be known of suspects: their nodes, and what is on the paths of these. */
static void
need_facts(Search *search, const bool *suspects)
{
	search->nodes = palloc(MAX_FACTS * sizeof(NodeFact));
	search->paths = palloc(MAX_FACTS * sizeof(PathFact));
	for (int i = 0; i < search->nwaits; i++)
	{
		if (!suspects[i])
			continue;
		need_path(search, search->waits[i].line->path);
		need_node(search, search->waits[i].line, search->waits[i].record->owner);
	}

	/* What keeps others waiting: the paths are known by now. */
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];

		for (int k = 0; suspects[i] && k < wait->nheld; k++)
		{
			if (path_fact(search, wait->held[k].path))
				need_node(search, &wait->held[k], wait->record->owner);
		}
	}
}

/* Notes what of the records is so.  Once, as there may be many facts. */
static void
compare_with_facts(Search *search)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		SearchWait *wait = &search->waits[i];

		wait->is_so = is_so(search, wait->line, wait->record->owner);
	}
	for (int i = 0; i < search->nkept; i++)
	{
		KeptNode *kept = &search->kept[i];

		kept->is_so = is_so(search, kept->node, search->waits[kept->wait].record->owner);
	}
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/* The first of the nodes on a path that are kept, or "nkept" */
static int
first_kept(const Search *search, const char *path)
{
	int low = 0;
	int high = search->nkept;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (strcmp(search->kept[middle].node->path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool
is_kept_on(const Search *search, int kept, const char *path)
{
	return kept < search->nkept && strcmp(search->kept[kept].node->path, path) == 0;
}

/* Does a record tell of a wait with that node? */
static bool
is_told(const Search *search, const WaitLine *node)
{
	for (int i = first_kept(search, node->path); is_kept_on(search, i, node->path); i++)
	{
		const KeptNode *kept = &search->kept[i];

		if (!kept->held && kept->is_so && compare_nodes(kept->node, node) == 0)
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
		WaitLine   node = {.path = path, .node = fact->children[i]};
		RecipePeer peer;

		if (lock_recipe.read(node.node, &peer) && peer.mode == LOCK_MODE_EXCLUSIVE &&
			peer.sequence > older->sequence && peer.sequence < younger->sequence &&
			!is_told(search, &node))
			return true;
	}
	return !search->has_facts;
}

static bool
conflict(const RecipePeer *self, const RecipePeer *peer)
{
	return self->mode == LOCK_MODE_EXCLUSIVE || peer->mode == LOCK_MODE_EXCLUSIVE;
}

static bool
is_same_server(const Search *search, const SearchWait *waiting, const KeptNode *kept)
{
	return waiting->record->owner == search->waits[kept->wait].record->owner;
}

static bool
is_same_process(const Search *search, const SearchWait *waiting, const KeptNode *kept)
{
	return is_same_server(search, waiting, kept) &&
		   waiting->steps[waiting->nsteps - 1].number ==
			   search->waits[kept->wait].steps[kept->step].number;
}

/* Does a wait for a lock wait for that node by itself, or only for others that stand between? */
static bool
is_direct(const Search *search, const SearchWait *waiting, const KeptNode *kept)
{
	RecipePeer self;
	RecipePeer peer;

	return !is_same_server(search, waiting, kept) && lock_recipe.read(waiting->line->node, &self) &&
		   lock_recipe.read(kept->node->node, &peer) && conflict(&self, &peer);
}

/* Does a wait for a lock wait for the end of another one, which keeps that node? */
static bool
is_in_the_way(const Search *search, const SearchWait *waiting, const KeptNode *kept)
{
	RecipePeer self;
	RecipePeer peer;

	if (!kept->is_so || !lock_recipe.read(waiting->line->node, &self) ||
		!lock_recipe.read(kept->node->node, &peer) || peer.sequence >= self.sequence)
		return false;
	if (is_direct(search, waiting, kept))
		return true;
	if (!kept->held || (conflict(&self, &peer) && !is_same_process(search, waiting, kept)))
		return false;
	return has_exclusive_between(search, waiting->line->path, &peer, &self);
}

static void
add_lock_edges(Search *search, int vertex)
{
	const SearchWait *waiting = &search->waits[vertex];
	const char		 *path = waiting->line->path;

	for (int i = first_kept(search, path); is_kept_on(search, i, path); i++)
	{
		if (is_in_the_way(search, waiting, &search->kept[i]))
			wait_graph_connect(&search->graph, vertex, search->nwaits + i);
	}
}

/* Adds a node that a permit waits for, with those who hold it; returns its vertex. */
static int
add_node(Search *search, const char *path, const char *name)
{
	int vertex = wait_graph_add(&search->graph, NULL);

	for (int i = first_kept(search, path); is_kept_on(search, i, path); i++)
	{
		const KeptNode *kept = &search->kept[i];

		if (kept->held && kept->is_so && strcmp(kept->node->node, name) == 0)
			wait_graph_connect(&search->graph, vertex, search->nwaits + i);
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
		const char *name = search->kept[i].node->node;

		if (*n == 0 || strcmp(names[*n - 1], name) != 0)
			names[(*n)++] = name;
	}
	return names;
}

static void
add_permit_edges(Search *search, int vertex)
{
	const WaitLine *line = search->waits[vertex].line;
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
		wait_graph_connect(&search->graph, vertex, add_node(search, line->path, names[i]));
	}

	/* Without facts there may be more than are known. */
	search->graph.vertices[vertex].needs =
		Max(older - permits + 1, search->has_facts || older == 0 ? 0 : 1);
}

/* Makes the graph, by the facts if there are any, and finds out who is stuck. */
static void
solve(Search *search)
{
	compare_with_facts(search);
	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i < search->nwaits; i++)
		(void) wait_graph_add(&search->graph, NULL);
	for (int i = 0; i < search->nkept; i++)
		wait_graph_connect(&search->graph, wait_graph_add(&search->graph, NULL),
						   search->kept[i].wait);
	for (int i = 0; i < search->nwaits; i++)
	{
		if (!search->waits[i].is_so)
			continue;
		if (search->waits[i].line->permits > 0)
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

static bool
is_own(const Search *search, int wait)
{
	return search->waits[wait].record->owner == search->session;
}

/*
 * The waits of ours that are stuck, and all for which they wait and that are stuck,
 * as a palloc'd array by wait; NULL if there are none.
 */
static bool *
stuck_waits(Search *search)
{
	bool *stuck = palloc0(Max(search->nwaits, 1) * sizeof(bool));
	bool  any = false;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (!is_own(search, i) || !search->graph.vertices[i].stuck || stuck[i])
			continue;
		any = true;
		(void) wait_graph_in_cycle(&search->graph, i);
		for (int k = 0; k < search->nwaits; k++)
			stuck[k] |= search->graph.vertices[k].reached;
	}
	return any ? stuck : NULL;
}

/*
 * The first look: may a wait of ours be stuck?  Then "paths" and "nodes" are what is
 * to be asked about before the second.  If not, returns NULL.
 *
 *	records		n of them, one for each session
 *	session		our own
 */
Search *
wait_search_suspects(const ReadRecord *const *records, int n, int64 session)
{
	Search *search = palloc0(sizeof(Search));
	bool   *suspects;

	search->session = session;
	search->graph.resize = waits_resize;
	take_records(search, records, n);
	solve(search);
	suspects = stuck_waits(search);
	if (suspects == NULL)
		return NULL;
	need_facts(search, suspects);
	return search;
}

/* Gives the waits their order, by the age of their nodes. */
static void
set_order(Search *search)
{
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];
		const NodeFact	 *fact = node_fact(search, wait->line, wait->record->owner);

		search->graph.vertices[i].order = fact ? fact->czxid : 0;
		search->graph.vertices[i].tie = wait->steps[wait->nsteps - 1].number;
	}
}

/* The second look, when the facts are there. */
void
wait_search_verify(Search *search)
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
wait_search_is_stuck(Search *search, uint64 *fingerprint, int64 *newest, int64 *seen)
{
	const bool *stuck = stuck_waits(search);

	*fingerprint = 0;
	*newest = 0;
	*seen = PG_INT64_MAX;
	for (int i = 0; stuck && i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];

		if (!stuck[i])
			continue;
		*fingerprint += wait->line->number * 31 + (uint64) wait->record->owner;
		*newest = Max(*newest, wait->record->czxid);
		*seen = Min(*seen, wait->record->seen);
	}
	return stuck != NULL;
}

/* ------------------------------------------------------------------------
 * Who gives up, and what that one is told
 * ------------------------------------------------------------------------
 */

/* Tells some steps of a wait, as lines; the last one of all is blocked by a node that is kept. */
static void
describe_steps(const Search *search, const SearchWait *wait, const KeptNode *next, int from,
			   int to, StringInfo text)
{
	for (int i = from; i < to; i++)
	{
		const SearchWait *keeping = wait;
		int				  step = i + 1;
		const char		 *behind = "";

		if (step == wait->nsteps)
		{
			keeping = &search->waits[next->wait];
			step = next->step;
			if (wait->line->permits == 0 && !is_direct(search, wait, next))
				behind = " behind another contender";
		}
		appendStringInfo(text, "%sProcess %d of server \"%s\" waits for %s%s; blocked by process %d of server \"%s\".",
						 text->len > 0 ? "\n" : "", (int) wait->steps[i].number,
						 wait->record->server, wait->steps[i].text, behind,
						 (int) keeping->steps[step].number, keeping->record->server);
	}
}

/* Tells a cycle of vertices, from the last process of its first wait on. */
static void
describe_cycle(const Search *search, const int *cycle, int length, StringInfo text)
{
	const SearchWait *victim = &search->waits[cycle[0]];
	const SearchWait *wait = victim;
	int				  from = victim->nsteps - 1;

	for (int i = 1; i < length; i++)
	{
		const KeptNode *kept;

		if (cycle[i] < search->nwaits || cycle[i] >= search->nwaits + search->nkept)
			continue;
		kept = &search->kept[cycle[i] - search->nwaits];
		describe_steps(search, wait, kept, from, wait->nsteps, text);
		wait = &search->waits[kept->wait];
		from = kept->step;
	}
	describe_steps(search, victim, NULL, from, victim->nsteps - 1, text);
}

/*
 * The wait of ours that is to give up, or NULL.
 *
 *	cycle	gets who waits for whom, from the process that gives up on
 */
const SearchWait *
wait_search_victim(Search *search, StringInfo cycle)
{
	int *vertices = palloc(Max(search->graph.nvertices, 1) * sizeof(int));

	for (int i = 0; i < search->nwaits; i++)
	{
		int length = 0;

		if (is_own(search, i))
			length = wait_graph_cycle(&search->graph, i, vertices, search->graph.nvertices);
		if (length == 0)
			continue;
		describe_cycle(search, vertices, length, cycle);
		return &search->waits[i];
	}
	return NULL;
}
