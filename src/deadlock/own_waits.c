/*
 * own_waits.c
 *		What this server tells others of waits that last.
 *
 * A session that has waited for long for what another server or client has may be
 * part of a circle through other servers, and so may all that cannot go on before it
 * does, through whatever locks of this server (deadlock.c).  They matter to others if
 * they hold nodes, or stand between others that read and would not wait for each
 * other.  So what is told (wait_record.c) is the part of the graph that cannot
 * go on if the waits for others never end: these, and all for whom they wait.
 *
 * A record has room for so much.  Each wait gets the same share, and tells of as many
 * nodes as fit.  What may be waited for elsewhere comes first, with all for whom that
 * waits: a crowd that merely waits behind a deadlock leaves room for those in it.
 *
 * Runs in: backends, in the one that searches for all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "deadlock/deadlock_internal.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "shared/common.h"
#include "shared/settings.h"

static bool
has_node(const EntryCopy *contender)
{
	return contender->node.czxid != 0;
}

/* Has it waited for long for what another server or client has? */
static bool
is_abroad(const EntryCopy *contender)
{
	return contender->status.state == CONTENDER_QUEUED && has_node(contender) &&
		   contender->node.waits_abroad &&
		   zklock_ms_since(contender->request.requested_us) >= deadlock_search->deadlock_timeout;
}

/* How much does a contender matter?  Of those that wait with one node only the first does. */
static WaitsRank
rank_of(const Waits *waits, int i)
{
	const EntryCopy *contender = waits->contenders[i];
	bool			 coveted = contender->node.wanted_abroad;

	if (!has_node(contender))
		return RANK_NONE;
	if (contender->status.state == CONTENDER_GRANTED)
		return coveted ? RANK_COVETED : RANK_HOLDER;
	if (contender->request.kind != CONTENDER_LOCK || contender->status.mode != LOCK_MODE_EXCLUSIVE ||
		(i > 0 && waits->contenders[i - 1]->node.run_id == contender->node.run_id))
		return RANK_NONE;
	return coveted ? RANK_BETWEEN : RANK_WRITER;
}

/*
 * Finds out who cannot go on if no wait for others ends.  Returns false if there is nothing
 * that others need to know.
 */
static bool
find_stuck(Waits *waits)
{
	WaitGraph *graph = &waits->graph;
	bool	   abroad = false;
	bool	   matters = false;

	for (int i = 0; i < waits->ncontenders; i++)
	{
		WaitsProcess *process = waits_explore(waits, waits->contenders[i]->request.pid);

		process->rank = Max(process->rank, rank_of(waits, i));

		/* One that is about to be refused, as others are there, is no wait. */
		if (process->waiting != &waits->contenders[i] || !is_abroad(waits->contenders[i]))
			continue;
		abroad = true;
		graph->vertices[process->vertex].needs = WAIT_GRAPH_NEVER;
	}
	wait_graph_solve(graph);
	for (int i = 0; i < graph->nvertices; i++)
		matters |= graph->vertices[i].stuck && waits_process(waits, i)->rank >= RANK_BETWEEN;
	return abroad && matters;
}

/* Adds a process to those that are to be told, if it is stuck and not among them. */
static List *
append_stuck(List *order, const Waits *waits, int vertex)
{
	WaitsProcess *process = waits_process(waits, vertex);

	if (process->is_told || !waits->graph.vertices[vertex].stuck)
		return order;
	process->is_told = true;
	return lappend(order, process);
}

/* The processes to be told: those that matter most first, each rank with all for whom it waits. */
static List *
find_order(const Waits *waits)
{
	List	 *order = NIL;
	int		  n = 0;
	ListCell *cell;

	for (WaitsRank rank = RANK_COVETED; rank > RANK_NONE; rank--)
	{
		for (int i = 0; i < waits->graph.nvertices; i++)
		{
			if (waits_process(waits, i)->rank == rank)
				order = append_stuck(order, waits, i);
		}
		for (; n < list_length(order); n++)
		{
			foreach(cell, waits_blockers(waits, list_nth(order, n)))
			{
				order = append_stuck(order, waits, lfirst_int(cell));
			}
		}
	}
	return order;
}

/* ------------------------------------------------------------------------
 * The record
 * ------------------------------------------------------------------------
 */

/* Adds a text as the last field; what would part it is replaced, and what is too long is clipped. */
static void
append_text(StringInfo record, const char *text)
{
	int start = record->len;

	appendBinaryStringInfo(record, text,
						   pg_encoding_mbcliplen(PG_UTF8, text, strlen(text), WAIT_RECORD_MAX_TEXT));
	for (char *at = record->data + start; *at != '\0'; at++)
	{
		if ((unsigned char) *at < ' ' || *at == 0x7F)
			*at = ' ';
	}
	appendStringInfoChar(record, '\n');
}

/* Adds the nodes that a process holds: one, and more up to a length of the record. */
static void
append_held(StringInfo record, const Waits *waits, int pid, int limit)
{
	bool any = false;

	for (WaitsRank rank = RANK_COVETED; rank >= RANK_HOLDER; rank--)
	{
		for (int i = 0; i < waits->ncontenders; i++)
		{
			const EntryCopy *held = waits->contenders[i];

			if (held->request.pid != pid || rank_of(waits, i) != rank || (any && record->len >= limit))
				continue;
			appendStringInfo(record, "held\t0\t0\t0\t%s/%s\t\n", held->request.path, held->node.name);
			any = true;
		}
	}
}

/* Tells of a process, if there is room.  It may need more than its share of that. */
static void
tell(StringInfo record, const Waits *waits, const WaitsProcess *process, int share)
{
	int				 start = record->len;
	const EntryCopy *waiting = process->waiting ? *process->waiting : NULL;
	bool			 permit = waiting && waiting->request.kind == CONTENDER_PERMIT;
	ListCell		*cell;

	appendStringInfo(record, "wait\t%llx\t%d\t%d\t", (unsigned long long) waits_identity(process),
					 process->pid, permit ? waits_permits(waiting) : 0);
	if (waiting && has_node(waiting))
		appendStringInfo(record, "%s/%s", waiting->request.path, waiting->node.name);
	appendStringInfoChar(record, '\t');
	append_text(record, waits_describe(process));

	/* Of a semaphore, the nodes themselves tell who has its permits. */
	foreach(cell, permit ? NIL : waits_blockers(waits, process))
	{
		if (waits->graph.vertices[lfirst_int(cell)].stuck)
			appendStringInfo(record, "for\t0\t%d\t0\t\t\n",
							 waits_process(waits, lfirst_int(cell))->pid);
	}
	append_held(record, waits, process->pid, start + share);
	if (record->len <= WAIT_RECORD_MAX)
		return;
	record->len = start;
	record->data[start] = '\0';
}

/*
 * Looks who waits, in the current memory context.  Returns the record that tells others
 * of it, or NULL if there is nothing that they need to know.
 *
 *	seen	highest zxid of a record that has been read before
 */
const char *
own_waits_tell(Waits *waits, int64 seen)
{
	StringInfoData record;
	List		  *order;

	waits_take(waits);
	if (!find_stuck(waits))
		return NULL;
	initStringInfo(&record);
	appendStringInfo(&record, WAIT_RECORD_TITLE "\t%llx\t0\t0\t\t", (unsigned long long) seen);
	append_text(&record, zklock_own_name());
	order = find_order(waits);
	for (int i = 0; i < list_length(order); i++)
		tell(&record, waits, list_nth(order, i),
			 (WAIT_RECORD_MAX - record.len) / (list_length(order) - i));
	return record.data;
}
