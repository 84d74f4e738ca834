/*
 * own_waits.c
 *		What this server tells others of waits that last.
 *
 * A session that has waited for long for what another server or client has may be
 * part of a circle through other servers.  It matters to them if its wait keeps a
 * node of ours in their way: one that is held by the session itself, or by one
 * that waits for it, through whatever locks of this server.  So each path in the
 * graph of waits (waits.c) from a process that holds nodes to such a wait
 * becomes a "wait" of the record (recipes/wait_record.c), whose steps are the
 * processes on the way.
 *
 * A record has room for so much.  Each of its waits gets the same share, and tells
 * of as many nodes as fit.  What may be waited for elsewhere comes first: a crowd
 * that merely waits behind a deadlock leaves room for those in it.
 *
 * Runs in: backends, in the one that searches for all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/wait_search.h"
#include "backend/waits.h"
#include "common/hashfn.h"
#include "shared/settings.h"
#include "utils/timestamp.h"

/* A process that holds nodes, and the wait that keeps it from letting go */
typedef struct Chain
{
	const WaitsVertex	 *process;
	const WaitsContender *waiting;
	int	   steps[WAIT_RECORD_MAX_STEPS]; /* vertices of processes, this one first ... */
	int	   next[WAIT_RECORD_MAX_STEPS];	 /* ... and what follows each */
	int	   nsteps;
	uint64 identity;
} Chain;

typedef struct Chains
{
	const SearchSigns *signs;
	Waits			   waits;
	Chain			  *chains;
	int				   n;
	int				   max;
} Chains;

static bool
is_held(const WaitsContender *contender)
{
	return contender->state == CONTENDER_GRANTED && contender->node[0] != '\0';
}

/* Has it waited for long for what another server or client has? */
static bool
is_abroad(const Chains *all, const WaitsContender *contender)
{
	return contender->state == CONTENDER_QUEUED && contender->node[0] != '\0' &&
		   search_sign(all->signs->abroad, contender->index) &&
		   TimestampDifferenceExceeds(contender->requested_at, GetCurrentTimestamp(),
									  all->signs->deadlock_timeout);
}

/* Takes in the way from a process to a wait, which has been traced. */
static void
add_chain(Chains *all, int process, int target)
{
	const Waits *waits = &all->waits;
	Chain		*chain;

	if (all->n == all->max)
	{
		all->max = Max(16, 2 * all->max);
		all->chains = waits_resize(all->chains, all->max * sizeof(Chain));
	}
	chain = &all->chains[all->n++];
	*chain = (Chain){.process = waits_vertex(waits, process),
					 .waiting = waits_vertex(waits, target)->contender};
	for (int at = process; at != target; at = waits->graph.vertices[at].parent)
	{
		const WaitsVertex *vertex = waits_vertex(waits, at);
		uint64 parts[3] = {chain->identity, waits_identity(waits, at), vertex->pid};

		chain->identity = hash_bytes_extended((const unsigned char *) parts, sizeof(parts), 0);
		if (vertex->contender)
			continue;

		/* Of a longer chain, what comes before its end is left out. */
		if (chain->nsteps == WAIT_RECORD_MAX_STEPS)
			chain->nsteps--;
		chain->steps[chain->nsteps] = at;
		chain->next[chain->nsteps++] = waits->graph.vertices[at].parent;
	}
}

/* Finds who is kept by the wait of a contender from letting go. */
static void
add_chains(Chains *all, const WaitsContender *waiting)
{
	WaitGraph *graph = &all->waits.graph;
	int		   target = waits_of_entry(&all->waits, waiting->index);

	if (target == WAIT_GRAPH_NONE)
		return;
	wait_graph_trace(graph, target);
	for (int i = 0; i < graph->nvertices; i++)
	{
		if (waits_vertex(&all->waits, i)->holds && graph->vertices[i].reaches)
			add_chain(all, i, target);
	}
}

/* Notes which processes hold nodes, and adds for whom they wait. */
static void
explore_holders(Chains *all)
{
	Waits *waits = &all->waits;

	for (int i = 0; i < waits->ncontenders; i++)
	{
		WaitsVertex *process;
		int			 vertex;

		if (!is_held(&waits->contenders[i]))
			continue;
		vertex = waits_explore(waits, waits->contenders[i].pid);
		process = waits->graph.vertices[vertex].what;
		process->holds = true;
		process->wanted |= search_sign(all->signs->coveted, waits->contenders[i].index);
	}
}

/* Finds all there is to tell. */
static void
find_chains(Chains *all)
{
	Waits *waits = &all->waits;
	bool   any = false;

	waits_take(waits);
	for (int i = 0; i < waits->ncontenders && !any; i++)
		any = is_abroad(all, &waits->contenders[i]);
	if (!any)
		return;
	explore_holders(all);
	wait_graph_solve(&waits->graph);
	for (int i = 0; i < waits->ncontenders; i++)
	{
		if (is_abroad(all, &waits->contenders[i]))
			add_chains(all, &waits->contenders[i]);
	}
}

/* Writes the nodes that a chain's process holds, up to a length of the record. */
static bool
put_held(const Chains *all, const Chain *chain, WaitWriter *writer, size_t limit)
{
	bool any = false;

	for (int wanted = 1; wanted >= 0; wanted--)
	{
		for (int i = 0; i < all->waits.ncontenders; i++)
		{
			const WaitsContender *held = &all->waits.contenders[i];

			if (held->pid != chain->process->pid || !is_held(held) || (any && writer->len >= limit) ||
				search_sign(all->signs->coveted, held->index) != wanted)
				continue;
			any |= wait_record_put(writer, &(WaitLine){.kind = WAIT_LINE_HELD,
													   .path = held->path,
													   .node = held->node});
		}
	}
	return any;
}

/* Writes one wait.  Returns false if there is no room for it. */
static bool
put_chain(const Chains *all, const Chain *chain, WaitWriter *writer, size_t limit)
{
	size_t	 start = writer->len;
	WaitLine line = {.kind = WAIT_LINE_WAIT,
					 .number = chain->identity,
					 .permits = chain->waiting->kind == CONTENDER_PERMIT ? chain->waiting->permits : 0,
					 .path = chain->waiting->path,
					 .node = chain->waiting->node};
	bool	 good = wait_record_put(writer, &line);

	for (int i = 0; i < chain->nsteps; i++)
	{
		StringInfoData text;

		initStringInfo(&text);
		waits_describe(&all->waits, chain->steps[i], chain->next[i], &text);
		good &=
			wait_record_put(writer,
							&(WaitLine){.kind = WAIT_LINE_STEP,
										.number = waits_vertex(&all->waits, chain->steps[i])->pid,
										.text = text.data});
		pfree(text.data);
	}
	good = good && put_held(all, chain, writer, limit);
	if (!good)
	{
		writer->len = start;
		writer->text[start] = '\0';
	}
	return good;
}

/*
 * Looks what there is to tell others, and writes it down, in the current memory
 * context.
 *
 *	seen	highest zxid of a record that has been read before
 *	signs	for which entries others matter
 */
void
own_waits_take(OwnWaits *own, int64 seen, const SearchSigns *signs)
{
	Chains		  *all = palloc0(sizeof(Chains));
	WaitWriter	   writer;
	StringInfoData server;
	int			   left;

	all->signs = signs;
	find_chains(all);
	initStringInfo(&server);
	zklock_append_server_name(&server);
	own->n = 0;
	own->waits = palloc(Max(all->n, 1) * sizeof(OwnWait));
	own->record = palloc(WAIT_RECORD_MAX + 1);
	wait_record_start(&writer, own->record, WAIT_RECORD_MAX);
	wait_record_put(&writer, &(WaitLine){.kind = WAIT_LINE_SERVER, .text = server.data});
	wait_record_put(&writer, &(WaitLine){.kind = WAIT_LINE_SEEN, .number = seen});
	own->body = writer.len;
	left = all->n;
	for (int wanted = 1; wanted >= 0; wanted--)
	{
		for (int i = 0; i < all->n; i++)
		{
			size_t share;

			if (all->chains[i].process->wanted != wanted)
				continue;
			share = (WAIT_RECORD_MAX - writer.len) / left--;
			if (put_chain(all, &all->chains[i], &writer, writer.len + share))
				own->waits[own->n++] = (OwnWait){.identity = all->chains[i].identity,
												 .entry = all->chains[i].waiting->index};
		}
	}
}
