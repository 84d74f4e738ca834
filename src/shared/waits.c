/*
 * waits.c
 *		Who waits for whom on this server, through zklock's locks and PostgreSQL's.
 *
 * The graph (wait_graph.h) has a vertex for each process, known by the pid of its
 * leader if it runs a query in parallel, and one for each wait in a queue of
 * ZooKeeper's.
 *
 *	process -> wait			the session's contender that is not granted
 *	process -> process		a wait for a lock of PostgreSQL's
 *	wait -> process			who stands in the contender's way
 *
 * In the way of a contender for a lock are all older ones of the path that it
 * conflicts with, whether they hold or wait: ZooKeeper's order is never changed.
 * The nearest exclusive one is in the way of all before it, or holds alone; so
 * what comes before that needs no edge, and a queue of n has about n edges.
 *
 * A contender for a permit needs some of the older ones to go, whichever these
 * are.  Permits of other clients are as if they went at any time: they are in
 * neither number (see permit_recipe.c for the rule).
 *
 * Other clients and servers are dead ends here.  So are processes that wait for
 * anything else, like a commit that waits for proof of its locks, or a session
 * that waits for a leader or for an element of a queue: anybody may make one or
 * offer one.
 *
 * Nothing keeps the graph still while it is taken.  That it is the same twice is
 * what makes it true: waits_fingerprint().
 *
 * Runs in: backends and the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "shared/waits.h"
#include "storage/lmgr.h"

/* A process that has a vertex, or waits for something */
typedef struct ProcessKey
{
	int					  pid; /* hash key */
	int					  vertex;
	const WaitsContender *waiting; /* the one that is not granted, or NULL */
} ProcessKey;

/* ------------------------------------------------------------------------
 * Contenders
 * ------------------------------------------------------------------------
 */

/* Copies what the spinlock protects.  Returns false if it neither waits nor holds. */
static bool
copy_status(ContenderEntry *entry, WaitsContender *copy)
{
	EntryStatus status;

	SpinLockAcquire(&entry->mutex);
	status = entry->status;
	SpinLockRelease(&entry->mutex);
	copy->state = status.state;
	copy->mode = status.mode;
	copy->permits = entry->request.terms.permits;
	if (status.others_permits > 0)
		copy->permits = Min(copy->permits, status.others_permits);
	copy->place = status.run_id != 0 ? status.run_id : PG_UINT64_MAX;
	copy->ticket = status.ticket;
	return status.state == CONTENDER_REQUESTED || status.state == CONTENDER_QUEUED ||
		   status.state == CONTENDER_GRANTED;
}

/* Copies an entry as it is at one moment; shared/entry.c says how. */
static bool
copy_entry(int index, WaitsContender *copy)
{
	ContenderEntry *entry = entry_at(index);
	char			path[ZKLOCK_MAX_PATH + 1];
	char			node[ZKLOCK_NODE_SIZE];
	uint32			changes;

	do
	{
		changes = entry_look_begin(entry);
		if (!copy_status(entry, copy))
			return false;
		copy->generation = entry_generation(index);
		copy->pid = entry->request.pid;
		copy->kind = entry->request.kind;
		copy->nowait = entry->request.nowait;
		copy->requested_at = entry->request.requested_at;
		strlcpy(path, entry->request.path, sizeof(path));
		strlcpy(node, entry->node.czxid != 0 ? entry->node.name : "", sizeof(node));
	} while (!entry_look_end(entry, changes));
	copy->index = index;
	copy->path = pstrdup(path);
	copy->node = pstrdup(node);
	return true;
}

/* By path, and there in the order in which they are served */
static int
compare_contenders(const void *a, const void *b)
{
	const WaitsContender *one = a;
	const WaitsContender *other = b;
	int					  order = strcmp(one->path, other->path);

	if (order == 0)
		order = one->place < other->place ? -1 : one->place > other->place;
	if (order == 0)
		order = one->ticket < other->ticket ? -1 : one->ticket > other->ticket;
	return order;
}

static void
copy_contenders(Waits *waits)
{
	int max = 64;

	waits->contenders = palloc(max * sizeof(WaitsContender));
	for (int i = 0; i < entries_max(); i++)
	{
		/* Most are free, which a glance tells. */
		if (((const volatile ContenderEntry *) entry_at(i))->status.state == CONTENDER_FREE)
			continue;
		if (waits->ncontenders == max)
		{
			max *= 2;
			waits->contenders = repalloc_huge(waits->contenders, max * sizeof(WaitsContender));
		}
		if (copy_entry(i, &waits->contenders[waits->ncontenders]))
			waits->ncontenders++;
	}
	qsort(waits->contenders, waits->ncontenders, sizeof(WaitsContender), compare_contenders);
}

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

static int
add_vertex(Waits *waits, int pid, const WaitsContender *contender)
{
	int n = waits->graph.nvertices;

	if (n == waits->max_vertices)
	{
		waits->max_vertices *= 2;
		waits->vertices = repalloc_huge(waits->vertices, waits->max_vertices * sizeof(WaitsVertex));
		waits->graph.vertices =
			repalloc_huge(waits->graph.vertices, waits->max_vertices * sizeof(WaitVertex));
	}
	waits->vertices[n] = (WaitsVertex){.pid = pid, .contender = contender};
	waits->graph.vertices[n] = (WaitVertex){.needs = WAIT_GRAPH_ALL};
	return waits->graph.nvertices++;
}

static void
add_edge(Waits *waits, int from, int to)
{
	if (waits->graph.nedges == waits->max_edges)
	{
		waits->max_edges *= 2;
		waits->graph.edges = repalloc_huge(waits->graph.edges, waits->max_edges * sizeof(WaitEdge));
	}
	waits->graph.edges[waits->graph.nedges++] = (WaitEdge){.from = from, .to = to};
}

static ProcessKey *
process_by_pid(const Waits *waits, int pid)
{
	bool		found;
	ProcessKey *process = hash_search(waits->processes, &pid, HASH_ENTER, &found);

	if (!found)
	{
		process->vertex = WAIT_GRAPH_NONE;
		process->waiting = NULL;
	}
	return process;
}

/* The vertex of a process, which is a new one if nobody has been seen to wait for it. */
static int
process_vertex(Waits *waits, int pid)
{
	ProcessKey *process = process_by_pid(waits, pid);

	if (process->vertex == WAIT_GRAPH_NONE)
		process->vertex = add_vertex(waits, pid, NULL);
	return process->vertex;
}

/* Takes a copy of the contenders; there are no vertices at first. */
void
waits_take(Waits *waits)
{
	HASHCTL ctl = {.keysize = sizeof(int), .entrysize = sizeof(ProcessKey)};

	memset(waits, 0, sizeof(*waits));
	copy_contenders(waits);
	waits->max_vertices = 64;
	waits->vertices = palloc(waits->max_vertices * sizeof(WaitsVertex));
	waits->graph.vertices = palloc(waits->max_vertices * sizeof(WaitVertex));
	waits->max_edges = 64;
	waits->graph.edges = palloc(waits->max_edges * sizeof(WaitEdge));
	ctl.hcxt = CurrentMemoryContext;
	waits->processes = hash_create("zklock waits", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < waits->ncontenders; i++)
	{
		const WaitsContender *contender = &waits->contenders[i];

		if (contender->state != CONTENDER_GRANTED && !contender->nowait)
			process_by_pid(waits, contender->pid)->waiting = contender;
	}
}

/* Adds the edges of a contender for a lock. */
static void
add_lock_edges(Waits *waits, int vertex, const WaitsContender *waiting)
{
	for (const WaitsContender *older = waiting - 1;
		 older >= waits->contenders && strcmp(older->path, waiting->path) == 0; older--)
	{
		if (older->pid == waiting->pid ||
			(older->mode == LOCK_MODE_SHARED && waiting->mode == LOCK_MODE_SHARED))
			continue;
		add_edge(waits, vertex, process_vertex(waits, older->pid));
		if (older->mode == LOCK_MODE_EXCLUSIVE)
			break;
	}
}

/* Adds those of a contender for a permit, and how many of them have to go. */
static void
add_permit_edges(Waits *waits, int vertex, const WaitsContender *waiting)
{
	int nolder = 0;

	for (const WaitsContender *older = waiting - 1;
		 older >= waits->contenders && strcmp(older->path, waiting->path) == 0; older--)
	{
		add_edge(waits, vertex, process_vertex(waits, older->pid));
		nolder++;
	}
	waits->graph.vertices[vertex].needs = Max(nolder - waiting->permits + 1, 0);
}

/* Adds the wait of a process's contender. */
static void
add_wait(Waits *waits, int process, const WaitsContender *waiting)
{
	int vertex = add_vertex(waits, waiting->pid, waiting);

	/* Unique, and the same for all who look. */
	waits->graph.vertices[vertex].order =
		(uint64) waiting->requested_at * ZKLOCK_LOCKS_LIMIT + waiting->index;
	add_edge(waits, process, vertex);
	if (waiting->kind == CONTENDER_PERMIT)
		add_permit_edges(waits, vertex, waiting);
	else
		add_lock_edges(waits, vertex, waiting);
}

/* Adds for whom a process waits. */
static void
explore_process(Waits *waits, int process)
{
	int					  pid = waits->vertices[process].pid;
	const WaitsContender *waiting = process_by_pid(waits, pid)->waiting;
	HeavyWait			  heavy;

	if (waiting)
		add_wait(waits, process, waiting);
	heavy_wait_look(pid, &heavy);
	waits->vertices[process].heavy = heavy;
	for (int i = 0; i < heavy.nblockers; i++)
		add_edge(waits, process, process_vertex(waits, heavy.blockers[i]));
}

/*
 * Adds a process, and all for whom it waits, who are waited for by these, and so
 * on, as far as they are not in the graph.  Returns the process's vertex.
 */
int
waits_explore(Waits *waits, int pid)
{
	int first_new = waits->graph.nvertices;
	int process = process_vertex(waits, pid);

	for (int i = first_new; i < waits->graph.nvertices; i++)
	{
		if (waits->vertices[i].contender == NULL)
			explore_process(waits, i);
	}
	return process;
}

/* The vertex of an entry's wait, or WAIT_GRAPH_NONE. */
int
waits_of_entry(const Waits *waits, int index)
{
	for (int i = 0; i < waits->graph.nvertices; i++)
	{
		if (waits->vertices[i].contender && waits->vertices[i].contender->index == index)
			return i;
	}
	return WAIT_GRAPH_NONE;
}

/*
 * A number for the wait for which a vertex stands, and no other: as long as two
 * looks find the same, the process has waited from the one to the other.
 */
uint64
waits_identity(const Waits *waits, int vertex)
{
	const WaitsVertex *waiting = &waits->vertices[vertex];
	uint64			   parts[3] = {waiting->pid};

	if (waiting->contender)
	{
		parts[1] = waiting->contender->index + 1;
		parts[2] = waiting->contender->generation;
	}
	else
		parts[2] = waiting->heavy.identity;
	return hash_bytes_extended((const unsigned char *) parts, sizeof(parts), 0);
}

/*
 * A number that is the same for two graphs only if the same waits are stuck.  A
 * process that waits does nothing else, so such a wait has lasted from the one
 * look to the other; and what the process has, it has kept.  Between the two,
 * therefore, all these waits were there at once.
 */
uint64
waits_fingerprint(const Waits *waits)
{
	uint64 fingerprint = 0;

	/* A sum, since the order of vertices may differ */
	for (int i = 0; i < waits->graph.nvertices; i++)
	{
		if (waits->graph.vertices[i].stuck)
			fingerprint += waits_identity(waits, i);
	}
	return fingerprint;
}

/* ------------------------------------------------------------------------
 * Words
 * ------------------------------------------------------------------------
 */

static void
describe_contender(const WaitsContender *contender, StringInfo text)
{
	if (contender->kind == CONTENDER_LOCK)
		appendStringInfo(text, _("%s on ZooKeeper path \"%s\""),
						 contender->mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock" : "ShareLock",
						 contender->path);
	else
	{
		/* The path of the turn or permit is one below the semaphore's. */
		int length = strrchr(contender->path, '/') - contender->path;

		appendStringInfo(text, _("%s on ZooKeeper path \"%.*s\""), "SemaphorePermit", length,
						 contender->path);
	}
}

/*
 * For what does a process wait, such as "ShareLock on transaction 731"?
 *
 *	next	the vertex that follows it in a cycle
 */
void
waits_describe(const Waits *waits, int process, int next, StringInfo text)
{
	const HeavyWait *heavy = &waits->vertices[process].heavy;

	if (waits->vertices[next].contender)
		describe_contender(waits->vertices[next].contender, text);
	else
	{
		StringInfoData tag;

		initStringInfo(&tag);
		DescribeLockTag(&tag, &heavy->tag);
		appendStringInfo(text, _("%s on %s"),
						 GetLockmodeName((LOCKMETHODID) heavy->tag.locktag_lockmethodid, heavy->mode),
						 tag.data);
		pfree(tag.data);
	}
}
