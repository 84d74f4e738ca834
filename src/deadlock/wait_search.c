/*
 * wait_search.c
 *		Deadlocks across servers: what the records of all servers say, and which waits are
 *		stuck.
 *
 * Servers publish records of the waits that others need to know (deadlock.c says which waits are
 * in ours, and how records are published and read).  A record is a text of
 * lines, each of which has six fields separated by tabs:
 *
 *		zklock waits 1	seen		0		0			-			server
 *		wait			identity	pid		permits		path/node	what is waited for
 *		for				0			pid		0			-			-
 *		held			0			0		0			path/node	-
 *
 * (a "-" stands for an empty field).  There is a "wait" for each process that cannot go on
 * before another server or client does, and whose wait may matter to these.  Its identity
 * stays the same as long as the process waits, without a break, for the same.  If the
 * process waits in a queue of ZooKeeper, the line names the node with which it waits; if
 * it waits for a permit, "permits" is how many the semaphore has, else 0.  A "for" names a
 * process of the server, with a "wait" of its own, that must go on before this one can.  A
 * "held" names a node that the process holds.  "seen" is the highest zxid of a record that
 * the server had read before it looked at its processes.
 *
 * A client that may write into ZooKeeper can put anything there.  So a record is read
 * strictly: it is valid only if it has exactly this form and is not too long.  A path must
 * be one that can be locked, and a node's name one that a child can have.
 *
 * The graph (wait_graph.h) has a vertex for each process with a wait in a record.  It waits
 * for the processes of its own server that the record names.  If it waits with a node, it
 * also waits for the processes with older nodes on the path that conflict, whether they
 * hold them or wait with them.  For a permit, some of those that hold older nodes must go;
 * the owner of a node that is in no record goes by itself.
 *
 * Between two nodes that do not conflict, or belong to one process, there may be an
 * exclusive one that is in no record, such as another client's.  Such an unknown contender
 * is a vertex, too, between these two alone: it waits for the older and blocks the younger.
 * A component of one server alone, without unknown contenders, is left to that server, which
 * finds it by itself (deadlock.c).
 *
 * Records may be false.  A first look takes them as they are, and assumes the worst where
 * they say nothing: it finds the suspects, mostly none, in time that is proportional to the
 * length of the records, whatever they say.  The second look asks ZooKeeper whether the
 * nodes that the suspects name exist and belong to the session that has written the record,
 * and what else is on the paths where they wait; it leaves out what is not confirmed.  So a
 * forged record can have no effect beyond the nodes by which its own session blocks others.
 * Suspects that merely wait behind others come last: a crowd leaves room for those in a
 * deadlock.
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

#include "deadlock/wait_search.h"
#include "fault.h"

/* Limits for all records together */
#define MAX_WAITS 1000
#define MAX_KEPT 11000

/* Most operations for one search, and so most nodes that the second look knows */
#define MAX_FACTS 500
#define FEW_FACTS 6 /* enough for one deadlock of two */

/* Most operations in one batch, as answers may be long */
#define MAX_STEPS 16

/* ------------------------------------------------------------------------
 * A record
 * ------------------------------------------------------------------------
 */

#define MAX_NODE 255 /* bytes of the name of a node, another client's or ours */

/* The control characters but tab and line feed: they make a record invalid. */
#define CONTROL_CHARACTERS                                     \
	"\001\002\003\004\005\006\007\010\013\014\015\016\017\020" \
	"\021\022\023\024\025\026\027\030\031\032\033\034\035\036\037\177"

/* The first field of each kind of line */
static const char *const words[] = {WAIT_RECORD_TITLE, "wait", "for", "held"};

#define FIELDS 6

/*
 * Reads a number in hexadecimal or decimal digits.  Returns false if it is none, or greater
 * than "max".
 */
static bool
read_number_field(const char *text, int base, uint64 max, uint64 *number)
{
	size_t len = strlen(text);

	errno = 0;
	*number = strtoull(text, NULL, base);
	return len > 0 && strspn(text, base == 16 ? "0123456789abcdef" : "0123456789") == len &&
		   errno == 0 && *number <= max;
}

/*
 * Reads a line that follows one of the kind "last", WAIT_LINE_END if it is the first.
 * Returns false if it is not valid.
 */
static bool
read_line(char *text, WaitLineKind last, WaitLine *line)
{
	char		*fields[FIELDS];
	int			 n = 0;
	WaitLineKind kind = WAIT_LINE_TITLE;
	WaitLine	 read = {.path = "", .node = ""};
	uint64		 pid;
	uint64		 permits;

	for (; n < FIELDS && text; n++)
		fields[n] = strsep(&text, "\t");
	if (n < FIELDS || text)
		return false;
	while (kind < WAIT_LINE_END && strcmp(fields[0], words[kind]) != 0)
		kind++;
	if (kind == WAIT_LINE_END ||
		!read_number_field(fields[1], 16, kind == WAIT_LINE_TITLE ? INT64_MAX : UINT64_MAX, &read.number) ||
		!read_number_field(fields[2], 10, INT32_MAX, &pid) ||
		!read_number_field(fields[3], 10, INT32_MAX, &permits))
		return false;

	/* The title comes first and once; what belongs to a "wait" follows it in its order. */
	if ((kind == WAIT_LINE_TITLE) != (last == WAIT_LINE_END))
		return false;
	if (kind > WAIT_LINE_WAIT && (last == WAIT_LINE_TITLE || kind < last))
		return false;

	/* A process has a pid, so these two kinds of lines need one, and the others have none. */
	if ((kind == WAIT_LINE_WAIT || kind == WAIT_LINE_FOR) != (pid != 0))
		return false;
	read.kind = kind;
	read.pid = (int32) pid;
	read.permits = (int32) permits;
	read.text = fields[5];
	if (strlen(read.text) > WAIT_RECORD_MAX_TEXT)
		return false;

	/* A "held" has a node, a "wait" may have one, and no other line does. */
	if (fields[4][0] == '\0')
	{
		if (kind == WAIT_LINE_HELD)
			return false;
	}
	else
	{
		char *slash = strrchr(fields[4], '/');

		if (kind == WAIT_LINE_TITLE || kind == WAIT_LINE_FOR || slash == NULL)
			return false;
		*slash = '\0';
		read.path = fields[4];
		read.node = slash + 1;
		if (path_check_node(read.path, strlen(read.path)) != NULL ||
			!node_name_is_possible(read.node) || strlen(read.node) > MAX_NODE)
			return false;
	}
	*line = read;
	return true;
}

/*
 * Reads the lines of a record, which is followed by a NUL, in the current memory context; the last
 * is WAIT_LINE_END.  Returns false if the record is not valid: then nothing of it counts.
 */
static bool
read_lines(const char *text, Size length, const WaitLine **lines)
{
	char		*rest = memcpy(palloc(length + 1), text, length + 1); /* lines point into it */
	WaitLine	*line;
	WaitLineKind last = WAIT_LINE_END;
	int			 n = 1;

	for (Size i = 0; i < length; i++)
		n += text[i] == '\n';
	*lines = line = palloc(n * sizeof(WaitLine));
	*line = (WaitLine){.kind = WAIT_LINE_END};
	if (length == 0 || length > WAIT_RECORD_MAX || strcmp(rest + length - 1, "\n") != 0 ||
		strcspn(rest, CONTROL_CHARACTERS) != length)
		return false;
	rest[length - 1] = '\0';
	while (rest)
	{
		if (!read_line(strsep(&rest, "\n"), last, line))
			return false;
		last = line++->kind;
		*line = (WaitLine){.kind = WAIT_LINE_END};
	}
	return true;
}

/*
 * Returns the ZooKeeper session whose id is in the name of a record; 0 if it is no such
 * name.  Whether the record is of this session shows in the node's owner.
 */
int64
wait_record_session(const char *name)
{
	bool is_name = strlen(name) == RECORD_NAME_LENGTH &&
				   strspn(name, "0123456789abcdef") == 16 && name[16] == '-';

	return is_name ? (int64) strtoull(name, NULL, 16) : 0;
}

/*
 * Returns the lines of a record that has been read from ZooKeeper, in the current memory
 * context.  Its text comes from any client that may write below WAIT_RECORD_ROOT.  Returns
 * NULL if it is not valid, or the name is that of another session than the node's owner.
 */
const WaitLine *
wait_record_lines(const CallStep *record)
{
	const char	   *name = record->asked.path + strlen(WAIT_RECORD_ROOT "/");
	const WaitLine *lines;

	if (record->read == NULL || record->result.stat.ephemeral_owner != wait_record_session(name) ||
		!read_lines(record->read, record->result.text_length, &lines))
		return NULL;
	return lines;
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/* qsort() comparator: by path and name */
static int
compare_kept(const void *a, const void *b)
{
	const WaitLine *one = ((const KeptNode *) a)->line;
	const WaitLine *other = ((const KeptNode *) b)->line;
	int				order = strcmp(one->path, other->path);

	return order != 0 ? order : strcmp(one->node, other->node);
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
add_queues(WaitSearch *search)
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
		if (kept->line->kind == WAIT_LINE_HELD)
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
 * The second look at a queue: adds the processes whose older nodes, as far as these are
 * confirmed, block a wait.
 */
static void
add_confirmed(WaitSearch *search, int wait)
{
	const SearchWait *self = &search->waits[wait];
	const KeptNode	 *node = self->node;
	bool			  permit = node->line->permits > 0;
	const KeptNode	 *last = NULL;
	int				  older = 0;
	int				  unknown = search->nwaits + wait;
	bool			  is_behind = false;

	if (!permit && !node->is_lock)
		return;
	for (const KeptNode *kept = node->first; kept->first == node->first; kept++)
	{
		bool held = kept->line->kind == WAIT_LINE_HELD;
		bool excludes =
			node->peer.mode == LOCK_MODE_EXCLUSIVE || kept->peer.mode == LOCK_MODE_EXCLUSIVE;

		if (!kept->is_so || recipe_age(&kept->peer, &node->peer) <= 0)
			continue;

		/*
		 * Some of those that hold older permits must give them back.  A node counts once,
		 * though several may claim it.
		 */
		if (permit && held && (last == NULL || compare_kept(kept, last) != 0))
		{
			wait_graph_connect(&search->graph, wait, kept->wait);
			older++;
			last = kept;
		}
		if (permit || !kept->is_lock)
			continue;
		if (excludes && search->waits[kept->wait].record->owner != self->record->owner)
			wait_graph_connect(&search->graph, wait, kept->wait);

		/*
		 * An unknown contender next before the wait may wait for the process of an older
		 * node.  All but these block the wait directly, or wait for what it waits for.
		 */
		if (held && (kept->wait == wait || !excludes) && self->unknown.numbered &&
			recipe_age(&kept->peer, &self->unknown) > 0)
		{
			wait_graph_connect(&search->graph, unknown, kept->wait);
			is_behind = true;
		}
	}
	if (permit)
		search->graph.vertices[wait].needs = Max(older - node->line->permits + 1, 0);
	if (is_behind)
		wait_graph_connect(&search->graph, wait, unknown);
}

/*
 * Makes the graph, by the facts if they are known, and finds who is stuck.  A last vertex
 * waits for all waits of ours: from it, "reached" is set of those that are stuck, and of
 * all stuck ones for which they wait.  Returns false if none of ours is stuck.
 */
static bool
solve(WaitSearch *search)
{
	int ours = 2 * search->nwaits;
	int first = 0; /* of the same record */

	search->graph.nvertices = 0;
	search->graph.nedges = 0;
	for (int i = 0; i <= ours; i++)
		(void) wait_graph_add(&search->graph);
	for (int i = 0; i < search->nwaits; i++)
	{
		const SearchWait *wait = &search->waits[i];
		const KeptNode	 *node = wait->node;
		const WaitLine	 *line = wait->line + 1;

		if (wait->record != search->waits[first].record)
			first = i;
		if (wait->record->owner == search->session)
			wait_graph_connect(&search->graph, ours, i);
		search->graph.vertices[i].order = node ? node->czxid : 0;
		search->graph.vertices[i].tie = wait->line->pid;
		if (node && !node->is_so)
			continue;

		/*
		 * The processes of its own server for which it waits.  Those that have the permits of
		 * a semaphore are known by their nodes.
		 */
		for (; line->kind == WAIT_LINE_FOR && (node == NULL || node->line->permits == 0); line++)
		{
			int k = first;

			while (k < search->nwaits && search->waits[k].record == wait->record &&
				   search->waits[k].line->pid != line->pid)
				k++;
			if (k < search->nwaits && search->waits[k].record == wait->record)
				wait_graph_connect(&search->graph, i, k);
		}
		if (node && search->has_facts)
			add_confirmed(search, i);
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
 * Makes calls.  Returns false if some are not answered, or the ZooKeeper session is another
 * one than before: then the search is given up.
 */
bool
wait_search_make_calls(WaitSearch *search, CallStep *steps, int n, CallSight sight)
{
	for (int done = 0, some; done < n; done += some)
	{
		some = Min(n - done, MAX_STEPS);
		call_batch(&search->call, steps + done, some, sight);
		if (search->session != 0 && search->call.session != search->session)
			return false;
		search->session = search->call.session;
		if (steps[done].result.outcome == CALL_UNREACHABLE)
			search->lost_record = true;
		for (int i = done; i < done + some; i++)
		{
			if (steps[i].result.outcome == CALL_UNKNOWN || steps[i].result.outcome == CALL_UNREACHABLE)
				return false;
		}
	}
	return true;
}

/*
 * Finds the nearest unknown contender before each wait on a path: it waits for all those for
 * which others do.
 */
static void
find_unknown_contenders(WaitSearch *search, const CallStep *list)
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

/*
 * Finds the waits of ours that are stuck, and all for which they wait: by the records, and
 * if these show any, by the facts.  Returns false if those cannot be had now, or the session has
 * something else to do.
 */
bool
wait_search(WaitSearch *search)
{
	CallStep  *steps;
	KeptNode **about; /* the node that each step is about; for a list the first on its path */
	int		   n = 0;
	int		   max = ZKLOCK_FAULT("few-facts") ? FEW_FACTS : MAX_FACTS;
	ListCell  *cell;

	/* Take the waits of all records, and the nodes that these name, up to the limits. */
	search->waits = palloc(MAX_WAITS * sizeof(SearchWait));
	search->kept = palloc((MAX_KEPT + 1) * sizeof(KeptNode));
	foreach(cell, search->records)
	{
		ReadRecord *record = lfirst(cell);

		if (search->call.is_called_away(search))
			return false;
		(void) read_lines(record->text, strlen(record->text), &record->lines);
		for (const WaitLine *line = record->lines; line->kind != WAIT_LINE_END; line++)
		{
			KeptNode *kept = &search->kept[search->nkept];

			if (line->kind == WAIT_LINE_WAIT)
			{
				if (search->nwaits == MAX_WAITS)
					break;
				search->waits[search->nwaits++] = (SearchWait){.record = record, .line = line};
			}
			if (line->node[0] == '\0' || search->nkept == MAX_KEPT)
				continue;
			*kept = (KeptNode){.line = line, .wait = search->nwaits - 1, .is_so = true};
			kept->is_lock = lock_recipe.read(line->node, &kept->peer);
			if (!kept->is_lock)
				(void) permit_recipe.read(line->node, &kept->peer);
			search->nkept++;
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
		if (kept->line->kind == WAIT_LINE_WAIT)
			search->waits[kept->wait].node = kept;
	}
	if (search->call.is_called_away(search))
		return false;

	/* The first look takes them as they are. */
	if (!solve(search))
		return true;

	/*
	 * The second look takes no record on trust.  It asks what is on the paths where suspects
	 * wait, and who owns the nodes that suspects have there: first about those that are in a
	 * deadlock, or for which one that is waits; then about those merely behind one.
	 */
	steps = palloc0(MAX_FACTS * sizeof(CallStep));
	about = palloc0(MAX_FACTS * sizeof(KeptNode *));
	wait_graph_find_behind(&search->graph);
	for (KeptNode *kept = search->kept; kept->line; kept++)
	{
		const WaitVertex *vertex = &search->graph.vertices[kept->wait];

		kept->is_so = false;
		kept->suspect = !vertex->reached ? SUSPECT_NONE
						: vertex->behind ? SUSPECT_BEHIND
										 : SUSPECT_PART;
	}
	for (Suspect turn = SUSPECT_PART; turn > SUSPECT_NONE; turn--)
	{
		Suspect on_path = SUSPECT_NONE; /* the most suspect one of those that wait there */

		for (KeptNode *kept = search->kept; kept->line; kept++)
		{
			const char *path = kept->line->path;

			if (kept == kept->first)
			{
				on_path = SUSPECT_NONE;
				for (const KeptNode *other = kept; other->first == kept; other++)
				{
					if (other->line->kind == WAIT_LINE_WAIT)
						on_path = Max(on_path, other->suspect);
				}
			}
			if (kept == kept->first && on_path == turn && n < max)
			{
				about[n] = kept;
				steps[n++] = (CallStep){.asked = {.kind = ZK_GET_CHILDREN, .path = path}};
			}
			if (Min(on_path, kept->suspect) == turn && n < max)
			{
				about[n] = kept;
				steps[n++] =
					(CallStep){.asked = {.kind = ZK_EXISTS,
										 .path = psprintf("%s/%s", path, kept->line->node)}};
			}
		}
	}
	if (!wait_search_make_calls(search, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
	{
		const CallResult *result = &steps[i].result;
		KeptNode		 *kept = about[i];

		if (steps[i].asked.kind != ZK_EXISTS)
			continue;
		kept->is_so = result->outcome == CALL_OK &&
					  result->stat.ephemeral_owner == search->waits[kept->wait].record->owner;
		kept->czxid = kept->is_so ? result->stat.czxid : 0;
	}

	/*
	 * A path may have many nodes, so this checks for interrupts; the wait raises their
	 * error.
	 */
	for (int i = 0; i < n; i++)
	{
		if (search->call.is_called_away(search))
			return false;
		if (steps[i].asked.kind == ZK_GET_CHILDREN)
			find_unknown_contenders(search, &steps[i]);
	}
	search->has_facts = true;
	(void) solve(search);
	return true;
}

/*
 * Returns true if a wait of ours is to give up, in a component that this server does not
 * see by itself.  Then "parent" of the graph's vertices leads from it through the cycle,
 * and all for which the component waits is "reached".
 */
bool
wait_search_is_victim(WaitSearch *search, int wait)
{
	if (search->waits[wait].record->owner != search->session ||
		!wait_graph_is_victim(&search->graph, wait))
		return false;

	/* It has an unknown contender, or a wait of another server. */
	for (int i = 0; i < search->graph.nvertices; i++)
	{
		if (search->graph.vertices[i].reaches &&
			(i >= search->nwaits || search->waits[i].record->owner != search->session))
			return true;
	}
	return false;
}
