/*
 * wait_search.c
 *		Deadlocks across servers: what the records of all of them tell together.
 *
 * The graph (wait_graph.h) has a vertex for each process of which a record tells.  It
 * waits for those of its own server that the record names.  If it waits with a node
 * of its own, it waits besides for all who keep older nodes on the path that conflict:
 * those who hold them, and those who wait with them.  A permit needs some of those that
 * hold older nodes to go; who holds a node of which no record tells goes by itself.
 *
 * Between two nodes that do not conflict, or are one process's, an exclusive one may
 * stand that no record tells of, such as another client's.  Such a stranger is a vertex,
 * too, between these two alone: it waits for the older and keeps back the younger.  A
 * component of one server alone, without a stranger, is that server's own business, which
 * finds it by itself (deadlock.c).
 *
 * Records are claims.  A first look takes them as they are, and supposes what they do
 * not tell to be for the worse: it finds the suspects, mostly none.  The second look
 * goes by what ZooKeeper knows of these, and leaves out what is not so: ZooKeeper is asked
 * whether the nodes that the suspects name exist and are of the session that has written
 * the record, and what else is on the paths where they wait.  So a forged record can
 * claim no more than what its own session has in the way of others.  Suspects that merely
 * wait behind others come last: a crowd leaves room for those in a deadlock.
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

#include "deadlock/deadlock_internal.h"
#include "fault.h"

/* Records tell of no more than this, all together. */
#define MAX_WAITS 1000
#define MAX_KEPT 11000

/* So much is asked of ZooKeeper for one search. */
#define MAX_FACTS 500
#define FEW_FACTS 6 /* that one deadlock of two has */

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

/* Is a node older than another?  Sequences run in a circle; who has none is the oldest. */
static bool
is_older(const RecipePeer *peer, const RecipePeer *than)
{
	return !peer->numbered || (int32) ((uint32) than->sequence - (uint32) peer->sequence) > 0;
}

/* Adds the processes of its own server for which one waits. */
static void
add_named(Search *search, int wait)
{
	for (const WaitLine *line = search->waits[wait].line + 1; line->kind == WAIT_LINE_FOR; line++)
	{
		for (int i = 0; i < search->nwaits; i++)
		{
			if (search->waits[i].record == search->waits[wait].record &&
				search->waits[i].line->pid == line->pid)
				wait_graph_connect(&search->graph, wait, i);
		}
	}
}

/* Is a lock waited for behind a stranger that waits for the process that keeps an older node? */
static bool
is_behind_stranger(const Search *search, int wait, const KeptNode *kept)
{
	const SearchWait *self = &search->waits[wait];
	bool shared = self->node->peer.mode == LOCK_MODE_SHARED && kept->peer.mode == LOCK_MODE_SHARED;

	/* All others are waited for without a stranger, too, or wait for what we wait for. */
	if (!is_held(kept) || (kept->wait != wait && !shared))
		return false;

	/* Until the facts are known, one may be anywhere. */
	return !search->has_facts || (self->stranger.numbered && is_older(&kept->peer, &self->stranger));
}

/* Adds the processes that keep older nodes in the way of a lock, and a stranger that waits for some. */
static void
add_lock_wait(Search *search, int wait, const KeptNode *self)
{
	int	 stranger = search->nwaits + wait;
	bool is_behind = false;

	for (const KeptNode *kept = self->first; kept->first == self->first; kept++)
	{
		if (!kept->is_so || !kept->is_lock || !is_older(&kept->peer, &self->peer))
			continue;
		if (owner_of(search, wait) != owner_of(search, kept->wait) &&
			(self->peer.mode == LOCK_MODE_EXCLUSIVE || kept->peer.mode == LOCK_MODE_EXCLUSIVE))
			wait_graph_connect(&search->graph, wait, kept->wait);
		if (is_behind_stranger(search, wait, kept))
		{
			wait_graph_connect(&search->graph, stranger, kept->wait);
			is_behind = true;
		}
	}
	if (is_behind)
		wait_graph_connect(&search->graph, wait, stranger);
}

/* Adds the processes that hold older permits, of which some have to be given back. */
static void
add_permit_wait(Search *search, int wait, const KeptNode *self)
{
	const KeptNode *last = NULL;
	int				older = 0;

	for (const KeptNode *kept = self->first; kept->first == self->first; kept++)
	{
		if (!kept->is_so || !is_held(kept) || !is_older(&kept->peer, &self->peer))
			continue;

		/* A node counts once, but until the facts are known for each that claims it. */
		if (search->has_facts && last && compare_kept(kept, last) == 0)
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
 * Makes the graph, by the facts if there are any, and finds out who is stuck.  Sets
 * "reached" of the waits of ours that are, and of all for which they wait and that are;
 * returns false if there are none.  For that, a last vertex waits for all of ours.
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
		if (node && node->line->permits > 0)
		{
			add_permit_wait(search, i, node);
			continue;
		}
		add_named(search, i);
		if (node && node->is_lock)
			add_lock_wait(search, i, node);
	}
	wait_graph_solve(&search->graph);
	wait_graph_reach(&search->graph, ours);
	return search->graph.vertices[ours].stuck;
}

/* ------------------------------------------------------------------------
 * The two looks
 * ------------------------------------------------------------------------
 */

/* Does a record tell of a node, as it is?  "first" is the first that is kept on its path. */
static bool
is_told(const KeptNode *first, const char *name)
{
	for (const KeptNode *kept = first; kept->first == first; kept++)
	{
		if (kept->is_so && strcmp(kept->line->node, name) == 0)
			return true;
	}
	return false;
}

/* Finds the nearest stranger of each wait on a path: it waits for all for whom others wait. */
static void
find_strangers(Search *search, const KeptNode *first, const CallStep *list)
{
	for (int i = 0; i < list->result.nchildren; i++)
	{
		RecipePeer stranger;

		if (!lock_recipe.read(list->children[i], &stranger) ||
			stranger.mode != LOCK_MODE_EXCLUSIVE || is_told(first, list->children[i]))
			continue;
		for (const KeptNode *kept = first; kept->first == first; kept++)
		{
			SearchWait *wait = &search->waits[kept->wait];

			if (kept->is_so && kept == wait->node && is_older(&stranger, &kept->peer) &&
				is_older(&wait->stranger, &stranger))
				wait->stranger = stranger;
		}
	}
}

/* How much a wait is suspected: the search asks about the most suspect ones first. */
typedef enum Suspect
{
	SUSPECT_NONE,
	SUSPECT_BEHIND, /* it merely waits behind a deadlock */
	SUSPECT_PART	/* it is in one, or one in it waits for it */
} Suspect;

static Suspect
suspect_of(const Search *search, int wait)
{
	const WaitVertex *vertex = &search->graph.vertices[wait];

	return !vertex->reached ? SUSPECT_NONE : vertex->behind ? SUSPECT_BEHIND : SUSPECT_PART;
}

/* The greatest suspect that waits on a path; "first" is the first that is kept there. */
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

/* What is asked of ZooKeeper, and about which node; the first on a path for a list of it */
typedef struct Facts
{
	CallStep  *steps;
	KeptNode **about;
	int		   n;
} Facts;

static void
ask(Facts *facts, CallOpKind kind, KeptNode *about, const char *path)
{
	if (facts->n == (ZKLOCK_FAULT("few-facts") ? FEW_FACTS : MAX_FACTS))
		return;
	facts->about[facts->n] = about;
	facts->steps[facts->n++] = (CallStep){.kind = kind, .path = path};
}

/*
 * The second look, for which nothing of others is taken for granted any more: asks ZooKeeper
 * what is on the paths where suspects wait, and whose the nodes are that suspects keep
 * there.  Returns false if the facts are not to be had now.
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
					ask(&facts, OP_LIST, kept, path);
			}
			if (Min(on_path, suspect_of(search, kept->wait)) == turn)
				ask(&facts, OP_LOOK, kept, psprintf("%s/%s", path, kept->line->node));
		}
	}
	if (!wait_records_make_calls(search, facts.steps, facts.n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < facts.n; i++)
	{
		const CallResult *result = &facts.steps[i].result;
		KeptNode		 *kept = facts.about[i];

		if (facts.steps[i].kind == OP_LIST)
			continue;
		kept->is_so = result->outcome == CALL_OK &&
					  result->stat.ephemeral_owner == owner_of(search, kept->wait);
		kept->czxid = kept->is_so ? result->stat.czxid : 0;
	}

	/* A path may have many nodes; the error of an interrupt is the wait's to raise. */
	for (int i = 0; i < facts.n; i++)
	{
		if (search->call.is_called_away(search))
			return false;
		if (facts.steps[i].kind == OP_LIST)
			find_strangers(search, facts.about[i], &facts.steps[i]);
	}
	search->has_facts = true;
	return true;
}

/*
 * Finds the waits of ours that are stuck, and all for which they wait: by the records, and
 * if that shows any by the facts.  Returns false if these are not to be had now.
 */
bool
wait_search(Search *search)
{
	search->graph.resize = waits_resize;
	take_records(search);
	if (solve(search))
	{
		if (!verify(search))
			return false;
		(void) solve(search);
	}
	return true;
}

/*
 * Is it a wait of ours that is to give up, in a component that is more than this server can
 * see by itself?  Then "parent" of the graph's vertices leads from there through the cycle,
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
