/*
 * wait_search.c
 *		Deadlocks across servers: the search in the records of all servers.
 *
 * The graph (wait_graph.h) has a vertex for each process with a wait in a record.  It waits
 * for the processes of its own server that the record names.  If it waits with a node, it
 * also waits for the processes with older nodes on the path that conflict, whether they
 * hold them or wait with them.  For a permit, some of those that hold older nodes must go;
 * the owner of a node that is in no record goes by itself.
 *
 * Between two nodes that do not conflict, or belong to one process, there may be an
 * exclusive one that is in no record, such as another client's.  Such an unknown contender,
 * is a vertex, too, between these two alone: it waits for the older and blocks
 * the younger.  A component of one server alone, without unknown contenders, is left to that
 * server, which finds it by itself (deadlock.c).
 *
 * Records may be false.  A first look takes them as they are, and assumes the worst where
 * they say nothing: it finds the suspects, mostly none, in time that is proportional to the
 * length of the records, whatever they say.  The second look asks ZooKeeper
 * whether the nodes that the suspects name exist and belong to the session that has written
 * the record, and what else is on the paths where they wait; it leaves out what is not
 * confirmed.  So a forged record can have no effect beyond the nodes by which its own
 * session blocks others.  Suspects that merely wait behind others come last: a crowd leaves
 * room for those in a deadlock.
 *
 * In a component, the wait with the youngest node, by its czxid, gives up; of those behind
 * one node, or whose nodes one request of their server has created, that of the process with
 * the highest pid.  All servers that see the component choose the same one.  Its error shows a
 * shortest cycle through it, process by process.
 *
 * Runs in: backends, in the one that searches for all.  All memory is in the current
 * context.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "deadlock/deadlock_internal.h"
#include "fault.h"

/* Limits for all records together */
#define MAX_WAITS 1000
#define MAX_KEPT 11000

/* Most operations for one search, and so most nodes that the second look knows */
#define MAX_FACTS 500
#define FEW_FACTS 6 /* enough for one deadlock of two */

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

static bool
is_held(const KeptNode *kept)
{
	return kept->line->kind == WAIT_LINE_HELD;
}

static void
take_line(Search *search, const ReadRecord *record, const WaitLine *line)
{
	KeptNode *kept = &search->kept[search->nkept];

	if (line->kind == WAIT_LINE_WAIT)
		search->waits[search->nwaits++] = (SearchWait){.record = record, .line = line};
	if (line->node[0] == '\0' || search->nkept == MAX_KEPT)
		return;
	*kept = (KeptNode){.line = line, .wait = search->nwaits - 1, .is_so = true};
	kept->is_lock = lock_recipe.read(line->node, &kept->peer);
	if (!kept->is_lock)
		(void) permit_recipe.read(line->node, &kept->peer);
	search->nkept++;
}

static void
take_records(Search *search)
{
	ListCell *cell;

	search->waits = palloc(MAX_WAITS * sizeof(SearchWait));
	search->kept = palloc((MAX_KEPT + 1) * sizeof(KeptNode));
	foreach(cell, search->records)
	{
		const ReadRecord *record = lfirst(cell);

		for (const WaitLine *line = record->lines; line->kind != WAIT_LINE_END; line++)
		{
			if (line->kind == WAIT_LINE_WAIT && search->nwaits == MAX_WAITS)
				break;
			take_line(search, record, line);
		}
	}
	qsort(search->kept, search->nkept, sizeof(KeptNode), compare_kept);
	search->kept[search->nkept] = (KeptNode){.line = NULL};
	for (KeptNode *kept = search->kept; kept->line; kept++)
	{
		bool begins = kept == search->kept || strcmp(kept->line->path, kept[-1].line->path) != 0;

		kept->first = begins ? kept : kept[-1].first;
		kept->place = PG_INT64_MIN;
		if (kept->peer.numbered)
			kept->place =
				(int32) ((uint32) kept->peer.sequence - (uint32) kept->first->peer.sequence);
		if (!is_held(kept))
			search->waits[kept->wait].node = kept;
	}
}

static int64
owner_of(const Search *search, int wait)
{
	return search->waits[wait].record->owner;
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if a node is older than another.  Sequences wrap around; one without is the
 * oldest.
 */
static bool
is_older(const RecipePeer *peer, const RecipePeer *than)
{
	return !peer->numbered || (int32) ((uint32) than->sequence - (uint32) peer->sequence) > 0;
}

/* Adds the processes of its own server for which a process waits. */
static void
add_named(Search *search, int wait)
{
	const ReadRecord *record = search->waits[wait].record;
	int				  first = wait;

	while (first > 0 && search->waits[first - 1].record == record)
		first--;
	for (const WaitLine *line = search->waits[wait].line + 1; line->kind == WAIT_LINE_FOR; line++)
	{
		for (int i = first; i < search->nwaits && search->waits[i].record == record; i++)
		{
			if (search->waits[i].line->pid != line->pid)
				continue;
			wait_graph_connect(&search->graph, wait, i);
			break;
		}
	}
}

/* qsort() comparator: by path, there by age */
static int
compare_places(const void *a, const void *b)
{
	const KeptNode *one = *(const KeptNode *const *) a;
	const KeptNode *other = *(const KeptNode *const *) b;

	if (one->first != other->first)
		return one->first < other->first ? -1 : 1;
	return (one->place > other->place) - (one->place < other->place);
}

/*
 * The first look at the queues: a wait for a lock waits for the processes of all older nodes,
 * since an unknown contender may stand behind any of them, and a wait for a permit for those
 * that hold one, whatever their age.  So it misses nothing that the second look finds.
 *
 * A node that had an edge to each older one would make thousands of nodes millions of edges.
 * So each place of a queue is a vertex, which waits for the process there and for the place
 * before it; and so is each semaphore.
 */
static void
add_queues(Search *search)
{
	WaitGraph *graph = &search->graph;
	KeptNode **queue = palloc((search->nkept + 1) * sizeof(KeptNode *));
	int		   before = WAIT_GRAPH_NONE;
	int		   semaphore = WAIT_GRAPH_NONE;
	int		   permits = 0;
	int		   held = 0;

	for (int i = 0; i < search->nkept; i++)
		queue[i] = &search->kept[i];
	qsort(queue, search->nkept, sizeof(KeptNode *), compare_places);
	for (int i = 0; i < search->nkept; i++)
	{
		const KeptNode *kept = queue[i];
		int				place;

		if (i == 0 || kept->first != queue[i - 1]->first)
		{
			before = wait_graph_add(graph);
			semaphore = wait_graph_add(graph);
			permits = PG_INT32_MAX;
			held = 0;
		}
		if (is_held(kept))
		{
			wait_graph_connect(graph, semaphore, kept->wait);
			held++;
		}
		else if (kept->line->permits > 0)
		{
			wait_graph_connect(graph, kept->wait, semaphore);
			permits = Min(permits, kept->line->permits);
		}
		else if (kept->is_lock)
			wait_graph_connect(graph, kept->wait, before);
		graph->vertices[semaphore].needs = Max(held - permits + 1, 0);
		place = wait_graph_add(graph);
		wait_graph_connect(graph, place, kept->wait);
		wait_graph_connect(graph, place, before);
		before = place;
	}
}

/*
 * Returns true if a wait for a lock may be behind an unknown contender that waits for the
 * process of an older node.
 */
static bool
is_behind_unknown(const Search *search, int wait, const KeptNode *kept)
{
	const SearchWait *self = &search->waits[wait];
	bool shared = self->node->peer.mode == LOCK_MODE_SHARED && kept->peer.mode == LOCK_MODE_SHARED;

	/* All others block the wait directly, or wait for what it waits for. */
	if (!is_held(kept) || (kept->wait != wait && !shared))
		return false;

	return self->unknown.numbered && is_older(&kept->peer, &self->unknown);
}

/*
 * Adds the processes whose older nodes block a wait for a lock, and an unknown contender that
 * waits for some.
 */
static void
add_lock_wait(Search *search, int wait, const KeptNode *self)
{
	int	 unknown = search->nwaits + wait;
	bool is_behind = false;

	for (const KeptNode *kept = self->first; kept->first == self->first; kept++)
	{
		if (!kept->is_so || !kept->is_lock || !is_older(&kept->peer, &self->peer))
			continue;
		if (owner_of(search, wait) != owner_of(search, kept->wait) &&
			(self->peer.mode == LOCK_MODE_EXCLUSIVE || kept->peer.mode == LOCK_MODE_EXCLUSIVE))
			wait_graph_connect(&search->graph, wait, kept->wait);
		if (is_behind_unknown(search, wait, kept))
		{
			wait_graph_connect(&search->graph, unknown, kept->wait);
			is_behind = true;
		}
	}
	if (is_behind)
		wait_graph_connect(&search->graph, wait, unknown);
}

/* Adds the processes that hold older permits, some of which must be given back. */
static void
add_permit_wait(Search *search, int wait, const KeptNode *self)
{
	const KeptNode *last = NULL;
	int				older = 0;

	for (const KeptNode *kept = self->first; kept->first == self->first; kept++)
	{
		if (!kept->is_so || !is_held(kept) || !is_older(&kept->peer, &self->peer))
			continue;

		/* A node counts once, though several may claim it. */
		if (last && compare_kept(kept, last) == 0)
			continue;
		wait_graph_connect(&search->graph, wait, kept->wait);
		older++;
		last = kept;
	}
	search->graph.vertices[wait].needs = Max(older - self->line->permits + 1, 0);
}

static bool
is_own(const Search *search, int vertex)
{
	return vertex < search->nwaits && owner_of(search, vertex) == search->session;
}

/*
 * Makes the graph, by the facts if they are known, and finds who is stuck.  A last vertex
 * waits for all waits of ours: from it, "reached" is set of those that are stuck, and of
 * all stuck ones for which they wait.  Returns false if none of ours is stuck.
 */
static bool
solve(Search *search)
{
	int ours = 2 * search->nwaits;

	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i <= ours; i++)
		(void) wait_graph_add(&search->graph);
	for (int i = 0; i < search->nwaits; i++)
	{
		const KeptNode *node = search->waits[i].node;

		if (is_own(search, i))
			wait_graph_connect(&search->graph, ours, i);
		search->graph.vertices[i].order = node ? node->czxid : 0;
		search->graph.vertices[i].tie = search->waits[i].line->pid;
		if (node && !node->is_so)
			continue;
		if (node == NULL || node->line->permits == 0)
			add_named(search, i);
		if (node == NULL || !search->has_facts)
			continue;
		if (node->line->permits > 0)
			add_permit_wait(search, i, node);
		else if (node->is_lock)
			add_lock_wait(search, i, node);
	}
	if (!search->has_facts)
		add_queues(search);
	wait_graph_solve(&search->graph);
	wait_graph_reach(&search->graph, ours);
	return search->graph.vertices[ours].stuck;
}

/* ------------------------------------------------------------------------
 * The two looks
 * ------------------------------------------------------------------------
 */

/*
 * Finds the nearest unknown contender before each wait on a path: it waits for all those for
 * which others do.
 */
static void
find_unknown_contenders(Search *search, const CallStep *list)
{
	RecipeQueued *queue;
	RecipePeer	  unknown = {.numbered = false};
	int			  n = list->result.nchildren;

	queue = palloc_extended(Max(n, 1) * sizeof(RecipeQueued), MCXT_ALLOC_HUGE);
	n = recipe_queue(&lock_recipe, list->children, n, queue);
	for (int i = 0; i < n; i++)
	{
		const WaitLine	line = {.path = list->asked.path, .node = queue[i].name};
		const KeptNode	key = {.line = &line};
		const KeptNode *kept =
			bsearch(&key, search->kept, search->nkept, sizeof(KeptNode), compare_kept);
		bool recorded = false;

		/* Several may claim the node. */
		while (kept && kept > kept->first && compare_kept(kept - 1, &key) == 0)
			kept--;
		for (; kept && kept->line && compare_kept(kept, &key) == 0; kept++)
		{
			recorded |= kept->is_so;
			if (kept->is_so && kept == search->waits[kept->wait].node)
				search->waits[kept->wait].unknown = unknown;
		}
		if (!recorded && queue[i].peer.mode == LOCK_MODE_EXCLUSIVE)
			unknown = queue[i].peer;
	}
	pfree(queue);
}

/* How suspect a wait is: the search asks about the most suspect ones first */
typedef enum Suspect
{
	SUSPECT_NONE,
	SUSPECT_BEHIND, /* it merely waits behind a deadlock */
	SUSPECT_PART	/* it is in a deadlock, or one that is waits for it */
} Suspect;

static Suspect
suspect_of(const Search *search, int wait)
{
	const WaitVertex *vertex = &search->graph.vertices[wait];

	return !vertex->reached ? SUSPECT_NONE : vertex->behind ? SUSPECT_BEHIND : SUSPECT_PART;
}

/*
 * Returns how suspect the waits on a path are, by the most suspect one; "first" is the
 * first node there.
 */
static Suspect
suspect_on(const Search *search, const KeptNode *first)
{
	Suspect found = SUSPECT_NONE;

	for (const KeptNode *kept = first; kept->first == first; kept++)
	{
		if (!is_held(kept))
			found = Max(found, suspect_of(search, kept->wait));
	}
	return found;
}

/*
 * The operations for ZooKeeper, and the node that each is about; for a list the first on
 * its path
 */
typedef struct Facts
{
	CallStep  *steps;
	KeptNode **about;
	int		   n;
} Facts;

static void
ask_for_fact(Facts *facts, ZkOperation kind, KeptNode *about, const char *path)
{
	if (facts->n == (ZKLOCK_FAULT("few-facts") ? FEW_FACTS : MAX_FACTS))
		return;
	facts->about[facts->n] = about;
	facts->steps[facts->n++] = (CallStep){.asked = {.kind = kind, .path = path}};
}

/*
 * The second look, which takes no record on trust: asks ZooKeeper what is on the paths
 * where suspects wait, and who owns the nodes that suspects have there.  Returns false if
 * the facts cannot be had now.
 */
static bool
verify(Search *search)
{
	Facts facts = {.steps = palloc0(MAX_FACTS * sizeof(CallStep)),
				   .about = palloc0(MAX_FACTS * sizeof(KeptNode *))};

	wait_graph_find_behind(&search->graph);
	for (Suspect turn = SUSPECT_PART; turn > SUSPECT_NONE; turn--)
	{
		Suspect on_path = SUSPECT_NONE;

		for (KeptNode *kept = search->kept; kept->line; kept++)
		{
			const char *path = kept->line->path;

			kept->is_so = false;
			if (kept == kept->first)
			{
				on_path = suspect_on(search, kept);
				if (on_path == turn)
					ask_for_fact(&facts, ZK_GET_CHILDREN, kept, path);
			}
			if (Min(on_path, suspect_of(search, kept->wait)) == turn)
				ask_for_fact(&facts, ZK_EXISTS, kept, psprintf("%s/%s", path, kept->line->node));
		}
	}
	if (!wait_records_make_calls(search, facts.steps, facts.n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < facts.n; i++)
	{
		const CallResult *result = &facts.steps[i].result;
		KeptNode		 *kept = facts.about[i];

		if (facts.steps[i].asked.kind == ZK_GET_CHILDREN)
			continue;
		kept->is_so = result->outcome == CALL_OK &&
					  result->stat.ephemeral_owner == owner_of(search, kept->wait);
		kept->czxid = kept->is_so ? result->stat.czxid : 0;
	}

	/*
	 * A path may have many nodes, so this checks for interrupts; the wait raises their
	 * error.
	 */
	for (int i = 0; i < facts.n; i++)
	{
		if (search->call.is_called_away(search))
			return false;
		if (facts.steps[i].asked.kind == ZK_GET_CHILDREN)
			find_unknown_contenders(search, &facts.steps[i]);
	}
	search->has_facts = true;
	return true;
}

/*
 * Finds the waits of ours that are stuck, and all for which they wait: by the records, and
 * if these show any, by the facts.  Returns false if those cannot be had now.
 */
bool
wait_search(Search *search)
{
	search->graph.resize = waits_resize;
	take_records(search);
	if (search->call.is_called_away(search))
		return false;
	if (solve(search))
	{
		if (!verify(search))
			return false;
		(void) solve(search);
	}
	return true;
}

/*
 * Returns true if a wait of ours is to give up, in a component that this server does not
 * see by itself.  Then "parent" of the graph's vertices leads from it through the cycle,
 * and all for which the component waits is "reached".
 */
bool
wait_search_is_victim(Search *search, int wait)
{
	if (!is_own(search, wait) || !wait_graph_is_victim(&search->graph, wait))
		return false;
	for (int i = 0; i < search->graph.nvertices; i++)
	{
		if (search->graph.vertices[i].reaches && !is_own(search, i))
			return true;
	}
	return false;
}
