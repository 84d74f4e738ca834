/*
 * own_waits.c
 *		The record of this server's waits that others need to know.
 *
 * A session that has long waited for another server or client may be part of a cycle
 * through other servers, and so may all that cannot go on before it does, through any locks
 * of this server (deadlock.c).  They matter to others if they hold nodes, or stand between
 * readers of others that would not wait for each other.  So the record (wait_record.c) has
 * the part of the graph that cannot go on if the waits for others never end: these, and all
 * for which they wait.
 *
 * A record has limited room.  Each wait gets the same share, and has as many of its nodes
 * in the record as fit.  Processes for which others may wait come first, with all for which
 * these wait: so a crowd that merely waits behind a deadlock leaves room for those in it.
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

/* Returns true if a contender has waited for another server or client for deadlock_timeout. */
static bool
is_remote(const EntryCopy *contender)
{
	return contender->status.state == ENTRY_QUEUED && has_node(contender) &&
		   contender->node.waits_remote &&
		   zklock_ms_since(contender->request.requested_us) >= deadlock_search->deadlock_timeout;
}

/* Returns the rank of a contender.  If several wait with one node, only the first has one. */
static WaitsRank
rank_of(const Waits *waits, int i)
{
	const EntryCopy *contender = waits->contenders[i];
	bool			 blocks_remote = contender->node.blocks_remote;

	if (!has_node(contender))
		return RANK_NONE;
	if (contender->status.state == ENTRY_GRANTED)
		return blocks_remote ? RANK_BLOCKS_REMOTE : RANK_HOLDER;
	if (contender->request.kind != REQUEST_LOCK || contender->status.mode != LOCK_MODE_EXCLUSIVE ||
		(i > 0 && waits->contenders[i - 1]->node.cohort_id == contender->node.cohort_id))
		return RANK_NONE;
	return blocks_remote ? RANK_BETWEEN : RANK_WRITER;
}

/*
 * Finds the processes that cannot go on if no wait for others ends.  Returns false if there
 * is nothing that others need to know.
 */
static bool
find_stuck(Waits *waits)
{
	WaitGraph *graph = &waits->graph;
	bool	   remote = false;
	bool	   matters = false;

	for (int i = 0; i < waits->ncontenders; i++)
	{
		WaitsProcess *process = waits_explore(waits, waits->contenders[i]->request.pid);

		process->rank = Max(process->rank, rank_of(waits, i));

		/* A contender that will be refused because others are there does not wait. */
		if (process->waiting != &waits->contenders[i] || !is_remote(waits->contenders[i]))
			continue;
		remote = true;
		graph->vertices[process->vertex].needs = WAIT_GRAPH_NEVER;
	}
	wait_graph_solve(graph);
	for (int i = 0; i < graph->nvertices; i++)
		matters |= graph->vertices[i].stuck && waits_process(waits, i)->rank >= RANK_BETWEEN;
	return remote && matters;
}

/* Appends a process to those for the record, if it is stuck and not yet among them. */
static List *
append_stuck(List *order, const Waits *waits, int vertex)
{
	WaitsProcess *process = waits_process(waits, vertex);

	if (process->in_record || !waits->graph.vertices[vertex].stuck)
		return order;
	process->in_record = true;
	return lappend(order, process);
}

/*
 * Returns the processes for the record: those of the highest rank first, and after each
 * rank all for which they wait.
 */
static List *
find_order(const Waits *waits)
{
	List	 *order = NIL;
	int		  n = 0;
	ListCell *cell;

	for (WaitsRank rank = RANK_BLOCKS_REMOTE; rank > RANK_NONE; rank--)
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

/*
 * Appends a text as the last field.  Control characters become blanks, and a text that is
 * too long is clipped.
 */
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

/* Appends the nodes that a process holds: one, and more up to a length of the record. */
static void
append_held(StringInfo record, const Waits *waits, int pid, int limit)
{
	bool any = false;

	for (WaitsRank rank = RANK_BLOCKS_REMOTE; rank >= RANK_HOLDER; rank--)
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

/* Appends a process, if there is room.  It may need more than its share. */
static void
write_process(StringInfo record, const Waits *waits, const WaitsProcess *process, int share)
{
	int				 start = record->len;
	const EntryCopy *waiting = process->waiting ? *process->waiting : NULL;
	bool			 permit = waiting && waiting->request.kind == REQUEST_PERMIT;
	ListCell		*cell;

	appendStringInfo(record, "wait\t%llx\t%d\t%d\t", (unsigned long long) waits_identity(process),
					 process->pid, permit ? waits_permits(waiting) : 0);
	if (waiting && has_node(waiting))
		appendStringInfo(record, "%s/%s", waiting->request.path, waiting->node.name);
	appendStringInfoChar(record, '\t');
	append_text(record, waits_describe(process));

	/* The nodes of a semaphore show who has its permits. */
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
 * Takes the waits of this server, in the current memory context.  Returns the record of
 * them, or NULL if there is nothing that others need to know.
 *
 *	seen	highest zxid of a record that has been read before
 */
const char *
own_waits_write(Waits *waits, int64 seen)
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
		write_process(&record, waits, list_nth(order, i),
					  (WAIT_RECORD_MAX - record.len) / (list_length(order) - i));
	return record.data;
}
