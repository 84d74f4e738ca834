/*
 * deadlock.c
 *		Ends deadlocks in which this session waits.
 *
 * A session that waits for a lock of zklock's looks after deadlock_timeout whether
 * it waits for itself, through whatever locks of this server, and again, less and
 * less often (wait.c).  PostgreSQL's own check looks once, when a process has waited for
 * that time: the last to wait sees the whole cycle.  Here the last may wait for a
 * lock of PostgreSQL's, whose check knows nothing of ours; then one that has been
 * waiting for long must find it.
 *
 * Two looks, one after the other, that see the same waits prove that they were
 * there at once (waits.c).  The session whose wait is the youngest in the
 * cycle raises the error, in itself.  No signal is needed, and no other session
 * can come to the same conclusion about the same waits.
 *
 * A circle through other servers is found by the session that searches for all
 * (deadlock_across.c).
 *
 * What the error says is in PostgreSQL's words; what the sessions run goes to the
 * server's log alone.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/deadlock.h"
#include "backend/display.h"
#include "backend/waits.h"
#include "compat.h"

/* Of a longer cycle the rest is not told. */
#define MAX_CYCLE 256

/* What one look has found: the cycle that this session is to end, if there is one. */
typedef struct Look
{
	Waits  waits;
	int	   cycle[MAX_CYCLE]; /* vertices; see wait_graph_cycle() */
	int	   length;			 /* of the cycle, 0 if there is none */
	uint64 fingerprint;
} Look;

/* Looks at all for whom this session waits by that entry. */
static void
look(Look *found, int index)
{
	int self;

	found->length = 0;
	waits_take(&found->waits);
	(void) waits_explore(&found->waits, MyProcPid);
	self = waits_of_entry(&found->waits, index);
	if (self == WAIT_GRAPH_NONE)
		return;
	wait_graph_solve(&found->waits.graph);
	found->length = wait_graph_cycle(&found->waits.graph, self, found->cycle, MAX_CYCLE);
	found->fingerprint = waits_fingerprint(&found->waits);
}

/* The processes of a cycle, from this session on: who waits for what, and whom. */
static char *
describe_cycle(const Look *found)
{
	StringInfoData text;
	int			   n = Min(found->length, MAX_CYCLE);
	int			   from = n - 1; /* this session comes before its own wait */

	initStringInfo(&text);
	for (int i = 0; i < n; i++)
	{
		int				   at = found->cycle[(from + i) % n];
		int				   next = found->cycle[(from + i + 1) % n];
		const WaitsVertex *vertex = waits_vertex(&found->waits, at);
		const WaitsVertex *blocker = waits_vertex(&found->waits, next);

		if (vertex->contender)
			continue;
		if (blocker->contender)
			blocker = waits_vertex(&found->waits, found->cycle[(from + i + 2) % n]);
		if (text.len > 0)
			appendStringInfoChar(&text, '\n');
		appendStringInfo(&text, _("Process %d waits for "), vertex->pid);
		waits_describe(&found->waits, at, next, &text);
		appendStringInfo(&text, _("; blocked by process %d."), blocker->pid);
	}
	return display_utf8(text.data);
}

/* What the processes of a cycle run, for the log */
static char *
describe_queries(const Look *found)
{
	StringInfoData text;
	int			   n = Min(found->length, MAX_CYCLE);

	initStringInfo(&text);
	for (int i = 0; i < n; i++)
	{
		const WaitsVertex *vertex = waits_vertex(&found->waits, found->cycle[(n - 1 + i) % n]);

		if (vertex->contender == NULL)
			appendStringInfo(&text, _("\nProcess %d: %s"), vertex->pid,
							 pgstat_get_backend_current_activity(vertex->pid, false));
	}
	return text.data;
}

/* Raises the error; what goes to the client goes to the log, too, with the queries. */
static void
report(const char *cycle, const char *queries)
{
	ereport(ERROR, (errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
					errdetail_internal("%s", cycle), errdetail_log("%s%s", cycle, queries),
					errhint("See server log for query details.")));
}

/*
 * Raises an error if the session waits for itself, by that entry, and is the one
 * to give up.
 */
void
deadlock_check(int index)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zklock deadlock check",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Look		 *first = palloc(sizeof(Look));
	Look		 *second = palloc(sizeof(Look));

	look(first, index);
	if (first->length > 0)
	{
		look(second, index);
		if (second->length > 0 && second->fingerprint == first->fingerprint)
			report(describe_cycle(second), describe_queries(second));
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * Raises the error for a cycle through other servers, whose queries are not known.
 *
 *	cycle	who waits for whom, UTF-8
 *	pids	the processes of this server in it
 */
void
deadlock_report(const char *cycle, const int *pids, int npids)
{
	StringInfoData queries;

	initStringInfo(&queries);
	for (int i = 0; i < npids; i++)
		appendStringInfo(&queries, _("\nProcess %d: %s"), pids[i],
						 pgstat_get_backend_current_activity(pids[i], false));
	report(display_utf8(cycle), queries.data);
}
